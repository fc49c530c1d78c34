#!/usr/bin/env python3
"""Ranks that exchange through memory of the simulated GPUs, which they open to each other, without NCCL.

  python3 tests/simgpu/test_peers.py [Class...]
"""

import collections
import json
import os
import re
import signal
import time
import unittest

from runs import LATE, PATIENCE, STRATEGIES, SimulatedRuns
from test_endings import children, lines_logged

MATRIX = {"matrix": {"seed": [0], "strategy": STRATEGIES}}
ROUTES = ("all_gather", "all_reduce", "gather_activations", "gather_activations_host", "host", "reduce_broadcast")
SHARED, OWN = {"SIMGPU_DEVICES": "1"}, {"SIMGPU_DEVICES": "2"}


class Peers:
    def over_peers(self, keys, ranks, variables=SHARED):
        runs = self.train(keys, "--exchange", "peers", ranks=ranks, variables=variables, launched=True)
        for name, run in runs.items():
            with self.subTest(run=name):
                self.assertEqual(run.record["placement"]["exchange"], "peers")
                self.assertEqual(run.record["placement"]["backend"], "peers")
        return runs


class OneGpu(Peers, SimulatedRuns):
    def test_every_strategy_leaves_what_the_cpu_leaves(self):
        on_cpu = self.train(MATRIX, device="cpu")
        replayed = self.over_peers(MATRIX, 2)
        self.expect_close(replayed, on_cpu, 1e-10)
        for name, run in replayed.items():
            with self.subTest(run=name):
                self.assertEqual(run.graphs["replayed_steps"] == 0, run.strategy == "shuffle", run.graphs)
        self.expect_close(self.over_peers(MATRIX | {"cuda_graph": False}, 2), replayed, 0)

    def test_every_route_leaves_what_the_cpu_leaves(self):
        routes = [{"name": "sync", "route": route} for route in ROUTES]
        matrix = {"matrix": {"seed": [0], "gradient_route": ["reducer", "rank0", "host"], "strategy": routes}}
        self.expect_close(self.over_peers(matrix, 2), self.train(matrix, device="cpu"), 1e-10)

    def test_several_passes_of_a_step(self):
        matrix = {"accumulate": 2, "matrix": {"seed": [0], "statistics_per": ["micro_batch", "step"], "strategy": ["sync", "batch_renorm"]}}
        self.expect_close(self.over_peers(matrix, 2), self.train(matrix, device="cpu"), 1e-10)

    def test_four_ranks(self):
        matrix = {"matrix": {"seed": [0], "strategy": ["sync", "per_tower", "batch_renorm", "shuffle"]}}
        self.expect_close(self.over_peers(matrix, 4), self.train(matrix, device="cpu"), 1e-10)


class Launches(Peers, SimulatedRuns):
    def of_a_step(self, strategy):
        """Of kernels and collectives, by one rank of two; and the sites of the network."""
        counts = []
        for steps in (10, 20):
            keys = {"strategy": strategy, "seed": 0, "steps": steps, "eval_every": 0, "log_every": 1000, "cuda_graph": False}
            (run,) = self.over_peers(keys, 2, SHARED | {"SIMGPU_TRACE": "1"}).values()
            done = re.findall(r" did (?:a )?(kernel|nccl)", (run.folder / "rank0.log").read_text())
            counts.append(collections.Counter(done))
        sites = sum(name.endswith("running_mean") for name in run.weights)
        return {name: (counts[1][name] - counts[0][name]) / 10 for name in ("kernel", "nccl")}, sites

    def test_of_a_synchronised_site_are_three_and_three_with_the_exchange(self):
        (alone, _), (together, sites) = self.of_a_step("per_tower"), self.of_a_step("sync")  # alone: two and two
        self.assertGreater(sites, 0)
        self.assertEqual(together, {"kernel": alone["kernel"] + 2 * sites, "nccl": 0})


class OwnGpus(Peers, SimulatedRuns):
    def test_gradients_meet_through_nccl(self):
        matrix = {"matrix": {"seed": [0], "strategy": ["sync", "batch_renorm"]}}
        self.expect_close(self.over_peers(matrix, 2, OWN), self.train(matrix, device="cpu"), 1e-10)

    def test_and_inside_replayed_backward_passes_by_buckets(self):
        wide = {"seed": 0, "steps": 8, "eval_every": 8, "model": {"name": "unet", "base": 48, "levels": 2},
                "matrix": {"accumulate,strategy": [[1, "per_tower"], [2, "sync"]]}}
        replayed, by_themselves = (self.over_peers(wide | {"cuda_graph": graphs}, 2, OWN) for graphs in (True, False))
        self.expect_close(replayed, self.train(wide, device="cpu"), 1e-10)
        self.expect_close(replayed, by_themselves, 0)
        for late in LATE:
            self.expect_close(self.over_peers(wide, 2, OWN | late), replayed, 0)
        for name, run in replayed.items():
            with self.subTest(run=name):
                self.assertGreater(run.graphs["replayed_steps"], 0, run.graphs)
                ours, theirs = (runs[name].result["communication"]["gradients"] for runs in (replayed, by_themselves))
                self.assertEqual(ours, {"collectives_per_step": 2, "bytes_per_step": theirs["bytes_per_step"]})

    def test_gpus_out_of_reach_are_refused(self):
        self.train({"seed": 0, "strategy": "sync"}, "--exchange", "peers", ranks=2, launched=True, ends=1,
                   variables={"SIMGPU_DEVICES": "2", "SIMGPU_ALONE": "1"})
        self.assertIn("cannot exchange over peers", self.said)
        self.assertIn("without --exchange peers", self.said)

    def test_the_cpu_has_none(self):
        self.train({"seed": 0, "strategy": "sync"}, "--exchange", "peers", ranks=2, device="cpu", launched=True, ends=2)
        self.assertIn("peers takes --device cuda", self.said)


class Lost(Peers, SimulatedRuns):
    def lose_a_rank(self, how, keys, variables=SHARED):
        """The outcome of a run whose second rank gets this signal, and the seconds until it ended."""
        keys = {"strategy": "sync", "seed": 0, "steps": 5000, "eval_every": 5000, "log_every": 1, "collective_timeout_s": 4} | keys
        command, results = self.command(keys, "--device", "cuda", "--ranks", "2", "--exchange", "peers")
        process = self.start_process(command, os.environ | variables, start_new_session=True)
        self.until(process, lambda: lines_logged(results) > 8)
        os.kill(max(children(process.pid)), how)
        begun = time.monotonic()
        process.wait(timeout=PATIENCE)
        (record,) = [json.loads(file.read_text()) for file in results.glob("[!.]*/[!.]*/record.json")]
        return record["outcome"], time.monotonic() - begun

    def test_a_killed_rank(self):
        outcome, seconds = self.lose_a_rank(signal.SIGKILL, {})
        self.assertEqual((outcome["status"], outcome["signal"]), ("interrupted", "SIGKILL"), outcome)
        self.assertLess(seconds, 45)

    def test_a_rank_that_stands_still_is_named(self):
        peers, others = "rank 1 did not take part in an exchange", "rank 1 did not (take part in an exchange|answer)"
        for keys, variables, said in (({}, SHARED, peers), ({"cuda_graph": False}, SHARED, peers),
                                      ({"log_every": 20}, OWN | LATE[0], others)):  # who waits in NCCL cannot say for whom
            with self.subTest(keys=keys):
                outcome, seconds = self.lose_a_rank(signal.SIGSTOP, keys, variables)
                self.assertIn(outcome["status"], ("timeout", "crashed"), outcome)  # as the host finds it
                self.assertRegex(outcome["message"], said)
                self.assertLess(seconds, 45)


if __name__ == "__main__":
    unittest.main()
