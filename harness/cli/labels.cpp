// bnlab labels: label maps of any kind made into the ids that tasks read. Ids stay what they are; colours get
// the ids that the user says.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/program.hpp"
#include "harness/support/error.hpp"
#include "harness/support/printable.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/text_table.hpp"
#include "harness/tasks/data_check.hpp"
#include "harness/tasks/images/image_file.hpp"
#include "harness/tasks/images/listing.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

struct LabelsRequest {
  std::string from, to, colours;
  std::vector<std::string> more;  // FROM and TO of other folders

  void describe(Arguments& option) {
    option("FROM", from, "Folder of label maps (PNG), searched below, too");
    option("TO", to, "Folder for the same files with ids, under the same names");
    option("[MORE]", more,
           "FROM and TO of other folders, such as another split's, where a colour has the same id");
    option("--colours MAP", colours,
           "Which colour is which id: RRGGBB=ID,...; grey: the grey value is the id, also of 16 bits and "
           "with transparency; voc: the palette of PASCAL VOC. Without it the colours are shown");
  }
};

constexpr size_t kMostIds = 256;

using Colour = std::array<uint8_t, 3>;
using IdOf = std::map<Colour, uint8_t>;

std::string text_of(const Colour& colour) {
  char text[7];
  std::snprintf(text, sizeof text, "%02x%02x%02x", colour[0], colour[1], colour[2]);
  return text;
}

Colour colour_at(const Pixels& pixels, size_t pixel) {
  const uint8_t* at = pixels.values.data() + 3 * pixel;
  return {at[0], at[1], at[2]};
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
  for (size_t id = 0; id < kMostIds; ++id)
    ids[class_colour(static_cast<uint8_t>(id))] = static_cast<uint8_t>(id);
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
      refuse("--colours: expected grey, voc or RRGGBB=ID,... with ids up to 255, got '" + part + "'" +
             (part.ends_with("=?") ? "; put the id that the colour has in place of ?" : ""));
    }
    const Colour colour = {static_cast<uint8_t>(red), static_cast<uint8_t>(green),
                           static_cast<uint8_t>(blue)};
    if (!ids.emplace(colour, static_cast<uint8_t>(id)).second)
      refuse("--colours: " + text_of(colour) + " is given twice");
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
  try {
    std::ranges::copy_if(files_below(folder), std::back_inserter(files),
                         [](const fs::path& file) { return ending_of(file) == ".png"; });
  } catch (const fs::filesystem_error& error) {
    refuse(error.path1().string() + ": cannot be listed (" + error.code().message() + ")");
  }
  if (files.empty()) refuse(folder.string() + ": expected label maps, PNG files, got none");
  std::ranges::sort(files);
  return files;
}

struct Folder {
  fs::path from, to;
  std::vector<fs::path> files;
};

// Folders whose labels belong together: a colour has one id in all of them.
std::vector<Folder> folders_of(const LabelsRequest& request) {
  if (request.more.size() % 2 != 0)
    refuse(request.more.back() + ": expected a folder FROM and a folder TO, in turn");
  std::vector<std::string> given = {request.from, request.to};
  given.insert(given.end(), request.more.begin(), request.more.end());
  std::vector<Folder> folders;
  for (size_t i = 0; i < given.size(); i += 2) {
    const auto whole = [](const std::string& name) { return fs::absolute(name).lexically_normal(); };
    if (!whole(given[i + 1]).lexically_relative(whole(given[i])).generic_string().starts_with(".."))
      refuse(given[i + 1] + ": expected a folder outside of " + given[i] + ", whose files stay as they are");
    folders.push_back({given[i], given[i + 1], label_files(given[i])});
  }
  return folders;
}

struct Use {
  int64_t pixels = 0, files = 0;
  std::string first;  // a file that has the colour
};

// What the label maps of all folders hold.
struct Survey {
  std::array<int64_t, 3> files{};                        // by LabelFile::Kind
  std::map<Colour, Use> colours;                         // in files of colours
  std::map<Colour, std::map<uint8_t, std::string>> ids;  // in palettes, each with a file

  int64_t of(LabelFile::Kind kind) const { return files[static_cast<size_t>(kind)]; }
  int64_t with_ids() const { return of(LabelFile::Kind::ids) + of(LabelFile::Kind::wide_ids); }
};

void count_colours(const std::string& file, const Pixels& pixels, std::map<Colour, Use>& uses) {
  std::set<Colour> here;
  for (size_t i = 0; i < pixels.values.size() / 3; ++i) {
    const Colour colour = colour_at(pixels, i);
    Use& use = uses[colour];
    ++use.pixels;
    if (use.pixels == 1) use.first = file;
    if (here.insert(colour).second) ++use.files;
  }
  if (uses.size() > 16 * kMostIds) {
    refuse(file + ": more than " + std::to_string(16 * kMostIds) +
           " colours; these are no label maps, or they were smoothed or saved as JPEG: export them again");
  }
}

Survey survey_of(const std::vector<Folder>& folders) {
  Survey survey;
  for (const Folder& folder : folders) {
    for (const fs::path& file : folder.files) {
      const LabelFile read = read_label_file(file.string());
      ++survey.files[static_cast<size_t>(read.kind)];
      if (read.kind == LabelFile::Kind::colours) count_colours(file.string(), read.pixels, survey.colours);
      for (size_t id = 0; id < read.palette.size(); ++id) {
        const auto as_read = static_cast<uint8_t>(id);
        if (std::ranges::count(read.pixels.values, as_read) > 0)
          survey.ids[read.palette[id]].emplace(as_read, file.string());
      }
    }
  }
  return survey;
}

// Whether the palettes say nothing else.
bool agrees(const IdOf& ids, const Survey& survey) {
  return std::ranges::all_of(survey.ids, [&](const auto& known) {
    const auto found = ids.find(known.first);
    return found == ids.end() || (known.second.size() == 1 && known.second.contains(found->second));
  });
}

// Whether a rule tells the ids of all colours. VOC's colours beside ids of another origin may mean anything.
bool explains(const std::string& rule, const Survey& survey) {
  const IdOf ids = ids_of(rule);
  const auto knows = [&](const auto& entry) { return ids.contains(entry.first); };
  const bool one_origin = rule == "grey" || survey.with_ids() == 0 ||
                          (!survey.ids.empty() && std::ranges::all_of(survey.ids, knows));
  return one_origin && std::ranges::all_of(survey.colours, knows) && agrees(ids, survey);
}

// The value of --colours that covers the colours: by a rule; else the id that palettes give to one; else
// numbered, the most frequent first, but where other files hold ids nobody but the user knows which.
std::string suggested(const Survey& survey) {
  for (const std::string rule : {"grey", "voc"})
    if (explains(rule, survey)) return rule;
  std::vector<std::pair<int64_t, Colour>> order;
  for (const auto& [colour, use] : survey.colours) order.emplace_back(-use.pixels, colour);
  std::ranges::sort(order);
  std::string text;
  for (size_t place = 0; place < order.size(); ++place) {
    const auto known = survey.ids.find(order[place].second);
    const std::string id = survey.with_ids() == 0 ? std::to_string(place)
                           : known != survey.ids.end() && known->second.size() == 1
                               ? std::to_string(known->second.begin()->first)
                               : "?";
    text += (place == 0 ? "" : ",") + text_of(order[place].second) + "=" + id;
  }
  return text;
}

// What becomes of files that hold ids, of which no colour is asked.
void tell_kinds(const Survey& survey) {
  if (survey.with_ids() > 0 && survey.with_ids() != survey.of(LabelFile::Kind::ids)) {
    std::cerr << survey.of(LabelFile::Kind::wide_ids)
              << " files with ids of 16 bits or with transparency: the same ids of 8 bits\n";
  }
  if (survey.of(LabelFile::Kind::ids) > 0) {
    std::cerr << survey.of(LabelFile::Kind::ids)
              << " files with ids, grey or palette: as they are, by id and not by colour\n";
  }
  for (const auto& [colour, ids] : survey.ids) {
    if (ids.size() > 1) {
      const auto& [one, first] = *ids.begin();
      const auto& [other, second] = *std::next(ids.begin());
      std::cerr << "note: " << text_of(colour) << " is id " << int{one} << " in " << printable(first)
                << " and id " << int{other} << " in " << printable(second)
                << "; if the colour tells the class, save these files as RGB first\n";
    }
  }
}

int show_colours(const LabelsRequest& request, const Survey& survey) {
  if (survey.colours.size() > kMostIds) {
    refuse(request.from + ": " + std::to_string(survey.colours.size()) +
           " colours, but ids are at most 256; the label maps were smoothed or saved as JPEG: export them "
           "again");
  }
  TextTable table{{{"colour"}, {"pixels", true}, {"files", true}}, {}};
  for (const auto& [colour, use] : survey.colours)
    table.rows.push_back({text_of(colour), std::to_string(use.pixels), std::to_string(use.files)});
  std::vector<std::string> words = {request.from, request.to};
  words.insert(words.end(), request.more.begin(), request.more.end());
  words.insert(words.end(), {"--colours", suggested(survey)});
  std::cout << table.text() << shell_command("bnlab labels", words) << "\n";
  tell_kinds(survey);
  std::cerr << "the last line makes ids of these colours; put the id that you want behind each colour"
            << (survey.with_ids() > 0 ? ": the one that the files with ids have for its class" : "") << "\n";
  return exit_code::kOk;
}

// Nothing is written unless every colour has one id.
void check_ids(const Survey& survey, const IdOf& ids) {
  std::vector<DataFault> faults;
  for (const auto& [colour, use] : survey.colours) {
    if (!ids.contains(colour)) {
      faults.push_back({"colours without an id", use.first + ": " + text_of(colour) + ", " +
                                                     std::to_string(use.pixels) + " pixels in " +
                                                     std::to_string(use.files) + " files"});
    }
  }
  for (const auto& [colour, known] : survey.ids) {
    for (const auto& [id, file] : known) {
      if (ids.contains(colour) && ids.at(colour) != id) {
        faults.push_back({"colours with another id", file + ": " + text_of(colour) + " has id " +
                                                         std::to_string(id) + ", which stays, and not " +
                                                         std::to_string(ids.at(colour))});
      }
    }
  }
  if (!faults.empty()) refuse("nothing is written, for --colours does not fit:\n" + text_of_faults(faults));
}

Pixels ids_in(LabelFile file, const IdOf& ids) {
  if (file.kind != LabelFile::Kind::colours) return std::move(file.pixels);
  Pixels map{.height = file.pixels.height, .width = file.pixels.width, .channels = 1, .values = {}};
  for (size_t i = 0; i < file.pixels.values.size() / 3; ++i)
    map.values.push_back(ids.at(colour_at(file.pixels, i)));
  return map;
}

int labels(const LabelsRequest& request) {
  const std::vector<Folder> folders = folders_of(request);
  const Survey survey = survey_of(folders);
  if (!survey.colours.empty() && request.colours.empty()) return show_colours(request, survey);
  const IdOf ids = request.colours.empty() ? IdOf() : ids_of(request.colours);
  check_ids(survey, ids);
  for (const Folder& folder : folders) {
    for (const fs::path& file : folder.files) {
      const fs::path written = folder.to / file.lexically_relative(folder.from);
      std::error_code error;
      fs::create_directories(written.parent_path(), error);
      write_png(written.string(), ids_in(read_label_file(file.string()), ids));
    }
    std::cerr << folder.files.size() << " label maps written to " << folder.to.string() << "\n";
  }
  tell_kinds(survey);
  return exit_code::kOk;
}

const Command labels_command("labels", {Heading::this_machine, 2},
                             "Make label ids of label maps whose classes are colours",
                             "  bnlab labels mydata/labels mydata/labels_ids    shows the colours\n"
                             "  bnlab labels mydata/labels mydata/labels_ids --colours 000000=0,ff0000=1\n"
                             "  bnlab labels mydata/labels mydata/labels_ids --colours voc",
                             labels);

}  // namespace
}  // namespace bnlab
