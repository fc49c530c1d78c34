"""Efficiency against ranks, from what `bnlab cost --json` says. Run by test_figures.py."""

import csv
import json
import pathlib
import tempfile
import unittest

import figures_case  # noqa: F401  it says where the modules of the figures are

import prediction
import style
from drawing import save


def row(strategy, ranks, step, statistics=0.0, measured=None):
    def interval(mid):
        return {"low": mid / 2, "mid": mid, "high": mid * 2}
    return {"strategy": strategy, "model": "unet", "ranks": ranks, "step_s": interval(step), "own_s": interval(0.1),
            "statistics_s": interval(statistics), "measured_step_s": measured}


class Prediction(unittest.TestCase):
    def draw(self, *rows, strategies=None):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "cost.json"
        file.write_text(json.dumps({"rows": rows}), encoding="utf-8")
        style.apply()
        drawing = prediction.draw(prediction.rows_of(file, strategies))
        save(drawing, file.with_suffix(""))
        with open(file.with_suffix(".csv"), encoding="utf-8", newline="") as drawn:
            return list(csv.DictReader(drawn)), drawing.sentence

    def test_efficiency_is_that_of_the_baselines_own_step(self):
        rows, sentence = self.draw(row("per_tower", 2, 0.1), row("sync", 2, 0.2, 0.1, measured=0.4),
                                   row("per_tower", 8, 0.125), row("sync", 8, 0.4, 0.3),
                                   {"strategy": "shuffle", "ranks": 8, "refused": "why"})
        values = {(row["strategy"], row["ranks"]): (float(row["efficiency"]), row["measured"]) for row in rows}
        self.assertEqual(values, {("per_tower", "2"): (1.0, ""), ("per_tower", "8"): (0.8, ""),
                                  ("sync", "2"): (0.5, "0.25"), ("sync", "8"): (0.25, "")})
        self.assertIn("Predicted efficiency on 8 GPUs: per_tower 0.80, sync 0.25.", sentence)

    def test_the_interval_is_around_it(self):
        rows, _ = self.draw(row("per_tower", 2, 0.2))
        self.assertEqual((rows[0]["low"], rows[0]["high"]), ("0.25", "1.0"))

    def test_a_part_of_the_strategies(self):
        rows, _ = self.draw(row("per_tower", 2, 0.1), row("sync", 2, 0.2, 0.1), strategies=["sync"])
        self.assertEqual([row["strategy"] for row in rows], ["sync"])
