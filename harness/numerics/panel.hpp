// The panel: tiny runs that together reach whatever runs compute with, and the numbers that they gave when a
// person last looked at them. entries.json says what each run is, values.json what it computed (`bnlab panel`
// makes them anew, and a test compares). A record names the entries that stand for what its run computes
// with, each by a hash of its committed numbers: it is stale exactly when one of these is another today. How
// the code is written does not matter.
//
// An entry stands for what it varies. One that names another component than the base does (its "strategy",
// "model", "task", "optimizer", or a component within these) stands for that component, however it sets its
// options; one that lies "on" another entry stands for the keys in which the two differ. A run depends on an
// entry if it has the same there: the same name, text or truth value, or another number than the entry below
// has; options count in the component that has them, and in all that have an option of this name where the
// entry is "shared". Every run depends on "base".
//
// What the panel does not see: what takes more steps than it makes, sizes that it does not have, options that
// go wrong together only, and GPUs. Where a run uses a GPU, or a component that no entry names (somebody's
// own), its record names the tokens of those sources (cmake/fingerprint.py) in place of an entry.
#pragma once

#include <string>
#include <vector>

#include "harness/support/json.hpp"

namespace bnlab {

struct PanelEntry {
  std::string name;
  std::string on;       // the entry that it varies; empty: the base, of which it may name other components
  bool shared = false;  // other components have the option that it varies, too
  int ranks = 1;
  bool reads_files = false;  // in a data folder that the panel makes
  Json stands_for;           // where it is given by hand; else null
  Json keys;                 // complete but for defaults
};

// In the order of entries.json.
const std::vector<PanelEntry>& panel();
// Throws Error (usage) for an unknown name.
const PanelEntry& panel_entry(const std::string& name);

// What a run must have to depend on the entry: dotted keys and conditions, {"strategy.gradient": "stopped"}
// (the same), {"optimizer.clip_gradient_norm": {"not": null}} (another value), {"populations": {"has":
// "batch"}} (a list with it). Computed from entries.json and the options that are registered.
Json stands_for(const PanelEntry& entry);

// {ENTRY: {"stands_for": ..., "values": {...}}}, as committed.
const Json& committed_panel();

// Where `values` lie further from the committed ones than rounding explains (on another processor, too), each
// a text "weights is 1.25, 1.24 is committed"; none if they agree.
std::vector<std::string> panel_differences(const PanelEntry& entry, const Json& values);

// {"base": "1f3a9c2b4d5e6f70", "sync": ...}: what a run of this resolved spec depends on, each with the hash
// that it has today. `device`: "cpu" or "cuda".
Json numerics_of(const Json& spec, const std::string& device);

// Whether no part that both name has another hash. The panel may have gained entries between two programs.
bool same_numerics(const Json& a, const Json& b);

// In words, which of the parts that a record names are others today; "" if none is.
std::string changed_numerics(const Json& numerics);

}  // namespace bnlab
