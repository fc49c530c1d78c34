// The CPU's half of the kernels, which sweeps.cpp names and never calls here: every tensor is on the emulated
// GPU.
#include <cstdlib>

#include "strategies/kernels/backend.hpp"

namespace bnlab::kernels::cpu {

using at::Tensor;

void moments(const Layout&, const Offsets&, const Tensor&, Tensor&) {
  std::abort();
}
void normalise(const Layout&, const Offsets&, const NormaliseInputs&, Tensor&) {
  std::abort();
}
void backward_sums(const Layout&, const Offsets&, const BackwardInputs&, Tensor&) {
  std::abort();
}
void backward_input(const Layout&, const Offsets&, const BackwardInputs&, const Tensor&, const Tensor&,
                    const Tensor&, Tensor&) {
  std::abort();
}
void backward_residual(const Tensor&, const Tensor&, Tensor&) {
  std::abort();
}

}  // namespace bnlab::kernels::cpu
