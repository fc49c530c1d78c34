#!/usr/bin/env python3
"""Ranks that stay for the next run leave what ranks leave that were started for it: a matrix of strategies, tasks and
precisions, run with both, has the same metrics and the same weights to the bit.

  BNLAB_PROGRAM=build/release/bnlab python3 tests/launchers/test_staying_ranks.py
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "faults"))
from runs import kept, record_files

PROGRAM = os.path.abspath(os.environ.get("BNLAB_PROGRAM", "build/release/bnlab"))
SPEC = {"question": "do ranks that stay remember anything?", "claim": "no", "towers": 4, "batch_per_tower": 2, "steps": 4,
        "warmup_steps": 1, "optimizer": {"lr": 0.05}, "populations": ["saved", "precise", "batch"],
        "matrix": {"placement.exchange": ["shared_memory", "sockets"], "precision": ["float32", "bfloat16"],
                   "task,model": [[{"name": "shapes", "size": [16, 16], "train": 32, "test": 8},
                                   {"name": "unet", "base": 4, "levels": 2}],
                                  [{"name": "motion", "frames": 4, "train": 16, "test": 8},
                                   {"name": "frame_lstm", "hidden": 4,
                                    "backbone": {"name": "small_resnet", "depth": 8, "width": 4}}]],
                   "strategy": ["sync", "shuffle", {"name": "batch_renorm", "r_max": 2, "d_max": 1}, "weight_norm"]}}


class StayingRanks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "spec.json").write_text(json.dumps(SPEC))

    def run_with(self, *more):
        results = self.folder / ("results" + "".join(more))
        done = subprocess.run([PROGRAM, "run", self.folder / "spec.json", "--ranks", "2", "--device", "cpu", "--threads", "1",
                               "--results", results, *more], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return results

    def test_leave_what_fresh_ones_leave(self):
        staying, fresh = self.run_with(), self.run_with("--fresh-ranks")
        before = lambda results: {json.loads(file.read_text())["placement"]["runs_before"] for file in record_files(results)}
        self.assertEqual(before(fresh), {0})
        self.assertGreater(max(before(staying)), 10)
        left, expected = kept(staying), kept(fresh)
        self.assertEqual(left.keys(), expected.keys())
        self.assertEqual(len(left), 32)
        for name in expected:
            with self.subTest(run=name):
                self.assertEqual(left[name], expected[name])

    def test_record_peaks_of_memory_of_their_run_alone(self):
        large = {"name": "shapes", "size": [128, 128], "train": 8, "test": 4}
        small = {"name": "shapes", "size": [16, 16], "train": 8, "test": 4}
        two = {**SPEC, "matrix": {"task": [large, small]}, "strategy": "sync",
               "model": {"name": "unet", "base": 16, "levels": 2}}
        (self.folder / "spec.json").write_text(json.dumps(two))
        records = [json.loads(file.read_text()) for file in record_files(self.run_with())]
        records.sort(key=lambda record: record["placement"]["runs_before"])
        first, second = [record["result"]["memory"] for record in records]
        self.assertEqual([record["placement"]["runs_before"] for record in records], [0, 1])
        for kind in ("peak_memory_bytes", "peak_rss_bytes"):
            with self.subTest(kind=kind):
                self.assertLess(max(second[kind]), min(first[kind]))


if __name__ == "__main__":
    unittest.main()
