"""Throughput against accuracy of trained networks, the second figure of the README. Run by test_figures.py."""

import contextlib
import copy
import io
import json
import math
import re
import tempfile
import unittest
from pathlib import Path

import plot  # first: it says where the modules of the figures are

import price
import report as reports
import style
from committed import PROGRAM, ROOT, bnlab_report
from synthetic import cell, quantity, report


def read(cells, name):
    return reports.read(io.StringIO(json.dumps(report(cells, name=name))))


def timed(strategy, shared, sockets, batch=price.BATCH):
    made = cell(strategy, 2, batch, towers_per_rank=1)
    made["rows"].append({**copy.deepcopy(made["rows"][0]), "placement": "2x1-cpu-sockets"})
    for row, ratio in zip(made["rows"], (shared, sockets)):
        row.update(log_images_per_s=quantity([math.log(ratio)] * 2, 0.01), relative_images_per_s=ratio)
    return made


TIMED = timed("per_tower", 1, 1), timed("sync", 0.9, 0.6), timed("none", 1.1, 1.005), timed("sync", 0.5, 0.5, batch=1)


class Price(unittest.TestCase):
    def points(self, times=TIMED, lacking=()):
        trained = {"per_tower": 0.45, "sync": 0.75, "none": 0.7, "group_norm": 0.7}
        strategies = [cell(name, saved=(score,) * 2, half_width=0.01) for name, score in trained.items() if name not in lacking]
        return price.points_of(read(strategies, "trained"), read(times, "times"))

    def test_accuracy_and_times_of_as_many_images_per_gpu_are_joined(self):
        self.assertEqual([[(point.strategy, point.accuracy.mean, round(point.throughput.mean, 6)) for point in panel] for panel in self.points()],
                         [[("per_tower", 0.45, 1), ("sync", 0.75, 0.9), ("none", 0.7, 1.1)],
                          [("per_tower", 0.45, 1), ("sync", 0.75, 0.6), ("none", 0.7, 1.005)]])

    def test_each_way_to_exchange_has_its_own_front_as_far_as_intervals_tell(self):
        self.assertEqual([[point.standing for point in panel] for panel in self.points()],
                         [["beaten", "front", "front"], ["undecided", "front", "front"]])

    def test_the_title_says_what_sync_wins_and_what_it_costs(self):
        self.assertEqual(price.title(self.points()), "With two images per GPU, sync wins 30 points for 10 % of the images/s, over sockets for 40 %")

    def test_what_was_not_trained_or_has_no_times_that_count_is_an_error(self):
        with self.assertRaisesRegex(reports.ReportError, "trained has no accuracy of none"):
            self.points(lacking=["none"])
        with self.assertRaisesRegex(reports.ReportError, "none has no times that count, over sockets"):
            made = timed("none", 1, 1)
            made["rows"].pop()
            self.points(times=[*TIMED[:2], made])


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class CommittedPrice(unittest.TestCase):
    def test_the_figure_shows_what_the_records_give(self):
        style.apply()
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            price.drawing.save(price.draw(*(reports.read(io.StringIO(bnlab_report(name))) for name in price.NAMES)), Path(out, "price"))
            self.assertEqual(*(Path(folder, "price.csv").read_text(encoding="utf-8") for folder in (out, ROOT / "results")))
            self.assertEqual(*(re.findall("<text [^>]*>([^<]*)", Path(folder, "price.svg").read_text(encoding="utf-8"))
                               for folder in (out, ROOT / "results")))


if __name__ == "__main__":
    unittest.main()
