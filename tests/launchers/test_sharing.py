#!/usr/bin/env python3
"""Several processes share one results folder while some of them are killed or stopped: every run is published once.

  BNLAB_FAKE_RUNS=build/release/tests/launch_tests python3 tests/launchers/test_sharing.py

The program is the one of the launcher's tests, whose runs take milliseconds. A run that is published twice would leave
a second line in the list that this test keeps by looking at the folder's inodes.
"""

import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(os.environ.get("BNLAB_FAKE_RUNS", "build/release/tests/launch_tests"))
WORKERS, RUNS, KILLS, STOPS = 8, 120, 20, 40
STOPPED_FOR = 2.0  # seconds, longer than a claim is respected without a sign of life
PATIENCE = 600
ENDS = (0, 75, -signal.SIGKILL)  # a launcher that was killed, however often, is no verdict on its run


class Sharing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "spec.json").write_text(json.dumps(
            {"question": "who runs what?", "claim": "each once", "task": {"name": "fake", "behaviour": "linger"},
             "model": "fake", "strategy": "left", "towers": 2, "batch_per_tower": 2, "steps": 10,
             "matrix": {"seed": list(range(RUNS))}}))
        self.published = collections.defaultdict(set)  # the inodes that were seen under each run's name
        self.workers = []
        self.talk = open(self.folder / "talk", "a", encoding="utf-8")
        self.addCleanup(self.talk.close)
        self.addCleanup(self.end_all)

    def end_all(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()

    def worker(self):
        return subprocess.Popen([PROGRAM, "run", str(self.folder / "spec.json"), "--ranks", "1", "--device", "cpu",
                                 "--results", str(self.folder / "results"), "--steal-after", "1"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=self.talk)

    def said(self):
        return "\n".join(line for line in (self.folder / "talk").read_text().splitlines() if "bnlab:" in line)

    def look(self):
        for run in (self.folder / "results" / "spec").glob("*/1x2-cpu"):
            try:
                self.published[run].add(run.stat().st_ino)
            except FileNotFoundError:  # for a moment, while somebody sees that it is finished
                continue
        return len(self.published)

    def test_each_run_is_published_once_whoever_dies(self):
        dice = random.Random(1)
        self.workers = [self.worker() for _ in range(WORKERS)]
        kills, stops, stopped = KILLS, STOPS, []
        deadline = time.monotonic() + PATIENCE
        while self.look() < RUNS:
            self.assertLess(time.monotonic(), deadline, f"{len(self.published)} of {RUNS} runs")
            time.sleep(0.05)
            for until, worker in [entry for entry in stopped if entry[0] < time.monotonic()]:
                stopped.remove((until, worker))
                worker.send_signal(signal.SIGCONT)
            for i, worker in enumerate(self.workers):
                if worker.poll() is not None:
                    self.assertIn(worker.returncode, ENDS, self.said())
                    self.workers[i] = self.worker()
            victim = dice.choice(self.workers)
            if kills > 0 and dice.random() < 0.3:
                victim.kill()
                kills -= 1
            elif stops > 0 and dice.random() < 0.5 and victim not in [worker for _, worker in stopped]:
                victim.send_signal(signal.SIGSTOP)
                stopped.append((time.monotonic() + STOPPED_FOR, victim))
                stops -= 1
        for _, worker in stopped:
            worker.send_signal(signal.SIGCONT)
        for worker in self.workers:
            self.assertIn(worker.wait(timeout=PATIENCE), ENDS)
        last = self.worker()
        self.assertEqual(last.wait(timeout=PATIENCE), 0)
        self.look()
        left = [name for name in (self.folder / "results").rglob(".*") if name.name not in (".hashes", ".data_checks")]
        print(f"\n{RUNS} runs, {KILLS - kills} kills, {STOPS - stops} stops; left behind: {[str(name) for name in left]}")
        self.assertEqual(len(self.published), RUNS)
        self.assertEqual([str(run) for run, inodes in self.published.items() if len(inodes) > 1], [])
        for run in self.published:
            status = json.loads((run / "record.json").read_text())["outcome"]["status"]
            self.assertEqual(status, "ok")


if __name__ == "__main__":
    unittest.main(verbosity=2)
