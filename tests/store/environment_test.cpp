#include "harness/store/environment.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

namespace bnlab {
namespace {

TEST(Environment, KeepsListedVariablesAndNothingElse) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("NCCL_ALGO", "/home/someone/algorithms", 1);  // a path is never kept
  ::setenv("BNLAB_DATA", "somewhere", 1);
  const Json variables = environment_record(nullptr).at("variables");
  EXPECT_EQ(variables.at("OMP_NUM_THREADS"), "3");
  EXPECT_FALSE(variables.contains("NCCL_ALGO"));
  EXPECT_FALSE(variables.contains("BNLAB_DATA"));
  EXPECT_FALSE(variables.contains("PATH"));
  for (const char* name : {"OMP_NUM_THREADS", "NCCL_ALGO", "BNLAB_DATA"}) ::unsetenv(name);
}

TEST(Environment, DescribesMachineAndBuild) {
  const Json record = environment_record({{"libtorch", "2.11.0"}});
#if defined(__x86_64__)
  EXPECT_EQ(record.at("cpu_generation").get<std::string>().find("family "), 0u) << record;
#endif
  EXPECT_GE(record.at("logical_cores"), 1);
  EXPECT_GT(record.at("memory_bytes"), 0);
  EXPECT_EQ(record.at("libraries").at("libtorch"), "2.11.0");
}

TEST(CodeVersion, IsThatOfTheBuild) {
  EXPECT_TRUE(code_version().at("version").is_string());
  EXPECT_EQ(code_version().at("fingerprint").get<std::string>().size(), 16U);
}

TEST(CodeVersion, OfARunNamesWhatItDependsOn) {
  const Json spec = {{"strategy", {{"name", "sync"}}}, {"model", {{"name", "unet"}}}};
  const Json numerics = code_version(spec, "cpu").at("numerics");
  EXPECT_TRUE(numerics.contains("base"));
  EXPECT_TRUE(numerics.contains("sync"));
  EXPECT_EQ(numerics.at("sync").get<std::string>().size(), 16U);
}

}  // namespace
}  // namespace bnlab
