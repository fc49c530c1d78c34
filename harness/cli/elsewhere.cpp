// The commands of bnlab-more in `bnlab`, which knows their names and hands over.
#include "harness/cli/more/more.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

const auto commands = mapped(more::kAll, [](const CommandName& named) { return Command(named); });

}  // namespace
}  // namespace bnlab
