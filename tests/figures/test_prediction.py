"""Efficiency against ranks, from what `bnlab cost --json` says. Run by test_figures.py."""

import csv
import json
import pathlib
import tempfile
import unittest

import figures_case  # noqa: F401  it says where the modules of the figures are

import predicted
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
        self.assertIn("Predicted: of the images/s of per_tower sync keeps 0.50 on 2, 0.31 on 8 GPUs.", sentence)

    def test_the_interval_is_around_it(self):
        rows, _ = self.draw(row("per_tower", 2, 0.2))
        self.assertEqual((rows[0]["low"], rows[0]["high"]), ("0.25", "1.0"))

    def test_a_part_of_the_strategies(self):
        rows, _ = self.draw(row("per_tower", 2, 0.1), row("sync", 2, 0.2, 0.1), strategies=["sync"])
        self.assertEqual([row["strategy"] for row in rows], ["sync"])


class PredictedTables(unittest.TestCase):
    _STEPS = "Steps, each by its rank's own work and the probe's exchanges"

    def checked(self, *rows):
        rows = [{"what": "unet, sync", "by": by, "predicted_s": {"low": 1.0, "mid": mid, "high": 2.0}, "measured_s": 1.0, "inside": inside}
                for by, mid, inside in rows]
        return {self._STEPS: {"rows": rows, "count": len(rows), "in_interval": 1, "median_error": 0.25, "worst_error": 0.5}}

    def test_the_price_is_what_a_step_takes_more_than_without_exchanges(self):
        def cost(strategy, low, mid, high):
            step = {"low": low, "mid": mid, "high": high}
            return {**row(strategy, 8, 0), "step_s": step, "gradients_s": step, "relative_images_per_s": {"low": 0.952, "mid": 0.985, "high": 0.996}}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "cost.json"
            rows = [cost("per_tower", 0.1, 0.1, 0.1), cost("sync(route=all_reduce)", 0.1004, 0.1015, 0.116)]
            file.write_text(json.dumps({"rows": rows + [{**each, "ranks": 64} for each in rows]}), encoding="utf-8")
            self.assertIn("| a network | 8 | 1.5 (0.4 to 16) | 98 % (95 to 99.6) |", predicted.price_table([("a network", file)]))
            first = next(predicted.price_rows([("a network", file)]))
        self.assertEqual((first["gpus"], first["step_ms_mid"], first["percent_of_images_per_s_low"]), (8, "100", "95.2"))

    def test_the_quality_is_counted_by_setting(self):
        checked = self.checked(("2 ranks, shared_memory", 1.5, True), ("2 ranks, shared_memory", 1.0, False), ("1 rank", 0.9, True))
        self.assertIn(f"| {self._STEPS} | 1 of 3 | 25.0 % | 50.0 % |", predicted.quality_table(checked))
        self.assertIn("| 1 rank | 1 of 1 | 10.0 % | 10.0 % |\n| 2 ranks, shared memory | 1 of 2 | 25.0 % | 50.0 % |",
                      predicted.steps_table(checked))
        self.assertEqual([each["error_percent"] for each in predicted.quality_rows(checked)], ["50.0", "0.0", "10.0"])

    def test_the_page_says_what_its_rows_give(self):
        page = pathlib.Path(__file__).parents[2] / "results/prediction"
        text = (page / "README.md").read_text(encoding="utf-8")
        with open(page / "quality.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertGreater(len(rows), 300)
        parts = [[each for each in rows if each["part"] == part] for part in dict.fromkeys(each["part"] for each in rows)]
        parts += [[each for each in parts[-1] if each["by"] == by] for by in {each["by"] for each in parts[-1]}]
        for part in parts:
            errors = sorted(float(each["error_percent"]) for each in part)
            inside = sum(each["inside"] == "True" for each in part)
            self.assertRegex(text, f"\\| {inside} of {len(part)} \\| [\\d.]+ % \\| {errors[-1]:.1f} % \\|")
