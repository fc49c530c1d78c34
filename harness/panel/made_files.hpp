// Small data sets on files, made the same everywhere, for the entries of the panel whose tasks read files.
#pragma once

#include <filesystem>

namespace bnlab {

// Writes below `folder`, in the layouts that the tasks read: mydata (folder), camvid, VOCdevkit,
// ADEChallengeData2016, cityscapes, pets (image_folder), clips (frames), and the binary files of CIFAR-10 and
// CIFAR-100. Images are PNG files, whatever their names end in: readers go by content. Throws Error
// (environment) where this build has no libpng.
void make_files(const std::filesystem::path& folder, const std::string& task);

}  // namespace bnlab
