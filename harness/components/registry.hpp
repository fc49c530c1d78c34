// Registries of named components. A component's source file registers itself in its last line:
//
//   const Registered<Strategy> entry{{"sync", "pools the moments of all towers", {...}}, make<Strategy,
//   Sync>};
//
// A registered type T declares `static constexpr const char* kFamily` and `using Context`, what its
// constructors take beside the options. Objects that register themselves must be linked whole (an
// OBJECT library): from a static library the linker drops them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/components/parameters.hpp"

namespace bnlab {

// Everything registered in a family ("strategy", "model", "task"), by name. Needs no LibTorch.
const std::map<std::string, About>& registered(const std::string& family);
const About* find_registered(const std::string& family, const std::string& name);  // null if unknown
std::vector<std::string> registered_names(const std::string& family);
void register_about(const std::string& family, About about);  // throws std::logic_error if taken

template <class T>
class Registered {
 public:
  // `options` is the component's resolved object: complete and within range.
  using Make = std::function<std::unique_ptr<T>(const Json& options, const typename T::Context&)>;

  Registered(About about, Make make) {
    makers()[about.name] = std::move(make);
    register_about(T::kFamily, std::move(about));
  }

  // Makes the component that `options` names. `options` must have passed `resolve`.
  static std::unique_ptr<T> create(const Json& options, const typename T::Context& context) {
    return makers().at(options.at("name").template get<std::string>())(options, context);
  }

 private:
  static std::map<std::string, Make>& makers() {
    static std::map<std::string, Make> all;
    return all;
  }
};

template <class Base, class Derived>
std::unique_ptr<Base> make(const Json& options, const typename Base::Context& context) {
  return std::make_unique<Derived>(options, context);
}

}  // namespace bnlab
