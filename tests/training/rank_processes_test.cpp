// Ranks that are processes, as the program starts them, leave the same files as ranks that are threads.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "harness/communicator/host/network.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/training/libraries.hpp"
#include "harness/training/safetensors.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

// A child process never returns from this function.
void run_in_processes(const RunSpec& spec, int ranks, const std::filesystem::path& folder) {
  const LoopbackSocket socket;
  std::vector<::pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(::fork());
    if (children.back() == 0) {
      RankJob job;
      job.spec = spec;
      job.rendezvous.rank = rank;
      job.rendezvous.size = ranks;
      job.rendezvous.port = socket.port();
      job.rendezvous.listen_fd = rank == 0 ? ::dup(socket.fd()) : -1;  // the store closes it
      job.run_dir = folder.string();
      ::_exit(run_rank(job).status == Status::ok ? 0 : 1);
    }
  }
  for (const ::pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(RankProcesses, DoWhatThreadsDo) {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  if (std::distance(begin(tasks), end(tasks)) > 1) {
    GTEST_SKIP()
        << "other tests have left threads in this process, which a fork would lose; run it by itself";
  }
  TrainingRuns runs;
  const std::vector<std::string> strategies{"sync", "shuffle"};
  std::vector<std::filesystem::path> folders;
  for (const std::string& strategy : strategies) {
    folders.push_back(runs.new_folder());
    run_in_processes(TrainingRuns::spec({{"strategy", strategy}}), 4, folders.back());
  }
  for (size_t i = 0; i < strategies.size(); ++i) {
    SCOPED_TRACE(strategies[i]);
    std::map<std::string, at::Tensor> left;
    for (const NamedTensor& t : read_safetensors((folders[i] / kWeightsFile).string()))
      left[t.name] = t.tensor;
    // the same sums in the same order
    expect_equal(left, runs.run(TrainingRuns::spec({{"strategy", strategies[i]}}), 4).tensors);
  }
}

TEST(LibraryVersions, NameTheInstructionSetThatTheKernelsUse) {
  ::setenv("BNLAB_CPU_LEVEL", "baseline", 1);
  EXPECT_EQ(library_versions().at("cpu_kernels"), "baseline");
  ::unsetenv("BNLAB_CPU_LEVEL");
}

}  // namespace
}  // namespace bnlab
