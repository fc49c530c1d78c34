#include "harness/embed/bnlab/ranks.hpp"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/host/dealt_gpus.hpp"
#include "harness/communicator/host/environment_world.hpp"
#include "harness/communicator/world.hpp"
#include "harness/embed/meeting.hpp"
#include "harness/strategy.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

struct Ranks::State {
  explicit State(std::unique_ptr<World> world) : world(std::move(world)), meeting(*this->world) {}

  std::unique_ptr<World> world;
  Meeting meeting;
  int64_t sites = 0;
};

Ranks::Ranks(std::shared_ptr<State> state) : state_(std::move(state)) {}

Ranks::Ranks() : state_(std::make_shared<State>(world_of_one())) {}

Ranks::Ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group)
    : state_(std::make_shared<State>(world_over(group))) {}

namespace {

// The GPUs that this rank may take; none where it joins for the CPU.
std::vector<std::string> gpus_for(c10::DeviceType device, int rank) {
  if (device == c10::kCPU) return {};
  if (!has_cuda_kernels()) {
    throw Error(
        Error::Kind::environment,
        "rank " + std::to_string(rank) +
            " joins for a GPU, and bnlab was built without its CUDA kernels (BNLAB_CUDA=ON); join for "
            "the CPU");
  }
  return names_of_gpus();
}

}  // namespace

Ranks Ranks::from_environment(c10::DeviceType device, std::chrono::milliseconds timeout) {
  const auto announced = environment_world(process_environment());
  if (!announced || announced->rendezvous.size == 1) return Ranks();
  check_address(*announced);
  Rendezvous at = announced->rendezvous;
  at.exchange = announced->one_host ? Exchange::shared_memory : Exchange::sockets;
  at.prefix = "library";
  // Ranks may start minutes apart. Once all are there, `timeout` counts.
  at.timeout = announced->meeting_timeout;
  const auto seen = gpus_told(gather_texts(at, gpus_to_tell(gpus_for(device, at.rank))));
  if (device != c10::kCPU || std::ranges::any_of(seen, [](const auto& names) { return !names.empty(); }))
    at.local_rank = gpu_of_rank(at.rank, seen);
  at.prefix += "-" + share_text(at, new_word());  // a store may hold what an earlier program has left
  at.timeout = timeout;
  return Ranks(std::make_shared<State>(join_world(at, device)));
}

int Ranks::rank() const {
  return world().rank();
}

int Ranks::size() const {
  return world().size();
}

std::pair<int64_t, int64_t> Ranks::share(int64_t rows) const {
  const int64_t each = rows / size(), more = rows % size(), before = rank();
  const int64_t first = before * each + std::min(before, more);
  return {first, first + each + (before < more ? 1 : 0)};
}

bool Ranks::any(bool here) const {
  return sum(at::full({1}, here ? 1 : 0, at::kLong)).item<int64_t>() > 0;
}

at::Tensor Ranks::sum(const at::Tensor& t) const {
  constexpr std::array kSummed{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                               at::kInt,   at::kChar,   at::kByte};  // by shared memory, Gloo, NCCL
  if (std::ranges::find(kSummed, t.scalar_type()) == kSummed.end()) {
    throw Error(Error::Kind::usage,
                std::string("sum: expected float32, float64, float16, bfloat16, int64, int32, int8 or uint8, "
                            "got ") +
                    c10::toString(t.scalar_type()) + "; convert the tensor by to()");
  }
  at::Tensor sum = t.detach().clone(at::MemoryFormat::Contiguous).to(world().host_device());
  world().host().all_reduce(sum, Purpose::control);
  return sum.to(t.device());
}

void Ranks::barrier() const {
  world().barrier();
}

Ranks::Traffic Ranks::traffic(const char* purpose) const {
  Traffic all;
  bool found = false;
  for (size_t i = 0; i < kPurposeNames.size(); ++i) {
    if (purpose == nullptr || std::string(purpose) == kPurposeNames[i]) {
      found = true;
      const bnlab::Traffic& one = world().ledger().of(static_cast<Purpose>(i));
      all.exchanges += one.collectives;
      all.bytes += one.bytes;
    }
  }
  if (!found) {
    throw Error(Error::Kind::usage,
                "traffic: expected \"statistics\", \"gradients\", \"evaluation\" or \"control\", got \"" +
                    std::string(purpose) + "\"");
  }
  return all;
}

World& Ranks::world() const {
  return *state_->world;
}

Meeting& Ranks::meeting() const {
  return state_->meeting;
}

Ranks Ranks::expecting() const {
  const auto held = std::make_shared<std::pair<std::shared_ptr<State>, std::shared_ptr<void>>>(
      state_, state_->meeting.expect());
  return Ranks(std::shared_ptr<State>(held, state_.get()));
}

int64_t Ranks::next_site() const {
  static std::atomic<int64_t> alone = 0;  // a process alone has a world for each layer
  return size() == 1 ? alone++ : state_->sites++;
}

}  // namespace bnlab
