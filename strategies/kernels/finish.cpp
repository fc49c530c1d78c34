#include "strategies/kernels/finish.hpp"

#include <ATen/ops/empty.h>

#include "harness/network.hpp"
#include "strategies/kernels/finish_channel.hpp"

namespace bnlab::kernels {

#ifdef BNLAB_WITH_CUDA
namespace cuda {
template <class Body>
void each_channel(const Body& body, int64_t channels, at::Device device);  // finish.cu
}
#endif

namespace {

using at::Tensor;

template <class Body>
void each_channel(const Body& body, int64_t channels, [[maybe_unused]] const Tensor& on) {
#ifdef BNLAB_WITH_CUDA
  if (on.is_cuda()) {
    cuda::each_channel(body, channels, on.device());
    return;
  }
#endif
  for (int64_t c = 0; c < channels; ++c) {
    body(c);
  }
}

// Calls work(T()) with T the C++ type of the statistics' precision.
template <class Work>
auto in_precision(at::ScalarType statistics, const Work& work) {
  return statistics == at::kDouble ? work(double()) : work(float());
}

Rows rows_of(const Tensor& packed) {  // rows may be expanded: stride 0
  TORCH_INTERNAL_ASSERT(packed.scalar_type() == at::kDouble && packed.dim() == 2 && packed.stride(1) == 1);
  return {packed.const_data_ptr<double>(), packed.stride(0), (packed.size(1) - 1) / 2};
}

template <class T>
const T* data(const Tensor& t) {  // null for an undefined tensor
  TORCH_INTERNAL_ASSERT(!t.defined() || t.is_contiguous());
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

// Sums [S, 2, C] may be expanded: stride 0 from set to set.
template <class T>
const T* sums_of(const Tensor& t) {
  TORCH_INTERNAL_ASSERT(!t.defined() || (t.stride(2) == 1 && t.stride(1) == t.size(2)));
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <class T>
T* written(const Tensor& t) {
  TORCH_INTERNAL_ASSERT(!t.defined() || t.is_contiguous());
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}

}  // namespace

Tensor merge_moments(const Tensor& rows, int64_t group, Merge merge, at::ScalarType statistics) {
  const Rows in = rows_of(rows);
  const int64_t groups = rows.size(0) / group;
  const Tensor out = at::empty({groups, rows.size(1)}, rows.options());
  in_precision(statistics, [&](auto zero) {
    each_channel(MergeMoments<decltype(zero)>{in, written<double>(out), groups, group, merge == Merge::chan,
                                              merge == Merge::e_x2},
                 in.channels, rows);
  });
  return out;
}

Coefficients finish_forward(const Tensor& rows, double eps, bool mean_only, const Tensor& weight,
                            const Tensor& bias, at::ScalarType statistics,
                            const std::optional<Renorm>& renorm) {
  const Rows in = rows_of(rows);
  const int64_t sets = rows.size(0);
  const Tensor all = at::empty({renorm ? 6 : 4, sets, in.channels}, rows.options().dtype(statistics));
  Coefficients k{all[0], all[1], all[2], all[3], {}, {}};
  Renorm limits;
  if (renorm) {
    limits = *renorm;
    k.r = all[4];
    k.d = all[5];
  }
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    each_channel(
        FinishForward<T>{in, sets, eps, mean_only, data<T>(weight), data<T>(bias), data<T>(limits.pair),
                         limits.r_max, limits.d_max, written<T>(k.mean), written<T>(k.invstd),
                         written<T>(k.scale), written<T>(k.shift), written<T>(k.r), written<T>(k.d)},
        in.channels, rows);
  });
  return k;
}

BackwardCoefficients finish_backward(const Coefficients& forward, const Tensor& own, const Tensor& shared,
                                     const Tensor& rows, bool mean_only, const Tensor& weight) {
  const int64_t sets = own.size(0);
  const Rows in = shared.defined() ? rows_of(rows) : Rows{nullptr, 0, own.size(2)};
  const Tensor all = at::empty({3, sets, in.channels}, own.options());
  const Tensor of_parameters = at::empty({2, in.channels}, own.options());
  BackwardCoefficients k{forward.mean, all[0], all[1], all[2], of_parameters[0], of_parameters[1]};
  in_precision(own.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    each_channel(
        FinishBackward<T>{in, sets, mean_only, data<T>(own), sums_of<T>(shared),
                          shared.defined() ? shared.stride(0) : 0, data<T>(forward.invstd),
                          data<T>(forward.r), data<T>(forward.d), data<T>(weight), written<T>(k.a),
                          written<T>(k.b), written<T>(k.c), written<T>(k.dweight), written<T>(k.dbias)},
        in.channels, own);
  });
  return k;
}

void update_pair(const Tensor& held, const Tensor& rows, const Tensor& weights, double decay,
                 const Tensor& nonfinite, const Tensor& spoiled) {
  const Rows in = rows_of(rows);
  in_precision(held.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    each_channel(UpdatePair<T>{in, rows.size(0), data<double>(weights), static_cast<T>(decay),
                               written<T>(held), written<T>(spoiled), written<int64_t>(nonfinite)},
                 in.channels, rows);
  });
}

}  // namespace bnlab::kernels
