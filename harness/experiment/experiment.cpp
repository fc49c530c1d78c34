// Reading a spec file: the file and its bases, then the keys around the runs, the matrix, the contrasts.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "harness/experiment/contrasts.hpp"
#include "harness/experiment/document.hpp"
#include "harness/experiment/keys.hpp"
#include "harness/experiment/matrix.hpp"
#include "harness/experiment/report.hpp"
#include "harness/experiment/spec.hpp"

namespace bnlab {
namespace {

bool declares(const std::vector<Parameter>& parameters, const std::string& name) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
}

// The part of a spec that `parameters` declare.
Json part(const Json& spec, const std::vector<Parameter>& parameters) {
  Json found = Json::object();
  for (const auto& [key, value] : spec.items()) {
    if (declares(parameters, key)) {
      found[key] = value;
    }
  }
  return found;
}

void check_top_level(const Json& spec, Report& report) {
  std::vector<std::string> known;
  for (const auto& parameter : spec_parameters()) {
    known.push_back(parameter.name);
  }
  for (const auto& [key, unused] : spec.items()) {
    if (!declares(spec_parameters(), key)) {
      report.add(key_path("", key), "unknown key" + suggestion(key, known));
    }
  }
}

// The file's stem names the experiment and its folder of results.
std::string experiment_name(const std::string& file, Report& report) {
  const std::string stem = std::filesystem::path(file).stem().string();
  const bool safe = !stem.empty() && stem[0] != '.' && stem[0] != '-' &&
                    std::all_of(stem.begin(), stem.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
                    });
  if (!safe) {
    report.add_in(file, "",
                  "expected a file name of letters, digits, _, - and ., it names a folder of results");
  }
  return stem;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

Json array_of(const Json& value) {
  return value.is_array() ? value : Json::array();
}

Json object_of(const Json& value) {
  return value.is_object() ? value : Json::object();
}

// A sentence per strategy label; a label that no run has is a mistake.
std::map<std::string, std::string> read_remarks(const Json& given, const Expansion& expansion,
                                                Report& report) {
  std::map<std::string, std::string> remarks;
  std::vector<std::string> labels;
  const bool known = expansion.mistaken.count("strategy") == 0;
  for (const Json& run : expansion.cells) {
    const std::string text = known ? label(run["strategy"]) : "";
    if (std::find(labels.begin(), labels.end(), text) == labels.end()) {
      labels.push_back(text);
    }
  }
  for (const auto& [strategy, sentence] : given.items()) {
    const std::string path = key_path("remarks", strategy);
    if (!sentence.is_string() || sentence == "") {
      report.add(path, "expected a sentence, got " + shown(sentence));
    } else if (known && !labels.empty() &&
               std::find(labels.begin(), labels.end(), strategy) == labels.end()) {
      report.add(path, "no run has the strategy " + shown(strategy) + suggestion(strategy, labels));
    } else {
      remarks[strategy] = sentence;
    }
  }
  return remarks;
}

}  // namespace

Experiment load_experiment(const std::string& file) {
  Report report(file);
  Experiment experiment;
  experiment.file = file;
  experiment.name = experiment_name(file, report);
  const std::optional<Document> document = read_document(file, report);
  if (!document) {
    report.throw_if_any();
    return experiment;
  }
  report.locate(document->origins);
  const Json& spec = document->value;
  check_top_level(spec, report);
  Problems problems;
  const Json around = resolve(experiment_parameters(), part(spec, experiment_parameters()), "", problems);
  report.add(problems);

  const Json matrix = object_of(around["matrix"]);
  const Json exclude = array_of(around["exclude"]);
  Expansion expansion = expand(part(spec, run_parameters()), matrix, exclude, report);
  experiment.contrasts =
      read_contrasts(array_of(around["contrasts"]),
                     spec.contains("contrasts") ? spec["contrasts"] : Json::array(), expansion, report);
  experiment.remarks = read_remarks(object_of(around["remarks"]), expansion, report);
  report.throw_if_any();

  experiment.question = text_of(around["question"]);
  experiment.claim = text_of(around["claim"]);
  experiment.source = text_of(around["source"]);
  experiment.protocol = text_of(around["protocol"]);
  for (const auto& [written, values] : matrix.items()) {
    experiment.axes.push_back(written);
  }
  experiment.runs = std::move(expansion.runs);
  experiment.excluded = std::move(expansion.excluded);
  return experiment;
}

}  // namespace bnlab
