#include "harness/components/component_text.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

TEST(ComponentText, IsANameALabelOrAnObject) {
  EXPECT_EQ(component_of("sync"), "sync");
  EXPECT_EQ(component_of(""), "");
  const Json object{
      {"name", "frozen"}, {"from_step", 3}, {"base", {{"name", "sync"}, {"gradient", "stopped"}}}};
  EXPECT_EQ(component_of("frozen(from_step=3, base=sync(gradient=stopped))"), object);
  EXPECT_EQ(component_of("\n " + object.dump()), object);
}

TEST(ComponentText, IsNoObjectWithoutAName) {
  for (const char* text : {"{", "{}", R"({"name": 3})", R"({"name": "sync"} more)"})
    EXPECT_EQ(component_of(text), std::nullopt) << text;
}

}  // namespace
}  // namespace bnlab
