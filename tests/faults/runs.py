"""Experiments that meet a fault: how they are started, and what must hold of a results folder whatever happened."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from started_processes import PATIENCE, StartedProcesses

PROGRAM = os.path.abspath(os.environ.get("BNLAB_PROGRAM", "build/release/bnlab"))  # need not be there
FAKE_RUNS = os.path.abspath(os.environ.get("BNLAB_FAKE_RUNS", "build/release/tests/launch_tests"))
DOCUMENTED = (0, 1, 2, 3, 75, 130)  # exit codes
OF_THE_MACHINE = ("seen", "start_s", "throughput", "memory", "resumed_at_steps",
                  "cuda_graph")  # in a result, beside what was computed

FAKE = {"question": "what survives?", "claim": "all", "task": {"name": "fake"}, "model": "fake", "towers": 2,
        "batch_per_tower": 2, "steps": 10, "matrix": {"strategy": ["left", "right"]}}
REAL = {"question": "what survives?", "claim": "all", "task": {"name": "shapes", "size": [16, 16], "train": 8, "test": 4},
        "model": {"name": "unet", "base": 4, "levels": 2}, "towers": 2, "batch_per_tower": 2, "steps": 3,
        "warmup_steps": 1, "checkpoint_every": 1, "strategy": "sync"}


def record_files(results):
    """Those that count: attempts under way are hidden."""
    return sorted(results.glob("*/[!.]*/[!.]*/record.json"))


def statuses(results):
    return [json.loads(file.read_text())["outcome"]["status"] for file in record_files(results)]


def kept(results):
    """What the records of a folder say, without what depends on the clock and the machine."""
    records = {}
    for file in record_files(results):
        record = json.loads(file.read_text())
        result = {key: value for key, value in (record["result"] or {}).items() if key not in OF_THE_MACHINE}
        weights = [path.read_bytes() for path in sorted(file.parent.glob("*.safetensors"))]
        records[str(file.relative_to(results))] = (record["outcome"]["status"], record["spec"], result, weights)
    return records


def left_behind(results):
    """Hidden files and folders, but for what is known of data files."""
    return [str(path.relative_to(results)) for path in results.rglob(".*") if path.name not in (".hashes", ".data_checks")]


class Runs(StartedProcesses):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.clean = {name: value for name, value in os.environ.items() if not name.startswith("FAULT_")}
        self.clean["OMP_NUM_THREADS"] = "1"

    def command(self, spec, results, *more):
        file = self.folder / "spec.json"
        file.write_text(json.dumps(spec))
        program = FAKE_RUNS if spec["model"] == "fake" else PROGRAM
        return [program, "run", str(file), "--ranks", "1", "--device", "cpu", "--results", str(results), *more]

    def run_one(self, spec, results, *more, variables=None, **how):
        """Ends with a documented exit code, whatever happened."""
        done = subprocess.run(self.command(spec, results, *more), env=self.clean | (variables or {}), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, **how)
        self.assertIn(done.returncode, DOCUMENTED, done.stderr)
        return done

    def start(self, spec, results, **how):
        return self.start_process(self.command(spec, results), self.clean, **how)

    def expect_all_done(self, spec, results, expected):
        """Without the fault the rest is done, and the folder says what an undisturbed one says."""
        done = self.run_one(spec, results, "--redo", "failed")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(kept(results), expected)
        self.assertEqual(left_behind(results), [])
