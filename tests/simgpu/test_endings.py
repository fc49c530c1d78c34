#!/usr/bin/env python3
"""Runs on simulated GPUs that are cut short, that lose a rank, or that lack memory; and what a step asks of a GPU.

  python3 tests/simgpu/test_endings.py [Class...]
"""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from runs import LATE, PATIENCE, SimulatedRuns, difference

KEYS = {"strategy": "sync", "seed": 0}


def children(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def lines_logged(results):
    """Of the run under way, whose folder is another one once it is claimed."""
    try:
        return max((len(file.read_text().splitlines()) for file in results.rglob("metrics.jsonl")), default=0)
    except FileNotFoundError:
        return 0


class CutShort(SimulatedRuns):
    def start(self, keys, ranks, variables):
        command, results = self.command(KEYS | keys, "--device", "cuda", "--ranks", str(ranks))
        process = self.start_process(command, os.environ | {"SIMGPU_DEVICES": str(ranks)} | variables, start_new_session=True)
        return process, command, results

    def test_is_resumed_to_the_bit_and_replayed_again(self):
        everything = {"precision": "float32", "weight_ema": 0.9,
                      "optimizer": {"name": "adamw", "lr": 0.01, "clip_gradient_norm": 0.05}}
        for keys in ({}, everything):
            with self.subTest(keys):
                self.is_resumed(keys)

    def is_resumed(self, keys):
        keys = KEYS | {"steps": 60, "eval_every": 60, "checkpoint_every": 10, "log_every": 5} | keys
        (whole,) = self.train(keys, ranks=2).values()
        process, command, results = self.start(keys, 2, {})
        self.until(process, lambda: any(results.rglob("checkpoint*")))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done = subprocess.run(command, env=os.environ | {"SIMGPU_DEVICES": "2"}, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        (resumed,) = self.runs_below(results).values()
        self.assertEqual(difference(resumed, whole), 0)
        at = resumed.result["resumed_at_steps"]
        self.assertEqual(len(at), 1)
        self.assertGreater(resumed.graphs["replayed_steps"], 0)
        # Between two checkpoints all but a few steps are replayed, before the cut and after it.
        self.assertGreaterEqual(resumed.graphs["replayed_steps"], whole.graphs["replayed_steps"] - 8)

    def lose_a_rank(self, how, variables, keys):
        process, _, results = self.start({"steps": 5000, "eval_every": 5000, "log_every": 1, "collective_timeout_s": 6} | keys, 2,
                                         variables)
        self.until(process, lambda: lines_logged(results) > 8)
        ranks = children(process.pid)
        self.assertEqual(len(ranks), 2)
        os.kill(max(ranks), how)
        begun = time.monotonic()
        process.wait(timeout=PATIENCE)
        seconds = time.monotonic() - begun
        (record,) = [json.loads(file.read_text()) for file in results.glob("[!.]*/[!.]*/record.json")]
        return record["outcome"], seconds

    def test_by_a_killed_rank(self):
        for variables, keys in (({}, {}), (LATE[0], {}), ({}, {"cuda_graph": False})):
            with self.subTest(variables=variables, keys=keys):
                outcome, _ = self.lose_a_rank(signal.SIGKILL, variables, keys)
                self.assertEqual((outcome["status"], outcome["signal"]), ("interrupted", "SIGKILL"), outcome)

    def test_by_a_stopped_rank(self):
        for keys in ({}, {"cuda_graph": False}):
            with self.subTest(keys):
                outcome, seconds = self.lose_a_rank(signal.SIGSTOP, LATE[0], keys)
                self.assertEqual(outcome["status"], "timeout", outcome)
                self.assertLess(seconds, 45, "LibTorch's watchdog waits a minute more unless it is told not to")


class Memory(SimulatedRuns):
    def test_that_one_rank_lacks_for_a_recording_costs_no_run(self):
        whole = self.train(KEYS, ranks=2)
        runs = self.train(KEYS, ranks=2, variables={"SIMGPU_NO_MEMORY_IN_CAPTURES": "1"}, launched=True)
        (run,) = runs.values()
        self.assertEqual(run.graphs["replayed_steps"], 0)
        self.assertIn("memory", run.graphs["why_not"])
        self.expect_close(runs, whole, 0)

    def test_that_is_short_is_told(self):
        (run,) = self.train(KEYS, variables={"SIMGPU_MEMORY_MB": "1"}, ends=1, launched=True).values()
        outcome = run.record["outcome"]
        self.assertEqual(outcome["status"], "oom", outcome)


if __name__ == "__main__":
    unittest.main()
