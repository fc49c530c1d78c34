// The checks that need the strategy itself: its declaration, its checkpoint, what its ranks send.
#include <torch/types.h>

#include <set>
#include <sstream>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/error.hpp"
#include "tests/strategies/case_for.hpp"
#include "tests/strategies/conformance.hpp"
#include "tests/strategies/one_site.hpp"

namespace bnlab {
namespace {

Complaints unknown_parameter_is_refused(const Json& strategy, const Applier&) {
  Json wrong = strategy;
  wrong["no_such_parameter"] = 1;
  try {
    resolved_strategy(wrong);
  } catch (const Error& e) {
    const bool named = std::string(e.what()).find("no_such_parameter") != std::string::npos;
    return named && e.kind() == Error::Kind::spec ? Complaints{}
                                                  : Complaints{std::string("refused with: ") + e.what()};
  }
  return {"not refused"};
}

LayerCase small_case(const Json& strategy) {
  return case_for(strategy, {{2, 3, 1, 4}, {8, 2, 3}, {Mode::train, Mode::train, Mode::evaluate_saved}});
}

// As many as a strategy that recomputes its statistics asks for.
std::vector<LayerStep> calibration_steps(const Json& strategy) {
  const Json batches = option(strategy, "batches");
  CaseShape shape{{2, 3, 1, 4}};
  shape.modes.assign(batches.is_null() ? 1 : batches.get<size_t>(), Mode::train);
  shape.seed = 77;
  return case_for(strategy, shape).steps;
}

Complaints checkpoint_gives_the_same_evaluation(const Json& strategy, const Applier&) {
  const LayerCase c = small_case(strategy);
  Complaints found;
  on_thread_ranks(1, at::kCPU, [&](World& world) {
    const std::vector<LayerStep> calibration = calibration_steps(strategy);
    OneSite trained(c, world);
    trained.apply(c.steps[0]);
    trained.apply(c.steps[1]);
    trained.show_saved(calibration);
    OneSite loaded(c, world, /*fresh_weights=*/false);
    loaded.load(trained);
    const std::set<std::string> names = trained.buffer_names();
    if (!names.empty() && names != std::set<std::string>{"site.running_mean", "site.running_var"} &&
        names != std::set<std::string>{"site.running_mean"}) {
      found.push_back("a site's buffers must be its saved pair");
    }
    const at::Tensor expected = trained.apply(c.steps[2]);
    loaded.show_saved(calibration);
    if (!at::equal(loaded.apply(c.steps[2]), expected)) {
      found.push_back("another evaluation after loading");
    }
  });
  return found;
}

struct Sent {
  std::vector<Collective> list;
  std::vector<int64_t> bytes;     // by purpose
  std::vector<at::Tensor> state;  // when evaluation begins
};

// Training, training without autograd, a step of empty towers, evaluation.
Sent everything_sent(const LayerCase& c, World& world) {
  OneSite site(c, world);
  world.ledger().clear();
  world.ledger().keep_list(true);
  site.apply(c.steps[0]);
  {
    const at::NoGradGuard no_grad;
    site.apply(c.steps[1]);
  }
  site.apply(case_for(c.strategy, {{0, 0, 0, 0}}).steps[0]);
  const std::vector<LayerStep> calibration = calibration_steps(c.strategy);
  site.show_saved(calibration);
  site.apply(c.steps[2]);
  Sent sent{world.ledger().list(), {}, {}};
  for (size_t purpose = 0; purpose < kPurposeNames.size(); ++purpose) {
    sent.bytes.push_back(world.ledger().of(static_cast<Purpose>(purpose)).bytes);
  }
  for (const at::Tensor& t : site.state()) {
    sent.state.push_back(t.detach().clone());
  }
  world.ledger().keep_list(false);
  return sent;
}

// Rows that are shuffled go where the permutation sends them: as many as the ranks have.
bool is_alike(const Collective& a, const Collective& b) {
  return a.op == b.op && a.purpose == b.purpose && (a.elements == b.elements || a.op == "all_to_all");
}

Complaints ranks_send_alike_and_hold_the_same(const Json& strategy, const Applier&) {
  constexpr int kRanks = 4;
  const LayerCase c = small_case(strategy);
  std::vector<Sent> sent(kRanks);
  on_thread_ranks(kRanks, at::kCPU,
                  [&](World& world) { sent[static_cast<size_t>(world.rank())] = everything_sent(c, world); });
  Complaints found;
  for (size_t rank = 1; rank < kRanks; ++rank) {
    const Sent &mine = sent[rank], &first = sent[0];
    const std::string who = "rank " + std::to_string(rank);
    if (!std::equal(mine.list.begin(), mine.list.end(), first.list.begin(), first.list.end(), is_alike)) {
      found.push_back(who + " does not issue the collectives of rank 0");
    }
    for (size_t purpose = 0; purpose < mine.bytes.size(); ++purpose) {
      if (mine.bytes[purpose] != first.bytes[purpose] && static_cast<Purpose>(purpose) != Purpose::shuffle) {
        found.push_back(who + " sends other bytes for " + kPurposeNames[purpose]);
      }
    }
    for (size_t i = 0; i < mine.state.size(); ++i) {
      if (!at::equal(mine.state[i], first.state[i])) {
        found.push_back(who + " evaluates with other values than rank 0");
      }
    }
  }
  return found;
}

}  // namespace

const std::vector<Check>& strategy_checks() {
  static const std::vector<Check> all{
      {"unknown parameter", unknown_parameter_is_refused},
      {"checkpoint", checkpoint_gives_the_same_evaluation},
      {"collectives of the ranks", ranks_send_alike_and_hold_the_same},
  };
  return all;
}

}  // namespace bnlab
