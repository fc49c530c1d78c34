#!/usr/bin/env python3
"""Holds bnlab's model `exported` to the PyTorch models that were exported: outputs, gradients and running statistics of one
pass in float64, at the example, at another batch and size, and at one image.

  BNLAB_PROGRAM=build/release/bnlab PYTHONPATH=build/peers:scripts/python python3 tests/python/test_exported.py

BNLAB_NETWORKS=resnet18,Unet tries these networks alone. Exit status 77, which ctest reports as skipped, where torch,
safetensors, torchvision, segmentation_models_pytorch or timm are not installed (scripts/peers.sh does it).
"""

import copy
import importlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts/python"), str(ROOT / "tests/peers"), str(ROOT / "tests/python"),
             str(ROOT / "tests/pages"), str(ROOT / "tests/simgpu")]

try:
    import segmentation_models_pytorch  # noqa: F401
    import timm  # noqa: F401
    import torch
    import torchvision  # noqa: F401
    from comparing import PROGRAM, Peer, bnlab_answer, expected_answer, largest_differences
except ImportError as error:
    print(f"SKIPPED: exported networks, because {error}; scripts/peers.sh installs what is needed")
    sys.exit(77)

import bnlab
from page import block
from runs import STRATEGIES
from test_export_networks import CHOSEN, NAMED

BOUND = 1e-9
ONE_VALUE = "more than 1 value per channel"


def quiet(model):
    """The model in float64, with norms whose biases are not 0, and without noise, whose numbers bnlab draws from streams of
    its own."""
    for module in model.modules():
        for noise in ("drop_prob", "drop_rate"):  # of functions of the modules' own
            if hasattr(module, noise):
                setattr(module, noise, 0.0)
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        elif isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.affine:
            torch.nn.init.normal_(module.bias)  # of 0, a mean behind two norms in a row would be rounding and nothing else
    return model.double().train()


def state_of(weights):
    """Of an export's tensors those that bnlab's weights files have, too: no constants, counters and masks."""
    return {name: tensor for name, tensor in weights.items() if ":" not in name and tensor.is_floating_point()}


class AsPyTorch(unittest.TestCase):
    def compare(self, name, model, size):
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "mine"
            description = bnlab.export(model, torch.randn(2, 3, size, size, dtype=torch.float64), exported)
            outputs = [output["name"] for output in description["train"]["outputs"]]
            answer = description["evaluate"]["outputs"][0]["shape"]
            spec = {"name": "exported", "file": str(exported)}
            if len(outputs) > 1:
                spec.update(auxiliary=outputs[1], auxiliary_weight=0.4)
            for found in description["verified"]:
                shape = found["shape"]
                peer = Peer(name, spec, None, classes=answer[1], size=tuple(shape[2:]), images=shape[0], strategy="per_tower")
                for training in (True, False):
                    with self.subTest(network=name, shape=shape, training=training):
                        if "refused" in found["train" if training else "evaluate"]:
                            continue  # by PyTorch itself
                        self.agree(peer, model, training, folder)

    def agree(self, peer, model, training, folder):
        module = copy.deepcopy(model)
        weights = bnlab.read_safetensors(Path(peer.model["file"]) / bnlab.export.WEIGHTS)
        inputs = {"images": torch.randn(peer.images, 3, *peer.size, dtype=torch.float64)}
        expected = expected_answer(module, inputs, training)
        found, _ = bnlab_answer(peer, state_of(weights), inputs, training, folder)
        # What no output needs is no parameter there, and has no gradient here.
        for name in [name for name in expected if name.startswith("grad/") and name not in found]:
            self.assertFalse(expected.pop(name).any(), f"{name} has a gradient in PyTorch")
        for kind, (difference, name) in largest_differences(expected, found).items():
            self.assertLess(difference, BOUND, f"{kind}: {name}")

    def test_outputs_gradients_and_running_statistics_are_those_of_pytorch(self):
        chosen = os.environ.get("BNLAB_NETWORKS", "")
        for name, (make, size) in {**NAMED, **CHOSEN}.items():
            if not chosen or name in chosen.split(","):
                torch.manual_seed(0)
                self.compare(name, quiet(make()), size)

    def test_one_value_per_channel_is_refused_with_the_site(self):
        model = quiet(of_five_classes("deeplabv3_mobilenet_v3_large"))
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "mine"
            bnlab.export(model, torch.randn(2, 3, 64, 64, dtype=torch.float64), exported)
            peer = Peer("one", {"name": "exported", "file": str(exported)}, None, classes=5, strategy="per_tower")
            weights = bnlab.read_safetensors(exported / bnlab.export.WEIGHTS)
            inputs = {"images": torch.randn(1, 3, 64, 64, dtype=torch.float64)}
            with self.assertRaisesRegex(AssertionError, ONE_VALUE):
                bnlab_answer(peer, state_of(weights), inputs, True, folder)


class ThreeSteps(unittest.TestCase):
    """Of training by SGD with momentum: gradients and running statistics are bnlab's in one model, PyTorch's in the other."""

    def steps(self, name):
        make, size = NAMED[name]
        theirs = quiet(make())
        ours = copy.deepcopy(theirs)
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "mine"
            shape = bnlab.export(theirs, torch.randn(2, 3, size, size, dtype=torch.float64),
                                 exported)["evaluate"]["outputs"][0]["shape"]
            peer = Peer(name, {"name": "exported", "file": str(exported)}, None, classes=shape[1], size=(size, size),
                        strategy="per_tower")
            optimizers = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for model in (theirs, ours)]
            for step in range(3):
                of_step = Path(folder) / str(step)  # for its weights
                of_step.mkdir()
                inputs = {"images": torch.randn(4, 3, size, size, dtype=torch.float64)}
                for optimizer in optimizers:
                    optimizer.zero_grad()
                expected_answer(theirs, inputs, training=True)
                found, _ = bnlab_answer(peer, state_of(ours.state_dict()), inputs, True, of_step)
                with torch.no_grad():
                    for key, parameter in ours.named_parameters():
                        parameter.grad = found["grad/" + key]
                    for key, buffer in ours.named_buffers():
                        buffer.copy_(found.get("after/" + key, buffer))
                for optimizer in optimizers:
                    optimizer.step()
        return theirs.state_dict(), ours.state_dict()

    def test_weights_after_them_are_those_of_pytorch(self):
        for name in ("resnet18", "Unet"):
            torch.manual_seed(0)
            theirs, ours = self.steps(name)
            for key, tensor in theirs.items():
                if tensor.is_floating_point():
                    with self.subTest(network=name, tensor=key):
                        self.assertLess((ours[key] - tensor).abs().max() / tensor.abs().max().clamp_min(1e-3), BOUND)


class Placement(unittest.TestCase):
    """Four towers on one rank, on two and on four, under every strategy."""
    SIZES = {"Unet": 64, "fcn_resnet50": 32, "lraspp_mobilenet_v3_large": 64}
    TASK = {"name": "shapes", "size": [64, 64], "train": 16, "test": 4}

    def test_changes_no_weight(self):
        chosen = os.environ.get("BNLAB_NETWORKS", ",".join(self.SIZES)).split(",")
        for name in chosen:
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(0)
                bnlab.export(of_five_classes(name), torch.randn(2, 3, 64, 64), folder)
                size = self.SIZES[name]
                spec = {"task": {**self.TASK, "size": [size, size]}, "model": {"name": "exported", "file": folder},
                        "precision": "float64", "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}, "steps": 3,
                        "towers": 4, "batch_per_tower": 2, "seed": 0}
                for strategy in STRATEGIES:
                    if isinstance(strategy, dict) and "from_step" in strategy:
                        strategy = {**strategy, "from_step": 2}
                    with self.subTest(network=name, strategy=strategy):
                        one, *others = (self.trained({**spec, "strategy": strategy}, ranks) for ranks in (1, 2, 4))
                        apart = max(((weights[key] - tensor).abs().max() / tensor.abs().max().clamp_min(1e-3)).item()
                                    for weights in others for key, tensor in one.items())
                        self.assertLess(apart, 1e-10)

    def trained(self, spec, ranks):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mine.json"
            file.write_text(json.dumps(spec), encoding="utf-8")
            done = subprocess.run([PROGRAM, "run", file, "--device", "cpu", "--ranks", str(ranks), "--results", folder],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return bnlab.read_safetensors(next(Path(folder).glob("mine/*/*/weights.safetensors")))


class Identity(unittest.TestCase):
    def test_records_of_other_weights_under_the_name_are_stale(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            spec = {"task": Placement.TASK, "model": {"name": "exported", "file": str(place / "mine")}, "strategy": "sync",
                    "optimizer": "sgd", "steps": 1, "towers": 2, "batch_per_tower": 2, "seed": 0}
            (place / "mine.json").write_text(json.dumps(spec), encoding="utf-8")
            commands = [[PROGRAM, command, str(place / "mine.json"), "--results", str(place / "results")]
                        for command in ("run", "status")]
            commands[0] += ["--device", "cpu"]
            for stale in (False, True):
                torch.manual_seed(int(stale))
                bnlab.export(small(), torch.randn(2, 3, 64, 64), place / "mine")
                said = "".join(subprocess.run(command, capture_output=True, text=True, check=False).stdout for command in commands)
                self.assertEqual("the exported model has changed" in said, stale, said)


class Explain(unittest.TestCase):
    def test_names_the_poorest_site_and_gives_a_spec_that_can_be_planned(self):
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "mine"
            sites = bnlab.export(of_five_classes("deeplabv3_mobilenet_v3_large"), torch.randn(2, 3, 64, 64), exported)["sites"]
            for batch, third in ((1, "weight_standardisation"), (2, "per_tower")):
                said = subprocess.run([PROGRAM, "explain", "sync", "--model", str(exported), "--size", "64x64",
                                       "--batch-per-tower", str(batch)], capture_output=True, text=True, check=True).stdout
                self.assertIn(f": {len(sites)} norm sites.", said)
                self.assertIn("the poorest is classifier.0.convs.4.2: 1 value per channel of an image", " ".join(said.split()))
                self.assertIn("With one image per GPU there is one value", " ".join(said.split()))
                spec = Path(folder) / f"{batch}.json"
                spec.write_text(next(line for line in said.splitlines() if line.startswith("{")), encoding="utf-8")
                self.assertIn(third, json.loads(spec.read_text())["matrix"]["strategy"])
                planned = subprocess.run([PROGRAM, "plan", str(spec)], capture_output=True, text=True, check=False)
                self.assertEqual(planned.returncode, 0, planned.stdout + planned.stderr)

    def test_warns_of_one_value_where_a_site_has_one_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            bnlab.export(small(), torch.randn(2, 3, 64, 64), folder)
            said = subprocess.run([PROGRAM, "explain", "sync", "--model", folder, "--size", "64x64"], capture_output=True, text=True,
                                  check=True).stdout
        self.assertIn("1 norm site. At 64x64 the poorest is 1: 4096 values per channel of an image", " ".join(said.split()))
        self.assertNotIn("With one image per GPU", said)


def small():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                               torch.nn.Conv2d(8, 5, 1))


def of_five_classes(name):
    """As the task `shapes` asks; without an auxiliary head."""
    if name == "Unet":
        return segmentation_models_pytorch.Unet("resnet34", encoder_weights=None, classes=5)
    return getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5)


class ThePage(unittest.TestCase):
    """What harness/models/own_pytorch_network.md gives to paste works, from a model to its trained weights."""

    def said(self, *command):
        path = os.pathsep.join([str(ROOT / "scripts/python"), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(command, cwd=self.folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def test_networks_are_exported_trained_under_five_strategies_and_handed_back(self):
        page = "harness/models/own_pytorch_network.md"
        program = str(Path(PROGRAM).resolve())
        spec = block(page, '{"task"').partition("\n\n")[0].replace('"shapes"', '"shapes", "test": 4')  # of 128 images
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            (self.folder / "mine.py").write_text(block(page, "import segmentation_models_pytorch"), encoding="utf-8")
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            self.addCleanup(os.chdir, Path.cwd())
            for function in ("my_unet", "my_deeplab"):
                with self.subTest(function):
                    self.said(sys.executable, "-m", "bnlab.export", f"mine:{function}", "--example", "2,3,96,96")
                    (self.folder / f"{function}.json").write_text(spec.replace("my_unet", function), encoding="utf-8")
                    self.assertIn("norm sites", self.said(program, "explain", "sync", "--model", function, "--size", "96x96"))
                    self.said(program, "run", f"{function}.json", "--device", "cpu")
                    records = [file.parent for file in self.folder.glob(f"results/**/{function}/**/record.json")]
                    self.assertEqual(len(records), 5)
                    self.hand_back(function, next(run for run in records if "sync" in str(run)))

    def hand_back(self, function, run):
        model = getattr(importlib.import_module("mine"), function)()
        os.chdir(self.folder)  # as specs name folders
        bnlab.load_into(model, run)
        peer = Peer(function, {"name": "exported", "file": str(self.folder / function)}, None, classes=5, size=(96, 96), images=2)
        inputs = {"images": torch.randn(2, 3, 96, 96)}
        expected = expected_answer(model, dict(inputs), training=False)["logits"]
        found, _ = bnlab_answer(peer, {}, inputs, False, str(run))  # which has its weights
        self.assertLess(((found["logits"] - expected).abs().max() / expected.abs().max()).item(), 1e-5)


if __name__ == "__main__":
    unittest.main()
