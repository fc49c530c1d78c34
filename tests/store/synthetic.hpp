// A small experiment and records for it, made up: 2 groupings x 2 strategies x any number of seeds.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

inline RunSpec synthetic_run(const std::string& strategy, int64_t towers, int64_t batch, uint64_t seed) {
  RunSpec run;
  run.id = strategy + "-" + std::to_string(towers) + "x" + std::to_string(batch) + "-seed" +
           std::to_string(seed) + "-0123456789ab";
  run.strategy = {{"name", strategy}};
  run.task = {{"name", "shapes"}, {"size", {32, 32}}};
  run.samples_per_tower.assign(static_cast<size_t>(towers), batch);
  run.seed = seed;
  run.populations = {"saved", "batch"};
  run.resolved = {{"task", run.task},
                  {"model", {{"name", "unet"}, {"base", 8}, {"levels", 2}}},
                  {"strategy", run.strategy},
                  {"towers", towers},
                  {"batch_per_tower", batch},
                  {"optimizer", {{"name", "sgd"}, {"lr", 0.1}}},
                  {"steps", 300},
                  {"epochs", nullptr},
                  {"seed", seed},
                  {"precision", "float32"},
                  {"memory_format", "channels_last"},
                  {"loss_mean", "batch"},
                  {"populations", run.populations}};
  return run;
}

inline Experiment synthetic_experiment(int seeds) {
  Experiment experiment;
  experiment.name = "small_batch";
  experiment.question = "Which strategy | wins?";
  experiment.claim = "sync beats per_tower at 8 towers";
  experiment.axes = {"seed", "towers,batch_per_tower", "strategy"};
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(seeds); ++seed) {
    for (const int64_t towers : {8, 2})
      for (const char* strategy : {"per_tower", "sync"})
        experiment.runs.push_back(synthetic_run(strategy, towers, 16 / towers, seed));
  }
  Contrast contrast;
  contrast.metric = "mean_iou";
  contrast.at = {{"towers", 8}};
  contrast.strategy = "sync";
  contrast.above = "per_tower";
  contrast.as_written = {
      {"metric", "mean_iou"}, {"at", contrast.at}, {"strategy", "sync"}, {"above", "per_tower"}};
  experiment.contrasts = {contrast};
  return experiment;
}

inline Json synthetic_result(double mean_iou) {
  const Json metrics = {{"mean_iou", mean_iou},
                        {"pixel_accuracy", 0.9},
                        {"class_iou", {0.9, nullptr, 0.5}},
                        {"groups", {{"drive_a", {{"mean_iou", 0.6}, {"pixel_accuracy", nullptr}}}}}};
  const Json traffic = {{"collectives_per_step", 20}, {"bytes_per_step", 1234.5}};
  return {{"start_s", 0.1},
          {"steps", 300},
          {"epochs", 9.4},
          {"images", 4800},
          {"sites", {{{"name", "encoder0.norm1"}, {"channels", 16}}}},
          {"parameters", 123456},
          {"final", {{"saved", metrics}, {"batch", metrics}}},
          {"headline", "mean_iou"},
          {"train_loss", 0.31},
          {"history",
           {{{"step", 100},
             {"epoch", 3.1},
             {"train_loss", 0.8},
             {"mean_iou", {{"saved", 0.5}, {"batch", 0.52}}}}}},
          {"throughput",
           {{"images_per_s", 45.5},
            {"step_time_s", {{"median", 0.35}, {"p10", 0.33}, {"p90", 0.4}, {"slowest_rank", 1}}},
            {"steps_measured", 295},
            {"warmup_steps", 5},
            {"seconds", {{"forward", 0.1}, {"backward", 0.2}}}}},
          {"memory",
           {{"peak_memory_bytes", {5 * 1024 * 1024, 7 * 1024 * 1024}},
            {"peak_rss_bytes", {100, 200}},
            {"weights_bytes", 500000}}},
          {"communication", {{"statistics", traffic}, {"gradients", traffic}}},
          {"nonfinite_channels", 0}};
}

// The account of a run on ranks x (towers / ranks), ended ok with this mean IoU.
inline RunAccount synthetic_account(const RunSpec& run, double mean_iou, int ranks) {
  RunAccount account;
  account.experiment = "small_batch";
  account.command = "bnlab run experiments/small_batch.json";
  account.spec = run;
  account.placement = {ranks, run.towers() / ranks, Device::cpu};
  account.backend = "gloo";
  account.environment = {{"cpu", nullptr},
                         {"logical_cores", 2},
                         {"memory_bytes", 1},
                         {"os", "Debian"},
                         {"kernel", "Linux"},
                         {"compiler", "GCC 12.2"},
                         {"build_type", "Release"},
                         {"libraries", {{"libtorch", "2.11.0"}}},
                         {"variables", {{"OMP_NUM_THREADS", "1"}}}};
  account.started_at = "2026-01-02T03:04:05Z";
  account.wall_time_s = 21.3;
  account.result = synthetic_result(mean_iou);
  return account;
}

inline Record synthetic_record(const RunSpec& run, double mean_iou, int ranks) {
  return Record(compose_record(synthetic_account(run, mean_iou, ranks)), "record.json");
}

inline Record synthetic_failure(const RunSpec& run, Status status, int ranks) {
  RunAccount account = synthetic_account(run, 0, ranks);
  account.outcome = {status, "it went wrong", 1, "SIGKILL", {"last line"}};
  account.result = nullptr;
  return Record(compose_record(account), "record.json");
}

}  // namespace bnlab
