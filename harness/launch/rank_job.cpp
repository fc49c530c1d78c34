#include "harness/launch/rank_job.hpp"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "harness/communicator/host/environment_world.hpp"
#include "harness/launch/activity_board.hpp"
#include "harness/launch/job_channel.hpp"
#include "harness/store/record.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/resident_memory.hpp"

namespace bnlab {
namespace {

// The place in the world that the launcher put into the environment; a lone rank has none.
Rendezvous place_from_environment() {
  const Variables variables = process_environment();
  const auto world = environment_world(variables);
  Rendezvous place = world ? world->rendezvous : Rendezvous{};
  if (const auto fd = variables.find("BNLAB_LISTEN_FD"); fd != variables.end()) {
    place.listen_fd = std::atoi(fd->second.c_str());
    fcntl(place.listen_fd, F_SETFD, FD_CLOEXEC);
  }
  return place;
}

RankJob read_job(const std::string& file, const Rendezvous& place) {
  RankJob job;
  job.rendezvous = place;
  try {
    const Json json = read_json(file);
    job.spec = read_resolved(json.at("spec"));
    job.device = choice_of<Device>(json.at("device").get<std::string>());
    job.rendezvous.exchange = choice_of<Exchange>(json.at("exchange").get<std::string>());
    job.inputs = json.at("inputs");
    job.data_dir = json.at("data_dir").get<std::string>();
    job.run_dir = json.at("run_dir").get<std::string>();
    job.threads = json.at("threads").get<int>();
    using Clock = decltype(job.started)::clock;
    job.started = Clock::time_point(Clock::duration(json.at("started").get<Clock::rep>()));
  } catch (const Json::exception& e) {
    throw Error(Error::Kind::usage, file + ": expected a job that `bnlab run` wrote: " + e.what());
  }
  job.rendezvous.prefix = job.spec.id;
  job.rendezvous.timeout = collective_timeout(job.spec);
  return job;
}

// Makes the run and writes the report; whether there is a result.
bool make_run(const RankJob& job, KeptWorld* kept) {
  RankReport report = run_rank(job, kept);
  if (!report.message.empty()) std::cerr << name_of(report.status) << ": " << report.message << std::endl;
  report.result = finite(report.result, report.notes, "result");  // JSON carries no NaN
  write_json(report_file(job.run_dir, job.rendezvous.rank), {{"status", name_of(report.status)},
                                                             {"message", report.message},
                                                             {"lost_contact", report.lost_contact},
                                                             {"result", report.result},
                                                             {"notes", report.notes},
                                                             {"lost_work", report.lost_work}});
  return has_result(report.status);
}

// Where standard output and error go from now on.
void write_output_to(const std::string& file) {
  std::cout.flush();
  std::fflush(nullptr);
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
    throw Error(Error::Kind::environment, "cannot open " + file + ": " + strerror(errno));
  close(fd);
}

}  // namespace

std::chrono::milliseconds collective_timeout(const RunSpec& spec) {
  return std::chrono::milliseconds(std::llround(spec.collective_timeout_s * 1000));
}

std::string job_file(const std::string& run_dir) {
  return run_dir + "/job.json";
}

std::string report_file(const std::string& run_dir, int rank) {
  return run_dir + "/rank" + std::to_string(rank) + ".report.json";
}

std::string log_file(const std::string& run_dir, int rank) {
  return run_dir + "/rank" + std::to_string(rank) + ".log";
}

void write_job(const RankJob& job) {
  write_json(job_file(job.run_dir), {{"spec", job.spec.resolved},
                                     {"device", name_of(job.device)},
                                     {"exchange", name_of(job.rendezvous.exchange)},
                                     {"inputs", job.inputs},
                                     {"data_dir", job.data_dir},
                                     {"run_dir", job.run_dir},
                                     {"threads", job.threads},
                                     {"started", job.started.time_since_epoch().count()}});
}

std::optional<RankReport> read_report(const std::string& run_dir, int rank) {
  const std::string file = report_file(run_dir, rank);
  if (!std::filesystem::exists(file)) return std::nullopt;
  try {
    const Json json = read_json(file);
    RankReport report;
    report.status = status_named(json.at("status").get<std::string>());
    report.message = json.at("message").get<std::string>();
    report.lost_contact = json.at("lost_contact").get<bool>();
    report.result = json.at("result");
    report.notes = json.at("notes").get<std::vector<std::string>>();
    report.lost_work = json.at("lost_work").get<std::vector<std::string>>();
    return report;
  } catch (const Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

int rank_main(const std::string& first_job) {
  const Rendezvous place = place_from_environment();
  const JobChannel channel = JobChannel::from_environment();
  ActivityPage* const page = join_activity_board(place.rank);
  KeptWorld kept;
  RankJob job = read_job(first_job, place);
  Activity::keep_on(page);
  while (make_run(job, channel.is_open() ? &kept : nullptr) && channel.is_open() && kept.is_kept &&
         reset_peak_rss()) {
    write_output_to("/dev/null");
    channel.send("ended");
    const std::string run_dir = channel.wait();
    if (run_dir.empty()) {
      shutdown(kept);
      break;
    }
    write_output_to(log_file(run_dir, place.rank));
    job = read_job(job_file(run_dir), place);
    Activity::keep_on(page);
  }
  return 0;
}

}  // namespace bnlab
