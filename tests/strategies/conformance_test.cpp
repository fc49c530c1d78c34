// Every registered strategy, under the variants that its reference names, holds to every check.
#include <gtest/gtest.h>

#include <cctype>

#include "harness/error.hpp"
#include "tests/strategies/case_for.hpp"
#include "tests/strategies/conformance.hpp"

namespace bnlab {
namespace {

LayerAnswer sound(const LayerCase& layer_case, int ranks) {
  return apply_layer(layer_case, ranks);
}

// Whatever the case.
bool must_refuse(const Json& strategy) {
  try {
    reference_of(strategy)->answer(bare_case(strategy, {}));
    return false;
  } catch (const Error&) {
    return true;
  }
}

class Conformance : public ::testing::TestWithParam<std::string> {};

TEST_P(Conformance, HoldsInEveryVariant) {
  ASSERT_NE(find_registered("reference", GetParam()), nullptr)
      << "the strategy " << GetParam() << " has no reference to be compared with";
  const auto reference = reference_of({{"name", GetParam()}});
  ASSERT_FALSE(reference->variants().empty());
  for (Json variant : reference->variants()) {
    variant["name"] = GetParam();
    const Json strategy = resolved_strategy(variant);
    if (must_refuse(strategy)) {
      for (const int ranks : {1, 2}) {
        EXPECT_THROW(sound(bare_case(strategy, {}), ranks), Error) << variant.dump();
      }
      continue;
    }
    for (const auto* checks : {&layer_checks(), &strategy_checks()}) {
      for (const Check& check : *checks) {
        for (const std::string& complaint : complaints(check, strategy, sound)) {
          ADD_FAILURE() << variant.dump() << ", " << check.name << ": " << complaint;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Conformance, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace bnlab
