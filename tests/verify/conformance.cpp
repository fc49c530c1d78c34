#include "tests/verify/conformance.hpp"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <set>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

using Sizes = std::vector<int64_t>;

int64_t number_or(const Json& value, int64_t otherwise) {
  return value.is_number() ? value.get<int64_t>() : otherwise;
}

// Sizes of towers that the options allow.
Sizes fitting(const Json& strategy, Sizes sizes) {
  for (int64_t& n : sizes) n *= number_or(option(strategy, "virtual_batch"), 1);
  return sizes;
}

// Ranks deal with towers, not with values: for several ranks the plain images suffice.
bool is_dealt(const LayerCase& c, int ranks) {
  return c.towers() % static_cast<size_t>(ranks) == 0 && c.dtype == at::kDouble &&
         c.memory_format == at::MemoryFormat::Contiguous && c.steps[0].inputs[0].dim() == 4;
}

using Wanted = std::function<bool(const VerifyCase&, int ranks)>;

std::string complaint_of_cases(const Json& strategy, const Applier& apply, const Wanted& is_wanted) {
  const auto reference = reference_of(strategy);
  for (const VerifyCase& c : verify_cases(strategy)) {
    std::optional<Expectation> expectation;
    for (const int ranks : {1, 2, 4}) {
      if ((ranks > 1 && !is_dealt(c.layer_case, ranks)) || !is_wanted(c, ranks)) continue;
      if (!expectation) expectation.emplace(c, *reference);
      const AnswerComparison result = expectation->verdict([&] { return apply(c.layer_case, ranks); });
      if (!result.failure.empty()) return c.text + ", " + std::to_string(ranks) + " ranks: " + result.failure;
    }
  }
  return "";
}

// Whether the strategy does on one tower what LibTorch's batch_norm does. A new strategy of which this is
// true is added to the names.
bool one_tower_is_batch_norm(const Json& strategy) {
  static const std::set<std::string> names{"per_tower", "single_tower", "last_tower", "every_tower",
                                           "averaged",  "sync",         "shuffle",    "cmbn"};
  if (strategy.at("name") == "frozen" && number_or(strategy.at("from_step"), 0) == 0) return false;
  return names.count(innermost(strategy).at("name").get<std::string>()) > 0 &&
         option(strategy, "gradient") != "stopped" && option(strategy, "running_variance") != "biased" &&
         option(strategy, "running") != "zero_debias" && option(strategy, "normalise") != "unbiased" &&
         number_or(option(strategy, "group_size"), 1) == 1 &&
         number_or(option(strategy, "saved_tower"), 0) == 0 && number_or(option(strategy, "tower"), 0) == 0;
}

std::string one_tower_equals_libtorch(const Json& strategy, const Applier& apply) {
  for (const Sizes& sample : std::vector<Sizes>{{5}, {5, 7}, {16, 3, 4}, {3, 2, 3, 4}}) {
    if (!one_tower_is_batch_norm(strategy)) break;
    const LayerCase c = make_case(strategy, {.towers = {6}, .sample = sample});
    LayerAnswer answer = apply(c, 1), expected = plain_batch_norm(c);
    answer.steps[0].permutation.clear();     // shuffling one tower changes nothing but the order of sums
    if (strategy.at("name") == "precise") {  // recomputes the pair
      expected.steps[0].running_mean = answer.steps[0].running_mean;
      expected.steps[0].running_var = answer.steps[0].running_var;
    }
    const AnswerComparison result = compare(c, expected, answer, reference_of(strategy)->conditioning(c));
    if (!result.failure.empty())
      return std::to_string(sample.size()) + " dimensions of a sample: " + result.failure;
  }
  return "";
}

std::string unknown_parameter_is_refused(const Json& strategy, const Applier&) {
  Json wrong = strategy;
  wrong["no_such_parameter"] = 1;
  const CaseOutcome outcome = outcome_of([&] {
    resolved_strategy(wrong);
    return LayerAnswer{};
  });
  return outcome.refusal.find("no_such_parameter") == std::string::npos ? "it is not refused by name" : "";
}

// What has been trained goes into a new layer as a weights file would bring it, and evaluates alike.
std::string checkpoint_gives_the_same_evaluation(const Json& strategy, const Applier& apply) {
  LayerCase c = small_case(strategy, {Mode::train, Mode::train, Mode::evaluate_saved});
  const LayerAnswer answer = apply(c, 1);
  const LayerStepAnswer& trained = answer.steps[1];
  c.fresh_weights = false;
  c.running_mean = trained.running_mean;
  c.running_var = trained.running_var;
  if (c.conv) {
    c.conv->gain = trained.gain;
    c.conv->bias = trained.bias;
  }
  c.steps = {c.steps[2]};
  const LayerStepAnswer loaded = apply(c, 1).steps[0];
  for (size_t t = 0; t < c.towers(); ++t)
    if (!at::equal(loaded.outputs[t], answer.steps[2].outputs[t])) return "another evaluation after loading";
  return "";
}

// The saved pair, mixed with the moments of each sample.
std::string mixed_evaluation_is_the_references(const Json& strategy, const Applier& apply) {
  LayerCase c = small_case(strategy, {Mode::train, Mode::evaluate_saved});
  c.steps[1].own_share = 0.3;
  const auto reference = reference_of(strategy);
  for (const int ranks : {1, 2}) {
    const AnswerComparison result =
        compare(c, reference->answer(c), apply(c, ranks), reference->conditioning(c));
    if (!result.failure.empty()) return std::to_string(ranks) + " ranks: " + result.failure;
  }
  return "";
}

// What a rank has sent in its steps and between them, and what it holds after each.
struct Sent {
  std::vector<Collective> list;
  std::vector<std::pair<int64_t, int64_t>> traffic;  // collectives and bytes, by step and purpose
  std::vector<at::Tensor> state;
  std::set<std::string> buffers;
};

// Training, training without autograd, a step of empty towers, evaluation.
Sent everything_sent(const LayerCase& c, World& world) {
  std::string key;
  LayerRank rank(c, world, key);
  Sent sent;
  for (size_t s = 0; s < c.steps.size(); ++s) {
    at::AutoGradMode autograd(!c.steps[s].gradients.empty());
    const LayerStepAnswer answer = rank.step(s);
    sent.list.insert(sent.list.end(), answer.collectives.begin(), answer.collectives.end());
    for (size_t purpose = 0; purpose < kPurposeNames.size(); ++purpose) {
      const Traffic& traffic = world.ledger().of(static_cast<Purpose>(purpose));
      const bool is_shuffle = static_cast<Purpose>(purpose) == Purpose::shuffle;
      sent.traffic.emplace_back(traffic.collectives, is_shuffle ? 0 : traffic.bytes);
    }
    for (const at::Tensor& t : {answer.running_mean, answer.running_var, answer.gain, answer.bias})
      sent.state.push_back(t.defined() ? t : at::zeros({0}));
  }
  for (const auto& [name, tensor] : rank.state())
    if (!tensor.requires_grad()) sent.buffers.insert(name);
  return sent;
}

// Rows that are shuffled go where the permutation sends them: as many as the ranks have.
bool is_alike(const Collective& a, const Collective& b) {
  return a.op == b.op && a.purpose == b.purpose && (a.elements == b.elements || a.op == "all_to_all");
}

std::string ranks_send_alike_and_hold_the_same(const Json& strategy, const Applier&) {
  constexpr int kRanks = 4;
  LayerCase c = small_case(strategy, {Mode::train, Mode::train, Mode::train, Mode::evaluate_saved});
  c.steps[1].gradients.clear();
  for (auto* tensors : {&c.steps[2].inputs, &c.steps[2].gradients})
    for (at::Tensor& t : *tensors) t = t.slice(0, 0, 0);
  std::vector<Sent> sent(kRanks);
  on_thread_ranks(kRanks, at::kCPU,
                  [&](World& world) { sent[static_cast<size_t>(world.rank())] = everything_sent(c, world); });
  for (const std::string& buffer : sent[0].buffers)
    if (buffer != "running_mean" && buffer != "running_var")
      return "a site's buffers must be its saved pair, there is " + buffer;
  for (size_t rank = 1; rank < kRanks; ++rank) {
    const Sent &mine = sent[rank], &first = sent[0];
    const std::string who = "rank " + std::to_string(rank);
    if (!std::equal(mine.list.begin(), mine.list.end(), first.list.begin(), first.list.end(), is_alike))
      return who + " does not issue the collectives of rank 0";
    if (mine.traffic != first.traffic) return who + " does not send as many collectives and bytes as rank 0";
    for (size_t i = 0; i < mine.state.size(); ++i)
      if (!at::equal(mine.state[i], first.state[i])) return who + " holds other values than rank 0";
  }
  return "";
}

}  // namespace

LayerCase small_case(const Json& strategy, const std::vector<Mode>& modes) {
  return make_case(strategy, {.towers = fitting(strategy, {2, 3, 1, 4}), .modes = modes});
}

std::string complaint_of_table(const std::string& check, const Json& strategy, const Applier& apply) {
  bool exists = false;
  const std::string found = complaint_of_cases(strategy, apply, [&](const VerifyCase& c, int ranks) {
    const bool is_wanted = check == (ranks > 1 ? "placement" : c.group);
    exists = exists || is_wanted;
    return is_wanted;
  });
  return exists ? found : "there is no check \"" + check + "\"";
}

std::string complaint_of_table(const Json& strategy, const Applier& apply) {
  return complaint_of_cases(strategy, apply, [](const VerifyCase&, int) { return true; });
}

const std::vector<Check>& further_checks() {
  static const std::vector<Check> all{{"finite differences", gradients_are_finite_differences},
                                      {"one tower", one_tower_equals_libtorch},
                                      {"unknown parameter", unknown_parameter_is_refused},
                                      {"checkpoint", checkpoint_gives_the_same_evaluation},
                                      {"mixed evaluation", mixed_evaluation_is_the_references},
                                      {"collectives of the ranks", ranks_send_alike_and_hold_the_same}};
  return all;
}

std::string complaint(const std::string& check, const Json& strategy, const Applier& apply) {
  for (const Check& further : further_checks())
    if (further.name == check) return further.complaint(strategy, apply);
  return complaint_of_table(check, strategy, apply);
}

std::vector<Json> variants_of(const std::vector<std::string>& names) {
  std::vector<Json> all;
  for (const std::string& name : names) {
    for (const Json& options : reference_of({{"name", name}})->variants()) {
      all.push_back({{"name", name}});
      all.back().update(options);
      all.back() = resolved_strategy(all.back());
    }
  }
  return all;
}

std::string name_of_variant(const ::testing::TestParamInfo<Json>& info) {
  return info.param.at("name").get<std::string>() + "_" + std::to_string(info.index);
}

bool must_refuse(const Json& strategy) {
  const LayerCase c = small_case(strategy, {Mode::train});
  return !outcome_of([&] { return reference_of(strategy)->answer(c); }).refusal.empty();
}

}  // namespace bnlab
