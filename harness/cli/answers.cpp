// bnlab answers: what experiments have answered, in one table.
#include "harness/report/answers.hpp"

#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/printable.hpp"

namespace bnlab {
namespace {

struct AnswersRequest {
  std::vector<std::string> specs;
  std::string results = "results";
  std::string into;
  bool in_short = false;
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
      std::cerr << "left out: " << printable(error.what()) << "\n";
      is_whole = false;
      return true;
    }
  });
  return specs;
}

int answers(const AnswersRequest& request) {
  std::vector<Answer> all;
  bool is_whole = true;
  const std::vector<std::string> specs =
      request.specs.empty() ? all_with_spec(request.results, is_whole) : request.specs;
  if (specs.empty()) {
    throw Error(Error::Kind::usage,
                "no experiments in " + request.results + " yet; start with: bnlab run quickstart");
  }
  for (const std::string& spec : specs) {
    std::string results = request.results;
    const Experiment experiment = load_asked(spec, results);
    const ExperimentReport report = make_report(experiment, list_records(results, experiment.name),
                                                kept_declarations(results, experiment.name));
    all.push_back(answer_to(experiment, report, experiment_folder(results, experiment.name)));
  }
  if (request.into.empty()) {
    std::cout << answers_text(all);
    return is_whole ? exit_code::kOk : exit_code::kFailed;
  }
  const std::filesystem::path document = std::filesystem::absolute(request.into);
  const auto markdown = request.in_short ? short_answers_markdown : answers_markdown;
  replace_between_markers(request.into, "answers", markdown(all, document.parent_path()));
  std::cerr << "wrote the table answers into " << request.into << "\n";
  return is_whole ? exit_code::kOk : exit_code::kFailed;
}

}  // namespace

void add_answers(Program& program) {
  auto [command, request] =
      add_command(program, "answers", "The answer of each experiment, with its evidence",
                  "  bnlab answers\n"
                  "  bnlab answers nuclei_small_batch running_statistics\n"
                  "  bnlab answers quickstart tradeoff --into README.md",
                  answers);
  command.add_option("SPEC", request.specs,
                     "Spec files, names of some in experiments/, or folders of results; default: all in the "
                     "results folder");
  CLI::Option* into =
      command.add_option("--into", request.into,
                         "File with the lines <!-- table:answers --> and <!-- end -->: the table is put "
                         "between them as Markdown");
  into->type_name("FILE");
  command.add_flag("--short", request.in_short, "With --into: in one line, without the evidence")
      ->needs(into);
  add_results_option(command, request.results);
}

}  // namespace bnlab
