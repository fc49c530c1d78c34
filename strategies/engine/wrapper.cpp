#include "strategies/engine/wrapper.hpp"

namespace bnlab {

void WrapperOptions::describe(OptionVisitor& option) {
  option.component("base", base, "strategy", "the strategy that it is built on");
}

void WrapperOptions::check(const RunOutline&, Problems& problems) const {
  const std::string name = base.at("name");
  const About* about = find_registered("strategy", name);
  if (!about->has_running_statistics(base)) {
    problems.add("base", "expected a strategy with running statistics; " + name + " has none");
  }
}

}  // namespace bnlab
