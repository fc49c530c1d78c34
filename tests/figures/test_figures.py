"""The figures against reports made up here: what the CSVs hold, what may stand on a front, what is said of failures."""

import re
import unittest
from pathlib import Path
from unittest import mock

from matplotlib.axes import Axes

import plot  # first: it says where the modules of the figures are

import accuracy_by_population
import accuracy_vs_batch
import layout
import matrix
import memory
import memory_price
import style
import throughput_vs_accuracy
import training_curves
from figures_case import FiguresCase
from synthetic import cell, curve, not_saved, quantity
from test_accuracy_by_part import AccuracyByPart
from test_accuracy_vs_length import AccuracyVsLength  # so that these run with the cases below
from test_accuracy_vs_steps import AccuracyVsSteps
from test_contact_sheet import ContactSheet
from test_contrasts import Contrasts
from test_crop_law import CropLaw
from test_finding import Finding
from test_headline import Marks
from test_parts import Labels, Legends, Lists, Names, Styles, Titles
from test_occasions import Occasions
from test_one_gpu import OneGpu
from test_price import Price
from test_prediction import PredictedTables, Prediction
from test_published import PublishedNumbers
from test_scaling import Scaling
from test_statistics_by_site import StatisticsBySite
from test_step_cost import StepCost
from test_towers import Towers


class Cases(unittest.TestCase):
    def test_every_class_of_this_folder_runs_here_or_in_test_results(self):
        folder = Path(__file__).parent
        runs = "".join((folder / name).read_text(encoding="utf-8") for name in ("test_figures.py", "test_results.py"))
        for file in folder.glob("test_*.py"):
            for name in re.findall(r"^class (\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE):
                self.assertRegex(runs, rf"(?m)^(from .* import .*\b|class ){name}\b", file.name)


class Reading(FiguresCase):
    def test_what_is_no_report_is_an_error(self):
        for text in ("", "{}", "[1]"):
            self.assertIn("expected what bnlab report --format json prints", self.draw_text(text))
            self.assertEqual(self.status, 1)

    def test_one_level_alone_is_named_as_its_file(self):
        self.draw([cell(batch=batch, conditions={"task.nuisance": level}) for batch in (2, 8) for level in ("0.2", "1.0")],
                  "--figures", "accuracy_vs_batch-task.nuisance_1.0")
        self.assertEqual([file.stem for file in self.out.glob("*.csv")], ["accuracy_vs_batch-task.nuisance_1.0"])

    def test_two_nuisance_levels_never_share_a_figure(self):
        self.figures = (accuracy_vs_batch,)
        self.draw([cell(batch=batch, conditions={"task.nuisance": level}) for batch in (2, 8) for level in ("0.2", "1.0")])
        self.assertEqual(sorted(file.name for file in self.out.glob("*.csv")),
                         ["accuracy_vs_batch-task.nuisance_0.2.csv", "accuracy_vs_batch-task.nuisance_1.0.csv"])

    def test_some_strategies_can_be_drawn_alone(self):
        self.figures = (memory,)
        self.draw([cell("sync"), cell("none")], "--strategies", "none")
        self.assertEqual({row["strategy"] for row in self.rows("memory")}, {"none"})
        self.assertIn("no run of synthetic has the strategy nome; there are sync; none",
                      self.draw([cell("sync"), cell("none")], "--strategies", "nome"))
        self.assertEqual(self.status, 1)

    def test_a_label_with_a_comma_is_an_argument_of_its_own(self):
        self.figures = (memory,)
        cells = [cell("none"), cell("per_tower"), {**cell("per_tower"), "cell": {"optimizer.norm_lr_multiplier": "0.1"}}]
        label = "per_tower, norm_lr_multiplier 0.1"
        self.draw(cells, "--strategies", label, "none")
        self.assertEqual({row["strategy"] for row in self.rows("memory")}, {label, "none"})
        self.assertIn(f"there are per_tower; {label}; none", self.draw(cells, "--strategies", "nome"))

    def test_without_saved_statistics_every_figure_is_drawn_or_says_why_not(self):
        printed = self.draw([not_saved(cell(strategy, batch=batch, towers=2, towers_per_rank=1, others={"precise": (0.5,)},
                                            conditions={"steps": steps}))
                             for strategy in ("sync", "averaged") for batch in (2, 8) for steps in ("300", "1000")])
        for name in ("accuracy_vs_batch-steps_300", "accuracy_vs_length", "throughput_vs_accuracy-steps_300", "matrix"):
            self.assertIn(f"{name}: not drawn, no run was evaluated with the saved statistics.", printed)
        for figure in self.figures:
            self.assertIn(f"  {figure.__name__}", printed)


class AccuracyVsBatch(FiguresCase):
    figures = (accuracy_vs_batch,)

    def cells(self, **changed):
        made = {("sync", 8): {}, ("sync", 2): {}, ("none", 8): {}, ("none", 2): {}}
        for key, change in changed.items():
            made[tuple(key.split("_")[0:1]) + (int(key.split("_")[1]),)] = change
        return [cell(strategy, towers, 16 // towers, **{"saved": (0.5, 0.6, 0.7), **change})
                for (strategy, towers), change in made.items()]

    def test_the_csv_holds_the_means_and_intervals_of_the_report(self):
        self.draw(self.cells())
        row, = self.rows("accuracy_vs_batch", kind="mean", strategy="sync", grouping="8x2")
        self.assertAlmostEqual(float(row["value"]), 0.6, places=12)
        self.assertEqual((row["half_width"], row["n"], row["images_per_tower"]), ("0.25", "3", "2"))
        self.assertEqual(len(self.rows("accuracy_vs_batch", kind="seed")), 12)

    def test_marks_stand_near_their_batch(self):
        self.draw(self.cells() + [cell(label, towers, 16 // towers) for label in ("averaged", "shuffle", "ghost", "frozen") for towers in (8, 2)])
        axes = layout.new_page("", "", style.DOUBLE, 2.75)[1][0][0]
        for count in (1, 2, 6, 30):
            beside = [layout.dodged(axes, k, count).transform((4, 0))[0] - axes.transData.transform((4, 0))[0] for k in range(count)]
            self.assertAlmostEqual(sum(beside), 0, places=6)
            self.assertLessEqual(72 / axes.figure.dpi * (max(beside) - min(beside)), 10 + 1e-6, "points of the page")

    def test_what_does_not_know_the_towers_is_a_flat_line(self):
        batch = {"batch": (0.5,) * 3}
        for strategy, flat in (("group_norm", True), ("frozen", False)):
            with mock.patch.object(Axes, "axhline") as line:
                self.draw([cell("sync", towers, 16 // towers, (0.5, 0.6, 0.7), others=batch) for towers in (8, 2)]
                          + [cell(strategy, 8, 2, (0.5, 0.6, 0.7), others=None if flat else batch)])
            self.assertEqual({call.kwargs["color"] for call in line.call_args_list}, {style.STRATEGIES[strategy].colour} if flat else set())

    def test_of_many_strategies_those_of_one_size_are_left_out_and_named(self):
        at_two = [cell(label) for label in ("averaged", "shuffle", "ghost", "frozen", "layer_norm")]
        for count in (4, 5):
            self.draw(self.cells() + at_two[:count])
            drawn = {row["strategy"] for row in self.rows("accuracy_vs_batch")}
            self.assertEqual(drawn, {"sync", "none"} | ({each["strategy"] for each in at_two[:4]} if count == 4 else set()))
        self.assertIn("; at a single size, and not drawn: averaged, frozen, ghost, shuffle, layer_norm.", self.caption("accuracy_vs_batch"))

    def test_failed_and_missing_runs_are_said(self):
        self.draw(self.cells(sync_8={"saved": {1: 0.6, 2: 0.7}, "failures": {0: "diverged"}},
                             none_2={"saved": (0.3, 0.4), "missing": (2,)}))
        caption = self.caption("accuracy_vs_batch")
        self.assertIn("; 1 failed (×); 1 missing.", caption)
        self.assertIn("n = 2 to 3 seeds", caption)
        row, = self.rows("accuracy_vs_batch", kind="mean", strategy="sync", grouping="8x2")
        self.assertEqual((row["n"], row["failed"], row["outcome"]), ("2", "1", "1 diverged"))
        self.assertEqual(self.rows("accuracy_vs_batch", kind="seed", outcome="missing")[0]["seed"], "2")

    def test_fewer_than_six_seeds_are_called_a_direction(self):
        self.draw(self.cells())
        self.assertIn("fewer than 6: a direction, no verdict", self.caption("accuracy_vs_batch"))
        six = {"saved": (0.5,) * 6}
        self.draw(self.cells(sync_8=six, sync_2=six, none_8=six, none_2=six))
        self.assertNotIn("direction", self.caption("accuracy_vs_batch"))

    def test_a_strategy_of_which_every_run_failed_is_shown(self):
        self.draw(self.cells() + [cell("frozen", 8, 2, (), failures=dict.fromkeys(range(3), "oom")),
                                  cell("frozen", 2, 8, (), missing=range(3))])
        self.assertIn("3 oom", self.caption("accuracy_vs_batch"))
        self.assertEqual(self.rows("accuracy_vs_batch", kind="mean", strategy="frozen")[0]["outcome"], "3 oom")
        self.assertIn("; 3 failed (×); 3 missing.", self.caption("accuracy_vs_batch"))

    def test_the_batch_population_is_drawn_where_recorded(self):
        self.draw(self.cells(sync_8={"others": {"batch": (0.9,) * 3}}))
        self.assertEqual({row["strategy"] for row in self.rows("accuracy_vs_batch", population="batch")}, {"sync", "none"})
        self.assertEqual(*({row["value"] for row in self.rows("accuracy_vs_batch", strategy="none", population=name)} for name in ("saved", "batch")))

    def test_only_without_running_statistics_is_one_score_that_of_every_panel(self):
        made = self.cells(sync_8={"others": {"batch": (0.9,) * 3}}, sync_2={"others": {"batch": (0.9,) * 3}})
        made += [cell("averaged", 8, 2), cell("averaged", 2, 8), cell("frozen", 8, 2, (), failures={0: "oom"})]
        for each in made:
            each["populations"] = ["saved"] if each["strategy"] == "averaged" else ["saved", "batch"]
        self.draw(made)
        self.assertEqual({row["strategy"] for row in self.rows("accuracy_vs_batch", population="saved")},
                         {"sync", "none", "averaged", "frozen"})
        self.assertEqual({row["strategy"] for row in self.rows("accuracy_vs_batch", population="batch")}, {"sync", "none", "frozen"})
        self.assertEqual(*({row["value"] for row in self.rows("accuracy_vs_batch", strategy="none", population=name)} for name in ("saved", "batch")))

    def test_a_cell_without_saved_statistics_is_not_ranked(self):
        printed = self.draw(self.cells() + [not_saved(cell("averaged", 8, 2, others={"precise": (0.9,)}))])
        self.assertIn("With 2 images per GPU sync reaches mean IoU 0.60; with 8 images 0.60.", printed)

    def test_even_and_uneven_towers_of_one_mean_are_no_line(self):
        printed = self.draw(self.cells() + [cell("sync", 8, [1, 3] * 4)])
        self.assertIn("not drawn, the towers, or how even their batches are, vary at one batch size", printed)

    def test_one_batch_size_is_no_line(self):
        printed = self.draw([cell()])
        self.assertIn("accuracy_vs_batch: not drawn, only one batch size", printed)
        self.assertFalse((self.out / "accuracy_vs_batch.svg").exists())


class ThroughputVsAccuracy(FiguresCase):
    figures = (throughput_vs_accuracy,)

    @staticmethod
    def timed(strategy, speed, score, half_width=0.04, **about):
        """`half_width`: of the score, and of the speed a hundred times as much."""
        return cell(strategy, 2, 2, (score,) * 2, half_width, images_per_s=(speed,) * 2, speed_half_width=half_width and 100 * half_width,
                    **{"towers_per_rank": 1, **about})

    def standings(self):
        return {row["strategy"]: row["standing"] for row in self.rows("throughput_vs_accuracy")}

    def test_the_front_is_that_of_the_real_runs(self):
        # An emulated run that is better in both values stands on no front and keeps no real run off it.
        self.draw([self.timed("sync", 30, 0.7), self.timed("group_norm", 40, 0.6), self.timed("per_tower", 35, 0.5),
                   self.timed("none", 50, 0.4), self.timed("shuffle", 90, 0.9, towers_per_rank=4)])
        self.assertEqual(self.standings(), {"sync": "front", "group_norm": "front", "per_tower": "undecided", "none": "front", "shuffle": ""})
        self.assertEqual([row["strategy"] for row in self.rows("throughput_vs_accuracy", kind="emulated")], ["shuffle"])
        self.assertIn("; plus signs: emulated", self.caption("throughput_vs_accuracy"))

    def test_intervals_decide_who_is_on_the_front(self):
        for half_width, standings in ((0.001, ("front", "front", "beaten")), (0.03, ("undecided", "front", "undecided")), (None, ("undecided",) * 3)):
            self.draw([self.timed("sync", 30, 0.65, half_width), self.timed("group_norm", 40, 0.6, half_width), self.timed("per_tower", 35, 0.5, half_width)])
            self.assertEqual(self.standings(), dict(zip(("sync", "group_norm", "per_tower"), standings)), half_width)

    def test_each_world_size_has_its_own_front(self):
        self.draw([cell("sync", ranks, 2, images_per_s=(20 * ranks,), ranks=ranks, towers_per_rank=1) for ranks in (2, 4)])
        self.assertEqual([row["standing"] for row in self.rows("throughput_vs_accuracy")], ["front", "front"])

    def test_a_single_rank_is_on_no_front(self):
        self.draw([cell("sync", 1, 8, ranks=1, towers_per_rank=1)])
        self.assertEqual(self.rows("throughput_vs_accuracy")[0]["standing"], "")

    def test_runs_side_by_side_show_no_throughput(self):
        self.draw([cell("sync", 2, 2, towers_per_rank=1), cell("none", 2, 2, towers_per_rank=1, beside_others=True)])
        self.assertEqual([row["strategy"] for row in self.rows("throughput_vs_accuracy")], ["sync"])
        self.assertIn("; 1 left out that shared the machine", self.caption("throughput_vs_accuracy"))

    def test_nothing_but_runs_side_by_side_is_no_figure(self):
        self.assertIn("throughput_vs_accuracy: not drawn, all 1 runs shared", self.draw([cell(beside_others=True)]))

    def test_bars_both_ways(self):
        self.draw([cell("sync", 2, 2, (0.5, 0.6, 0.7), 0.25, images_per_s=(30, 40, 50), speed_half_width=24.8,
                        towers_per_rank=1)])
        row, = self.rows("throughput_vs_accuracy")
        self.assertAlmostEqual(float(row["images_per_s"]), 40, places=12)
        self.assertEqual((row["images_per_s_half_width"], row["accuracy_half_width"]), ("24.8", "0.25"))

    def test_bars_of_so_many_seeds_each_are_said_where_they_differ(self):
        self.draw([cell("sync", 2, 2, (0.5,) * 9, images_per_s=(30, 40), speed_half_width=24.8, towers_per_rank=1)])
        caption = self.caption("throughput_vs_accuracy")
        self.assertIn("; bars: 95 % t intervals; n = 9 seeds", caption)
        self.assertIn("; images/s: n = 2 seeds.", caption)
        self.draw([cell("sync", 2, 2, (0.5,) * 9, images_per_s=(30,) * 9, towers_per_rank=1)])
        self.assertNotIn("; images/s: n", self.caption("throughput_vs_accuracy"))

    def test_the_run_beside_is_named_as_the_report_names_it(self):
        for besides, label in ((("per_tower",) * 2, "per_tower beside = 1"), ((None,) * 2, "the run beside = 1"),
                               (("per_tower", "sync"), "the run beside = 1"), ((), "averaged beside = 1")):
            made = [cell(strategy, 2, 2, towers_per_rank=1) for strategy in ("sync", "averaged")]
            for each in made:
                each["rows"][0]["log_images_per_s"] = quantity([-0.1])
            for each, beside in zip(made, besides):
                each["rows"][0]["beside"] = beside
            self.draw(made, baseline="averaged")
            self.assertIn(f"images/s, {label}", self.texts("throughput_vs_accuracy"))

    def test_failed_runs_are_noted(self):
        self.draw([cell("sync", 2, 2, towers_per_rank=1),
                   cell("frozen", 2, 2, (), failures={0: "timeout"}, towers_per_rank=1)])
        self.assertIn("frozen 2x2: 1 timeout", self.caption("throughput_vs_accuracy"))
        self.assertEqual(self.rows("throughput_vs_accuracy", strategy="frozen")[0]["kind"], "failed or missing")

    def test_many_points_are_numbered_and_listed(self):
        labels = [f"sync(group_size={size})" for size in range(1, 31)]
        self.draw([cell(label, 2, 2, (0.3 + 0.01 * k,), images_per_s=(30 + k,), towers_per_rank=1)
                   for k, label in enumerate(labels)])
        caption = self.caption("throughput_vs_accuracy")
        self.assertIn("30  sync(group_size=9):  38.0, 0.380", caption)  # labels sort as texts
        self.assertIn(" 30 ", caption)


class AccuracyByPopulation(FiguresCase):
    figures = (accuracy_by_population,)

    @staticmethod
    def cells():
        return [cell(strategy, saved=[score - fall for score in (0.5, 0.6, 0.7)], conditions={"shards": shards},
                     others={"tower:3": (0.4,) * 3, "precise": (0.7,) * 3} if strategy == "sync" else None)
                for strategy in ("sync", "none") for shards, fall in (("iid", 0), ("sorted:class", 0.2))]

    def test_shards_stand_side_by_side_in_one_figure(self):
        self.draw(self.cells())
        self.assertEqual([file.name for file in self.out.glob("*.csv")], ["accuracy_by_population.csv"])
        self.assertIn("8x2, sorted:class shards", self.caption("accuracy_by_population"))
        means = {row["shards"]: float(row["value"])
                 for row in self.rows("accuracy_by_population", strategy="none", population="saved")}
        self.assertAlmostEqual(means["iid"], 0.6, places=12)
        self.assertAlmostEqual(means["sorted:class"], 0.4, places=12)

    def test_populations_are_told_apart_and_one_that_a_strategy_lacks_is_no_failure(self):
        self.draw(self.cells())
        rows = self.rows("accuracy_by_population", shards="iid")
        self.assertEqual([(row["strategy"], row["population"]) for row in rows],
                         [("sync", "saved"), ("sync", "tower:3"), ("sync", "precise"), ("none", "saved")])
        self.assertEqual({row["failed"] for row in rows}, {"0"})
        self.assertEqual(rows[0]["half_width"], "0.25")
        self.assertLessEqual({"saved", "GPU 3", "recomputed"}, set(self.texts("accuracy_by_population")))

    def test_panels_with_few_strategies_in_common_have_rows_of_their_own(self):
        everywhere = [cell("sync", *grouping, others={"precise": (0.7,)}) for grouping in ((8, 2), (16, 1), (4, 4))]
        at_two = [cell(strategy) for strategy in ("per_tower", "averaged", "none")]
        self.draw(everywhere + at_two)
        self.assertEqual([self.texts("accuracy_by_population").count(label) for label in ("sync", "averaged")], [3, 1])
        self.draw(everywhere + at_two[:1])
        self.assertEqual([self.texts("accuracy_by_population").count(label) for label in ("sync", "per_tower")], [1, 1])

    def test_each_population_has_room(self):
        heights = []
        for count in (1, 2, 3):
            self.draw([cell("sync", others={f"tower:{tower}": (0.5,) for tower in range(count)})], "--bare")
            heights.append(float(self.svg("accuracy_by_population").split('height="')[1].split("pt")[0]))
        self.assertGreater(heights[1] - heights[0], 3)  # points
        self.assertAlmostEqual(heights[2] - heights[1], heights[1] - heights[0], places=3)

    def test_failed_runs_are_said(self):
        self.draw(self.cells() + [cell("frozen", saved=(), failures={0: "oom"}, missing=(1, 2), conditions={"shards": "iid"})])
        self.assertIn("1 oom", self.caption("accuracy_by_population"))
        self.assertIn("; 1 failed (×); 2 missing.", self.caption("accuracy_by_population"))

    def test_one_population_is_no_comparison(self):
        self.assertIn("not drawn, only one population", self.draw([cell()]))


class TrainingCurves(FiguresCase):
    figures = (training_curves,)

    def test_mean_and_band_are_those_of_the_report(self):
        self.draw([cell(saved=(0.5, 0.6), curves={"train_loss": curve([(10, 2, 1.5, 1, 2), (20, 2, 0.5, 0.25, 0.75)]),
                                                  "gradient_norm": curve([(10, 2, 8.0, 7, 9), (20, 2, 0.5, 0.4, 0.6)]),
                                                  "mean_iou": curve([(10, 2, 0.35, 0.3, 0.4), (20, 2, 0.55, 0.5, 0.6)])})])
        first = self.rows("training_curves", quantity="train loss")[0]
        self.assertEqual([first[key] for key in ("step", "n", "value", "low", "high")], ["10", "2", "1.5", "1", "2"])
        self.assertEqual([row["value"] for row in self.rows("training_curves", quantity="gradient norm")], ["8.0", "0.5"])
        self.assertEqual([row["value"] for row in self.rows("training_curves", quantity="mean IoU")], ["0.35", "0.55"])
        self.assertIn("The mean IoU ends at 0.550 with sync (8x2)", self.caption("training_curves"))

    def test_gradient_norms_have_labels_between_the_powers_of_ten_where_these_are_few(self):
        for low, labels in ((0.4, {"0.5", "1", "2", "5"}), (0.001, {"0.01", "0.1", "1"})):
            self.draw([cell(curves={"gradient_norm": curve([(10, 1, low, low, low), (20, 1, 6.0, 6.0, 6.0)])})])
            texts = {piece.split("</text>")[0].split(">", 1)[-1] for piece in self.svg("training_curves").split("<text ")[1:]}
            self.assertLessEqual(labels, texts)
            self.assertEqual("0.5" in texts, low == 0.4)

    def test_a_failed_run_is_drawn_apart_from_the_mean(self):
        self.draw([cell(failures={1: "diverged"}, curves={
            "train_loss": curve([(10, 1, 1.5, 1.5, 1.5)], [(1, "diverged", {10: 3.0, 20: 9.0})])})])
        self.assertEqual({row["n"] for row in self.rows("training_curves", kind="mean")}, {"1"})
        self.assertEqual({row["seed"] for row in self.rows("training_curves", kind="failed run")}, {"1"})
        self.assertIn("1 diverged", self.caption("training_curves"))

    def test_where_weights_were_selected_the_curve_is_that_of_validation(self):
        self.draw([cell(curves={"train_loss": curve([(10, 1, 2.0, 2.0, 2.0), (20, 1, 1.5, 1.5, 1.5)]),
                                "validation.mean_iou": curve([(10, 1, 0.3, 0.3, 0.3), (20, 1, 0.4, 0.4, 0.4)])})])
        self.assertEqual([row["value"] for row in self.rows("training_curves", quantity="mean IoU in validation")], ["0.3", "0.4"])
        self.assertIn("The mean IoU in validation ends at 0.400 with sync (8x2)", self.caption("training_curves"))

    def test_a_metric_of_a_single_evaluation_has_no_panel(self):
        curves = {"train_loss": curve([(10, 1, 2.0, 2.0, 2.0), (20, 1, 1.5, 1.5, 1.5)]),
                  "mean_iou": curve([(20, 1, 0.5, 0.5, 0.5)])}
        self.draw([cell(curves=curves)])
        self.assertEqual({row["quantity"] for row in self.rows("training_curves")}, {"train loss"})
        self.assertNotIn("mean IoU", self.caption("training_curves"))
        del curves["train_loss"]
        self.assertIn("no run has logged a curve", self.draw([cell(curves=curves)]))


class Matrix(FiguresCase):
    figures = (matrix,)

    CELLS = [cell(strategy, batch=batch, saved=(0.4 + 0.01 * batch,), conditions={"optimizer.lr": rate})
             for strategy in ("sync", "none") for batch in (2, 4) for rate in ("0.1", "0.3")]

    def test_every_condition_is_a_column(self):
        self.assertIn("to 0.440 (none, 8x4, optimizer.lr = 0.3).", self.draw(self.CELLS))
        self.assertEqual(len(self.rows("matrix", strategy="sync")), 4)
        for title in ("lr 0.1", "lr 0.3", "8x2", "8x4"):
            self.assertEqual(self.texts("matrix").count(title), 2, title)

    def test_rows_are_sorted_by_value_and_by_what_they_exchange(self):
        cells = [cell(strategy, batch=batch, saved=(value,)) for strategy, value in (("none", 0.3), ("sync", 0.6), ("shuffle", 0.2), ("layer_norm", 0.7))
                 for batch in (2, 4)]
        for each in cells:
            each["rows"][0]["collectives_per_step"] = quantity({0: 4.0 if each["strategy"] in ("sync", "shuffle") else 0.0})
        self.draw(cells)
        wanted = ["sync (over all GPUs)", "shuffle", "layer_norm", "none (no norm)"]
        self.assertEqual([text for text in self.texts("matrix") if text in wanted], wanted)

    def test_what_does_not_know_the_towers_has_one_field_over_all_of_them(self):
        batch = {"batch": (0.5,)}
        with mock.patch.object(matrix, "Rectangle", wraps=matrix.Rectangle) as fields:
            self.draw([cell("sync", batch=size, others=batch) for size in (1, 2, 4)] + [cell("none", batch=2, saved=(0.123,))])
        self.assertEqual([call.args[1] for call in fields.call_args_list], [1, 1, 1, 3])
        self.assertEqual(self.texts("matrix").count("0.123"), 1)

    def test_failed_and_missing_runs_stand_in_their_fields(self):
        self.draw([cell("sync", batch=2), cell("sync", batch=4, saved=(), failures={0: "crashed"}),
                   cell("none", batch=2, missing=(1,)), cell("none", batch=4, saved=(), missing=(0, 1))])
        for text in ("× 1 crashed", "1 missing", "2 missing"):
            self.assertIn(text, self.caption("matrix"))
        self.assertIn("<pattern", self.svg("matrix"))  # the hatching of fields without a run that ended well

    def test_a_single_line_is_no_matrix(self):
        self.assertIn("a single line", self.draw([cell(batch=2), cell(batch=4)]))


class Memory(FiguresCase):
    figures = (memory,)

    def test_bars_are_means_over_seeds_of_the_busiest_rank(self):
        self.draw([cell(saved=(0.5, 0.6), peak=(300, 500))])
        row, = self.rows("memory", kind="tensors")
        self.assertEqual([float(row[key]) for key in ("mean_bytes", "low_bytes", "high_bytes")], [400, 300, 500])
        self.assertEqual(float(self.rows("memory", kind="process")[0]["mean_bytes"]), 5 << 20)

    def test_a_strategy_that_ran_out_of_memory_is_shown(self):
        self.draw([cell("sync"), cell("none", saved=(), failures={0: "oom"})])
        self.assertEqual(self.rows("memory", kind="tensors", strategy="none")[0]["outcome"], "1 oom")
        self.assertIn("1 oom", self.caption("memory"))


class MemoryPrice(FiguresCase):
    figures = (memory_price,)

    def test_every_way_to_save_memory_has_its_bytes_its_time_and_its_exchanges(self):
        ways = [cell(strategy, towers=1, batch=16, ranks=1, towers_per_rank=1, peak={0: peak << 20}, images_per_s={0: rate},
                     conditions={"accumulate": passes, "recompute": recomputed})
                for strategy in ("per_tower", "sync")
                for passes, recomputed, peak, rate in (("1", "none", 200, 100.0), ("8", "none", 50, 80.0), ("1", "blocks", 100, 50.0))]
        self.draw(ways)
        peaks = [(row["way"], float(row["value"])) for row in self.rows("memory_price", quantity="peak of tensors (MiB)", strategy="sync")]
        self.assertEqual(dict(peaks), {"1x16, plain": 200, "1x16, 8 passes": 50, "1x16, recompute blocks": 100})
        times = {row["way"]: float(row["value"]) for row in self.rows("memory_price", quantity="time per image (ms)", strategy="sync")}
        self.assertEqual(times, {"1x16, plain": 10, "1x16, 8 passes": 12.5, "1x16, recompute blocks": 20})
        self.assertFalse(self.rows("memory_price", quantity="exchanges per step"))  # not recorded in these

    def test_a_way_of_several_placements_is_named_with_each(self):
        made = [cell("sync", 2, 8, ranks=ranks, towers_per_rank=2 // ranks, conditions={"accumulate": passes})
                for ranks in (1, 2) for passes in ("1", "8")]
        self.draw(made + [cell("sync", 1, 2, ranks=1, towers_per_rank=1)])
        ways = {"2x8, plain, 1x2-cpu", "2x8, plain, 2x1-cpu", "2x8, 8 passes, 1x2-cpu", "2x8, 8 passes, 2x1-cpu", "1x2, plain"}
        self.assertEqual({row["way"] for row in self.rows("memory_price")}, ways)
        self.assertLessEqual(ways, set(self.texts("memory_price")))

    def test_one_way_is_no_comparison(self):
        self.assertIn("accumulate and recompute alike", self.draw([cell()]))


class Files(FiguresCase):
    curves = {"train_loss": curve([(10, 2, 1.5, 1, 2), (20, 2, 0.5, 0.25, 0.75)])}

    def test_two_runs_give_identical_bytes(self):
        made = [cell(strategy, towers, batch, (0.5, 0.51), towers_per_rank=each, others={"batch": (0.6, 0.6)},
                     curves=self.curves)
                for strategy in ("sync", "none", "my_norm") for towers, batch, each in ((2, 8, 1), (8, 2, 4))]
        again = Path(self.folder.name) / "again"
        self.draw(made, "--png")
        self.draw(made, "--png", out=again)
        names = sorted(file.name for file in self.out.iterdir())
        self.assertEqual(len(names), 18)  # 6 figures, each as SVG, PNG and CSV, as --png asks
        for name in names:
            self.assertEqual((self.out / name).read_bytes(), (again / name).read_bytes(), name)
            self.assertNotIn(b"<dc:date>", (self.out / name).read_bytes(), name)

    def test_a_bare_page_has_neither_title_nor_caption_and_is_a_pdf_too(self):
        cells = [cell(strategy, batch=batch) for strategy in ("sync", "none") for batch in (2, 8)]
        self.figures = (accuracy_vs_batch,)
        for options, bare in (((), False), (("--bare",), True)):
            self.draw(cells, *options, out=self.out / str(bare))
            svg = (self.out / str(bare) / "accuracy_vs_batch.svg").read_text(encoding="utf-8").split("</metadata>")[1]
            for text in ("per GPU sync reaches mean IoU", "synthetic;"):
                self.assertEqual(text in svg, not bare)
            self.assertIn("images per GPU", svg)
            pdf = self.out / str(bare) / "accuracy_vs_batch.pdf"
            self.assertEqual(pdf.exists() and pdf.read_bytes()[:5] == b"%PDF-", bare)

    def test_a_strategy_keeps_its_colour_in_every_figure(self):
        self.draw([cell("sync", towers, batch, (0.5, 0.6), towers_per_rank=1, curves=self.curves)
                   for towers, batch in ((2, 8), (2, 4))])
        for name in ("accuracy_vs_batch", "throughput_vs_accuracy", "training_curves", "memory"):
            self.assertIn(style.BLUE.lower(), self.svg(name), name)
            self.assertNotIn(style.ORANGE.lower(), self.svg(name), name)

    def test_what_a_batch_counts_is_named(self):
        self.draw([cell(strategy, towers, 4, (0.5, 0.6), towers_per_rank=1, curves=self.curves, others={"batch": (0.6, 0.6)},
                        conditions={"recompute": recomputed}) for strategy in ("sync", "none") for towers in (2, 4) for recomputed in ("none", "blocks")],
                  samples="clips")
        captions = {file.stem: self.caption(file.stem) for file in self.out.glob("*.svg")}
        for figure in (matrix, memory, memory_price, throughput_vs_accuracy):
            drawn = [caption for name, caption in captions.items() if name.startswith(figure.__name__)]
            self.assertTrue(drawn and all("clips per GPU" in caption for caption in drawn), figure.__name__)
        self.assertFalse([name for name, caption in captions.items() if "images per GPU" in caption])

    def test_an_experiment_without_a_result_says_so(self):
        printed = self.draw([cell(saved=(), failures={0: "crashed"})])
        self.assertEqual(self.status, 0)
        self.assertEqual(printed.count("not drawn"), len(self.figures))


if __name__ == "__main__":
    unittest.main(verbosity=1)
