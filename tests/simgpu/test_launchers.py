#!/usr/bin/env python3
"""Ranks that another launcher starts: whatever it lets them see, each takes a GPU of its own, and none the CPU in silence.

  python3 tests/simgpu/test_launchers.py
"""

import os
import subprocess
import unittest

from runs import PATIENCE, PIPES, SimulatedRuns, world

KEYS = {"strategy": "sync", "seed": 0}


# What two ranks see of four GPUs (None: all), and the number of each one's own among those that it sees.
ENOUGH = (([None, None], (0, 1)), (["0", "1"], (0, 0)), (["2", "2,0"], (0, 1)), (["2,0", "2"], (1, 0)), (["0,1", "2,3"], (0, 0)),
          (["3,1", "3,1"], (0, 1)))


def started(command, visible, variables=None):
    """The exit codes and what was said by ranks that see these of four GPUs."""
    ranks = []
    for seen, member in zip(visible, world(len(visible))):
        own = member | {"SIMGPU_DEVICES": "4"} | (variables or {}) | ({} if seen is None else {"CUDA_VISIBLE_DEVICES": seen})
        ranks.append(subprocess.Popen(command, env=os.environ | own, **PIPES))
    said = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
    return [rank.returncode for rank in ranks], "\n".join(said)


class Launchers(SimulatedRuns):
    def launched(self, visible, more=(), variables=None):
        """The exit codes, what was said, and the results folder."""
        command, results = self.command(KEYS, *more)
        return *started(command, visible, variables), results

    def test_every_rank_has_a_gpu_of_its_own(self):
        on_cpu = self.train(KEYS, device="cpu")
        for visible, _ in ENOUGH:
            with self.subTest(visible):
                codes, said, results = self.launched(visible)
                self.assertEqual(codes, [0, 0], said)
                runs = self.runs_below(results)
                self.expect_close(runs, on_cpu, 1e-10)
                (run,) = runs.values()
                self.assertEqual(run.record["placement"]["device"], "cuda")
                self.assertNotIn("shared", " ".join(run.record["notes"]))

    def test_ranks_share_a_gpu_where_the_user_allows_it(self):
        shared = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "SIMGPU_NCCL_VERSION": "23000"}
        codes, said, results = self.launched(["1", "1"], variables=shared)
        self.assertEqual(codes, [0, 0], said)
        runs = self.runs_below(results)
        self.expect_close(runs, self.train(KEYS, device="cpu"), 1e-10)
        (run,) = runs.values()
        self.assertIn("2 ranks shared 1 GPU", " ".join(run.record["notes"]))

    def test_the_cpu_is_used_where_it_is_asked_for(self):
        codes, said, results = self.launched(["0", ""], ["--device", "cpu"])
        self.assertEqual(codes, [0, 0], said)
        (run,) = self.runs_below(results).values()
        self.assertEqual(run.record["placement"]["device"], "cpu")

    def test_too_few_gpus_are_told(self):
        codes, said, _ = self.launched(["1", "1"])
        self.assertNotIn(0, codes)
        self.assertIn("the 2 ranks of this world see 1 GPU", said)
        codes, said, _ = self.launched(["0", ""])
        self.assertNotIn(0, codes)
        self.assertIn("rank 1 of this world sees no GPU, and other ranks do", said)


class OwnProgram(SimulatedRuns):
    PROGRAM = os.path.abspath(os.environ.get("BNLAB_OWN_PROGRAM", "build/release/tests/simgpu/own_program"))

    def test_every_rank_has_a_gpu_of_its_own(self):
        for visible, gpus in ENOUGH:
            with self.subTest(visible):
                codes, said = started([self.PROGRAM], visible)
                self.assertEqual(codes, [0, 0], said)
                for rank, (gpu, normalised) in enumerate(zip(gpus, (-1, 1))):
                    self.assertEqual(said.count(f"rank {rank} on cuda:{gpu}: {normalised}\n"), 2, said)  # it joins twice

    def test_too_few_gpus_are_told(self):
        codes, said = started([self.PROGRAM], ["1", "1"])
        self.assertEqual(codes, [1, 1], said)
        self.assertIn("2 ranks need a GPU each, and find 1; start fewer ranks", said)
        codes, said = started([self.PROGRAM], ["0", ""])
        self.assertEqual(codes, [1, 1], said)
        self.assertIn("rank 1 of 2 sees no GPU, or joins for the CPU where another joins for a GPU", said)

    def test_a_program_joins_on_a_store_that_holds_what_one_before_has_left(self):
        try:
            from torch.distributed import TCPStore  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("this Python has no torch, whose store torchrun keeps over restarts")
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        torchrun = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(store.port)}
        for visible in ([None, None], ["", ""]):  # the second time on CPUs
            for _ in range(2):
                codes, said = started([self.PROGRAM], visible, torchrun)
                self.assertEqual(codes, [0, 0], said)


if __name__ == "__main__":
    unittest.main()
