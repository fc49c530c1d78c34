// SHA-256 (FIPS 180-4).
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "harness/transfer/archive.hpp"

namespace bnlab {
namespace {

using Words = std::array<uint32_t, 8>;

// The first 32 bits behind the point of the square or cube roots of the first primes.
template <size_t n>
std::array<uint32_t, n> bits_of_roots(double (*root)(double)) {
  std::array<uint32_t, n> all{};
  size_t found = 0;
  for (int candidate = 2; found < n; ++candidate) {
    bool prime = true;
    for (int k = 2; k * k <= candidate; ++k) prime = prime && candidate % k != 0;
    if (!prime) continue;
    const double value = root(candidate);
    all[found++] = static_cast<uint32_t>((value - std::floor(value)) * 4294967296.0);
  }
  return all;
}

void add_block(Words& hash, const unsigned char* block) {
  static const auto constants = bits_of_roots<64>([](double x) { return std::cbrt(x); });
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | block[4 * i + k];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t early = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t late = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + early + w[i - 7] + late;
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t mixed = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t first = h + mixed + ((e & f) ^ (~e & g)) + constants[i] + w[i];
    const uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const Words added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < hash.size(); ++i) hash[i] += added[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  Words hash = bits_of_roots<8>([](double x) { return std::sqrt(x); });
  // A one, zeros, and the number of bits in 64 bits fill the last block.
  std::string padded(bytes);
  padded += '\x80';
  padded.resize((padded.size() + 8 + 63) / 64 * 64, '\0');
  for (size_t i = 0; i < 8; ++i)
    padded[padded.size() - 1 - i] = static_cast<char>(bytes.size() * 8 >> 8 * i & 0xff);
  for (size_t at = 0; at < padded.size(); at += 64) {
    add_block(hash, reinterpret_cast<const unsigned char*>(padded.data()) + at);
  }
  std::string digits;
  for (const uint32_t word : hash) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", word);
    digits += text;
  }
  return digits;
}

}  // namespace bnlab
