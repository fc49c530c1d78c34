#include "harness/verify/verify.hpp"

#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <algorithm>

#include "harness/communicator/host/shared_gpus.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/strategy.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/comparison.hpp"

namespace bnlab {
namespace {

void run_case(const VerifyCase& c, const Reference& reference, std::vector<VerifyPlacement>& placements,
              VerifyRow& row) {
  const Expectation expectation(c, reference);
  for (VerifyPlacement& place : placements) {
    if (c.layer_case.towers() % static_cast<size_t>(place.ranks) != 0) continue;
    if (!place.threads) {
      place.threads =
          std::make_shared<ThreadRanks>(place.ranks, place.device == "cuda" ? at::kCUDA : at::kCPU);
    }
    const AnswerComparison comparison =
        expectation.verdict([&] { return apply_layer(c.layer_case, *place.threads); });
    ++row.cases;
    row.refused += expectation.is_refusal() ? 1 : 0;
    double& worst = row.worst[dtype_name(c.layer_case.dtype)];
    worst = std::max(worst, comparison.worst);
    if (row.failure.empty() && !comparison.failure.empty()) {
      row.failure = c.text + ", " + place.device + ", " + std::to_string(place.ranks) +
                    (place.ranks == 1 ? " rank: " : " ranks: ") + comparison.failure;
    }
  }
}

std::vector<VerifyPlacement> places(const VerifyRequest& request, std::vector<std::string>& notes) {
  const bool usable = has_cuda_kernels() && torch::cuda::is_available();
  const int gpus = usable ? static_cast<int>(torch::cuda::device_count()) : 0;
  if (request.device == "cuda" && gpus == 0) {
    throw Error(Error::Kind::environment,
                has_cuda_kernels()
                    ? "verify: device cuda was asked for, but LibTorch sees no GPU here"
                    : "verify: device cuda was asked for, but this program was built without its CUDA "
                      "kernels; BNLAB_CUDA=on scripts/build.sh release bnlab builds them");
  }
  if (request.device.empty() && gpus == 0) notes.push_back("no GPU here: nothing was verified on cuda");
  std::vector<VerifyPlacement> all;
  for (int ranks = 1; ranks <= request.ranks; ++ranks) {
    if (request.device != "cuda") all.push_back({"cpu", ranks});
    if (request.device != "cpu" && (ranks <= gpus || (gpus > 0 && gpus_are_shared())))
      all.push_back({"cuda", ranks});
  }
  if (request.device != "cpu" && gpus > 0 && request.ranks > gpus && !gpus_are_shared())
    notes.push_back("cuda: up to " + std::to_string(gpus) + " ranks, one per GPU");
  return all;
}

std::vector<std::string> chosen(const std::vector<std::string>& wanted) {
  const std::vector<std::string> known = registered_names("strategy");
  for (const std::string& name : wanted)
    if (find_registered("strategy", name) == nullptr)
      throw Error(Error::Kind::usage, "verify: unknown strategy \"" + name + "\"" + suggestion(name, known));
  return wanted.empty() ? known : wanted;
}

}  // namespace

bool VerifyReport::passed() const {
  return std::ranges::all_of(rows, [](const VerifyRow& row) { return row.passed(); });
}

VerifyRow verify_variant(const Json& strategy, const Reference* reference,
                         std::vector<VerifyPlacement>& placements) {
  VerifyRow row;
  row.strategy = strategy.at("name").get<std::string>();
  row.options = strategy;
  row.options.erase("name");
  if (reference == nullptr) {
    row.skipped = "there is no reference for it: register one under its name (Registered<Reference>)";
    return row;
  }
  try {
    for (const VerifyCase& c : verify_cases(resolved_strategy(strategy)))
      run_case(c, *reference, placements, row);
  } catch (const Error& error) {
    row.failure = error.what();
  }
  return row;
}

VerifyReport verify(const VerifyRequest& request) {
  at::set_num_threads(1);  // the tensors are far too small for more
  if (request.ranks > 1) prepare_thread_ranks();
  VerifyReport report;
  const std::vector<std::string> names = chosen(request.strategies);
  report.placements = places(request, report.notes);
  for (size_t i = 0; i < names.size(); ++i) {
    if (request.progress) request.progress(names[i], i, names.size());
    std::unique_ptr<Reference> reference;
    std::vector<Json> variants{Json::object()};
    if (find_registered("reference", names[i]) != nullptr) {
      reference = reference_of({{"name", names[i]}});
      variants = reference->variants();
    }
    for (const Json& options : variants) {
      Json strategy{{"name", names[i]}};
      strategy.update(options);
      report.rows.push_back(verify_variant(strategy, reference.get(), report.placements));
    }
  }
  return report;
}

}  // namespace bnlab
