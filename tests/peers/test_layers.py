#!/usr/bin/env python3
"""Holds single layers and steps of bnlab to timm's public implementations of them, on random inputs in float64:

- filter_response_norm beside FilterResponseNormTlu2d, by `bnlab layer`: outputs, gradients of the input, of weight, bias and
  threshold, to 1e-6, since timm takes the mean square in float32 whatever it is given
- clip_gradient_adaptive beside adaptive_clip_grad, by weights that `bnlab run` has trained for one step, to 1e-10

  BNLAB_PROGRAM=build/release/bnlab PYTHONPATH=build/peers:scripts/python python3 tests/peers/test_layers.py

Exit status 77, which ctest reports as skipped, where timm is not installed (scripts/peers.sh installs it).
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file
    from timm.layers.filter_response_norm import FilterResponseNormTlu2d
    from timm.utils.agc import adaptive_clip_grad
except ImportError as error:
    print(f"SKIPPED: the comparison with timm's layers, because {error}; scripts/peers.sh installs timm")
    sys.exit(77)

PROGRAM = os.environ.get("BNLAB_PROGRAM", "build/release/bnlab")
CLIPPING = 0.02


def as_json(tensor):
    return {"shape": list(tensor.shape), "data": tensor.detach().flatten().tolist()}


def from_json(value):
    if isinstance(value, list):  # of a number per channel
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value["data"], dtype=torch.float64).reshape(value["shape"])


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


class Layers(unittest.TestCase):
    def test_filter_response_norm_is_timms(self):
        torch.manual_seed(0)
        towers = [torch.randn(3, 5, 6, 7, dtype=torch.float64) * 2 + 1, torch.randn(2, 5, 6, 7, dtype=torch.float64)]
        grads = [torch.randn_like(x) for x in towers]
        module = FilterResponseNormTlu2d(5, apply_act=True, eps=1e-6).double()
        with torch.no_grad():
            module.weight.copy_(torch.randn(5) * 0.5 + 1)
            module.bias.copy_(torch.randn(5) * 0.5)
            module.tau.copy_(torch.randn(5) * 0.3)
        inputs = torch.cat(towers).requires_grad_()
        outputs = module(inputs)
        outputs.backward(torch.cat(grads))
        case = {"strategy": {"name": "filter_response_norm", "eps": 1e-6}, "dtype": "float64", "activation": "relu",
                "weight": module.weight.tolist(), "bias": module.bias.tolist(), "threshold": module.tau.tolist(),
                "steps": [{"towers": [{"input": as_json(x), "grad_output": as_json(g)} for x, g in zip(towers, grads)]}]}
        run = subprocess.run([PROGRAM, "layer", "-"], input=json.dumps(case), capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        step = json.loads(run.stdout)["steps"][0]
        found = {"output": torch.cat([from_json(t["output"]) for t in step["towers"]]),
                 "grad_input": torch.cat([from_json(t["grad_input"]) for t in step["towers"]]),
                 "grad_weight": from_json(step["grad_weight"]), "grad_bias": from_json(step["grad_bias"]),
                 "grad_threshold": from_json(step["grad_threshold"])}
        expected = {"output": outputs.detach(), "grad_input": inputs.grad, "grad_weight": module.weight.grad,
                    "grad_bias": module.bias.grad, "grad_threshold": module.tau.grad}
        for name, tensor in expected.items():
            with self.subTest(name):
                self.assertLess(difference(found[name], tensor), 1e-6)

    def trained(self, folder, clipping):
        """The weights after one step of plain gradient descent at rate 1, from the weights of a run before if there is one."""
        name = "clipped" if clipping else "plain"
        spec = {"task": {"name": "shapes", "size": [16, 16], "train": 8, "test": 4}, "steps": 1, "warmup_steps": 0,
                "model": {"name": "unet", "base": 4, "levels": 2}, "precision": "float64", "batch_per_tower": 4,
                "strategy": "none",
                "optimizer": {"name": "sgd", "lr": 1, "momentum": 0, "schedule": "constant",
                              "clip_gradient_adaptive": CLIPPING if clipping else None}}
        if clipping:
            spec["optimizer"]["clip_adaptive_skip"] = ["head"]
        start = folder / "start.safetensors"
        if start.exists():
            spec["init_from"] = {"file": str(start)}
        file = folder / f"{name}.json"
        file.write_text(json.dumps(spec))
        run = subprocess.run([PROGRAM, "run", str(file), "--results", str(folder), "--ranks", "1"], capture_output=True,
                             text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return max((folder / name).glob("*/*/weights.safetensors"), key=lambda file: file.stat().st_mtime)

    def test_adaptive_clipping_is_timms(self):
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            first = self.trained(folder, False)
            (folder / "start.safetensors").write_bytes(first.read_bytes())
            before = load_file(first)
            plain, clipped = load_file(self.trained(folder, False)), load_file(self.trained(folder, True))
            changed = 0
            for name, weight in before.items():
                parameter = weight.clone().requires_grad_()
                parameter.grad = weight - plain[name]
                raw = parameter.grad.clone()
                if not name.startswith("head"):
                    adaptive_clip_grad([parameter], clip_factor=CLIPPING, eps=1e-3)
                changed += int(not torch.equal(parameter.grad, raw))
                self.assertLess((weight - clipped[name] - parameter.grad).abs().max().item(), 1e-10, name)
            self.assertGreater(changed, 3)


if __name__ == "__main__":
    unittest.main()
