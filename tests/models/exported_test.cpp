// The model `exported` on folders made by hand (exported_folder.hpp). What bnlab.export writes of PyTorch's
// networks is held to PyTorch by tests/python/test_exported.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "harness/support/error.hpp"
#include "harness/support/random.hpp"
#include "harness/support/text_file.hpp"
#include "tests/fuzz/mutations.hpp"
#include "tests/models/exported_folder.hpp"
#include "tests/models/one_rank_network.hpp"

namespace bnlab::exported_test {
namespace {

at::Tensor batch(int64_t samples = 4, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(1);
  return at::randn({samples, 3, 12, 16}, dtype);
}

// The same network written with LibTorch's operators.
at::Tensor by_hand(const ExportedFolder& folder, const at::Tensor& x, bool training) {
  const auto w = [&](const std::string& name) { return folder.weight(name).to(x.scalar_type()); };
  const auto norm = [&](const at::Tensor& y, const std::string& name, double eps) {
    return at::batch_norm(y, w(name + ".weight"), w(name + ".bias"), w(name + ".running_mean"),
                          w(name + ".running_var"), training, name == "stem.norm" ? 0.01 : 0.1, eps, false);
  };
  const at::Tensor stem = norm(at::conv2d(x, w("stem.conv.weight"), {}, 1, 1), "stem.norm", 1e-3).relu();
  const at::Tensor block = norm(at::conv2d(stem, w("block.conv.weight"), {}, 1, 1), "block.norm", 1e-5);
  const at::Tensor shortcut = norm(at::conv2d(stem, w("shortcut.conv.weight")), "shortcut.norm", 1e-5);
  return at::conv2d((block + shortcut).relu(), w("head.weight"), w("head.bias"));
}

double apart(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(Exported, ComputesWhatTheGraphSays) {
  const ExportedFolder folder(/*noise=*/false);
  OneRankNetwork built(folder.model());
  EXPECT_LT(apart(built.forward(batch(), Mode::evaluate_saved).logits, by_hand(folder, batch(), false)),
            1e-10);
  EXPECT_LT(apart(built.forward(batch(), Mode::train).logits, by_hand(folder, batch(), true)), 1e-10);
}

// Where no strategy takes the sites, the graph calls LibTorch's own batch norm.
TEST(Exported, IsPyTorchToTheBitWithItsOwnBatchNorms) {
  for (const bool training : {true, false}) {
    ExportedFolder ours(/*noise=*/false), theirs(/*noise=*/false);
    std::vector<at::Tensor> tensors;
    for (ExportedFolder* folder : {&ours, &theirs})
      for (size_t i = 0; i < folder->weights.size(); ++i)
        folder->weights[i].tensor.set_requires_grad(folder->graph["tensors"][i].contains("trained"));
    for (const NamedTensor& each : ours.weights) tensors.push_back(each.tensor);
    const ExportedGraph graph(ours.graph, training ? "train" : "evaluate", {""}, at::kFloat);
    const Batch images{batch(4, at::kFloat), {}, Towers({4}, 1, 0)};
    const at::Tensor answer = graph.answers(tensors, images.images, images.pass({}, Mode::train))[0];
    const at::Tensor expected = by_hand(theirs, images.images, training);
    EXPECT_TRUE(answer.equal(expected));
    for (const at::Tensor& each : {answer, expected}) each.square().sum().backward();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [name, of_pytorch] = theirs.weights[i];
      EXPECT_TRUE(tensors[i].equal(of_pytorch)) << name;  // running statistics, too
      if (of_pytorch.requires_grad()) EXPECT_TRUE(tensors[i].grad().equal(of_pytorch.grad())) << name;
    }
  }
}

TEST(Exported, HasTheNamesAndWeightsOfTheFile) {
  const ExportedFolder folder;
  OneRankNetwork built(folder.model());
  std::map<std::string, at::Tensor> own;
  for (const auto& tensors : {built.network().named_parameters(), built.network().named_buffers()})
    for (const auto& [name, tensor] : tensors.pairs()) own[name] = tensor;
  for (const NamedTensor& each : folder.weights) {
    if (each.name.ends_with("num_batches_tracked")) continue;
    ASSERT_TRUE(own.contains(each.name)) << each.name;
    EXPECT_TRUE(own[each.name].equal(each.tensor.to(at::kDouble))) << each.name;
  }
}

// The ReLU of the stem, and the addition of the block with its ReLU, for which the shortcut has to be there.
TEST(Exported, LeavesReluAndResidualToTheSite) {
  OneRankNetwork built(ExportedFolder().model());
  ASSERT_EQ(built.sites().size(), 3u);
  EXPECT_EQ(built.sites()[0].activation, Activation::relu);
  EXPECT_EQ(built.sites()[1].activation, Activation::relu);
  EXPECT_EQ(built.sites()[2].activation, Activation::none);
}

TEST(Exported, FusesNothingThatSomebodyElseReads) {
  ExportedFolder folder(/*noise=*/false);
  for (const char* mode : {"train", "evaluate"})  // the addition takes the stem's norm before its ReLU
    folder.nodes_of(mode)[7]["args"][1] = ExportedFolder::v(folder.value(1));
  OneRankNetwork built(folder.model());
  ASSERT_EQ(built.sites().size(), 2u);  // nothing reads the shortcut's
  EXPECT_EQ(built.sites()[0].activation, Activation::none);
  EXPECT_EQ(built.sites()[1].activation, Activation::relu);
}

TEST(Exported, SitesHaveTheNumbersOfTheNetworkOrOfTheStrategy) {
  const ExportedFolder folder;
  Json model = folder.model();
  EXPECT_EQ(OneRankNetwork(model).sites()[0].eps, 1e-3);
  EXPECT_EQ(OneRankNetwork(model).sites()[0].momentum, 0.01);
  model["numbers"] = "strategy";
  EXPECT_FALSE(OneRankNetwork(model).sites()[0].eps.has_value());
}

TEST(Exported, RunningStatisticsGoOnFromThoseOfTheFile) {
  const ExportedFolder folder;
  OneRankNetwork built(folder.model());
  const at::Tensor mean = folder.weight("stem.norm.running_mean").to(at::kDouble);
  const at::Tensor of_batch =
      at::conv2d(batch(), folder.weight("stem.conv.weight").to(at::kDouble), {}, 1, 1).mean({0, 2, 3});
  built.forward(batch(), Mode::train);
  Calibration none;
  built.statistics()->load_into_buffers({}, none);
  EXPECT_LT(apart(built.network().named_buffers()["stem.norm.running_mean"], 0.99 * mean + 0.01 * of_batch),
            1e-10);
}

TEST(Exported, FrozenParametersStayFrozen) {
  ExportedFolder folder;
  for (Json& entry : folder.graph["tensors"])
    if (entry["name"] == "head.weight" || entry["name"] == "stem.norm.weight") entry["trained"] = false;
  OneRankNetwork built(folder.model());
  EXPECT_FALSE(built.network().named_parameters().contains("head.weight"));
  EXPECT_TRUE(built.network().named_buffers().contains("head.weight"));
  EXPECT_FALSE(built.network().trainable("stem.norm.weight"));
  EXPECT_TRUE(built.network().trainable("stem.norm.bias"));
}

TEST(Exported, HasAnInitialisationForEachSeed) {
  ExportedFolder folder;
  folder.graph["initialisations"] = true;  // OneRankNetwork has the seed 3
  EXPECT_THROW(OneRankNetwork{folder.model()}, Error);
  folder.graph["weights"] = Json::array({"a", "b", "c", "weights.safetensors"});
  EXPECT_NO_THROW(OneRankNetwork{folder.model()});
}

TEST(Exported, SaysWhichWeightsItBeganWithAndWhatCannotBeReplayed) {
  ExportedFolder folder;
  OneRankNetwork built(folder.model());
  EXPECT_EQ(built.network().notes(),
            std::vector<std::string>{
                "exported from PyTorch 2.11.0: all seeds start from the weights that came along"});
  EXPECT_EQ(built.network().why_not_replayed(), "");
  folder.weigh_by_the_largest();
  EXPECT_EQ(OneRankNetwork(folder.model()).network().why_not_replayed(),
            "aten::one_hot in pick may wait for the values of a tensor");
}

TEST(Exported, LeavesOutAHeadThatIsNotTrained) {
  ExportedFolder folder;
  folder.graph["train"]["outputs"].push_back(
      {{"name", "aux"}, {"value", folder.value(6)}, {"shape", {2, 4, 12, 16}}});
  Json model = folder.model();
  EXPECT_FALSE(OneRankNetwork(model).forward(batch()).auxiliary.defined());
  model["auxiliary"] = "aux";
  model["auxiliary_weight"] = 0.4;
  const Outputs outputs = OneRankNetwork(model).forward(batch());
  EXPECT_EQ(outputs.auxiliary.size(1), 4);
  EXPECT_EQ(outputs.auxiliary_weight, 0.4);
}

TEST(Exported, RefusesAnOutputThatIsNotThere) {
  const ExportedFolder folder;
  Json model = folder.model();
  model["output"] = "out";
  try {
    OneRankNetwork built(model);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected an output of [\"\"], got \"out\""), std::string::npos)
        << error.what();
  }
}

TEST(Exported, MasksOfDropoutDependOnTheRowAlone) {
  const ExportedFolder folder;
  OneRankNetwork built(folder.model(), 5, "none");  // norms that keep the rows apart
  const at::Tensor once = built.forward(batch(), Mode::train).logits;
  EXPECT_TRUE(once.equal(built.forward(batch(), Mode::train).logits));
  EXPECT_FALSE(once.equal(built.forward(batch(), Mode::train, /*step=*/1).logits));
  EXPECT_LT(apart(once.narrow(0, 0, 2), built.forward(batch().narrow(0, 0, 2), Mode::train).logits), 1e-10);
}

TEST(Exported, StrategiesThatMakeConvolutionsMakeThose) {
  const ExportedFolder folder(/*noise=*/false);
  OneRankNetwork built(folder.model(), 5, {{"name", "weight_standardisation"}, {"base", {{"name", "sync"}}}});
  const auto standardised = [](const at::Tensor& w) {
    const at::Tensor flat = w.flatten(1);
    return ((flat - flat.mean(1, true)) / (flat.var(1, false, true) + 1e-5).sqrt()).view_as(w);
  };
  ExportedFolder expected(/*noise=*/false);
  for (NamedTensor& each : expected.weights)
    if (each.name.ends_with("conv.weight")) each.tensor = standardised(each.tensor.to(at::kDouble));
  EXPECT_LT(apart(built.forward(batch(), Mode::train).logits, by_hand(expected, batch(), true)), 1e-5);
}

// What is wrong with a folder, and a word of the message that says it.
struct Fault {
  std::string word;
  std::function<void(ExportedFolder&)> make;
};

TEST(Exported, RefusesBadFoldersWithOneMessageEach) {
  using F = ExportedFolder;
  const std::vector<Fault> faults = {
      {"version", [](F& f) { f.graph["version"] = 2; }},
      {"none of those that a network may call",
       [](F& f) { f.nodes_of("train")[1]["op"] = "aten::from_file"; }},
      {"none of those that a network may call", [](F& f) { f.nodes_of("train")[2]["op"] = "aten::set_"; }},
      {"none of those that a network may call", [](F& f) { f.nodes_of("train")[2]["op"] = "prim::Print"; }},
      {"has no operator", [](F& f) { f.nodes_of("train")[2]["op"] = "aten::relu.nonsense"; }},
      {"reads value", [](F& f) { f.nodes_of("train")[2]["args"][0] = F::v(1000); }},
      {"reads value", [](F& f) { f.nodes_of("train")[2]["args"][0] = F::v(-1); }},
      {"reads value", [](F& f) { f.nodes_of("train")[2]["args"][0] = F::v(f.value(2)); }},
      {"arguments", [](F& f) { f.nodes_of("train")[2]["args"].push_back(1); }},
      {"where the operator takes", [](F& f) { f.nodes_of("train")[0]["args"][6] = "one"; }},
      {"aten::relu", [](F& f) { f.nodes_of("train")[2]["args"][0] = nullptr; }},
      {"too long or too deep",
       [](F& f) { f.nodes_of("train")[0]["args"][3] = Json::array({Json::array({Json::array({1})})}); }},
      {"noise can be dropout",
       [](F& f) { f.nodes_of("train")[9] = F::node("aten::bernoulli", {F::v(f.value(8)), nullptr}, ""); }},
      {"in evaluation, too",
       [](F& f) { f.nodes_of("evaluate")[8] = F::node("aten::dropout", {F::v(f.value(7)), 0.5, true}, ""); }},
      {"a site that is not there", [](F& f) { f.nodes_of("train")[1]["site"] = 7; }},
      {"is a value that is not there", [](F& f) { f.graph["train"]["outputs"][0]["value"] = 1000; }},
      {"'sites' not found", [](F& f) { f.graph.erase("sites"); }},
      {"example[2]: expected a number from 1 to 4096, got 2147483648",
       [](F& f) { f.graph["example"][2] = 2147483648; }},
      {"train, node 0 (\"aten::conv2d\"): got 1000000000000, more than 1000000000",
       [](F& f) { f.nodes_of("train")[0]["args"][4][0] = 1000000000000; }},
      {"example: expected 4 numbers", [](F& f) { f.graph["example"].push_back(1); }},
      {"sites[1].channels: expected a number from 1 to 1000000, got 1000000000000",
       [](F& f) { f.graph["sites"][1]["channels"] = 1000000000000; }},
      {"sites[0].eps: expected a number from 0 to 1, got -1e-05",
       [](F& f) { f.graph["sites"][0]["eps"] = -1e-5; }},
      {"sites[0].eps: expected a number from 0 to 1, got {\"float\":\"nan\"}",
       [](F& f) { f.graph["sites"][0]["eps"] = {{"float", "nan"}}; }},
      {"sites[2].momentum: expected a number from 0 to 1, got 1.5",
       [](F& f) { f.graph["sites"][2]["momentum"] = 1.5; }},
      {"evaluate.outputs.shape[1]: expected a number from 1 to 1000000000, got -5",
       [](F& f) { f.graph["evaluate"]["outputs"][0]["shape"][1] = -5; }},
      {"lacks head.bias", [](F& f) { f.weights.pop_back(); }},
      {"beside graph.json", [](F& f) { f.graph["weights"][0] = "../weights.safetensors"; }},
      {"5 classes", [](F& f) { f.graph["train"]["outputs"][0]["value"] = f.value(8); }},
      {"depends on the others",
       [](F& f) { f.nodes_of("train")[8] = F::node("aten::roll", {F::v(f.value(7)), {1}, {0}}, ""); }},
  };
  for (const Fault& fault : faults) {
    ExportedFolder folder;
    fault.make(folder);
    try {
      OneRankNetwork built(folder.model());
      ADD_FAILURE() << "not refused: " << fault.word;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(fault.word), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(folder.path().string()), std::string::npos) << error.what();
    }
  }
}

TEST(Exported, SizesWithoutMemoryForThemAreSaid) {
  ExportedFolder folder;
  folder.nodes_of("train")[0]["args"][4] = {1000000000, 1000000000};  // the padding
  try {
    OneRankNetwork built(folder.model(), 5, "per_tower", {}, at::kFloat);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    const std::string what = error.what();  // the allocator's words, where it is the one that refuses
    EXPECT_TRUE(what.starts_with(folder.path().string() + ": ")) << what;
    EXPECT_TRUE(what.ends_with("its sizes need more memory than there is") ||
                what.find("you tried to allocate") != std::string::npos)
        << what;
  }
}

TEST(Exported, DamagedFilesAreNamed) {
  const ExportedFolder folder;
  const Json model = folder.model();
  const std::string text = read_text(folder.path() / kGraphFile);
  test::expect_named_errors({text}, folder.path().string(), [&](const std::string& damaged) {
    std::filesystem::remove(folder.path() / kGraphFile);
    std::ofstream(folder.path() / kGraphFile, std::ios::binary) << damaged;
    OneRankNetwork built(model);
  });
}

// Any value of graph.json in the place of any other: an Error, or a network that runs.
TEST(Exported, DamagedGraphsAreErrorsOrNetworks) {
  const std::vector<Json> wrong = {nullptr,
                                   true,
                                   -1,
                                   0,
                                   1,
                                   3,
                                   1e9,
                                   0.5,
                                   "",
                                   "aten::relu",
                                   "sum",
                                   Json::array(),
                                   Json::object(),
                                   Json::array({1, 2}),
                                   {{"v", 5}},
                                   {{"dtype", "run"}},
                                   {{"float", "nan"}}};
  Stream stream(1, "damaged graphs");
  for (int i = 0; i < 200; ++i) {
    ExportedFolder folder(/*noise=*/i % 2 == 0);
    Json flat = folder.graph.flatten();  // by paths
    auto place = flat.begin();
    std::advance(place, stream.below(static_cast<int64_t>(flat.size())));
    const std::string path = place.key();
    folder.graph[Json::json_pointer(path)] =
        wrong[static_cast<size_t>(stream.below(static_cast<int64_t>(wrong.size())))];
    SCOPED_TRACE(path + " is " + folder.graph[Json::json_pointer(path)].dump());
    std::optional<OneRankNetwork> built;
    try {
      built.emplace(folder.model());
    } catch (const Error&) {
      continue;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "no Error: " << error.what();
      continue;
    }
    for (const Mode mode : {Mode::train, Mode::evaluate_saved}) {
      try {
        built->forward(batch(), mode);
      } catch (const std::exception&) {  // LibTorch's, which a run tells
      }
    }
  }
}

TEST(Exported, RefusesATruncatedGraphAndAMissingFolder) {
  const ExportedFolder folder;
  const Json model = folder.model();
  std::filesystem::resize_file(folder.path() / kGraphFile, 300);
  EXPECT_THROW(OneRankNetwork{model}, Error);
  std::filesystem::remove(folder.path() / kGraphFile);
  EXPECT_THROW(OneRankNetwork{model}, Error);
}

TEST(Exported, RefusesSizesThatTheGraphMayNotServe) {
  ExportedFolder folder;
  const Json& exported = folder.graph;
  EXPECT_EQ(size_misfit(exported, {13, 17}), "");
  folder.graph["size_step"] = 32;
  folder.graph["fixed_size"] = "it pads to 32";
  EXPECT_EQ(size_misfit(exported, {44, 80}), "");
  EXPECT_EQ(size_misfit(exported, {45, 80}),
            "images of 45x80 do not fit, because it pads to 32; export it again with --example 2,3,45,80");
  folder.graph["size_step"] = 0;
  EXPECT_EQ(size_misfit(exported, {12, 16}), "");
  EXPECT_NE(size_misfit(exported, {44, 80}), "");
  OneRankNetwork built(folder.model());  // such as images of a test, which no spec names
  EXPECT_NO_THROW(built.forward(batch()));
  EXPECT_THROW(built.forward(at::zeros({4, 3, 44, 80}, at::kDouble)), Error);
}

}  // namespace
}  // namespace bnlab::exported_test
