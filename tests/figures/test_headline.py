"""The figure at the head of the README: points below sync on every data set. Run by test_figures.py."""

import contextlib
import io
import json
import re
import tempfile
import unittest
from pathlib import Path

import plot  # first: it says where the modules of the figures are

import headline
import report as reports
import style
from committed import PROGRAM, ROOT, bnlab_report
from synthetic import cell, contrast, report

ROW = headline.Row("synthetic", "Images", "a network", {}, (("per_tower", "group_norm"),))


def read(*cells, **about):
    return reports.read(io.StringIO(json.dumps(report(cells, **about))))


def normalised(strategy, towers, batch, saved):
    return cell(strategy, towers=towers, batch=batch, saved=saved, others={"batch": saved})


class Marks(unittest.TestCase):
    CELLS = (normalised("sync", 8, 2, (0.7, 0.8)), normalised("per_tower", 16, 1, (0.2, 0.4)), normalised("per_tower", 8, 2, (0.5, 0.7)),
             normalised("per_tower", 1, 16, (0.7, 0.8)), cell("group_norm(groups=4)", saved=(0.6, 0.7)))

    def marks(self, *cells, contrasts=()):
        return headline.marks_of(read(*(cells or self.CELLS), contrasts=contrasts), ROW)

    def test_a_difference_of_means_stands_where_none_was_declared(self):
        [lane] = self.marks()
        self.assertEqual([(mark.strategy, mark.images, round(mark.points, 6), mark.half_width, mark.n) for mark in lane],
                         [("per_tower", 1, 45, None, 2), ("per_tower", 2, 15, None, 2), ("group_norm", None, 10, None, 2)])

    def test_a_declared_comparison_stands_with_its_interval_whichever_side_is_named_first(self):
        here = contrast((0.14, 0.18), 0.05), contrast((-0.1, -0.12), 0.03, strategy="group_norm(groups=4)", above="sync")
        [lane] = self.marks(contrasts=here)
        self.assertEqual([(mark.images, round(mark.points, 6), mark.half_width) for mark in lane], [(1, 45, None), (2, 16, 5), (None, 11, 3)])

    def test_runs_of_other_seeds_are_not_compared(self):
        with self.assertRaisesRegex(reports.ReportError, "not ended well with the same seeds"):
            self.marks(normalised("sync", 8, 2, (0.7, 0.8)), normalised("per_tower", 8, 2, (0.5,)), self.CELLS[-1])

    def test_a_strategy_that_is_not_there_is_an_error(self):
        with self.assertRaisesRegex(reports.ReportError, "lacks one of per_tower, group_norm"):
            self.marks(*self.CELLS[:-1])


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class CommittedHeadline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = {row.experiment: reports.read(io.StringIO(bnlab_report(row.experiment))) for row in headline.ROWS}

    def test_the_figure_shows_what_the_records_give(self):
        style.apply()
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            headline.drawing.save_page(headline.draw(self.found), Path(out, "headline"))
            self.assertEqual(Path(out, "headline.csv").read_text(encoding="utf-8"),
                             (ROOT / "results" / "headline.csv").read_text(encoding="utf-8"))
            self.assertEqual(*(re.findall("<text [^>]*>([^<]*)", Path(folder, "headline.svg").read_text(encoding="utf-8"))
                               for folder in (out, ROOT / "results")))

    def test_crops_are_those_of_the_records(self):
        for row in headline.ROWS:
            with open(ROOT / "results" / row.experiment / "runs.jsonl", encoding="utf-8") as ledger:
                task = json.loads(next(ledger))["spec"]["task"]
            size = task.get("crop") or task.get("size") or [32, 32]
            self.assertIn(f"{size[0]}x{size[1]}", row.title, row.experiment)


if __name__ == "__main__":
    unittest.main()
