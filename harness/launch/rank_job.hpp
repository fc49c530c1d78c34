// What passes between the launcher and a rank it starts: job.json on the way there (everything but the
// rank's place in the world, which comes through the environment), rank<k>.report.json on the way back.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "harness/training/rank.hpp"

namespace bnlab {

std::chrono::milliseconds collective_timeout(const RunSpec& spec);

std::string job_file(const std::string& run_dir);
std::string report_file(const std::string& run_dir, int rank);
std::string log_file(const std::string& run_dir, int rank);

void write_job(const RankJob& job);  // to job_file(job.run_dir)

// The rank's report, or nothing if it wrote none that can be read.
std::optional<RankReport> read_report(const std::string& run_dir, int rank);

// A rank's whole life: `bnlab rank --job FILE`. Reads the job and the place in the world (environment),
// runs it and writes the report. Where the launcher has given it a channel, it stays after a run with a
// result, in the world of that run, and takes others. Returns the exit status: 0 once the report is written,
// whatever it says. Throws Error (usage) if a job cannot be read.
int rank_main(const std::string& first_job);

}  // namespace bnlab
