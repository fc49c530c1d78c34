#include "strategies/engine/standardised_convolution.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "strategies/kernels/moving_average.hpp"

namespace bnlab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class CentredFilters : public torch::autograd::Function<CentredFilters> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& filters) {
    return kernels::centred_filters(filters.contiguous());
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {apply(gradients[0])}; }
};

}  // namespace

StandardisedConvolution::StandardisedConvolution(const ConvSite& site, const at::Tensor& v, WeightRule rule,
                                                 double eps)
    : site_(site), rule_(rule), eps_(eps) {
  v_ = register_parameter("weight", v);
  if (site.bias) bias_ = register_parameter("bias", at::zeros({site.out}, v.options()));
}

// Without a copy. The order of a filter's values does not matter.
at::Tensor StandardisedConvolution::filters() const {
  return v_.is_contiguous() ? standardised(v_.flatten(1)).view_as(v_)
                            : standardised(v_.permute({0, 2, 3, 1}).flatten(1))
                                  .view({v_.size(0), v_.size(2), v_.size(3), v_.size(1)})
                                  .permute({0, 3, 1, 2});
}

at::Tensor StandardisedConvolution::forward(at::Tensor x, at::Tensor, const Pass&) {
  return site_.convolved(x, filters().to(x.scalar_type()),
                         bias_.defined() ? bias_.to(x.scalar_type()) : bias_);
}

at::Tensor StandardisedConvolution::standardised(const at::Tensor& filters) const {
  if (rule_ == WeightRule::paper)  // one kernel forward and one backward on a GPU
    return at::layer_norm(filters, {filters.size(1)}, {}, {}, eps_);
  if (rule_ == WeightRule::centred) return CentredFilters::apply(filters);
  const at::Tensor centred = filters - filters.mean(1, /*keepdim=*/true);
  return centred / (filters.std(1, /*unbiased=*/true, /*keepdim=*/true) + eps_);
}

}  // namespace bnlab
