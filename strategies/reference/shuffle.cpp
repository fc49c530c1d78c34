// Reference of shuffle: the global batch is permuted, each tower normalises the samples that stand at its
// places, and every sample goes back.
#include "harness/support/random.hpp"
#include "strategies/reference/batch_norm.hpp"

namespace bnlab::reference {
namespace {

class Shuffle : public BatchNormSite {
 public:
  Shuffle(const Json& options, const Start& start)
      : BatchNormSite(options, start),
        tower_(static_cast<size_t>(existing_tower(options.at("saved_tower"), start))),
        seed_(start.seed) {}

  Tensors train(const Tensors& x) override {
    const at::Tensor rows = at::cat(x);
    std::vector<int64_t> sizes;
    for (const at::Tensor& tower : x) sizes.push_back(tower.size(0));
    permutation_ = Stream(seed_, "shuffle", step_++).permutation(rows.size(0));
    const at::Tensor order = at::tensor(permutation_, at::kLong);
    const Tensors shuffled = rows.index_select(0, order).split_with_sizes(sizes);
    const at::Tensor y = at::cat(BatchNormSite::train(shuffled));
    return y.index_select(0, order.argsort()).split_with_sizes(sizes);
  }

  std::vector<int64_t> permutation() const override { return permutation_; }

 protected:
  void remember(const Tensors& shuffled) override { remember_tower(tower_, shuffled); }

 private:
  size_t tower_;
  uint64_t seed_;
  uint64_t step_ = 0;
  std::vector<int64_t> permutation_;
};

const auto shuffle = site_reference<Shuffle>(
    "shuffle", {Json::object(), {{"saved_tower", 1}}, {{"momentum", nullptr}}, {{"affine", false}}});

}  // namespace
}  // namespace bnlab::reference
