#include "harness/store/code_version.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

const Json kSpec = {{"task", {{"name", "shapes"}, {"loss", {{"name", "cross_entropy"}}}}},
                    {"model", {{"name", "unet"}}},
                    {"strategy", {{"name", "sync"}, {"route", "all_gather"}}},
                    {"optimizer", {{"name", "sgd"}}},
                    {"populations", {"saved"}},
                    {"seed", 0}};

std::string print(const Json& spec, const std::string& device = "cpu") {
  return code_version(spec, device).at("fingerprint");
}

Json changed(const std::string& pointer, const Json& value) {
  Json spec = kSpec;
  spec[Json::json_pointer(pointer)] = value;
  return spec;
}

TEST(CodeVersion, IsThatOfTheBuild) {
  EXPECT_TRUE(code_version().at("version").is_string());
  EXPECT_EQ(code_version().at("fingerprint").get<std::string>().size(), 16U);
  EXPECT_EQ(print(kSpec).size(), 16U);
  EXPECT_NE(print(kSpec), code_version().at("fingerprint"));
}

TEST(CodeVersion, CoversTheComponentsOfTheRun) {
  EXPECT_NE(print(kSpec), print(changed("/strategy/name", "per_tower")));
  EXPECT_NE(print(kSpec), print(changed("/model/name", "pspnet")));
  EXPECT_NE(print(kSpec), print(changed("/task/name", "camvid")));
  EXPECT_NE(print(kSpec), print(changed("/optimizer/name", "adamw")));
}

TEST(CodeVersion, CoversComponentsOfComponents) {
  EXPECT_NE(print(kSpec), print(changed("/strategy", {{"name", "sync"}, {"base", {{"name", "ghost"}}}})));
  EXPECT_NE(print(kSpec), print(changed("/task/loss/name", "none")));
}

TEST(CodeVersion, IsTheSameForAllElseOfARun) {
  EXPECT_EQ(print(kSpec), print(changed("/seed", 1)));
  EXPECT_EQ(print(kSpec), print(changed("/strategy/route", "all_reduce")));
  EXPECT_EQ(print(kSpec),
            print(changed("/populations", {"saved", "precise"})));  // the name of a strategy, too
}

TEST(CodeVersion, CoversTheKernelsForGpusThere) {
  EXPECT_NE(print(kSpec), print(kSpec, "cuda"));
}

}  // namespace
}  // namespace bnlab
