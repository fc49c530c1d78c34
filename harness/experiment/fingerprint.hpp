// By what texts and files are told apart: 16 hexadecimal digits of XXH3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bnlab {

std::string hexadecimal(uint64_t number);  // 16 digits

std::string fingerprint(std::string_view text);
std::string fingerprint_of_file(
    const std::string& file);  // throws Error (data), naming it, where it is unreadable

}  // namespace bnlab
