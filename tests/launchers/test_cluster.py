#!/usr/bin/env python3
"""Runs the files of scripts/cluster on this machine, with stand-ins for SLURM's commands.

  BNLAB_PROGRAM=build/release/bnlab python3 tests/launchers/test_cluster.py

What needs a program that is not installed (torchrun, GNU parallel) is skipped aloud.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(os.environ.get("BNLAB_PROGRAM", "build/release/bnlab"))
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cluster"
SPEC = {"question": "does the file work?", "claim": "it does", "task": {"name": "shapes", "size": [16, 16]},
        "model": {"name": "unet", "base": 4, "levels": 2}, "steps": 2, "towers": 2, "batch_per_tower": 2,
        "matrix": {"seed": [0, 1], "strategy": ["per_tower", "sync"]}}
# The second name comes when nobody may be reading any more.
STAND_INS = {"scontrol": "echo 127.0.0.1; sleep 0.2; echo another", "srun": 'shift; exec "$@"'}
ANNOUNCING = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC")
PATIENCE = 300  # seconds, for a busy machine


class Cluster(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "spec.json").write_text(json.dumps(SPEC))
        commands = self.folder / "bin"
        commands.mkdir()
        for name, text in STAND_INS.items():
            (commands / name).write_text(f"#!/bin/sh\n{text}\n")
            (commands / name).chmod(0o755)
        paths = [str(commands), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(ANNOUNCING)}
        self.environment |= {"BNLAB": PROGRAM, "PATH": ":".join(paths), "OMP_NUM_THREADS": "1"}

    def start(self, script, **variables):
        command = ["bash", str(SCRIPTS / script), "spec.json", "--device", "cpu", "--results", "results"]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment | variables, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def expect(self, process, codes=(0,)):
        said, _ = process.communicate(timeout=PATIENCE)
        self.assertIn(process.returncode, codes, said)

    def expect_all_done(self, launcher):
        records = [json.loads(file.read_text()) for file in (self.folder / "results" / "spec").glob("*/*/record.json")]
        self.assertEqual([record["outcome"]["status"] for record in records], ["ok"] * 4)
        self.assertEqual({record["placement"]["launcher"] for record in records}, {launcher})

    def test_all_are_scripts_of_bash(self):
        for script in SCRIPTS.iterdir():
            subprocess.run(["bash", "-n", str(script)], check=True)
            self.assertTrue(os.access(script, os.X_OK), script)

    def test_the_tasks_of_an_array_share_a_matrix(self):
        tasks = [self.start("array.sbatch", SLURM_JOB_ID=str(100 + task), SLURM_PROCID="0", SLURM_NTASKS="1",
                            SLURM_ARRAY_TASK_ID=str(task), SLURM_SUBMIT_DIR=str(self.folder)) for task in range(2)]
        for task in tasks:
            self.expect(task, codes=(0, 75))
        self.expect_all_done("bnlab")

    def test_torchrun_makes_one_world(self):
        if not shutil.which("torchrun", path=self.environment["PATH"]):
            self.skipTest("torchrun is not installed")
        self.expect(self.start("torchrun.sbatch", SLURM_JOB_ID=str(random.randrange(10**6)), SLURM_NNODES="1",
                               SLURM_JOB_NODELIST="n[1-2]", SLURM_SUBMIT_DIR=str(self.folder), RANKS_PER_NODE="2"))
        self.expect_all_done("torchrun")

    @unittest.skipUnless(shutil.which("parallel"), "GNU parallel is not installed")
    def test_parallel_starts_bnlab_on_each_machine(self):
        self.expect(self.start("parallel.sh", HOSTS=":"))
        self.expect_all_done("bnlab")


if __name__ == "__main__":
    unittest.main(verbosity=2)
