#!/usr/bin/env python3
"""Faults in how streams wait for each other, planted into the program, change numbers when streams are late.

  python3 tests/simgpu/test_planted.py
"""

import os
import unittest

import runs
from runs import LATE, difference

FAULTS = ("no event", "no record_stream")


class Planted(runs.SimulatedRuns):
    def trained(self, variables):
        (run,) = self.train({"strategy": "sync", "seed": 0, "data_workers": 1, "steps": 30, "eval_every": 30},
                            variables=variables, ends=None).values()
        return run

    def test_faults_are_found(self):
        right = self.trained({})
        for late in LATE:
            self.assertEqual(difference(self.trained(late), right), 0, "without a fault")
        for fault in FAULTS:
            with self.subTest(fault):
                found = [difference(self.trained(late | {"SIMGPU_FAULT": fault}), right) > 0 for late in LATE]
                self.assertIn(True, found)


if __name__ == "__main__":
    runs.PROGRAM = os.environ.get("BNLAB_FAULTY_PROGRAM", runs.PROGRAM.replace("simgpu/bnlab", "simgpu/faulty_bnlab"))
    unittest.main()
