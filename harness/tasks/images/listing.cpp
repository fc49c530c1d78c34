#include "harness/tasks/images/listing.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/text_file.hpp"
#include "harness/tasks/held_out.hpp"
#include "harness/tasks/images/spelling.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
using Endings = std::vector<std::string>;

const Endings kImageEndings = {".jpg", ".jpeg", ".png"}, kLabelEndings = {".png"};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Error::Kind::data, message);
}

bool leads_out(const fs::path& path) {
  return path.empty() || path.is_absolute() || *path.lexically_normal().begin() == "..";
}

bool has_ending(const fs::path& path, const Endings& endings) {
  return std::ranges::count(endings, ending_of(path)) > 0;
}

// The name of a file, or "" if its suffix or ending is another.
std::string name_in(const Side& side, const fs::path& path, const Endings& endings) {
  const fs::path inside = path.lexically_relative(side.folder);
  if (!has_ending(path, endings)) return "";
  for (const fs::path& text : {fs::path(inside).replace_extension(), inside}) {
    const std::string whole = text.generic_string();
    if (whole.ends_with(side.suffix)) return whole.substr(0, whole.size() - side.suffix.size());
  }
  return "";
}

// What makes label maps of annotations in JSON: of a file in a folder, or "" where there is none.
std::string cure_for_json(const fs::path& folder, const fs::path& labels) {
  std::error_code error;
  std::set<fs::path> files;  // in an order that no file system decides
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".json") files.insert(entry->path());
  return files.empty()
             ? ""
             : "; annotations in JSON files are not read; those of COCO become one PNG of ids per image, " +
                   source_command(".venv/bin/python scripts/coco_labels.py",
                                  {files.begin()->string(), labels.string()});
}

std::map<std::string, fs::path> files_by_name(const Side& side, const Endings& endings,
                                              const std::string& cure) {
  std::map<std::string, fs::path> found;
  try {
    for (const fs::path& file : files_below(side.folder)) {
      const std::string name = name_in(side, file, endings);
      if (!name.empty() && !found.emplace(name, file).second)
        refuse(file.string() + ": the folder has two pictures of this name; remove one");
    }
  } catch (const fs::filesystem_error& error) {
    const std::string message =
        error.path1().string() + ": cannot be listed (" + error.code().message() + ")";
    if (error.path1() != side.folder) refuse(message);
    std::string converted;
    const fs::path around = side.folder.parent_path();
    for (const fs::path& folder : {around, around / "annotations"})
      if (endings == kLabelEndings && converted.empty()) converted = cure_for_json(folder, side.folder);
    refuse(message + (converted.empty() ? cure : converted));
  }
  return found;
}

// The file of a name that does not exist, as a person would look for it.
fs::path expected_file(const Side& side, const std::string& name, const Endings& endings) {
  const bool complete = has_ending("x" + side.suffix, endings);
  return side.folder / (name + side.suffix + (complete ? "" : endings.back()));
}

std::string missing_labels(const Side& labels, const std::string& name, const fs::path& image,
                           const std::string& cure) {
  const fs::path expected = expected_file(labels, name, kLabelEndings);
  const std::string message = expected.string() + ": missing, the labels of " + image.string();
  for (const char* ending : {".jpg", ".jpeg", ".JPG"}) {
    if (fs::path other = expected; fs::exists(other.replace_extension(ending))) {
      return message + "; " + other.string() +
             " is no help: JPEG changes the ids of pixels, so export the labels as PNG";
    }
  }
  if (const std::string converted =
          cure_for_json(expected.parent_path(), expected.parent_path().parent_path() / "labels_ids");
      !converted.empty()) {
    return message + converted;
  }
  return message + cure;
}

std::string missing_image(const Side& images, const std::string& name, const fs::path& labels,
                          const std::string& cure) {
  const std::string message = images.folder.string() + ": the image of " + labels.string() + " is missing";
  for (const char* ending : {".tif", ".tiff", ".webp", ".bmp", ".gif", ".avif", ".TIF", ".TIFF"}) {
    const fs::path other = images.folder / (name + images.suffix + ending);
    if (fs::exists(other)) {
      return message + "; " + other.string() + " is not read: convert all of them to PNG, " +
             source_command(".venv/bin/python scripts/convert_images.py", {images.folder.string()});
    }
  }
  for (const char* ending : {".heic", ".HEIC"})
    if (const fs::path other = images.folder / (name + images.suffix + ending); fs::exists(other))
      return message + "; " + other.string() + " is not read: export all of them as JPEG";
  return message + cure;
}

// Whether there is such a file or folder: not, where no file system takes the name.
bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

// A path of a list file: as it stands below the root, or the longest tail of an absolute one.
fs::path listed_file(const fs::path& root, const std::string& word, Spellings& spellings,
                     const std::string& where) {
  const fs::path given = listed_path(root, word);
  fs::path tail = given.lexically_normal().relative_path();
  if (!given.is_absolute() && leads_out(given))
    refuse(where + ": " + given.string() + " leads out of " + root.string() + "; name files below it");
  while (given.is_absolute() && !is_there(spellings.find(root / tail)) &&
         std::distance(tail.begin(), tail.end()) > 1) {
    tail = tail.lexically_relative(*tail.begin());
  }
  const fs::path file = spellings.find(root / tail);
  if (!is_file(file)) {
    refuse(where + ": " + (root / given.relative_path()).string() +
           " does not exist; lines are `image label`, with paths below " + root.string());
  }
  return file;
}

// The file of a name that a list gives alone.
fs::path named_file(const Side& side, const std::string& word, const Endings& endings, Spellings& spellings,
                    const std::string& where) {
  const std::string name = listed_path(side.folder, word).string();
  if (leads_out(name) || leads_out(name + side.suffix))
    refuse(where + ": " + name + side.suffix + " leads out of " + side.folder.string());
  for (const std::string& ending : endings) {
    for (const std::string& file : {name + side.suffix + ending, name + side.suffix}) {
      const fs::path path = spellings.find(side.folder / file);
      if (has_ending(path, endings) && is_file(path)) return path;
    }
  }
  refuse(where + ": " + expected_file(side, name, endings).string() + " does not exist");
}

}  // namespace

bool hidden(const fs::path& path) {
  static const std::set<std::string> left = {
      "@eaDir", "@tmp", "#recycle", "__MACOSX", "$RECYCLE.BIN", "System Volume Information", "lost+found"};
  const std::string name = path.filename().string();
  return name.starts_with(".") || left.contains(name);
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::vector<fs::path> around;  // folders, as they lie
  const std::function<void(const fs::path&)> list = [&](const fs::path& inside) {
    const fs::path real = fs::canonical(inside);
    const auto within = [&](const fs::path& other) {
      return *other.lexically_relative(real).begin() != "..";
    };
    if (std::ranges::any_of(around, within)) return;
    around.push_back(real);
    for (const fs::directory_entry& entry : fs::directory_iterator(inside)) {
      std::error_code none;  // a link may lead to nothing
      if (hidden(entry.path())) continue;
      if (entry.is_directory(none)) list(entry.path());
      if (entry.is_regular_file(none)) files.push_back(entry.path());
    }
    around.pop_back();
  };
  list(folder);
  return files;
}

fs::path data_root(const std::string& data_dir, const std::string& task, const std::string& root) {
  if (data_dir.empty()) {
    throw Error(Error::Kind::usage,
                "task " + task + ": no data folder given; say --data DIR, or set BNLAB_DATA, where DIR/" +
                    root + " holds the images");
  }
  if (!fs::is_directory(data_dir)) throw Error(Error::Kind::usage, "--data " + data_dir + ": no such folder");
  const fs::path folder = below(data_dir, root, "root");
  if (!fs::is_directory(folder)) {
    const fs::path around = folder.has_filename() ? folder.parent_path() : folder.parent_path().parent_path();
    std::vector<std::string> there;
    std::error_code error;
    for (fs::directory_iterator entry(around, error), end; !error && entry != end; entry.increment(error))
      if (entry->is_directory(error)) there.push_back(entry->path().filename().string());
    const std::string near = nearest(fs::path(root).filename().string(), there);
    if (!near.empty()) {
      refuse(folder.string() + ": no such folder; did you mean \"root\": " +
             shown((fs::path(root).parent_path() / near).generic_string()) + "?");
    }
  }
  return folder;
}

fs::path below(const fs::path& parent, const fs::path& given, const std::string& key) {
  if (leads_out(given)) {
    throw Error(Error::Kind::spec, "task." + key + ": expected a folder below " + parent.string() +
                                       ", got '" + given.string() + "'");
  }
  return Spellings().find(parent / given.lexically_normal());
}

std::vector<LabelledFile> pair_files(const Side& images, const Side& labels, const std::string& cure) {
  const auto image_of = files_by_name(images, kImageEndings, cure);
  auto labels_of = files_by_name(labels, kLabelEndings, cure);
  std::map<std::u32string, std::string> spelt;  // labels whose image has another spelling, or none
  for (const auto& [name, path] : labels_of)
    if (!image_of.contains(name)) spelt.emplace(canonical(name), name);
  std::vector<LabelledFile> files;
  for (const auto& [name, image] : image_of) {
    auto found = labels_of.find(name);
    if (found == labels_of.end())
      if (const auto other = spelt.find(canonical(name)); other != spelt.end())
        found = labels_of.find(other->second);
    if (found == labels_of.end()) {
      files.push_back({.image = image.string(),
                       .name = name,
                       .fault = {"images without labels", missing_labels(labels, name, image, cure)}});
    } else {
      files.push_back({image.string(), found->second.string(), name});
      labels_of.erase(found);
    }
  }
  for (const auto& [name, path] : labels_of) {
    files.push_back({.labels = path.string(),
                     .name = name,
                     .fault = {"labels without images", missing_image(images, name, path, cure)}});
  }
  if (files.empty()) {
    const std::string suffix = images.suffix.empty() ? "" : "whose names end with " + images.suffix + " ";
    refuse(images.folder.string() + ": no images here " + suffix + "(.jpg or .png)" + cure);
  }
  return files;
}

void refuse_faults(const std::vector<LabelledFile>& files) {
  std::vector<DataFault> faults;
  for (const LabelledFile& file : files)
    if (!file.fault.message.empty()) faults.push_back(file.fault);
  if (!faults.empty()) throw FaultyData(std::move(faults));
}

std::vector<ListLine> lines_of_list(const fs::path& list) {
  constexpr const char *kBlanks = " \t\v\f", *kMark = "\xef\xbb\xbf";  // U+FEFF
  if (!fs::exists(list)) refuse(list.string() + ": does not exist; it names the files, one or a pair a line");
  std::string text = read_text(list);
  if (text.find('\0') != std::string::npos) {
    refuse(list.string() + ": expected a list in UTF-8, got another encoding; this converts it: " +
           shell_command("iconv -f UTF-16 -t UTF-8 -o", {list.string() + ".utf8", list.string()}));
  }
  if (text.starts_with(kMark)) text.erase(0, 3);
  std::vector<ListLine> lines;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
    ++number;
    const size_t first = line.find_first_not_of(kBlanks);
    if (first != std::string::npos) {
      lines.push_back({list.string() + ", line " + std::to_string(number),
                       line.substr(first, line.find_last_not_of(kBlanks) + 1 - first)});
    }
  }
  return lines;
}

fs::path listed_path(const fs::path& folder, const std::string& given) {
  if (given.find('\\') == std::string::npos || is_there(folder / given)) return given;
  std::string path = given;
  std::ranges::replace(path, '\\', '/');
  const bool drive = path.size() > 2 && std::isalpha(static_cast<unsigned char>(path[0])) != 0 &&
                     path.compare(1, 2, ":/") == 0;
  return drive ? path.substr(2) : path;
}

std::vector<LabelledFile> read_list(const fs::path& list, const fs::path& root, const Side& images,
                                    const Side& labels) {
  std::vector<LabelledFile> files;
  std::map<std::string, std::string> seen;  // image: where it was listed
  Spellings spellings;
  for (const auto& [where, text] : lines_of_list(list)) {
    std::istringstream words(text);
    const std::vector<std::string> parts{std::istream_iterator<std::string>(words), {}};
    if (parts.size() > 2) {
      refuse(where + ": expected `image label` or one name, got " + std::to_string(parts.size()) +
             " words; rename files whose names hold blanks");
    }
    const bool alone = parts.size() == 1;
    fs::path image, label;
    try {
      image = alone ? named_file(images, parts[0], kImageEndings, spellings, where)
                    : listed_file(root, parts[0], spellings, where);
      label = alone ? named_file(labels, parts[0], kLabelEndings, spellings, where)
                    : listed_file(root, parts[1], spellings, where);
    } catch (const Error& error) {
      files.push_back({.name = parts[0], .fault = {"lines of lists without files", error.what()}});
      continue;
    }
    if (const auto [first, is_new] = seen.emplace(image.string(), where); !is_new)
      refuse(where + ": " + image.string() + " is listed twice, first in " + first->second + "; remove one");
    const fs::path inside = image.lexically_relative(root).replace_extension();
    files.push_back({image.string(), label.string(), alone ? parts[0] : inside.generic_string()});
  }
  if (files.empty()) refuse(list.string() + ": expected a file with lines `image label`, got none");
  return files;
}

std::string prefix_of(const std::string& name) {
  const std::string last = fs::path(name).filename().string();
  return last.substr(0, last.find('_'));
}

std::string kept_together(const LabelledFile& file) {
  return !file.source.empty() ? file.source : !file.group.empty() ? file.group : file.name;
}

Split hold_out(const std::vector<LabelledFile>& files, double share) {
  const std::set<size_t> held = held_out(mapped(files, kept_together), share);
  if (held.empty()) {
    refuse("nothing can be held out for the test: expected at least two " +
           std::string(files.empty() || files[0].group.empty() ? "images" : "groups") + ", got " +
           (files.empty() ? "0" : "1") + "; add some, or name a test split");
  }
  Split split;
  for (size_t i = 0; i < files.size(); ++i)
    (held.contains(i) ? split.test : split.training).push_back(files[i]);
  return split;
}

}  // namespace bnlab
