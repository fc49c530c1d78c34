#include "harness/communicator/world.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/host/batch_threads.hpp"
#include "harness/communicator/host/network.hpp"
#include "harness/communicator/nccl.hpp"
#include "harness/communicator/own_stream.hpp"
#include "harness/communicator/world_parts.hpp"
#include "harness/support/cores.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

using std::chrono_literals::operator""us;

constexpr std::chrono::microseconds kSpin = 20us;  // before a wait in shared memory sleeps

c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const Rendezvous& at) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  if (at.size == 1) {
    // All worlds of one rank share a device that sends nothing, because a device takes 10 ms to shut down.
    static const auto idle = c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
    options->devices.push_back(idle);
  } else {
    // Gloo's thread for the sockets polls for as long as another thread holds the lock of a connection. Where
    // cores are few it has pushed just that thread off its core, and both lose milliseconds.
    const StartsBatchThreads while_the_device_is_made;
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    options->devices.push_back(
        interface != nullptr ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                             : c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(at.address)));
  }
  options->threads = 1;
  options->timeout = at.timeout;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, at.rank, at.size, options);
}

c10::intrusive_ptr<c10d::Store> named(const c10::intrusive_ptr<c10d::Store>& store, const char* name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

// Called by every rank. Where one of them cannot share memory, all of them throw its reason.
std::unique_ptr<SharedMemory> share_memory(const c10::intrusive_ptr<c10d::Store>& store,
                                           const Rendezvous& at) {
  const std::string ok = "ok";
  std::string status = ok;
  std::unique_ptr<SharedMemory> memory;
  try {
    memory = std::make_unique<SharedMemory>(at.rank, at.size, at.rank > 0 ? store->get_to_str("handle") : "",
                                            at.timeout, at.size <= usable_cores() ? kSpin : 0us);
  } catch (const Error& error) {
    status = error.what();
  }
  if (at.rank > 0) {
    store->set("status/" + std::to_string(at.rank), status);
    status = store->get_to_str("status");
  } else {
    store->set("handle", memory ? memory->handle() : "none");
    for (int rank = 1; rank < at.size; ++rank) {
      const std::string other = store->get_to_str("status/" + std::to_string(rank));
      status = status == ok ? other : status;
    }
    store->set("status", status);
  }
  if (status != ok) throw Error(Error::Kind::environment, status);
  return memory;
}

class C10dWorld : public World {
 public:
  C10dWorld(const Rendezvous& at, at::Device device)
      : rank_(at.rank), size_(at.size), device_(device), stream_(device), store_(store_at(at)) {
    const bool on_gpu = device.is_cuda();
    if (!on_gpu && at.size > 1 && at.exchange == Exchange::shared_memory) {
      statistics_ = through_memory(at, "statistics");
      gradients_ = through_memory(at, "gradients");
      return;
    }
    if (on_gpu && at.size > 1 && at.exchange == Exchange::peers) {
      statistics_ = make_peer_communicator(named(store_, "statistics"), at, ledger_, "statistics");
      host_ = lazy_host(at);
      if (!each_has_its_gpu(at)) {  // NCCL gives a GPU to one rank only
        gradients_ = make_peer_communicator(named(store_, "gradients"), at, ledger_, "gradients");
        return;
      }
      gradients_ = over_c10d(at, "gradients", on_gpu);
      reducer_backend_ = backends_.back();
      records_gradients_ = true;
      return;
    }
    if (!on_gpu && at.exchange == Exchange::peers)
      throw Error(Error::Kind::usage, "--exchange peers: ranks on CPUs have shared_memory or sockets");
    statistics_ = over_c10d(at, "statistics", on_gpu);
    gradients_ = over_c10d(at, "gradients", on_gpu);
    if (!is_delayed(at)) reducer_backend_ = backends_.back();
    if (on_gpu) host_ = lazy_host(at);
  }

  // After an error NCCL's groups are given up, so that nobody waits for their collectives.
  ~C10dWorld() override {
    if (is_shut_down_ || !device_.is_cuda()) return;
    for (const auto& backend : backends_) {
      try {
        backend->abort();
      } catch (const std::exception&) {  // the error that is on its way says more
        continue;
      }
    }
  }
  C10dWorld(const C10dWorld&) = delete;
  C10dWorld& operator=(const C10dWorld&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  at::Device device() const override { return device_; }
  Communicator& statistics() override { return *statistics_; }
  Communicator& gradients() override { return *gradients_; }
  Communicator& host() override { return host_ ? *host_ : statistics(); }
  Ledger& ledger() override { return ledger_; }

  std::unique_ptr<GradientSync> gradient_sync(const std::vector<at::Tensor>& parameters,
                                              bool after_backward) override {
    if (size_ == 1 && after_backward) return make_sync_of_one(parameters, ledger_);
    if (reducer_backend_ && !after_backward)
      return make_reducer(parameters, reducer_backend_, device_, ledger_);
    return make_flat_sync(
        parameters, [this](at::Tensor& flat) { gradients_->all_reduce(flat, Purpose::gradients); },
        1.0 / size_,  // before the sum, as c10d's Reducer does
        after_backward);
  }
  bool records_gradients() const override { return records_gradients_; }

  void barrier() override {
    statistics_->barrier();
    gradients_->barrier();
    if (host_is_made_) host_->barrier();
  }

  void shutdown() override {
    barrier();
    for (const auto& backend : backends_) backend->shutdown();
    is_shut_down_ = true;
  }

 private:
  std::unique_ptr<Communicator> through_memory(const Rendezvous& at, const char* group) {
    return delayed(at, make_shared_communicator(share_memory(named(store_, group), at), ledger_of(at), group),
                   group);
  }

  // Where exchanges are delayed, the wrapper alone books in the world's ledger.
  static bool is_delayed(const Rendezvous& at) { return at.delay.any() && at.size > 1; }
  Ledger& ledger_of(const Rendezvous& at) { return is_delayed(at) ? ledger_of_real_ : ledger_; }
  std::unique_ptr<Communicator> delayed(const Rendezvous& at, std::unique_ptr<Communicator> real,
                                        const char* group) {
    return is_delayed(at) ? make_delayed_communicator(std::move(real), at.delay, ledger_, group)
                          : std::move(real);
  }

  std::unique_ptr<Communicator> over_c10d(const Rendezvous& at, const char* group, bool on_gpu) {
    const auto store = named(store_, group);
    backends_.push_back(on_gpu ? nccl_backend(store, at, device_) : gloo_backend(store, at));
    return delayed(at, make_c10d_communicator(backends_.back(), ledger_of(at), group), group);
  }

  bool each_has_its_gpu(const Rendezvous& at) const {
    const std::vector<std::string> seen = names_of_gpus();
    store_->set("gpu/" + std::to_string(rank_), seen.at(static_cast<size_t>(at.local_rank)));
    std::set<std::string> different;
    for (int rank = 0; rank < size_; ++rank)
      different.insert(store_->get_to_str("gpu/" + std::to_string(rank)));
    return static_cast<int>(different.size()) == size_;
  }

  // Most runs never use this group, and its sockets, from each host to each, take long to make where there
  // are many.
  std::unique_ptr<Communicator> lazy_host(const Rendezvous& at) {
    const auto make = [this, at] {
      host_is_made_ = true;
      return backends_.emplace_back(gloo_backend(named(store_, "host"), at));
    };
    return make_lazy_communicator(rank_, size_, make, ledger_, "host");
  }

  int rank_;
  int size_;
  at::Device device_;
  OwnStream stream_;
  Ledger ledger_, ledger_of_real_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends_;
  c10::intrusive_ptr<c10d::Backend>
      reducer_backend_;  // none where ranks share memory or a GPU, or exchanges are delayed
  std::unique_ptr<Communicator> statistics_, gradients_, host_;  // host_ on GPUs only
  bool records_gradients_ = false, host_is_made_ = false, is_shut_down_ = false;
};

// Over a process group of the program's own; null: one rank.
class GroupWorld : public World {
 public:
  explicit GroupWorld(c10::intrusive_ptr<c10d::ProcessGroup> processes) : processes_(std::move(processes)) {
    if (!processes_) {
      const auto none = []() -> c10::intrusive_ptr<c10d::Backend> { return {}; };
      communicator_ = make_lazy_communicator(0, 1, none, ledger_, "alone");
      return;
    }
    communicator_ = make_group_communicator(processes_, ledger_, "handed in");
    const std::vector<at::Device> devices = processes_->getDeviceTypes();
    const bool takes_cpu =
        std::any_of(devices.begin(), devices.end(), [](at::Device d) { return d.is_cpu(); });
    device_ = takes_cpu || devices.empty() ? at::Device(at::kCPU) : devices.front();
  }

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  at::Device device() const override { return device_; }
  Communicator& statistics() override { return *communicator_; }
  Communicator& gradients() override { return *communicator_; }
  Communicator& host() override { return *communicator_; }
  at::Device host_device() const override { return device_; }
  Ledger& ledger() override { return ledger_; }

  std::unique_ptr<GradientSync> gradient_sync(const std::vector<at::Tensor>& parameters,
                                              bool after_backward) override {
    if (size() == 1) return make_sync_of_one(parameters, ledger_);
    if (!after_backward) {
      const at::Device device = parameters.empty() ? device_ : parameters.front().device();
      return make_reducer(parameters, processes_->getBackend(device.type()), device, ledger_);
    }
    return make_flat_sync(
        parameters, [this](at::Tensor& flat) { communicator_->all_reduce(flat, Purpose::gradients); },
        1.0 / size());
  }

  void barrier() override { communicator_->barrier(); }
  void shutdown() override { barrier(); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> processes_;
  Ledger ledger_;
  std::unique_ptr<Communicator> communicator_;
  at::Device device_ = at::kCPU;
};

}  // namespace

std::unique_ptr<World> world_over(const c10::intrusive_ptr<c10d::ProcessGroup>& processes) {
  return std::make_unique<GroupWorld>(processes);
}

std::unique_ptr<World> world_of_one() {
  return std::make_unique<GroupWorld>(nullptr);
}

std::unique_ptr<World> join_world(const Rendezvous& at, at::DeviceType type) {
  at::Device device(type);
  if (type == at::kCUDA) {
    device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(at.local_rank));
    take_gpu(at.local_rank, at.rank);
  }
  return in_contact(at, "could not join the other ranks", [&] {
    const OwnSockets while_they_are_made;
    return std::make_unique<C10dWorld>(at, device);
  });
}

bool is_lost_contact(const std::exception& error) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr || !missing_peer().empty()) return true;
  const std::string text = error.what();  // Gloo's own exceptions are not exported
  return text.find("gloo") != std::string::npos || text.find("NCCL") != std::string::npos;
}

}  // namespace bnlab
