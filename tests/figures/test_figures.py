"""The figures against records made up here: what the CSVs hold, what may stand on a front, what is said of failures."""

import contextlib
import csv
import importlib.util
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts" / "figures"), str(ROOT / "tests" / "figures")]

import accuracy_by_population
import accuracy_vs_batch
import cells
import memory
import records
import style
import synthetic
import throughput_vs_accuracy
import training_curves
from test_parts import Intervals, Labels, Styles  # so that they run with the cases below

_spec = importlib.util.spec_from_file_location("plot", ROOT / "scripts" / "figures" / "__main__.py")
plot = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plot)


class FiguresCase(unittest.TestCase):
    figures = plot.FIGURES  # those that the cases of a class draw

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.experiment = Path(self.folder.name) / "results" / "synthetic"
        self.out = Path(self.folder.name) / "out"

    def draw(self, made, metrics=None, out=None):
        """Writes the records where none are yet, draws them, and returns what was printed."""
        if made:
            synthetic.write(str(self.experiment), made, metrics)
        printed = io.StringIO()
        with (mock.patch.object(plot, "FIGURES", self.figures), contextlib.redirect_stdout(printed),
              contextlib.redirect_stderr(printed)):
            self.status = plot.main([str(self.experiment), "--out", str(out or self.out)])
        return printed.getvalue()

    def rows(self, figure, **where):
        with open(self.out / f"{figure}.csv", encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in where.items())]

    def svg(self, figure):
        return (self.out / f"{figure}.svg").read_text(encoding="utf-8")

    def caption(self, figure):
        """All texts of a figure in one line, with plain spaces."""
        texts = [piece.split("</text>")[0].split(">", 1)[-1] for piece in self.svg(figure).split("<text ")[1:]]
        return " ".join(texts).replace("\u00a0", " ").replace("&#215;", "×")


class Reading(FiguresCase):
    def test_another_schema_version_is_an_error_that_names_the_file(self):
        record = synthetic.run()
        record["schema_version"] = 2
        printed = self.draw([record])
        self.assertEqual(self.status, 1)
        self.assertRegex(printed, r"record\.json: expected a bnlab\.run record of schema version 1, .*version 2")

    def test_broken_json_is_an_error_that_names_the_file(self):
        self.draw([synthetic.run()])
        file = next(self.experiment.rglob("record.json"))
        file.write_text('{"schema_version": 1,', encoding="utf-8")
        self.assertIn(f"{file}: expected a JSON record", self.draw([]))
        self.assertEqual(self.status, 1)

    def test_an_unknown_outcome_is_an_error(self):
        self.assertIn("outcome.status: expected one of ok, diverged", self.draw([synthetic.run(status="fine")]))

    def test_a_folder_without_records_is_an_error(self):
        self.experiment.mkdir(parents=True)
        self.assertIn("no records found", self.draw([]))
        self.assertEqual(self.status, 1)

    def test_a_last_line_that_was_cut_off_is_left_out(self):
        synthetic.write(str(self.experiment), [synthetic.run()], lambda _: [{"kind": "train", "step": 1, "loss": 2.0}])
        file = next(self.experiment.rglob("metrics.jsonl"))
        with open(file, "a", encoding="utf-8") as opened:
            opened.write('{"kind": "train", "st')
        run = records.read_experiment(str(self.experiment)).runs[0]
        self.assertEqual(run.metrics(), [{"kind": "train", "step": 1, "loss": 2.0}])

    def test_two_nuisance_levels_are_never_averaged(self):
        runs = [records.Run("", synthetic.run(strategy=name, task={"nuisance": level}))
                for name in ("sync", "none") for level in (0.2, 1.0)]
        parts = cells.split_by_condition(runs)
        self.assertEqual([text for text, _ in parts], ["task.nuisance = 0.2", "task.nuisance = 1.0"])
        self.assertEqual([len(part) for _, part in parts], [2, 2])

    def test_a_learning_rate_that_belongs_to_a_strategy_does_not_split(self):
        runs = [records.Run("", synthetic.run(strategy=name, optimizer={"lr": lr}))
                for name, lr in (("sync", 0.1), ("none", 0.03))]
        self.assertEqual(cells.split_by_condition(runs), [("", runs)])


class AccuracyVsBatch(FiguresCase):
    figures = (accuracy_vs_batch,)

    def runs(self):
        return [synthetic.run(strategy, towers, batch, seed, accuracy=start + 0.1 * seed)
                for strategy, start in (("sync", 0.5), ("none", 0.3)) for towers, batch in ((8, 2), (2, 8))
                for seed in range(3)]

    def test_the_csv_holds_means_and_intervals(self):
        self.draw(self.runs())
        row, = self.rows("accuracy_vs_batch", kind="mean", strategy="sync", grouping="8x2")
        self.assertAlmostEqual(float(row["value"]), 0.6, places=12)
        self.assertAlmostEqual(float(row["half_width"]), 0.248414, places=6)
        self.assertEqual((row["n"], row["images_per_tower"]), ("3", "2"))
        self.assertEqual(len(self.rows("accuracy_vs_batch", kind="seed")), 12)

    def test_failed_and_missing_runs_are_said(self):
        made = self.runs()[:-1]  # none 2x8 seed 2 is missing
        made[0] = synthetic.run("sync", 8, 2, 0, status="diverged")
        self.draw(made)
        caption = self.caption("accuracy_vs_batch")
        self.assertIn("Failed (×): sync 8x2 (1 diverged of 3).", caption)
        self.assertIn("Incomplete: none 2x8 (1 of 3 runs missing).", caption)
        self.assertIn("n = 2 to 3 seeds", caption)
        row, = self.rows("accuracy_vs_batch", kind="mean", strategy="sync", grouping="8x2")
        self.assertEqual((row["n"], row["failed"], row["outcome"]), ("2", "1", "1 diverged"))
        self.assertAlmostEqual(float(row["value"]), 0.65, places=12)
        self.assertEqual(self.rows("accuracy_vs_batch", kind="seed", outcome="missing")[0]["seed"], "2")

    def test_a_strategy_of_which_every_run_failed_is_shown(self):
        self.draw(self.runs() + [synthetic.run("frozen", 8, 2, seed, status="oom") for seed in range(3)])
        self.assertIn("3 oom", self.caption("accuracy_vs_batch"))
        self.assertEqual(self.rows("accuracy_vs_batch", kind="mean", strategy="frozen")[0]["outcome"], "3 oom")
        self.assertIn("Not run: frozen 2x8.", self.caption("accuracy_vs_batch"))

    def test_a_run_folder_without_a_record_is_said(self):
        (self.experiment / "sync-8x2-seed9-abc" / "2x4-cpu").mkdir(parents=True)
        self.draw(self.runs())
        self.assertIn("1 run started and not finished.", self.caption("accuracy_vs_batch"))

    def test_two_placements_of_a_run_count_once(self):
        self.draw(self.runs() + [synthetic.run("sync", 8, 2, 0, accuracy=0.5, ranks=8, towers_per_rank=1)])
        self.assertEqual(self.rows("accuracy_vs_batch", kind="mean", strategy="sync", grouping="8x2")[0]["n"], "3")

    def test_the_batch_population_is_drawn_where_recorded(self):
        made = self.runs()
        for record in made:
            if record["strategy_label"] == "sync":
                record["result"]["final"]["batch"] = {"mean_iou": 0.9}
        self.draw(made)
        self.assertEqual({row["strategy"] for row in self.rows("accuracy_vs_batch", population="batch")}, {"sync"})
        self.assertIn("with no batch population recorded: none.", self.caption("accuracy_vs_batch"))

    def test_one_batch_size_is_no_line(self):
        printed = self.draw([synthetic.run()])
        self.assertIn("accuracy_vs_batch: not drawn, only one batch size", printed)
        self.assertFalse((self.out / "accuracy_vs_batch.svg").exists())


class ThroughputVsAccuracy(FiguresCase):
    figures = (throughput_vs_accuracy,)

    def test_the_front_is_that_of_the_real_runs(self):
        values = {"sync": (30, 0.7), "group_norm": (40, 0.6), "per_tower": (35, 0.5), "none": (50, 0.4)}
        made = [synthetic.run(name, 2, 2, seed, accuracy=score, images_per_s=speed, towers_per_rank=1)
                for name, (speed, score) in values.items() for seed in range(2)]
        # Emulated and better in both: on no front, and beats nobody.
        made += [synthetic.run("shuffle", 8, 2, seed, accuracy=0.9, images_per_s=90) for seed in range(2)]
        self.draw(made)
        front = {row["strategy"] for row in self.rows("throughput_vs_accuracy", on_front="True")}
        self.assertEqual(front, {"sync", "group_norm", "none"})
        self.assertEqual([row["strategy"] for row in self.rows("throughput_vs_accuracy", kind="emulated")], ["shuffle"])
        self.assertIn("Plus signs: emulated", self.caption("throughput_vs_accuracy"))

    def test_each_world_size_has_its_own_front(self):
        made = [synthetic.run("sync", ranks, 2, accuracy=0.5, images_per_s=20 * ranks, ranks=ranks, towers_per_rank=1)
                for ranks in (2, 4)]
        self.draw(made)
        self.assertEqual([row["on_front"] for row in self.rows("throughput_vs_accuracy")], ["True", "True"])

    def test_a_single_rank_is_on_no_front(self):
        self.draw([synthetic.run("sync", 1, 8, ranks=1, towers_per_rank=1)])
        self.assertEqual(self.rows("throughput_vs_accuracy")[0]["on_front"], "False")

    def test_runs_side_by_side_show_no_throughput(self):
        made = [synthetic.run("sync", 2, 2, towers_per_rank=1),
                synthetic.run("none", 2, 2, images_per_s=99, towers_per_rank=1, jobs=2)]
        self.draw(made)
        self.assertEqual([row["strategy"] for row in self.rows("throughput_vs_accuracy")], ["sync"])
        self.assertIn("1 run left out that shared the machine", self.caption("throughput_vs_accuracy"))

    def test_nothing_but_runs_side_by_side_is_no_figure(self):
        self.assertIn("throughput_vs_accuracy: not drawn, all 1 runs shared", self.draw([synthetic.run(jobs=4)]))

    def test_bars_both_ways(self):
        self.draw([synthetic.run("sync", 2, 2, seed, accuracy=0.5 + 0.1 * seed, images_per_s=30 + 10 * seed,
                                 towers_per_rank=1) for seed in range(3)])
        row, = self.rows("throughput_vs_accuracy")
        self.assertAlmostEqual(float(row["images_per_s"]), 40, places=12)
        self.assertAlmostEqual(float(row["images_per_s_half_width"]), 24.8414, places=4)
        self.assertAlmostEqual(float(row["accuracy_half_width"]), 0.248414, places=6)

    def test_failed_runs_are_noted(self):
        self.draw([synthetic.run("sync", 2, 2, towers_per_rank=1),
                   synthetic.run("frozen", 2, 2, status="timeout", towers_per_rank=1)])
        self.assertIn("frozen 2x2: 1 timeout", self.caption("throughput_vs_accuracy"))
        self.assertEqual(self.rows("throughput_vs_accuracy", strategy="frozen")[0]["kind"], "failed or missing")


    def test_many_points_are_numbered_and_listed(self):
        labels = [f"sync(group_size={size})" for size in range(1, 31)]
        self.draw([synthetic.run(label, 2, 2, accuracy=0.3 + 0.01 * k, images_per_s=30 + k, towers_per_rank=1)
                   for k, label in enumerate(labels)])
        caption = self.caption("throughput_vs_accuracy")
        self.assertIn("List: number, strategy: images/s, accuracy.", caption)
        self.assertIn("30  sync(group_size=9):  38, 0.380", caption)  # labels sort as texts
        self.assertIn(" 30 ", caption)


class AccuracyByPopulation(FiguresCase):
    figures = (accuracy_by_population,)

    @staticmethod
    def runs():
        return [synthetic.run(strategy, seed=seed, accuracy=0.5 + 0.1 * seed - fall, shards=shards,
                              others={"tower:3": 0.4, "precise": 0.7} if strategy == "sync" else None)
                for strategy in ("sync", "none") for seed in range(3)
                for shards, fall in (("iid", 0), ("sorted:class", 0.2))]

    def test_shards_stand_side_by_side_in_one_figure(self):
        self.draw(self.runs())
        self.assertEqual([file.name for file in self.out.glob("*.csv")], ["accuracy_by_population.csv"])
        self.assertIn("8x2, sorted:class shards", self.caption("accuracy_by_population"))
        means = {row["shards"]: float(row["value"])
                 for row in self.rows("accuracy_by_population", strategy="none", population="saved")}
        self.assertAlmostEqual(means["iid"], 0.6, places=12)
        self.assertAlmostEqual(means["sorted:class"], 0.4, places=12)

    def test_populations_are_told_apart_and_one_that_a_strategy_lacks_is_no_failure(self):
        self.draw(self.runs())
        rows = self.rows("accuracy_by_population", shards="iid")
        self.assertEqual([(row["strategy"], row["population"]) for row in rows],
                         [("sync", "saved"), ("sync", "tower:3"), ("sync", "precise"), ("none", "saved")])
        self.assertEqual({row["failed"] for row in rows}, {"0"})
        row, = self.rows("accuracy_by_population", shards="iid", strategy="sync", population="saved")
        self.assertAlmostEqual(float(row["half_width"]), 0.248414, places=6)

    def test_failed_runs_are_said(self):
        self.draw(self.runs() + [synthetic.run("frozen", seed=0, status="oom", shards="iid")])
        self.assertIn("1 oom", self.caption("accuracy_by_population"))
        self.assertIn("Failed (×): frozen 8x2 (1 oom of 3).", self.caption("accuracy_by_population"))

    def test_one_population_is_no_comparison(self):
        self.assertIn("not drawn, only one population", self.draw([synthetic.run()]))


class TrainingCurves(FiguresCase):
    figures = (training_curves,)

    @staticmethod
    def metrics(record):
        seed = record["spec"]["seed"]
        lines = [{"kind": "train", "step": step, "loss": step / 10 + seed} for step in range(1, 61)]
        return lines + [{"kind": "eval", "step": 60, "population": "saved", "metrics": {"mean_iou": 0.5 + 0.1 * seed}},
                        {"kind": "eval", "step": 60, "population": "batch", "metrics": {"mean_iou": 0.9}}]

    def test_mean_and_band_over_seeds_with_losses_averaged(self):
        self.draw([synthetic.run(seed=seed) for seed in (0, 1, 3)], self.metrics)
        first = self.rows("training_curves", quantity="train loss")[0]  # reports 1 and 2, seeds 0, 1, 3
        self.assertEqual((first["step"], first["n"]), ("2", "3"))
        self.assertAlmostEqual(float(first["value"]), 0.15 + 4 / 3, places=12)
        self.assertAlmostEqual(float(first["low"]), 0.15, places=12)
        self.assertAlmostEqual(float(first["high"]), 3.15, places=12)
        score, = self.rows("training_curves", quantity="mean IoU")
        self.assertAlmostEqual(float(score["value"]), 0.5 + 0.4 / 3, places=12)

    def test_a_failed_run_is_drawn_apart_from_the_mean(self):
        self.draw([synthetic.run(seed=0), synthetic.run(seed=1, status="diverged")], self.metrics)
        self.assertEqual({row["n"] for row in self.rows("training_curves", kind="mean")}, {"1"})
        self.assertEqual({row["seed"] for row in self.rows("training_curves", kind="failed run")}, {"1"})
        self.assertIn("1 diverged", self.caption("training_curves"))

    def test_the_record_serves_where_there_is_no_log(self):
        history = [{"step": 5, "train_loss": 1.5, "mean_iou": {"saved": 0.25}}]
        self.draw([synthetic.run(history=history)])
        self.assertEqual([row["value"] for row in self.rows("training_curves")], ["1.5", "0.25"])


class Memory(FiguresCase):
    figures = (memory,)

    def test_bars_are_means_over_seeds_of_the_busiest_rank(self):
        self.draw([synthetic.run(seed=0, peak=(100, 300)), synthetic.run(seed=1, peak=(500, 200))])
        row, = self.rows("memory", kind="tensors")
        self.assertEqual([float(row[key]) for key in ("mean_bytes", "low_bytes", "high_bytes")], [400, 300, 500])
        self.assertEqual(float(self.rows("memory", kind="process")[0]["mean_bytes"]), 5 << 20)

    def test_a_strategy_that_ran_out_of_memory_is_shown(self):
        self.draw([synthetic.run("sync"), synthetic.run("none", status="oom")])
        self.assertEqual(self.rows("memory", kind="tensors", strategy="none")[0]["outcome"], "1 oom")
        self.assertIn("1 oom", self.caption("memory"))


class Files(FiguresCase):
    def test_two_runs_give_identical_bytes(self):
        made = [synthetic.run(strategy, towers, batch, seed, accuracy=0.5 + 0.01 * seed, towers_per_rank=rows,
                              others={"batch": 0.6})
                for strategy in ("sync", "none", "my_norm") for towers, batch, rows in ((2, 8, 1), (8, 2, 4))
                for seed in range(2)]
        again = Path(self.folder.name) / "again"
        self.draw(made, TrainingCurves.metrics)
        self.draw([], out=again)
        names = sorted(file.name for file in self.out.iterdir())
        self.assertEqual(len(names), 15)  # 5 figures, each as SVG, PNG and CSV
        for name in names:
            self.assertEqual((self.out / name).read_bytes(), (again / name).read_bytes(), name)
            self.assertNotIn(b"<dc:date>", (self.out / name).read_bytes(), name)

    def test_a_strategy_keeps_its_colour_in_every_figure(self):
        made = [synthetic.run("sync", towers, batch, seed, towers_per_rank=1)
                for towers, batch in ((2, 8), (2, 4)) for seed in range(2)]
        self.draw(made, TrainingCurves.metrics)
        for name in ("accuracy_vs_batch", "throughput_vs_accuracy", "training_curves", "memory"):
            self.assertIn(style.BLUE.lower(), self.svg(name), name)
            self.assertNotIn(style.ORANGE.lower(), self.svg(name), name)

    def test_a_results_folder_gives_a_folder_per_experiment(self):
        for name in ("one", "two"):
            synthetic.write(str(self.experiment.parent / name), [synthetic.run(history=[{"step": 1, "train_loss": 1}])])
        self.experiment = self.experiment.parent
        self.draw([])
        self.assertTrue((self.out / "one" / "memory.svg").exists() and (self.out / "two" / "memory.svg").exists())

    def test_an_experiment_without_a_result_says_so(self):
        printed = self.draw([synthetic.run(status="crashed")])
        self.assertEqual(self.status, 0)
        self.assertEqual(printed.count("not drawn"), 5)


if __name__ == "__main__":
    unittest.main(verbosity=1)
