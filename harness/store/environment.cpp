#include "harness/store/environment.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "harness/components/options.hpp"
#include "harness/components/parameters.hpp"
#include "harness/numerics/panel.hpp"
#include "harness/support/revision.hpp"

namespace bnlab {
namespace {

// The fingerprint of all sources that runs compute with, the first that cmake/fingerprint.py prints.
std::string fingerprint_of_all() {
  std::istringstream words(kRevision.fingerprints);
  std::string name, print;
  words >> name >> print;
  return print;
}

// Variables that change speed or rounding. BNLAB_DATA and whatever else holds a path stays out.
constexpr const char* kVariables =
    "OMP_NUM_THREADS, OMP_WAIT_POLICY, OMP_PROC_BIND, OMP_PLACES, OMP_DYNAMIC, GOMP_SPINCOUNT, "
    "KMP_BLOCKTIME, MKL_NUM_THREADS, MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, MALLOC_TOP_PAD_, "
    "ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, ONEDNN_DEFAULT_FPMATH_MODE, CUDA_VISIBLE_DEVICES, "
    "CUDA_DEVICE_MAX_CONNECTIONS, CUDA_LAUNCH_BLOCKING, CUDA_MODULE_LOADING, CUBLAS_WORKSPACE_CONFIG, "
    "NVIDIA_TF32_OVERRIDE, PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF, NCCL_ALGO, NCCL_PROTO, "
    "NCCL_BUFFSIZE, NCCL_NTHREADS, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_MIN_CTAS, NCCL_MAX_CTAS, "
    "NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_SHM_DISABLE, NCCL_IB_DISABLE, NCCL_NVLS_ENABLE, "
    "NCCL_CUMEM_ENABLE, NCCL_LAUNCH_MODE, NCCL_MULTI_RANK_GPU_ENABLE";

// What follows `separator` on the first line that starts with `key`, without quotes; null if there is none.
Json value_in_file(const char* file, const std::string& key, char separator) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t\"", line.find(separator) + 1);
    const size_t end = line.find_last_not_of(" \t\"");
    if (begin == std::string::npos || begin > end) return nullptr;
    return line.substr(begin, end - begin + 1);
  }
  return nullptr;
}

Json variables() {
  Json found = Json::object();
  for (const std::string& variable : split_names(kVariables)) {
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && std::string(value).find('/') == std::string::npos) found[variable] = value;
  }
  return found;
}

// "family 26, model 2, stepping 1": processors of one name may round differently (bfloat16).
Json cpu_generation() {
  const Json family = value_in_file("/proc/cpuinfo", "cpu family", ':');
  const Json model = value_in_file("/proc/cpuinfo", "model\t", ':');
  const Json stepping = value_in_file("/proc/cpuinfo", "stepping", ':');
  if (!family.is_string() || !model.is_string() || !stepping.is_string()) return nullptr;  // not an x86
  return "family " + family.get<std::string>() + ", model " + model.get<std::string>() + ", stepping " +
         stepping.get<std::string>();
}

std::string compiler() {
#if defined(__clang__)
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__);
#else
  return "GCC " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);
#endif
}

}  // namespace

Json code_version() {
  return {{"version", kRevision.version},
          {"git", or_null(std::string(kRevision.git))},
          {"dirty", kRevision.dirty},
          {"fingerprint", fingerprint_of_all()}};
}

Json code_version(const Json& spec, const std::string& device) {
  Json version = code_version();
  version["numerics"] = numerics_of(spec, device);
  return version;
}

Json environment_record(const Json& libraries) {
  utsname kernel{};
  const bool known = ::uname(&kernel) == 0;
  return {{"cpu", value_in_file("/proc/cpuinfo", "model name", ':')},
          {"cpu_generation", cpu_generation()},
          {"logical_cores", std::thread::hardware_concurrency()},
          {"memory_bytes",
           static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(::sysconf(_SC_PAGE_SIZE))},
          {"os", value_in_file("/etc/os-release", "PRETTY_NAME", '=')},
          {"kernel",
           known ? Json(std::string(kernel.sysname) + " " + kernel.release + " " + kernel.machine) : Json()},
          {"compiler", compiler()},
          {"build_type", or_null(std::string(kRevision.build_type))},
          {"libraries", libraries},
          {"variables", variables()}};
}

std::string machine_text(const Json& environment, const Json& threads_per_rank) {
  const auto at = [](const Json& object, const char* key) {
    return object.is_object() ? object.value(key, Json()) : Json();
  };
  const auto plain = [](const Json& value) -> std::string {
    if (value.is_null()) return "unknown";
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_array()) return shown(value);
    return value.empty() ? "none" : joined(value.get<std::vector<std::string>>());
  };
  const Json generation = at(environment, "cpu_generation");
  return plain(at(environment, "cpu")) + (generation.is_null() ? "" : " (" + plain(generation) + ")") +
         ", GPUs " + plain(at(at(environment, "libraries"), "gpus")) + ", threads " + plain(threads_per_rank);
}

}  // namespace bnlab
