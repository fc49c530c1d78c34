// The commands of the program bnlab-more, which examine strategies, machines and prices. It is built with the
// tests: nothing that trains, predicts or reports needs them. `bnlab` lists them and hands over.
#pragma once

#include "harness/cli/program.hpp"

namespace bnlab {

// One per file.
void add_layer(Program& program);
void add_verify(Program& program);
void add_vectors(Program& program);
void add_panel(Program& program);
void add_probe(Program& program);
void add_cost(Program& program);
void add_trace(Program& program);

namespace more {

inline constexpr NamedCommand kLayer{"layer", "Apply one strategy's layer to given tensors, as JSON"};
inline constexpr NamedCommand kVerify{
    "verify", "Check every strategy against its float64 reference, on this machine's devices"};
inline constexpr NamedCommand kVectors{
    "vectors", "Write conformance cases of batch normalisation, which judge any implementation"};
inline constexpr NamedCommand kPanel{
    "panel", "Make tiny runs that show whether this build computes its committed numbers"};
inline constexpr NamedCommand kProbe{
    "probe", "Measure what exchanges, norm sites and steps cost here, or under a launcher"};
inline constexpr NamedCommand kCost{"cost",
                                    "Predict a step of each strategy on 2 to 1,024 ranks, with its interval"};
inline constexpr NamedCommand kTrace{
    "trace", "Record a few training steps of one run on CPUs, and who waits for whom"};

inline constexpr NamedCommand kAll[] = {kLayer, kVerify, kVectors, kPanel, kProbe, kCost, kTrace};

}  // namespace more
}  // namespace bnlab
