// LibTorch has Gloo inside but does not ship its headers; harness/communicator/gloo_headers declares what
// c10d's headers need of it. Here every virtual function of those declarations is called on an object that
// LibTorch made: a function that is missing there, or declared in another order, would call its neighbour.
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace {

using Bytes = std::vector<char>;

TEST(GlooHeaders, EveryFunctionOfAStoreIsTheOneThatLibTorchHas) {
  const auto below = c10::make_intrusive<c10d::HashStore>();
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(below, 0, 1, options);
  gloo::rendezvous::Store& store = *group->_getStore();
  const Bytes one{'1'}, two{'2'};

  store.set("a", one);
  EXPECT_EQ(below->get("a"), std::vector<uint8_t>{'1'});
  EXPECT_EQ(store.get("a"), one);
  const std::chrono::milliseconds soon(50);
  EXPECT_EQ(store.wait_get("a", soon), one);
  store.wait({"a"});
  store.wait({"a"}, soon);
  EXPECT_ANY_THROW(store.wait({"absent"}, soon));
  EXPECT_EQ(store.has_v2_support(), below->hasExtendedApi());
  store.multi_set({"b", "c"}, {one, two});
  EXPECT_EQ(store.multi_get({"c", "b"}), (std::vector<Bytes>{two, one}));
  store.append("b", two);
  EXPECT_EQ(store.get("b"), (Bytes{'1', '2'}));
  EXPECT_EQ(store.add("count", 3), 3);
  EXPECT_EQ(store.add("count", 4), 7);
}

}  // namespace
