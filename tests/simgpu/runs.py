"""Whole runs of the program on simulated GPUs: how they are started, and what they leave."""

import array
import json
import math
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from started_processes import PATIENCE, StartedProcesses

PROGRAM = os.path.abspath(os.environ.get("BNLAB_PROGRAM", "build/release/tests/simgpu/bnlab"))
LATE = ({"SIMGPU_MODE": "late", "SIMGPU_SCHEDULE": "starve"}, {"SIMGPU_MODE": "late", "SIMGPU_SCHEDULE": "lazy"})

TASK = {"name": "shapes", "size": [16, 16], "train": 32, "test": 12, "nuisance": 0.2}
SPEC = {"question": "does a GPU do what the CPU does?", "claim": "yes", "task": TASK,
        "model": {"name": "unet", "base": 4, "levels": 2}, "precision": "float64",
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4},
        "steps": 14, "eval_every": 9, "warmup_steps": 1, "log_every": 1, "towers": 4, "batch_per_tower": 2,
        "populations": ["saved", "batch"]}
OTHERWISE = SPEC | {"loss_mean": "batch", "weight_ema": None, "evaluation": {"crop": None}, "precise_batches": 20,
                    "memory_format": "channels_last", "tf32": False, "deterministic": False}
STRATEGIES = [
    "averaged", "batch_renorm", "cmbn", {"name": "batch_renorm", "scope": "pooled"}, "dynamic_tanh", "every_tower",
    "filter_response_norm", {"name": "frozen", "from_step": 7},
    "ghost", {"name": "group_norm", "groups": 2}, "instance_norm", "last_tower", "layer_norm",
    {"name": "mabn", "window": 2, "warmup_steps": 0, "renorm_from_step": 3}, "none", "norm_batch",
    {"name": "norm_batch", "samples": 1}, "per_tower", "precise",
    "shuffle", "single_tower", "sync", {"name": "sync", "group_size": 2}, "weight_norm",
    {"name": "weight_standardisation", "base": {"name": "group_norm", "groups": 2}}]


def tensors(file):
    """The tensors of a safetensors file, as lists of numbers by name."""
    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            numbers = array.array({"F32": "f", "F64": "d", "I64": "q"}[entry["dtype"]])
            numbers.frombytes(data[8 + length + begin:8 + length + end])
            found[name] = numbers
    return found


class Run:
    """What one run has left."""

    def __init__(self, folder):
        self.folder = folder
        self.record = json.loads((folder / "record.json").read_text())
        self.result = self.record["result"] or {}
        self.weights = tensors(folder / "weights.safetensors") if (folder / "weights.safetensors").exists() else {}
        metrics = folder / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        self.strategy = self.record["spec"]["strategy"]["name"]
        self.norms = [entry["gradient_norm"] for entry in map(json.loads, lines) if "gradient_norm" in entry]
        self.losses = [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]
        self.graphs = self.result.get("cuda_graph") or {}

    def numbers(self):
        return self.weights | {"losses": self.losses}


def difference(one, other):
    """The largest difference of two runs' weights and losses, relative to the largest value of each tensor. What a norm
    takes away again, as the bias of the convolution before it, is rounding alone and counts as zero."""
    ours, theirs = one.numbers(), other.numbers()
    if ours.keys() != theirs.keys() or any(len(ours[name]) != len(theirs[name]) for name in ours):
        return math.inf
    worst = 0.0
    for name, values in ours.items():
        scale = max((abs(v) for v in theirs[name]), default=0)
        scale = scale if scale > 1e-12 else 1
        for a, b in zip(values, theirs[name]):
            apart = 0 if a == b else abs(a - b) / scale
            worst = math.inf if math.isnan(apart) else max(worst, apart)
    return worst


PIPES = {"text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def world(ranks):
    """What a launcher of others tells each of its ranks, which meet once for all runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [{name: str(value) for name, value in ({"RANK": rank, "LOCAL_RANK": rank} | common).items()} for rank in range(ranks)]


class SimulatedRuns(StartedProcesses):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def command(self, keys, *more):
        """Of a matrix in a folder of its own; also returns that folder."""
        place = self.folder / str(len(list(self.folder.iterdir())))
        place.mkdir()
        (place / "matrix.json").write_text(json.dumps(SPEC | keys))
        return [PROGRAM, "run", str(place / "matrix.json"), "--results", str(place / "results"), "--threads", "1",
                *more], place / "results" / "matrix"

    def train(self, keys, *more, device="cuda", ranks=1, variables=None, ends=0, races=False, launched=False):
        """The runs of a matrix by their names, each as Run. The ranks are processes that stay for all of them or, where
        `launched` says so, are started for each. What races were seen is in self.races; there may be some only where
        `races` says so."""
        command, results = self.command(keys, "--device", device, *more)
        # Variables that are not set here would come from the shell of whoever runs the tests.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SIMGPU_", "NCCL_", "TORCH_"))}
        clean["SIMGPU_DEVICES"] = str(ranks if device == "cuda" else 0)
        watched = results.parent.parent / "races"
        watched.mkdir()
        clean["SIMGPU_RACES"] = str(watched)
        clean["OMP_NUM_THREADS"] = "1"  # of autograd's and the data's threads, too: more would sum in another order
        clean["MALLOC_PERTURB_"] = "165"  # whoever reads what the host has freed does not find it as it was
        clean |= variables or {}
        if launched:
            started = [subprocess.Popen([*command, "--ranks", str(ranks)], env=clean, **PIPES)]
        else:
            started = [subprocess.Popen(command, env=clean | member, **PIPES) for member in world(ranks)]
        said = [process.communicate(timeout=PATIENCE)[0] for process in started]
        self.said = "\n".join(said)
        if ends is not None:
            self.assertEqual([process.returncode for process in started], [ends] * len(started), self.said)
        self.races = sorted({line for file in watched.iterdir() for line in file.read_text().splitlines()})
        if not races:
            self.assertEqual(self.races, [])
        return self.runs_below(results)

    def train_cases(self, cases, *more, **how):
        """The runs of each case by its name; `cases` has the keys of each run. The same processes train them all, so that LibTorch is
        loaded once. The runs of a case have its number as seed."""
        keys = [{"strategy": "sync"} | run | {"seed": seed} for seed, runs in enumerate(cases.values()) for run in runs]
        axes = sorted({axis for run in keys for axis in run})
        runs = self.train({"matrix": {",".join(axes): [[(OTHERWISE | run)[axis] for axis in axes] for run in keys]}}, *more, **how)
        self.assertEqual(len(runs), len(keys))
        return {case: {name: run for name, run in runs.items() if run.record["spec"]["seed"] == seed} for seed, case in enumerate(cases)}

    def runs_below(self, results):
        return {folder.parent.name: Run(folder) for folder in results.glob("[!.]*/[!.]*") if (folder / "record.json").exists()}

    def expect_close(self, ours, theirs, bound):
        self.assertEqual(ours.keys(), theirs.keys())
        self.assertTrue(ours)
        for name, run in ours.items():
            with self.subTest(run=name):
                self.assertEqual(run.record["outcome"]["status"], "ok", run.record["outcome"])
                self.assertLessEqual(difference(run, theirs[name]), bound)
