// Registries of named components. A component's source file registers itself at its end:
//
//   const Registered<Strategy> entry{{.name = "sync", .summary = "pools the moments of all towers", ...},
//                                    make<Strategy, Sync>};
//
// where Sync::Options are its options (options.hpp) and its constructor takes (const Options&, const
// Context&). A registered type T declares `static constexpr const char* kFamily` and `using Context`, what
// its constructors take beside the options. A component's file has a namespace of its own, bnlab::NAME, so that
// the files of a folder can be compiled together (cmake/together.cmake). Objects that register themselves must
// be linked whole (an OBJECT library): from a static library the linker drops them.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/components/parameters.hpp"

namespace bnlab {

using Channels = std::vector<int64_t>;
using ImageSizes = std::vector<std::array<int64_t, 2>>;  // height, width

// What labels belong to: each pixel, each image, or each clip of frames.
BNLAB_CHOICE(Subjects, pixels, images, clips)

// What is known of a run before it starts; empty where it is not.
struct RunOutline {
  std::vector<int64_t> samples_per_tower = {};
  Channels norm_channels = {};  // of the model's norm sites
  ImageSizes image_sizes = {};  // of the task
  bool has_length = true;       // false: fractions of the run mean nothing
};

// What a registry knows of an entry without making it.
struct About {
  std::string name;
  std::string summary = {};  // one line: what it computes
  std::string source = {};   // paper or discussion that it follows; may be empty
  // Of strategies, for `bnlab explain` and the table of strategies/README.md:
  std::string formula = {};    // lines, as a reader would implement it
  std::string exchanges = {};  // per site and training step, in words: "none", "1 forward, 1 backward"
  std::string use = {};        // when to use it
  std::string limits = {};     // what it cannot do
  // Of tasks and models: what is labelled, and what is answered; they must be the same.
  Subjects of = Subjects::pixels;

  // These follow from the options of the entry; Registered fills them in.
  std::vector<Parameter> parameters = {};
  // What is wrong with resolved options in such a run, beside what each option may be by itself.
  std::function<void(const Json& options, const RunOutline&, Problems&)> check = {};
  // Of models: channels of each kind of norm site.
  std::function<Channels(const Json& options)> norm_channels = [](const Json&) { return Channels(); };
  // Of backbones: channels of the maps at 1/2, 1/4, 1/8, 1/16 and 1/32 of the image, and the strides that the last of them
  // may keep by dilation.
  std::function<Channels(const Json& options)> feature_channels = [](const Json&) { return Channels(); };
  std::function<std::vector<int64_t>(const Json& options)> output_strides = [](const Json&) {
    return std::vector<int64_t>();
  };
  // Of tasks: the sizes of images that the options tell, those of training first, then those of the test.
  std::function<ImageSizes(const Json& options)> image_sizes = [](const Json&) { return ImageSizes(); };
  // Of strategies: whether evaluation has running statistics to use.
  std::function<bool(const Json& options)> has_running_statistics = [](const Json&) { return false; };
};

// Everything registered in a family ("strategy", "model", "backbone", "task", "optimizer", "loss"), by name. Needs no LibTorch.
const std::map<std::string, About>& registered(const std::string& family);
const About* find_registered(const std::string& family, const std::string& name);  // null if unknown
std::vector<std::string> registered_names(const std::string& family);
void register_about(const std::string& family, About about);  // throws std::logic_error if taken

// The declaration of a key named like its family that must name an entry of it.
Parameter component_key(const std::string& family);

// Checks a resolved component, which stands at `path`, against the run: Options::check of its entry, and of the
// entries that its options name.
void check_component(const std::string& family, const Json& component, const std::string& path,
                     const RunOutline& run, Problems& problems);
// The same where there is no spec to blame: throws Error (refused) with all that is wrong.
void refuse_misfits(const std::string& family, const Json& component, const RunOutline& run);

// An entry that takes `Options`, filled in with what follows from them.
template <Described Options>
About with_options(About about) {
  about.parameters = declared<Options>();
  if constexpr (requires(const Options& o, const RunOutline& run, Problems& p) { o.check(run, p); }) {
    about.check = [](const Json& options, const RunOutline& run, Problems& problems) {
      read_options<Options>(options).check(run, problems);
    };
  }
  const auto asked = [](auto question) {
    return [question](const Json& options) { return std::invoke(question, read_options<Options>(options)); };
  };
  if constexpr (requires { &Options::norm_channels; }) {
    about.norm_channels = asked(&Options::norm_channels);
  }
  if constexpr (requires { &Options::output_strides; }) {
    about.feature_channels = asked(&Options::feature_channels);
    about.output_strides = asked(&Options::output_strides);
  }
  if constexpr (requires { &Options::image_sizes; }) {
    about.image_sizes = asked(&Options::image_sizes);
  }
  if constexpr (requires { &Options::has_running_statistics; }) {
    about.has_running_statistics = asked(&Options::has_running_statistics);
  }
  return about;
}

template <class T>
class Registered {
 public:
  using Context = typename T::Context;
  // `options` is the component's resolved object: complete and within range.
  using Make = std::function<std::unique_ptr<T>(const Json& options, const Context&)>;

  Registered(About about, Make make) {
    makers()[about.name] = std::move(make);
    register_about(T::kFamily, std::move(about));
  }

  template <Described Options>
  Registered(About about, std::unique_ptr<T> (*make)(const Options&, const Context&))
      : Registered(with_options<Options>(std::move(about)),
                   [make](const Json& options, const Context& context) {
                     return make(read_options<Options>(options), context);
                   }) {}

  // Makes the component that `options` names. `options` must have passed `resolve`. Options that do not fit
  // each other, or what the context knows of the run (Context::outline), are refused.
  static std::unique_ptr<T> create(const Json& options, const Context& context) {
    RunOutline run;
    if constexpr (requires { context.outline(); }) {
      run = context.outline();
    }
    refuse_misfits(T::kFamily, options, run);
    return makers().at(options.at("name").template get<std::string>())(options, context);
  }

 private:
  static std::map<std::string, Make>& makers() {
    static std::map<std::string, Make> all;
    return all;
  }
};

template <class Base, class Derived>
std::unique_ptr<Base> make(const typename Derived::Options& options, const typename Base::Context& context) {
  return std::make_unique<Derived>(options, context);
}

}  // namespace bnlab
