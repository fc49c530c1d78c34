#!/usr/bin/env python3
"""Runs experiments where the disk is full, where memory is short, and on folders that belong to somebody else.

  BNLAB_PROGRAM=build/release/bnlab BNLAB_FAKE_RUNS=build/release/tests/launch_tests python3 tests/faults/test_limits.py

What this machine or this user may not do (mounting, other users) is skipped aloud.
"""

import json
import os
import resource
import signal
import subprocess
import unittest

from runs import FAKE, FAKE_RUNS, PATIENCE, PROGRAM, REAL, Runs, kept, left_behind, record_files, statuses

DISK_BYTES = 96 << 20  # a launcher asks for 64 MiB that are free
MOST_ADDRESSES = 5 << 30  # of which LibTorch takes some
ANN, BEN, GROUP = 61001, 61002, 61000  # users that exist nowhere else
LINGERING = FAKE | {"task": {"name": "fake", "behaviour": "linger"}, "strategy": "left", "matrix": {"seed": list(range(8))}}

# Each run leaves some MiB of weights.
LARGE = REAL | {"model": REAL["model"] | {"base": 96}, "steps": 1, "warmup_steps": 0, "matrix": {"seed": [0, 1, 2]}}


def limit_addresses():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))


def small_disk(folder):
    """Why none can be mounted there, or "" once one is."""
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        return subprocess.run(mounting, capture_output=True, text=True).stderr.strip()
    except OSError as error:
        return str(error)


def fill(disk, left):
    """Fills a disk but for so many bytes, and returns the file that does."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            file.truncate(max(0, file.tell() - left))
    return filler


def can_read(user, file):
    """Whether that user finds this file: it may lie below a folder that is closed to others."""
    return subprocess.run(["test", "-x", file], user=user, group=GROUP, extra_groups=[]).returncode == 0


class Limits(Runs):
    def disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if problem := small_disk(disk):
            self.skipTest(f"no small disk: {problem}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)])
        return disk

    def test_a_disk_that_fills_up_in_the_middle(self):
        expected = self.folder / "expected"
        self.assertEqual(self.run_one(LINGERING, expected).returncode, 0)
        disk = self.disk()
        results = disk / "results"
        process = self.start(LINGERING, results)
        self.until(process, lambda: len(record_files(results)) == 2)
        earlier = {file: file.read_bytes() for file in record_files(results)}
        filler = fill(disk, left=0)
        _, said = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 3, said)
        self.assertRegex(said.splitlines()[-1], "^bnlab: cannot .*: No space left on device$")
        refused = self.run_one(LINGERING, results)
        self.assertEqual(refused.returncode, 3)
        self.assertRegex(refused.stderr, "results: [01] MiB of disk are left")
        self.assertEqual({file: file.read_bytes() for file in earlier}, earlier)
        filler.unlink()
        self.expect_all_done(LINGERING, results, kept(expected))

    @unittest.skipUnless(os.path.exists(PROGRAM), "without LibTorch there are no real ranks")
    def test_a_disk_with_room_for_the_record_but_not_for_the_weights(self):
        expected, results = self.folder / "expected", self.disk() / "results"
        self.assertEqual(self.run_one(LARGE, expected).returncode, 0)
        process = self.start(LARGE, results)
        self.until(process, lambda: record_files(results))
        filler = fill(results.parent, left=1 << 20)
        _, said = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 3, said)
        self.assertRegex(said.splitlines()[-1], "^bnlab: sync-.*: cannot write .*/weights.safetensors: No space left on device; free ")
        self.assertEqual(set(statuses(results)), {"ok"})
        filler.unlink()
        self.expect_all_done(LARGE, results, kept(expected))

    @unittest.skipUnless(os.path.exists(PROGRAM), "without LibTorch there are no real ranks")
    def test_a_run_without_enough_memory_ends_alone(self):
        spec = REAL | {"steps": 1, "matrix": {"batch_per_tower": [50000, 2]}}
        spec["task"] = REAL["task"] | {"size": [64, 64]}  # the images of one batch take 5 GB
        results = self.folder / "results"
        if subprocess.run([PROGRAM, "--version"], preexec_fn=limit_addresses, capture_output=True).returncode != 0:
            self.skipTest("this build needs more addresses than that to start")
        done = self.run_one(spec, results, preexec_fn=limit_addresses)
        self.assertEqual(done.returncode, 1, done.stderr)
        ended = {json.loads(file.read_text())["spec"]["batch_per_tower"]: json.loads(file.read_text())["outcome"]
                 for file in record_files(results)}
        self.assertEqual(ended[2]["status"], "ok")
        self.assertEqual(ended[50000]["status"], "oom", ended[50000])
        self.assertTrue(ended[50000]["message"])
        self.assertEqual(left_behind(results), [])


@unittest.skipUnless(os.geteuid() == 0 and can_read(ANN, FAKE_RUNS), "only root can be two other users")
class Users(Runs):
    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)

    def folder_of(self, user, mode):
        folder = self.folder / f"of{user}"
        folder.mkdir()
        os.chown(folder, user, GROUP)
        folder.chmod(mode)
        return folder

    @staticmethod
    def as_user(user, umask=0o002):
        return {"user": user, "group": GROUP, "extra_groups": [], "umask": umask}

    def test_what_belongs_to_somebody_else_is_not_touched(self):
        results = self.folder_of(ANN, 0o755)
        self.assertEqual(self.run_one(FAKE, results, "--only", "strategy=left", **self.as_user(ANN)).returncode, 0)
        before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
        refused = self.run_one(FAKE, results, **self.as_user(BEN))
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertRegex(refused.stderr.splitlines()[-1], f"^bnlab: .*{results}.*")
        self.assertIn("permission denied", refused.stderr.lower())
        seen = self.run_one(FAKE, results, "--only", "strategy=left", **self.as_user(BEN))
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertEqual({path: path.stat().st_mtime_ns for path in results.rglob("*")}, before)
        self.assertEqual(self.run_one(FAKE, results, **self.as_user(ANN)).returncode, 0)
        self.assertEqual(statuses(results), ["ok", "ok"])

    def test_two_users_share_one_folder(self):
        results = self.folder_of(ANN, 0o2775)
        both = [self.start(LINGERING, results, **self.as_user(user)) for user in (ANN, BEN)]
        for process in both:
            _, said = process.communicate(timeout=PATIENCE)
            self.assertIn(process.returncode, (0, 75), said)
        self.assertEqual(statuses(results), ["ok"] * 8)
        self.assertEqual(left_behind(results), [])
        owners = {file.stat().st_uid for file in record_files(results)}
        self.assertEqual(owners, {ANN, BEN})

    def test_one_user_goes_on_where_the_other_died(self):
        results = self.folder_of(ANN, 0o2775)
        first = self.start(LINGERING, results, **self.as_user(ANN))
        self.until(first, lambda: len(record_files(results)) == 2)
        first.send_signal(signal.SIGKILL)
        first.wait()
        second = self.run_one(LINGERING, results, **self.as_user(BEN))
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertEqual(statuses(results), ["ok"] * 8)
        self.assertEqual(left_behind(results), [])

    def test_a_folder_that_its_group_may_not_write_is_refused_with_the_cure(self):
        results = self.folder_of(ANN, 0o2775)
        first = self.start(LINGERING, results, **self.as_user(ANN, umask=0o022))
        self.until(first, lambda: record_files(results))
        refused = self.run_one(LINGERING, results, **self.as_user(BEN))
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("umask 002", refused.stderr.splitlines()[-1])
        first.communicate(timeout=PATIENCE)
        self.assertEqual(first.returncode, 0)
        self.assertEqual(statuses(results), ["ok"] * 8)


if __name__ == "__main__":
    unittest.main(verbosity=2)
