// The interface of a model: it builds a network from a LayerMaker. One file per model, registered there.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include "harness/models/model_facts.hpp"
#include "harness/network.hpp"

namespace bnlab {

class Model {
 public:
  using Facts = ModelFacts;
  static constexpr const char* kFamily = Facts::kFamily;
  struct Context {
    ImageSizes image_sizes = {};
    // Of parameters that the model makes itself, beside those of the layers that it is given:
    uint64_t seed = 0;                          // draws their initial values
    at::TensorOptions parameters = at::kFloat;  // their dtype and device

    RunOutline outline() const { return {.image_sizes = image_sizes}; }
  };

  virtual ~Model() = default;

  // Registered<Model>::create has refused image sizes that the network cannot take.
  virtual std::shared_ptr<Network> build(LayerMaker& layers, int64_t classes) const = 0;
};

// A model that has no more to it than its network: N is made from (LayerMaker&, const O& options, int64_t
// classes), and from a `const Model::Context&` behind these where it makes parameters itself.
template <class N, class O>
class ModelOf : public Model {
 public:
  using Options = O;

  ModelOf(const Options& options, const Context& context) : options_(options), context_(context) {}

  std::shared_ptr<Network> build(LayerMaker& layers, int64_t classes) const override {
    if constexpr (std::is_constructible_v<N, LayerMaker&, const O&, int64_t, const Context&>)
      return std::make_shared<N>(layers, options_, classes, context_);
    else
      return std::make_shared<N>(layers, options_, classes);
  }

 private:
  Options options_;
  Context context_;
};

// The network of a resolved model, for BuiltNetwork (harness/built_network.hpp). Throws Error (refused) where
// the model cannot take the image sizes.
inline std::function<std::shared_ptr<Network>(LayerMaker&)> builder_of(const Json& model,
                                                                       const Model::Context& context,
                                                                       int64_t classes) {
  std::shared_ptr<const Model> made = Registered<Model>::create(model, context);
  return [made, classes](LayerMaker& layers) { return made->build(layers, classes); };
}

}  // namespace bnlab
