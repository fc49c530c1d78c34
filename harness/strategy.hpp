// The interface of a strategy: the layers it makes and what it does around them. The training loop
// sees nothing else; no code of the harness names a strategy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/network.hpp"
#include "harness/pass.hpp"
#include "harness/running_statistics.hpp"
#include "harness/strategy_facts.hpp"

namespace bnlab {

class Communicator;

// One rank's share of a global batch, or of a micro-batch of it.
struct Batch {
  at::Tensor images;  // [local samples * rows_per_sample, 3, H, W]
  at::Tensor labels;  // as the task defines them; undefined where only outputs are wanted
  Towers towers;
  int64_t rows_per_sample = 1;  // rows of `images` per sample: 1, or the frames of a clip
  double own_share = 0;         // PassDetails::own_share
  uint64_t index = 0;           // in its stream: the training step, or the calibration batch
  StepBytes* bytes = nullptr;   // PassDetails::bytes
  at::Tensor memory = {};       // bytes of which images and labels are views, where they are; else undefined
  MicroBatch micro_batch = {};

  Pass pass(const Step& step, Mode mode, uint64_t seed = 0) const {
    return {.towers = towers,
            .rows_per_sample = rows_per_sample,
            .step = step,
            .mode = mode,
            .batch = index,
            .micro_batch = micro_batch,
            .details = {.seed = seed,
                        .image_size = {images.size(-2), images.size(-1)},
                        .own_share = own_share,
                        .bytes = bytes}};
  }
};

// What a training step asks of a device beside its batch, as far as that can change between steps. Of two
// steps in a row with equal work the second can be replayed as a CUDA graph of the first: the same kernels,
// on the same tensors of the strategy and with the same numbers from the host (uploads are noticed by
// themselves, upload.hpp).
struct StepWork {
  bool replayable = true;  // false: the step waits for the host, or moves other rows than the step before
  bool sets_up = false;    // it makes what later steps find: uploads, initial weights, merged statistics
  bool frozen = false;     // the statistics are constants
  bool meets = false;      // its forward pass needs the other ranks: they exchange in it
  std::vector<double> numbers = {};  // from a schedule: the host hands them to kernels
  bool operator==(const StepWork&) const = default;
};

class Strategy : public LayerMaker {
 public:
  using Facts = StrategyFacts;
  static constexpr const char* kFamily = Facts::kFamily;

  struct Context {
    Communicator& statistics;           // for the strategy's exchanges; outlives the strategy
    Communicator& host;                 // the same between the hosts: takes CPU tensors
    uint64_t seed = 0;                  // for weights and permutations
    at::ScalarType dtype = at::kFloat;  // for parameters and saved statistics
    at::Device device = at::kCPU;
    int64_t steps = 0;  // in the whole run, for schedules given as fractions; 0: not known
    // false: layers are applied outside of any run (`bnlab layer`), where a schedule that is not given is
    // none. In a run of unknown length it is refused once the strategy trains.
    bool in_a_run = true;
    bool fresh_weights = true;          // false: weights are loaded, so nothing may be initialised from data
    bool replicas = false;              // ranks train apart: each keeps pairs of its own (average_replicas)
    std::vector<Population> shadows{};  // populations (is_shadow) to carry beside the saved pair
    // Of a training batch, over all ranks; empty: not known. 0 stands for a number that is not known.
    std::vector<int64_t> samples_per_tower{};

    RunOutline outline() const { return {.samples_per_tower = samples_per_tower, .has_length = steps > 0}; }
  };

  explicit Strategy(const Context& context) : context_(context) {}

  std::shared_ptr<Layer> conv(const ConvSite& site) override;

  // Outputs of the network for this rank's samples. Called by every rank, in the same order.
  virtual Outputs forward(Network& network, const at::Tensor& images, const Pass& pass);

  // Whether the optimizer may change this parameter at this step.
  virtual bool trainable(const std::string& parameter, const Step& step) const;

  // The same on every rank. By default no step can be replayed, and each meets the other ranks.
  virtual StepWork work(const Step& /*step*/) const { return {.replayable = false, .meets = true}; }

  // Whether it normalises in its convolutions, which then have a direction v, and does nothing at norm sites.
  virtual bool normalises_weights() const { return false; }

  // Why a norm site of it is not all of it, so that none can stand in a network of another program; "" where
  // one can.
  virtual std::string why_not_alone() const {
    return normalises_weights()
               ? "it normalises the weights of convolutions, so there are no layers of it to put behind them"
               : "";
  }

  // Null where evaluation uses none; `saved` is then the only population.
  virtual RunningStatistics* running_statistics() { return nullptr; }

  // Whether whole rows travel between the ranks, so that all towers must agree in the other dimensions.
  virtual bool moves_rows() const { return false; }

  // What a record must say of how this strategy ran here.
  virtual std::vector<std::string> notes() const { return {}; }

 protected:
  Context context_;
};

// Whether this training step may be replayed as the one before: it asks the same of the device.
bool repeats(const Strategy& strategy, const Step& step);

// The weights that a convolution starts from, [out, in, kernel, kernel] float64 on the CPU:
// from N(0, 2 / fan) (He et al. 2015), drawn from a stream of the site's name, the same for every strategy,
// precision and placement.
at::Tensor initial_weights(const ConvSite& site, uint64_t seed);

// Whether the CUDA kernels of strategies/ were built, too (CMake option BNLAB_CUDA). Without them nothing
// runs on a GPU.
bool has_cuda_kernels();

}  // namespace bnlab
