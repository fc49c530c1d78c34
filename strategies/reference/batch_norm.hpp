// A site of the BN family in the references, by the family's choices: which sets of values share their
// moments, what a step writes into the running statistics, what the gradient passes through (that of the
// formula as it is written, unless a site detaches something).
#pragma once

#include "strategies/reference/reference.hpp"

namespace bnlab::reference {

// Every tower by itself.
class BatchNormSite : public Site {
 public:
  BatchNormSite(const Json& options, const Start& start);

  Tensors train(const Tensors& x) override;
  Tensors evaluate_batch(const Tensors& x) override { return normalised(x); }
  Tensors evaluate(const Tensors& x, const Pair& pair) override;
  bool affine() const override { return affine_; }
  Pair saved() const override { return running_.pair(); }

 protected:
  // Values that share their moments in training; a set of one value is refused.
  virtual std::vector<Tensors> sets(const Tensors& x) const;
  // By the moments of the sets, whose parts are the towers one after another.
  virtual Tensors normalised(const Tensors& x) const;
  virtual Tensors normalised_in_training(const Tensors& x) const { return normalised(x); }
  // A training step, or each of its passes, writes into the running statistics: the plain mean over the sets
  // of all towers.
  virtual void remember(const Tensors& x) { remember_sets_of_towers(x, /*in_turn=*/false); }
  // The sets of one tower that are remembered by themselves: the tower itself.
  virtual Tensors sets_of_tower(const at::Tensor& tower) const { return {tower}; }

  void remember_tower(size_t tower, const Tensors& x);
  void remember_sets_of_towers(const Tensors& x, bool in_turn);
  // As one update with the plain mean over sets whose moments all ranks know.
  void remember_mean_of(const std::vector<Pair>& written) { running_.remember(mean_of(written)); }
  void remember_pooled(const Tensors& x) { remember_mean_of(written(std::vector<Tensors>{x})); }
  // What each set that is not empty would write.
  std::vector<Pair> written(const std::vector<Tensors>& sets) const;
  Pair written(const Moments& set) const { return running_.written(set); }
  double eps() const { return eps_; }
  const PassesOfStep& passes() const { return passes_; }

 private:
  std::string strategy_;
  double eps_;
  bool affine_;
  RunningPair running_;
  PassesOfStep passes_;
};

// Refuses a tower that does not exist.
int64_t existing_tower(const Json& option, const Start& start);

}  // namespace bnlab::reference
