// Remarks: one sentence per strategy label, for reports only.
#include <gtest/gtest.h>

#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

using Remarks = SpecFiles;

TEST_F(Remarks, AreKeptByLabelAndLeaveTheRunIdsAsTheyAre) {
  const std::string matrix =
      R"("matrix": {"strategy": ["fake_own", {"name": "fake_pooled", "gradient": "stopped"}]})";
  const std::string remarks =
      R"_(, "remarks": {"fake_own": "It is cheap.", "fake_pooled(gradient=stopped)": "It stops."})_";
  const Experiment plain = load(spec(matrix)), with = load(spec(matrix + remarks));
  EXPECT_EQ(with.remarks.at("fake_own"), "It is cheap.");
  EXPECT_EQ(with.remarks.at("fake_pooled(gradient=stopped)"), "It stops.");
  ASSERT_EQ(with.runs.size(), plain.runs.size());
  EXPECT_EQ(with.runs[0].id, plain.runs[0].id);
}

TEST_F(Remarks, OfALabelThatNoRunHasAreAMistake) {
  EXPECT_EQ(mistakes(spec(R"("remarks": {"fake_poled": "It pools."})")),
            (Lines{"spec.json: remarks.fake_poled: no run has the strategy \"fake_poled\"; did you mean "
                   "\"fake_pooled\"?"}));
}

TEST_F(Remarks, AreSentences) {
  EXPECT_EQ(mistakes(spec(R"("remarks": {"fake_pooled": ["It", "pools."]})")),
            (Lines{R"(spec.json: remarks.fake_pooled: expected a sentence, got ["It","pools."])"}));
}

TEST_F(Remarks, AreNotJudgedByAMistakenStrategy) {
  EXPECT_EQ(
      mistakes(spec(R"("matrix": {"strategy": ["fake_onw"]}, "remarks": {"fake_own": "It is cheap."})")),
      (Lines{"spec.json: matrix.strategy[0]: unknown strategy \"fake_onw\"; did you mean \"fake_own\"?"}));
}

}  // namespace
}  // namespace bnlab
