// shuffle: every training step deals the rows of the network's input (samples; frames, where a sample is a
// clip) anew to the towers, and each tower normalises by its own moments. Before the head the rows go back,
// so that labels stay where they are; gradients take the opposite way. This is ShuffleBN (He et al. 2020,
// MoCo) with the order restored.
#include <algorithm>
#include <functional>
#include <vector>

#include "harness/support/error.hpp"
#include "harness/support/random.hpp"
#include "strategies/engine/bn_strategy.hpp"
#include "strategies/engine/sample_exchange.hpp"

namespace bnlab::shuffle {

class Shuffle : public BnStrategy {
 public:
  struct Options : BnOptions {
    int64_t saved_tower = 0;

    void describe(OptionVisitor& option) {
      option("saved_tower", saved_tower, "tower whose running statistics are saved").at_least(0);
      BnOptions::describe(option);
    }

    void check(const RunOutline& run, Problems& problems) const {
      BnOptions::check(run, problems);
      check_tower("saved_tower", saved_tower, run, problems);
    }

    Rules rules() const {
      Rules rules = shared_rules("shuffle");
      rules.saved_tower = saved_tower;
      return rules;
    }
  };

  Shuffle(const Options& options, const Context& context) : BnStrategy(options.rules(), context) {}

  Outputs forward(Network& network, const at::Tensor& images, const Pass& pass) override {
    if (pass.mode != Mode::train && pass.mode != Mode::calibrate)
      return BnStrategy::forward(network, images, pass);
    check_positions(images, pass.towers);
    std::vector<int64_t> permutation = drawn(pass);
    const auto exchange = c10::make_intrusive<SampleExchange>(permutation, pass.towers, pass.rows_per_sample,
                                                              images.device(), context_.statistics);
    Pass shuffled = pass;
    const auto first = permutation.begin() + pass.towers.local_begin() * pass.rows_per_sample;
    shuffled.details.rows.assign(first, first + pass.towers.local_samples() * pass.rows_per_sample);
    Network::Maps features = network.features(scatter(images, exchange), shuffled);
    for (at::Tensor& map : features) map = restore(map, exchange);
    Outputs outputs = network.head(features, pass);
    outputs.permutation = std::move(permutation);
    return outputs;
  }

  StepWork work(const Step&) const override {
    return {.replayable = false, .meets = true};
  }  // other rows travel in every step
  bool moves_rows() const override { return true; }

 private:
  // Alike on every rank: none waits for the rows of another.
  static void check_positions(const at::Tensor& images, const Towers& towers) {
    std::vector<int64_t> found;
    for (int64_t t = 0; t < towers.count(); ++t)
      if (towers.samples(t) > 0) found.push_back(towers.positions(t, positions_of(images)));
    if (std::ranges::adjacent_find(found, std::not_equal_to<>()) == found.end()) return;
    throw Error(Error::Kind::refused,
                "shuffle: whole rows travel between the ranks, so that all need images of one size");
  }

  // The same on every rank and in every placement.
  std::vector<int64_t> drawn(const Pass& pass) const {
    const bool training = pass.mode == Mode::train;
    const uint64_t batch = training ? static_cast<uint64_t>(pass.step.index) : pass.batch;
    Stream stream(context_.seed, training ? "shuffle" : "shuffle/calibration", pass.pass_of(batch));
    return stream.permutation(pass.towers.total_samples() * pass.rows_per_sample);
  }
};

const Registered<Strategy> entry{
    {.name = "shuffle",
     .summary =
         "every step deals the samples anew to the towers, each of which normalises by its own moments",
     .source = "He et al. 2020 (MoCo, ShuffleBN); two-stream action recognition before its LSTM",
     .formula = "permutation of all rows, drawn from (seed, pass); place i holds row permutation[i]\n"
                "tower t has the places [n_0 + .. + n_(t-1), .. + n_t)\n"
                "y = gamma (x - m_t) / sqrt(v_t + eps) + beta over these places, at every site\n"
                "features go back to the order of the batch before the head\n"
                "running <- (1 - momentum) running + momentum (m_s, n_s/(n_s - 1) v_s), s = saved_tower",
     .exchanges =
         "none at a site; per step 1 forward (images), and 1 forward and 1 backward per map of features",
     .use = "when neighbouring samples are alike (frames of a clip, sorted shards): a tower's own do not "
            "stand for the batch",
     .limits = "a tower still has only its own few values to normalise by; whole images and feature maps "
               "travel; all towers need the same image size"},
    make<Strategy, Shuffle>};

}  // namespace bnlab::shuffle
