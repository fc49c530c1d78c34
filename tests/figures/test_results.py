"""The committed tables, figures and sentences against the committed records, by the program. Where there is none these cases
skip themselves. Runs the cases of the other files that ask for reports, too: each report is asked for once."""

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import plot  # first: it says where the modules of the figures are

import report as reports
import style
from committed import (EXPERIMENTS, PROGRAM, ROOT, answered, bnlab_page, bnlab_report, evidence, page_of, table_in,
                       with_answers)
from test_crop_law import CommittedLaw
from test_headline import CommittedHeadline
from test_page_numbers import CommittedPages, LookedUp, Predicted, Read
from test_pages_of_readers import PagesOfReaders, Readme
from test_price import CommittedPrice


def rows_of(markdown):
    """The rows of the first table as dicts by title."""
    lines = [[cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
             for line in markdown.split("\n\n- ")[0].split("\n") if line.startswith("|")]
    end = next((k for k, line in enumerate(lines) if k and line[0] == "contrast"), len(lines))
    return [dict(zip(lines[0], line)) for line in lines[2:end]]


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class CommittedResults(unittest.TestCase):
    def committed(self, name, figure):
        with open(ROOT / "results" / name / "figures" / f"{figure}.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_there_are_pages(self):
        self.assertIn("catalogue", EXPERIMENTS)

    def test_every_table_is_what_the_records_give(self):
        for name in EXPERIMENTS:
            self.assertEqual(page_of(name), bnlab_page(name), name)

    def test_every_figure_shows_what_the_records_give(self):
        for name in EXPERIMENTS:
            figures = sorted(file.stem for file in (ROOT / "results" / name / "figures").glob("*.csv"))
            if not figures:
                continue
            report = reports.read(io.StringIO(bnlab_report(name)))
            style.apply()
            with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()), \
                    mock.patch.object(style, "save_picture", return_value=[]):  # the numbers are compared, in the CSV
                plot.draw_all(report, out, figures)
                for figure in figures:
                    self.assertEqual((Path(out) / f"{figure}.csv").read_text(encoding="utf-8"),
                                     (ROOT / "results" / name / "figures" / f"{figure}.csv").read_text(encoding="utf-8"),
                                     f"{name}/{figure}")

    def test_figure_and_table_show_the_same_numbers(self):
        table = {(row["strategy"], row["placement"]): row
                 for row in rows_of(table_in(bnlab_page("tradeoff"), "tradeoff")) if row["ms more /step"] != "-"}
        drawn = {(row["strategy"], row["placement"]): row
                 for row in self.committed("tradeoff", "step_cost") if row["kind"] == "mean"}
        self.assertEqual(set(table), set(drawn))
        for key, row in drawn.items():
            self.assertEqual(table[key]["ms more /step"], f"{float(row['extra_step_ms']):.2f}±{float(row['half_width']):.2f}", key)
            self.assertEqual(table[key]["relative to per_tower"], f"{float(row['relative_images_per_s']):.2f}", key)

    def test_no_verdict_on_fewer_than_six_seeds(self):
        contrasts = [contrast for name in EXPERIMENTS for contrast in json.loads(bnlab_report(name))["contrasts"]]
        few = {contrast["verdict"] for contrast in contrasts if contrast["difference"]["n"] < 6}
        self.assertTrue(few and few <= {"direction: above", "direction: below", "undecided"}, few)
        self.assertIn("better", {contrast["verdict"] for contrast in contrasts})


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class Answers(unittest.TestCase):
    def test_the_tables_are_what_the_pages_and_records_give(self):
        for document in ("README.md", "results/README.md"):
            self.assertEqual(with_answers(document), (ROOT / document).read_text(encoding="utf-8"), document)

    def test_every_question_has_a_row_and_every_answer_is_in_the_index(self):
        for document in ("README.md", "results/README.md"):
            text = (ROOT / document).read_text(encoding="utf-8")
            rows = text.split("<!-- table:answers -->\n")[1].split("<!-- end -->")[0].strip().split("\n")[2:]
            self.assertEqual([re.search(r"(\w+)/README\.md\) \|", row)[1] for row in rows], answered(document), document)
        self.assertEqual(len(answered("README.md")), 13)
        self.assertIn("camvid_small_batch", answered("results/README.md"))

    def test_every_page_says_how_sure_its_answer_is(self):
        for name in EXPERIMENTS:
            page = (ROOT / "results" / name / "README.md").read_text(encoding="utf-8")
            said = re.search(r"^\*\*How sure\.\*\* \[(\w+)\]", page, re.MULTILINE)
            self.assertEqual(said and said[1].lower(), evidence()[name], name)

    def test_every_page_is_in_the_index(self):
        index = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
        self.assertEqual([name for name in EXPERIMENTS if f"]({name}/README.md)" not in index], [])


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class Again(unittest.TestCase):
    """The page on two occasions, and what the page of all data sets says of it."""

    def test_they_are_what_the_records_give(self):
        page = ROOT / "results" / "again"
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder)
            (made / "README.md").write_text("<!-- table:again -->\n<!-- end -->\n", encoding="utf-8")
            subprocess.run([page / "publish.sh", made], check=True, capture_output=True,
                           env=os.environ | {"BNLAB_PROGRAM": str(PROGRAM), "BNLAB_INTERPRETER": sys.executable})
            table = table_in((made / "README.md").read_text(encoding="utf-8"), "again")
            self.assertEqual(table_in((page / "README.md").read_text(encoding="utf-8"), "again"), table)
            self.assertEqual((page / "figures/occasions.csv").read_text(encoding="utf-8"),
                             (made / "figures/occasions.csv").read_text(encoding="utf-8"))
        cells, within = re.search(r"\| all \| (\d+) \| (\d+) \|", table).groups()
        data_sets = " ".join((ROOT / "results/data_sets.md").read_text(encoding="utf-8").split())
        self.assertIn(f"{within} of {cells} ratios are within 3 points", data_sets)


if __name__ == "__main__":
    unittest.main()
