#!/usr/bin/env python3
"""Faults that are planted into the program change numbers when streams are late, and the races among them are told by the
names of both pieces of work.

  python3 tests/simgpu/test_planted.py
"""

import os
import re
import unittest

import runs
from runs import LATE, difference

COPY, GIVING_BACK = r"copy \(stream \d+, write\)", r"giving memory back \(stream \d+, write\)"
READING = r"aten::\S+ \(stream \d+, read\)"


def race(one, other):
    return rf"^({one} and {other}|{other} and {one}) touch the same memory with no order between them$"


# The fault, and what is told of it.
FAULTS = {
    "no event": race(COPY, READING),
    "no record_stream": race(GIVING_BACK, READING),
    "host buffer changed": r"^the host has changed pinned memory before a copy \(stream \d+\) was done with it$",
    "freed block": r"^aten::convolution \(stream \d+ in a graph, read\) touches memory that was given back$",
    "upload in capture": r"^copy \(stream \d+ in a graph, read\) touches memory that was given back$"}


class Planted(runs.SimulatedRuns):
    def trained(self, variables, races=False):
        (run,) = self.train({"strategy": "sync", "seed": 0, "data_workers": 1, "steps": 30, "eval_every": 30},
                            variables=variables, ends=None, races=races).values()
        return run

    def test_faults_are_found(self):
        right = self.trained({})
        for late in LATE:
            self.assertEqual(difference(self.trained(late), right), 0, "without a fault")
        for fault, told in FAULTS.items():
            with self.subTest(fault):
                found, races = [], []
                for late in LATE:
                    found.append(difference(self.trained(late | {"SIMGPU_FAULT": fault}, races=True), right) > 0)
                    races += self.races
                self.assertIn(True, found)
                self.assertRegex("\n".join(races), "(?m)" + told)

    def test_exchanges_over_peers_need_two_halves_and_flags_behind_their_data(self):
        def trained(fault, ends):
            keys = {"strategy": "sync", "seed": 0, "steps": 60, "eval_every": 60, "collective_timeout_s": 4}
            return self.train(keys, "--exchange", "peers", ranks=2, launched=True, ends=ends,
                              variables={"SIMGPU_DEVICES": "1", "SIMGPU_FAULT": fault}).values()
        (right,) = trained("", 0)
        for fault in ("one half", "early flag"):
            with self.subTest(fault):
                found = list(trained(fault, None))  # refused at the start, where known sums come out wrong, or later
                wrong = not found or found[0].record["outcome"]["status"] != "ok" or difference(found[0], right) > 0
                self.assertTrue(wrong)

    def test_gradients_that_graphs_exchange_need_their_order(self):
        def trained(fault, late, **how):
            keys = {"strategy": "sync", "seed": 0, "steps": 8, "eval_every": 8, "accumulate": 2,
                    "model": {"name": "unet", "base": 48, "levels": 2}}
            return self.train(keys, "--exchange", "peers", ranks=2, launched=True, **how,
                              variables=late | {"SIMGPU_DEVICES": "2", "SIMGPU_FAULT": fault}).values()
        (right,) = trained("", {})
        for fault, where in (("no wait", ""), ("early exchange", " in a graph")):  # without the wait none is recorded
            with self.subTest(fault):
                found = []
                for late in LATE:
                    found += [difference(run, right) > 0 for run in trained(fault, late, races=True, ends=None)]
                    self.assertRegex("\n".join(self.races), rf"nccl all_reduce \(stream \d+{where}, .* with no order between them")
                self.assertIn(True, found)

    def test_streams_that_share_tickets_are_found(self):
        """Ranks that are threads, each with a stream of its own."""
        kernel = r"kernel .* \(stream \d+, (write|read)\)"
        process = self.start_process([runs.PROGRAM, "verify", "--strategy", "per_tower", "--ranks", "2", "--device", "cuda"],
                                     os.environ | {"SIMGPU_DEVICES": "2", "SIMGPU_RACES": str(self.folder),
                                                   "SIMGPU_FAULT": "shared tickets"})
        told = re.compile("(?m)" + race(kernel, kernel))
        self.until(process, lambda: any(told.search(file.read_text()) for file in self.folder.iterdir()))


if __name__ == "__main__":
    runs.PROGRAM = os.environ.get("BNLAB_FAULTY_PROGRAM", runs.PROGRAM.replace("simgpu/bnlab", "simgpu/faulty_bnlab"))
    unittest.main()
