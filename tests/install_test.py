#!/usr/bin/env python3
"""An installed program works outside the tree: from another folder, with no variable set.

  python3 tests/install_test.py BUILD
"""

import pathlib
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

    def test_it_brings_its_manual_and_completions(self):
        share = self.prefix / "share"
        for file, part in ((share / "man/man1/bnlab.1", ".TH BNLAB 1"),
                           (share / "bash-completion/completions/bnlab", "complete -o filenames -F _bnlab bnlab"),
                           (share / "zsh/site-functions/_bnlab", "#compdef bnlab"),
                           (share / "fish/vendor_completions.d/bnlab.fish", "complete -c bnlab")):
            self.assertIn(part, file.read_text(encoding="utf-8"), file)


if __name__ == "__main__":
    unittest.main()
