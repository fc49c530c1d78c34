// Components that exist only for the tests of specs, which need names and parameters but no layers. They are
// linked into the test program without LibTorch and nowhere else.
#include "harness/components/registry.hpp"

namespace bnlab {
namespace {

using P = Parameter;

P momentum() {
  return P::number("momentum", 0.1, "weight of the new value").above(0).at_most(1).or_null();
}

const bool declared = [] {
  register_about("strategy", {"fake_own", "own moments", {momentum()}, ""});
  register_about("strategy",
                 {"fake_pooled",
                  "pooled moments",
                  {momentum(), P::choice("gradient", "full", {"full", "own_tower", "stopped"}, ""),
                   P::integer("group_size", nullptr, "").at_least(1).or_null()},
                  ""});
  register_about("strategy", {"fake_groups",
                              "groups of channels",
                              {P::integer("groups", 8, "").at_least(1), P::boolean("affine", true, "")},
                              ""});
  register_about("strategy", {"fake_wrapped",
                              "another strategy inside",
                              {P::component("base", "strategy", "fake_pooled", "the strategy inside")},
                              ""});
  register_about("strategy",
                 {"fake_ghost", "", {P::integer("virtual_batch", nullptr, "").at_least(1).needed()}, ""});
  register_about("model", {"fake_net", "", {P::integer("base", 16, "").at_least(1).at_most(512)}, ""});
  register_about(
      "task", {"fake_shapes",
               "",
               {P::integers("size", {64, 64}, 2, "").at_least(1), P::number("nuisance", 0.2, "").at_least(0),
                P::texts("classes", Json::array(), {}, "")},
               ""});
  return true;
}();

}  // namespace
}  // namespace bnlab
