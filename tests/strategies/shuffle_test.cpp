// Shuffling: rows arrive where the permutation says, come back to the bit, and gradients take the opposite
// way; a tower's moments are those of its places.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <cstdlib>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/one_site.hpp"
#include "harness/support/error.hpp"
#include "harness/support/random.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "strategies/engine/sample_exchange.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab::shuffle_test {
namespace {

// c10d's flight recorder is one per process and not made for ranks that are threads: off before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

using Sizes = std::vector<int64_t>;

struct Global {
  Sizes samples;
  int64_t rows_per_sample = 1;
  at::ScalarType dtype = at::kDouble;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
};

class Exchange : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, Exchange, ::testing::Values(1, 2, 4));

at::Tensor values(int64_t rows, uint64_t seed, const Global& global) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn({rows, 3, 2, 2}, generator, at::TensorOptions(at::kDouble)).to(global.dtype);
}

// Scatter, restore and both gradients against index_select on the global batch.
void expect_exchanged(const Global& global, World& world) {
  const Towers towers(global.samples, world.size(), world.rank());
  const int64_t per_sample = global.rows_per_sample, rows = towers.total_samples() * per_sample;
  const Sizes permutation = Stream(5, "test").permutation(rows);
  const at::Tensor order = at::tensor(permutation, at::kLong), back = order.argsort();
  const auto here = [&](const at::Tensor& all) {
    return all.narrow(0, towers.local_begin() * per_sample, towers.local_samples() * per_sample)
        .contiguous(global.format)
        .clone();
  };
  const at::Tensor x = values(rows, 1, global), g = values(rows, 2, global);
  const auto exchange =
      c10::make_intrusive<SampleExchange>(permutation, towers, per_sample, at::kCPU, world.statistics());
  const at::Tensor mine = here(x).requires_grad_(true);
  const at::Tensor scattered = scatter(mine, exchange);
  EXPECT_TRUE(at::equal(scattered, here(x.index_select(0, order))));
  EXPECT_EQ(scattered.scalar_type(), global.dtype);
  EXPECT_TRUE(scattered.is_contiguous(global.format));
  scattered.backward(here(g));
  EXPECT_TRUE(at::equal(mine.grad(), here(g.index_select(0, back))));

  const at::Tensor placed = scattered.detach().clone().requires_grad_(true);
  const at::Tensor restored = restore(placed, exchange);
  EXPECT_TRUE(at::equal(restored, mine));
  EXPECT_TRUE(restored.is_contiguous(global.format));
  restored.backward(here(g));
  EXPECT_TRUE(at::equal(placed.grad(), here(g.index_select(0, order))));
}

TEST_P(Exchange, RestoreUndoesScatterAndGradientsTakeTheOppositeWay) {
  on_thread_ranks(GetParam(), at::kCPU, [](World& world) {
    for (const Sizes& samples : {Sizes{2, 2, 2, 2},
                                 {3, 0, 5, 2},
                                 {0, 0, 4, 3},
                                 {1, 0, 0, 1},
                                 {0, 1, 0, 0},
                                 {0, 0, 0, 0}}) {  // uneven, ranks without rows, fewer samples than towers
      for (const int64_t rows_per_sample : {1, 3}) expect_exchanged({samples, rows_per_sample}, world);
    }
  });
}

TEST_P(Exchange, KeepsDtypeAndMemoryFormat) {
  on_thread_ranks(GetParam(), at::kCPU, [](World& world) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
        expect_exchanged({{2, 1, 4, 3}, 1, dtype, format}, world);
  });
}

// Ranks need not agree in memory format: each keeps its own.
TEST_P(Exchange, RanksMayDifferInMemoryFormat) {
  on_thread_ranks(GetParam(), at::kCPU, [](World& world) {
    expect_exchanged({{2, 1, 4, 3},
                      1,
                      at::kFloat,
                      world.rank() % 2 == 0 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast},
                     world);
  });
}

LayerStep step_of(const Sizes& samples, Mode mode, bool gradients = true) {
  const at::Generator generator = at::detail::createCPUGenerator(3);
  LayerStep step;
  step.mode = mode;
  for (size_t t = 0; t < samples.size(); ++t) {
    step.inputs.push_back(at::randn({samples[t], 4, 3}, generator, at::TensorOptions(at::kDouble)) +
                          static_cast<double>(t));
    if (gradients)
      step.gradients.push_back(at::randn({samples[t], 4, 3}, generator, at::TensorOptions(at::kDouble)));
  }
  return step;
}

LayerCase shuffled(std::vector<LayerStep> steps) {
  LayerCase layer_case;
  layer_case.strategy = resolved_strategy("shuffle");
  layer_case.seed = 9;
  layer_case.steps = std::move(steps);
  return layer_case;
}

// Each tower's places normalised apart, then put back.
at::Tensor normalised_by_places(const LayerStep& step, const Sizes& permutation) {
  const at::Tensor order = at::tensor(permutation, at::kLong);
  const std::vector<int64_t> per_channel{0, 2};
  std::vector<at::Tensor> towers;
  int64_t begin = 0;
  const at::Tensor places = at::cat(step.inputs).index_select(0, order);
  for (const at::Tensor& tower : step.inputs) {
    const at::Tensor own = places.narrow(0, begin, tower.size(0));
    const at::Tensor m = own.mean(per_channel, true);
    const at::Tensor v = (own - m).square().mean(per_channel, true);
    towers.push_back((own - m) / (v + 1e-5).sqrt());
    begin += tower.size(0);
  }
  return at::cat(towers).index_select(0, order.argsort());
}

TEST(Shuffle, NormalisesByTheMomentsOfThePlacesInEveryPlacement) {
  const LayerStep step = step_of({3, 0, 5, 2}, Mode::train);
  std::vector<Sizes> permutations;
  for (const int ranks : {1, 2, 4}) {
    const LayerStepAnswer answer = apply_layer(shuffled({step}), ranks).steps[0];
    permutations.push_back(answer.permutation);
    EXPECT_TRUE(
        at::allclose(at::cat(answer.outputs), normalised_by_places(step, answer.permutation), 1e-12, 1e-13));
  }
  EXPECT_EQ(permutations[0], Stream(9, "shuffle", 0).permutation(10));
  EXPECT_EQ(permutations[1], permutations[0]);
  EXPECT_EQ(permutations[2], permutations[0]);
}

TEST(Shuffle, DrawsAnewInEveryTrainingStepAndMovesNothingInEvaluation) {
  const Sizes samples{4, 4};
  const LayerAnswer answer =
      apply_layer(shuffled({step_of(samples, Mode::train), step_of(samples, Mode::evaluate_saved, false),
                            step_of(samples, Mode::evaluate_batch, false), step_of(samples, Mode::train)}));
  EXPECT_EQ(answer.steps[0].permutation, Stream(9, "shuffle", 0).permutation(8));
  EXPECT_EQ(answer.steps[3].permutation, Stream(9, "shuffle", 1).permutation(8));
  for (const size_t evaluation : {1, 2}) {
    EXPECT_TRUE(answer.steps[evaluation].permutation.empty());
    EXPECT_TRUE(answer.steps[evaluation].collectives.empty());
  }
}

TEST(Shuffle, CalibrationDrawsFromAStreamOfItsOwn) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    const auto strategy = Registered<Strategy>::create(
        resolved_strategy("shuffle"),
        {.statistics = world.statistics(), .host = world.host(), .seed = 9, .dtype = at::kDouble});
    OneSite network(strategy->norm({"site", 3, Activation::none}));
    const auto permutation = [&](Mode mode) {
      const Pass pass{.towers = Towers({4, 4}, 1, 0), .step = {}, .mode = mode};
      return strategy->forward(network, values(8, 1, {}), pass).permutation;
    };
    EXPECT_EQ(permutation(Mode::train), Stream(9, "shuffle", 0).permutation(8));
    EXPECT_EQ(permutation(Mode::calibrate), Stream(9, "shuffle/calibration", 0).permutation(8));
    EXPECT_TRUE(permutation(Mode::evaluate_saved).empty());
  });
}

TEST(Shuffle, IsBatchNormOfThePermutedSlicesPutBackInOrder) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 0, 2, 1}, {1, 0, 1, 0}}) {
    const LayerCase c = make_case("shuffle", {sizes, {4, 2, 3}, {Mode::train, Mode::train}});
    for (const int ranks : {1, 2, 4}) {
      const LayerAnswer answer = apply_layer(c, ranks);
      EXPECT_NE(answer.steps[0].permutation.size(), 0u);
      for (size_t k = 0; k < 2; ++k) {
        const at::Tensor order = at::tensor(answer.steps[k].permutation, at::kLong);
        LayerCase slice = c;
        std::vector<at::Tensor> y, dx;
        const auto places = at::cat(c.steps[k].inputs).index_select(0, order).split_with_sizes(sizes);
        const auto gradients = at::cat(c.steps[k].gradients).index_select(0, order).split_with_sizes(sizes);
        for (size_t t = 0; t < sizes.size(); ++t) {
          if (sizes[t] > 0) {
            slice.steps = {{.mode = Mode::train, .inputs = {places[t]}, .gradients = {gradients[t]}}};
            const LayerStepAnswer expected = plain_batch_norm(slice).steps[0];
            y.push_back(expected.outputs[0]);
            dx.push_back(expected.input_gradients[0]);
            if (t == 0 && k == 0)
              EXPECT_LT(relative_error(answer.steps[0].running_mean, expected.running_mean), kExact);
          }
        }
        const LayerStepAnswer& step = answer.steps[k];
        EXPECT_LT(relative_error(at::cat(step.outputs).index_select(0, order), at::cat(y)), kExact);
        EXPECT_LT(relative_error(at::cat(step.input_gradients).index_select(0, order), at::cat(dx)), kExact);
      }
    }
  }
}

std::vector<std::string> ops(World& world) {
  std::vector<std::string> all;
  for (const Collective& collective : world.ledger().list())
    all.push_back(collective.op + "/" + kPurposeNames[static_cast<size_t>(collective.purpose)]);
  return all;
}

TEST(Shuffle, ImagesThatNeedNoGradientTakeNoWayBack) {
  on_thread_ranks(2, at::kCPU, [](World& world) {
    const Towers towers({2, 3}, 2, world.rank());
    const auto exchange =
        c10::make_intrusive<SampleExchange>(Sizes{4, 1, 0, 3, 2}, towers, 1, at::kCPU, world.statistics());
    world.ledger().clear();
    world.ledger().keep_list(true);
    const at::Tensor images = at::ones({towers.local_samples(), 3});
    const at::Tensor weight = at::ones({3}).requires_grad_(true);
    restore(scatter(images, exchange) * weight, exchange).sum().backward();
    EXPECT_EQ(ops(world), std::vector<std::string>(3, "all_to_all/shuffle"));
    EXPECT_EQ(world.ledger().list()[0].elements, images.numel());
  });
}

TEST(Shuffle, TowersThatDisagreeInTheOtherDimensionsAreRefused) {
  for (const int ranks : {1, 2}) {
    LayerStep good = step_of({2, 2}, Mode::train, false), bad = step_of({2, 2}, Mode::train, false);
    bad.inputs[1] = at::zeros({2, 4, 5}, at::kDouble);
    EXPECT_THROW(apply_layer(shuffled({bad}), ranks), Error);
    EXPECT_THROW(apply_layer(shuffled({good, bad}), ranks), Error);
  }
}

}  // namespace
}  // namespace bnlab::shuffle_test
