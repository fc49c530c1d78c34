#!/usr/bin/env python3
"""Holds bnlab's networks to the implementations that everybody uses: equal weights, equal numbers.

Every network of networks.py is built twice. Random weights and running statistics go from PyTorch through a safetensors
file to `bnlab forward`, which must use every tensor of it and answer with the same logits, the same gradients of a
random scalar, and the same running statistics after a step: to 1e-10 in float64, to 1e-4 in float32 (where the gradients
are compared as one vector, to 1e-1).

  BNLAB_PROGRAM=build/release/bnlab PYTHONPATH=build/peers:scripts/python python3 tests/peers/test_peers.py

Exit status 77, which ctest reports as skipped, where the peers are not installed (scripts/peers.sh installs them).
"""

import dataclasses
import functools
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
    import safetensors.torch
    import segmentation_models_pytorch
    import torchvision
except ImportError as error:
    print(f"SKIPPED: the comparison with other implementations, because {error}; scripts/peers.sh installs them")
    sys.exit(77)

from comparing import COUNTER, PROGRAM, bnlab_answer, built, distance_of_gradients, expected_answer, largest_differences, randomised
from networks import PEERS, WHOLE

BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-4}
FLOAT32_GRADIENTS = 1e-1  # as one vector


FOLDER = tempfile.TemporaryDirectory()


def setUpModule():
    unittest.addModuleCleanup(FOLDER.cleanup)


@functools.lru_cache(maxsize=1)  # the cases of a network and precision follow each other
def weights_of(build, dtype):
    """(module, its state), whose file bnlab_answer leaves in FOLDER."""
    for file in Path(FOLDER.name).iterdir():
        file.unlink()
    module = randomised(built(build), dtype)
    return module, {name: tensor.clone() for name, tensor in module.state_dict().items()}


class Comparison(unittest.TestCase):
    def compare(self, peer, dtype, training):
        module, state = weights_of(peer.build, dtype)
        module.load_state_dict(state)
        module.zero_grad()
        torch.manual_seed(1)
        inputs = {"images": torch.randn(peer.images, 3, *peer.size, dtype=torch.float64).to(dtype)}
        expected = expected_answer(module, inputs, training, peer.rows_per_sample)
        found, note = bnlab_answer(peer, state, inputs, training, FOLDER.name)
        counters = sum(name.endswith(COUNTER) for name in state)
        self.assertEqual(note, f"init_from: {len(state) - counters} tensors used" +
                         (f", {counters} left ({counters} {COUNTER})" if counters else ""))
        self.assertEqual(sorted(found), sorted(expected))
        for name, tensor in expected.items():
            self.assertEqual(found[name].shape, tensor.shape, name)
        largest = largest_differences(expected, found)
        if dtype == torch.float32:
            del largest["grad"]
            distance = distance_of_gradients(expected, found)
        print(f"{peer.name:16} {str(dtype)[6:]} {'train' if training else 'evaluate':9}"
              + "  ".join(f"{kind} {difference:.1e}" for kind, (difference, _) in largest.items())
              + (f"  gradients {distance:.1e}" if dtype == torch.float32 else ""), flush=True)
        for kind, (difference, name) in largest.items():
            self.assertLess(difference, BOUNDS[dtype], f"{kind}: {name}")
        if dtype == torch.float32:
            self.assertLess(distance, FLOAT32_GRADIENTS)


class Peers(Comparison):
    """A case for each network, precision and mode, added below."""


class WhatIsNotTheSame(Comparison):
    """It is noticed."""

    def test_another_dilation_is_noticed(self):
        other = dataclasses.replace(PEERS[0], model={**PEERS[0].model, "output_stride": 16})
        with self.assertRaisesRegex(AssertionError, "logits"):
            self.compare(other, torch.float32, training=False)

    def test_a_tensor_too_many_is_noticed(self):
        other = dataclasses.replace(PEERS[0], model={**PEERS[0].model, "auxiliary_weight": 0})
        with self.assertRaisesRegex(AssertionError, "nothing here takes: aux_classifier"):
            self.compare(other, torch.float32, training=False)


class Import(unittest.TestCase):
    def test_a_published_network_for_classification_starts_a_backbone(self):
        with tempfile.TemporaryDirectory() as folder:
            weights = str(Path(folder) / "resnet18.safetensors")
            safetensors.torch.save_file(torchvision.models.resnet18().state_dict(), weights)
            spec = Path(folder) / "import.json"
            spec.write_text(json.dumps({
                "task": {"name": "shapes", "size": [32, 32], "train": 2, "test": 2}, "strategy": "sync",
                "model": {"name": "fcn", "backbone": "resnet"}, "batch_per_tower": 2, "steps": 1,
                "init_from": {"file": weights, "part": "backbone"}}), encoding="utf-8")
            subprocess.run([PROGRAM, "run", str(spec), "--results", folder], check=True, capture_output=True)
            record, = Path(folder).glob("import/*/*/record.json")
            note = ("init_from: 100 tensors of the backbone used (backbone.* is * in the file), "
                    "22 left (20 num_batches_tracked, fc.bias, fc.weight)")
            self.assertIn(note, json.loads(record.read_text(encoding="utf-8"))["notes"])
            self.assertIn(note, (record.parent / "rank0.log").read_text(encoding="utf-8"))


def add_case(peer, dtype, training):
    name = f"test_{peer.name}_{str(dtype)[6:]}_{'training' if training else 'evaluation'}"
    setattr(Peers, name, lambda self: self.compare(peer, dtype, training))


for each in PEERS:
    for precision in BOUNDS:
        for trains in (True, False):
            add_case(each, precision, trains)
for each in WHOLE:
    add_case(each, torch.float32, training=False)

if __name__ == "__main__":
    unittest.main(verbosity=1)
