// y = (x - mean) scale + shift on a GPU.
#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {

void normalise(const Layout& layout, const Offsets& offsets, const NormaliseInputs& in, at::Tensor& out) {
  const c10::DeviceGuard guard(in.x.device());
  dispatch(in.x.scalar_type(), [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    arguments.x = data<T>(in.x);
    arguments.residual = data<T>(in.residual);
    arguments.out = data<T>(out);
    arguments.mean = data<Compute<T>>(in.mean);
    arguments.scale = data<Compute<T>>(in.scale);
    arguments.shift = data<Compute<T>>(in.shift);
    arguments.relu = in.activation == Activation::relu;
    with_shape(layout, arguments, [&](auto rows, auto vector) {
      launch_apply<Normalise<T, rows, vector>>(layout, offsets, arguments);
    });
  });
}

}  // namespace bnlab::kernels::cuda
