#include "harness/embed/meeting.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

int64_t mixed_into(int64_t hash, int64_t value) {
  return static_cast<int64_t>(static_cast<uint64_t>(hash) * 0x100000001b3ULL) ^ value;
}

int64_t hash_of(const std::string& text) {
  return static_cast<int64_t>(std::hash<std::string>()(text));
}

// What every rank has sent, as many numbers as this one.
class Table {
 public:
  Table(World& world, at::IntArrayRef own) : width_(own.size()) {
    const at::Tensor sent = at::tensor(own, at::kLong).to(world.host_device());
    const at::Tensor all = world.host().all_gather(sent, Purpose::control).cpu();
    numbers_.assign(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel());
  }

  std::vector<int64_t> column(size_t i) const {
    std::vector<int64_t> column;
    for (; i < numbers_.size(); i += width_) column.push_back(numbers_[i]);
    return column;
  }
  bool is_same(size_t i) const {
    const std::vector<int64_t> all = column(i);
    return std::ranges::all_of(all, [&](int64_t number) { return number == all.front(); });
  }

 private:
  size_t width_;
  std::vector<int64_t> numbers_;
};

std::vector<std::string> texts_of_ranks(World& world, const std::string& text) {
  const int64_t longest = std::ranges::max(Table(world, static_cast<int64_t>(text.size())).column(0));
  const at::Tensor own = at::zeros({longest + 1}, at::kByte);
  std::memcpy(own.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = world.host().all_gather(own.to(world.host_device()), Purpose::control).cpu();
  std::vector<std::string> texts;
  for (int64_t r = 0; r < all.size(0); ++r)
    texts.emplace_back(static_cast<const char*>(all[r].const_data_ptr()));
  return texts;
}

// Where lists of texts are not the same on all ranks: "rank 0 VERB its first that differs, rank 1 VERB its
// own", of rank 0 and of those that differ from it. missing: stands where a rank's list is at its end.
std::string first_difference(World& world, std::vector<std::string> texts, const std::string& missing,
                             const std::string& verb) {
  const int64_t most = std::ranges::max(Table(world, static_cast<int64_t>(texts.size())).column(0));
  texts.resize(static_cast<size_t>(most), missing);
  const Table hashes(world, mapped(texts, hash_of));
  size_t first = 0;
  while (first + 1 < texts.size() && hashes.is_same(first)) ++first;
  const std::vector<std::string> of_ranks = texts_of_ranks(world, texts[first]);
  std::string told = "rank 0 " + verb + " " + of_ranks.front();
  for (size_t r = 1; r < of_ranks.size(); ++r) {
    told +=
        of_ranks[r] == of_ranks.front() ? "" : ", rank " + std::to_string(r) + " " + verb + " " + of_ranks[r];
  }
  return told;
}

}  // namespace

Sizes Meeting::meet(MeetingPlace here) {
  std::vector<WaitingPass> passes = std::exchange(waiting_, {});
  std::vector<MeetingPlace> places{std::move(here)};
  for (const WaitingPass& pass : passes) places.push_back(pass.place);
  std::vector<Sizes> sizes;
  try {
    sizes = agree(places);
  } catch (const std::exception&) {
    for (const WaitingPass& pass : passes)
      if (const auto layer = pass.layer.lock()) layer->take_back(pass);
    throw;
  }
  for (size_t i = 0; i < passes.size(); ++i)
    if (const auto layer = passes[i].layer.lock()) layer->complete(passes[i], sizes[i + 1]);
  return sizes.front();
}

std::vector<Sizes> Meeting::agree(const std::vector<MeetingPlace>& places) {
  int64_t texts = 0, numbers = 0;
  std::vector<int64_t> own;
  for (const MeetingPlace& place : places) {
    texts = mixed_into(texts, hash_of(place.text));
    numbers = mixed_into(mixed_into(numbers, place.rows), place.positions);
    own.insert(own.end(), {place.rows, place.positions});
  }
  const Table all(world_, {static_cast<int64_t>(places.size()), texts, numbers, own[0], own[1]});
  if (!all.is_same(0) || !all.is_same(1)) {
    throw Error(Error::Kind::communication,
                "the ranks reach different norm layers: " +
                    first_difference(world_, mapped(places, &MeetingPlace::text), places[0].text, "is at") +
                    "; every rank must call the same layers in the same order, with an empty batch where it "
                    "has none");
  }
  const auto ranks = static_cast<size_t>(world_.size());
  std::vector<Sizes> sizes;
  if (all.is_same(2)) {
    for (const MeetingPlace& place : places)
      sizes.push_back({std::vector(ranks, place.rows), std::vector(ranks, place.positions)});
  } else if (places.size() == 1) {
    sizes.push_back({all.column(3), all.column(4)});
  } else {
    const Table each(world_, own);
    for (size_t i = 0; i < own.size(); i += 2) sizes.push_back({each.column(i), each.column(i + 1)});
  }
  return sizes;
}

void Meeting::require_same(const std::string& what, const std::vector<std::string>& texts) {
  int64_t hash = 0;
  for (const std::string& text : texts) hash = mixed_into(hash, hash_of(text));
  if (!Table(world_, hash).is_same(0))
    throw Error(Error::Kind::usage, what + ": " + first_difference(world_, texts, "nothing more", "has"));
}

void Meeting::merge() {
  const at::NoGradGuard no_grad;
  std::vector<std::shared_ptr<WaitingLayer>> layers;
  std::vector<at::Tensor> summands;
  for (const auto& apart : std::exchange(apart_, {})) {
    const auto layer = apart.lock();
    if (layer && std::ranges::find(layers, layer) == layers.end()) {
      for (const at::Tensor& summand : layer->summands()) summands.push_back(summand.clone());
      layers.push_back(layer);
    }
  }
  if (summands.empty()) return;
  exchange_flat(summands, [this](at::Tensor& flat) {
    flat.copy_(world_.statistics().all_gather(flat, Purpose::evaluation).sum(0));
  });
  auto next = summands.begin();
  for (const auto& layer : layers) {
    const auto end = next + static_cast<std::ptrdiff_t>(layer->summands().size());
    layer->load_sums({next, end});
    next = end;
  }
}

}  // namespace bnlab
