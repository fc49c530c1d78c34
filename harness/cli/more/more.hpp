// The commands of the program bnlab-more, which examine strategies, machines and prices. It is built with the
// tests: nothing that trains, predicts or reports needs them. `bnlab` lists them and hands over.
#pragma once

#include <stdexcept>
#include <string_view>

#include "harness/cli/arguments.hpp"
#include "harness/cli/program.hpp"
#include "harness/launch/launch.hpp"

namespace bnlab {
namespace more {

inline constexpr CommandName kAll[] = {
    {"layer", {Heading::strategies, 2}, "Apply one strategy's layer to given tensors, as JSON"},
    {"verify",
     {Heading::strategies, 3},
     "Check every strategy against its float64 reference, on this machine's devices"},
    {"vectors",
     {Heading::strategies, 4},
     "Write conformance cases of batch normalisation, which judge any implementation"},
    {"panel",
     {Heading::strategies, 5},
     "Make tiny runs that show whether this build computes its committed numbers"},
    {"probe",
     {Heading::cost, 1},
     "Measure what exchanges, norm sites and steps cost here, or under a launcher"},
    {"cost", {Heading::cost, 2}, "Predict a step of each strategy on 2 to 1,024 ranks, with its interval"},
    {"trace",
     {Heading::cost, 3},
     "Record a few training steps of one run: who waits for whom, or a GPU's kernels"}};

constexpr CommandName named(std::string_view name) {
  for (const CommandName& each : kAll)
    if (each.name == name) return each;
  throw std::logic_error("more.hpp does not list this command");
}

// What commands share that measure on ranks of their own, or in the world of a launcher.
struct Measured : LaunchRequest {
  Words typed;

  void describe(Arguments& option);
  // Starts the command again as so many ranks, each of which joins the others, and waits for them.
  int start_ranks(int ranks, Words more = {}) const;
};

}  // namespace more
}  // namespace bnlab
