// bnlab labels: label maps whose classes are colours, made into the ids that tasks read.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>

#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/tasks/data_check.hpp"
#include "harness/tasks/images/image_file.hpp"
#include "harness/tasks/images/listing.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

struct LabelsRequest {
  std::string from, to, colours;
};

constexpr size_t kMostIds = 256;

using Colour = std::array<uint8_t, 3>;
using IdOf = std::map<Colour, uint8_t>;

std::string text_of(const Colour& colour) {
  char text[7];
  std::snprintf(text, sizeof text, "%02x%02x%02x", colour[0], colour[1], colour[2]);
  return text;
}

Colour colour_at(const Pixels& pixels, size_t place) {
  return {pixels.values[place], pixels.values[place + 1], pixels.values[place + 2]};
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Error::Kind::usage, "labels: " + message);
}

IdOf grey_ids() {
  IdOf ids;
  for (size_t id = 0; id < kMostIds; ++id) {
    const auto value = static_cast<uint8_t>(id);
    ids[{value, value, value}] = value;
  }
  return ids;
}

IdOf voc_ids() {
  IdOf ids;
  for (size_t id = 0; id < kMostIds; ++id) {
    ids[class_colour(static_cast<uint8_t>(id))] = static_cast<uint8_t>(id);
  }
  return ids;
}

// "000000=0,ff0000=1"
IdOf given_ids(const std::string& text) {
  IdOf ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    unsigned red = 0, green = 0, blue = 0, id = 0;
    int read = 0;
    const std::string part = text.substr(begin, end - begin);
    const int found = std::sscanf(part.c_str(), "%2x%2x%2x=%3u%n", &red, &green, &blue, &id, &read);
    if (found != 4 || static_cast<size_t>(read) != part.size() || part.find('=') != 6 || id >= kMostIds) {
      refuse("--colours: expected grey, voc or RRGGBB=ID,... with ids up to 255, got '" + part + "'");
    }
    const Colour colour = {static_cast<uint8_t>(red), static_cast<uint8_t>(green),
                           static_cast<uint8_t>(blue)};
    if (!ids.emplace(colour, static_cast<uint8_t>(id)).second) {
      refuse("--colours: " + text_of(colour) + " is given twice");
    }
    begin = end + 1;
  }
  return ids;
}

IdOf ids_of(const std::string& colours) {
  return colours == "grey" ? grey_ids() : colours == "voc" ? voc_ids() : given_ids(colours);
}

// The PNGs of a folder and those below it, in order.
std::vector<fs::path> label_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (ending_of(entry->path()) == ".png" && !entry->path().filename().string().starts_with(".")) {
      files.push_back(entry->path());
    }
  }
  if (error || files.empty()) {
    refuse(folder.string() + (error ? ": cannot be listed (" + error.message() + ")"
                                    : ": expected label maps, PNG files, got none"));
  }
  std::ranges::sort(files);
  return files;
}

struct Use {
  int64_t pixels = 0, files = 0;
  std::string first;  // a file that has the colour
};

std::map<Colour, Use> colours_in(const std::vector<fs::path>& files) {
  std::map<Colour, Use> uses;
  for (const fs::path& file : files) {
    const Pixels pixels = read_label_colours(file.string());
    std::set<Colour> here;
    for (size_t i = 0; i < pixels.values.size(); i += 3) {
      const Colour colour = colour_at(pixels, i);
      Use& use = uses[colour];
      ++use.pixels;
      if (use.pixels == 1) use.first = file.string();
      if (here.insert(colour).second) ++use.files;
    }
    if (uses.size() > 16 * kMostIds) {
      refuse(file.string() + ": more than " + std::to_string(16 * kMostIds) +
             " colours; these are no label maps, or they were smoothed or saved as JPEG: export them again");
    }
  }
  return uses;
}

// The value of --colours that covers these colours: by a rule, else numbered, the most frequent first.
std::string suggested(const std::map<Colour, Use>& uses) {
  for (const std::string name : {"grey", "voc"}) {
    const IdOf ids = ids_of(name);
    if (std::ranges::all_of(uses, [&](const auto& use) { return ids.contains(use.first); })) {
      return name;
    }
  }
  std::vector<std::pair<int64_t, Colour>> order;
  for (const auto& [colour, use] : uses) {
    order.emplace_back(-use.pixels, colour);
  }
  std::ranges::sort(order);
  std::string text;
  for (size_t id = 0; id < order.size(); ++id) {
    text += (id == 0 ? "" : ",") + text_of(order[id].second) + "=" + std::to_string(id);
  }
  return text;
}

int show_colours(const LabelsRequest& request, const std::vector<fs::path>& files) {
  const std::map<Colour, Use> uses = colours_in(files);
  if (uses.size() > kMostIds) {
    refuse(request.from + ": " + std::to_string(uses.size()) +
           " colours, but ids are at most 256; the label maps were smoothed or saved as JPEG: export them "
           "again");
  }
  TextTable table{{{"colour"}, {"pixels", true}, {"files", true}}, {}};
  for (const auto& [colour, use] : uses) {
    table.rows.push_back({text_of(colour), std::to_string(use.pixels), std::to_string(use.files)});
  }
  std::cout << table.text() << "bnlab labels '" << request.from << "' '" << request.to << "' --colours "
            << suggested(uses) << "\n";
  std::cerr << "the last line makes ids of these colours; put the id that you want behind each colour\n";
  return exit_code::kOk;
}

void refuse_unknown(const std::map<Colour, Use>& uses, const IdOf& ids) {
  std::vector<DataFault> faults;
  for (const auto& [colour, use] : uses) {
    if (!ids.contains(colour)) {
      faults.push_back({"colours without an id", use.first + ": " + text_of(colour) + ", " +
                                                     std::to_string(use.pixels) + " pixels in " +
                                                     std::to_string(use.files) + " files"});
    }
  }
  if (!faults.empty()) {
    refuse("nothing is written, for --colours gives no id to some colours:\n" + text_of_faults(faults));
  }
}

int labels(const LabelsRequest& request) {
  const fs::path from = fs::absolute(request.from).lexically_normal(),
                 to = fs::absolute(request.to).lexically_normal();
  const std::string inside = to.lexically_relative(from).generic_string();
  if (!inside.starts_with("..")) {
    refuse(request.to + ": expected a folder outside of " + request.from + ", whose files stay as they are");
  }
  const std::vector<fs::path> files = label_files(from);
  if (request.colours.empty()) {
    return show_colours(request, files);
  }
  const IdOf ids = ids_of(request.colours);
  refuse_unknown(colours_in(files), ids);
  for (const fs::path& file : files) {
    const Pixels colours = read_label_colours(file.string());
    Pixels map{colours.height, colours.width, 1, {}};
    map.values.reserve(colours.values.size() / 3);
    for (size_t i = 0; i < colours.values.size(); i += 3) {
      map.values.push_back(ids.at(colour_at(colours, i)));
    }
    const fs::path written = to / file.lexically_relative(from);
    std::error_code error;
    fs::create_directories(written.parent_path(), error);
    write_png(written.string(), map);
  }
  std::cerr << files.size() << " label maps written to " << request.to << "\n";
  return exit_code::kOk;
}

}  // namespace

void add_labels(Program& program) {
  auto [command, request] = add_command(
      program, "labels", "Make label ids of label maps whose classes are colours",
      "  bnlab labels mydata/labels mydata/labels_ids    the colours, and the command that maps them\n"
      "  bnlab labels mydata/labels mydata/labels_ids --colours 000000=0,ff0000=1,ffffff=255\n"
      "  bnlab labels mydata/labels mydata/labels_ids --colours voc",
      labels);
  command.add_option("FROM", request.from, "Folder of label maps (PNG), searched below, too")->required();
  command.add_option("TO", request.to, "Folder for the same files with ids, under the same names")
      ->required();
  command
      .add_option("--colours", request.colours,
                  "RRGGBB=ID,...; grey: the grey value is the id, also of 16 bits and with transparency; "
                  "voc: the palette of PASCAL VOC. Without it the colours are shown")
      ->type_name("MAP");
}

}  // namespace bnlab
