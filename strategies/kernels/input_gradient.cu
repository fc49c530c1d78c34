// Gradients of inputs and residuals on a GPU.
#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {

void backward_input(const Layout& layout, const Offsets& offsets, const BackwardInputs& in,
                    const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, at::Tensor& out) {
  const c10::DeviceGuard guard(in.x.device());
  dispatch(in.x.scalar_type(), [&](auto empty) {
    using T = typename decltype(empty)::Element;
    Arguments<T> arguments = backward_arguments<T>(in);
    arguments.out = data<T>(out);
    arguments.a = data<Compute<T>>(a);
    arguments.b = data<Compute<T>>(b);
    arguments.c = data<Compute<T>>(c);
    with_shape(layout, arguments, [&](auto rows, auto vector) {
      with_flag(arguments.scale != nullptr, [&](auto from_input) {
        launch_apply<InputGradient<T, rows, vector, from_input>>(layout, offsets, arguments);
      });
    });
  });
}

// Elements need no channels here: the tensor is one long plane.
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out) {
  const c10::DeviceGuard guard(dy.device());
  dispatch(dy.scalar_type(), [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    arguments.dy = data<T>(dy);
    arguments.y = data<T>(y);
    arguments.out = data<T>(out);
    Layout layout;
    layout.rows = layout.channels = 1;
    layout.plane = dy.numel();
    with_shape(layout, arguments, [&](auto rows, auto vector) {
      launch_apply<ResidualGradient<T, rows, vector>>(layout, {0, 1}, arguments);
    });
  });
}

}  // namespace bnlab::kernels::cuda
