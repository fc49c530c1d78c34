// Which image belongs to which labels: pairs of files from two folders with equal names, or from a list file.
// A file's name is its path below its folder without its suffix and ending, however it is spelt
// (spelling.hpp). Whatever is missing or there twice is an Error(data) that names the file and its cure; a
// pair of which one file is missing is listed with that fault, so that all of them can be told at once.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/tasks/data_check.hpp"

namespace bnlab {

struct LabelledFile {
  std::string image = {};   // JPEG or PNG
  std::string labels = {};  // PNG of ids
  std::string name = {};    // what the two have in common: "city/frame_1"
  std::string group = {};   // the drive or place it was taken in; "" where nobody knows
  DataFault fault = {};     // why there is no such pair: one of the files is missing; mostly empty
  std::string source = {};  // the image that it is a tile of; "" where it is whole
};

// The folder that holds the files of a task: `root` below the data folder, --data. Throws Error (usage) if
// there is no data folder.
std::filesystem::path data_root(const std::string& data_dir, const std::string& task,
                                const std::string& root);

// The folder or file `given` below `parent`, as the option `key` names it. A spec is data and must not lead
// anywhere else: throws Error (spec).
std::filesystem::path below(const std::filesystem::path& parent, const std::filesystem::path& given,
                            const std::string& key);

// Where the images of a split lie, or its labels.
struct Side {
  std::filesystem::path folder;
  std::string suffix = {};  // follows the name, with its ending or without: "_mask", "_labelIds.png", ""
};

// Images and labels of equal names, in the order of the names; folders below are searched, also where they
// are links. What is hidden and files with other suffixes are ignored. `cure` ends the messages about files
// that are not there.
std::vector<LabelledFile> pair_files(const Side& images, const Side& labels, const std::string& cure);

// Throws FaultyData with the faults of all files, if there are any.
void refuse_faults(const std::vector<LabelledFile>& files);

// A line of a list file, as any system writes it: without byte-order mark and blanks at its ends.
struct ListLine {
  std::string where;  // "train.txt, line 3"
  std::string text;   // not empty
};
// Throws Error (data) where the file cannot be read, or is no UTF-8.
std::vector<ListLine> lines_of_list(const std::filesystem::path& list);

// A path of a list below `folder`: also one with the drive and the backslashes of Windows.
std::filesystem::path listed_path(const std::filesystem::path& folder, const std::string& given);

// Lines `image label`, below `root` (of an absolute path its tail, the longest one that exists there), or
// lines `name`, which the two sides complete. In the order of the lines.
std::vector<LabelledFile> read_list(const std::filesystem::path& list, const std::filesystem::path& root,
                                    const Side& images, const Side& labels);

// The ordinary files in a folder and those below it, also where they are links, without what is hidden. A
// link to a folder around it leads nowhere. Throws std::filesystem::filesystem_error.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

// Whether a file or folder is hidden (".ipynb_checkpoints") or what systems leave ("@eaDir").
bool hidden(const std::filesystem::path& path);

// The ending of a file's name in small letters: ".png".
inline std::string ending_of(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending;
}

// The part of a file's name before its first '_', without its folders ("0001TP" of "a/0001TP_006690").
std::string prefix_of(const std::string& name);

// What a file must not be parted from when a set is divided: its source, or else its group, or else itself.
std::string kept_together(const LabelledFile& file);

struct Split {
  std::vector<LabelledFile> training;
  std::vector<LabelledFile> test;
};
// Holds out at least `share` of the files (held_out.hpp): files that are kept together are never on both
// sides, and no seed enters.
Split hold_out(const std::vector<LabelledFile>& files, double share);

}  // namespace bnlab
