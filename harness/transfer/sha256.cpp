// SHA-256 (FIPS 180-4). Manifests hold it, so that people who have no bnlab can check an archive with
// sha256sum.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>

#include "harness/transfer/archive.hpp"

namespace bnlab {
namespace {

using Words = std::array<uint32_t, 8>;

// The first 32 bits behind the point of the square roots of the first 8 primes (section 5.3.3), and of the
// cube roots of the first 64 (section 4.2.2).
constexpr Words kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<uint32_t, 64> kConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

void add_block(Words& hash, const unsigned char* block) {
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
    const uint32_t first = h + mixed + ((e & f) ^ (~e & g)) + kConstants[i] + w[i];
    const uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const Words added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < hash.size(); ++i) hash[i] += added[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  Words hash = kStart;
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
