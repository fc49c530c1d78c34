#!/usr/bin/env python3
"""Runs bnlab as the ranks that other launchers start: by plain variables, by srun's, by mpirun and by torchrun.

  BNLAB_PROGRAM=build/release/bnlab python3 tests/launchers/test_launchers.py

A launcher that is not installed is skipped aloud. Ports are the system's choice.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(os.environ.get("BNLAB_PROGRAM", "build/release/bnlab"))
SPEC = {"question": "do ranks meet?", "claim": "they do", "task": {"name": "shapes", "size": [16, 16]},
        "model": {"name": "unet", "base": 4, "levels": 2}, "steps": 2, "towers": 2, "batch_per_tower": 2,
        "collective_timeout_s": 20}
ANNOUNCING = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC")
PATIENCE = 300  # seconds, for a busy machine


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def job_with_free_port():
    """A job id of SLURM by which bnlab takes a port that is free here."""
    while True:
        job = random.randrange(20000)
        with socket.socket() as listening:
            try:
                listening.bind(("127.0.0.1", 10000 + 7 * job % 20000))
                return job
            except OSError:
                continue


class Launchers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.spec = self.folder / "spec.json"
        self.clean = {name: value for name, value in os.environ.items() if not name.startswith(ANNOUNCING)}
        self.clean["OMP_NUM_THREADS"] = "1"

    def command(self, results, **more):
        more = more if "matrix" in more else more | {"strategy": "sync"}
        self.spec.write_text(json.dumps(SPEC | more))
        return [PROGRAM, "run", str(self.spec), "--device", "cpu", "--results", str(self.folder / results)]

    def records(self, results):
        return [json.loads(file.read_text()) for file in sorted((self.folder / results).glob("spec/*/*/record.json"))]

    def expect_done(self, results, launcher, runs=1):
        records = self.records(results)
        self.assertEqual(len(records), runs)
        for record in records:
            self.assertEqual(record["outcome"]["status"], "ok", record["outcome"])
            self.assertEqual(record["placement"]["ranks"], 2)
            self.assertEqual(record["placement"]["launcher"], launcher)
            self.assertEqual(record["environment"]["variables"].get("OMP_WAIT_POLICY"), "PASSIVE")

    def start(self, command, variables):
        rank = subprocess.Popen(command, env=self.clean | variables, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(rank.stdout.close)
        self.addCleanup(rank.wait)
        self.addCleanup(rank.kill)
        return rank

    def ends_well(self, processes):
        for process in processes:
            said, _ = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, said)

    def run_ok(self, command):
        done = subprocess.run(command, env=self.clean, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout)

    def plain_world(self, results, port, **spec):
        command = self.command(results, **spec)
        return [self.start(command, {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) for rank in range(2)]

    def test_ten_worlds_by_plain_variables_all_come_together(self):
        for world in range(5):  # of two runs each, so that every world has a successor on its store
            results = f"world{world}"
            self.ends_well(self.plain_world(results, free_port(), matrix={"strategy": ["per_tower", "sync"]}))
            self.expect_done(results, "environment", runs=2)

    def test_a_tuned_matrix_needs_the_results_of_rank_0_alone(self):
        keys = {"matrix": {"strategy": ["per_tower", "sync"]},
                "tune": {"grid": {"optimizer.lr": [0.01, 0.1]}, "seeds": [100], "metric": "mean_iou"}}
        port = str(free_port())
        self.ends_well([self.start(self.command(f"of_rank{rank}", **keys),
                                   {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in range(2)])
        self.expect_done("of_rank0", "environment", runs=2)
        tuning = json.loads((self.folder / "of_rank0/spec/tuning.json").read_text())
        self.assertEqual(len(tuning["scores"]), 4)
        self.assertFalse((self.folder / "of_rank1").exists())

    def test_the_variables_of_srun_are_enough(self):
        command = self.command("srun")
        job = job_with_free_port()
        ranks = [self.start(command, {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0",
                                      "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
                                      "SLURM_STEP_NODELIST": "n[1-4]", "SLURM_STEP_NUM_NODES": "1",
                                      "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0"}) for rank in range(2)]
        self.ends_well(ranks)
        self.expect_done("srun", "srun")

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed")
    def test_mpirun(self):
        exports = ["-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={free_port()}"]
        hydra = "mpich" in os.path.realpath(shutil.which("mpirun"))
        options = (["-genv", "MASTER_ADDR", "127.0.0.1", "-genv", "MASTER_PORT", str(free_port())] if hydra else
                   ["--allow-run-as-root", "--oversubscribe", *exports])
        self.run_ok(["mpirun", *options, "-n", "2", *self.command("mpi", matrix={"strategy": ["per_tower", "sync"]})])
        self.expect_done("mpi", "mpirun", runs=2)

    def test_srun(self):
        two = ["srun", "--immediate=10", "-n", "2", "--overcommit"]
        if not shutil.which("srun") or subprocess.run([*two, "true"], env=self.clean, capture_output=True).returncode != 0:
            self.skipTest("no srun here starts two tasks at once")
        self.run_ok([*two, *self.command("slurm", matrix={"strategy": ["per_tower", "sync"]})])
        self.expect_done("slurm", "srun", runs=2)

    def test_torchrun(self):
        torchrun = pathlib.Path(sys.executable).with_name("torchrun")
        if not torchrun.exists():
            self.skipTest("torchrun is not installed")
        self.run_ok([str(torchrun), "--standalone", "--nproc-per-node", "2", "--no-python",
                     *self.command("torchrun", matrix={"strategy": ["per_tower", "sync"]})])
        self.expect_done("torchrun", "torchrun", runs=2)

    def test_a_dead_rank_is_no_end_of_the_run_that_it_met(self):
        ranks = self.plain_world("dead", free_port(), steps=100000)
        deadline = time.monotonic() + PATIENCE
        while not any(file.stat().st_size for file in (self.folder / "dead").glob("spec/*/*/metrics.jsonl")):
            self.assertLess(time.monotonic(), deadline, "the run does not start")
            self.assertIsNone(ranks[0].poll(), "rank 0 has ended")
            time.sleep(0.1)
        ranks[1].send_signal(signal.SIGKILL)
        said, _ = ranks[0].communicate(timeout=PATIENCE)
        self.assertNotEqual(ranks[0].returncode, 0, said)
        [record] = self.records("dead")
        self.assertEqual(record["outcome"]["status"], "interrupted")
        self.assertIn("attempt 1 of 3", record["outcome"]["message"])
        self.assertNotIn("frame #", json.dumps(record))

    def test_ranks_that_never_meet_leave_no_record(self):
        self.clean["BNLAB_MEETING_TIMEOUT_S"] = "1"
        rank = self.start(self.command("alone"), {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                  "MASTER_PORT": str(free_port())})
        said, _ = rank.communicate(timeout=PATIENCE)
        self.assertEqual(rank.returncode, 1, said)
        self.assertEqual(self.records("alone"), [])
        self.assertNotIn("frame #", said.splitlines()[-1])

    def ranks_of(self, launcher):
        """The processes of the ranks that a launcher of its own has started, in their order."""
        ranks = {}
        for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(file.read_text().rsplit(")", 1)[1].split()[1])
                variables = dict(entry.split("=", 1) for entry in (file.parent / "environ").read_text().split("\0") if "=" in entry)
            except (OSError, IndexError):
                continue
            if parent == launcher and "RANK" in variables:
                ranks[int(variables["RANK"])] = int(file.parent.name)
        return [ranks[rank] for rank in sorted(ranks)]

    def test_the_record_of_a_stuck_rank_tells_what_every_rank_was_doing(self):
        command = self.command("stuck", steps=100000, log_every=1, collective_timeout_s=2)
        launcher = self.start([*command, "--ranks", "2"], {})
        deadline = time.monotonic() + PATIENCE
        while not any(file.read_text().count("\n") > 3 for file in (self.folder / "stuck").glob("spec/*/.*/metrics.jsonl")):
            self.assertLess(time.monotonic(), deadline, "the run does not train")
            time.sleep(0.1)
        os.kill(self.ranks_of(launcher.pid)[1], signal.SIGSTOP)
        launcher.communicate(timeout=PATIENCE)
        [record] = self.records("stuck")
        self.assertEqual(record["outcome"]["status"], "timeout", record["outcome"])
        self.assertRegex(record["outcome"]["message"],
                         r"; when it ended, rank 0 waits .* of step \d+ \(\w+\); rank 1 (is|waits) .* of step \d+|"
                         r"; when it ended, ranks 0 and 1 wait .* of step \d+ \(\w+\)$")

    def world_in_training(self, results):
        """Two ranks by plain variables that make steps."""
        ranks = self.plain_world(results, free_port(), steps=100000, log_every=1, collective_timeout_s=10)
        deadline = time.monotonic() + PATIENCE
        while not any(file.read_text().count("\n") > 3 for file in (self.folder / results).glob("spec/*/*/metrics.jsonl")):
            self.assertLess(time.monotonic(), deadline, "the run does not train")
            self.assertIsNone(ranks[0].poll(), "rank 0 has ended")
            time.sleep(0.1)
        return ranks

    def test_the_record_of_a_world_that_lost_a_rank_tells_who_answers(self):
        ranks = self.world_in_training("silent")
        ranks[1].send_signal(signal.SIGSTOP)
        ranks[0].communicate(timeout=PATIENCE)
        ranks[1].send_signal(signal.SIGKILL)
        [record] = self.records("silent")
        self.assertRegex(record["outcome"]["message"],
                         r"; when it ended, rank 0 waits .* of step \d+ \(\w+\); rank 1 does not answer$")

    def test_a_rank_ends_although_rank_0_and_its_store_are_stuck(self):
        ranks = self.world_in_training("stuck_store")
        ranks[0].send_signal(signal.SIGSTOP)
        said, _ = ranks[1].communicate(timeout=PATIENCE)
        ranks[0].send_signal(signal.SIGKILL)
        self.assertIn("this world is broken", said)

    def test_probe_and_trace_in_a_world_by_plain_variables(self):
        self.command("probed")
        for words in (["probe", self.spec, "--device", "cpu", "--seconds", "1", "--largest-mb", "0.01", "--out", "probe.json"],
                      ["trace", self.spec, "--steps", "2", "--after", "3", "--out", "trace.json"]):
            port = str(free_port())
            ranks = [self.start([PROGRAM, *map(str, words[:-1]), str(self.folder / words[-1])],
                                {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                                 "MASTER_PORT": port}) for rank in range(2)]
            self.ends_well(ranks)
        probe = json.loads((self.folder / "probe.json").read_text())
        self.assertEqual((probe["fabric"]["ranks"], probe["fabric"]["launcher"]), (2, "environment"))
        self.assertEqual({row["exchange"] for row in probe["collectives"]}, {"shared_memory", "sockets"})
        self.assertEqual({step["strategy"] for step in probe["steps"]}, {"sync"})
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        self.assertEqual({event["pid"] for event in events}, {0, 1})
        for rank in range(2):
            steps = [event for event in events if event["pid"] == rank and event.get("cat") == "step"]
            self.assertEqual([step["name"] for step in steps], ["step 4", "step 5"])

    def test_probe_starts_ranks_of_its_own_and_cost_predicts_by_it(self):
        self.command("probed")
        probe, spec = str(self.folder / "probe.json"), str(self.spec)
        self.run_ok([PROGRAM, "probe", spec, "--ranks", "2", "--device", "cpu", "--exchange", "sockets", "--seconds", "1",
                     "--largest-mb", "0.1", "--threads", "1", "--out", probe])
        done = subprocess.run([PROGRAM, "cost", spec, "--ranks", "2,8", "--probe", probe, "--seconds", "1", "--json"],
                              env=self.clean, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([row["ranks"] for row in rows], [2, 8])
        for row in rows:
            self.assertLessEqual(row["step_s"]["low"], row["step_s"]["mid"])
            self.assertLessEqual(row["step_s"]["mid"], row["step_s"]["high"])
        self.assertIsNotNone(rows[0]["measured_step_s"])
        self.assertIsNone(rows[1]["measured_step_s"])
        self.assertGreater(rows[1]["statistics_s"]["mid"], rows[0]["statistics_s"]["mid"])
        self.run_ok(self.command("timed", steps=12, warmup_steps=4) + ["--ranks", "2", "--threads", "1"])
        report = [PROGRAM, "report", spec, "--results", str(self.folder / "timed"), "--probe", probe, "--format"]
        done = subprocess.run(report + ["json"], env=self.clean, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        share = json.loads(done.stdout)["cells"][0]["rows"][0]["roofline_share"]["mean"]
        self.assertTrue(0 < share < 1, share)  # a step of a tiny network, most of it the work of the host
        done = subprocess.run(report + ["csv"], env=self.clean, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("--format json", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
