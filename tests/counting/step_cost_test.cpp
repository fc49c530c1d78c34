// What a step is said to exchange, against what two real ranks (threads of this process) book in a run.
#include "harness/counting/step_cost.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "harness/communicator/host/network.hpp"
#include "harness/components/registry.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/error.hpp"
#include "harness/training/rank.hpp"
#include "tests/models/one_rank_network.hpp"

namespace bnlab::step_cost_test {
namespace {

namespace fs = std::filesystem;

// c10d has one flight recorder per process, which ranks that are threads would share, so it is switched off
// before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

// The strategy by name, with a value for each parameter that has no default.
Json strategy_named(const std::string& name) {
  Json strategy = {{"name", name}};
  for (const Parameter& parameter : find_registered("strategy", name)->parameters())
    if (parameter.required) strategy[parameter.name] = parameter.lowest;
  return strategy;
}

class StepCostOf : public ::testing::TestWithParam<std::string> {
 protected:
  StepCostOf() : folder_(fs::temp_directory_path() / ("bnlab_step_cost_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~StepCostOf() override { fs::remove_all(folder_); }

  RunSpec spec(const Json& strategy) const {
    const fs::path file = folder_ / "spec.json";
    std::ofstream(file) << R"({"task": {"name": "shapes", "size": [16, 16], "train": 16, "test": 4},
      "model": {"name": "unet", "base": 8, "levels": 2}, "steps": 3, "warmup_steps": 1, "towers": 4,
      "batch_per_tower": 2, "strategy": )"
                        << strategy << "}";
    return load_experiment(file.string()).runs.at(0);
  }

  // The "communication" of the record that two ranks leave.
  Json booked(const RunSpec& spec) const {
    const LoopbackSocket socket;
    std::vector<RankReport> reports(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        RankJob job;
        job.spec = spec;
        job.rendezvous.rank = rank;
        job.rendezvous.size = 2;
        job.rendezvous.port = socket.port();
        job.rendezvous.listen_fd = rank == 0 ? ::dup(socket.fd()) : -1;  // the store closes it
        job.run_dir = folder_.string();
        reports[static_cast<size_t>(rank)] = run_rank(job);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (reports[0].status != Status::ok) throw std::runtime_error(reports[0].message);
    return reports[0].result.at("communication");
  }

  fs::path folder_;
};

TEST_P(StepCostOf, IsWhatRealRanksBook) {
  const RunSpec run = spec(strategy_named(GetParam()));
  const StepCost cost = count_step({run.strategy, run.model, 4, 2, 2, 16, 16, 5});
  EXPECT_EQ(cost.norm_sites, 6);
  const Json communication = booked(run);
  for (const char* purpose : {"statistics", "shuffle"}) {
    StepCost::Exchange counted{purpose, 0, 0};
    for (const StepCost::Exchange& exchange : cost.exchanges)
      counted = exchange.purpose == purpose ? exchange : counted;
    EXPECT_EQ(communication.at(purpose).at("collectives_per_step"), counted.collectives) << purpose;
    EXPECT_EQ(communication.at(purpose).at("bytes_per_step"), counted.bytes) << purpose;
  }
  EXPECT_EQ(communication.at("gradients").at("bytes_per_step"), cost.gradient_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, StepCostOf, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& each) { return each.param; });

TEST(StepCost, SaysWhichRouteIsTakenAndCountsThatOne) {
  const Json model = resolved_component("model", {{"name", "unet"}, {"base", 4}, {"levels", 1}});
  const auto cost = [&](const char* route, int ranks) {
    const Json strategy = resolved_component("strategy", {{"name", "sync"}, {"route", route}});
    return count_step({strategy, model, ranks, 1, ranks, 16, 16, 5});
  };
  const StepCost few = cost("auto", 16), many = cost("auto", 17);
  EXPECT_EQ(few.notes, std::vector<std::string>{"sync: on 16 ranks route auto is all_gather"});
  EXPECT_EQ(many.notes, std::vector<std::string>{"sync: on 17 ranks route auto is all_reduce"});
  EXPECT_EQ(many.exchanges[0].bytes, cost("all_reduce", 17).exchanges[0].bytes);
  EXPECT_TRUE(cost("all_gather", 17).notes.empty());
}

TEST(StepCost, AStrategyIsToldTheTowersWhereItIsMade) {
  const Json model = {{"name", "unet"}, {"base", 8}, {"levels", 2}};
  const Json groups = resolved_component("strategy", {{"name", "sync"}, {"group_size", 2}});
  EXPECT_THROW(count_step({groups, model, 3, 2, 1, 16, 16, 5}), Error);
}

// Forward + backward, of a norm site with its ReLU and of what the strategy adds to the convolution before
// it, on rank 0 of two, with two towers each. Small ones count as much as large ones.
TEST(StepCost, TellsTheKernelsOfANormSite) {
  const std::map<std::string, std::string> expected = {
      {R"({"name": "averaged"})", "2 + 2"},
      {R"({"name": "batch_renorm"})", "3 + 2"},
      {R"({"name": "batch_renorm", "scope": "pooled"})", "3 + 3"},
      {R"({"name": "cmbn"})", "2 + 2"},
      {R"({"name": "dynamic_tanh"})", "1 + 2"},
      {R"({"name": "every_tower"})", "2 + 2"},
      {R"({"name": "filter_response_norm"})", "2 + 2"},
      {R"({"name": "filter_response_norm", "threshold": false})", "2 + 2"},
      {R"({"name": "frozen"})", "2 + 2"},
      {R"({"name": "ghost"})", "2 + 2"},
      {R"({"name": "group_norm"})", "3 + 3"},
      {R"({"name": "instance_norm"})", "3 + 3"},
      {R"({"name": "last_tower"})", "3 + 2"},  // this rank's share decays by itself
      {R"({"name": "layer_norm"})", "3 + 3"},
      {R"({"name": "mabn"})", "4 + 4"},
      {R"({"name": "mabn", "centred_weights": false})", "3 + 3"},
      {R"({"name": "none"})", "2 + 2"},
      {R"({"name": "norm_batch", "samples": 1})", "2 + 2"},
      {R"({"name": "norm_batch", "samples": 4})", "3 + 3"},  // two towers
      {R"({"name": "per_tower"})", "2 + 2"},
      {R"({"name": "per_tower", "momentum": null})", "2 + 2"},
      {R"({"name": "per_tower", "saved_tower": 3})", "3 + 2"},
      {R"({"name": "precise"})", "3 + 3"},
      {R"({"name": "shuffle"})", "2 + 2"},
      {R"({"name": "single_tower"})", "2 + 2"},
      {R"({"name": "sync"})", "3 + 3"},
      {R"({"name": "sync", "gradient": "own_tower"})", "3 + 2"},
      {R"({"name": "sync", "gradient": "stopped"})", "3 + 2"},
      {R"({"name": "sync", "group_size": 1})", "3 + 3"},
      {R"({"name": "sync", "group_size": 2})", "3 + 3"},
      {R"({"name": "sync", "moments": "e_x2"})", "3 + 3"},
      {R"({"name": "sync", "route": "all_reduce"})", "4 + 4"},
      {R"({"name": "sync", "route": "all_reduce", "group_size": 2})", "4 + 4"},
      {R"({"name": "sync", "route": "all_reduce", "moments": "e_x2"})", "20 + 4"},
      {R"({"name": "sync", "route": "gather_activations"})", "7 + 8"},
      {R"({"name": "sync", "route": "gather_activations_host"})", "3 + 4"},
      {R"({"name": "sync", "route": "host"})", "3 + 3"},
      {R"({"name": "sync", "route": "reduce_broadcast"})", "4 + 4"},
      {R"({"name": "sync", "variance": "averaged"})", "4 + 3"},
      {R"({"name": "weight_norm"})", "3 + 3"},
      {R"({"name": "weight_standardisation"})", "4 + 4"},
      {R"({"name": "weight_standardisation", "base": "sync"})", "4 + 4"},
      {R"({"name": "weight_standardisation", "form": "code"})", "8 + 22"},
      {R"({"name": "weight_norm", "mean_only_bn": true})", "5 + 5"},
      {R"({"name": "weight_norm", "mean_only_bn": true, "scope": "pooled"})", "6 + 6"},
  };
  const Json model = resolved_component("model", {{"name", "unet"}, {"base", 8}, {"levels", 1}});
  std::map<std::string, std::string> counted;
  std::set<std::string> strategies;
  for (const auto& [text, kernels] : expected) {
    Json strategy = Json::parse(text);
    strategies.insert(strategy.at("name").get<std::string>());
    const StepCost cost = count_step({resolved_component("strategy", strategy), model, 4, 2, 2, 16, 16, 5});
    counted[text] = std::to_string(cost.forward_kernels) + " + " + std::to_string(cost.backward_kernels);
  }
  EXPECT_EQ(counted, expected);
  const auto names = registered_names("strategy");
  EXPECT_EQ(strategies, (std::set<std::string>{names.begin(), names.end()}));
}

// A step of three passes, of which the last merges the moments of all.
TEST(StepCost, TellsThePassesOfAStep) {
  const Json model = resolved_component("model", {{"name", "unet"}, {"base", 8}, {"levels", 1}});
  const std::map<std::string, std::string> expected = {
      {"cmbn", "4 + 2"}, {"per_tower", "2 + 2"}, {"sync", "3 + 3"}};
  for (const auto& [name, kernels] : expected) {
    const Json strategy = resolved_component("strategy", name);
    const StepCost once = count_step({strategy, model, 4, 2, 2, 16, 16, 5});
    const StepCost cost = count_step({strategy, model, 4, 2, 2, 16, 16, 5, /*accumulate=*/3});
    EXPECT_EQ(std::to_string(cost.forward_kernels) + " + " + std::to_string(cost.backward_kernels), kernels);
    ASSERT_EQ(cost.exchanges.size(), once.exchanges.size()) << name;
    for (size_t i = 0; i < cost.exchanges.size(); ++i)
      EXPECT_EQ(cost.exchanges[i].collectives, 3 * once.exchanges[i].collectives) << name;
  }
}

TEST(StepCost, TowersThatRanksCannotShareAreRefused) {
  const Json model = {{"name", "unet"}, {"base", 8}, {"levels", 2}};
  EXPECT_THROW(count_step({{{"name", "none"}}, model, 3, 2, 2, 16, 16, 5}), Error);
}

// Where nothing but the norms exchanges, and rows stay where they are.
TEST(StepCostOfSites, IsThatOfTheWholeNetwork) {
  StepCase step{.model = resolved_component("model", {{"name", "unet"}, {"base", 4}, {"levels", 2}}),
                .towers = 4,
                .batch_per_tower = 2,
                .ranks = 2,
                .height = 16,
                .width = 16,
                .classes = 5};
  const std::vector<SiteValues> sites = site_values(step.model, {16, 16});
  for (const char* name : {"sync", "per_tower", "averaged", "group_norm", "batch_renorm", "frozen"}) {
    SCOPED_TRACE(name);
    step.strategy =
        resolved_component("strategy", name == std::string("group_norm") ? Json{{"name", name}, {"groups", 1}}
                                                                         : strategy_named(name));
    const StepCost whole = count_step(step), alone = count_sites(step, sites);
    EXPECT_EQ(alone.norm_sites, whole.norm_sites);
    ASSERT_EQ(alone.calls.size(), whole.calls.size());
    int64_t bytes = 0;
    for (size_t i = 0; i < whole.calls.size(); ++i) {
      bytes += alone.calls[i].bytes - whole.calls[i].bytes;  // backward passes meet them in another order
      EXPECT_EQ(alone.calls[i].op, whole.calls[i].op);
    }
    EXPECT_EQ(bytes, 0);
  }
}

}  // namespace
}  // namespace bnlab::step_cost_test
