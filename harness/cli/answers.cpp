// bnlab answers: what experiments have answered, in one table.
#include "harness/report/answers.hpp"

#include <iostream>
#include <map>
#include <optional>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

struct AnswersRequest {
  std::vector<std::string> specs;
  std::string results = "results";
  std::string into;
  bool in_short = false;

  void describe(Arguments& option) {
    option("[SPEC]", specs,
           "Spec files, names of some in experiments/, or folders of results; default: all in the results "
           "folder");
    option("--into FILE", into,
           "File with the lines <!-- table:answers --> and <!-- end -->: between them a table as Markdown, a "
           "row per experiment: the question, the title of its page as the answer, data, steps and how well "
           "it is founded");
    option("--short", in_short,
           "The answer of each in one line, and how well it is founded: firm, once, seen, predicted or open");
    describe_results(option, results);
  }
};

// All of a results folder whose question is known. Those whose spec is damaged are told, and `is_whole` is
// false then.
std::vector<std::string> all_with_spec(const std::string& results, bool& is_whole) {
  std::vector<std::string> specs = all_experiments(results);
  std::erase_if(specs, [&](const std::string& spec) {
    std::string around = results;
    try {
      return !load_if_any(spec, around);
    } catch (const Error& error) {
      std::cerr << "left out: " << error.what() << "\n";
      is_whole = false;
      return true;
    }
  });
  return specs;
}

ExperimentReport report_of(const Experiment& experiment, const std::string& results) {
  return make_report(experiment, list_records(results, experiment.name),
                     kept_declarations(results, experiment.name));
}

std::vector<Answer> long_answers(const std::vector<std::string>& specs, const std::string& around) {
  return mapped(specs, [&](const std::string& spec) {
    std::string results = around;
    const Experiment experiment = load_asked(spec, results);
    return answer_to(experiment, report_of(experiment, results), experiment_folder(results, experiment.name));
  });
}

// As load_asked; of a folder of results whose page answers, and that has no spec, an experiment with its name
// alone.
Experiment load_asked_or_page(const std::string& spec, std::string& results) {
  if (std::optional<Experiment> experiment = load_if_any(spec, results)) return std::move(*experiment);
  if (read_result_page(experiment_folder(results, spec)).numbers.empty()) return load_asked(spec, results);
  Experiment page;
  page.name = spec;
  return page;
}

// Throws Error (usage) with all answers that are refused.
std::vector<ShortAnswerRow> short_answers(const std::vector<std::string>& specs, const std::string& around) {
  std::map<std::string, Grounds> known;
  const auto add = [&](const Experiment& experiment, const std::string& results) {
    if (!known.contains(experiment.name) && !experiment.runs.empty())
      known[experiment.name] = grounds(experiment, report_of(experiment, results));
  };
  const GroundsOf grounds_of = [&](const std::string& name) -> const Grounds& {
    std::string results = around;
    if (!known.contains(name)) add(load_asked(name, results), results);
    return known[name];
  };
  std::vector<ShortAnswerRow> all;
  std::vector<std::string> refused;
  for (const std::string& spec : specs) {
    std::string results = around;
    const Experiment experiment = load_asked_or_page(spec, results);
    add(experiment, results);
    try {
      all.push_back(short_answer_row(experiment, experiment_folder(results, experiment.name), grounds_of));
    } catch (const Error& error) {
      refused.emplace_back(error.what());
    }
  }
  if (!refused.empty()) throw Error(Error::Kind::usage, joined(refused, "\n"));
  return all;
}

int answers(const AnswersRequest& request) {
  bool is_whole = true;
  const std::vector<std::string> specs =
      request.specs.empty() ? all_with_spec(request.results, is_whole) : request.specs;
  if (specs.empty()) {
    throw Error(Error::Kind::usage,
                "no experiments in " + request.results + " yet; start with: bnlab run quickstart");
  }
  if (request.into.empty()) {
    std::cout << (request.in_short ? short_answers_text(short_answers(specs, request.results))
                                   : answers_text(long_answers(specs, request.results)));
  } else {
    const std::vector<ShortAnswerRow> rows = short_answers(specs, request.results);
    const auto from = std::filesystem::absolute(request.into).parent_path();
    replace_between_markers(
        request.into, {{"table:answers",
                        request.in_short ? short_answers_markdown(rows, from) : index_markdown(rows, from)}});
    std::cerr << "wrote the table answers into " << request.into << "\n";
  }
  return is_whole ? exit_code::kOk : exit_code::kFailed;
}

const Command answers_command("answers", {Heading::experiments, 3},
                              "Print the answer of each experiment, with its evidence",
                              "  bnlab answers\n"
                              "  bnlab answers nuclei_small_batch running_statistics\n"
                              "  bnlab answers quickstart tradeoff --into README.md\n"
                              "  bnlab answers --short",
                              answers);

}  // namespace
}  // namespace bnlab
