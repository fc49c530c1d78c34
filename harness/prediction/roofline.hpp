// The shortest that a machine could make a step, by the fastest that a probe has seen of it (the roofline of
// Williams, Waterman and Patterson 2009): products as fast as it computes or as memory feeds them, and all
// else as fast as memory moves it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/prediction/step.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

struct Roofline {
  std::string file;     // written by bnlab probe
  std::string machine;  // machine_text() of harness/store/environment.hpp
  double bytes_per_s = 0;
  std::map<std::string, double> flops_per_s;  // by what the factors are rounded to: "float32", "tf32", ...

  // Nothing where the probe has no products of such factors, or the operations of the step are not known.
  std::optional<double> seconds(const StepProfile& step, const std::string& factors) const;
  std::string note() const;  // what "% of roofline" means
};

// From a file of `bnlab probe`. Throws Error (usage) where it is none, or has no products.
Roofline read_roofline(const Json& probe, const std::string& file);

}  // namespace bnlab
