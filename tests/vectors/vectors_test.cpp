// bnlab by its own vectors: the library's BatchNorm on ranks that hand in a process group, and every route of
// the strategy. The library's answers are left in the file that BNLAB_VECTOR_ANSWERS names, for
// scripts/vectors/judge.py.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <bnlab.hpp>
#include <cmath>
#include <cstdlib>
#include <future>
#include <map>
#include <set>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/vectors/cases.hpp"

namespace bnlab {
namespace {

// c10d's flight recorder is one per process and not made for ranks that are threads: off before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

using Answers = std::map<std::string, at::Tensor>;  // "0/1/output", "0/running_var"
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// All tensors of an answer by the names that the files have.
Answers named(const VectorAnswer& answer) {
  Answers all;
  for (size_t p = 0; p < answer.passes.size(); ++p) {
    const VectorAnswer::Pass& pass = answer.passes[p];
    const std::string path = std::to_string(p) + "/";
    for (size_t r = 0; r < pass.outputs.size(); ++r)
      all[path + std::to_string(r) + "/output"] = pass.outputs[r];
    for (size_t r = 0; r < pass.input_gradients.size(); ++r)
      all[path + std::to_string(r) + "/grad_input"] = pass.input_gradients[r];
    if (pass.weight_gradient.defined()) {
      all[path + "grad_weight"] = pass.weight_gradient;
      all[path + "grad_bias"] = pass.bias_gradient;
    }
    all[path + "running_mean"] = pass.running_mean;
    all[path + "running_var"] = pass.running_var;
  }
  return all;
}

// The first answer that is further off than allowed, or "".
std::string complaint(const VectorAnswer& expected, const Answers& answers) {
  for (const auto& [name, values] : named(expected)) {
    const auto found = answers.find(name);
    if (found == answers.end() || found->second.sizes() != values.sizes())
      return name + ": missing, or of another shape";
    const std::string kind = name.substr(name.rfind('/') + 1);
    const double allowed = expected.passes[std::stoul(name)].allowed.at(kind).get<double>();
    const at::Tensor answer = found->second.to(at::kDouble), judged = values.isfinite();
    if (kind.rfind("running", 0) != 0 && !at::equal(judged, answer.isfinite()))
      return name + ": numbers where there are to be none, or none where there are";
    // A comparison with a NaN is false.
    if (!((answer - values).abs() <= allowed).logical_or(judged.logical_not()).all().item<bool>()) {
      return name + ": off by " + std::to_string((answer - values).abs().max().item<double>() / allowed) +
             " times what is allowed";
    }
  }
  return "";
}

// The Gloo groups of so many ranks, which are threads; kept, since they take longer to meet than a case.
const std::vector<Group>& groups_of(size_t size) {
  static std::map<size_t, std::vector<Group>> kept;
  if (kept.count(size) == 0) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<std::future<Group>> made;
    for (size_t rank = 0; rank < size; ++rank) {
      made.push_back(std::async(std::launch::async, [&, rank] {
        const auto number = static_cast<int>(rank), ranks = static_cast<int>(size);
        auto options = c10d::ProcessGroupGloo::Options::create();
        options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
        options->timeout = std::chrono::seconds(60);
        const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, number, ranks, options);
        auto group = c10::make_intrusive<c10d::ProcessGroup>(number, ranks);
        group->setBackend(at::kCPU, c10d::ProcessGroup::GLOO, gloo);
        group->setDefaultBackend(c10d::ProcessGroup::GLOO);
        return group;
      }));
    }
    for (auto& group : made) kept[size].push_back(group.get());
  }
  return kept.at(size);
}

BatchNorm layer_of(const LayerCase& c, const Ranks& ranks) {
  const Json& momentum = c.strategy.at("momentum");
  BatchNorm layer(BatchNormOptions(c.running_mean.size(0))
                      .strategy("sync")
                      .ranks(ranks)
                      .eps(c.strategy.at("eps").get<double>())
                      .momentum(momentum.is_null() ? std::nullopt : std::optional(momentum.get<double>()))
                      .affine(c.strategy.at("affine").get<bool>()));
  layer->to(statistics_type(c.dtype));
  const torch::NoGradGuard none;
  layer->running_mean.copy_(c.running_mean);
  layer->running_var.copy_(c.running_var);
  if (c.weight.defined()) {
    layer->weight.copy_(c.weight);
    layer->bias.copy_(c.bias);
  }
  return layer;
}

// What one rank answers; its part of the sums.
Answers on_rank(const VectorCase& vectors, size_t rank, const Group& group) {
  const LayerCase& c = vectors.layer_case;
  BatchNorm layer = layer_of(c, Ranks(group));
  Answers answers;
  std::vector<at::Tensor> ys, dys;
  std::map<std::string, at::Tensor> leaves;
  for (size_t p = 0; p < c.steps.size(); ++p) {
    const LayerStep& step = c.steps[p];
    const std::string path = std::to_string(p) + "/", own = path + std::to_string(rank) + "/";
    const at::MemoryFormat format = c.format(step.inputs[rank].dim());
    layer->train(step.mode == Mode::train);
    const at::Tensor x = step.inputs[rank].to(c.dtype).contiguous(format).requires_grad_();
    const at::Tensor y = layer->forward(x);
    answers[own + "output"] = y.detach().to(at::kDouble).contiguous();
    answers[path + "running_mean"] = layer->running_mean.detach().clone();
    answers[path + "running_var"] = layer->running_var.detach().clone();
    if (step.gradients.empty()) continue;
    ys.push_back(y);
    dys.push_back(step.gradients[rank].to(c.dtype).contiguous(format));
    leaves[own + "grad_input"] = x;
    if (vectors.backward_after_all && p + 1 < c.steps.size()) continue;
    layer->zero_grad();
    torch::autograd::backward(ys, dys);
    for (const auto& [name, leaf] : leaves) answers[name] = leaf.grad().to(at::kDouble).contiguous();
    if (c.weight.defined()) {
      answers[path + "grad_weight"] = layer->weight.grad().clone();
      answers[path + "grad_bias"] = layer->bias.grad().clone();
    }
    ys.clear(), dys.clear(), leaves.clear();
  }
  return answers;
}

Answers of_the_library(const VectorCase& c) {
  Answers all;
  std::map<std::string, std::vector<at::Tensor>> of_groups;
  for (size_t first = 0; first < c.layer_case.towers(); first += c.ranks_per_group) {
    const std::vector<Group>& groups = groups_of(c.ranks_per_group);
    std::vector<std::future<Answers>> ranks;
    for (size_t r = 0; r < c.ranks_per_group; ++r)
      ranks.push_back(std::async(std::launch::async, on_rank, std::cref(c), first + r, groups[r]));
    for (size_t r = 0; r < ranks.size(); ++r) {
      for (const auto& [name, values] : ranks[r].get()) {
        if (name.find("running") != std::string::npos) {
          if (r == 0) of_groups[name].push_back(values.to(at::kDouble));
        } else {
          const bool is_sum =
              name.find("grad_weight") != std::string::npos || name.find("grad_bias") != std::string::npos;
          const at::Tensor exact = values.to(at::kDouble);
          all[name] = is_sum && all.count(name) > 0 ? all[name] + exact : exact;
        }
      }
    }
  }
  for (const auto& [name, values] : of_groups) all[name] = at::stack(values);
  return all;
}

TEST(Vectors, AreEnoughAndSayWhatTheyCatch) {
  const std::vector<VectorCase> cases = vector_cases();
  EXPECT_GE(cases.size(), 150U);
  std::set<std::string> names;
  for (const VectorCase& c : cases) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_EQ(c.catches.back(), '.') << c.name;
    for (const VectorAnswer::Pass& pass : expected_of(c).passes)
      for (const auto& [kind, allowed] : pass.allowed.items())
        EXPECT_TRUE(std::isfinite(allowed.get<double>())) << c.name << ", " << kind;
  }
}

TEST(Vectors, ThatAreSpoiltAreNoticed) {
  const std::vector<VectorCase> cases = vector_cases();
  const VectorAnswer expected = expected_of(cases.front());
  const Answers right = named(expected);
  EXPECT_EQ(complaint(expected, right), "");
  for (const auto& [name, values] : right) {
    Answers spoilt = right;
    const std::string kind = name.substr(name.rfind('/') + 1);
    spoilt[name] = values + 2 * expected.passes[0].allowed.at(kind).get<double>();
    EXPECT_NE(complaint(expected, spoilt), "") << name;
    spoilt[name] = values * NAN;
    EXPECT_NE(complaint(expected, spoilt), "") << name;
    spoilt.erase(name);
    EXPECT_NE(complaint(expected, spoilt), "") << name;
  }
}

TEST(Vectors, TheLibraryPassesAll) {
  std::vector<NamedTensor> left;
  for (const VectorCase& c : vector_cases()) {
    const Answers answers = of_the_library(c);
    EXPECT_EQ(complaint(expected_of(c), answers), "") << c.name;
    for (const auto& [name, values] : answers) left.push_back({c.name + "/" + name, values.contiguous()});
  }
  if (const char* file = std::getenv("BNLAB_VECTOR_ANSWERS")) write_safetensors(file, left);
}

// Statistics of all ranks; a rank is a tower on a rank of its own.
TEST(Vectors, EveryRouteOfTheStrategyPassesAll) {
  std::vector<std::string> routes;
  for (const Parameter& parameter : find_registered("strategy", "sync")->parameters())
    if (parameter.name == "route") routes = parameter.choices;
  ASSERT_GE(routes.size(), 4U);
  std::map<size_t, std::unique_ptr<ThreadRanks>> worlds;
  for (const std::string& route : routes) {
    for (VectorCase c : vector_cases()) {
      // Its sums n m^2 lose (mean / deviation)^2 roundings, as its page says.
      const bool cancels = c.name.rfind("huge_mean", 0) == 0 || c.name.rfind("constant", 0) == 0;
      // Rows that travel whole agree in all other dimensions.
      const bool differ = c.name.rfind("image_sizes", 0) == 0 || c.name.rfind("half_count", 0) == 0;
      if (c.ranks_per_group != c.layer_case.towers() || (route == "all_reduce" && cancels) ||
          (route.starts_with("gather_activations") && differ)) {
        continue;
      }
      c.layer_case.strategy["route"] = route;
      auto& world = worlds[c.layer_case.towers()];
      if (!world) world = std::make_unique<ThreadRanks>(static_cast<int>(c.layer_case.towers()), at::kCPU);
      const LayerAnswer answer = apply_layer(c.layer_case, *world);
      VectorAnswer as_vectors;
      at::Tensor weight, bias;
      for (const LayerStepAnswer& step : answer.steps) {
        const bool adds = c.backward_after_all && weight.defined();
        weight = adds ? weight + step.weight_gradient : step.weight_gradient;
        bias = adds ? bias + step.bias_gradient : step.bias_gradient;
        const bool has_gradients = !step.input_gradients.empty();
        as_vectors.passes.push_back({step.outputs, step.input_gradients,
                                     has_gradients ? weight : at::Tensor(),
                                     has_gradients ? bias : at::Tensor(), step.running_mean.unsqueeze(0),
                                     step.running_var.unsqueeze(0), Json()});
      }
      EXPECT_EQ(complaint(expected_of(c), named(as_vectors)), "") << c.name << ", " << route;
    }
  }
}

}  // namespace
}  // namespace bnlab
