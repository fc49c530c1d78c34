// Reference of ghost: own moments of every `virtual_batch` consecutive samples of a tower.
#include "strategies/reference/batch_norm.hpp"

namespace bnlab::reference {
namespace {

class Ghost : public BatchNormSite {
 public:
  Ghost(const Json& options, const Start& start)
      : BatchNormSite(options, start), virtual_batch_(options.at("virtual_batch").get<int64_t>()) {}

  Tensors train(const Tensors& x) override {
    for (const at::Tensor& tower : x)
      if (tower.size(0) % virtual_batch_ != 0)
        refuse("ghost: virtual_batch does not divide the samples of a tower");
    return BatchNormSite::train(x);
  }

 protected:
  std::vector<Tensors> sets(const Tensors& x) const override {
    std::vector<Tensors> all;
    for (const at::Tensor& tower : x)
      for (const at::Tensor& part : tower.split(virtual_batch_)) all.push_back({part});
    return all;
  }

  Tensors normalised(const Tensors& x) const override {
    Tensors y;
    for (const at::Tensor& tower : x) {
      const Tensors parts = tower.split(virtual_batch_);
      y.push_back(at::cat(BatchNormSite::normalised(parts)));
    }
    return y;
  }

  Tensors sets_of_tower(const at::Tensor& tower) const override { return tower.split(virtual_batch_); }

 private:
  int64_t virtual_batch_;
};

const auto ghost = site_reference<Ghost>("ghost", {Json::object(),
                                                   {{"virtual_batch", 1}},
                                                   {{"virtual_batch", 3}},
                                                   {{"virtual_batch", 3}, {"momentum", nullptr}},
                                                   {{"virtual_batch", 4}}});

}  // namespace
}  // namespace bnlab::reference
