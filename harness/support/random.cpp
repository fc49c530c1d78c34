#include "harness/support/random.hpp"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace bnlab {
namespace {

uint64_t splitmix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

uint64_t rotate_left(uint64_t x, int k) {
  return (x << k) | (x >> (64 - k));
}

}  // namespace

Stream::Stream(uint64_t seed, std::string_view purpose, uint64_t index) {
  uint64_t name = 0xcbf29ce484222325ULL;  // FNV-1a of the purpose
  for (const char c : purpose) name = (name ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  uint64_t state = seed;
  state = splitmix(state) ^ name;
  state = splitmix(state) ^ index;
  for (uint64_t& word : state_) word = splitmix(state);
}

uint64_t Stream::bits() {
  const uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

double Stream::uniform() {
  return static_cast<double>(bits() >> 11) * 0x1.0p-53;
}

double Stream::uniform(double low, double high) {
  return low + (high - low) * uniform();
}

double Stream::normal() {  // Box and Muller; the second value is not kept, so streams stay stateless
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

int64_t Stream::below(int64_t limit) {
  const auto range = static_cast<uint64_t>(limit);
  const uint64_t rejected = (0 - range) % range;  // 2^64 mod range: redraw below it
  uint64_t draw = bits();
  while (draw < rejected) draw = bits();
  return static_cast<int64_t>(draw % range);
}

std::vector<int64_t> Stream::permutation(int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(below(i + 1))]);
  return order;
}

}  // namespace bnlab
