// Backward sums on a GPU.
#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {

void backward_sums(const Layout& layout, const Offsets& offsets, const BackwardInputs& in, at::Tensor& out,
                   const BackwardStep* backward) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  if (in.x.numel() == 0) {
    out.zero_();
    return;
  }
  dispatch(in.x.scalar_type(), [&](auto empty) {
    using T = typename decltype(empty)::Element;
    using A = Compute<T>;
    SumsEpilogue<A> epilogue;
    if (backward != nullptr) {
      epilogue.given = true;
      epilogue.backward = backward->on_pointers<A>();
    }
    const Arguments<T> arguments = backward_arguments<T>(in);
    if (arguments.scale == nullptr)
      reduce_any<Sums, T>(layout, offsets, arguments, out, epilogue);
    else
      reduce_any<SumsFromInput, T>(layout, offsets, arguments, out, epilogue);
  });
}

}  // namespace bnlab::kernels::cuda
