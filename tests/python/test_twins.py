#!/usr/bin/env python3
"""Holds the networks of scripts/python to bnlab's own: equal weights and images in, equal answers and gradients out, in
evaluation and float64. What they do in training is held by tests/peers, where some stand among the others' networks.

  BNLAB_PROGRAM=build/release/bnlab PYTHONPATH=build/peers:scripts/python python3 tests/python/test_twins.py

Exit status 77, which ctest reports as skipped, where safetensors or torch are not installed (scripts/peers.sh does it).
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts/python"), str(ROOT / "tests/peers")]

try:
    import torch
    from comparing import COUNTER, PROGRAM, Peer, bnlab_answer, built, expected_answer, largest_differences, randomised
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"SKIPPED: the networks of scripts/python, because {error}; scripts/peers.sh installs what is needed")
    sys.exit(77)

import bnlab
from bnlab.networks.backbones import BACKBONES
from bnlab.networks.models import MODELS
from bnlab.networks.norms import OPTIONS

BOUND = 1e-11
RESNET = {"name": "resnet", "width": 4}
NO_DROPOUT = {"dropout": 0}
# A small instance of every model; options that change what it is stand in one of them.
SMALL = {
    "unet": Peer("unet", {"name": "unet", "base": 4}, None, size=(8, 12)),
    "fcn": Peer("fcn", {"name": "fcn", "backbone": {**RESNET, "depth": 50, "stem": "deep", "dilate_first_block": True},
                        "auxiliary_weight": 0.4, **NO_DROPOUT}, None, size=(17, 24)),
    "pspnet": Peer("pspnet", {"name": "pspnet", "backbone": RESNET, "norm_at_bin_1": False, **NO_DROPOUT}, None, size=(17, 24)),
    "deeplab_v3": Peer("deeplab_v3", {"name": "deeplab_v3", "backbone": {"name": "vgg16", "width": 4}, "head_width": 8,
                                      "auxiliary_weight": 0.4, "auxiliary_dropout": 0, **NO_DROPOUT}, None, size=(32, 40)),
    "deeplab_v3_plus": Peer("deeplab_v3_plus", {"name": "deeplab_v3_plus", "backbone": RESNET, "head_width": 8,
                                                "low_width": 4, **NO_DROPOUT}, None, size=(33, 49)),
    "backbone_unet": Peer("backbone_unet", {"name": "backbone_unet", "backbone": {"name": "plain", "base": 4},
                                            "output_stride": 8, "decoder_width": 4, "center": True}, None, size=(35, 40)),
    "segnet_basic": Peer("segnet_basic", {"name": "segnet_basic", "width": 4}, None, size=(13, 18)),
    "classifier": Peer("classifier", {"name": "classifier", "backbone": {**RESNET, "depth": 34}}, None, size=(40, 48)),
    "cifar_resnet": Peer("cifar_resnet", {"name": "cifar_resnet", "depth": 8, "width": 4}, None, size=(9, 12)),
    "frame_lstm": Peer("frame_lstm", {"name": "frame_lstm", "hidden": 3, "backbone": {
        "name": "small_resnet", "depth": 8, "width": 4}}, None, size=(16, 16), images=6, rows_per_sample=3),
}
CONVOLUTIONS = ["none", {"name": "weight_norm", "mean_only_bn": True}]  # strategies that change them
VARIANTS = [{"name": "group_norm", "groups": 4}, {"name": "group_norm", "channels_per_group": 2},
            {"name": "filter_response_norm", "threshold": False, "eps": 0.1}, {"name": "filter_response_norm", "affine": False},
            {"name": "sync", "eps": 0.1, "affine": False}, {"name": "layer_norm", "affine": False},
            {"name": "frozen", "from_step": 0, "base": {"name": "ghost", "virtual_batch": 1, "eps": 0.2}}, "weight_norm"]
# Of those whose defaults do not fit the small network or its batch.
FITTING = {"group_norm": {"name": "group_norm", "groups": 2}, "ghost": {"name": "ghost", "virtual_batch": 1},
           "norm_batch": {"name": "norm_batch", "samples": 3},
           "weight_standardisation": {"name": "weight_standardisation", "form": "code", "base": "instance_norm"}}


def listed(family):
    return json.loads(subprocess.run([PROGRAM, "list", family, "--json"], capture_output=True, check=True).stdout)


def with_strategy(peer, strategy):
    return Peer(peer.name, peer.model, lambda: bnlab.network(peer.model, strategy, peer.classes), size=peer.size,
                images=peer.images, rows_per_sample=peer.rows_per_sample, strategy=strategy)


class Twins(unittest.TestCase):
    def compare(self, peer):
        module = randomised(built(peer.build), torch.float64)
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        torch.manual_seed(1)
        inputs = {"images": torch.randn(peer.images, 3, *peer.size, dtype=torch.float64)}
        expected = expected_answer(module, inputs, False, peer.rows_per_sample)
        with tempfile.TemporaryDirectory() as folder:
            found, note = bnlab_answer(peer, state, inputs, False, folder)
        counters = sum(name.endswith(COUNTER) for name in state)
        self.assertIn(f"init_from: {len(state) - counters} tensors used", note)
        self.assertEqual(sorted(found), sorted(expected))
        for kind, (difference, name) in largest_differences(expected, found).items():
            self.assertLess(difference, BOUND, f"{peer.name} under {peer.strategy}: {kind}: {name}")

    def test_every_model_has_a_twin_with_the_same_options(self):
        for family, classes in (("models", MODELS), ("backbones", BACKBONES)):
            entries = {entry["name"]: entry for entry in listed(family) if entry["name"] != "exported"}  # comes from Python
            self.assertEqual(sorted(entries), sorted(classes))
            for name, entry in entries.items():
                options = {key: list(each.default) if isinstance(each.default, tuple) else each.default
                           for key, each in inspect.signature(classes[name]).parameters.items()
                           if each.default is not inspect.Parameter.empty}
                self.assertEqual(options, {each["name"]: each["default"] for each in entry["parameters"]}, name)

    def test_strategies_that_have_a_twin_have_the_same_options(self):
        entries = {entry["name"]: {each["name"].partition(".")[0] for each in entry["parameters"]}
                   for entry in listed("strategies")}
        for name, options in OPTIONS.items():
            self.assertEqual(set(options), entries[name], name)

    def test_every_model_answers_as_its_twin(self):
        self.assertEqual(sorted(SMALL), sorted(MODELS))
        for peer in SMALL.values():
            with self.subTest(peer.name):
                self.compare(with_strategy(peer, "sync"))

    def test_every_model_answers_as_its_twin_where_a_strategy_changes_convolutions(self):
        for number, peer in enumerate(SMALL.values()):
            with self.subTest(peer.name):
                self.compare(with_strategy(peer, CONVOLUTIONS[number % 2]))

    def test_every_model_answers_as_its_twin_where_a_norm_has_its_own_activation(self):
        for peer in SMALL.values():
            with self.subTest(peer.name):
                self.compare(with_strategy(peer, "filter_response_norm"))

    def test_every_strategy_evaluates_as_its_twin_or_is_refused_by_name(self):
        for strategy in [FITTING.get(entry["name"], entry["name"]) for entry in listed("strategies")] + VARIANTS:
            with self.subTest(strategy):
                peer = with_strategy(SMALL["unet"], strategy)
                try:
                    peer.build()
                except ValueError as error:
                    self.assertRegex(str(error), f"what {strategy} does in evaluation is not written in PyTorch yet")
                    print(f"  no twin of the strategy {strategy}")
                    continue
                self.compare(peer)

    def test_what_does_not_fit_is_named(self):
        for model, strategy, message in (("unett", "sync", "no twin of unett"), ({"name": "unet", "depth": 3}, "sync", "depth"),
                                         ("unet", "snyc", "what snyc does.*; did you mean sync\\?"),
                                         ("unet", "of_my_own", "what of_my_own does.*norms.py is the place"),
                                         ("unet", {"name": "layer_norm", "foo": 1, "bar": 2},
                                          "strategy layer_norm: unknown option foo, bar; there are affine, eps$"),
                                         ("unet", {"name": "sync", "foo": 1}, "unknown option foo; there are .*group_size"),
                                         ("unet", {"name": "frozen", "base": {"name": "none", "eps": 1}},
                                          "strategy none: unknown option eps; it has none"),
                                         ({"name": "fcn", "backbone": "vgg"}, "sync", "no twin of vgg")):
            with self.assertRaisesRegex(ValueError, message):
                bnlab.network(model, strategy, 3)


class Trained(unittest.TestCase):
    """The twin of a run that bnlab has trained."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        spec = Path(cls.folder.name) / "trained.json"
        spec.write_text(json.dumps({
            "task": {"name": "shapes", "size": [16, 16], "train": 8, "test": 4}, "model": {"name": "unet", "base": 4},
            "steps": 3, "towers": 2, "batch_per_tower": 1, "matrix": {"strategy": ["averaged", "none"]}}), encoding="utf-8")
        done = subprocess.run([PROGRAM, "run", str(spec), "--results", cls.folder.name], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        cls.records = sorted((Path(cls.folder.name) / "trained").glob("*/*/record.json"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_it_answers_as_bnlab_forward_does(self):
        self.assertEqual(len(self.records), 2)
        images = torch.randn(2, 3, 16, 16)
        for record in self.records:
            spec = json.loads(record.read_text(encoding="utf-8"))["spec"]
            paths = {name: str(Path(self.folder.name) / f"{name}.safetensors") for name in ("images", "answer")}
            save_file({"images": images}, paths["images"])
            subprocess.run([PROGRAM, "forward", str(record.parent / "weights.safetensors"), "--model", json.dumps(spec["model"]),
                            "--strategy", json.dumps(spec["strategy"]), "--classes", "5", "--images", paths["images"],
                            "--out", paths["answer"]], check=True, capture_output=True)
            model = bnlab.torch_model(record.parent)
            self.assertFalse(model.training)
            with torch.no_grad():
                logits = model(images)
            expected = bnlab.read_safetensors(paths["answer"])["logits"]
            self.assertLess((logits - expected).abs().max(), 1e-5 * expected.abs().max())

    def test_what_is_missing_or_does_not_fit_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(FileNotFoundError, "weights are not committed"):
                bnlab.torch_model(folder)
            record = json.loads(self.records[0].read_text(encoding="utf-8"))
            record["spec"]["model"]["levels"] = 2
            Path(folder, "record.json").write_text(json.dumps(record), encoding="utf-8")
            weights = Path(folder, "weights.safetensors")
            weights.write_bytes((self.records[0].parent / weights.name).read_bytes())
            with self.assertRaisesRegex(RuntimeError, "nothing takes .*encoder2"):
                bnlab.torch_model(folder)
            weights.write_bytes(b"PK\x03\x04 a checkpoint of torch.save")
            with self.assertRaisesRegex(ValueError, "not a safetensors file"):
                bnlab.torch_model(folder)


class Converted(unittest.TestCase):
    def convert(self, folder, checkpoint):
        paths = [str(Path(folder, name)) for name in ("checkpoint.pth", "converted.safetensors")]
        torch.save(checkpoint, paths[0])
        done = subprocess.run([sys.executable, "-m", "bnlab.convert", *paths], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "scripts/python")})
        return done, paths[1]

    def test_a_checkpoint_becomes_a_file_that_others_read(self):
        state = bnlab.network("unet", "sync", 3).state_dict()
        state["half"] = torch.randn(3, 5).t().bfloat16()  # in another layout
        with tempfile.TemporaryDirectory() as folder:
            for checkpoint in (state, {"epoch": 3, "state_dict": {"module." + name: each for name, each in state.items()}},
                               {"_orig_mod.model." + name: each for name, each in state.items()}):
                done, file = self.convert(folder, checkpoint)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for read in (load_file(file), bnlab.read_safetensors(file)):
                    self.assertEqual(sorted(read), sorted(state))
                    self.assertTrue(all(torch.equal(read[name], state[name]) for name in state))

    def test_what_holds_no_tensors_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            done, file = self.convert(folder, {"epoch": 3})
            self.assertEqual(done.returncode, 1)
            self.assertIn("expected a dictionary of tensors", done.stderr)
            self.assertFalse(os.path.exists(file))

    def test_of_a_whole_module_it_says_the_line_that_makes_a_dictionary(self):
        with tempfile.TemporaryDirectory() as folder:
            module = torch.nn.Linear(2, 3)
            done, file = self.convert(folder, module)
            self.assertEqual(done.returncode, 1)
            line = done.stderr.partition("writes a dictionary of tensors: python ")[2]
            subprocess.run(f"{sys.executable} {line}", shell=True, check=True)
            checkpoint = Path(folder, "checkpoint.pth.plain.pt")
            self.assertTrue(torch.equal(torch.load(checkpoint)["weight"], module.weight))

    def test_a_tensor_of_a_type_that_safetensors_lack_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for dtype in (torch.complex64, torch.float8_e4m3fn):
                done, file = self.convert(folder, {"weight": torch.zeros(2), "phase": torch.zeros(2).to(dtype)})
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, f"^.*checkpoint.pth: phase: {dtype}; expected one of float64, .*\n$")
                self.assertFalse(os.path.exists(file))


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(verbosity=1)
