#include "harness/cli/probe_file.hpp"

#include <filesystem>

#include "harness/cli/options.hpp"
#include "harness/store/schema.hpp"

namespace bnlab {

Json read_probe(const std::string& file) {
  const std::string expected = ": expected a file of bnlab probe --out";
  if (!std::filesystem::is_regular_file(file))
    throw Error(Error::Kind::usage, file + expected + ", got none");
  const Json probe = as_usage([&] { return read_json(file, probe_schema(), Keys::any); });
  if (value_at(probe, "schema").is_null()) throw Error(Error::Kind::usage, file + expected);
  return probe;
}

}  // namespace bnlab
