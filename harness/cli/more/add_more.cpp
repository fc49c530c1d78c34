// The commands of bnlab-more in that program itself.
#include "harness/cli/more/more.hpp"

namespace bnlab {

void add_more(Program& program) {
  add_layer(program);
  add_verify(program);
  add_vectors(program);
  add_panel(program);
  add_probe(program);
  add_cost(program);
  add_trace(program);
}

std::optional<int> answered_elsewhere(const std::vector<std::string>&) {
  return std::nullopt;
}

}  // namespace bnlab
