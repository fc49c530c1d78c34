#include "harness/experiment/fingerprint.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "harness/support/error.hpp"

namespace bnlab {

std::string hexadecimal(uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

std::string fingerprint(std::string_view text) {
  return hexadecimal(XXH3_64bits(text.data(), text.size()));
}

std::string fingerprint_of_file(const std::string& file) {
  std::vector<char> piece(size_t{1} << 20);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::ifstream in(file, std::ios::binary);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0)
    XXH3_64bits_update(&state, piece.data(), static_cast<size_t>(in.gcount()));
  if (!in.eof()) throw Error(Error::Kind::data, file + ": cannot be read: " + std::strerror(errno));
  return hexadecimal(XXH3_64bits_digest(&state));
}

}  // namespace bnlab
