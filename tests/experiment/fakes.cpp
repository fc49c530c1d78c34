// Components that exist only for the tests of specs, which need names and options but no layers. They are
// linked into the test program without LibTorch and nowhere else.
#include "harness/components/registry.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

BNLAB_CHOICE(Gradient, full, own_tower, stopped)

struct Own {
  std::optional<double> momentum = 0.1;
  void describe(OptionVisitor& option) {
    option("momentum", momentum, "weight of the new value").above(0).at_most(1);
  }
};

struct Pooled : Own {
  Gradient gradient = Gradient::full;
  std::optional<int64_t> group_size;
  void describe(OptionVisitor& option) {
    Own::describe(option);
    option("gradient", gradient, "");
    option("group_size", group_size, "").at_least(1);
  }
  void check(const RunOutline& run, Problems& problems) const {
    if (group_size && run.samples_per_tower.size() % static_cast<size_t>(*group_size) != 0) {
      problems.add("group_size",
                   "does not divide the " + std::to_string(run.samples_per_tower.size()) + " towers");
    }
  }
};

struct Groups {
  int64_t groups = 8;
  bool affine = true;
  void describe(OptionVisitor& option) {
    option("groups", groups, "").at_least(1);
    option("affine", affine, "");
  }
  void check(const RunOutline& run, Problems& problems) const {
    for (const int64_t channels : run.norm_channels)
      if (channels % groups != 0)
        problems.add("groups", "does not divide " + std::to_string(channels) + " channels");
  }
};

struct Wrapped {
  Json base = "fake_pooled";
  void describe(OptionVisitor& option) { option.component("base", base, "strategy", "the strategy inside"); }
};

struct Ghost {
  int64_t virtual_batch = 0;
  void describe(OptionVisitor& option) { option("virtual_batch", virtual_batch, "").at_least(1).needed(); }
};

struct Net {
  int64_t base = 16;
  void describe(OptionVisitor& option) { option("base", base, "").at_least(1).at_most(512); }
  std::vector<int64_t> norm_channels() const { return {base}; }
};

struct BackboneNet {
  Json backbone = "fake_backbone";
  void describe(OptionVisitor& option) { option.component("backbone", backbone, "backbone", ""); }
};

struct Shapes {
  std::array<int64_t, 2> size = {64, 64};
  double nuisance = 0.2;
  std::vector<std::string> classes;
  void describe(OptionVisitor& option) {
    option("size", size, "").at_least(1);
    option("nuisance", nuisance, "").at_least(0);
    option("classes", classes, "");
  }
  std::vector<std::string> sort_keys() const { return {"class", "drive"}; }
  std::vector<std::string> test_sort_keys() const { return {"drive"}; }
};

struct OnFiles : Shapes {
  std::string test_split = "test";
  std::optional<std::string> test_list;
  std::vector<std::string> test_drives;
  void describe(OptionVisitor& option) {
    Shapes::describe(option);
    option("test_split", test_split, "");
    option("test_list", test_list, "");
    option("test_drives", test_drives, "");
  }
  Paths files(const std::string&) const { return {}; }
};

struct Group {
  std::string prefix;
  void describe(OptionVisitor& option) { option("prefix", prefix, "").not_empty().needed(); }
};

// The optimizer of specs that name none.
struct Sgd {
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double power = 0.9;
  std::vector<Group> groups;
  void describe(OptionVisitor& option) {
    option("lr", lr, "").above(0);
    option("momentum", momentum, "").at_least(0).at_most(1);
    option("nesterov", nesterov, "");
    option("weight_decay", weight_decay, "").at_least(0);
    option("power", power, "").above(0);
    option("groups", groups, "");
  }
  void check(const RunOutline&, Problems& problems) const {
    if (nesterov && momentum == 0) problems.add("nesterov", "expected false where momentum is 0, got true");
  }
};

[[maybe_unused]] const bool declared_here = [] {
  register_about("strategy", with_options<Own>({.name = "fake_own", .summary = "own moments"}));
  register_about("strategy", with_options<Pooled>({.name = "fake_pooled", .summary = "pooled moments"}));
  register_about("strategy", with_options<Groups>({.name = "fake_groups", .summary = "groups of channels"}));
  register_about("strategy",
                 with_options<Wrapped>({.name = "fake_wrapped", .summary = "another strategy inside"}));
  register_about("strategy", with_options<Ghost>({.name = "fake_ghost"}));
  register_about("model", with_options<Net>(ModelFacts{.name = "fake_net"}));
  register_about("model", with_options<BackboneNet>(ModelFacts{.name = "fake_backbone_net"}));
  register_about("backbone", with_options<Net>({.name = "fake_backbone"}));
  register_about("task", with_options<Shapes>(TaskFacts{.name = "fake_shapes"}));
  register_about("task", with_options<OnFiles>(TaskFacts{.name = "fake_files"}));
  register_about("task", with_options<Shapes>(TaskFacts{.name = "fake_clips", .labelled = Labelled::clips}));
  register_about("model",
                 with_options<Net>(ModelFacts{.name = "fake_clip_net", .answers_for = Labelled::clips}));
  register_about("optimizer", with_options<Sgd>({.name = "sgd"}));
  return true;
}();

}  // namespace
}  // namespace bnlab
