// bnlab doctor: what this machine offers and lacks; each problem with its cure.
#include "harness/cli/doctor.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <vector>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/communicator/gpus.hpp"
#include "harness/communicator/host/environment_world.hpp"
#include "harness/communicator/host/network.hpp"
#include "harness/communicator/host/shared_gpus.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/rank_settings.hpp"
#include "harness/store/environment.hpp"
#include "harness/store/record.hpp"
#include "harness/support/cores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

std::string number(int value) {
  return std::to_string(value);
}

Finding meeting(const EnvironmentWorld& world) {
  const Rendezvous& place = world.rendezvous;
  const std::string store = place.store_exists ? "the launcher serves the store" : "rank 0 serves the store";
  Finding finding{"meeting", "at " + place.address + ":" + number(place.port) + ", " + store +
                                 "; ranks wait " + std::to_string(world.meeting_timeout.count()) +
                                 " s for each other (" + kMeetingTimeout + ")"};
  try {
    check_address(world);
  } catch (const Error& error) {
    finding.problem = error.what();
    finding.cure = "export MASTER_ADDR with the name or address that other hosts know rank 0's host by";
  }
  return finding;
}

Finding sockets(const EnvironmentWorld& world) {
  if (world.one_host) return {"exchange", "all ranks are on this host: through memory that they share"};
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    return {"exchange",
            "through sockets on the interface " + std::string(interface) + " (GLOO_SOCKET_IFNAME)"};
  }
  try {
    return {"exchange", "through sockets on " + address_towards(world.rendezvous.address) +
                            ", from where MASTER_ADDR is reached"};
  } catch (const Error& error) {
    return {.what = "exchange",
            .found = "through sockets",
            .problem = error.what(),
            .cure = "set MASTER_ADDR to the host of rank 0"};
  }
}

Finding threads(const EnvironmentWorld& world, const Variables& variables) {
  const int usable = usable_cores(), of_launcher = usable_cores(getppid());
  const std::string count = number(threads_of_rank(world, variables, usable, of_launcher));
  for (const char* name : {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"})
    if (const auto set = variables.find(name); set != variables.end())
      return {"threads", count + " per rank (" + name + "=" + set->second + ")"};
  return {"threads", count + " per rank: this one may use " + number(usable) + " cores, the launcher " +
                         number(of_launcher) + ", for " + number(world.local_size) + " ranks on this host"};
}

Finding settings() {
  std::string other;
  for (const auto& [name, value] : settings_to_change(rank_settings(gpus_are_shared())))
    other += (other.empty() ? "" : ", ") + name;
  return {"settings", other.empty() ? "complete" : "bnlab run starts itself anew once, to set " + other};
}

namespace fs = std::filesystem;

struct DoctorRequest {
  std::string results = "results", data_dir;
  bool json = false;

  void describe(Arguments& option) {
    describe_results(option, results);
    describe_data(option, data_dir);
    option("--json", json, "Print JSON");
  }
};

std::string shown(const Json& value) {
  return value.is_null() ? "none" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string gibibytes(double bytes) {
  return fixed(bytes / (1 << 30), 1) + " GiB";
}

Finding disk(const std::string& results) {
  fs::path folder = fs::absolute(results);
  while (!fs::exists(folder)) folder = folder.parent_path();
  Finding finding{"disk"};
  std::error_code error;
  const auto space = fs::space(folder, error);
  finding.found = gibibytes(static_cast<double>(space.available)) + " free for " + results;
  if (access(folder.c_str(), W_OK) != 0) {
    finding.problem = results + " cannot be written";
    finding.cure = "give another folder with --results DIR";
  } else if (space.available < (1ULL << 30)) {
    finding.problem = "less than 1 GiB is free";
    finding.cure = "free some space, or give another folder with --results DIR";
  }
  return finding;
}

Finding gpus(const Json& libraries) {
  const int visible = visible_gpus();
  Finding finding{"GPUs", visible == 0 ? "none" : shown(value_at(libraries, "gpus"))};
  if (!built_with_cuda() && fs::exists("/dev/nvidiactl")) {
    finding.found = "not used";
    finding.problem = "there is an NVIDIA driver, but this program was built without its CUDA kernels";
    finding.cure = std::string("build it with them: ") + kBuildWithCuda;
  } else if (visible == 0 && fs::exists("/dev/nvidiactl")) {
    finding.problem = "there is an NVIDIA driver, but LibTorch sees no GPU";
    finding.cure =
        "unset CUDA_VISIBLE_DEVICES, and use a driver of CUDA 13 or later with a CUDA build of LibTorch";
  } else if (visible == 0) {
    finding.found = "none: runs use the CPU, several towers or ranks on its cores";
  }
  return finding;
}

Finding loopback() {
  try {
    const LoopbackSocket socket;
    return {"loopback", "works: ranks on this machine can meet"};
  } catch (const Error& error) {
    return {.what = "loopback",
            .found = "does not work",
            .problem = error.what(),
            .cure = "bring the interface up: ip link set lo up"};
  }
}

Finding data(const std::string& folder) {
  if (folder.empty()) {
    return {"data",
            "no folder given: nuclei and tasks made from the seed work, others need --data or BNLAB_DATA"};
  }
  if (!fs::is_directory(folder))
    return {.what = "data",
            .found = folder,
            .problem = folder + " is no folder",
            .cure = "give the folder that holds the data sets"};
  return {"data", folder};
}

std::vector<Finding> examine(const std::string& results, const std::string& data_dir) {
  const Json libraries = library_versions();
  const Json machine = environment_record(libraries);
  const bool nccl = visible_gpus() > 0 && !value_at(libraries, "nccl").is_null();
  std::vector<Finding> findings{
      {"bnlab",
       program_version() + ", " + shown(machine.at("compiler")) + ", " + shown(machine.at("build_type"))},
      {"system", shown(machine.at("os")) + ", " + shown(machine.at("kernel"))},
      {"CPU", shown(machine.at("cpu")) + ", " + std::to_string(usable_cores()) + " usable cores, " +
                  shown(value_at(libraries, "cpu_capability"))},
      {"memory", gibibytes(machine.at("memory_bytes").get<double>())},
      disk(results),
      {"LibTorch", shown(value_at(libraries, "libtorch")) + ", CUDA " + shown(value_at(libraries, "cuda")) +
                       ", NCCL " + shown(value_at(libraries, "nccl"))},
      gpus(libraries),
      {"backends", nccl ? "gloo (CPU), nccl (GPU)" : "gloo (CPU)"},
      loopback(),
      data(data_dir),
  };
  for (Finding& finding : findings_of_launcher()) findings.push_back(std::move(finding));
  return findings;
}

void print(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::cout << finding.what << std::string(finding.what.size() < 10 ? 10 - finding.what.size() : 1, ' ')
              << finding.found << "\n";
    if (!finding.problem.empty())
      std::cout << "          problem: " << finding.problem << "\n          cure: " << finding.cure << "\n";
  }
}

Json as_json(const Finding& finding) {
  return {{"what", finding.what},
          {"found", finding.found},
          {"problem", or_null(finding.problem)},
          {"cure", or_null(finding.cure)}};
}

int doctor(const DoctorRequest& request) {
  const std::vector<Finding> findings = examine(request.results, request.data_dir);
  if (request.json)
    std::cout << Json(mapped(findings, as_json)).dump(2) << "\n";
  else
    print(findings);
  const bool well = std::ranges::all_of(findings, &std::string::empty, &Finding::problem);
  return well ? exit_code::kOk : exit_code::kEnvironment;
}

const Command doctor_command("doctor", {Heading::this_machine, 1},
                             "Say what this machine offers and lacks, each problem with its cure",
                             "  bnlab doctor\n"
                             "  bnlab doctor --data ~/data --json",
                             doctor);

}  // namespace

std::vector<Finding> findings_of_launcher() {
  const Variables variables = process_environment();
  try {
    const auto world = environment_world(variables);
    if (!world) return {{"launcher", "none announced: bnlab starts the ranks itself"}};
    std::vector<Finding> findings{
        {"launcher", world->launcher + " (" + world->reason + "): this process joins its world; " +
                         number(world->local_size) + " of " + number(world->rendezvous.size) +
                         " ranks are taken to be on this host"}};
    if (world->rendezvous.size > 1) {
      findings.push_back(meeting(*world));
      findings.push_back(sockets(*world));
    }
    findings.push_back(threads(*world, variables));
    findings.push_back(settings());
    return findings;
  } catch (const Error& error) {
    return {{"launcher", "announced, but not usable", error.what(),
             "set what is missing, or give --ranks N to start ranks without the launcher"}};
  }
}
}  // namespace bnlab
