#include "harness/verify/verify.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "harness/verify/reference.hpp"

namespace bnlab {
namespace {

VerifyRow verified(const std::string& strategy, const Reference* reference) {
  std::vector<VerifyPlacement> here{{}};
  return verify_variant({{"name", strategy}}, reference, here);
}

// The reference of a strategy, spoilt.
class Spoilt : public Reference {
 public:
  explicit Spoilt(bool refuses) : refuses_(refuses) {}
  LayerAnswer answer(const LayerCase& c) const override {
    if (refuses_) throw Error(Error::Kind::refused, "no reason");
    LayerAnswer answer = reference_of({{"name", "per_tower"}})->answer(c);
    answer.steps[2].running_var = answer.steps[2].running_var * (1 + 1e-10);
    return answer;
  }
  std::vector<Json> variants() const override { return {Json::object()}; }

 private:
  bool refuses_;
};

TEST(Verify, EveryStrategyHasAReference) {
  for (const std::string& name : registered_names("strategy"))
    EXPECT_NE(find_registered("reference", name), nullptr) << name;
}

TEST(Verify, AStrategyThatAgreesWithItsReferencePasses) {
  const VerifyRow row = verified("every_tower", reference_of({{"name", "every_tower"}}).get());
  EXPECT_EQ(row.failure, "");
  EXPECT_GT(row.cases, 50);
  EXPECT_GT(row.refused, 0);
  EXPECT_LT(row.worst.at("float64"), 1e-12);
  EXPECT_GT(row.worst.at("float32"), 0);
}

TEST(Verify, ASmallDifferenceIsCaughtAndSaidWhere) {
  const Spoilt spoilt(/*refuses=*/false);
  const VerifyRow row = verified("per_tower", &spoilt);
  EXPECT_NE(row.failure.find("float64, towers of 6 samples, [n, 8], cpu, 1 rank: step 2, running_var, value"),
            std::string::npos)
      << row.failure;
}

TEST(Verify, AnAnswerWhereARefusalIsExpectedFails) {
  const Spoilt spoilt(/*refuses=*/true);
  EXPECT_NE(verified("per_tower", &spoilt).failure.find("answers what is to be refused: no reason"),
            std::string::npos);
}

TEST(Verify, ARefusalWhereAnAnswerIsExpectedFails) {
  const VerifyRow row = verified("instance_norm", reference_of({{"name", "layer_norm"}}).get());
  EXPECT_NE(row.failure.find("it refuses: more than 1 value per channel"), std::string::npos) << row.failure;
}

TEST(Verify, AStrategyWithoutAReferenceFails) {
  const VerifyRow row = verified("per_tower", nullptr);
  EXPECT_NE(row.skipped.find("no reference"), std::string::npos);
  EXPECT_TRUE(row.passed());
}

TEST(Verify, AnUnknownStrategyIsAnsweredWithTheNearest) {
  try {
    verify({.strategies = {"every_towr"}, .ranks = 1, .device = "cpu", .progress = {}});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_NE(std::string(error.what()).find("did you mean \"every_tower\"?"), std::string::npos)
        << error.what();
  }
}

class AComparison : public testing::Test {
 protected:
  AComparison()
      : case_(verify_cases(resolved_strategy("per_tower"))[4].layer_case),
        expected_(reference_of({{"name", "per_tower"}})->answer(case_)),
        answer_(apply_layer(case_)) {}

  std::string failure() const { return compare(case_, expected_, answer_).failure; }

  LayerCase case_;
  LayerAnswer expected_, answer_;
};

TEST_F(AComparison, FindsNothingInARightAnswer) {
  EXPECT_EQ(failure(), "");
}

TEST_F(AComparison, FindsAWrongValueInEveryTensor) {
  for (at::Tensor LayerStepAnswer::* member :
       {&LayerStepAnswer::weight_gradient, &LayerStepAnswer::bias_gradient, &LayerStepAnswer::running_mean,
        &LayerStepAnswer::running_var}) {
    const at::Tensor right = answer_.steps[1].*member;
    answer_.steps[1].*member = right + 1e-9;
    EXPECT_NE(failure(), "");
    answer_.steps[1].*member = at::Tensor();
    EXPECT_NE(failure().find("missing"), std::string::npos);
    answer_.steps[1].*member = right;
  }
  for (std::vector<at::Tensor> LayerStepAnswer::* member :
       {&LayerStepAnswer::outputs, &LayerStepAnswer::input_gradients}) {
    const at::Tensor right = (answer_.steps[1].*member)[1];
    (answer_.steps[1].*member)[1] = right + 1e-9;
    EXPECT_NE(failure().find("step 1, tower 1"), std::string::npos) << failure();
    (answer_.steps[1].*member)[1] = right;
  }
  EXPECT_EQ(failure(), "");
}

TEST_F(AComparison, FindsANumberWhereNoneIsExpected) {
  expected_.steps[0].outputs[0] = expected_.steps[0].outputs[0] * std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(failure().find("expected nan"), std::string::npos) << failure();
}

TEST_F(AComparison, FindsAnotherDtypeAndAnExchangeInEvaluation) {
  answer_.steps[3].collectives.push_back({"all_gather", 1, Purpose::statistics});
  EXPECT_NE(failure().find("an evaluation exchanges"), std::string::npos) << failure();
  answer_.steps[0].outputs[0] = answer_.steps[0].outputs[0].to(at::kFloat);
  EXPECT_NE(failure().find("expected Double"), std::string::npos) << failure();
}

}  // namespace
}  // namespace bnlab
