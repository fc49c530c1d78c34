// Backward sums on a GPU.
#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {

void backward_sums(const Layout& layout, const Offsets& offsets, const BackwardInputs& in, at::Tensor& out,
                   const BackwardStep* backward) {
  const c10::DeviceGuard guard(in.x.device());
  if (in.x.numel() == 0) {
    out.zero_();
    return;
  }
  dispatch(in.x.scalar_type(), [&](auto empty) {
    using T = typename decltype(empty)::Element;
    using A = Compute<T>;
    SumsEpilogue<A> epilogue;
    epilogue.sums = data<A>(out);
    if (backward != nullptr) {
      epilogue.steps = true;
      epilogue.backward = backward->on_pointers<A>();
    }
    const Arguments<T> arguments = backward_arguments<T>(in);
    with_shape(layout, arguments, [&](auto rows, auto vector) {
      with_flag(arguments.scale != nullptr, [&](auto from_input) {
        launch_reduce<BackwardSums<T, rows, vector, from_input>>(layout, offsets, arguments, out.options(),
                                                                 epilogue);
      });
    });
  });
}

}  // namespace bnlab::kernels::cuda
