// The operands of the finish steps as tensors, already allocated, and (`body`) as what the function of a channel takes.
// A step is run by itself (finish.cpp), or on CUDA in the launch that makes its input.
#pragma once

#include <c10/util/Exception.h>

#include "strategies/kernels/finish.hpp"
#include "strategies/kernels/finish_channel.hpp"

namespace bnlab::kernels {

inline Rows rows_of(const at::Tensor& packed) {  // rows may be expanded: stride 0
  TORCH_INTERNAL_ASSERT(packed.scalar_type() == at::kDouble && packed.dim() == 2 && packed.stride(1) == 1);
  return {packed.const_data_ptr<double>(), packed.stride(0), (packed.size(1) - 1) / 2};
}

template <class T>
const T* read(const at::Tensor& t) {  // null for an undefined tensor
  TORCH_INTERNAL_ASSERT(!t.defined() || t.is_contiguous());
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <class T>
T* written(const at::Tensor& t) {
  TORCH_INTERNAL_ASSERT(!t.defined() || t.is_contiguous());
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}

struct ForwardStep {
  at::Tensor rows;
  Sharing sharing;
  double eps;
  bool mean_only;
  at::Tensor weight, bias;
  Renorm renorm;  // its pair undefined: none
  Coefficients out;

  template <class T>
  FinishForward<T> body() const {
    return {rows_of(rows),
            out.mean.size(0),
            sharing,
            eps,
            mean_only,
            read<T>(weight),
            read<T>(bias),
            read<T>(renorm.pair),
            renorm.r_max,
            renorm.d_max,
            written<T>(out.mean),
            written<T>(out.invstd),
            written<T>(out.scale),
            written<T>(out.shift),
            written<T>(out.count),
            written<T>(out.r),
            written<T>(out.d)};
  }
};

// As finish_forward, of `sets` sets that share the rows; `out` is allocated.
ForwardStep forward_step(const at::Tensor& rows, int64_t sets, Sharing sharing, double eps, bool mean_only,
                         const at::Tensor& weight, const at::Tensor& bias, at::ScalarType statistics,
                         const std::optional<Renorm>& renorm);

struct BackwardStep {
  Coefficients forward;
  at::Tensor own, shared;
  int64_t summands;
  Sharing sharing;
  bool mean_only;
  at::Tensor weight;
  BackwardCoefficients out;

  template <class T>
  FinishBackward<T> body() const {
    return {own.size(0),
            own.size(2),
            mean_only,
            read<T>(own),
            read<T>(shared),
            summands,
            sharing,
            read<T>(forward.count),
            read<T>(forward.invstd),
            read<T>(forward.r),
            read<T>(forward.d),
            read<T>(weight),
            written<T>(out.a),
            written<T>(out.b),
            written<T>(out.c),
            written<T>(out.dweight),
            written<T>(out.dbias)};
  }
};

// As finish_backward, of sets that share rows of so many summands; `out` is allocated.
BackwardStep backward_step(const Coefficients& forward, const at::Tensor& own, const at::Tensor& shared,
                           int64_t summands, Sharing sharing, bool mean_only, const at::Tensor& weight);

template <class T>
MergeMoments<T> merge_body(const at::Tensor& rows, int64_t group, Merge merge, const at::Tensor& out) {
  return {rows_of(rows), written<double>(out), out.size(0),
          group,         merge == Merge::chan, merge == Merge::e_x2};
}

inline MomentsOfSums moments_of_sums_body(const at::Tensor& sums, Merge merge, const at::Tensor& out) {
  return {rows_of(sums), written<double>(out), out.size(0), merge == Merge::chan};
}

template <class T>
UpdatePair<T> pair_body(const PairStep& step, const at::Tensor& rows) {
  return {rows_of(rows),
          rows.size(0),
          read<double>(step.weights),
          static_cast<T>(step.decay),
          written<T>(step.held),
          written<int64_t>(step.nonfinite),
          written<T>(step.towers),
          step.step_weight};
}

}  // namespace bnlab::kernels
