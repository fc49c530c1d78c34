// The running statistics of all sites of a network: merged, recomputed and averaged in one collective for all of
// them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "strategies/engine/running_statistics.hpp"

namespace bnlab {

class BnStatistics : public RunningStatistics {
 public:
  explicit BnStatistics(Communicator& communicator) : communicator_(communicator) {}

  void add(std::shared_ptr<SiteStatistics> site) { sites_.push_back(std::move(site)); }

  std::vector<double> load_into_buffers(const Population& population, Calibration& calibration) override;
  std::vector<at::Tensor> summands() override { return summands_of({}); }
  void load_sums(const std::vector<at::Tensor>& sums) override { load_sums_of({}, sums); }
  std::vector<StatisticsUpdate> take_updates() override;
  void drop_collected() override;
  void restore() override;
  void init_from_buffers(int64_t steps) override;
  void freeze() override;
  void update_average(const at::Tensor& decay) override;
  void average_replicas() override;
  void describe(State& state) override;
  int64_t nonfinite_channels() const override;

 private:
  // Whether the pairs have been updated since they began.
  bool trained() const { return !sites_.empty() && sites_.front()->saved().trained(); }
  void merge(const Population& population);
  std::vector<at::Tensor> summands_of(const Population& population);  // empty where pairs are replicated
  void load_sums_of(const Population& population, const std::vector<at::Tensor>& sums);
  std::vector<double> recompute(int64_t batches, Calibration& calibration);
  // Sums over the ranks of one [2, C] tensor per site, in rank order, so that every rank holds the same bits.
  std::vector<at::Tensor> sum_over_ranks(const std::vector<at::Tensor>& of_sites);

  Communicator& communicator_;
  std::vector<std::shared_ptr<SiteStatistics>> sites_;
  bool frozen_ = false;
};

}  // namespace bnlab
