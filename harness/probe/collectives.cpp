#include "harness/probe/collectives.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "harness/probe/turns.hpp"
#include "harness/support/error.hpp"
#include "harness/training/graph_recorder.hpp"

namespace bnlab {
namespace {

constexpr int64_t kSmallest = 8;
constexpr int64_t kFewest = 3, kMost = 400;   // calls of one collective at one size
constexpr int64_t kLookEvery = 8;             // calls, at the clock
constexpr int kInGraph = 10;                  // calls in one recording
constexpr int64_t kSmallExchange = 64 << 10;  // up to here calls are measured behind other work, too
constexpr int64_t kWorkNumbers = 64 << 10;    // moved by this work: about what lies between two norm sites
constexpr double kGrowth = 2;                 // from one size to the next

// What rank `rank` sends.
float value_of(int rank) {
  return static_cast<float>(rank + 1);
}

// One collective. `call` returns what came out, of which rank `root` alone has some where only it receives.
struct Operation {
  const char* name;
  bool gathers;  // what comes out is what all ranks have sent, one after the other
  double (*bus_factor)(double ranks);
  std::function<at::Tensor(Communicator&, at::Tensor&)> call;
};

const std::vector<Operation>& operations() {
  const auto share = [](double ranks) { return (ranks - 1) / ranks; };
  const auto twice_share = [](double ranks) { return 2 * (ranks - 1) / ranks; };
  const auto whole = [](double) { return 1.0; };
  static const std::vector<Operation> all{
      {"all_gather", true, share,
       [](Communicator& c, at::Tensor& t) { return c.all_gather(t, Purpose::control); }},
      {"all_reduce", false, twice_share,
       [](Communicator& c, at::Tensor& t) {
         c.all_reduce(t, Purpose::control);
         return t;
       }},
      {"broadcast", false, whole,
       [](Communicator& c, at::Tensor& t) {
         c.broadcast(t, 0, Purpose::control);
         return t;
       }},
      {"gather", true, share,
       [](Communicator& c, at::Tensor& t) { return c.gather(t, 0, Purpose::control); }},
      {"reduce", false, whole,
       [](Communicator& c, at::Tensor& t) {
         c.reduce(t, 0, Purpose::control);
         return c.rank() == 0 ? t : at::Tensor();
       }},
      {"all_to_all", false, share, [](Communicator& c, at::Tensor& t) {
         const std::vector<int64_t> rows(static_cast<size_t>(c.size()), 1);
         return c.all_to_all(t.view({c.size(), -1}), rows, rows, Purpose::control);
       }}};
  return all;
}

// What must have come out: one number where all are equal, else one for each rank in their order.
std::vector<float> expected(const std::string& op, int ranks) {
  std::vector<float> of_ranks;
  for (int rank = 0; rank < ranks; ++rank) of_ranks.push_back(value_of(rank));
  if (op == "all_reduce" || op == "reduce") return {std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0F)};
  return op == "broadcast" ? std::vector<float>{value_of(0)} : of_ranks;
}

// One round.
class Measurement {
 public:
  Measurement(World& world, const std::string& exchange, CollectiveSamples& samples)
      : world_(world),
        exchange_(exchange),
        samples_(samples),
        device_(world.device()),
        work_(at::zeros({kWorkNumbers}, at::TensorOptions().device(device_))) {}

  void measure(const Operation& op, double seconds, int64_t largest_bytes) {
    const double until = seconds_now() + seconds;
    double last = 0;  // seconds of a call at the size before
    const auto ranks = static_cast<int64_t>(world_.size());
    for (int64_t bytes = kSmallest; size_of(op, bytes) <= largest_bytes;
         bytes = static_cast<int64_t>(static_cast<double>(bytes) * kGrowth)) {
      if (std::string(op.name) == "all_to_all" && bytes / 4 < ranks)
        continue;  // less than a number for each rank
      const double left = std::max(until - seconds_now(), 0.0);
      if (agreed(left < last * kGrowth * (kFewest + 2), device_, communicator()) != 0)
        break;  // larger sizes would take longer than there is time
      const double sizes =
          std::log2(static_cast<double>(largest_bytes) / static_cast<double>(size_of(op, bytes))) + 1;
      last = measure_size(op, bytes, left / sizes);
    }
  }

 private:
  Communicator& communicator() const { return world_.gradients(); }

  // As nccl-tests count it: of all that comes out together where ranks gather.
  int64_t size_of(const Operation& op, int64_t bytes) const {
    return op.gathers ? bytes * world_.size() : bytes;
  }

  at::Tensor tensor_of(const Operation& op, int64_t bytes) const {
    const int64_t numbers = bytes / 4;
    const int64_t whole =
        std::string(op.name) == "all_to_all" ? numbers / world_.size() * world_.size() : numbers;
    return at::empty({whole}, at::TensorOptions().device(device_).dtype(at::kFloat));
  }

  // One checked call; its seconds.
  double once(const Operation& op, at::Tensor& t, bool look_at_all) {
    t.fill_(value_of(world_.rank()));
    wait_for_device(device_);
    at::Tensor out;
    const double seconds = seconds_of(device_, [&] { out = op.call(communicator(), t); });
    check(op, out, look_at_all);
    return seconds;
  }

  void check(const Operation& op, const at::Tensor& out, bool look_at_all) const {
    if (!out.defined()) return;
    const std::vector<float> wanted = expected(op.name, world_.size());
    const at::Tensor parts = out.view({static_cast<int64_t>(wanted.size()), -1});
    for (size_t i = 0; i < wanted.size(); ++i) {
      const at::Tensor part = parts[static_cast<int64_t>(i)];
      const bool right = look_at_all
                             ? part.eq(wanted[i]).all().item<bool>()
                             : part[0].item<float>() == wanted[i] && part[-1].item<float>() == wanted[i];
      if (!right) {
        throw Error(Error::Kind::communication,
                    "rank " + std::to_string(world_.rank()) + ": " + op.name + " of " +
                        std::to_string(out.nbytes()) + " bytes over " + exchange_ +
                        " has a wrong result: expected " + std::to_string(wanted[i]) + " from rank " +
                        std::to_string(i) + ", got " + std::to_string(part[0].item<float>()));
      }
    }
  }

  // Seconds of a call, their median in this round.
  double measure_size(const Operation& op, int64_t bytes, double seconds) {
    at::Tensor t = tensor_of(op, bytes);
    once(op, t, /*look_at_all=*/true);
    const double first = once(op, t, /*look_at_all=*/false);
    const int64_t calls =
        agreed(repeats_within(seconds / 2, first * 1.5, kFewest, kMost), device_, communicator());
    CollectiveTimes& times = samples_[op.name][static_cast<int64_t>(t.nbytes())];
    times.size_bytes = size_of(op, static_cast<int64_t>(t.nbytes()));
    const auto measured = [&](bool behind) {
      std::vector<double> own;
      const double until = seconds_now() + seconds / 2;
      bool goes_on = true;
      while (goes_on && std::ssize(own) < calls) {
        if (behind) work_.add_(1);
        own.push_back(once(op, t, /*look_at_all=*/false));
        // A busy machine may be far slower than its first calls were.
        goes_on =
            std::ssize(own) % kLookEvery != 0 || agreed(seconds_now() < until, device_, communicator()) != 0;
      }
      return over_ranks(own, device_, communicator());
    };
    const std::vector<double> alone = measured(/*behind=*/false).mean;
    append(times.alone, alone);
    if (bytes <= kSmallExchange) {
      const OverRanks behind = measured(/*behind=*/true);
      append(times.after_work, behind.mean);
      append(times.last_rank, behind.smallest);
    }
    append(times.in_graph, in_graph(op, t, calls));
    return quantile(alone, 0.5);
  }

  // The same call, recorded and replayed; none where there are no graphs, and of what none is recorded of.
  std::vector<double> in_graph(const Operation& op, at::Tensor& t, int64_t calls) {
    const MakeRecorder make = recorders_of(device_);
    const std::string name = op.name;
    if (!make || !(name == "all_gather" || name == "all_reduce")) return {};
    t.fill_(name == "all_reduce" ? 0.0F : value_of(world_.rank()));  // sums of sums stay what they are
    wait_for_device(device_);
    at::Tensor out;
    const std::unique_ptr<GraphRecorder> recorder = make();
    recorder->record(StepPart::forward, [&] {
      for (int i = 0; i < kInGraph; ++i) out = op.call(communicator(), t);
    });
    std::vector<double> times;
    for (int64_t i = 0; i < calls; ++i) {
      const double whole = seconds_of(device_, [&] { recorder->replay(StepPart::forward); });
      times.push_back(whole / kInGraph);
    }
    if (name == "all_gather")
      check(op, out, /*look_at_all=*/true);
    else
      check_sums_of_sums(*recorder, t);
    return over_ranks(times, device_, communicator()).mean;
  }

  // A replay sums up kInGraph times in place.
  void check_sums_of_sums(GraphRecorder& recorder, at::Tensor& t) const {
    t.fill_(value_of(world_.rank()));
    recorder.replay(StepPart::forward);
    const double sum = expected("all_reduce", world_.size()).front() * std::pow(world_.size(), kInGraph - 1);
    if (!at::allclose(t, at::full_like(t, sum), /*rtol=*/1e-4)) {
      throw Error(Error::Kind::communication, "rank " + std::to_string(world_.rank()) +
                                                  ": a replayed all_reduce over " + exchange_ +
                                                  " has a wrong result");
    }
  }

  World& world_;
  const std::string& exchange_;
  CollectiveSamples& samples_;
  at::Device device_;
  at::Tensor work_;
};

}  // namespace

void measure_collectives(World& world, const std::string& exchange, double seconds, int64_t largest_bytes,
                         CollectiveSamples& samples) {
  const at::NoGradGuard no_grad;
  Measurement measurement(world, exchange, samples);
  const double until = seconds_now() + seconds;
  auto left = static_cast<double>(operations().size());
  for (const Operation& op : operations())
    measurement.measure(op, std::max((until - seconds_now()) / left--, 0.0), largest_bytes);
}

Json rows_of(const CollectiveSamples& samples, const std::string& exchange, int ranks) {
  Json rows = Json::array();
  for (const Operation& op : operations()) {
    const auto found = samples.find(op.name);
    if (found == samples.end()) continue;
    for (const auto& [bytes, times] : found->second) {
      Json row{{"exchange", exchange}, {"op", op.name}, {"bytes", bytes}, {"size_bytes", times.size_bytes}};
      row["time_s"] = spread_of(times.alone);
      if (!times.after_work.empty()) {
        row["after_work_s"] = spread_of(times.after_work);
        row["last_rank_s"] = spread_of(times.last_rank);
      }
      if (!times.in_graph.empty()) row["graph_time_s"] = spread_of(times.in_graph);
      const double bandwidth = static_cast<double>(times.size_bytes) / row["time_s"]["p50"].get<double>();
      row["algbw_bytes_per_s"] = bandwidth;
      row["busbw_bytes_per_s"] = bandwidth * op.bus_factor(ranks);
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace bnlab
