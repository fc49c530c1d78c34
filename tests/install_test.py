#!/usr/bin/env python3
"""An installed program works outside the tree: from another folder, with no variable set. What of a build asks for CUDA.

  python3 tests/install_test.py BUILD
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop())
OF_MORE = ("layer", "verify", "vectors", "panel", "probe", "cost", "trace")


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.prefix = pathlib.Path(folder.name)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix], check=True, capture_output=True)

    def bnlab(self, *words):
        return subprocess.run([self.prefix / "bin" / "bnlab", *words], cwd=self.prefix, env={}, capture_output=True, text=True)

    def test_the_program_lists_strategies_and_runs_a_spec(self):
        self.assertIn("sync", self.bnlab("list", "strategies").stdout)
        self.assertEqual(self.bnlab("init", "mine.json").returncode, 0)
        done = self.bnlab("run", "mine.json", "steps=2", "seed=0", "strategy=sync", "--device", "cpu", "--ranks", "2")
        self.assertEqual(done.returncode, 0, done.stderr)

    def run_nuclei(self):
        spec = {"task": {"name": "nuclei", "train": 8, "test": 4}, "model": {"name": "unet", "base": 4}, "strategy": "sync",
                "batch_per_tower": 2, "steps": 1}
        (self.prefix / "nuclei.json").write_text(json.dumps(spec), encoding="utf-8")
        return self.bnlab("run", "nuclei.json", "--redo", "all", "--device", "cpu", "--ranks", "1")

    def test_it_brings_the_nuclei_and_reads_no_others(self):
        done = self.run_nuclei()
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.prefix / "share/bnlab/nuclei"
        self.assertTrue((folder / "README.md").exists(), "with their licence")
        shutil.move(folder, self.prefix / "nuclei")
        self.addCleanup(lambda: (self.prefix / "nuclei").exists() and shutil.move(self.prefix / "nuclei", folder))
        missing = self.run_nuclei()
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn(f"task nuclei: its images are missing; looked for index.csv in {folder}; install bnlab again",
                      missing.stderr)
        elsewhere = self.bnlab("run", "nuclei.json", "--redo", "all", "--data", ".", "--device", "cpu", "--ranks", "1")
        self.assertEqual(elsewhere.returncode, 0, elsewhere.stderr)

    def test_the_commands_of_the_second_program_are_handed_over(self):
        listed = self.bnlab("--help").stdout
        for command in OF_MORE:
            for words in ([command, "--help"], ["help", command]):
                helped = self.bnlab(*words)
                self.assertEqual((helped.returncode, helped.stderr), (0, ""), words)
                self.assertIn(f"bnlab {command} ", helped.stdout)
            self.assertIn(f"\n  {command} ", listed)
        self.assertEqual(self.bnlab("layer", "missing.json").returncode, 2)

    def test_without_the_second_program_its_commands_say_how_it_is_built(self):
        listed, more = self.bnlab("--help").stdout, self.prefix / "bin/bnlab-more"
        more.rename(self.prefix / "gone")
        self.addCleanup(os.rename, self.prefix / "gone", more)
        without = " ".join(self.bnlab("--help").stdout.split())
        missing = re.search(r"Not built here: (.*); scripts/build.sh release bnlab-more builds it in about two minutes[.] ", without)
        self.assertEqual(set(missing[1].split(", ")), set(OF_MORE))
        self.assertEqual(without.replace(missing[0], ""), " ".join(listed.split()))
        for command in OF_MORE:
            refused = self.bnlab(command, "--json")
            self.assertEqual((refused.returncode, refused.stdout), (3, ""))
            self.assertRegex(refused.stderr, f"^bnlab: {command} .*; scripts/build.sh release bnlab-more builds it in .* minutes\n$")
        self.assertIn(".SS verify", self.bnlab("man").stdout)

    def test_it_brings_its_manual_and_completions(self):
        share = self.prefix / "share"
        for file, part in ((share / "man/man1/bnlab.1", ".TH BNLAB 1"),
                           (share / "man/man1/bnlab.1", "delay\\-us"),  # of a command of the second program
                           (share / "bash-completion/completions/bnlab", "complete -o filenames -F _bnlab bnlab"),
                           (share / "zsh/site-functions/_bnlab", "#compdef bnlab"),
                           (share / "fish/vendor_completions.d/bnlab.fish", "complete -c bnlab")):
            self.assertIn(part, file.read_text(encoding="utf-8"), file)


class Objects(unittest.TestCase):
    """A build that gets the CUDA kernels compiles nothing else again than what is compiled for CUDA."""

    def setUp(self):
        self.kernels = "BNLAB_CUDA:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
        commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
        self.commands = {re.search(r" -o (\S+)", entry["command"])[1]: entry["command"] for entry in commands}

    def test_few_ask_for_cuda(self):
        asks = re.compile(r"-D(USE_C10D_NCCL|BNLAB_WITH_CUDA)\b|-(I|isystem) ?\S*(cuda|nccl)")
        found = [name for name, command in self.commands.items()
                 if not name.startswith("tests/") and not name.endswith(".cu.o") and asks.search(command)]
        self.assertEqual(bool(found), self.kernels)
        unity = [name for name in found if "/unity_" in name]
        self.assertLessEqual(len(found), 8 if unity else 16, found)
        self.assertFalse([name for name in found if not re.search("harness_gpus|cpu_kernels", name)])

    def test_without_kernels_the_programs_need_nothing_of_cuda(self):
        for program in ("bnlab", "bnlab-more", "libbnlab.so"):
            dynamic = subprocess.run(["readelf", "-d", BUILD / program], check=True, capture_output=True, text=True).stdout
            needed = re.findall(r"NEEDED.*\[(.*?)\.so", dynamic)
            self.assertIn("libtorch_cpu", needed)
            self.assertNotIn("libtorch", needed, "which needs libtorch_cuda.so, too")
            self.assertEqual({"libtorch_cuda", "libc10_cuda"} <= set(needed), self.kernels, program)


if __name__ == "__main__":
    unittest.main()
