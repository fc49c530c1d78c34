// Archives that any tar can read (the ustar format), with the files held in memory, and the checksums of what
// is in them. An archive of the same files is the same to the byte.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace bnlab {

using Files = std::map<std::string, std::string>;  // contents by relative path

std::string tar_archive(const Files& files);

// Throws Error (data), naming `archive`, for what is damaged, cut off, no regular file or a path that leads
// elsewhere.
Files read_tar(std::string_view bytes, const std::string& archive);

// SHA-256 in hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace bnlab
