#!/usr/bin/env python3
"""An installed program works outside the tree: from another folder, with no variable set.

  python3 tests/install_test.py BUILD
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop())


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

    def test_it_brings_its_manual_and_completions(self):
        share = self.prefix / "share"
        for file, part in ((share / "man/man1/bnlab.1", ".TH BNLAB 1"),
                           (share / "bash-completion/completions/bnlab", "complete -o filenames -F _bnlab bnlab"),
                           (share / "zsh/site-functions/_bnlab", "#compdef bnlab"),
                           (share / "fish/vendor_completions.d/bnlab.fish", "complete -c bnlab")):
            self.assertIn(part, file.read_text(encoding="utf-8"), file)


if __name__ == "__main__":
    unittest.main()
