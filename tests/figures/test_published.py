"""Numbers that others have published, beside the measured ones. Run by test_figures.py."""

from figures_case import FiguresCase  # first: it says where the modules of the figures are

import accuracy_by_population
import accuracy_vs_batch
import step_cost
import training_curves
from synthetic import cell, curve, published
from test_step_cost import costing


class PublishedNumbers(FiguresCase):
    figures = (accuracy_by_population, accuracy_vs_batch, step_cost, training_curves)

    def drawn(self, figure):
        return [(row["metric"], float(row["from"]), float(row["to"]), row["source"])
                for row in self.rows(figure, kind="published")]

    def dashes(self, figure):
        """How often each dash of published numbers is in the panels."""
        grey_lines = [line for line in self.svg(figure).split("\n")
                      if all(part in line for part in ("stroke: #555555", "stroke-width: 0.8", "stroke-dasharray"))]
        dashes = [line.split("stroke-dasharray: ")[1].split(";")[0] for line in grey_lines]
        return {dash: dashes.count(dash) for dash in dashes}

    def test_accuracies_are_bands_named_with_their_source(self):
        curves = {"mean_iou": curve([(10, 1, 0.3, 0.3, 0.3), (20, 1, 0.4, 0.4, 0.4)])}
        self.draw([cell(batch=batch, others={"precise": (0.5,)}, curves=curves) for batch in (2, 4)],
                  published=[published("mean_iou", 0.463, 0.5), published("mean_iou", 0.463, 0.5, "8x4 sync"),
                             published("pixel_accuracy", 0.8, 0.8)])
        for figure, panels in (("accuracy_by_population", 2), ("accuracy_vs_batch", 1), ("training_curves", 2)):
            self.assertEqual(self.drawn(figure), [("mean_iou", 0.463, 0.5, "Somebody 2017")], figure)
            self.assertEqual(self.caption(figure).count("published 0.463 to 0.50: Somebody 2017"), 1, figure)
            self.assertEqual(list(self.dashes(figure).values()), [2 * panels], figure)

    def test_those_of_other_statistics_than_the_drawn_ones_are_left_out(self):
        self.draw([cell(batch=batch) for batch in (2, 4)], published=[{**published("mean_iou", 0.463, 0.5), "population": "precise"}])
        self.assertEqual(self.drawn("accuracy_vs_batch"), [])

    def test_they_stand_beside_the_cells_that_they_belong_to(self):
        cells = [cell(batch=batch, conditions={"task.nuisance": level}) for batch in (2, 8) for level in ("0.2", "1.0")]
        for each in cells:
            each["group"] += f", task.nuisance={each['conditions']['task.nuisance']}"
        self.draw(cells, published=[published("mean_iou", 0.7, 0.7, "8x8, task.nuisance=1.0 sync")])
        self.assertEqual(self.drawn("accuracy_vs_batch-task.nuisance_0.2"), [])
        self.assertEqual(self.drawn("accuracy_vs_batch-task.nuisance_1.0"), [("mean_iou", 0.7, 0.7, "Somebody 2017")])

    def test_relative_throughputs_are_lines_in_a_panel_of_their_own(self):
        cells = [costing("per_tower"), costing("sync", [2, 4], 150), costing("sync", [9], sockets=True)]
        self.draw(cells)
        self.assertNotIn("published", self.caption("step_cost"))
        self.draw(cells, published=[published("relative_images_per_s", 0.887, 0.887, "2x2 sync", "1380 against 1556"),
                                    published("relative_images_per_s", 0.7, 0.7, "2x2 sync 2x1-cpu-sockets", "about 30 % slower")])
        self.assertEqual([row[1] for row in self.drawn("step_cost")], [0.887, 0.7])
        for text in ("published 0.887: 1380 against 1556", "published 0.70: about 30 % slower", "images/s, None = 1"):
            self.assertIn(text, self.caption("step_cost"))
        self.assertEqual(list(self.dashes("step_cost").values()), [1, 1])  # each has a dash of its own

    def test_a_number_of_another_strategy_is_not_drawn(self):
        self.draw([costing("per_tower"), costing("sync", [2, 4], 150)],
                  published=[published("relative_images_per_s", 0.9, 0.9, "2x2 shuffle")])
        self.assertEqual(self.drawn("step_cost"), [])
