"""How far times agree between two occasions. Run by test_figures.py."""

import io
import json
import math
import unittest

import figures_case  # noqa: F401  it says where the modules of the figures are

import occasions
import report as reports
import style
import synthetic


def timed(strategy, per_cent, half_width, runs=3):
    """A cell whose images/s are so many % of the run beside it."""
    made = synthetic.cell(strategy=strategy)
    made["rows"][0]["log_images_per_s"] = synthetic.quantity([math.log(per_cent / 100)] * runs, half_width)
    return made


def report(*cells):
    return reports.read(io.StringIO(json.dumps(synthetic.report(list(cells), name="one"))))


class Occasions(unittest.TestCase):
    def setUp(self):
        first = report(timed("sync", 50, 0.02), timed("shuffle", 50, 0.001), timed("per_tower", 90, 0.1), timed("averaged", 90, 0.1),
                       synthetic.cell(strategy="none"))
        second = report(timed("sync", 51, 0.02), timed("shuffle", 52, 0.001), timed("per_tower", 80, 0.1),
                        timed("averaged", 90, None, runs=1), timed("none", 100, 0.1))
        self.cells = list(occasions.cells_of(first, second))

    def test_cells_that_were_timed_on_both_occasions_are_counted_by_points_and_by_intervals(self):
        self.assertEqual(sorted(cell.name.split(",")[0] for cell in self.cells), ["per_tower", "shuffle", "sync"])
        self.assertIn("| [one](../one/README.md) | 3 | 2 | 2 | 2.0 | 10.0 |", occasions.markdown(self.cells))

    def test_an_interval_of_a_logarithm_becomes_one_of_per_cent(self):
        [wide] = [cell for cell in self.cells if cell.name.startswith("per_tower")]
        self.assertAlmostEqual(wide.first_half, 9)
        self.assertAlmostEqual(wide.second_half, 8)

    def test_every_cell_is_counted_once_in_the_way_that_it_exchanges(self):
        style.apply()
        many = [self.cells[0]._replace(name=f"cell{k}" + "-sockets" * (k < 5)) for k in range(13)]
        bars = occasions.draw(many).figure.axes[0].containers
        self.assertEqual([sum(bar.get_height() for bar in group) for group in bars], [8, 5])

    def test_the_figure_says_and_holds_the_same(self):
        style.apply()
        drawing = occasions.draw(self.cells)
        self.assertIn("2 of 3 times differ by at most 3 points", drawing.sentence)
        self.assertEqual({row["name"].split(",")[0]: row["overlaps"] for row in drawing.rows},
                         {"sync": True, "shuffle": False, "per_tower": True})
