// A route: by which way the moments and the backward sums of towers meet across the ranks, pooled over groups
// of consecutive towers. All routes give the same numbers up to rounding, at another price. Each is a class
// in a file of its own in this folder, which registers itself under its name in specs:
//
//   const RegisteredRoute entry{{.name = "host", .make = make_route<Host>}};
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/support/activity.hpp"
#include "harness/support/error.hpp"
#include "harness/towers.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

// An exchange that fails says which site waited for it.
template <class Exchange>
auto at_site(const std::string& site, const char* direction, const Exchange& exchange) {
  const Activity::AtSite here(site, direction);
  try {
    return exchange();
  } catch (const Error& e) {
    throw Error(e.kind(), "site " + site + ": " + e.what());
  }
}

// What one pass pools at one site; every rank knows it from sizes alone. What it refers to outlives the
// route.
struct PooledTowers {
  const Towers& towers;
  int64_t rows_per_sample;
  int64_t group;  // consecutive towers that are pooled together
  kernels::Merge merge;
  at::ScalarType precision;  // what statistics are held in
  Communicator& communicator;
  Communicator& host;  // the same ranks; takes CPU tensors
  bool gathered_later =
      false;  // whether the rows are read by nobody before pooled_forward or pooled_backward

  int64_t groups() const { return towers.count() / group; }
};

// Serves one pass of one site: moments in the forward pass, then sums in the backward pass. Both are called
// by every rank, in the same order, and are one exchange each (reduce_broadcast and gather_activations: there
// and back).
class Route {
 public:
  explicit Route(const PooledTowers& pooled) : pooled_(pooled) {}
  virtual ~Route() = default;

  // local: moments of this rank's towers [G, 1 + 2C] float64, taken from x. Returns rows of moments, or what
  // they follow from (kernels::PooledLayout), with the same bits on every rank.
  virtual kernels::PooledRows moments(const at::Tensor& local, const at::Tensor& x) = 0;
  // local: sums of this rank's towers [G, 2, C] about the means of the pooled moments. Returns rows [2, C],
  // in the precision in which they come.
  virtual kernels::PooledRows sums(const at::Tensor& local, const kernels::Incoming& incoming) = 0;

 protected:
  // What the functions above return: rows of towers, of groups, or sums, for this rank's towers.
  kernels::PooledRows exchanged(const at::Tensor& rows, kernels::PooledLayout layout) const;
  at::Tensor merged_moments(const at::Tensor& all) const;  // [T, 1 + 2C] -> [groups, 1 + 2C]
  at::Tensor merged_sums(const at::Tensor& all) const;     // [T, 2, C] -> [groups, 2, C]
  // Rows of all groups from rank 0 to every rank. merged: undefined elsewhere, and there on the CPU if
  // on_host; local: what this rank's towers had.
  kernels::PooledRows from_rank0(at::Tensor merged, const at::Tensor& local, bool on_host = false) const;
  Communicator& met_by(bool on_host) const { return on_host ? pooled_.host : pooled_.communicator; }

  const PooledTowers pooled_;
};

// What is known of a route without a pass.
struct RouteAbout {
  std::string name;
  std::string summary = {};  // for the help of option `route`; empty where the name says it
  // Whether the exchange can be part of a step that is recorded and replayed on a GPU.
  bool replayable = true;
  // Whether rows of activations travel between the ranks.
  bool moves_rows = false;
  std::function<std::unique_ptr<Route>(const PooledTowers&)> make = {};
  // Of a route that stands for another: the name of the one that so many ranks take.
  std::function<std::string(int ranks)> stands_for = {};
  // What a record must say of how it ran here; "" for nothing.
  std::function<std::string(bool on_cpu, int ranks)> note = {};
};

template <class R>
std::unique_ptr<Route> make_route(const PooledTowers& pooled) {
  return std::make_unique<R>(pooled);
}

class RegisteredRoute {
 public:
  explicit RegisteredRoute(RouteAbout about);
};

std::vector<std::string> route_names();
// "auto: all_gather on up to 16 ranks, else all_reduce": the summaries, joined by "; ".
std::string route_summaries();
const RouteAbout& about_route(const std::string& name);             // `name` is registered
const RouteAbout& route_taken(const std::string& name, int ranks);  // never one that stands for another

}  // namespace bnlab
