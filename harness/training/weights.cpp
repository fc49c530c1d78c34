#include "harness/training/weights.hpp"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr const char* kCounter = ".num_batches_tracked";  // PyTorch counts batches at every norm

// With which the names of a backbone begin where it stands in a larger network, here or in a file.
constexpr std::array<std::string_view, 2> kBackbonePrefixes = {"backbone.", "encoder."};

std::string prefix_of(const std::vector<std::string>& names) {
  for (const std::string_view prefix : kBackbonePrefixes)
    if (std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(prefix); }))
      return std::string(prefix);
  return "";
}

std::string beginning(const std::string& name) {
  return name.substr(0, name.find('.'));
}

bool is_asked_for(LoadedPart asked, Part part) {
  return asked == LoadedPart::all || part == Part::backbone ||
         (asked == LoadedPart::features && part == Part::features);
}

// Which tensors of a file belong to the part that is asked for, and what the network calls them.
class Names {
 public:
  Names(LoadedPart asked, const Network& network, const std::vector<std::string>& own,
        const std::vector<std::string>& in_file)
      : asked_(asked), network_(network) {
    if (asked == LoadedPart::backbone) {
      own_prefix_ = prefix_of(own);
      file_prefix_ = prefix_of(in_file);
    }
    for (const std::string& name : own) members_.insert(beginning(name.substr(own_prefix_.size())));
  }

  // The network's name for a tensor of the file, which the network need not have; nothing for one that is
  // left.
  std::optional<std::string> own(const std::string& name) const {
    if (name.ends_with(kCounter) || !name.starts_with(file_prefix_)) return {};
    const std::string bare = name.substr(file_prefix_.size());
    // Where the names of a file have no prefix, those of other parts than the backbone show by their
    // beginning alone.
    if (asked_ == LoadedPart::backbone && file_prefix_.empty() && !members_.contains(beginning(bare)))
      return {};
    const std::string own = own_prefix_ + bare;
    return is_asked_for(asked_, network_.part_of(own)) ? std::optional(own) : std::nullopt;
  }

  std::string remark() const {
    return own_prefix_ == file_prefix_ ? "" : " (" + own_prefix_ + "* is " + file_prefix_ + "* in the file)";
  }

 private:
  LoadedPart asked_;
  const Network& network_;
  std::string own_prefix_, file_prefix_;
  std::set<std::string> members_;  // the beginnings of the asked part's names, without the prefix
};

// The first of many names, and how many more there are.
std::string some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  const std::vector<std::string> first(names.begin(), names.begin() + std::min(names.size(), kShown));
  return joined(first) +
         (names.size() > kShown ? " and " + std::to_string(names.size() - kShown) + " more" : "");
}

std::string listed(const char* title, const std::vector<std::string>& names) {
  return names.empty() ? "" : title + some(names);
}

// "init_from: 100 tensors of the backbone used (backbone.* is * in the file), 22 left (20
// num_batches_tracked, fc.weight, fc.bias)"
std::string account(LoadedPart part, const std::string& remark, size_t used, std::vector<std::string> left) {
  const size_t all_left = left.size();
  std::erase_if(left, [](const std::string& name) { return name.ends_with(kCounter); });
  if (const size_t counters = all_left - left.size(); counters > 0)
    left.insert(left.begin(), std::to_string(counters) + " " + (kCounter + 1));
  return "init_from: " + std::to_string(used) + " tensors" +
         (part == LoadedPart::all ? "" : " of the " + name_of(part)) + " used" + remark +
         (left.empty() ? "" : ", " + std::to_string(all_left) + " left (" + some(left) + ")");
}

// Whether a type has every number that the other has.
bool holds(at::ScalarType type, at::ScalarType other) {
  return type == other || (at::isFloatingType(other) && at::promoteTypes(type, other) == type);
}

void check_fits(const std::string& file, const NamedTensor& own, const NamedTensor& given) {
  if (!holds(own.tensor.scalar_type(), given.tensor.scalar_type()) ||
      given.tensor.sizes() != own.tensor.sizes()) {
    const auto what = [](const at::Tensor& t) {
      return std::string(c10::toString(t.scalar_type())) + " " + shown(Json(t.sizes().vec()));
    };
    throw Error(Error::Kind::refused, file + ": " + given.name + ": expected " + what(own.tensor) + ", got " +
                                          what(given.tensor) +
                                          "; the spec's model, task and precision must be those " +
                                          "that the weights were trained with");
  }
}

}  // namespace

std::vector<NamedTensor> tensors_of(const Network& network) {
  std::vector<NamedTensor> all;
  for (const auto& tensors : {network.named_parameters(), network.named_buffers()})
    for (const auto& [name, tensor] : tensors.pairs()) all.push_back({name, tensor});
  return all;
}

std::string load_weights(const InitFrom& from, Network& network) {
  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> wanted = tensors_of(network);
  std::erase_if(wanted,
                [&](const NamedTensor& own) { return !is_asked_for(from.part, network.part_of(own.name)); });
  if (wanted.empty())
    throw Error(Error::Kind::refused, "init_from.part: this model has no " + name_of(from.part));
  const std::vector<NamedTensor> in_file = read_safetensors(from.file);
  const Names names(from.part, network, mapped(wanted, &NamedTensor::name),
                    mapped(in_file, &NamedTensor::name));
  std::map<std::string, NamedTensor> given;  // by the network's names
  std::vector<std::string> left, missing;
  for (const NamedTensor& t : in_file)
    if (const std::optional<std::string> name = names.own(t.name))
      given.emplace(*name, t);
    else
      left.push_back(t.name);
  for (const NamedTensor& own : wanted) {
    if (const auto found = given.find(own.name); found != given.end()) {
      check_fits(from.file, own, found->second);
      own.tensor.copy_(found->second.tensor);
      given.erase(found);
    } else {
      missing.push_back(own.name);
    }
  }
  const auto surplus = mapped(given, [](const auto& entry) { return entry.second.name; });
  if (!missing.empty() || !surplus.empty()) {
    throw Error(Error::Kind::refused, from.file + " does not fit this model and strategy" +
                                          listed("; it lacks: ", missing) +
                                          listed("; nothing here takes: ", surplus));
  }
  return account(from.part, names.remark(), wanted.size(), left);
}

}  // namespace bnlab
