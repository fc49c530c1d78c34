#!/usr/bin/env python3
"""Lets the disk fail at every change that a launcher makes, and at some kinds of change that a rank makes (at all of them
with BNLAB_EVERY_FAULT=1): what was there stays, nothing is published half, the message says what is wrong, and the next
call without the fault does the rest.

  BNLAB_PROGRAM=build/release/bnlab BNLAB_FAKE_RUNS=build/release/tests/launch_tests \
    BNLAB_FAILING_DISK=build/release/tests/libfailing_disk.so python3 tests/faults/test_faults.py
"""

import errno
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from runs import FAKE, FAKE_RUNS, PROGRAM, REAL, Runs, kept, record_files, statuses

LIBRARY = os.path.abspath(os.environ.get("BNLAB_FAILING_DISK", "build/release/tests/libfailing_disk.so"))
EVERY_KIND = os.environ.get("BNLAB_EVERY_FAULT") == "1"
ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


def preloads():
    """Whether the library can be preloaded; a program with a sanitiser wants to be first."""
    if not os.path.exists(LIBRARY):
        return False
    done = subprocess.run([FAKE_RUNS, "--version"], env=os.environ | {"LD_PRELOAD": LIBRARY}, capture_output=True)
    return done.returncode == 0


@unittest.skipUnless(preloads(), f"{LIBRARY} cannot be preloaded")
class FailingDisk(Runs):
    def faulty(self, results, where, **fault):
        variables = {f"FAULT_{name.upper()}": str(value) for name, value in fault.items()}
        return variables | {"LD_PRELOAD": LIBRARY, "FAULT_BELOW": str(results), "FAULT_IN": where}

    def undisturbed(self, spec):
        results = self.folder / "undisturbed"
        self.assertEqual(self.run_one(spec, results).returncode, 0)
        return kept(results)

    def calls(self, spec, where, **which):
        """[(call, file)] of an undisturbed run, in their order."""
        results, found = self.folder / "listed", self.folder / "calls"
        done = self.run_one(spec, results, variables=self.faulty(results, where, list=found, **which))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split(" ", 1) for line in found.read_text().splitlines()]

    def expect_clear(self, done, error):
        """The last line names the reason and a file, as one sentence of ours."""
        self.assertEqual(done.returncode, 3, done.stderr)
        said = done.stderr.splitlines()[-1]
        self.assertRegex(said, f"^bnlab: .*{re.escape(str(self.folder))}.*{os.strerror(error)}")

    def begun(self):
        """A folder in which one of the two runs is done, and the other was interrupted once and killed once."""
        results = self.folder / "before"
        self.assertEqual(self.run_one(FAKE, results).returncode, 0)
        _, file = record_files(results)
        record = json.loads(file.read_text())
        record["outcome"]["status"] = "interrupted"
        file.write_text(json.dumps(record))
        (file.parent.parent / ".1x2-cpu.attempt.1.somebody").mkdir()
        claim = file.parent.parent / ".1x2-cpu.claim.1"
        claim.write_text("{}")
        os.utime(claim, (0, 0))
        return results

    def sweep(self, lasts):
        expected = self.undisturbed(FAKE)
        before = self.begun()
        listed = self.folder / "calls"
        for number in itertools.count(1):
            with self.subTest(call=number, lasts=lasts):
                results = self.folder / f"results{number}"
                shutil.copytree(before, results)
                earlier = record_files(results)[0]
                text = earlier.read_bytes()
                listed.unlink(missing_ok=True)
                fault = {"at": number, "errno": ERRORS[number % 3], "lasts": lasts, "list": listed}
                done = self.run_one(FAKE, results, variables=self.faulty(results, "launcher", **fault))
                if done.returncode != 0:
                    self.expect_clear(done, fault["errno"])
                self.assertEqual(earlier.read_bytes(), text)
                self.assertLessEqual(set(statuses(results)), {"ok"} if done.returncode == 0 else {"ok", "interrupted"})
                self.expect_all_done(FAKE, results, expected)
            if len(listed.read_text().splitlines()) < number:
                break
        self.assertGreater(number, 20)

    def test_every_change_of_the_launcher_may_fail_once(self):
        self.sweep(lasts=0)

    def test_the_disk_may_fill_up_at_every_change_of_the_launcher(self):
        self.sweep(lasts=1)

    def test_a_quota_that_stays_used_up_is_never_booked_against_a_run(self):
        expected, results = self.undisturbed(FAKE), self.folder / "results"
        self.assertEqual(self.run_one(FAKE, results, "--only", "strategy=left").returncode, 0)
        shutil.copytree(results, self.folder / "listed")
        files = [file for _, file in self.calls(FAKE, "launcher", call="write")]
        job = next(i for i, file in enumerate(files, 1) if ".job.json" in file)
        fault = {"at": job, "errno": errno.EDQUOT, "lasts": 1, "call": "write"}
        for _ in range(4):
            self.assertEqual(self.run_one(FAKE, results, variables=self.faulty(results, "launcher", **fault)).returncode, 3)
            self.assertEqual(statuses(results), ["ok"])
        self.expect_all_done(FAKE, results, expected)

    @unittest.skipUnless(os.path.exists(PROGRAM), "without LibTorch there are no real ranks")
    def test_each_kind_of_change_of_a_rank_may_fail(self):
        expected, calls = self.undisturbed(REAL), self.calls(REAL, "rank")
        kinds = {}  # the first call of each kind: what it is, and the folder and ending of what it is done to
        for number, (call, file) in enumerate(calls, 1):
            path = pathlib.Path(file)
            if path.suffix == ".log":  # which then can say nothing
                continue
            kinds.setdefault((call, path.parent.name == "checkpoints", path.suffixes[0] if path.suffixes else ""), number)
        print(f"\n{len(calls)} changes, of {len(kinds)} kinds: {sorted(kinds)}")
        for (kind, number), error in zip(list(kinds.items())[::1 if EVERY_KIND else 3], itertools.cycle(ERRORS)):
            with self.subTest(kind=kind, call=number, error=error):
                results = self.folder / f"results{number}"
                fault = {"at": number, "errno": error}
                done = self.run_one(REAL, results, variables=self.faulty(results, "rank", **fault))
                if error == errno.EIO:
                    self.assertEqual(done.returncode, 1, done.stderr)
                    [file] = record_files(results)
                    outcome = json.loads(file.read_text())["outcome"]
                    self.assertIn(outcome["status"], ("error", "crashed"))
                    self.assertIn(os.strerror(error), json.dumps(outcome))
                else:  # no verdict on the run
                    self.expect_clear(done, error)
                    self.assertEqual(record_files(results), [])
                self.expect_all_done(REAL, results, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
