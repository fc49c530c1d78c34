// Registries of named components. A component's source file registers itself at its end:
//
//   const Registered<Strategy> entry{{.name = "sync", .summary = "pools the moments of all towers", ...},
//                                    make<Strategy, Sync>};
//
// where Sync::Options are its options (options.hpp) and its constructor takes (const Options&, const
// Context&). A registered type T declares `static constexpr const char* kFamily` and `using Context`, what
// its constructors take beside the options. The first argument is an About, or, where the family has more to
// say of its entries, the `Facts` of T: a struct beside the interface of the family (strategy_facts.hpp,
// models/model_facts.hpp, tasks/task_facts.hpp), which code without LibTorch reads by name.
//
// A component's file has a namespace of its own, bnlab::NAME, so that the files of a folder can be compiled
// together (cmake/together.cmake). Objects that register themselves must be linked whole (an OBJECT library):
// from a static library the linker drops them.
#pragma once

#include <any>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/components/parameters.hpp"

namespace bnlab {

using Channels = std::vector<int64_t>;
using ImageSizes = std::vector<std::array<int64_t, 2>>;  // height, width

// What is known of a run before it starts; empty where it is not.
struct RunOutline {
  std::vector<int64_t> samples_per_tower = {};  // in one pass
  int64_t passes_per_step = 1;
  bool statistics_per_step = false;
  Channels norm_channels = {};  // at the model's norm sites
  ImageSizes image_sizes = {};
  bool has_length = true;  // false: fractions of the run mean nothing
};

// What a registry knows of an entry without making it.
struct About {
  std::string name;
  std::string summary = {};  // one line: what it computes
  std::string source = {};   // paper or discussion that it follows; may be empty

  // Registered fills in the rest. The first two follow from the options of the entry. They are declared on
  // first use, once all has registered that they may name.
  const std::vector<Parameter>& (*parameters)() = []() -> const std::vector<Parameter>& {
    static const std::vector<Parameter> none;
    return none;
  };
  // What is wrong with resolved options in such a run, beside what each option may be by itself.
  std::function<void(const Json& options, const RunOutline&, Problems&)> check = {};
  std::any facts = {};  // what entries of this family say beside; empty in a family that has no facts

  // Null where these are no facts of the entry's family.
  template <class Facts>
  const Facts* facts_as() const {
    return std::any_cast<Facts>(&facts);
  }
};

// Everything registered in a family ("strategy", "model", "backbone", "task", "optimizer", "loss"), by name.
const std::map<std::string, About>& registered(const std::string& family);
const About* find_registered(const std::string& family, const std::string& name);  // null if unknown
std::vector<std::string> registered_names(const std::string& family);
void register_about(const std::string& family, About about);  // throws std::logic_error if taken

// The facts of a component, {"name": ...} or resolved. Throws std::logic_error where none are registered.
template <class Facts>
const Facts& facts_of(const Json& component) {
  const std::string name = component.at("name");
  const About* about = find_registered(Facts::kFamily, name);
  const Facts* facts = about == nullptr ? nullptr : about->facts_as<Facts>();
  if (facts == nullptr)
    throw std::logic_error(std::string("no facts are registered of the ") + Facts::kFamily + " " + name);
  return *facts;
}

// The declaration of a key named like its family that must name an entry of it.
Parameter component_key(const std::string& family);

// Checks a resolved component, which stands at `path`, against the run: Options::check of its entry, and of
// the entries that its options name.
void check_component(const std::string& family, const Json& component, const std::string& path,
                     const RunOutline& run, Problems& problems);
// The same where there is no spec to blame: throws Error (refused) with all that is wrong.
void refuse_misfits(const std::string& family, const Json& component, const RunOutline& run);

// A fact that follows from the options of an entry: a const member function of the options answers.
template <class Answer>
using FactOfOptions = std::function<Answer(const Json& options)>;

template <Described Options, class Member>
auto asked(Member member) {
  return [member](const Json& options) { return std::invoke(member, read_options<Options>(options)); };
}

// An entry that takes `Options`, filled in with what follows from them.
template <Described Options>
About with_options(About about) {
  about.parameters = []() -> const std::vector<Parameter>& {
    static const std::vector<Parameter> all = declared<Options>();
    return all;
  };
  if constexpr (requires(const Options& o, const RunOutline& run, Problems& p) { o.check(run, p); }) {
    about.check = [](const Json& options, const RunOutline& run, Problems& problems) {
      read_options<Options>(options).check(run, problems);
    };
  }
  return about;
}

// The same where the family has facts: Facts::ask<Options>() fills in those that follow from the options.
template <Described Options, class Facts>
About with_options(Facts facts) {
  About about = with_options<Options>(About{facts.name, facts.summary, facts.source});
  facts.template ask<Options>();
  about.facts = std::move(facts);
  return about;
}

// What a registration in the family of T gives.
template <class T>
struct FactsOf {
  using Type = About;
};
template <class T>
  requires requires { typename T::Facts; }
struct FactsOf<T> {
  using Type = typename T::Facts;
};

template <class T>
class Registered {
 public:
  using Facts = typename FactsOf<T>::Type;
  using Context = typename T::Context;
  // `options` is the component's resolved object: complete and within range.
  using Make = std::function<std::unique_ptr<T>(const Json& options, const Context&)>;

  template <Described Options>
  Registered(Facts facts, std::unique_ptr<T> (*make)(const Options&, const Context&))
      : Registered(
            with_options<Options>(std::move(facts)),
            [make](const Json& options, const Context& context) {
              return make(read_options<Options>(options), context);
            },
            Complete()) {}

  // An entry without options, in a family without facts.
  Registered(About about, Make make)
    requires std::is_same_v<Facts, About>
      : Registered(std::move(about), std::move(make), Complete()) {}

  // Makes the component that `options` names. `options` must have passed `resolve`. Options that do not fit
  // each other, or what the context knows of the run (Context::outline), are refused.
  static std::unique_ptr<T> create(const Json& options, const Context& context) {
    RunOutline run;
    if constexpr (requires { context.outline(); }) run = context.outline();
    refuse_misfits(T::kFamily, options, run);
    return makers().at(options.at("name").template get<std::string>())(options, context);
  }

 private:
  struct Complete {};
  Registered(About about, Make make, Complete) {
    makers()[about.name] = std::move(make);
    register_about(T::kFamily, std::move(about));
  }

  static std::map<std::string, Make>& makers() {
    static std::map<std::string, Make> all;
    return all;
  }
};

template <class Base, class Derived>
std::unique_ptr<Base> make(const typename Derived::Options& options, const typename Base::Context& context) {
  return std::make_unique<Derived>(options, context);
}

// What other frameworks call our components, so that a message can answer their names with ours. Whoever
// registers the components says it (no code of harness names a strategy):
//
//   const OtherNames names{"strategy", {{"SyncBatchNorm", "sync"}, {"BN", "per_tower"}}};
struct OtherNames {
  // `names`: theirs, then ours.
  OtherNames(const std::string& family, const std::vector<std::pair<std::string, std::string>>& names);
};

// `; bnlab calls it "sync"`, or "" for a name that nobody has told. Case, `_`, `-`, a framework's prefix
// ("nn.") and the dimensions at the end ("2d") make no difference; neither need a name be told that differs
// from ours in nothing else.
std::string answer_to_other_name(const std::string& family, const std::string& name);

}  // namespace bnlab
