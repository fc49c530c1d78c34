// Reading a spec file: the file and its bases, then the keys around the runs, the matrix, the contrasts.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "harness/experiment/document.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matrix.hpp"
#include "harness/experiment/mistakes.hpp"
#include "harness/experiment/tuning.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

bool declares(const std::vector<Parameter>& parameters, const std::string& name) {
  return std::ranges::any_of(parameters, [&](const Parameter& parameter) { return parameter.name == name; });
}

// The part of a spec that `parameters` declare.
Json part(const Json& spec, const std::vector<Parameter>& parameters) {
  Json found = Json::object();
  for (const auto& [key, value] : spec.items())
    if (declares(parameters, key)) found[key] = value;
  return found;
}

void check_top_level(const Json& spec, Mistakes& mistakes) {
  const auto known = mapped(spec_parameters(), &Parameter::name);
  for (const auto& [key, unused] : spec.items()) {
    if (key == "remarks") {
      mistakes.add(key,
                   "answers do not stand in the question: move the sentences to README.md in the "
                   "experiment's folder of results");
    } else if (!declares(spec_parameters(), key)) {
      mistakes.add(key_path("", key), "unknown key" + suggested_key(key, known));
    }
  }
}

// The file's stem names the experiment and its folder of results.
std::string experiment_name(const std::string& file, Mistakes& mistakes) {
  const std::string stem = std::filesystem::path(file).stem().string();
  if (const std::string problem = name_problem(stem); !problem.empty()) mistakes.add_in(file, "", problem);
  return stem;
}

Json array_of(const Json& value) {
  return value.is_array() ? value : Json::array();
}

Json object_of(const Json& value) {
  return value.is_object() ? value : Json::object();
}

}  // namespace

std::string name_problem(const std::string& stem) {
  const bool safe =
      !stem.empty() && stem[0] != '.' && stem[0] != '-' && std::ranges::all_of(stem, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
      });
  return safe ? ""
              : "expected a file name of letters, digits, _, - and . that begins with neither - nor .: it "
                "names a folder of results";
}

Experiment make_experiment(const Json& spec, const std::string& name, const std::string& file,
                           Mistakes& mistakes) {
  check_top_level(spec, mistakes);
  Problems problems;
  const Json around = resolve(experiment_parameters(), part(spec, experiment_parameters()), "", problems);
  mistakes.add(problems);

  const Json matrix = object_of(around["matrix"]);
  const Json exclude = array_of(around["exclude"]);
  Expansion expansion = expand(part(spec, run_parameters()), matrix, exclude, mistakes);
  auto contrasts =
      read_contrasts(array_of(around["contrasts"]),
                     spec.contains("contrasts") ? spec["contrasts"] : Json::array(), expansion, mistakes);
  check_published(array_of(around["published"]), expansion, mistakes);
  mistakes.throw_if_any();

  auto experiment = read_options<Experiment>(around);
  experiment.name = name;
  experiment.file = file;
  experiment.asked = spec;
  experiment.contrasts = std::move(contrasts);
  for (const auto& [written, values] : matrix.items()) experiment.axes.push_back(written);
  experiment.runs = std::move(expansion.runs);
  experiment.excluded = std::move(expansion.excluded);
  return experiment;
}

Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides,
                           const std::string& given_name) {
  Mistakes mistakes(file);
  const std::string name = given_name.empty() ? experiment_name(file, mistakes) : given_name;
  std::optional<Document> document = read_document(file, mistakes);
  if (!document) {
    mistakes.throw_if_any();
    return {};
  }
  override_keys(*document, overrides, mistakes);
  mistakes.locate(document->origins, document->meant);
  Experiment experiment = make_experiment(document->value, name, file, mistakes);
  if (experiment.tune) experiment.tuning = make_tuning(experiment, mistakes);
  return experiment;
}

}  // namespace bnlab
