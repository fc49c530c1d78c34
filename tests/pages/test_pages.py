#!/usr/bin/env python3
"""The pages of uses: short enough to be read, and what they say to paste works. (embed/test_embedding.py builds the program of
harness/embed/own_network.md.)

  BNLAB_PROGRAM=build/release/bnlab BNLAB_OF_PAGE=build/release/tests/pages/bnlab_of_page python3 tests/pages/test_pages.py
"""

import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from page import ROOT, block

PROGRAM, OF_PAGE = os.environ["BNLAB_PROGRAM"], os.environ["BNLAB_OF_PAGE"]
PAGES = ["harness/embed/own_network.md", "harness/models/own_pytorch_network.md", "experiments/own_paper.md",
         "experiments/in_pytorch.md", "scripts/vectors/own_implementation.md", "strategies/own_strategy.md",
         "strategies/own_layer.md", "strategies/own_pass.md"]


def said(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@functools.cache
def help_of(command):
    return said(PROGRAM, command, "--help")


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def spec(self, name, text):
        """In a copy of experiments/, as a reader would write it there."""
        shutil.copytree(ROOT / "experiments", self.folder / "experiments", ignore=shutil.ignore_patterns("data"))
        (self.folder / "experiments" / name).write_text(text, encoding="utf-8")
        return self.folder / "experiments" / name

    def test_they_are_short_and_named_in_the_readme_of_the_project_or_their_folder(self):
        for page in map(pathlib.PurePosixPath, PAGES):
            self.assertLessEqual(len((ROOT / page).read_text(encoding="utf-8").splitlines()), 80, page)
            self.assertTrue(f"({page})" in (ROOT / "README.md").read_text(encoding="utf-8") or
                            f"({page.name})" in (ROOT / page.parent / "README.md").read_text(encoding="utf-8"), page)

    def test_the_readme_s_spec(self):
        planned = said(PROGRAM, "plan", self.spec("mine.json", block("README.md", '{"task"').partition("\n\n")[0]), cwd=self.folder)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertIn("36 of 36 runs to start", planned.stdout)
        self.assertIn("fewest values per channel in a tower's statistics: ", planned.stdout)

    def test_the_questions_commands_work_as_far_as_they_only_look(self):
        commands = re.findall(r"^    bnlab (.*)$", (ROOT / "results/questions.md").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertGreaterEqual(len(commands), 25)
        for command in commands:
            words = ["plan" if word == "run" else word for word in shlex.split(command)]
            if words[0] == "report":  # of what is committed, which takes a while
                self.assertTrue((ROOT / "results" / words[1] / "README.md").exists(), command)
                continue
            if words[0] in ("explain", "plan"):
                done = said(PROGRAM, *words, cwd=ROOT)
                self.assertEqual(done.returncode, 0, command + done.stderr)
            else:  # trains, writes or wants a run
                self.has_help(words, command)

    def test_the_page_of_commands_has_their_names_and_options(self):
        page = (ROOT / "experiments/commands.md").read_text(encoding="utf-8")
        commands = re.findall(r"^    bnlab (.*?)(?:  |$)", page, re.MULTILINE)
        self.assertGreaterEqual(len(commands), 20)
        for command in commands:
            self.has_help(re.split(r" && |; | ", command.partition(" SPEC steps")[0]), command)

    def has_help(self, words, command):
        told = help_of(words[0])
        self.assertEqual(told.returncode, 0, command)
        self.assertEqual([word for word in words if word.startswith("--") and word not in told.stdout], [], command)

    def test_a_strategy_of_ones_own(self):
        about = said(OF_PAGE, "explain", "neighbours")
        self.assertEqual(about.returncode, 0, about.stderr)
        self.assertIn("as sync(group_size=of)", about.stdout)
        verified = said(OF_PAGE, "verify", "neighbours", cwd=self.folder)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        spec = self.spec("mine.json", block("strategies/own_strategy.md", '{"extends": "overviews/quickstart.json"'))
        done = said(OF_PAGE, "run", spec, "task=shapes", "steps=2", "seed=0", "strategy=neighbours", "towers=3", cwd=self.folder)
        self.assertIn("expected a divisor of the 3 towers", done.stderr + done.stdout)
        planned = said(OF_PAGE, "plan", spec, cwd=self.folder)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertIn("neighbours", planned.stdout)

    def test_a_layer_of_ones_own(self):
        verified = said(OF_PAGE, "verify", "channel_rms", cwd=self.folder)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        spec = self.spec("mine.json", '{"extends": "overviews/quickstart.json", "contrasts": []}')
        done = said(OF_PAGE, "run", spec, "task=shapes", "steps=2", "matrix.seed=[0]",
                    'matrix.strategy=["channel_rms", {"name": "channel_rms", "eps": 0.1}]', "--device", "cpu", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("channel_rms(eps=0.1)", done.stdout)

    def test_a_momentum_that_changes(self):
        """The running mean is the mean of the first steps' means, then forgets by `momentum`."""
        steps = [{"mode": "train", "towers": [{"input": {"shape": [2, 1], "data": [mean - 1, mean + 1]}}]} for mean in (2, 4, 9, 1)]
        case = self.folder / "case.json"
        case.write_text(json.dumps({"strategy": {"name": "settling", "momentum": 0.5}, "dtype": "float64", "steps": steps}), encoding="utf-8")
        done = said(OF_PAGE, "layer", case)
        self.assertEqual(done.returncode, 0, done.stderr)
        means = [step["running_mean"] for step in json.loads(done.stdout)["steps"]]
        self.assertEqual(means, [[2], [3], [6], [3.5]])

    def test_a_spec_of_a_paper(self):
        spec = self.spec("paper.json", block("experiments/own_paper.md", '{"question"'))
        planned = said(PROGRAM, "plan", spec, cwd=self.folder)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertIn("24 of 24 runs to start", planned.stdout)
        done = said(PROGRAM, "run", spec, "steps=2", "seed=0", "optimizer.warmup_steps=1", "--device", "cpu", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_implementation_of_ones_own(self):
        page = "scripts/vectors/own_implementation.md"
        try:
            import numpy  # pylint: disable=import-outside-toplevel,unused-import
        except ImportError:
            self.skipTest("no numpy")
        (self.folder / "mine.py").write_text(block(page, "class Mine"), encoding="utf-8")
        made = said(PROGRAM, "vectors", "--out", self.folder / "vectors")
        self.assertIn(re.search(r"writes (\d+) cases", (ROOT / page).read_text(encoding="utf-8")).group(1), made.stdout)
        judged = said(sys.executable, ROOT / "scripts/vectors/judge.py", "vectors", "mine.py:Mine", cwd=self.folder)
        passed = re.search(r"(\d+) of the (\d+) that this one", (ROOT / page).read_text(encoding="utf-8"))
        self.assertIn(f"{passed.group(1)} of {passed.group(2)} passed; fails: all_empty", judged.stdout, judged.stderr)
        nobody = said(sys.executable, ROOT / "scripts/vectors/judge.py", "vectors", "mine.py:Yours", cwd=self.folder)
        self.assertIn("mine.py has no class Yours", nobody.stderr)


if __name__ == "__main__":
    unittest.main()
