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


def timed(strategy, first, second):
    """A cell whose images/s in % of the run beside it are these, by seed: of seeds 0, 1, ... and 10, 11, ..."""
    made = synthetic.cell(strategy=strategy)
    values = {start + k: math.log(value / 100) for start, half in ((0, first), (10, second)) for k, value in enumerate(half)}
    made["rows"][0]["log_images_per_s"] = synthetic.quantity(values)
    return made


class Occasions(unittest.TestCase):
    def setUp(self):
        cells = [timed("sync", [50, 50, 50], [51, 51.5, 51]), timed("shuffle", [50, 50, 50], [52, 52, 52]),
                 timed("per_tower", [85, 90, 95], [80, 81]), timed("averaged", [90, 91], [90]), synthetic.cell(strategy="none")]
        report = reports.read(io.StringIO(json.dumps(synthetic.report(cells, name="one"))))
        self.cells = list(occasions.cells_of(report, {10, 11, 12}))

    def test_cells_are_counted_by_points_and_by_intervals(self):
        self.assertEqual([cell.name.split(",")[0] for cell in self.cells], ["per_tower", "sync", "shuffle"])
        self.assertIn("| [one](../one/README.md) | 3 | 2 | 1 | 2.0 | 9.4 |", occasions.markdown(self.cells))

    def test_an_interval_is_that_of_the_t_distribution(self):
        wide = self.cells[0]
        self.assertAlmostEqual(wide.first, 100 * math.exp((math.log(0.85) + math.log(0.9) + math.log(0.95)) / 3))
        self.assertAlmostEqual(wide.first_half / wide.first, 4.303 * 0.05564 / math.sqrt(3), places=3)

    def test_the_figure_says_and_holds_the_same(self):
        style.apply()
        drawing = occasions.draw(self.cells)
        self.assertIn("Of 3 cells 2 differ by at most 3 points", drawing.sentence)
        self.assertEqual([row["overlaps"] for row in drawing.rows], [True, False, False])
