#!/usr/bin/env python3
"""Whatever order the streams' events allow, a run of a strategy leaves the same bits.

In mode late each run of a process meets another schedule. SIMGPU_SCHEDULES says how many runs there are of each kind of
schedule on one rank and on two (3): with 50, every strategy meets 200.

  python3 tests/simgpu/test_schedules.py [Class...]
"""

import itertools
import os
import unittest

from runs import LATE, SPEC, STRATEGIES, TASK, SimulatedRuns, difference

COUNT = int(os.environ.get("SIMGPU_SCHEDULES", "3"))
AT_ONCE = 10  # by the same processes
SMALL = {"task": TASK | {"size": [8, 8], "train": 32, "test": 8}, "model": {"name": "unet", "base": 2, "levels": 1}, "steps": 8,
         "eval_every": 8}


def matrix(count):
    """This many runs of each strategy, told apart by a bound of the gradient that is never met."""
    optimizers = [SPEC["optimizer"] | {"clip_gradient_norm": 1e6 + i} for i in range(count)]
    return SMALL | {"matrix": {"seed": [0], "optimizer": optimizers, "strategy": STRATEGIES}}


class Schedules(SimulatedRuns):
    def expect_the_same_bits(self, ranks):
        at_once = {self.strategy_of(run): run for run in self.train(matrix(1), ranks=ranks).values()}
        self.assertEqual(len(at_once), len(STRATEGIES))
        for late, first in itertools.product(LATE, range(0, COUNT, AT_ONCE)):
            variables = late | {"SIMGPU_SEED": str(first + 1)}
            count = min(AT_ONCE, COUNT - first)
            runs = self.train(matrix(count), ranks=ranks, variables=variables)
            self.assertEqual(len(runs), count * len(STRATEGIES))
            for name, run in runs.items():
                with self.subTest(run=name, **variables):
                    self.assertEqual(difference(run, at_once[self.strategy_of(run)]), 0)

    def strategy_of(self, run):
        self.assertEqual(run.record["outcome"]["status"], "ok", run.record["outcome"])
        return str(run.record["spec"]["strategy"])

    def test_leave_the_same_bits_on_one_rank(self):
        self.expect_the_same_bits(1)

    def test_leave_the_same_bits_on_two_ranks(self):
        self.expect_the_same_bits(2)


if __name__ == "__main__":
    unittest.main()
