// bnlab predict: what trained networks answer for test images, as pictures beside the truth.
#include <filesystem>
#include <iostream>
#include <set>

#include "harness/cli/asked_weights.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/inference/trained_run.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/tasks/images/image_file.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

struct PredictRequest {
  std::vector<std::string> weights;
  AskedWeights asked;
  std::string out, population = "saved";
  std::vector<int64_t> samples;
  int64_t count = 6;

  void describe(Arguments& option) {
    option("WEIGHTS", weights, "Folders of runs of one task, or their weights.safetensors files");
    option("--out DIR", out, "Folder for label maps (palette PNG), overlays and predictions.json").needed();
    option("--samples N,...", samples, "Samples of the test split, counted from 0")
        .from(0)
        .by_commas()
        .expects("numbers from 0 on, such as 0,17,230");
    option("--count N", count, "Take so many samples, spread over the test split")
        .from(1, 1e6)
        .not_with({"--samples"});
    option("--population NAME", population,
           "Running statistics: saved, batch, precise, or one that the runs carried");
    asked.describe(option);
  }
};

std::vector<EvaluateJob> jobs_of(const PredictRequest& request) {
  std::vector<EvaluateJob> jobs;
  std::set<std::string> ids;
  for (const std::string& weights : request.weights) {
    EvaluateJob job = request.asked.job;
    job.weights = weights;
    job.populations = {request.population};
    jobs.push_back(job_of_weights(job, request.asked.spec));
    const RunSpec &first = jobs.front().spec, &own = jobs.back().spec;
    if (own.task != first.task) {
      throw Error(Error::Kind::usage, weights + ": expected a run of the same task as " +
                                          request.weights.front() + ", " + first.task.dump() +
                                          ", got one of " + own.task.dump());
    }
    if (!ids.insert(own.id).second)
      throw Error(Error::Kind::usage, weights + ": the run " + own.id + " is asked for twice");
  }
  return jobs;
}

// Image and classes half and half.
Pixels overlay(const Prediction& prediction) {
  Pixels mixed{
      .height = prediction.height, .width = prediction.width, .channels = 3, .values = prediction.image};
  for (size_t i = 0; i < mixed.values.size(); ++i) {
    const uint8_t colour = class_colour(prediction.predicted[i / 3])[i % 3];
    mixed.values[i] = static_cast<uint8_t>((mixed.values[i] + colour) / 2);
  }
  return mixed;
}

class Pictures {
 public:
  explicit Pictures(const fs::path& folder) : folder_(folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)
      throw Error(Error::Kind::environment, folder.string() + ": cannot be made (" + error.message() + ")");
  }

  // The picture's name in the folder.
  std::string write(int64_t sample, const std::string& what, const Pixels& pixels) const {
    const std::string digits = std::to_string(sample);
    const std::string name =
        std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + "-" + what + ".png";
    write_png((folder_ / name).string(), pixels);
    return name;
  }

 private:
  fs::path folder_;
};

// All runs must have been asked about the same images: those of synthetic tasks are made from the seed.
void check_same(const std::vector<Prediction>& predictions, const std::vector<Prediction>& first,
                const std::string& run) {
  for (size_t i = 0; i < first.size(); ++i) {
    if (i >= predictions.size() || predictions[i].image != first[i].image ||
        predictions[i].truth != first[i].truth) {
      throw Error(Error::Kind::usage,
                  run +
                      ": expected the test images of the first run, got others (a synthetic task makes "
                      "them from the seed); ask for runs of one seed");
    }
  }
}

int predict_all(const PredictRequest& request) {
  const std::vector<EvaluateJob> jobs = jobs_of(request);
  std::vector<std::vector<Prediction>> predictions;
  for (const EvaluateJob& job : jobs) {
    std::cerr << "predicting with " << job.spec.id << "\n";
    predictions.push_back(as_usage([&] { return predict(job, request.samples, request.count); }));
    check_same(predictions.back(), predictions.front(), job.spec.id);
  }
  const Pictures pictures(request.out);
  Json samples = Json::array(), runs = Json::array();
  for (const auto& [sample, height, width, image, truth, answer] : predictions.front()) {
    samples.push_back(
        {{"sample", sample},
         {"image", pictures.write(sample, "image",
                                  {.height = height, .width = width, .channels = 3, .values = image})},
         {"truth", pictures.write(sample, "truth",
                                  {.height = height, .width = width, .channels = 1, .values = truth})}});
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    const RunSpec& run = jobs[i].spec;
    Json answers = Json::array();
    for (const Prediction& each : predictions[i]) {
      answers.push_back(pictures.write(
          each.sample, run.id,
          {.height = each.height, .width = each.width, .channels = 1, .values = each.predicted}));
      pictures.write(each.sample, run.id + "-overlay", overlay(each));
    }
    runs.push_back({{"run_id", run.id},
                    {"strategy", label(run.strategy)},
                    {"towers", run.towers()},
                    {"batch_per_tower", run.resolved.at("batch_per_tower")},
                    {"seed", run.seed},
                    {"answers", answers}});
  }
  write_json(fs::path(request.out) / "predictions.json", {{"task", jobs.front().spec.task},
                                                          {"population", request.population},
                                                          {"samples", samples},
                                                          {"runs", runs}});
  std::cout << "pictures: " << request.out
            << "\ncontact sheet: " << shell_command("scripts/plot.sh", {request.out}) << "\n";
  return exit_code::kOk;
}

const Command predict_command(
    "predict", {Heading::trained_networks, 3}, "Draw what trained networks predict for test images",
    "  bnlab predict results/here/quickstart/*-seed0-*/*-cpu --out predictions\n"
    "  bnlab predict WEIGHTS --samples 0,17,230 --population batch --out predictions",
    predict_all);

}  // namespace
}  // namespace bnlab
