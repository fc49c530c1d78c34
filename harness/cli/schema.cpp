// bnlab schema: the JSON Schema of specs, for editors.
#include <iostream>

#include "harness/cli/about.hpp"
#include "harness/cli/program.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

struct SchemaRequest {};

int schema(const SchemaRequest&) {
  const auto name = [](const Family& family) { return std::string(family.name); };
  std::cout << spec_schema(mapped(families(), name)).dump(2) << "\n";
  return exit_code::kOk;
}

const Command schema_command("schema", {Heading::experiments, 5},
                             "Print the JSON Schema of specs, with which editors complete and check them",
                             "  bnlab schema > spec.schema.json", schema);

}  // namespace
}  // namespace bnlab
