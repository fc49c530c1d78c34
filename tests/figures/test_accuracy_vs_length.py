"""The figure of trainings of several lengths against reports made up here. Run by test_figures.py."""

from figures_case import FiguresCase  # first: it says where the modules of the figures are

import accuracy_vs_length
from synthetic import cell, not_saved


class AccuracyVsLength(FiguresCase):
    figures = (accuracy_vs_length,)

    def cells(self, lengths=(300, 1000), **changed):
        return [cell(strategy, towers, 16 // towers, conditions={"steps": str(steps)},
                     **{"saved": (0.5, 0.6, 0.7), "others": {"batch": (0.8,) * 3}, **changed})
                for strategy in ("per_tower", "sync") for towers in (16, 8) for steps in lengths]

    def test_a_figure_holds_every_length_grouping_and_population(self):
        self.draw(self.cells())
        self.assertEqual([file.stem for file in self.out.glob("*.csv")], ["accuracy_vs_length"])
        means = self.rows("accuracy_vs_length", kind="mean", strategy="sync")
        self.assertEqual({(row["grouping"], row["steps"], row["population"]) for row in means},
                         {(grouping, steps, population) for grouping in ("16x1", "8x2") for steps in ("300", "1000")
                          for population in ("saved", "batch")})
        row, = self.rows("accuracy_vs_length", kind="mean", strategy="sync", grouping="8x2", steps="300", population="saved")
        self.assertAlmostEqual(float(row["value"]), 0.6, places=12)
        self.assertEqual((row["half_width"], row["n"]), ("0.25", "3"))
        self.assertEqual(len(self.rows("accuracy_vs_length", kind="seed", population="saved")), 24)

    def test_failed_and_missing_runs_are_said(self):
        self.draw(self.cells(saved={1: 0.6, 2: 0.7}, others={"batch": {1: 0.8, 2: 0.8}}, failures={0: "diverged"}, missing=(3,)))
        caption = self.caption("accuracy_vs_length")
        self.assertIn("8 failed (×); 8 missing.", caption)
        self.assertEqual(self.rows("accuracy_vs_length", kind="seed", outcome="missing", population="saved")[0]["seed"], "3")

    def test_a_cell_without_saved_statistics_is_not_ranked(self):
        longer = not_saved(cell("averaged", conditions={"steps": "300"}, others={"batch": (0.9,)}))
        self.assertIn("after 300 steps from 0.600 (per_tower 16x1) to 0.600 (sync 8x2)", self.draw(self.cells() + [longer]))
        self.assertIn("not drawn, no run was evaluated with the saved statistics", self.draw([not_saved(each) for each in self.cells()]))

    def test_one_length_is_no_line(self):
        self.assertIn("not drawn, no axis of the matrix is the number of steps", self.draw(self.cells(lengths=(300,))))
        self.assertIn("not drawn, no axis of the matrix is the number of steps", self.draw([cell()]))
        self.assertFalse((self.out / "accuracy_vs_length.svg").exists())
