// Nuclei under the microscope, which come with the program: 1,042 tiles of 128x128 pixels from the 664 images
// of the Data Science Bowl 2018, in three classes (Caicedo et al., Nature Methods 16, 2019; CC0).
// experiments/data/nuclei/README.md says how they were made. index.csv tells the kind of microscopy of every
// tile: metrics are also given kind by kind, and shards can be sorted by it. Tiles of one image (the part of
// a name before its '_') are never on both sides of a split.
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <texts/places.hpp>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/tasks/held_out.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::nuclei {

namespace fs = std::filesystem;

const std::vector<std::string> kClasses = {"background", "inside", "rim"};
constexpr double kHeldOut = 0.2;

// Where the images are: beside an installed program, or in the project that the program was built from; else
// below the data folder.
fs::path folder_of(const std::string& data_dir) {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  const fs::path installed = program.parent_path().parent_path() / kInstalledData;
  std::vector<fs::path> places = {fs::is_directory(installed, unknown)
                                      ? installed / "nuclei"
                                      : fs::path(kProject) / "experiments/data/nuclei"};
  if (!data_dir.empty()) places.push_back(fs::path(data_dir) / "nuclei");
  const auto found = std::ranges::find_if(places, [](const fs::path& place) {
    std::error_code error;
    return fs::is_regular_file(place / "index.csv", error);
  });
  if (found == places.end()) {
    throw Error(Error::Kind::data,
                "task nuclei: its images are missing; looked for index.csv in " +
                    joined(mapped(places, [](const fs::path& place) { return place.string(); })) +
                    "; install bnlab again, or say --data DIR where DIR/nuclei is a copy of the project's "
                    "experiments/data/nuclei");
  }
  return *found;
}

// The kind of microscopy of each tile.
std::map<std::string, std::string> read_kinds(const fs::path& index) {
  std::map<std::string, std::string> kinds;
  std::ifstream file(index);
  std::string line;
  std::getline(file, line);  // the titles
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name, image, kind;
    if (std::getline(fields, name, ',') && std::getline(fields, image, ',') &&
        std::getline(fields, kind, ',')) {
      kinds[name] = kind;
    }
  }
  return kinds;
}

// The tiles of a split's folder in the order of their names, with the images that they are of.
std::vector<LabelledFile> tiles(const fs::path& split) {
  auto files =
      pair_files({split / "images"}, {split / "labels"}, "; the folder is not complete: copy it again");
  for (LabelledFile& file : files) file.source = prefix_of(file.name);
  return files;
}

// Only the given kinds (all, if none is given); the groups become the kinds.
std::vector<LabelledFile> of_kinds(std::vector<LabelledFile> files,
                                   const std::map<std::string, std::string>& kind_of,
                                   const std::vector<std::string>& wanted) {
  for (LabelledFile& file : files) {
    const auto found = kind_of.find(file.name);
    if (found == kind_of.end())
      throw Error(Error::Kind::data, file.image + ": index.csv has no line for it; copy the folder again");
    file.group = found->second;
  }
  const std::vector<std::string> there = number_names(mapped(files, &LabelledFile::group)).names;
  for (const std::string& kind : wanted) {
    if (std::ranges::count(there, kind) == 0) {
      throw Error(Error::Kind::spec,
                  "task nuclei: there are no tiles of kind " + shown(kind) + suggestion(kind, there));
    }
  }
  std::erase_if(files, [&](const LabelledFile& file) {
    return !wanted.empty() && std::ranges::count(wanted, file.group) == 0;
  });
  return files;
}

// So many of the files, at even distances; all, where no number is given.
std::vector<LabelledFile> spread(const std::vector<LabelledFile>& files, const std::optional<int64_t>& wanted,
                                 const std::string& key) {
  const int64_t all = std::ssize(files), count = wanted.value_or(all);
  if (count > all) {
    throw Error(Error::Kind::data, "task nuclei: " + key + ": expected at most " + std::to_string(all) +
                                       ", as many tiles as there are, got " + std::to_string(count));
  }
  std::vector<LabelledFile> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(files[static_cast<size_t>(i * all / count)]);
  return chosen;
}

struct Options : PhotographOptions {
  Options() { crop = {96, 96}; }

  Evaluated test_split = Evaluated::test;
  std::vector<std::string> train_kinds, test_kinds;
  std::optional<int64_t> train, test;

  void describe(OptionVisitor& option) {
    option("test_split", test_split,
           "what is evaluated: the test images, or, to tune on, a fifth of the training images, which are "
           "then not trained on");
    option("train_kinds", train_kinds, "kinds of microscopy to train on; none named: all");
    option("test_kinds", test_kinds, "kinds of microscopy to evaluate; none named: all");
    option("train", train, "how many training tiles, spread evenly over the list; null: all").at_least(1);
    option("test", test, "how many test tiles, likewise").at_least(1);
    PhotographOptions::describe(option);
  }

  PhotographSet photographs(const std::string& data_dir) const {
    const fs::path folder = folder_of(data_dir);
    Split files = test_split == Evaluated::test ? Split{tiles(folder / "train"), tiles(folder / "test")}
                                                : hold_out(tiles(folder / "train"), kHeldOut);
    const auto kinds = read_kinds(folder / "index.csv");
    return {.training = spread(of_kinds(std::move(files.training), kinds, train_kinds), train, "train"),
            .test = spread(of_kinds(std::move(files.test), kinds, test_kinds), test, "test"),
            .classes = kClasses,
            .labels = label_map(std::ssize(kClasses), {}),
            .groups = true,
            .one_size = true};
  }
  std::string files_below(const std::string& data_dir) const {
    return folder_of(data_dir).parent_path().string();
  }
  Paths files(const std::string& data_dir) const {  // the tiles, and the list of their kinds
    Paths paths = paths_of(photographs(data_dir));
    paths.push_back((folder_of(data_dir) / "index.csv").string());
    return paths;
  }
  std::vector<std::string> sort_keys() const { return {"kind", "brightness", "class"}; }
  std::vector<std::string> test_sort_keys() const { return {"kind", "brightness"}; }
};

const Registered<Task> entry{
    {.name = "nuclei",
     .summary = "photographs of nuclei under the microscope, 3 classes; they come with the program",
     .source = "Caicedo et al., Nature Methods 16, 2019: the 2018 Data Science Bowl, at half size"},
    make<Task, PhotographTaskOf<Options>>};

}  // namespace bnlab::nuclei
