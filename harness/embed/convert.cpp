// Layers exchanged, folded, and statistics recomputed below a module.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "harness/affine.hpp"
#include "harness/embed/bnlab/batch_norm.hpp"
#include "harness/embed/embedded_site.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

// A layer below a module.
struct Place {
  nn::Module* parent;
  std::string path;             // from the root
  std::string key;              // in the parent
  std::optional<size_t> index;  // in a container, which can put another in its place; none of a member
  std::shared_ptr<nn::Module> child;
};

// What a container holds, in its order. A class that is made of one may have members of its own beside it.
std::vector<const nn::Module*> held_by(nn::Module& module) {
  std::vector<const nn::Module*> all;
  if (auto* sequential = module.as<nn::SequentialImpl>())
    for (const nn::AnyModule& each : *sequential) all.push_back(each.ptr().get());
  else if (auto* list = module.as<nn::ModuleListImpl>())
    for (const auto& each : *list) all.push_back(each.get());
  else if (auto* named = module.as<nn::ModuleDictImpl>())
    for (const auto& each : *named) all.push_back(each.value().get());
  return all;
}

std::vector<Place> places_below(nn::Module& parent, const std::string& path = "") {
  std::vector<Place> places;
  const auto children = parent.named_children();
  const std::vector<const nn::Module*> all = held_by(parent);
  std::vector<const nn::Module*> held = all;
  for (const auto& child : children) {
    const std::string below = path.empty() ? child.key() : path + "." + child.key();
    Place place{.parent = &parent, .path = below, .key = child.key(), .index = {}, .child = child.value()};
    // One that is held twice has two places; one that is a member, too, has none.
    const auto slot = std::ranges::find(held, child.value().get());
    if (slot != held.end() && std::ranges::count(children.values(), child.value()) ==
                                  std::ranges::count(all, child.value().get())) {
      place.index = static_cast<size_t>(slot - held.begin());
      *slot = nullptr;
    }
    places.push_back(std::move(place));
    const std::vector<Place> more = places_below(*child.value(), below);
    places.insert(places.end(), more.begin(), more.end());
  }
  return places;
}

template <class Layer>
void put(const Place& place, const std::shared_ptr<Layer>& layer) {
  const auto index = static_cast<std::ptrdiff_t>(place.index.value());
  layer->train(place.child->is_training());
  place.parent->replace_module(place.key, layer);
  if (auto* sequential = place.parent->as<nn::SequentialImpl>())
    *(sequential->begin() + index) = nn::AnyModule(layer);
  else if (auto* list = place.parent->as<nn::ModuleListImpl>())
    *(list->begin() + index) = layer;
  else
    (place.parent->as<nn::ModuleDictImpl>()->begin() + index)->value() = layer;
}

void refuse_fixed(const std::vector<std::string>& fixed, const std::string& cure) {
  if (fixed.empty()) return;
  std::string names;
  for (const std::string& name : fixed) names += (names.empty() ? "" : ", ") + name;
  throw Error(Error::Kind::refused,
              "convert: " + names + ": C++ fixes the type of a module's member; " + cure);
}

// The tensors of one module become those of another that have the same names.
void hand_over(const nn::Module& from, BatchNormImpl& to) {
  const auto take = [](const auto& theirs, const char* name, HeldTensor& mine) {
    if (const at::Tensor* found = theirs.find(name); found != nullptr && mine.defined()) mine = *found;
  };
  const auto parameters = from.named_parameters(/*recurse=*/false),
             buffers = from.named_buffers(/*recurse=*/false);
  take(parameters, "weight", to.weight);
  take(parameters, "bias", to.bias);
  take(buffers, "running_mean", to.running_mean);
  take(buffers, "running_var", to.running_var);
  take(buffers, "num_batches_tracked", to.num_batches_tracked);
  for (const auto* tensors : {&parameters, &buffers}) {
    if (!tensors->is_empty()) {
      to.to(tensors->front().value().device(), tensors->front().value().scalar_type());
      return;
    }
  }
}

// Their values in those of another.
void hand_over(const BatchNormImpl& from, nn::Module& to) {
  const auto take = [](const auto& theirs, auto mine) {
    for (auto& item : mine) {
      const at::Tensor* found = theirs.find(item.key());
      if (found != nullptr && found->defined()) item.value().set_data(found->detach());
    }
  };
  const auto theirs = from.named_parameters(/*recurse=*/false);
  take(theirs, to.named_parameters(/*recurse=*/false));
  for (auto item : to.named_parameters(/*recurse=*/false))
    item.value().requires_grad_(from.site().wants_gradient(item.key()));
  take(from.named_buffers(/*recurse=*/false), to.named_buffers(/*recurse=*/false));
}

// The module as a Layer, if it is one and no class made of it, which may compute something else.
template <class Layer>
const Layer* exactly(const nn::Module& module) {
  return typeid(module) == typeid(Layer) ? module.as<Layer>() : nullptr;
}

constexpr const char* kOwnForward = " is a class made of BatchNorm, whose forward() would be lost";

const nn::BatchNormOptions* plain_options(const nn::Module& module) {
  if (const auto* one = module.as<nn::BatchNorm1dImpl>()) return &one->options;
  if (const auto* two = module.as<nn::BatchNorm2dImpl>()) return &two->options;
  const auto* three = module.as<nn::BatchNorm3dImpl>();
  return three == nullptr ? nullptr : &three->options;
}

// `wanted` with what belongs to the layer itself.
template <class Options>
BatchNormOptions options_for(const Options& layer, BatchNormOptions wanted, const std::string& path) {
  return wanted.num_features(layer.num_features())
      .eps(layer.eps())
      .momentum(layer.momentum())
      .affine(layer.affine())
      .track_running_stats(layer.track_running_stats())
      .name(path);
}

// What has taken the place of a layer: the same in every place of one that stands in several.
template <class Layer>
using Made = std::map<const nn::Module*, std::shared_ptr<Layer>>;

template <class Plain>
void put_plain(const Place& place, const nn::BatchNormOptions& options, Made<nn::Module>& made) {
  std::shared_ptr<nn::Module>& layer = made[place.child.get()];
  if (layer == nullptr) {
    layer = std::make_shared<Plain>(options);
    hand_over(*place.child->as<BatchNormImpl>(), *layer);
  }
  put(place, std::dynamic_pointer_cast<Plain>(layer));
}

// The weight of a layer that a norm can be folded into, [outputs, ...]; else undefined.
at::Tensor filters_of(const nn::Module& module) {
  if (const auto* one = exactly<nn::Conv1dImpl>(module)) return one->weight;
  if (const auto* two = exactly<nn::Conv2dImpl>(module)) return two->weight;
  if (const auto* three = exactly<nn::Conv3dImpl>(module)) return three->weight;
  const auto* linear = exactly<nn::LinearImpl>(module);
  return linear == nullptr ? at::Tensor() : linear->weight;
}

// What a layer does to each channel in an evaluation: asked of a copy in float64.
std::optional<Affine> evaluated(const BatchNormImpl& layer, at::Device device) {
  if (!layer.site().keeps_statistics()) return std::nullopt;
  const std::shared_ptr<nn::Module> module = layer.clone();
  auto& copy = *module->as<BatchNormImpl>();
  copy.eval();
  copy.to(device, at::kDouble);
  return affine_of([&](const at::Tensor& x, const at::Tensor& residual) { return copy.forward(x, residual); },
                   layer.options.num_features(), device);
}

// Where the layer is one of this type: a copy with a bias and these outputs in its place.
template <class Layer>
bool put_scaled(const Place& place, const Affine& by) {
  const auto* layer = exactly<Layer>(*place.child);
  if (layer == nullptr) return false;
  Layer with_bias(*layer);
  with_bias.options.bias(true);
  const auto made = std::dynamic_pointer_cast<Layer>(with_bias.clone());
  const at::Tensor weight = layer->weight.to(at::kDouble).flatten(1) * by.scale.unsqueeze(1);
  const at::Tensor bias = layer->bias.defined() ? layer->bias * by.scale + by.shift : by.shift;
  made->weight.set_data(weight.view_as(layer->weight).to(layer->weight.scalar_type()));
  made->bias.set_data(bias.to(layer->weight.scalar_type()));
  put(place, made);
  return true;
}

std::vector<BatchNormImpl*> layers_below(nn::Module& module) {
  std::vector<BatchNormImpl*> layers;
  module.apply([&](nn::Module& each) {
    auto* layer = each.as<BatchNormImpl>();
    if (layer != nullptr && layer->site().keeps_statistics() && std::ranges::count(layers, layer) == 0)
      layers.push_back(layer);
  });
  return layers;
}

}  // namespace

int64_t convert(nn::Module& module, const BatchNormOptions& options) {
  const std::vector<Place> places = places_below(module);
  std::vector<std::string> fixed;
  for (const Place& place : places) {
    if (plain_options(*place.child) == nullptr) continue;
    if (!place.index) fixed.push_back(place.path);
    if (!exactly<nn::BatchNorm1dImpl>(*place.child) && !exactly<nn::BatchNorm2dImpl>(*place.child) &&
        !exactly<nn::BatchNorm3dImpl>(*place.child)) {
      throw Error(Error::Kind::refused,
                  "convert: " + place.path + kOwnForward + "; declare it as bnlab::BatchNorm");
    }
  }
  refuse_fixed(fixed, "declare it as bnlab::BatchNorm, which is a BatchNorm2d until it is converted");
  // All are made before the first is exchanged: one that the strategy refuses leaves the module as it was.
  std::vector<std::pair<const Place*, std::shared_ptr<BatchNormImpl>>> layers;
  Made<BatchNormImpl> made;
  for (const Place& place : places) {
    const nn::BatchNormOptions* plain = plain_options(*place.child);
    const auto* ours = place.child->as<BatchNormImpl>();
    if (plain == nullptr && ours == nullptr) continue;
    std::shared_ptr<BatchNormImpl>& layer = made[place.child.get()];
    if (layer == nullptr) {
      layer = std::make_shared<BatchNormImpl>(
          plain ? options_for(*plain, options, place.path)
                : options_for(ours->options, options, place.path).relu(ours->options.relu()));
    }
    layers.emplace_back(&place, layer);
  }
  for (const auto& [place, layer] : layers) {
    if (auto* ours = place->child->as<BatchNormImpl>()) {
      ours->set_options(layer->options);
    } else {
      hand_over(*place->child, *layer);
      put(*place, layer);
    }
  }
  return static_cast<int64_t>(layers.size());
}

int64_t convert_back(nn::Module& module, int64_t dims) {
  if (dims < 1 || dims > 3) {
    throw Error(Error::Kind::usage,
                "convert_back: expected 1, 2 or 3 dimensions, got " + std::to_string(dims));
  }
  std::vector<Place> ours;
  std::vector<std::string> fixed;
  for (const Place& place : places_below(module)) {
    const auto* layer = place.child->as<BatchNormImpl>();
    if (layer == nullptr) continue;
    const std::string why = exactly<BatchNormImpl>(*place.child) == nullptr ? kOwnForward
                            : layer->options.relu() ? " has a ReLU in it, which BatchNorm has not"
                            : !layer->site().has_running_statistics() ? " has not the tensors of BatchNorm"
                                                                      : "";
    if (!why.empty()) throw Error(Error::Kind::refused, "convert_back: " + place.path + why);
    ours.push_back(place);
    if (!place.index) fixed.push_back(place.path);
  }
  refuse_fixed(fixed, "it stays; its checkpoint loads into BatchNorm");
  Made<nn::Module> made;
  for (const Place& place : ours) {
    const BatchNormOptions& own = place.child->as<BatchNormImpl>()->options;
    const nn::BatchNormOptions options = nn::BatchNormOptions(own.num_features())
                                             .eps(own.eps())
                                             .momentum(own.momentum())
                                             .affine(own.affine())
                                             .track_running_stats(own.track_running_stats());
    dims == 1   ? put_plain<nn::BatchNorm1dImpl>(place, options, made)
    : dims == 2 ? put_plain<nn::BatchNorm2dImpl>(place, options, made)
                : put_plain<nn::BatchNorm3dImpl>(place, options, made);
  }
  return static_cast<int64_t>(ours.size());
}

std::vector<std::string> fold(nn::Module& module) {
  const at::NoGradGuard no_grad;
  const std::vector<Place> places = places_below(module);
  std::vector<std::string> staying;
  for (const Place& place : places) {
    const auto* norm = place.child->as<BatchNormImpl>();
    if (norm == nullptr) continue;
    if (norm->is_training())
      throw Error(Error::Kind::usage, "fold: " + place.path + " is in training mode; call eval() first");
    const auto before = std::ranges::find_if(places, [&](const Place& other) {
      return other.parent == place.parent && other.index && place.index && *other.index + 1 == *place.index;
    });
    const bool in_turn = place.parent->as<nn::SequentialImpl>() != nullptr && before != places.end();
    const at::Tensor filters = in_turn ? filters_of(*before->child) : at::Tensor();
    if (exactly<BatchNormImpl>(*place.child) == nullptr) {
      staying.push_back(place.path + kOwnForward);
    } else if (!filters.defined() || filters.size(0) != norm->options.num_features()) {
      staying.push_back(place.path +
                        ": no convolution or linear layer stands just before it in a Sequential");
    } else if (const auto affine = evaluated(*norm, filters.device()); !affine) {
      staying.push_back(place.path + ": its strategy " + norm->options.strategy() + " depends on its input");
    } else {
      put_scaled<nn::Conv1dImpl>(*before, *affine) || put_scaled<nn::Conv2dImpl>(*before, *affine) ||
          put_scaled<nn::Conv3dImpl>(*before, *affine) || put_scaled<nn::LinearImpl>(*before, *affine);
      norm->options.relu() ? put(place, std::make_shared<nn::ReLUImpl>())
                           : put(place, std::make_shared<nn::IdentityImpl>());
    }
  }
  return staying;
}

void recompute(nn::Module& module, int64_t batches, const std::function<void(int64_t)>& forward) {
  if (batches < 1)
    throw Error(Error::Kind::usage, "recompute: expected at least 1 batch, got " + std::to_string(batches));
  const at::NoGradGuard no_grad;
  const std::vector<BatchNormImpl*> layers = layers_below(module);
  std::vector<std::pair<nn::Module*, bool>> modes;
  module.apply([&](nn::Module& each) { modes.emplace_back(&each, each.is_training()); });
  const auto all_calibrate = [&](bool on) {
    for (BatchNormImpl* layer : layers) layer->site().calibrate(on);
  };
  module.train();
  all_calibrate(true);
  const auto restore = [&] {
    all_calibrate(false);
    for (const auto& [each, mode] : modes) each->train(mode);
  };
  try {
    for (size_t i = 0; i < layers.size(); ++i) {
      // The passes of the first layer's recomputation are those of all.
      layers[i]->site().recompute(batches, [&](int64_t index) {
        if (i == 0) {
          for (BatchNormImpl* layer : layers) layer->site().set_batch(index);
          forward(index);
        }
      });
    }
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

}  // namespace bnlab
