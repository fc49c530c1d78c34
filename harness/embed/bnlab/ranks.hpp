// The processes that train one network together, each with its part of the batch.
//
//   bnlab::Ranks ranks = bnlab::Ranks::from_environment();   // what torchrun, mpirun or srun announce
//   bnlab::Ranks ranks(process_group);                       // a c10d group that the program has
//
// One Ranks serves all layers of a program and its DataParallel; copies are the same ranks. What is wrong is
// thrown as std::runtime_error with one sentence that names the rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include <bnlab/export.hpp>

namespace c10d {
class ProcessGroup;
}

namespace bnlab {

class Meeting;
class World;

class BNLAB_API Ranks {
 public:
  // This process alone.
  Ranks();
  // The processes of a group (Gloo, NCCL or both) that the program has made and shuts down itself. Each
  // tensor goes to the group's backend for its device; nothing else is opened.
  // Ranks that are threads of one process need TORCH_FR_BUFFER_SIZE=0 before their first exchange: c10d's
  // flight recorder, on by default, is one per process and unguarded.
  explicit Ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group);
  // The world that a launcher announces by environment variables: RANK, WORLD_SIZE, MASTER_ADDR and
  // MASTER_PORT (torchrun, or by hand), those of Open MPI or MPICH, those of a SLURM step. Alone where none
  // does; an error where half of them is missing or empty. Ranks of one host exchange CPU tensors through
  // memory, others through Gloo, GPUs through NCCL. All join for the same device: for GPUs (torch::kCUDA)
  // each rank takes one that it sees and no other rank has, which becomes its current device; ranks that see
  // none, or too few, are an error. timeout: of every exchange.
  static Ranks from_environment(c10::DeviceType device = c10::DeviceType::CPU,
                                std::chrono::milliseconds timeout = std::chrono::minutes(1));

  int rank() const;
  int size() const;

  // The rows [first, second) that are this rank's of so many: consecutive parts that differ by one row at
  // most, some empty where there are fewer rows than ranks.
  std::pair<int64_t, int64_t> share(int64_t rows) const;

  // The following are called by every rank, in the same order.
  bool any(bool here) const;                  // whether it is true on any rank: the end of uneven epochs
  at::Tensor sum(const at::Tensor& t) const;  // over the ranks, detached
  void barrier() const;

  // What this rank has sent so far, of all purposes or of one: "statistics" (of the layers), "gradients",
  // "evaluation" (running statistics that the ranks merge), "control" (sizes and sites, broadcasts).
  struct Traffic {
    int64_t exchanges = 0;
    int64_t bytes = 0;
  };
  Traffic traffic(const char* purpose = nullptr) const;

  // For the library's own sources.
  World& world() const;
  Meeting& meeting() const;   // where layers and DataParallels meet those of the other ranks
  Ranks expecting() const;    // the same ranks; while a copy of these lives, layers expect a DataParallel
  int64_t next_site() const;  // numbers the layers that are made with these ranks

 private:
  struct State;
  explicit Ranks(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace bnlab
