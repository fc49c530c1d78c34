#!/usr/bin/env python3
"""Every strategy trains on simulated GPUs as it does on the CPU: on one rank and on two, step by step and replayed.

  python3 tests/simgpu/test_strategies.py [Class...]
"""

import json
import subprocess
import unittest

from runs import PROGRAM, STRATEGIES, SimulatedRuns

MATRIX = {"matrix": {"seed": [0], "strategy": STRATEGIES}}
NEVER_REPLAYED = {"shuffle"}  # every step takes another permutation from the host


class Strategies(SimulatedRuns):
    def test_are_all_in_the_list(self):
        listed = json.loads(subprocess.run([PROGRAM, "list", "strategies", "--format", "json"], check=True, capture_output=True,
                                           text=True).stdout)
        trained = {each if isinstance(each, str) else each["name"] for each in STRATEGIES}
        self.assertEqual({each["name"] for each in listed}, trained, "tests/simgpu/runs.py lists those that are trained here")


class OneRank(SimulatedRuns):
    def test_leaves_what_the_cpu_leaves(self):
        on_cpu = self.train(MATRIX, device="cpu")
        self.assertEqual(len(on_cpu), len(STRATEGIES))
        replayed = self.train(MATRIX)
        self.expect_close(replayed, on_cpu, 1e-10)
        for name, run in replayed.items():
            with self.subTest(run=name):
                self.assertEqual(run.graphs["replayed_steps"] == 0, run.strategy in NEVER_REPLAYED, run.graphs)
        by_themselves = self.train(MATRIX | {"cuda_graph": False})
        self.expect_close(by_themselves, replayed, 0)

    def test_pairs_beside_the_saved_one_are_replayed(self):
        keys = {"seed": 0, "strategy": "ghost", "populations": ["saved", "mean", "pooled", "tower:1"]}
        replayed = self.train(keys)
        self.assertGreater(next(iter(replayed.values())).graphs["replayed_steps"], 0)
        self.expect_close(replayed, self.train(keys, device="cpu"), 1e-10)


class TwoRanks(SimulatedRuns):
    def test_leave_what_the_cpu_leaves(self):
        on_cpu = self.train(MATRIX, device="cpu")
        replayed = self.train(MATRIX, ranks=2)
        self.expect_close(replayed, on_cpu, 1e-10)
        for name, run in replayed.items():
            with self.subTest(run=name):
                self.assertEqual(run.graphs["replayed_steps"] == 0, run.strategy in NEVER_REPLAYED, run.graphs)
        by_themselves = self.train(MATRIX | {"cuda_graph": False}, ranks=2)
        self.expect_close(by_themselves, replayed, 1e-14)  # gradients meet in other buckets


class Routes(SimulatedRuns):
    def test_every_route_leaves_what_the_cpu_leaves(self):
        routes = [{"name": "sync", "route": route}
                  for route in ("all_gather", "all_reduce", "gather_activations", "gather_activations_host", "host", "reduce_broadcast")]
        matrix = {"matrix": {"seed": [0], "gradient_route": ["reducer", "rank0", "host"], "strategy": routes}}
        on_cpu = self.train(matrix, device="cpu")
        self.assertEqual(len(on_cpu), 18)
        self.expect_close(self.train(matrix, ranks=2), on_cpu, 1e-10)


class NoGraphs(SimulatedRuns):
    """A run that cannot be replayed is known to be so before it starts: its gradients meet while backward goes on."""

    def test_are_told_before_the_first_step(self):
        blocking = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
        seldom = {"eval_every": 3, "strategy": "none"}
        for keys, variables, why in (({"strategy": "shuffle"}, {}, "steps that are alike"), (seldom, {}, "steps that are alike"),
                                     ({"strategy": "sync"}, blocking, "TORCH_NCCL_BLOCKING_WAIT")):
            with self.subTest(keys=keys, variables=variables):
                wide = {"seed": 0, "steps": 6, "model": {"name": "unet", "base": 48, "levels": 2}}
                (run,) = self.train(wide | keys, ranks=2, variables=variables).values()
                self.assertEqual(run.record["outcome"]["status"], "ok", run.record["outcome"])
                self.assertEqual(run.graphs["replayed_steps"], 0)
                self.assertIn(why, run.graphs["why_not"])
                self.assertGreater(run.result["communication"]["gradients"]["collectives_per_step"], 1)  # a bucket each


class StayingRanks(SimulatedRuns):
    def test_leave_what_fresh_ranks_leave(self):
        matrix = {"matrix": {"seed": [0, 1], "strategy": ["sync", "per_tower", "dynamic_tanh"]}}
        fresh = self.train(matrix, "--fresh-ranks", ranks=2, launched=True)
        self.expect_close(self.train(matrix, ranks=2, launched=True), fresh, 0)


class FourRanks(SimulatedRuns):
    def test_leave_what_the_cpu_leaves(self):
        matrix = {"matrix": {"seed": [0], "strategy": ["sync", "per_tower", "batch_renorm", "shuffle"]}}
        self.expect_close(self.train(matrix, ranks=4, launched=True), self.train(matrix, device="cpu"), 1e-10)

    def test_on_one_device(self):
        matrix = {"matrix": {"seed": [0], "strategy": ["sync", "averaged"]}}
        shared = {"SIMGPU_DEVICES": "1", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "SIMGPU_NCCL_VERSION": "23000"}
        self.expect_close(self.train(matrix, ranks=4, variables=shared), self.train(matrix, device="cpu"), 1e-10)


if __name__ == "__main__":
    unittest.main()
