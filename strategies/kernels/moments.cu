// Moments on a GPU.
#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {

void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out,
             const ForwardStep* forward, const RunningUpdate* update) {
  const c10::DeviceGuard guard(x.device());
  if (x.numel() == 0) {
    out.zero_();
    return;
  }
  dispatch(x.scalar_type(), [&](auto in) {
    using T = typename decltype(in)::Element;
    using A = Compute<T>;
    in.x = data<T>(x);
    MomentsEpilogue<A> epilogue;
    epilogue.rows = data<double>(out);
    if (forward != nullptr) {
      epilogue.steps = true;
      epilogue.forward = forward->on_pointers<A>();
      epilogue.updates = update != nullptr;
      if (update != nullptr) epilogue.update = on_pointers<A>(*update, out);
    }
    with_shape(layout, in, [&](auto rows, auto vector) {
      launch_reduce<MomentsOperation<T, rows, vector>>(layout, offsets, in, out.options(), epilogue);
    });
  });
}

}  // namespace bnlab::kernels::cuda
