#!/usr/bin/env python3
"""experiments/sources.md: every line of a spec that it gives is accepted in the spec that it shows.

  BNLAB_PROGRAM=build/release/bnlab python3 tests/pages/test_sources.py            plan them
  BNLAB_PROGRAM=build/release/bnlab python3 tests/pages/test_sources.py trained    train three steps of each
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from page import ROOT, block

PAGE = "experiments/sources.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
SPEC = json.loads(block(PAGE, '{"task"'))
LINES = [json.loads(f"{{{line}}}") for line in sorted(set(re.findall(r'`(".*?)`', TEXT)))]
STRATEGIES = [line["strategy"] for line in LINES if line.keys() == {"strategy"}]  # together, which takes less time
SPECS = [SPEC | {"matrix": {"strategy": STRATEGIES}}, *(SPEC | line for line in LINES if line.keys() != {"strategy"})]
PROGRAM, TRAINED = os.environ["BNLAB_PROGRAM"], sys.argv[1:] == ["trained"]


def rows():
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and line.startswith("|") and not line.startswith(("|---", "| what ")):
            yield cells


class Sources(unittest.TestCase):
    def check(self, command, *words):
        """The program accepts every line of the page."""
        for spec in SPECS:
            with self.subTest(spec), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "mine.json"
                file.write_text(json.dumps(spec), encoding="utf-8")
                done = subprocess.run([PROGRAM, command, file, "--results", folder, *words], cwd=ROOT, capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_row_has_a_line_or_a_link_or_says_what_is_missing(self):
        self.assertGreaterEqual(len([*rows()]), 69)
        for what, second, third in rows():
            is_claim = third == "-" or third.startswith(("[", '`"'))
            is_system = second.startswith('`"') and re.match("yes|in part: ", third) or second == "missing"
            self.assertTrue(is_system or (is_claim and (third != "-" or second.startswith("missing: "))), what)

    def test_answers_bear_the_names_of_specs(self):
        for name in re.findall(r"results/(\w+)/README.md", TEXT):
            self.assertTrue((ROOT / f"experiments/{name}.json").exists(), name)

    def test_numbers_of_an_answer_stand_on_its_page(self):
        for _, answer, where in rows():
            for page in re.findall(r"\]\(\.\./(results/[\w/]+\.md)", where):
                text = (ROOT / page).read_text(encoding="utf-8")
                for number in re.findall(r"\d+(?:\.\d+)?", re.sub(r"`[^`]*`|\d+x\d+", "", answer)):
                    self.assertRegex(text, rf"(?<![\d.]){re.escape(number)}(?!\.?\d)", answer)

    @unittest.skipIf(TRAINED, "they are trained")
    def test_every_line_is_accepted(self):
        self.check("plan")

    @unittest.skipUnless(TRAINED, "they are planned")
    def test_every_line_trains(self):
        self.check("run", "steps=3", "--device", "cpu")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
