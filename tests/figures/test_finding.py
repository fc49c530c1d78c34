"""The last line of scripts/run.sh. Run by test_figures.py."""

import io
import json
import unittest

import plot  # first: it says where the modules of the figures are

import finding
import report as reports
from synthetic import cell, curve, report


def read(name, steps, *scores):
    curves = {"mean_iou": curve([(steps, 2, 0.5, 0.4, 0.6)])}
    cells = [cell(strategy, towers, batch, (score,) * 2, curves=curves)
             for (strategy, towers, batch), score in zip((("per_tower", 16, 1), ("per_tower", 8, 2), ("sync", 16, 1), ("sync", 8, 2),
                                                          ("group_norm(groups=4)", 8, 2)), scores)]
    return reports.read(io.StringIO(json.dumps(report(cells, name=name))))


class Finding(unittest.TestCase):
    TRAINED = read("trained", 3200, 0.206, 0.44, 0.748, 0.747, 0.746)

    def test_one_line_says_what_was_found_where_trained_networks_stand_and_where_the_picture_is(self):
        self.assertEqual(finding.sentence(read("now", 300, 0.1, 0.9, 0.5, 0.9, 0.6), self.TRAINED, "here/sheet.png"),
                         "With one image per GPU, after 300 steps: per_tower 0.10, sync 0.50, group_norm 0.60 (mean IoU). "
                         "Trained for 3200 steps they reach 0.21, 0.75, 0.75. Picture: here/sheet.png")

    def test_a_strategy_without_a_run_that_ended_well_is_named(self):
        with self.assertRaisesRegex(reports.ReportError, "now has no number of group_norm with one image per tower"):
            finding.sentence(read("now", 300, 0.1, 0.9, 0.5, 0.9), self.TRAINED, "")


if __name__ == "__main__":
    unittest.main()
