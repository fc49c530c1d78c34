#include "strategies/engine/wrapper.hpp"

#include "harness/components/registry.hpp"
#include "harness/error.hpp"

namespace bnlab {

Wrapper::Wrapper(const Json& options, const Context& context)
    : Strategy(context), base_(Registered<Strategy>::create(options.at("base"), context)) {
  if (base_->running_statistics() == nullptr) {
    throw Error(Error::Kind::refused, options.at("name").get<std::string>() +
                                          ": needs a base with running statistics; " +
                                          options.at("base").at("name").get<std::string>() + " has none");
  }
}

std::vector<Parameter> wrapper_parameters(std::vector<Parameter> own) {
  own.push_back(Parameter::component("base", "strategy", "sync", "the strategy that it is built on"));
  return own;
}

}  // namespace bnlab
