// What the tests of DataParallel beside DistributedDataParallel share: each answers a row of
// harness/embed/like_pytorch.md.
#pragma once

#include "two_ranks.hpp"

namespace bnlab::like_ddp_test {

namespace nn = torch::nn;
using Tensors = std::vector<at::Tensor>;

inline at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

// In double, with weights that the seed says.
template <class Net>
Net seeded(Net net, uint64_t seed = 0) {
  const at::NoGradGuard no_grad;
  net->to(at::kDouble);
  for (at::Tensor& p : net->parameters()) p.copy_(normal(p.sizes(), ++seed));
  return net;
}

inline nn::Sequential small_net(uint64_t seed = 0) {
  return seeded(nn::Sequential(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 2)), seed);
}

// Two layers, of which a pass may use one: 0 or 1, or both: 2.
struct BranchesImpl : nn::Module {
  BranchesImpl() { register_module("first", first), register_module("second", second); }
  at::Tensor loss(int which, const at::Tensor& x) {
    at::Tensor sum = at::zeros({}, x.options());
    sum = which != 1 ? sum + first(x).square().sum() : sum;
    return which != 0 ? sum + second(x).square().sum() : sum;
  }
  nn::Linear first{3, 2}, second{3, 2};
};
TORCH_MODULE(Branches);

inline const at::Tensor& all_rows() {
  static const at::Tensor x = normal({6, 3}, 100);
  return x;
}

inline at::Tensor rows_of(const Ranks& ranks) {
  return all_rows().slice(0, ranks.share(6).first, ranks.share(6).second);
}

inline at::Tensor flat(const Tensors& tensors) {
  Tensors all;
  for (const at::Tensor& t : tensors) all.push_back(t.detach().flatten().to(at::kDouble));
  return at::cat(all);
}

inline at::Tensor gradients(const nn::Module& net) {
  Tensors all;
  for (const at::Tensor& p : net.parameters())
    all.push_back(p.grad().defined() ? p.grad() : at::full_like(p, 1e9));
  return flat(all);
}

// The gradients of the mean loss over all rows, in one process.
template <class Net>
at::Tensor gradients_alone(Net net, const std::function<at::Tensor(Net&, const at::Tensor&)>& loss) {
  loss(net, all_rows()).backward();
  return gradients(*net);
}

inline at::Tensor loss_of(nn::Sequential& net, const at::Tensor& x) {
  return net->forward(x).square().mean();
}

template <class Body>
void expect_same_on_both(const at::Tensor& expected, const Body& body) {
  const auto [first, second] = on_two_ranks(body);
  EXPECT_LT(difference(first, expected), 1e-12) << first << expected;
  EXPECT_LT(difference(second, expected), 1e-12) << second << expected;
}

// Both ranks are told `text` by what `body` throws.
template <class Body>
void expect_both_say(const std::string& text, const Body& body) {
  const auto told = on_two_ranks([&](const Ranks& ranks) { return refusal([&] { body(ranks); }); });
  for (const std::string& message : {told.first, told.second})
    EXPECT_NE(message.find(text), std::string::npos) << "expected: " << text << "\n     got: " << message;
}

// Made with a module that has one tensor of each rank's own.
inline void expect_refused_where_ranks_differ(const std::string& text,
                                              const std::function<void(nn::Module&, int rank)>& tensors) {
  expect_both_say("DataParallel: the module is not the same on all ranks: rank 0 has " + text,
                  [&](const Ranks& ranks) {
                    nn::Module net("Net");
                    net.register_parameter("same", at::ones({2}));
                    tensors(net, ranks.rank());
                    DataParallel parallel(net, ranks);
                  });
}

}  // namespace bnlab::like_ddp_test
