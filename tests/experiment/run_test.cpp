// One run: defaults, agreement between keys, ids, labels, and the way back from a record.
#include <fstream>
#include <regex>

#include "harness/components/registry.hpp"
#include "harness/experiment/run.hpp"
#include "harness/experiment/timing.hpp"
#include "harness/experiment/weights_file.hpp"
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

class SpecRun : public SpecFiles {};

TEST_F(SpecRun, HasEveryKeyWithItsDefault) {
  const RunSpec run = load_one(spec());
  EXPECT_EQ(run.resolved, Json::parse(R"({
    "task": {"name": "fake_shapes", "size": [64, 64], "nuisance": 0.2, "classes": []},
    "model": {"name": "fake_net", "base": 16},
    "strategy": {"name": "fake_pooled", "momentum": 0.1, "gradient": "full", "group_size": null},
    "towers": 4, "batch_per_tower": 2,
    "accumulate": 1, "statistics_per": "micro_batch", "recompute": "none",
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": false, "weight_decay": 0.0,
                  "power": 0.9, "groups": []},
    "steps": 10, "epochs": null, "seed": 0, "precision": "float32", "loss_scaling": {"start": 65536, "growth": 2, "backoff": 0.5, "interval": 2000}, "tf32": false, "deterministic": false, "cuda_graph": true, "memory_format": "channels_last",
    "loss_mean": "batch", "eval_every": 0, "log_every": 10, "checkpoint_every": null, "populations": ["saved"], "precise_batches": 20,
    "evaluation": {"crop": null, "stride": 0.6666666666666666, "flip": false, "scales": [1.0]},
    "shards": "iid", "weight_ema": null, "gradient_route": "reducer", "average_weights_every": null,
    "init_from": null, "select": null, "stop_early": null, "warmup_steps": 5, "timing": null, "data_workers": null, "timeout_s": 0.0, "collective_timeout_s": 60.0})"));
}

TEST_F(SpecRun, IsReadIntoItsFields) {
  const RunSpec run =
      load_one(spec(R"("seed": 9007199254740992, "precision": "bfloat16", "memory_format": "contiguous",
    "loss_mean": "tower", "eval_every": 3, "log_every": 2, "checkpoint_every": 50, "warmup_steps": 1,
    "populations": ["batch", "tower:3", "saved"], "precise_batches": 7, "shards": "sorted:class", "weight_ema": 0.99,
    "evaluation": {"crop": [64, 96], "stride": 0.5, "flip": true, "scales": [0.75, 1]}, "data_workers": 3,
    "gradient_route": "host", "init_from": {"file": "w.safetensors", "part": "features"}, "timeout_s": 9.5, "collective_timeout_s": 1, "placement": {"ranks": 2, "device": "cuda"}, "optimizer": {"name": "sgd", "lr": 0.5})"));
  EXPECT_EQ(run.task["name"], "fake_shapes");
  EXPECT_EQ(run.model["base"], 16);
  EXPECT_EQ(run.strategy["gradient"], "full");
  EXPECT_EQ(run.optimizer["lr"], 0.5);
  EXPECT_EQ(run.samples_per_tower, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(run.steps, 10);
  EXPECT_FALSE(run.epochs);
  EXPECT_EQ(run.seed, 9007199254740992u);
  EXPECT_EQ(run.precision, Precision::bfloat16);
  EXPECT_EQ(run.memory_format, MemoryFormat::contiguous);
  EXPECT_EQ(run.loss_mean, LossMean::tower);
  EXPECT_EQ(run.eval_every, 3);
  EXPECT_EQ(run.log_every, 2);
  EXPECT_EQ(run.checkpoint_every, 50);
  EXPECT_EQ(run.populations, (Lines{"batch", "tower:3", "saved"}));
  EXPECT_EQ(run.evaluated(), (Lines{"batch", "tower:3", "saved", "ema"}));
  EXPECT_EQ(run.precise_batches, 7);
  EXPECT_EQ(run.evaluation.crop, (std::array<int64_t, 2>{64, 96}));
  EXPECT_EQ(run.evaluation.stride, 0.5);
  EXPECT_TRUE(run.evaluation.flip);
  EXPECT_EQ(run.data_workers, 3);
  EXPECT_EQ(run.shard_key, "class");
  EXPECT_EQ(run.weight_ema, 0.99);
  EXPECT_EQ(run.gradient_route, GradientRoute::host);
  EXPECT_EQ(run.average_weights_every, 0);
  ASSERT_TRUE(run.init_from);
  EXPECT_EQ(run.init_from->file, "w.safetensors");
  EXPECT_EQ(run.init_from->part, LoadedPart::features);
  EXPECT_EQ(run.warmup_steps, 1);
  EXPECT_EQ(run.timeout_s, 9.5);
  EXPECT_EQ(run.collective_timeout_s, 1);
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.device, Device::cuda);
  EXPECT_FALSE(run.resolved.contains("placement"));
}

TEST_F(SpecRun, TakesUnevenTowersAndEpochs) {
  const RunSpec run = load_one(R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own",
                                   "towers": 3, "batch_per_tower": [3, 0, 1], "epochs": 2.5})");
  EXPECT_EQ(run.samples_per_tower, (std::vector<int64_t>{3, 0, 1}));
  EXPECT_EQ(run.steps, 0);
  EXPECT_EQ(run.epochs, 2.5);
  EXPECT_TRUE(run.resolved["steps"].is_null());
  EXPECT_EQ(run.id.rfind("fake_own-3xmixed-seed0-", 0), 0u) << run.id;
}

TEST_F(SpecRun, RefusesKeysThatDisagree) {
  EXPECT_EQ(mistakes(spec(R"("epochs": 2)")),
            Lines{"spec.json: steps: expected exactly one of \"steps\" and \"epochs\", got both"});
  EXPECT_EQ(mistakes(spec(R"("optimizer": {"name": "sgd", "nesterov": true, "momentum": 0},
                            "placement": {"ranks": 3})")),
            (Lines{"spec.json: placement.ranks: expected a divisor of the 4 towers, got 3",
                   "spec.json: optimizer.nesterov: expected false where momentum is 0, got true"}));
  const std::string start =
      R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own", "towers": 2, )";
  EXPECT_EQ(mistakes(start + R"("batch_per_tower": [1, 2, 3]})"),
            (Lines{"spec.json: steps: expected exactly one of \"steps\" and \"epochs\", got neither",
                   "spec.json: batch_per_tower: expected 2 entries, one per tower, got 3"}));
  EXPECT_EQ(mistakes(start + R"("steps": 1, "batch_per_tower": [0, 0]})"),
            Lines{"spec.json: batch_per_tower: expected at least one sample in some tower, got [0,0]"});
  EXPECT_EQ(mistakes(start + R"("steps": 1, "batch_per_tower": 0})"),
            Lines{"spec.json: batch_per_tower: expected at least one sample in some tower, got 0"});
}

TEST_F(SpecRun, AsksComponentsWhetherTheyFitTheRun) {
  const auto with = [](const std::string& strategy, const std::string& model = R"("fake_net")") {
    return R"({"task": "fake_shapes", "model": )" + model + R"(, "strategy": )" + strategy +
           R"(, "towers": 4, "batch_per_tower": 2, "steps": 10})";
  };
  const std::string three = R"({"name": "fake_pooled", "group_size": 3})";
  EXPECT_EQ(mistakes(with(R"({"name": "fake_pooled", "group_size": 2})")), Lines{});
  EXPECT_EQ(mistakes(with(three)), Lines{"spec.json: strategy.group_size: does not divide the 4 towers"});
  EXPECT_EQ(mistakes(with(R"({"name": "fake_wrapped", "base": )" + three + "}")),
            Lines{"spec.json: strategy.base.group_size: does not divide the 4 towers"});
  EXPECT_EQ(mistakes(with(R"({"name": "fake_groups", "groups": 3})")),
            Lines{"spec.json: strategy.groups: does not divide 16 channels"});
  // Where the model itself has a mistake, its channels are not known, so the groups are not checked.
  EXPECT_EQ(mistakes(with(R"({"name": "fake_groups", "groups": 3})", R"({"name": "fake_net", "base": 0})")),
            Lines{"spec.json: model.base: expected an integer in [1, 512], got 0"});
  Json resolved = load_one(spec()).resolved;
  resolved["strategy"]["group_size"] = 3;
  EXPECT_THROW(read_resolved(resolved), Error);
}

TEST_F(SpecRun, RefusesPopulationsThatTheRunCannotHave) {
  EXPECT_EQ(mistakes(spec(R"("populations": ["tower:4", "mean", "presise", "tower:03"])")),
            (Lines{"spec.json: populations[0]: expected a tower from 0 to 3, got \"tower:4\"",
                   "spec.json: populations[2]: expected saved, tower:K, mean, pooled, precise, batch, mix:A, "
                   "own_tower, ema_precise or ema_live, got \"presise\"; did you mean \"precise\"?",
                   "spec.json: populations[3]: expected saved, tower:K, mean, pooled, precise, batch, mix:A, "
                   "own_tower, ema_precise or ema_live, got \"tower:03\"; did you mean \"tower:0\"?"}));
  EXPECT_EQ(mistakes(spec(R"("populations": ["saved", "batch", "saved"])")),
            Lines{"spec.json: populations[2]: \"saved\" appears twice"});
  EXPECT_EQ(
      mistakes(spec(R"("populations": ["mix:0.25", "mix:1", "mix:0", "mix:1.5", "mix:a", "ema"])")),
      (Lines{"spec.json: populations[2]: expected mix:A with A, what the sample's own moments weigh, in "
             "(0, 1], got \"mix:0\"",
             "spec.json: populations[3]: expected mix:A with A, what the sample's own moments weigh, in "
             "(0, 1], got \"mix:1.5\"",
             "spec.json: populations[4]: expected mix:A with A, what the sample's own moments weigh, in "
             "(0, 1], got \"mix:a\"",
             "spec.json: populations[5]: ema is evaluated wherever weight_ema is given; it is not listed"}));
}

TEST_F(SpecRun, AveragedWeightsAreThereWithTheirDecayAlone) {
  const std::string asked = R"("populations": ["ema_live", "ema_precise"])";
  EXPECT_EQ(
      mistakes(spec(asked)),
      (Lines{"spec.json: populations[0]: ema_live: there are no averaged weights; give weight_ema",
             "spec.json: populations[1]: ema_precise: there are no averaged weights; give weight_ema"}));
  EXPECT_EQ(mistakes(spec(asked + R"(, "weight_ema": 0.9)")), Lines{});
}

// The class of a test sample is what is asked for.
TEST_F(SpecRun, OwnTowersNeedShardsByWhatIsKnownOfTestSamples) {
  const auto with = [](const std::string& shards) {
    return spec(R"("populations": ["own_tower"], "shards": ")" + shards + "\"");
  };
  EXPECT_EQ(mistakes(with("sorted:drive")), Lines{});
  EXPECT_EQ(
      mistakes(with("iid")),
      Lines{"spec.json: populations[0]: own_tower: a test sample belongs to a tower only where the training "
            "set is sorted; expected shards sorted:KEY, got \"iid\""});
  EXPECT_EQ(mistakes(with("sorted:class")),
            Lines{"spec.json: populations[0]: own_tower: \"class\" is not known of a test sample of the task "
                  "\"fake_shapes\" before it is answered; expected shards sorted by one of: drive"});
}

TEST_F(SpecRun, RefusesShardsWithoutAKey) {
  for (const std::string shards : {"sorted", "sorted:", "class"}) {
    EXPECT_EQ(mistakes(spec("\"shards\": \"" + shards + "\"")),
              Lines{"spec.json: shards: expected iid or sorted:KEY, where KEY is one of the task's, got \"" +
                    shards + "\""});
  }
}

TEST_F(SpecRun, AveragesWeightsInPlaceOfGradientsAndBetweenEvaluations) {
  EXPECT_EQ(load_one(spec(R"("average_weights_every": 2, "eval_every": 4, "placement": {"ranks": 4})"))
                .average_weights_every,
            2);
  EXPECT_EQ(
      mistakes(spec(R"("average_weights_every": 3, "eval_every": 4, "gradient_route": "host",
                            "weight_ema": 0.9, "placement": {"ranks": 2})")),
      (Lines{"spec.json: gradient_route: expected \"reducer\" beside average_weights_every, got \"host\"",
             "spec.json: weight_ema: expected null beside average_weights_every, got 0.9",
             "spec.json: average_weights_every: expected a divisor of eval_every, 4, got 3",
             "spec.json: average_weights_every: expected one tower per rank, got placement.ranks 2 for 4 "
             "towers"}));
}

TEST_F(SpecRun, IsTimedBesideARunThatDiffersInSomeKeys) {
  const RunSpec run =
      load_one(spec(R"("timing": {"against": {"strategy": "fake_own", "optimizer.lr": 0.2}})"));
  ASSERT_TRUE(run.timing);
  EXPECT_EQ(run.timing->steps, 500);
  const RunSpec beside = timed_beside(run);
  EXPECT_EQ(beside.strategy.at("name"), "fake_own");
  EXPECT_EQ(beside.optimizer.at("lr"), 0.2);
  EXPECT_FALSE(beside.timing);
  EXPECT_EQ(beside.resolved.at("task"), run.resolved.at("task"));
  EXPECT_NE(run.id, load_one(spec()).id) << "its times are others";
}

TEST_F(SpecRun, RefusesToBeTimedBesideWhatIsNoRun) {
  const auto against = [&](const std::string& keys) {
    return mistakes(spec(R"("timing": {"against": )" + keys + "}"));
  };
  EXPECT_EQ(mistakes(spec(R"("timing": {})")),
            Lines{"spec.json: timing.against: missing, expected an object"});
  EXPECT_EQ(
      against("{}"),
      Lines{"spec.json: timing.against: expected keys that the other run has otherwise, such as strategy"});
  EXPECT_EQ(against(R"({"seed": 1})"), Lines{"spec.json: timing.against: expected keys that ranks of one "
                                             "placement may differ in, got \"seed\""});
  EXPECT_EQ(against(R"({"stragety": "fake_own"})"),
            Lines{"spec.json: timing.against: \"stragety\": unknown key; did you mean \"strategy\"?"});
  EXPECT_EQ(
      against(R"({"strategy.group_size": 3})"),
      Lines{"spec.json: timing.against: makes a run that is none: strategy.group_size: does not divide the 4 "
            "towers"});
}

TEST_F(SpecRun, RefusesValuesOutOfRange) {
  EXPECT_EQ(
      mistakes(R"({"task": "fake_shapes", "model": {"name": "fake_net", "base": 513}, "strategy": "fake_own",
      "towers": 4097, "batch_per_tower": [1, -1], "steps": 0, "seed": -1, "log_every": 0, "populations": [],
      "timeout_s": -1, "collective_timeout_s": 0, "placement": {"ranks": 0, "device": "gpu"},
      "precise_batches": 0, "shards": "", "weight_ema": 1, "gradient_route": "ring", "average_weights_every": 0,
      "init_from": {"part": "head"}, "optimizer": {"name": "sgd", "lr": 0, "momentum": 1.5}})"),
      (Lines{"spec.json: model.base: expected an integer in [1, 512], got 513",
             "spec.json: towers: expected an integer in [1, 4096], got 4097",
             "spec.json: batch_per_tower[1]: expected an integer in [0, 1000000], got -1",
             "spec.json: optimizer.lr: expected a number > 0, got 0",
             "spec.json: optimizer.momentum: expected a number in [0, 1], got 1.5",
             "spec.json: steps: expected an integer in [1, 1000000000] or null, got 0",
             "spec.json: seed: expected an integer in [0, 9007199254740992], got -1",
             "spec.json: log_every: expected an integer in [1, 1000000000], got 0",
             "spec.json: populations: expected a list of texts that is not empty, got []",
             "spec.json: precise_batches: expected an integer in [1, 1000000000], got 0",
             "spec.json: shards: expected a text that is not empty, got \"\"",
             "spec.json: weight_ema: expected a number in (0, 1) or null, got 1",
             "spec.json: gradient_route: expected one of \"reducer\", \"rank0\", \"host\", got \"ring\"",
             "spec.json: average_weights_every: expected an integer in [1, 1000000000] or null, got 0",
             "spec.json: init_from.file: missing, expected a text that is not empty",
             "spec.json: init_from.part: expected one of \"all\", \"features\", \"backbone\", got \"head\"",
             "spec.json: timeout_s: expected a number in [0, 100000000], got -1",
             "spec.json: collective_timeout_s: expected a number in [0.001, 100000000], got 0",
             "spec.json: placement.ranks: expected an integer in [1, 4096] or null, got 0",
             "spec.json: placement.device: expected one of \"cpu\", \"cuda\" or null, got \"gpu\"",
             "spec.json: batch_per_tower: expected 4097 entries, one per tower, got 2"}));
}

// Its loss alone is scaled.
TEST_F(SpecRun, LossScalingBelongsToFloat16) {
  EXPECT_EQ(load_one(spec(R"("precision": "float16", "loss_scaling": {"start": 1024})")).loss_scaling.start,
            1024);
  EXPECT_EQ(load_one(spec(R"("precision": "float16")")).loss_scaling.interval, 2000);
  EXPECT_EQ(mistakes(spec(R"("loss_scaling": {"start": 1024})")).size(), 1u);
  EXPECT_EQ(
      mistakes(spec(R"("precision": "float16", "average_weights_every": 2)")),
      Lines{"spec.json: precision: expected float32, float64 or bfloat16 beside average_weights_every, where "
            "each rank would skip steps of its own, got \"float16\""});
}

TEST_F(SpecRun, IdIsASlugAndAHash) {
  const RunSpec run = load_one(spec(R"("seed": 7)"));
  EXPECT_TRUE(std::regex_match(run.id, std::regex("fake_pooled-4x2-seed7-[0-9a-f]{12}"))) << run.id;
  const RunSpec stopped = read_resolved([&] {
    Json resolved = run.resolved;
    resolved["strategy"]["gradient"] = "stopped";
    return resolved;
  }());
  EXPECT_EQ(stopped.id.rfind("fake_pooled-gradient-stopped-4x2-seed7-", 0), 0u) << stopped.id;
}

// The canonical form is part of the record format: the ids of finished runs must not change.
TEST_F(SpecRun, IdIsTheSameForEver) {
  EXPECT_EQ(load_one(spec()).id, "fake_pooled-4x2-seed0-6d76bfdefe91");
}

TEST_F(SpecRun, IdDoesNotDependOnHowTheSpecIsWritten) {
  const std::string id = load_one(spec()).id;
  EXPECT_EQ(
      load_one(
          R"({"steps": 10, "towers": 4, "strategy": {"gradient": "full", "name": "fake_pooled"}, "seed": 0,
                         "batch_per_tower": [2, 2, 2, 2], "model": {"base": 16, "name": "fake_net"}, "task": "fake_shapes",
                         "optimizer": {"name": "sgd", "weight_decay": 0, "lr": 1e-1}})")
          .id,
      id);
}

TEST_F(SpecRun, IdIgnoresWhatChangesNoResult) {
  const std::string id = load_one(spec()).id;
  for (const std::string key :
       {R"("log_every": 3)", R"("checkpoint_every": 3)", R"("timeout_s": 3)", R"("collective_timeout_s": 3)",
        R"("cuda_graph": false)", R"("data_workers": 3)", R"("question": "why?")", R"("claim": "so")",
        R"("source": "s")", R"("protocol": "p")", R"("placement": {"ranks": 2})"}) {
    EXPECT_EQ(load_one(spec(key)).id, id) << key;
  }
}

TEST_F(SpecRun, IdChangesWithWhatChangesTheResult) {
  const std::string id = load_one(spec()).id;
  for (const std::string key :
       {R"("seed": 1)", R"("optimizer": {"name": "sgd", "lr": 0.2})", R"("precision": "float64")",
        R"("tf32": true)", R"("deterministic": true)", R"("memory_format": "contiguous")",
        R"("loss_mean": "tower")", R"("eval_every": 1)", R"("populations": ["saved", "batch"])",
        R"("precise_batches": 3)", R"("evaluation": {"flip": true})", R"("evaluation": {"crop": [8, 8]})",
        R"("shards": "sorted:class")", R"("weight_ema": 0.5)", R"("gradient_route": "rank0")",
        R"("average_weights_every": 1)", R"("init_from": {"file": "w"})",
        R"("optimizer": {"groups": [{"prefix": "head."}]})"}) {
    EXPECT_NE(load_one(spec(key)).id, id) << key;
  }
  const std::string wrapped = R"("strategy": {"name": "fake_wrapped", "base": )";
  const auto id_of = [&](const std::string& base) {
    Json resolved = load_one(spec()).resolved;
    resolved["strategy"] = Json::parse("{" + wrapped + base + "}}")["strategy"];
    return read_resolved(resolved).id;
  };
  EXPECT_EQ(id_of(R"("fake_pooled")"), id_of(R"({"name": "fake_pooled", "gradient": "full"})"));
  EXPECT_NE(id_of(R"("fake_pooled")"), id_of(R"({"name": "fake_pooled", "gradient": "stopped"})"));
  EXPECT_NE(id_of(R"("fake_pooled")"), id_of(R"("fake_own")"));
}

// Records outlive the program that wrote them: a key that it did not know had the default.
TEST_F(SpecRun, IdOfARecordWithoutNewerKeysIsThatOfTheDefaults) {
  const RunSpec run = load_one(spec());
  Json old = run.resolved;
  for (const char* key : {"populations", "precise_batches", "shards", "weight_ema", "gradient_route",
                          "average_weights_every", "init_from", "tf32", "deterministic", "cuda_graph",
                          "evaluation", "data_workers", "checkpoint_every"}) {
    old.erase(key);
  }
  old["optimizer"].erase("nesterov");
  old["strategy"].erase("gradient");
  const RunSpec read = read_resolved(old);
  EXPECT_EQ(read.id, run.id);
  EXPECT_EQ(read.resolved, run.resolved);
  EXPECT_TRUE(matches(Json::parse(R"({"shards": "iid", "optimizer.nesterov": false})"), read.resolved));
}

TEST_F(SpecRun, ResolvedReadsBackToTheSameRun) {
  const std::vector<std::string> texts = {
      spec(), spec(R"("seed": 3, "precision": "float64", "timeout_s": 3, "populations": ["batch"],
          "average_weights_every": 5, "shards": "sorted:drive")"),
      spec(
          R"("weight_ema": 0.5, "init_from": {"file": "w"}, "optimizer": {"groups": [{"prefix": "head."}]})"),
      R"({"task": "fake_shapes", "model": "fake_net", "strategy": {"name": "fake_wrapped", "base": "fake_own"},
          "towers": 3, "batch_per_tower": [3, 0, 1], "epochs": 2.5})"};
  for (const auto& text : texts) {
    const RunSpec run = load_one(text);
    const RunSpec again = read_resolved(Json::parse(run.resolved.dump()));
    EXPECT_EQ(again.id, run.id);
    EXPECT_EQ(again.resolved, run.resolved);
    EXPECT_EQ(again.samples_per_tower, run.samples_per_tower);
    EXPECT_EQ(again.steps, run.steps);
    EXPECT_EQ(again.epochs, run.epochs);
    EXPECT_EQ(again.precision, run.precision);
    EXPECT_EQ(again.populations, run.populations);
  }
}

TEST_F(SpecRun, ResolvedIsReadStrictly) {
  Json resolved = load_one(spec()).resolved;
  resolved["sed"] = 1;
  resolved["towers"] = "4";
  try {
    read_resolved(resolved);
    FAIL() << "read a mistaken spec";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::spec);
    EXPECT_STREQ(error.what(),
                 "resolved run spec: sed: unknown key; did you mean \"seed\"?\n"
                 "resolved run spec: towers: expected an integer in [1, 4096], got \"4\"");
  }
}

TEST(Label, NamesWhatDiffersFromTheDefaults) {
  EXPECT_EQ(label("fake_pooled"), "fake_pooled");
  EXPECT_EQ(label({{"name", "fake_pooled"}, {"momentum", 0.1}, {"gradient", "full"}}), "fake_pooled");
  EXPECT_EQ(
      label({{"name", "fake_pooled"}, {"group_size", 2}, {"gradient", "stopped"}, {"momentum", nullptr}}),
      "fake_pooled(momentum=null,gradient=stopped,group_size=2)");
  EXPECT_EQ(label(Json::parse(
                R"({"name": "fake_wrapped", "base": {"name": "fake_pooled", "gradient": "stopped"}})")),
            "fake_wrapped(base=fake_pooled(gradient=stopped))");
  EXPECT_EQ(label({{"name", "fake_ghost"}, {"virtual_batch", 4}}), "fake_ghost(virtual_batch=4)");
  EXPECT_EQ(label({{"name", "from_the_future"}, {"x", 1}}), "from_the_future");
}

TEST(Matches, ComparesDottedKeys) {
  const Json run = Json::parse(
      R"({"towers": 8, "strategy": {"name": "fake_pooled", "gradient": "stopped", "momentum": 1.0}})");
  EXPECT_TRUE(matches(Json::object(), run));
  EXPECT_TRUE(matches(Json::parse(R"({"towers": 8, "strategy.name": "fake_pooled"})"), run));
  EXPECT_TRUE(matches(Json::parse(R"({"strategy": "fake_pooled"})"), run));
  EXPECT_TRUE(matches(Json::parse(R"j({"strategy": "fake_pooled(momentum=1.0,gradient=stopped)"})j"), run));
  EXPECT_TRUE(matches(Json::parse(R"({"strategy": {"gradient": "stopped", "momentum": 1}})"), run));
  EXPECT_FALSE(matches(Json::parse(R"({"towers": 4})"), run));
  EXPECT_FALSE(matches(Json::parse(R"({"towers": 8, "strategy": "fake_own"})"), run));
  EXPECT_FALSE(matches(Json::parse(R"({"strategy": {"gradient": "full"}})"), run));
  EXPECT_FALSE(matches(Json::parse(R"({"strategy.base": 1})"), run));
}

TEST(SpecReference, NamesEveryKey) {
  const auto reference = std::filesystem::path(__FILE__).parent_path() / "../../experiments/spec.md";
  std::ifstream stream(reference);
  std::stringstream text;
  text << stream.rdbuf();
  for (const auto& parameter : spec_parameters())
    EXPECT_NE(text.str().find("`" + parameter.name + "`"), std::string::npos) << parameter.name;
}

TEST_F(SpecRun, NamesOfOtherFrameworksAreAnsweredWithOurs) {
  static const OtherNames names{"strategy", {{"SyncBatchNorm", "fake_pooled"}}};
  const auto answer = [&](const std::string& name) {
    return mistakes(
               R"({"task": "fake_shapes", "model": "fake_net", "batch_per_tower": 1, "steps": 1, "strategy": ")" +
               name + "\"}")
        .at(0);
  };
  for (const char* name : {"SyncBatchNorm", "torch.nn.SyncBatchNorm", "sync_batch_norm", "syncbatchnorm2d"}) {
    EXPECT_EQ(answer(name), "spec.json: strategy: unknown strategy \"" + std::string(name) +
                                "\"; bnlab calls it \"fake_pooled\"");
  }
  EXPECT_NE(answer("FakeGroups").find("bnlab calls it \"fake_groups\""), std::string::npos)
      << answer("FakeGroups");
}

TEST_F(SpecRun, KeysOfOtherProgramsAreAnsweredWithOurs) {
  const std::vector<std::string> found = mistakes(
      R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own", "batch_size": 4, "gpus": 8, "steps": 1,
          "optimizer": {"learning_rate": 0.1}, "num_workers": 4})");
  const auto answered = [&](const std::string& beginning) {
    return std::ranges::any_of(found, [&](const std::string& each) { return each.starts_with(beginning); });
  };
  for (const char* beginning :
       {"spec.json: batch_size: unknown key; bnlab calls it \"batch_per_tower\"",
        "spec.json: gpus: unknown key; bnlab calls it \"towers\"",
        "spec.json: num_workers: unknown key; bnlab calls it \"data_workers\"",
        "spec.json: optimizer.learning_rate: unknown key of optimizer \"sgd\"; bnlab calls it \"lr\""}) {
    EXPECT_TRUE(answered(beginning)) << beginning << "\n" << testing::PrintToString(found);
  }
}

TEST_F(SpecRun, EachSeedStartsFromAFileOfItsOwn) {
  const std::string file = write("net7-a1/w", "");
  const std::string pattern = file.substr(0, file.size() - 6) + "{seed}-*/w";
  const auto of_seed = [&](uint64_t seed) {
    return load_one(
        spec(R"("seed": )" + std::to_string(seed) + R"(, "init_from": {"file": ")" + pattern + "\"}"));
  };
  const RunSpec run = of_seed(7);
  EXPECT_EQ(run.init_from->file, file);
  EXPECT_EQ(run.value_at("init_from.file"), pattern) << "the same for all seeds of a cell";
  EXPECT_EQ(read_resolved(run.resolved).init_from->file, file);
  EXPECT_EQ(of_seed(8).init_from->file, with_seed(pattern, 8)) << "none fits";
  write("net7-b2/w", "");
  EXPECT_EQ(of_seed(7).init_from->file, with_seed(pattern, 7)) << "two fit";
  EXPECT_EQ(of_seed(7).id, run.id);
}

TEST_F(SpecRun, ACheckpointOfPyTorchIsNamedAsOneWithTheLineThatConvertsIt) {
  const auto of = [&](const std::string& from) {
    return mistakes(
        R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own", "batch_per_tower": 1, "steps": 1,
                        "init_from": )" +
        from + "}");
  };
  const std::string cure =
      "spec.json: init_from.file: expected a safetensors file, got \"a/resnet.pth\", a checkpoint of "
      "PyTorch; this converts it, in "
      "the folder of bnlab's sources: PYTHONPATH=scripts/python .venv/bin/python -m bnlab.convert " +
      std::filesystem::absolute("a/resnet.pth").string() + " " +
      std::filesystem::absolute("a/resnet.safetensors").string();
  EXPECT_EQ(of(R"({"file": "a/resnet.pth"})"), std::vector<std::string>{cure});
  EXPECT_NE(of(R"({"file": "x; touch it; .pth"})")
                .at(0)
                .find("bnlab.convert '" + std::filesystem::absolute("x; touch it; .pth").string() + "' '"),
            std::string::npos);
  EXPECT_EQ(of(R"("a/resnet.pth")"),
            (std::vector<std::string>{
                "spec.json: init_from: expected an object or null, got \"a/resnet.pth\"; write "
                "{\"file\":\"a/resnet.pth\"}",
                cure}));
  EXPECT_TRUE(of(R"({"file": "a/resnet.safetensors"})").empty());
}

}  // namespace
}  // namespace bnlab
