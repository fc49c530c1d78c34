// Where the ranks tell each other at which places of the program they are and how many rows they have there,
// so that uneven batches are exact and ranks that have parted get an error which names their places.
//
// A layer that needs the others to normalise meets them in its forward pass. One that does not may let its
// pass wait, where a DataParallel of the same ranks will come: it meets them for all that have waited, and
// merges the running statistics of all in one exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/running_statistics.hpp"

namespace bnlab {

// A place that every rank reaches, in the same order.
struct MeetingPlace {
  std::string text;  // "encoder.norm (training step 3)"
  int64_t rows = 0;
  int64_t positions = 1;  // elements per row and channel
};

// Of one place, a number for every rank.
struct Sizes {
  std::vector<int64_t> rows, positions;
};

struct WaitingPass;

// A layer of which passes and merges may wait for the other ranks.
class WaitingLayer {
 public:
  virtual ~WaitingLayer() = default;
  // The rest of a pass that has waited, or that it has not been made, as the ranks had parted.
  virtual void complete(const WaitingPass& pass, const Sizes& sizes) = 0;
  virtual void take_back(const WaitingPass& pass) = 0;
  // The two halves of a merge (RunningStatistics::summands).
  virtual std::vector<at::Tensor> summands() = 0;
  virtual void load_sums(const std::vector<at::Tensor>& sums) = 0;
};

// A training pass of a layer that has not met the other ranks.
struct WaitingPass {
  MeetingPlace place;
  std::weak_ptr<WaitingLayer> layer;
  int64_t step = 0;   // training steps of the layer before this pass
  int64_t begun = 0;  // what is written from outside after the pass counts in its place
  bool counts = true;
  std::vector<StatisticsUpdate> updates;
};

// One for all layers and DataParallels of the same ranks. What is said to be called by every rank is called
// in the same order.
class Meeting {
 public:
  explicit Meeting(World& world) : world_(world) {}

  // A DataParallel is expected as long as what this returns lives.
  std::shared_ptr<void> expect() const { return expected_; }
  bool is_expected() const { return expected_.use_count() > 1; }

  void wait(WaitingPass pass) { waiting_.push_back(std::move(pass)); }
  bool has_waiting() const { return !waiting_.empty(); }
  // A layer whose running statistics merge() merges.
  void merge_later(std::weak_ptr<WaitingLayer> layer) { apart_.push_back(std::move(layer)); }

  // The sizes of every rank at this place. Passes that have waited are then complete. Called by every rank:
  // an exchange of 40 bytes, and another where there are several places at which not all ranks have the same
  // sizes. Throws Error (communication), on all ranks, where they are, or have been, at different places.
  // Passes that have waited are then as if they had not been made.
  Sizes meet(MeetingPlace here);
  // Throws Error (usage), on all ranks, where these lists of texts are not the same on all of them, with the
  // first text that differs and whose it is. Called by every rank: an exchange of 8 bytes where they are.
  void require_same(const std::string& what, const std::vector<std::string>& texts);
  // Merges the running statistics of the layers that wait for it, in one exchange, or none where there are
  // no such layers. Called by every rank.
  void merge();

 private:
  std::vector<Sizes> agree(const std::vector<MeetingPlace>& places);

  World& world_;
  std::shared_ptr<void> expected_ = std::make_shared<int>(0);
  std::vector<WaitingPass> waiting_;
  std::vector<std::weak_ptr<WaitingLayer>> apart_;
};

}  // namespace bnlab
