// BatchNorm in every state that a program puts a module into, against torch::nn::BatchNorm2d: one table over
// {train, eval, save, load, clone, to, resume} x {momentum, null} x {1, 2 layers} x strategies that on one
// rank with one tower are batch normalisation.
#include <sstream>

#include "nets.hpp"

namespace bnlab {
namespace {

using Net = torch::nn::Sequential;
using Tensors = std::vector<at::Tensor>;

void step(Net& net, uint64_t seed, Tensors* seen = nullptr, double shift = 0) {
  const auto dtype = net->parameters().front().scalar_type();
  const at::Tensor x = (batch(6, seed) + shift).to(dtype).requires_grad_();
  net->zero_grad();
  const at::Tensor y = net->forward(x);
  y.backward(batch(6, seed + 50).to(dtype));
  if (seen != nullptr) {
    seen->insert(seen->end(), {y.detach(), x.grad()});
    for (const at::Tensor& p : net->parameters()) seen->push_back(p.grad().clone());
  }
}

void steps(Net& net, uint64_t first, int count = 3) {
  for (int i = 0; i < count; ++i) step(net, first + i);
}

void see_state(Net& net, Tensors& seen) {
  for (const auto& tensor : net->named_buffers())
    seen.push_back(tensor.value().detach().to(at::kDouble).clone());
}

void see_evaluation(Net& net, Tensors& seen) {
  net->eval();
  seen.push_back(net->forward(batch(2, 90).to(net->parameters().front().scalar_type())).detach());
  net->train();
}

Net copy_of(const Net& net) {
  return Net(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
}

std::string saved(const Net& net) {
  std::stringstream file;
  torch::save(net, file);
  return file.str();
}

void load(Net& net, const std::string& text) {
  std::stringstream file(text);
  torch::load(net, file);
}

struct State {
  const char* name;
  std::function<Tensors(const std::function<Net()>& make)> run;
};

const State kStates[] = {
    {"train",
     [](const auto& make) {
       Tensors seen;
       Net net = make();
       for (uint64_t s = 0; s < 3; ++s) {
         step(net, s, &seen);
         see_state(net, seen);
       }
       return seen;
     }},
    {"eval",
     [](const auto& make) {
       Tensors seen;
       Net net = make();
       see_evaluation(net, seen);
       steps(net, 0);
       see_evaluation(net, seen);
       step(net, 7, &seen);
       see_state(net, seen);
       return seen;
     }},
    {"save",  // in training mode, evaluated by another net
     [](const auto& make) {
       Tensors seen;
       Net net = make(), other = make();
       steps(net, 0);
       load(other, saved(net));
       see_evaluation(other, seen);
       see_state(other, seen);
       step(net, 7, &seen);
       return seen;
     }},
    {"load",  // of an earlier step; and of one layer alone
     [](const auto& make) {
       Tensors seen;
       Net net = make(), other = make();
       steps(net, 0);
       const std::string early = saved(net);
       steps(net, 3);
       load(net, early);
       step(net, 9, &seen);
       see_state(net, seen);
       steps(other, 20);
       net->begin()->ptr()->named_buffers()["running_mean"].copy_(other->named_buffers()["0.running_mean"]);
       step(net, 10, &seen);
       see_state(net, seen);
       return seen;
     }},
    {"clone",
     [](const auto& make) {
       Tensors seen;
       Net net = make();
       steps(net, 0);
       Net copy = copy_of(net);
       steps(copy, 3);
       see_state(net, seen);
       see_state(copy, seen);
       step(net, 9, &seen);
       see_evaluation(copy, seen);
       return seen;
     }},
    {"to",
     [](const auto& make) {
       Tensors seen;
       Net net = make();
       steps(net, 0);
       net->to(at::kFloat);
       steps(net, 3);
       see_evaluation(net, seen);
       net->to(at::kCPU, at::kDouble);
       step(net, 9, &seen);
       see_state(net, seen);
       return seen;
     }},
    {"resume",
     [](const auto& make) {
       Tensors seen;
       Net net = make();
       steps(net, 0);
       Net resumed = make();
       load(resumed, saved(net));
       step(resumed, 5, &seen, /*shift=*/100);
       see_state(resumed, seen);
       return seen;
     }},
};

TEST(BatchNormStates, AreThoseOfBatchNorm2d) {
  for (const State& state : kStates) {
    for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()}) {
      for (const int layers : {1, 2}) {
        const auto theirs = state.run([&] {
          Net net;
          for (int i = 0; i < layers; ++i) net->push_back(plain_norm(momentum));
          return net;
        });
        for (const char* strategy : {"per_tower", "sync", "averaged", "every_tower"}) {
          const auto ours = state.run([&] {
            Net net;
            for (int i = 0; i < layers; ++i)
              net->push_back(norm_of(BatchNormOptions(kChannels).momentum(momentum).strategy(strategy)));
            return net;
          });
          ASSERT_EQ(ours.size(), theirs.size());
          const double tolerance = std::string(state.name) == "to" ? 1e-4 : 1e-10;
          for (size_t i = 0; i < ours.size(); ++i) {
            EXPECT_LT(difference(ours[i], theirs[i]), tolerance)
                << state.name << ", " << strategy << ", " << layers << " layers, momentum "
                << momentum.value_or(-1) << ", tensor " << i;
          }
        }
      }
    }
  }
}

// The last word on what was lost before there was a table: 20 steps, saved while training.
TEST(BatchNormStates, ACumulativeAverageResumesFromWhereItWas) {
  const auto make = [] {
    return norm_of(BatchNormOptions(kChannels)
                       .momentum(std::nullopt)
                       .strategy(R"({"name": "every_tower"})")
                       .towers_per_rank(2));
  };
  BatchNorm whole = make(), first = make(), second = make();
  for (uint64_t s = 0; s < 4; ++s) {
    whole->forward(batch(6, s));
    (s < 2 ? first : second)->forward(batch(6, s));
    if (s == 1) {
      std::stringstream file;
      torch::save(first, file);
      torch::load(second, file);
    }
  }
  EXPECT_LT(difference(whole->running_mean, second->running_mean), 1e-12);
  EXPECT_LT(difference(whole->running_var, second->running_var), 1e-12);
}

TEST(BatchNormStates, AFrozenLayerThatIsLoadedToAnEarlierStepTrainsAgain) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy(R"({"name": "frozen", "from_step": 2})"));
  EXPECT_TRUE(train(layer, batch(8, 0), batch(8, 9)).dweight.defined());
  std::stringstream early;
  torch::save(layer, early);
  train(layer, batch(8, 1), batch(8, 9));
  const Trained frozen = train(layer, batch(8, 2), batch(8, 9));
  EXPECT_FALSE(frozen.dweight.defined());
  layer->eval();
  EXPECT_EQ(difference(frozen.y, layer->forward(batch(8, 2))), 0);
  layer->train();
  torch::load(layer, early);
  EXPECT_TRUE(train(layer, batch(8, 1), batch(8, 9)).dweight.defined());
  layer->weight.requires_grad_(false);  // the program's own wish stays
  torch::load(layer, early);
  EXPECT_FALSE(train(layer, batch(8, 1), batch(8, 9)).dweight.defined());
}

TEST(BatchNormStates, GroupNormTakesACheckpointOfGroupNorm) {
  torch::nn::GroupNorm plain(torch::nn::GroupNormOptions(3, kChannels));
  torch::nn::init::uniform_(plain->weight, 1, 2);
  plain->to(at::kDouble);
  std::stringstream file;
  torch::save(plain, file);
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy(R"({"name": "group_norm", "groups": 3})"));
  torch::load(layer, file);
  EXPECT_FALSE(layer->num_batches_tracked.defined());
  EXPECT_LT(difference(layer->forward(batch(4, 0)), plain->forward(batch(4, 0))), 1e-10);
}

}  // namespace
}  // namespace bnlab
