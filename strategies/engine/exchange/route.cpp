#include "strategies/engine/exchange/route.hpp"

#include <ATen/ops/empty.h>

#include <map>

namespace bnlab {
namespace {

std::map<std::string, RouteAbout>& routes() {
  static std::map<std::string, RouteAbout> all;
  return all;
}

}  // namespace

RegisteredRoute::RegisteredRoute(RouteAbout about) {
  const std::string name = about.name;
  routes().emplace(name, std::move(about));
}

std::vector<std::string> route_names() {
  std::vector<std::string> names;
  for (const auto& entry : routes()) names.push_back(entry.first);
  return names;
}

std::string route_summaries() {
  std::string all;
  for (const auto& [name, about] : routes())
    if (!about.summary.empty()) all += (all.empty() ? "" : "; ") + name + ": " + about.summary;
  return all;
}

const RouteAbout& about_route(const std::string& name) {
  return routes().at(name);
}

const RouteAbout& route_taken(const std::string& name, int ranks) {
  const RouteAbout& about = about_route(name);
  return about.stands_for ? about_route(about.stands_for(ranks)) : about;
}

kernels::PooledRows Route::exchanged(const at::Tensor& rows, kernels::PooledLayout layout) const {
  return {.rows = rows,
          .layout = layout,
          .group = pooled_.group,
          .first = pooled_.towers.first(),
          .sets = pooled_.towers.per_rank()};
}

at::Tensor Route::merged_moments(const at::Tensor& all) const {
  return kernels::merge_moments(all, pooled_.group, pooled_.merge, pooled_.precision);
}

at::Tensor Route::merged_sums(const at::Tensor& all) const {
  return kernels::merge_sums(all, pooled_.group);
}

kernels::PooledRows Route::from_rank0(at::Tensor merged, const at::Tensor& local, bool on_host) const {
  if (!merged.defined()) {
    std::vector<int64_t> shape = local.sizes().vec();
    shape[0] = pooled_.groups();
    merged = at::empty(shape, on_host ? local.options().device(at::kCPU) : local.options());
  }
  merged = merged.contiguous();
  met_by(on_host).broadcast(merged, 0, Purpose::statistics);
  return exchanged(merged.to(local.device()), kernels::PooledLayout::groups);
}

}  // namespace bnlab
