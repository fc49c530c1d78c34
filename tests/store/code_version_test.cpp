#include "harness/store/code_version.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

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
