#!/usr/bin/env python3
"""scripts/gpu_check.sh from its first part to its archive on simulated GPUs, and that it sees what is wrong.

  python3 tests/simgpu/test_gpu_check.py
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time
import unittest
from types import SimpleNamespace
from unittest import mock

from runs import PATIENCE, PROGRAM, SimulatedRuns

REPOSITORY = pathlib.Path(__file__).parents[2]
SCRIPT = REPOSITORY / "scripts/gpu_check.sh"
PARTS = ["first", "two", "tests", "bandwidth", "strategies", "bench", "trace", "verify", "sanitize", "lost", "ddp", "tradeoff"]
BROKEN = "echo 'planted: this program fails'; exit 1"
OTHER_NUMBERS = f'case " $* " in *" --ranks 2 "*) set -- "$@" optimizer.lr=0.051 ;; esac; exec {PROGRAM} "$@"'

sys.path += [str(REPOSITORY / "scripts"), str(REPOSITORY / "tests/bench")]
import rivals  # noqa: E402  (below the path that it is found in)
import rivals_bench  # noqa: E402

# Python, whose torch sees the simulated GPUs where two ranks train beside ours.
LIBRARIES = " ".join(map(str, pathlib.Path(PROGRAM).parent.glob("lib/lib*.so*")))
PYTHON = f"""#!/bin/bash
case "$*" in *rivals_bench.py*" --ranks 2 "*) export LD_PRELOAD="{LIBRARIES}" ;; esac
exec {sys.executable} "$@"
"""
CLOCKS = """#!/bin/bash
case "$*" in
  *uuid*--format=csv,noheader*) echo GPU-0123abcd-4567 ;;
  *driver_version*--format=csv,noheader*) echo 580.65 ;;
  *process_name*--format=csv,noheader*) echo somebody-else ;;
  *" -l 1"*) printf '%s\\n' 'now, 0, 210, 1593, 30, 70, 0, 1' 'now, 0, 1755, 2619, 61, 690, 97, 4' 'now, 0, 1980, 2619, 59, 650, 99, 0'; sleep 100 ;;
  *) echo "told of: $*" ;;
esac
"""
SANITIZER = """#!/bin/bash
[ "$1" != --help ] || exit 0
echo '========= ERROR SUMMARY: 0 errors'; printf '[       OK ] %s\\n' "${@: -1}"
"""


def measurement(kernel, share, bar):
    return json.dumps({"site": "unet top", "shape": [8, 16, 96, 128], "kernel": kernel, "dtype": "Float", "layout": "contiguous",
                       "megabytes": 6.0, "ms": 0.01, "GB_per_s": 3000 * share, "copy_GB_per_s": 3000, "share_of_copy": share,
                       "bar": bar, "verdict": "ok" if share >= bar else "slow"})


def a_rank_that_hangs(rank, ranks, port, device, threads, connection):
    """Answers as a rank of PyTorch's does, without torch, but for the rival "hangs"."""
    names = []
    while True:
        asked, *what = connection.recv()
        if asked == "end":
            return
        if asked == "clear":
            connection.send(device)
        elif asked == "add":
            if what[0] == "hangs":
                time.sleep(PATIENCE)
            names.append(what[0])
            connection.send(("", 100))
        else:
            connection.send({name: [1.0 + rank] for name in names})


class GpuCheck(SimulatedRuns):
    def check(self, *parts, devices=2, programs=os.path.dirname(PROGRAM), path=""):
        """The exit status, the rows as (part, verdict, text), the lines of stdout, and what was said beside."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SIMGPU_", "NCCL_", "BNLAB_"))}
        own = {"SIMGPU_DEVICES": str(devices), "BNLAB_PYTHON": str(self.python()), "BNLAB_GPU_CHECK_PROGRAMS": str(programs),
               "BNLAB_GPU_RESULTS": str(self.folder / "results"), "PATH": f"{path}:{os.environ['PATH']}" if path else
               os.environ["PATH"]}
        done = subprocess.run([SCRIPT, *parts], env=clean | own, text=True, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE)
        lines = done.stdout.splitlines()
        self.assertTrue(lines, done.stderr)
        page = pathlib.Path(lines[-1]).read_text()
        rows = [line.split(None, 2) for line in page.partition("\n\n")[2].splitlines()]
        self.assertTrue(rows, page)
        self.assertTrue(all(len(row) == 3 for row in rows), page)
        return done.returncode, rows, lines, done.stderr

    def python(self):
        program = self.folder / "python"
        program.write_text(PYTHON)
        program.chmod(0o755)
        return program

    def stand_ins(self, **texts):
        """A folder of programs with these texts."""
        folder = self.folder / "programs"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            program = folder / name.replace("_sanitizer", "-sanitizer").replace("nvidia_", "nvidia-")
            program.write_text(text)
            program.chmod(0o755)
        return folder

    def with_program(self, last_words):
        """A folder of programs whose bnlab sees GPUs and does else what these words say."""
        return self.stand_ins(bnlab=f'#!/bin/bash\n[ "$1" != doctor ] || exec {PROGRAM} doctor\n{last_words}\n')

    def told_by(self, archive):
        subprocess.run(["tar", "-C", self.folder, "-xf", archive], check=True)
        done = subprocess.run([PROGRAM, "check", self.folder / pathlib.Path(archive).stem], text=True, capture_output=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_comes_to_its_end_on_two_gpus(self):
        status, rows, lines, said = self.check()
        self.assertEqual(status, 0, lines)
        self.assertEqual(list(dict.fromkeys(part for part, _, _ in rows)), PARTS)
        for part, verdict, text in rows:
            self.assertIn(verdict, ("ok", "skipped"), text)
            if verdict == "skipped":
                self.assertRegex(text, r"\w+ \w+ \w+", part)
        done = {part: [text for name, verdict, text in rows if (name, verdict) == (part, "ok")] for part in PARTS}
        self.assertEqual([len(done[part]) for part in PARTS], [4, 7, 2, 1, 0, 8, 1, 1, 0, 2, 4, 2], rows)
        for text in done["first"] + done["two"][:-1]:
            self.assertLess(float(re.search(r"differ by (\S+) at most", text)[1]), 1e-8)
        for text in done["bench"]:
            self.assertRegex(text, r"(unet|pspnet), .* cuda_graph (on|off): .* ms; eager BatchNorm2d / ours \d.*PyTorch on cpu")
        for text in done["ddp"]:
            self.assertRegex(text, r"(per_tower.*DDP BatchNorm2d|sync.*DDP SyncBatchNorm) / ours \d.*PyTorch on cuda")
        self.assertRegex(done["trace"][0], r"pspnet: .* ms a step under the profiler, \d+ operators, nothing runs in \S+ %")
        table = pathlib.Path(lines[-1])
        self.assertIn("mean nothing", table.read_text())
        with tarfile.open(lines[-2]) as archive:
            names = archive.getnames()
        for name in ("table.txt", "check.json", "machine.txt", "first.log", "tradeoff.txt", "MANIFEST.sha256"):
            self.assertIn(f"{table.parent.name}/{name}", names)
        self.assertTrue(any(name.endswith("/record.json") for name in names))
        self.assertFalse(any(name.endswith(".safetensors") for name in names))
        told = self.told_by(lines[-2])
        self.assertIn("mean nothing", told)
        self.assertRegex(told, r"(?m)^[1-9]\d* verdicts ok$")
        self.assertRegex(told, r"[1-9]\d* records, 0 problems")
        self.assertNotIn("stale", told)

    def test_a_program_that_fails_is_told(self):
        other = self.folder / "results/nvidia-h100-x1-here-0123456789ab"
        other.mkdir(parents=True)
        (other / "table.txt").write_text("of another machine\n")
        parts = [part for part in PARTS if part != "ddp"]  # which takes as long as bench and does the same
        status, rows, lines, said = self.check(*parts, programs=self.with_program(BROKEN))
        self.assertEqual(status, 1)
        failed = collections.Counter(part for part, verdict, _ in rows if verdict == "FAILED")
        self.assertEqual(failed, {"first": 4, "two": 7, "bench": 2, "trace": 1, "verify": 1, "lost": 2, "tradeoff": 2}, rows)
        self.assertIn("planted: this program fails", rows[0][2])
        self.assertIn(f"stay as they are: {other}", said)
        self.assertEqual((other / "table.txt").read_text(), "of another machine\n")
        self.assertEqual(len(re.findall(r"(?m)^first +FAILED ", self.told_by(lines[-2]))), 4)

    def test_other_numbers_of_two_ranks_are_told(self):
        status, rows, _, _ = self.check("first", programs=self.with_program(OTHER_NUMBERS))
        self.assertEqual(status, 1)
        self.assertEqual([verdict for _, verdict, _ in rows], ["ok", "ok", "ok", "FAILED"], rows)
        self.assertIn("more than 1e-08", rows[3][2])

    def a_machine(self, **more):
        """Stand-ins for programs that see GPUs whose times count."""
        lines = [measurement("moments", 0.45, 0.4), measurement("normalise", 0.5, 0.65)]
        return self.stand_ins(
            bnlab=f'#!/bin/bash\n[ "$1" = doctor ] || exit 1\n{PROGRAM} doctor | sed "s/Simulated GPU/NVIDIA H100/g"\n',
            bandwidth_bench="#!/bin/bash\nprintf '%s\\n' '" + "' '".join(lines) + "'\n", **more)

    def test_a_slot_of_minutes_drops_parts_aloud_and_two_builds_take_turns(self):
        programs = self.a_machine()
        status, rows, _, _ = self.check("--minutes", "1", "--against", str(programs), "ddp", "bandwidth", programs=programs)
        self.assertEqual(status, 0, rows)
        self.assertEqual([row[:2] for row in rows], [["bandwidth", "slow"], ["ddp", "skipped"]])
        self.assertIn("moments 45 % x1.00, normalise 50 % (65 asked) x1.00 of a copy's", rows[0][2])
        self.assertIn("no time left", rows[1][2])

    def test_a_machine_with_tools_is_looked_at(self):
        """Parts that are skipped on simulated GPUs, with stand-ins for the tools of a machine that has one."""
        programs = self.a_machine(torch_tests="#!/bin/bash\n", compute_sanitizer=SANITIZER, nvidia_smi=CLOCKS)
        status, rows, said, _ = self.check("bandwidth", "sanitize", devices=1, programs=programs, path=programs)
        self.assertEqual(status, 0, rows)
        self.assertEqual([verdict for _, verdict, _ in rows], ["slow", "ok", "ok", "ok", "ok", "ok"], rows)
        self.assertIn("moments 45 %, normalise 50 % (65 asked) of a copy's 3000 GB/s", rows[0][2])
        self.assertIn("1755 to 1980 MHz, at most 61 degrees", rows[1][2])
        self.assertIn("0 errors, 1 tests", rows[2][2])
        page = pathlib.Path(said[-1]).read_text()
        self.assertRegex(page, r"driver +580.65\nusers +somebody-else\n")
        self.assertIn("nvidia-h100-x1-0123abcd-", said[-1])
        self.assertIn("-q -d CLOCK", (pathlib.Path(said[-1]).parent / "machine.txt").read_text())
        self.assertRegex(self.told_by(said[-2]), r"bandwidth +slow +unet top, 8 x 16 x 96 x 128")

    def test_the_folder_of_programs_may_have_a_space_in_its_name(self):
        self.with_program(BROKEN)
        programs = self.stand_ins(bandwidth_bench="#!/bin/bash\necho '{}'\n").rename(self.folder / "own programs")
        status, rows, _, _ = self.check("bandwidth", devices=1, programs=programs)
        self.assertEqual((status, [row[1] for row in rows]), (0, ["ok"]), rows)
        self.assertIn("1 measurements", rows[0][2])

    def test_one_gpu_skips_what_needs_two(self):
        status, rows, _, _ = self.check("lost", "ddp", "trace", devices=1)
        self.assertEqual(status, 0)
        self.assertEqual([verdict for _, verdict, _ in rows], ["ok", "skipped", "skipped", "skipped"], rows)
        for _, _, text in rows[1:]:
            self.assertIn("this needs two", text)

    def test_no_gpu_is_an_error(self):
        done = subprocess.run([SCRIPT, "first"], text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE,
                              env=os.environ | {"SIMGPU_DEVICES": "0", "BNLAB_GPU_CHECK_PROGRAMS": os.path.dirname(PROGRAM)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("sees no GPU", done.stderr)


class GpuSteps(SimulatedRuns):
    """How steps beside PyTorch's are judged."""

    def judged(self, graph=True, rival_ms=30.0, parameters=100, replayed=80, trial=False, refused=()):
        result = {"parameters": 100, "cuda_graph": {"replayed_steps": replayed, "why_not": "planted"}}
        ours = SimpleNamespace(times={("sync", graph): [9.0, 10.0, 30.0]},
                               records={("sync", graph): {"outcome": {"status": "ok"}, "result": result}})
        options = SimpleNamespace(ranks=2, device="cuda", trial=trial)
        others = SimpleNamespace(parameters=parameters, refused=dict(refused), device="cuda")
        theirs = {name: [rival_ms] for name in rivals_bench.TOGETHER["sync"]}
        return rivals_bench.row(options, rivals_bench.CASES["unet:float32"], ("sync", graph), ours, others, theirs)

    def test_a_step_is_held_to_its_bar(self):
        self.assertEqual(self.judged()[0], "ok")
        verdict, said = self.judged(rival_ms=14.0)
        self.assertEqual(verdict, "slow")
        self.assertIn("10.00 ms; DDP SyncBatchNorm / ours 1.40 (1.5 asked)", said)
        self.assertEqual(self.judged(rival_ms=14.0, graph=False)[0], "ok")
        self.assertEqual(self.judged(rival_ms=9.0, graph=False)[0], "slow")
        self.assertEqual(self.judged(rival_ms=1.0, trial=True)[0], "ok")

    def test_another_network_and_steps_that_were_not_replayed_fail(self):
        self.assertEqual(self.judged(parameters=101)[0], "FAILED")
        verdict, said = self.judged(replayed=0)
        self.assertEqual(verdict, "FAILED")
        self.assertIn("no step was replayed: planted", said)
        self.assertEqual(self.judged(replayed=0, graph=False)[0], "ok")

    def test_a_rival_that_hangs_is_left_out_and_the_slowest_rank_counts(self):
        with mock.patch.object(rivals, "serve", a_rank_that_hangs):
            found = rivals.Rivals("cpu", 2, limit=5)
            try:
                found.prepare(["first", "hangs", "last"], {})
                self.assertEqual(found.refused, {"hangs": "rank 0 of PyTorch's said nothing in 5 s"})
                self.assertEqual(found.measure(1), {"first": [2.0], "last": [2.0]})
            finally:
                found.end()

    def test_a_rival_that_cannot_run_is_said(self):
        self.assertIn("of apex cannot run", self.judged(refused={"DDP SyncBatchNorm of apex": "no apex"}.items())[1])


if __name__ == "__main__":
    unittest.main()
