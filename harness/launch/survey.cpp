#include "harness/launch/survey.hpp"

#include <algorithm>
#include <iostream>

#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/records/inputs.hpp"

namespace bnlab {
namespace {

const std::vector<std::string> kRedo = {"stale", "failed", "all"};

bool is_among(const std::string& word, const std::vector<std::string>& words) {
  return std::ranges::find(words, word) != words.end();
}

void check_redo(const std::vector<std::string>& redo, const std::vector<PlacedRun>& runs) {
  std::vector<std::string> known = mapped(runs, [](const PlacedRun& run) { return run.spec.id; });
  known.insert(known.end(), kRedo.begin(), kRedo.end());
  for (const std::string& word : redo) {
    if (!is_among(word, known)) {
      const std::string near = nearest(word, known);
      throw Error(Error::Kind::usage, "--redo " + word + ": expected stale, failed, all or the id of a run" +
                                          (near.empty() ? "" : "; did you mean " + near + "?"));
    }
  }
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

Standing standing_of(const PlacedRun& run, const std::vector<std::string>& redo) {
  Standing standing;
  try {
    std::optional<Record> record = find_record(run.folder);
    if (!record) {
      return standing;
    }
    check_place(*record);
    check_spec(*record, run.spec);
    record->compare_inputs(run.inputs);
    const Json& message = record->at("outcome.message");
    standing.state = name(record->status());
    standing.failure = message.is_string() ? first_line(message.get<std::string>()) : "";
    standing.stale = record->finished() ? record->why_stale() : "";
    standing.starts = !record->finished() || is_among("all", redo) || is_among(run.spec.id, redo) ||
                      (record->failed() && is_among("failed", redo)) ||
                      (!standing.stale.empty() && is_among("stale", redo));
  } catch (const Error& error) {
    standing.state = "damaged";
    standing.failure = first_line(error.what());
  }
  return standing;
}

}  // namespace

std::vector<Standing> survey(const std::vector<PlacedRun>& runs, const std::vector<std::string>& redo) {
  check_redo(redo, runs);
  return mapped(runs, [&](const PlacedRun& run) { return standing_of(run, redo); });
}

std::vector<std::string> look_at_inputs(std::vector<PlacedRun>& runs, const LaunchOptions& options) {
  Inputs inputs(options.results_dir, options.data_dir,
                [](const std::string& text) { std::cerr << "note: " << text << std::endl; });
  std::vector<std::string> missing;
  for (PlacedRun& run : runs) {
    try {
      run.inputs = inputs.of(run.spec);
    } catch (const std::exception& error) {  // a folder may be closed to us, too
      if (!is_among(error.what(), missing)) {
        missing.emplace_back(error.what());
      }
    }
  }
  inputs.keep();
  return missing;
}

std::vector<PlacedRun> runs_to_start(const Experiment& experiment, std::vector<PlacedRun>& runs,
                                     const LaunchOptions& options, LaunchSummary& summary,
                                     std::vector<std::string>& remarks) {
  const std::vector<std::string> missing = look_at_inputs(runs, options);
  const std::vector<Standing> standings = survey(runs, options.redo);
  LastInputs last(experiment_folder(options.results_dir, experiment.name));
  std::vector<PlacedRun> start;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Standing& standing = standings[i];
    if (!runs[i].inputs.is_null()) {
      last.set(runs[i].spec, runs[i].inputs);
    }
    if (standing.state == "damaged") {
      remarks.push_back("damaged record: " + standing.failure + "; its run starts again");
    }
    if (standing.starts) {
      start.push_back(runs[i]);
      continue;
    }
    ++summary.skipped;
    summary.failed_before += standing.state != name(Status::ok);
    if (!standing.stale.empty()) {
      ++summary.stale[standing.stale];
    }
  }
  const auto lacking =
      std::ranges::count_if(start, [](const PlacedRun& run) { return run.inputs.is_null(); });
  if (lacking > 0) {
    throw Error(Error::Kind::usage, std::to_string(lacking) + " of " + std::to_string(start.size()) +
                                        " runs to start lack what they read:\n" + joined(missing, "\n"));
  }
  for (const std::string& message : missing) {
    remarks.push_back("whether finished runs are up to date could not be seen: " + message);
  }
  last.keep();
  return start;
}

}  // namespace bnlab
