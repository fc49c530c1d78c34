// bnlab::fold: norms that are put into the layers before them.
#include "tests/embed/nets.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

// Of layers of every strategy that keeps statistics, behind convolutions and a linear layer.
TEST(Fold, LeavesTheOutputsOfEveryStrategyWithStatistics) {
  for (const char* strategy :
       {"per_tower", "sync", "averaged", "every_tower", "ghost", "frozen",
        R"({"name": "batch_renorm", "schedule": null})", R"({"name": "precise", "base": "sync"})",
        R"({"name": "sync", "affine": false})"}) {
    const auto norm = [&](int64_t channels) { return BatchNormOptions(channels).strategy(strategy); };
    Block inner(nn::Conv2d(nn::Conv2dOptions(3, 6, 3).bias(false)), BatchNorm(norm(6).relu(true)),
                nn::Conv2d(nn::Conv2dOptions(6, 4, 2).groups(2)), BatchNorm(norm(4)));
    nn::Sequential net(inner, nn::Flatten(), nn::Linear(8, 5), BatchNorm(norm(5)));
    for (uint64_t s = 0; s < 3; ++s) net->forward(batch(6, s).to(at::kFloat));
    net->eval();
    const at::Tensor x = batch(4, 9).to(at::kFloat), expected = net->forward(x).detach();
    EXPECT_EQ(fold(*net), std::vector<std::string>());
    EXPECT_LT(difference(net->forward(x), expected), 1e-5 * expected.abs().max().item<double>()) << strategy;
    for (const auto& module : net->modules()) EXPECT_EQ(module->as<BatchNorm>(), nullptr);
    EXPECT_EQ(fold(*net), std::vector<std::string>());
  }
}

// A convolution in whose place a plain one would compute something else.
struct DoubledConvImpl : nn::Conv2dImpl {
  using Conv2dImpl::Conv2dImpl;
  at::Tensor forward(const at::Tensor& x) { return 2 * Conv2dImpl::forward(x); }
};
TORCH_MODULE(DoubledConv);

TEST(Fold, LeavesClassesThatAreMadeOfAConvolution) {
  nn::Sequential net(DoubledConv(nn::Conv2dOptions(3, 8, 1)), BatchNorm(8));
  net->eval();
  const at::Tensor x = batch(4, 9).to(at::kFloat), expected = net->forward(x);
  EXPECT_EQ(fold(*net).size(), 1U);
  EXPECT_TRUE(at::equal(net->forward(x), expected));
}

TEST(Fold, NamesTheLayersThatStay) {
  nn::Sequential net(BatchNorm(BatchNormOptions(3)), nn::Conv2d(3, 8, 1), nn::ReLU(),
                     BatchNorm(BatchNormOptions(8)), nn::Conv2d(8, 8, 1),
                     BatchNorm(BatchNormOptions(8).strategy("group_norm")));
  net->forward(batch(6, 0).to(at::kFloat));
  EXPECT_SAYS(fold(*net), "0 is in training mode; call eval() first");
  net->eval();
  const at::Tensor x = batch(4, 9).to(at::kFloat), expected = net->forward(x);
  const std::string alone = ": no convolution or linear layer stands just before it in a Sequential";
  EXPECT_EQ(fold(*net), (std::vector<std::string>{"0" + alone, "3" + alone,
                                                  "5: its strategy group_norm depends on its input"}));
  EXPECT_TRUE(at::equal(net->forward(x), expected));
}

}  // namespace
}  // namespace bnlab
