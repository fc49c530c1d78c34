// convert, fold and recompute: what is done to all layers below a module.
#include <sstream>

#include "tests/embed/nets.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

TEST(Recompute, MakesTheStatisticsOfTheBatchesAndTrainingGoesOnFromItsOwn) {
  nn::Sequential net(norm_of(BatchNormOptions(kChannels).strategy("precise").towers_per_rank(2)),
                     norm_of(BatchNormOptions(kChannels)));
  nn::Sequential other(std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone()));
  for (uint64_t s = 0; s < 2; ++s) {
    net->forward(batch(6, s));
    other->forward(batch(6, s));
  }
  net->eval();
  recompute(*net, 3, [&](int64_t i) { net->forward(batch(6, 10 + static_cast<uint64_t>(i))); });
  EXPECT_FALSE(net->is_training());
  const at::Tensor all = at::cat({batch(6, 10), batch(6, 11), batch(6, 12)});
  EXPECT_LT(difference(net->named_buffers()["0.running_mean"], all.mean({0, 2, 3})), 1e-12);
  EXPECT_LT(difference(net->named_buffers()["0.running_var"], all.var({0, 2, 3}, true)), 1e-11);
  EXPECT_GT(difference(net->named_buffers()["1.running_mean"], other->named_buffers()["1.running_mean"]), 0);
  net->train();
  net->forward(batch(6, 3));
  other->forward(batch(6, 3));
  EXPECT_EQ(difference(net->named_buffers()["0.running_mean"], other->named_buffers()["0.running_mean"]), 0);
}

TEST(Recompute, AfterACallThatFailedKnowsNothingOfItsBatches) {
  nn::Sequential net(norm_of(BatchNormOptions(kChannels)), norm_of(BatchNormOptions(kChannels)));
  const auto pass = [&](int64_t i) { net->forward(batch(6, 10 + static_cast<uint64_t>(i))); };
  EXPECT_SAYS(recompute(*net, 3,
                        [&](int64_t i) {
                          pass(i + 5);
                          throw std::runtime_error("no more images");
                        }),
              "no more images");
  recompute(*net, 2, pass);
  const at::Tensor all = at::cat({batch(6, 10), batch(6, 11)});
  EXPECT_LT(difference(net->named_buffers()["0.running_mean"], all.mean({0, 2, 3})), 1e-12);
  nn::Sequential fresh(norm_of(BatchNormOptions(kChannels)), norm_of(BatchNormOptions(kChannels)));
  recompute(*fresh, 2, [&](int64_t i) { fresh->forward(batch(6, 10 + static_cast<uint64_t>(i))); });
  EXPECT_EQ(difference(net->named_buffers()["1.running_var"], fresh->named_buffers()["1.running_var"]), 0);
}

TEST(Recompute, OfALayerThatStandsTwiceTakesAllItsPasses) {
  BatchNorm norm = norm_of(BatchNormOptions(kChannels));
  nn::Sequential net(norm, nn::ReLU(), norm);
  const at::Tensor x = batch(6, 0);
  recompute(*net, 1, [&](int64_t) { net->forward(x); });
  const at::Tensor first = plain_norm()->forward(x).relu();
  EXPECT_LT(difference(norm->running_mean, at::cat({x, first}).mean({0, 2, 3})), 1e-12);
}

TEST(Recompute, LeavesWhatIsLoadedIntoALayerThatNoPassReaches) {
  BatchNorm used = norm_of(BatchNormOptions(kChannels)), idle = norm_of(BatchNormOptions(kChannels));
  nn::Sequential both(used, idle);
  idle->running_mean.fill_(3);
  recompute(*both, 1, [&](int64_t) { used->forward(batch(6, 0)); });
  EXPECT_EQ(idle->running_mean[0].item<double>(), 3);
}

TEST(Recompute, OfAFrozenLayerLeavesWhatItTrainsWith) {
  for (const char* base : {"averaged", "sync", "per_tower"}) {
    BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy(
        std::string("frozen(from_step=1,train_affine=true,base=") + base + ")"));
    layer->forward(batch(6, 0));
    const at::Tensor before = layer->forward(batch(6, 1)).detach();
    recompute(*layer, 1, [&](int64_t) { layer->forward(batch(6, 2)); });
    EXPECT_LT(difference(layer->running_mean, batch(6, 2).mean({0, 2, 3})), 1e-12);
    EXPECT_EQ(difference(layer->forward(batch(6, 1)), before), 0) << base;
    layer->eval();
    EXPECT_LT(difference(layer->forward(batch(6, 1)), before), 1e-12) << base;
  }
}

TEST(Recompute, IsLeftByAPassThatDoesNotCount) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels)
                                .strategy("frozen(from_step=1,base=per_tower)")
                                .counting(Counting::first_before_backward));
  layer->forward(batch(6, 0)).sum().backward();
  recompute(*layer, 1, [&](int64_t) { layer->forward(batch(6, 2)); });
  const at::NoGradGuard none;
  layer->forward(batch(6, 3));
  EXPECT_LT(difference(layer->running_mean, batch(6, 2).mean({0, 2, 3})), 1e-12);
}

struct FixedImpl : nn::Module {
  FixedImpl() { register_module("norm", norm); }
  at::Tensor forward(const at::Tensor& x) { return norm(x); }
  nn::BatchNorm2d norm{3};
};
TORCH_MODULE(Fixed);

nn::Sequential stock() {
  Block inner(nn::Conv2d(3, 4, 1), nn::BatchNorm2d(nn::BatchNorm2dOptions(4).eps(1e-3).momentum(0.3)));
  return nn::Sequential(nn::BatchNorm2d(3), inner, nn::ReLU());
}

TEST(Convert, ExchangesBatchNormsInContainersAndBack) {
  nn::Sequential net = stock(), same = stock();
  torch::nn::init::uniform_(net->named_parameters()["1.1.weight"], 1, 2);
  const auto copy = [](nn::Sequential& from, nn::Sequential& to) {
    std::stringstream file;
    torch::save(from, file);
    torch::load(to, file);
  };
  net->forward(batch(6, 0).to(at::kFloat));
  copy(net, same);
  EXPECT_EQ(convert(*net, BatchNormOptions().strategy("sync").towers_per_rank(2)), 2);
  for (uint64_t s = 1; s < 3; ++s) {
    const at::Tensor x = batch(6, s).to(at::kFloat);
    EXPECT_LT(difference(net->forward(x), same->forward(x)), 1e-5);
  }
  std::stringstream text;
  text << net;
  EXPECT_NE(text.str().find("bnlab::BatchNorm(4, eps=0.001, momentum=0.3"), std::string::npos) << text.str();
  EXPECT_EQ(convert(*net, BatchNormOptions().strategy("per_tower")), 2);  // and from one strategy to another
  EXPECT_EQ(convert_back(*net), 2);
  net->eval();
  same->eval();
  EXPECT_LT(difference(net->forward(batch(2, 5).to(at::kFloat)), same->forward(batch(2, 5).to(at::kFloat))),
            1e-5);
  EXPECT_NE(net->named_children()["0"]->as<nn::BatchNorm2dImpl>(), nullptr);
}

TEST(Convert, NamesTheLayersThatCannotBeExchangedAndChangesNone) {
  nn::Sequential net(nn::BatchNorm2d(3), Fixed(), Fixed());
  EXPECT_SAYS(convert(*net, BatchNormOptions()), "1.norm, 2.norm: C++ fixes the type");
  EXPECT_NE(net->named_children()["0"]->as<nn::BatchNorm2dImpl>(), nullptr);
}

struct DoubledNormImpl : nn::BatchNorm2dImpl {
  using BatchNorm2dImpl::BatchNorm2dImpl;
  at::Tensor forward(const at::Tensor& x) { return 2 * BatchNorm2dImpl::forward(x); }
};

TEST(Convert, RefusesClassesThatAreMadeOfBatchNorm) {
  nn::Sequential net(nn::BatchNorm2d(3), std::make_shared<DoubledNormImpl>(3));
  EXPECT_SAYS(convert(*net, BatchNormOptions()),
              "1 is a class made of BatchNorm, whose forward() would be lost");
  EXPECT_NE(net[0]->as<nn::BatchNorm2d>(), nullptr);
}

// A Sequential with a member beside what it calls in turn.
struct SkipImpl : nn::SequentialImpl {
  explicit SkipImpl(std::shared_ptr<nn::Module> member = nn::Conv2d(3, 3, 1).ptr())
      : skip(register_module("skip", std::move(member))) {}
  at::Tensor forward(const at::Tensor& x) { return SequentialImpl::forward(x); }
  std::shared_ptr<nn::Module> skip;
};

TEST(Convert, ExchangesInTheRightPlaceBesideOtherMembers) {
  const auto skip = std::make_shared<SkipImpl>();
  skip->push_back(nn::Conv2d(3, 3, 1));
  skip->push_back(nn::BatchNorm2d(3));
  skip->push_back(nn::Conv2d(3, 3, 1));
  const at::Tensor x = batch(6, 0).to(at::kFloat), y = skip->forward(x).detach();
  EXPECT_EQ(convert(*skip, BatchNormOptions()), 1);
  EXPECT_LT(difference(skip->forward(x), y), 1e-5);
  skip->eval();
  const at::Tensor evaluated = skip->forward(x).detach();
  EXPECT_EQ(fold(*skip), std::vector<std::string>());
  EXPECT_LT(difference(skip->forward(x), evaluated), 1e-5);

  const auto fixed = std::make_shared<SkipImpl>(nn::BatchNorm2d(3).ptr());
  fixed->push_back(nn::Conv2d(3, 3, 1));
  EXPECT_SAYS(convert(*fixed, BatchNormOptions()), "skip: C++ fixes the type");

  nn::Conv2d both(3, 3, 1);  // a member that is called in turn, too
  const auto twice = std::make_shared<SkipImpl>(both.ptr());
  twice->push_back(both);
  twice->push_back(BatchNorm(3));
  twice->eval();
  EXPECT_EQ(fold(*twice).size(), 1U);
}

TEST(Convert, LeavesALayerThatStandsTwiceOneLayer) {
  nn::BatchNorm2d norm(3), also(3);
  nn::Sequential net(norm, nn::ReLU(), norm), same(also, nn::ReLU(), also);
  EXPECT_EQ(convert(*net, BatchNormOptions()), 2);
  EXPECT_EQ(net->named_children()["0"], net->named_children()["2"]);
  const at::Tensor x = batch(6, 0).to(at::kFloat);
  EXPECT_LT(difference(net->forward(x), same->forward(x)), 1e-5);
  EXPECT_EQ(convert_back(*net), 2);
  EXPECT_EQ(net->named_children()["0"], net->named_children()["2"]);
  net->eval();
  same->eval();
  EXPECT_LT(difference(net->forward(x), same->forward(x)), 1e-5);
}

struct DoubledOursImpl : BatchNormImpl {
  using BatchNormImpl::BatchNormImpl;
  at::Tensor forward(const at::Tensor& x) { return 2 * BatchNormImpl::forward(x); }
};

TEST(Convert, LeavesClassesThatAreMadeOfOurs) {
  nn::Sequential net(nn::Conv2d(3, 3, 1), std::make_shared<DoubledOursImpl>(BatchNormOptions(3)));
  EXPECT_SAYS(convert_back(*net), "1 is a class made of BatchNorm, whose forward() would be lost");
  net->eval();
  const at::Tensor x = batch(6, 0).to(at::kFloat), y = net->forward(x);
  EXPECT_EQ(fold(*net).size(), 1U);
  EXPECT_TRUE(at::equal(net->forward(x), y));
}

TEST(Convert, LeavesFrozenParametersFrozen) {
  nn::Sequential net(nn::BatchNorm2d(3));
  net->named_parameters()["0.weight"].requires_grad_(false);
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_FALSE(net->named_parameters()["0.weight"].requires_grad());
  EXPECT_TRUE(net->named_parameters()["0.bias"].requires_grad());
  convert(*net, BatchNormOptions().strategy(R"({"name": "frozen", "base": "sync"})"));
  net->forward(batch(6, 0).to(at::kFloat));
  EXPECT_FALSE(net->named_parameters()["0.bias"].requires_grad()) << "the strategy has frozen it";
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_TRUE(net->named_parameters()["0.bias"].requires_grad());
  convert_back(*net);
  EXPECT_FALSE(net->named_parameters()["0.weight"].requires_grad());
  EXPECT_TRUE(net->named_parameters()["0.bias"].requires_grad());
}

TEST(Convert, ChangesNoLayerWhereTheStrategyRefusesOne) {
  nn::Sequential net(nn::BatchNorm2d(8), nn::BatchNorm2d(12));
  EXPECT_SAYS(convert(*net, BatchNormOptions().strategy("group_norm")), "12");
  EXPECT_NE(net->named_children()["0"]->as<nn::BatchNorm2dImpl>(), nullptr);
}

TEST(Convert, MakesNoBatchNormOfWhatIsNone) {
  nn::Sequential net(BatchNorm(BatchNormOptions(3).strategy("dynamic_tanh").track_running_stats(false)));
  EXPECT_SAYS(convert_back(*net), "has not the tensors of BatchNorm");
}

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
