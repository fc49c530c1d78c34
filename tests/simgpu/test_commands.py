#!/usr/bin/env python3
"""The commands beside `run` on simulated GPUs, and what a training step asks of a GPU.

  python3 tests/simgpu/test_commands.py [Class...]
"""

import json
import os
import struct
import subprocess
import unittest

from runs import PATIENCE, PROGRAM, SPEC, TASK, SimulatedRuns, tensors

CASE = {"strategy": {"name": "sync"}, "dtype": "float64", "steps": [
    {"towers": [{"input": {"shape": [2, 2, 3], "data": [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]},
                 "grad_output": {"shape": [2, 2, 3], "data": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]}},
                {"input": {"shape": [1, 2, 3], "data": [2, 7, 1, 8, 2, 8]},
                 "grad_output": {"shape": [1, 2, 3], "data": [1, 8, 2, 8, 4, 5]}}]}]}


class Commands(SimulatedRuns):
    def said_by(self, *words, devices=2, variables=None, **how):
        env = os.environ | {"SIMGPU_DEVICES": str(devices), "OMP_NUM_THREADS": "1"} | (variables or {})
        done = subprocess.run([PROGRAM, *map(str, words)], env=env, capture_output=True, text=True, timeout=PATIENCE, **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def expect_alike(self, ours, theirs, where="answer"):
        self.assertEqual(type(ours), type(theirs), where)
        if isinstance(ours, dict):
            self.assertEqual(ours.keys(), theirs.keys(), where)
            for key, value in ours.items():
                if key != "device":
                    self.expect_alike(value, theirs[key], f"{where}.{key}")
        elif isinstance(ours, list):
            self.assertEqual(len(ours), len(theirs), where)
            for index, value in enumerate(ours):
                self.expect_alike(value, theirs[index], f"{where}[{index}]")
        elif isinstance(ours, float):
            self.assertAlmostEqual(ours, theirs, delta=1e-10 * max(1, abs(theirs)), msg=where)
        else:
            self.assertEqual(ours, theirs, where)

    def test_layer(self):
        for ranks in (1, 2):
            answers = [json.loads(self.said_by("layer", "-", "--ranks", ranks, "--device", device, input=json.dumps(CASE)))
                       for device in ("cuda", "cpu")]
            self.expect_alike(*answers)

    def test_probe(self):
        """Collectives by themselves and in graphs, with their results checked; no time of a simulated GPU means anything."""
        out = self.folder / "probe.json"
        said = self.said_by("probe", "--ranks", "2", "--device", "cuda", "--seconds", "2", "--largest-mb", "0.002", "--threads", "1",
                            "--out", out, variables={"SIMGPU_ALONE": "1"})
        self.assertIn("GPU 0 reaches the memory of 1; GPU 1 of none\n", said)
        probe = json.loads(out.read_text())
        self.assertEqual((probe["fabric"]["device"], probe["fabric"]["peers"]), ("cuda", [[1], []]))
        rows = probe["collectives"]
        self.assertEqual({row["exchange"] for row in rows}, {"nccl"})
        self.assertEqual({row["op"] for row in rows if "graph_time_s" in row}, {"all_gather", "all_reduce"})

    def test_evaluate_and_predict(self):
        command, results = self.command({"strategy": "sync", "seed": 0}, "--device", "cpu", "--ranks", "1")
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        (weights,) = results.glob("[!.]*/[!.]*/weights.safetensors")
        evaluations = [json.loads(self.said_by("evaluate", weights, "--population", "saved,batch,precise", "--ranks", ranks,
                                               "--device", device, "--json")) for device, ranks in (("cuda", 2), ("cpu", 1))]
        self.expect_alike(evaluations[0]["populations"] if "populations" in evaluations[0] else evaluations[0],
                          evaluations[1]["populations"] if "populations" in evaluations[1] else evaluations[1])
        for device in ("cuda", "cpu"):
            self.said_by("predict", weights, "--device", device, "--count", "3", "--out", self.folder / device)
        pictures = sorted(path.relative_to(self.folder / "cpu") for path in (self.folder / "cpu").rglob("*.png"))
        self.assertTrue(pictures)
        for picture in pictures:
            self.assertEqual((self.folder / "cuda" / picture).read_bytes(), (self.folder / "cpu" / picture).read_bytes(), picture)

    def test_forward(self):
        command, results = self.command({"strategy": "sync", "seed": 0}, "--device", "cpu", "--ranks", "1")
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        (weights,) = results.glob("[!.]*/[!.]*/weights.safetensors")
        numbers = [((7 * i) % 11) / 11 for i in range(2 * 3 * 16 * 16)]
        header = json.dumps({"images": {"dtype": "F64", "shape": [2, 3, 16, 16], "data_offsets": [0, 8 * len(numbers)]}}).encode()
        images = self.folder / "images.safetensors"
        images.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(numbers)}d", *numbers))
        for device in ("cuda", "cpu"):
            self.said_by("forward", weights, "--model", json.dumps(SPEC["model"]), "--strategy", "sync", "--classes", 5, "--images",
                         images, "--device", device, "--out", self.folder / f"{device}.safetensors")
        self.expect_alike(*({name: list(values) for name, values in tensors(self.folder / f"{device}.safetensors").items()}
                            for device in ("cuda", "cpu")))


class Step(SimulatedRuns):
    """Bars against more work on the way: what a step gives to the GPU beside two graphs."""

    def per_step(self, keys, ranks, *more):
        counts = []
        for steps in (20, 40):
            folder = self.folder / f"counts{len(list(self.folder.iterdir()))}"
            folder.mkdir()
            self.train({"steps": steps, "eval_every": 0, "log_every": 1000, "seed": 0, "task": TASK | {"train": 1000},
                        "precision": "float32"} | keys, *more, ranks=ranks,
                       variables={"SIMGPU_COUNTS": str(folder)})
            counts.append([json.loads(file.read_text()) for file in folder.iterdir()])
            self.assertEqual(len(counts[-1]), ranks)
        most = [max(counts_of, key=lambda count: count["kernels"]) for counts_of in counts]
        return {name: (most[1][name] - most[0][name]) / 20 for name in most[0]}

    def beside_two_graphs(self, keys, ranks, *more):
        given = self.per_step({"strategy": "sync"} | keys, ranks, *more)
        self.assertLessEqual(given["host_waits"], 2, given)  # for the times of a step long before
        return sum(given[name] for name in ("graphs", "kernels", "copies", "sets", "collectives")) - 2

    # A batch that comes and is copied to where the recorded one lay, the numbers of the step, the graph of the update; and
    # where there are several ranks, their exchange, unless the graph of the backward pass holds it.
    def test_gives_few_operations_beside_its_graphs(self):
        everything = {"optimizer": {"name": "adamw", "lr": 0.01, "clip_gradient_norm": 0.05, "norm_lr_multiplier": 0.5},
                      "weight_ema": 0.9}
        masks = {"model": {"name": "fcn", "backbone": {"name": "resnet", "width": 2}, "auxiliary_weight": 0.4},
                 "task": TASK | {"size": [33, 33], "train": 1000}}
        peers = "--exchange", "peers"
        for keys, ranks, most, *more in (({}, 1, 4), ({}, 2, 5), ({}, 2, 4, *peers), (everything, 1, 4), (everything, 2, 5), (masks, 1, 4)):
            with self.subTest(ranks=ranks, keys=keys, more=more):
                self.assertLessEqual(self.beside_two_graphs(keys, ranks, *more), most)

    # In float64, for checks, the update is not replayed: two groups of parameters, the sum of the loss.
    def test_gives_few_more_in_float64(self):
        self.assertLessEqual(self.beside_two_graphs({"precision": "float64"}, 2), 6)


if __name__ == "__main__":
    unittest.main()
