#!/usr/bin/env python3
"""scripts/gpu_check.sh from its first part to its archive on simulated GPUs, and that it sees what is wrong.

  python3 tests/simgpu/test_gpu_check.py
"""

import os
import pathlib
import re
import subprocess
import sys
import tarfile
import unittest

from runs import PATIENCE, PROGRAM, SimulatedRuns

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/gpu_check.sh"
PARTS = ["first", "tests", "lost", "bench", "bandwidth", "verify", "sanitize", "tradeoff"]
BROKEN = "echo 'planted: this program fails'; exit 1"
OTHER_NUMBERS = f'case " $* " in *" --ranks 2 "*) set -- "$@" optimizer.lr=0.051 ;; esac; exec {PROGRAM} "$@"'


class GpuCheck(SimulatedRuns):
    def check(self, *parts, devices=2, programs=os.path.dirname(PROGRAM)):
        """The exit status, the rows as (part, verdict, text), the lines of stdout, and what was said beside."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SIMGPU_", "NCCL_", "BNLAB_"))}
        own = {"SIMGPU_DEVICES": str(devices), "BNLAB_PYTHON": sys.executable, "BNLAB_GPU_CHECK_PROGRAMS": str(programs),
               "BNLAB_GPU_RESULTS": str(self.folder / "results")}
        done = subprocess.run([SCRIPT, *parts], env=clean | own, text=True, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE)
        lines = done.stdout.splitlines()
        self.assertTrue(lines, done.stderr)
        page = pathlib.Path(lines[-1]).read_text()
        rows = [line.split(None, 2) for line in page.partition("\n\n")[2].splitlines()]
        self.assertTrue(rows, page)
        self.assertTrue(all(len(row) == 3 for row in rows), page)
        return done.returncode, rows, lines, done.stderr

    def with_program(self, last_words):
        """A folder of programs whose bnlab sees GPUs and does else what these words say."""
        folder = self.folder / "programs"
        folder.mkdir(exist_ok=True)
        program = folder / "bnlab"
        program.write_text(f'#!/bin/bash\n[ "$1" != doctor ] || exec {PROGRAM} doctor\n{last_words}\n')
        program.chmod(0o755)
        return folder

    def test_comes_to_its_end_on_two_gpus(self):
        status, rows, lines, said = self.check()
        self.assertEqual(status, 0, lines)
        self.assertEqual(list(dict.fromkeys(part for part, _, _ in rows)), PARTS)
        for part, verdict, text in rows:
            self.assertIn(verdict, ("ok", "skipped"), text)
            if verdict == "skipped":
                self.assertRegex(text, r"\w+ \w+ \w+", part)
        done = {part: [text for name, verdict, text in rows if (name, verdict) == (part, "ok")] for part in PARTS}
        self.assertEqual([len(done[part]) for part in PARTS], [4, 2, 2, 0, 0, 1, 0, 2], rows)
        for text in done["first"]:
            self.assertLess(float(re.search(r"differ by (\S+) at most", text)[1]), 1e-8)
        table = pathlib.Path(lines[-1])
        self.assertIn("mean nothing", table.read_text())
        with tarfile.open(lines[-2]) as archive:
            names = archive.getnames()
        for name in ("table.txt", "machine.txt", "first.log", "tradeoff.txt"):
            self.assertIn(f"{table.parent.name}/{name}", names)
        self.assertTrue(any(name.endswith("/record.json") for name in names))

    def test_a_program_that_fails_is_told(self):
        other = self.folder / "results/nvidia-h100-x1-here-0123456789ab"
        other.mkdir(parents=True)
        (other / "table.txt").write_text("of another machine\n")
        status, rows, _, said = self.check(programs=self.with_program(BROKEN))
        self.assertEqual(status, 1)
        failed = [part for part, verdict, _ in rows if verdict == "FAILED"]
        self.assertEqual(failed, ["first"] * 4 + ["lost"] * 2 + ["verify"] + ["tradeoff"] * 2)
        self.assertIn("planted: this program fails", rows[0][2])
        self.assertIn(f"stay as they are: {other}", said)
        self.assertEqual((other / "table.txt").read_text(), "of another machine\n")

    def test_other_numbers_of_two_ranks_are_told(self):
        status, rows, _, _ = self.check("first", programs=self.with_program(OTHER_NUMBERS))
        self.assertEqual(status, 1)
        self.assertEqual([verdict for _, verdict, _ in rows], ["ok", "ok", "ok", "FAILED"], rows)
        self.assertIn("more than 1e-08", rows[3][2])

    def test_one_gpu_skips_what_needs_two(self):
        status, rows, _, _ = self.check("lost", devices=1)
        self.assertEqual(status, 0)
        self.assertEqual([verdict for _, verdict, _ in rows], ["skipped", "skipped"], rows)
        self.assertIn("this needs two", rows[0][2])

    def test_no_gpu_is_an_error(self):
        done = subprocess.run([SCRIPT, "first"], text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE,
                              env=os.environ | {"SIMGPU_DEVICES": "0", "BNLAB_GPU_CHECK_PROGRAMS": os.path.dirname(PROGRAM)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("sees no GPU", done.stderr)


if __name__ == "__main__":
    unittest.main()
