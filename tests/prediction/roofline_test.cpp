// The shortest that a machine could make a step, by hand.
#include "harness/prediction/roofline.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"

namespace bnlab::roofline_test {
namespace {

Json probe_of(const Json& kernels) {
  return {{"fabric",
           {{"environment", {{"cpu", "a processor"}, {"libraries", {{"gpus", {"a GPU"}}}}}},
            {"threads_per_rank", 2}}},
          {"kernels", kernels}};
}

const Json kKernels{{"product_flops_per_s", {{"float32", 1e12}, {"bfloat16", 4e12}}},
                    {"fastest_copy_bytes_per_s", 1e9}};

TEST(Roofline, TakesProductsAsFastAsTheyAreComputedOrFedAndMovesAllElse) {
  const Roofline roofline = read_roofline(probe_of(kKernels), "probe.json");
  StepProfile step;
  step.flops = 4e12;
  step.matrix_bytes = 1e9;
  step.other_bytes = 3e9;
  EXPECT_DOUBLE_EQ(*roofline.seconds(step, "float32"), 4 + 3);
  EXPECT_DOUBLE_EQ(*roofline.seconds(step, "bfloat16"), 1 + 3);
  step.matrix_bytes = 2e9;
  EXPECT_DOUBLE_EQ(*roofline.seconds(step, "bfloat16"), 2 + 3) << "memory feeds them slower";
  EXPECT_FALSE(roofline.seconds(step, "tf32")) << "the probe has none";
  EXPECT_FALSE(roofline.seconds({}, "float32")) << "operations that are not known";
}

TEST(Roofline, NamesTheProbeTheMachineAndItsRates) {
  const std::string note = read_roofline(probe_of(kKernels), "probe.json").note();
  for (const char* part : {"probe.json", "a processor, GPUs a GPU, threads 2", "1.00 TFLOP/s of float32",
                           "4.00 TFLOP/s of bfloat16", "1 GB/s"}) {
    EXPECT_NE(note.find(part), std::string::npos) << part << " in " << note;
  }
}

TEST(Roofline, SaysWhichProbesHaveNone) {
  const auto message_of = [](const Json& probe) {
    try {
      read_roofline(probe, "probe.json");
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(message_of(probe_of({{"copy_bytes_per_s", 1e9}})).find("make it anew"), std::string::npos);
  EXPECT_NE(message_of(probe_of(nullptr)).find("make it anew"), std::string::npos);
  EXPECT_NE(message_of({{"a", 1}}).find("expected a file of bnlab probe"), std::string::npos);
}

}  // namespace
}  // namespace bnlab::roofline_test
