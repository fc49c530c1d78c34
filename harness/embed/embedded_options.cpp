#include "harness/embed/embedded_options.hpp"

#include <string>
#include <tuple>
#include <utility>

#include "harness/components/component_text.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

Json parsed(const std::string& text) {
  const std::optional<Json> given = component_of(text);
  if (!given)
    throw Error(
        Error::Kind::spec,
        "strategy: expected a name, a label or a JSON object {\"name\": ..., its parameters}, got " + text);
  return given->is_string() ? Json{{"name", *given}} : *given;
}

Json json_of(std::optional<double> momentum) {
  return momentum ? Json(*momentum) : Json();
}

// Puts the module's own options where the strategy has such an option that the JSON does not give. One that
// is as BatchNorm2d begins with it leaves the strategy's own beginning.
void fill_in(Json& resolved, const Json& given, const BatchNormOptions& options) {
  const BatchNormOptions plain;
  const auto put = [&](const char* key, const Json& value, bool differs) {
    if (Json* at = that_has(resolved, key); at != nullptr && differs && that_has(given, key) == nullptr)
      (*at)[key] = value;
  };
  put("eps", options.eps(), options.eps() != plain.eps());
  put("momentum", json_of(options.momentum()), options.momentum() != plain.momentum());
  put("affine", options.affine(), options.affine() != plain.affine());
}

}  // namespace

Json strategy_of(const BatchNormOptions& options) {
  const Json given = parsed(options.strategy());
  Json resolved = resolved_strategy(given);
  fill_in(resolved, given, options);
  return resolved_strategy(resolved);
}

BatchNormOptions completed(BatchNormOptions options) {
  const Json given = parsed(options.strategy());
  if (const Json* at = that_has(given, "eps")) options.eps(at->at("eps"));
  if (const Json* at = that_has(given, "momentum")) options.momentum(momentum_of(at->at("momentum")));
  if (const Json* at = that_has(given, "affine")) options.affine(at->at("affine"));
  return options;
}

BatchNormOptions told(BatchNormOptions written, const BatchNormOptions& before, const Json& strategy) {
  if (written.strategy() != before.strategy()) return written;
  const BatchNormOptions plain;
  Json given = parsed(written.strategy());
  const auto tell = [&](const char* key, const Json& value, bool differs, bool is_plain) {
    Json* at = that_has(given, key);
    if (at == nullptr && is_plain && strategy.contains(key))
      at = &given;  // the strategy may begin with something else
    if (differs && at != nullptr) {
      (*at)[key] = value;
      written.strategy(given.dump());
    }
  };
  tell("eps", written.eps(), written.eps() != before.eps(), written.eps() == plain.eps());
  tell("momentum", json_of(written.momentum()), written.momentum() != before.momentum(),
       written.momentum() == plain.momentum());
  tell("affine", written.affine(), written.affine() != before.affine(), written.affine() == plain.affine());
  return written;
}

bool make_the_same(const BatchNormOptions& a, const BatchNormOptions& b) {
  const auto all = [](const BatchNormOptions& o) {
    return std::tie(o.num_features(), o.affine(), o.strategy(), o.towers_per_rank(), o.relu(),
                    o.total_steps(), o.seed(), o.name());
  };
  return all(a) == all(b) && &a.ranks().world() == &b.ranks().world();
}

bool pass_the_same(const BatchNormOptions& a, const BatchNormOptions& b) {
  const auto all = [](const BatchNormOptions& o) {
    return std::tie(o.eps(), o.momentum(), o.track_running_stats(), o.counting(), o.equal_batches(),
                    o.always_current());
  };
  return all(a) == all(b);
}

}  // namespace bnlab
