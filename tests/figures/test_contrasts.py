"""The forest plot of the declared comparisons. Run by test_figures.py."""

import io
import json
from pathlib import Path

from figures_case import FiguresCase  # first: it says where the modules of the figures are

import contrasts
import report as reports
from synthetic import cell, contrast, quantity, report


class Contrasts(FiguresCase):
    figures = (contrasts,)
    SIX = (0.05, 0.06, 0.07, 0.05, 0.06, 0.07)
    CELLS = [cell(strategy) for strategy in ("per_tower", "sync", "group_norm(groups=4)")]

    def draw_contrasts(self, *made, cells=None, options=(), **about):
        return self.draw(cells or self.CELLS, *options, contrasts=made, **about)

    def test_a_row_holds_mean_interval_verdict_and_every_seed(self):
        printed = self.draw_contrasts(contrast(self.SIX, verdict="better", equivalence_margin=0.02))
        row, = self.rows("contrasts", kind="mean")
        self.assertAlmostEqual(float(row["value"]), 0.06, places=12)
        self.assertEqual([row[key] for key in ("contrast", "at", "half_width", "n", "verdict", "margin")],
                         ["sync - per_tower", "8x2", "0.01", "6", "better", "0.02"])
        self.assertEqual([float(seed["value"]) for seed in self.rows("contrasts", kind="seed")], list(self.SIX))
        caption = self.caption("contrasts")
        for text in ("+6.0 ± 1.0   better, n = 6", "difference of mean IoU (points)"):
            self.assertIn(text, caption)
        self.assertIn(contrasts._MARGIN, self.svg("contrasts"))
        self.assertIn("sync is 6.0 ± 1.0 points of mean IoU above per_tower at 8x2: better.", printed)

    def test_differences_of_times_stand_beside_their_noise(self):
        cells = [cell(strategy) for strategy in ("per_tower", "sync")]
        cells[0]["rows"][0]["same_log_images_per_s"] = quantity([0.004, -0.012])
        cells[1]["rows"][0]["same_log_images_per_s"] = quantity([0.02, -0.02])  # they stand beside each other in the mean
        self.draw_contrasts(contrast(self.SIX, metric="log_images_per_s"), cells=cells)
        caption = self.caption("contrasts")
        self.assertIn("+6.0 ± 1.0", caption)
        self.assertIn("two copies of a run", caption)
        self.assertAlmostEqual(contrasts._noise(reports.read(io.StringIO(json.dumps(report(cells)))).cells), 0.004)
        self.draw_contrasts(contrast(self.SIX))
        self.assertNotIn("two copies", self.caption("contrasts"))

    def test_conditions_and_statistics_tell_comparisons_apart(self):
        cells = [cell("per_tower", conditions={"shards": shards}) for shards in ("iid", "sorted:class")]
        self.draw_contrasts(*(contrast(self.SIX, at=each["group"], strategy="per_tower", population="mean",
                                       above_population="tower:0") for each in self.named(cells)), cells=cells)
        self.assertEqual([file.name for file in self.out.glob("*.csv")], ["contrasts.csv"])
        self.assertEqual([(row["contrast"], row["at"]) for row in self.rows("contrasts", kind="mean")],
                         [("per_tower [mean - tower:0]", f"8x2, shards {shards}") for shards in ("iid", "sorted:class")])
        self.assertEqual(self.caption("contrasts").count("per_tower (mean over the GPUs - GPU 0)"), 1)  # one heading for both rows
        self.draw_contrasts(contrast(self.SIX, population="mean"))
        self.assertIn("sync (mean over the GPUs) - per_tower (mean over the GPUs)", self.caption("contrasts"))

    def test_neighbours_stand_under_what_they_have_in_common(self):
        at_two = [contrast(self.SIX, at="8x2", above=above) for above in ("per_tower", "shuffle", "averaged")]
        elsewhere = [contrast(self.SIX, at=at, above="group_norm(groups=4)") for at in ("16x1", "4x4")]
        cells = [cell(strategy, *grouping) for grouping in ((8, 2), (16, 1), (4, 4))
                 for strategy in ("sync", "per_tower", "shuffle", "averaged", "group_norm(groups=4)")]
        self.draw_contrasts(*at_two, *elsewhere, cells=cells)
        wanted = ["8x2: 2 images per GPU", "sync - group_norm", *(f"sync - {above}" for above in ("per_tower", "shuffle", "averaged")),
                  "16x1: 1 image per GPU", "4x4: 4 images per GPU"]  # the headings, and then the rows below them
        self.assertEqual([text for text in self.texts("contrasts") if text in wanted], wanted)

    @staticmethod
    def named(cells):
        for each in cells:
            each["group"] = "shards=" + each["conditions"]["shards"]
        return cells

    def test_what_sets_no_group_apart_is_named_as_declared(self):
        made = contrast(self.SIX)
        made["declared"]["at"] = {"towers": 8, "placement.exchange": "sockets"}
        self.draw_contrasts(made)
        self.assertEqual(self.rows("contrasts", kind="mean")[0]["at"], "8x2, exchange sockets")

    def test_runs_that_differ_in_other_keys_are_named_by_them(self):
        made = contrast(self.SIX, at="gradient_route=reducer, sync, 2x1-cpu", strategy="sync", above="sync")
        made["sides"] = ["average_weights_every: 4", "none"]
        self.draw_contrasts(made)
        row, = self.rows("contrasts", kind="mean")
        self.assertEqual([row["contrast"], row["at"]],
                         ["average_weights_every: 4 - none", "gradient_route reducer, sync, 2x1-cpu"])

    def test_numbers_stand_in_a_column_over_all_metrics_and_zero_has_no_minus(self):
        self.draw_contrasts(contrast((-0.0001,) * 6, 0.001), contrast((-12.0,) * 6, 1.0, metric="images_per_s"))
        for text in ("\u2007+0.0 ± 0.1   undecided", "−12.0 ± 1.0   undecided"):
            self.assertIn(text, self.caption("contrasts"))

    def test_runs_that_failed_or_lack_are_counted(self):
        self.draw_contrasts(contrast(self.SIX), cells=[*self.CELLS, cell("none", failures={1: "oom"})])
        self.assertIn("; 1 failed (×).", self.caption("contrasts"))
        self.draw_contrasts(contrast(self.SIX), cells=[*self.CELLS, cell("none", failures={1: "oom"}, missing=(2, 3))])
        self.assertIn("; 1 failed (×); 2 missing.", self.caption("contrasts"))

    def test_metrics_never_share_an_axis(self):
        self.draw_contrasts(contrast(self.SIX), contrast((5.0, 7.0), 1.0, metric="images_per_s"),
                            contrast((3 << 20,), None, metric="peak_memory_bytes"))
        for axis in ("difference of mean IoU (points)", "difference of images/s", "peak memory of tensors (MiB)",
                     "+6.0 ± 1.0", "+3.0"):
            self.assertIn(axis, self.caption("contrasts"))
        self.assertEqual(self.caption("contrasts").count("undecided, n ="), 3)

    def test_a_cost_of_several_placements_is_a_row_of_each(self):
        for group, within in (("8x2", "8x2, "), ("all", "")):
            cells = [cell("sync") | {"group": group}]
            cells[0]["rows"] *= 2
            cells[0]["rows"][1] = cells[0]["rows"][0] | {"placement": "2x4-cpu-sockets"}
            self.draw_contrasts(*(contrast(self.SIX, at=within + placement, metric="images_per_s")
                                  for placement in ("2x4-cpu", "2x4-cpu-sockets")), cells=cells)
            self.assertEqual([row["at"] for row in self.rows("contrasts", kind="mean")],
                             ["8x2, as 2x4-cpu", "8x2, as 2x4-cpu-sockets"])

    def test_fewer_than_six_seeds_are_hollow_and_called_a_direction(self):
        self.draw_contrasts(contrast(self.SIX[:3], verdict="direction: above"))
        self.assertIn("fewer than 6: a direction, no verdict", self.caption("contrasts"))
        few = self.svg("contrasts").count("fill: #ffffff")
        self.draw_contrasts(contrast(self.SIX))
        self.assertNotIn("a direction", self.caption("contrasts"))
        self.assertEqual(self.svg("contrasts").count("fill: #ffffff"), few - 1)

    def test_comparisons_without_data_are_left_out_and_counted(self):
        self.draw_contrasts(contrast(self.SIX), contrast((), at="{}", above="group_norm(groups=4)"))
        self.assertIn("1 without a pair of finished runs", self.caption("contrasts"))
        self.assertEqual(self.caption("contrasts").count("group_norm"), 0)
        self.assertEqual(self.rows("contrasts", contrast="sync - group_norm(groups=4)")[0]["n"], "0")

    def test_the_page_says_whether_all_were_declared_beforehand(self):
        self.draw_contrasts(contrast(self.SIX))
        self.assertIn("; declared before the first run.", self.caption("contrasts"))
        self.draw_contrasts(contrast(self.SIX), declared="1 of them declared after runs had finished")
        self.assertIn("; 1 of them declared after runs had finished.", self.caption("contrasts"))

    def test_a_row_keeps_its_height_however_many_there_are(self):
        heights = []
        for count in (2, 5, 8, 70):
            cells = [cell("sync", towers) for towers in range(1, count + 1)]
            self.draw_contrasts(*(contrast(self.SIX, at=each["group"]) for each in cells), cells=cells)
            heights.append(float(self.svg("contrasts").split('height="')[1].split("pt")[0]))
        self.assertGreater(heights[1] - heights[0], 3 * 10)  # points; letters are about seven high
        self.assertAlmostEqual(heights[2] - heights[1], heights[1] - heights[0], places=3)
        self.assertEqual(heights[3], heights[2], "no more than eight are shown")
        self.assertEqual(len(self.rows("contrasts", kind="mean")), 70)
        self.assertIn("8 of 70 comparisons", self.caption("contrasts"))

    def test_what_the_page_rests_on_is_shown_first_and_is_the_title(self):
        self.out.parent.mkdir(exist_ok=True)
        Path(self.out.parent, "README.md").write_text("Rests on `sync - per_tower at 12x2, mean_iou saved`.", encoding="utf-8")
        cells = [cell(strategy, towers) for strategy in ("sync", "per_tower") for towers in range(2, 13)]
        self.draw_contrasts(*(contrast(self.SIX, at=each["group"]) for each in cells[:11]), cells=cells)
        self.assertIn("above per_tower at 12x2: undecided", self.caption("contrasts"))
        self.assertIn("12x2: 2 images per GPU", self.texts("contrasts"))
        self.assertNotIn("9x2: 2 images per GPU", self.texts("contrasts"))

    def test_a_page_that_shows_the_figure_gives_it_its_title(self):
        self.out.parent.mkdir(exist_ok=True)
        for shown in ("contrasts", "matrix"):
            Path(self.out.parent, "README.md").write_text(f"# x\n![Sync wins](figures/{shown}.png)\n", encoding="utf-8")
            printed = self.draw_contrasts(contrast(self.SIX))
            self.assertEqual("Sync wins" in self.texts("contrasts"), shown == "contrasts")
            self.assertIn("sync is 6.0 ± 1.0 points of mean IoU above per_tower", printed)

    def test_a_strategy_that_is_not_drawn_leaves_its_comparisons_out(self):
        self.draw_contrasts(contrast(self.SIX), contrast(self.SIX, above="group_norm(groups=4)"),
                            options=("--strategies", "sync", "per_tower"))
        self.assertEqual({row["contrast"] for row in self.rows("contrasts")}, {"sync - per_tower"})

    def test_nothing_declared_or_nothing_finished_is_no_figure(self):
        self.assertIn("not drawn, the spec declares no comparison", self.draw_contrasts())
        self.assertIn("none of 1 declared comparisons has a pair", self.draw_contrasts(contrast(())))
