// What stands behind a BatchNorm: its strategy, the layer of its one site, and where its training is.
//
// Each layer has a strategy of its own, so that layers share nothing but the ranks, and where these meet
// (meeting.hpp). Between steps the buffers are all that training needs: running pairs are merged into them
// after every step, and pairs start anew from them wherever somebody else has written them since
// (EmbeddedSite::adopt).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "harness/embed/embedded_options.hpp"
#include "harness/embed/meeting.hpp"
#include "harness/embed/seen_buffers.hpp"
#include "harness/network.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

class EmbeddedSite : public WaitingLayer, public std::enable_shared_from_this<EmbeddedSite> {
 public:
  explicit EmbeddedSite(const BatchNormOptions& options);

  // The layer's tensors by their names; the functions below give an undefined one where there is none.
  // Buffers are there where running statistics are kept; the count of batches comes last.
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  const Named& parameters() const { return parameters_; }
  const Named& buffers() const { return buffers_; }
  at::Tensor parameter(const std::string& name) const { return named(parameters_, name); }
  at::Tensor buffer(const std::string& name) const { return named(buffers_, name); }
  bool keeps_statistics() const { return !buffers_.empty(); }
  bool has_running_statistics() const { return strategy_->running_statistics() != nullptr; }
  const BatchNormOptions& options() const { return options_; }  // with those that the strategy's JSON gives
  // Whether the program would train it: the strategy may have taken its gradient meanwhile.
  bool wants_gradient(const std::string& parameter) const;

  // What the program writes counts from the next pass on. Throws Error (refused) and changes nothing where it
  // cannot.
  void replace(const std::string& name, const at::Tensor& tensor);
  // BatchNormImpl::set_options; may_change_tensors: else tensors that would come or go are refused.
  std::vector<at::Tensor> set_options(const BatchNormOptions& options, bool may_change_tensors);
  // Takes up options that the program has written, and completes them.
  void follow(BatchNormOptions& written);
  // Options that have been written count before what the strategy's JSON has said of them.
  BatchNormOptions told(BatchNormOptions written) const {
    return bnlab::told(std::move(written), options_, strategy_json_);
  }
  std::mutex& following() { return following_; }  // several threads may pass at once

  at::Tensor forward(bool training, const at::Tensor& x, const at::Tensor& residual);
  // Merges what the ranks hold apart. Called by every rank.
  void merge();
  void complete(const WaitingPass& pass, const Sizes& sizes) override;
  void take_back(const WaitingPass& pass) override;
  std::vector<at::Tensor> summands() override;
  void load_sums(const std::vector<at::Tensor>& sums) override;
  // Passes while a site calibrates are collected; recompute() makes running statistics of them. It calls
  // forward for each batch, which need not do anything where the passes were made before. What was collected
  // before, or is left when it ends, goes.
  void calibrate(bool on);
  void set_batch(int64_t index) { batch_ = index; }
  void recompute(int64_t batches, const std::function<void(int64_t)>& forward);

 private:
  // What follows from options.
  struct Made {
    BatchNormOptions options;
    Json strategy_json;
    std::unique_ptr<Strategy> strategy;
    std::shared_ptr<Layer> layer;
    Named parameters, buffers;
    std::vector<int64_t> sizes;  // parameters first
  };
  static Made made(const BatchNormOptions& options);
  static at::Tensor named(const Named& tensors, const std::string& name);
  const at::Tensor& tracked() const { return buffers_.back().second; }
  void take(Made made);
  void check(const at::Tensor& x, const at::Tensor& residual) const;
  void refuse_lone(int64_t values) const;
  at::Tensor pass(const at::Tensor& x, const at::Tensor& residual, Mode mode);
  at::Tensor pass_among_ranks(const at::Tensor& x, const at::Tensor& residual, Mode mode);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& residual, const Towers& towers, Mode mode,
                   UpdateAt update = UpdateAt::every_pass);
  MeetingPlace place(const at::Tensor& x, Mode mode) const;
  Sizes as_everywhere(const at::Tensor& x) const;
  Towers towers(const Sizes& sizes) const;
  void freeze_parameters();
  bool counts() const;
  void count(int64_t step, bool joins);
  void merge_in_time(bool joins);
  void load_merged();
  void adopt();
  int64_t total_steps() const { return std::max<int64_t>(options_.total_steps(), 1); }
  Step step() const { return {steps_, total_steps()}; }
  [[noreturn]] void refuse(const std::string& message) const;

  BatchNormOptions options_;
  Json strategy_json_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<Layer> layer_;
  Named parameters_, buffers_;
  std::vector<int64_t> sizes_;  // elements of each, whatever a program has loaded into it
  std::mutex following_;
  int64_t steps_ = 0;   // as tracked() once no pass waits, where no device has to be asked
  bool apart_ = false;  // whether steps have been made that the buffers do not know yet
  int64_t begun_ = 0;   // how often the buffers have been written from outside
  SeenBuffers seen_;    // when this site last wrote them
  std::vector<int64_t> samples_that_fit_;
  std::vector<std::string> frozen_;  // parameters from which the strategy has taken their gradients
  // Whether a pass has counted since the last backward pass; shared with the hooks of outputs.
  std::shared_ptr<bool> counted_ = std::make_shared<bool>(false);
  bool calibrating_ = false;
  bool recomputed_ = false;  // whether the buffers are recomputed ones, for evaluations alone
  int64_t batch_ = 0;
};

}  // namespace bnlab
