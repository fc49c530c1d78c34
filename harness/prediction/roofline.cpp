#include "harness/prediction/roofline.hpp"

#include "harness/store/environment.hpp"
#include "harness/support/error.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {

std::optional<double> Roofline::seconds(const StepProfile& step, const std::string& factors) const {
  const auto products = flops_per_s.find(factors);
  if (products == flops_per_s.end() || step.other_bytes <= 0) return std::nullopt;
  return step_by_peaks(step, products->second, bytes_per_s).low;
}

std::string Roofline::note() const {
  std::string products;
  for (const auto& [factors, rate] : flops_per_s)
    products += (products.empty() ? "" : ", ") + fixed(rate * 1e-12, 2) + " TFLOP/s of " + factors;
  return "% of roofline: the shortest that the machine could make a step, over the median step: products "
         "at " +
         products + ", or as memory feeds them, and all else at " + fixed(bytes_per_s * 1e-9, 0) +
         " GB/s, the most that " + file + " has seen of " + machine + ". Runs of other machines have none.";
}

Roofline read_roofline(const Json& probe, const std::string& file) {
  try {
    const Json& kernels = probe.at("kernels");
    if (!kernels.is_object() || !kernels.contains("product_flops_per_s")) {
      throw Error(
          Error::Kind::usage,
          file + ": this probe is from before products were measured; make it anew: bnlab probe --out FILE");
    }
    const Json& fabric = probe.at("fabric");
    return {.file = file,
            .machine = machine_text(fabric.at("environment"), fabric.at("threads_per_rank")),
            .bytes_per_s = kernels.at("fastest_copy_bytes_per_s"),
            .flops_per_s = kernels.at("product_flops_per_s")};
  } catch (const Json::exception&) {
    throw Error(Error::Kind::usage,
                file + ": expected a file of bnlab probe --out, got one that lacks a part");
  }
}

}  // namespace bnlab
