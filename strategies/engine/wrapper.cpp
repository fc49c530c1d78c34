#include "strategies/engine/wrapper.hpp"

namespace bnlab {

void WrapperOptions::describe(OptionVisitor& option) {
  option.component("base", base, "strategy", "the strategy that it is built on");
}

void WrapperOptions::check(const RunOutline&, Problems& problems) const {
  if (!facts_of<StrategyFacts>(base).has_running_statistics(base)) {
    problems.add("base", "expected a strategy with running statistics; " +
                             base.at("name").get<std::string>() + " has none");
  }
}

}  // namespace bnlab
