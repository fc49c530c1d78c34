// By what texts and files are told apart: 16 hexadecimal digits of XXH3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bnlab {

std::string hexadecimal(uint64_t number);  // 16 digits

std::string fingerprint(std::string_view text);
// Throws Error (data), naming the file, where it is unreadable.
std::string fingerprint_of_file(const std::string& file);

}  // namespace bnlab
