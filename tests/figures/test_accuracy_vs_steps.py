"""The best mean at each length that tuning tried. Run by test_figures.py."""

from figures_case import FiguresCase  # first: it says where the modules of the figures are

import accuracy_vs_steps
from synthetic import cell, length


class AccuracyVsSteps(FiguresCase):
    figures = (accuracy_vs_steps,)

    def test_every_length_that_was_tried_is_a_point_and_the_chosen_one_is_marked(self):
        means = {"sync": [0.4, 0.5, 0.505], "per_tower": [0.3, 0.35, 0.351]}
        printed = self.draw([cell(), cell("per_tower")], tuning=length(200, [100, 200, 400], means))
        rows = self.rows("accuracy_vs_steps", group="sync")
        self.assertEqual([(row["steps"], row["value"], row["chosen"]) for row in rows],
                         [("100", "0.4", "False"), ("200", "0.5", "True"), ("400", "0.505", "False")])
        self.assertIn("From 100 to the chosen 200 steps sync gains most: mean IoU 0.400 to 0.500.", printed)
        caption = self.caption("accuracy_vs_steps")
        self.assertIn("mean over 2 seeds", caption)
        self.assertIn("the shortest from which doubling gains less than 0.01", caption)

    def test_who_still_gained_is_said(self):
        self.draw([cell()], tuning=length(200, [100, 200], {"sync": [0.4, 0.5]}, ["sync"]))
        self.assertIn("the longest, as sync still gained 0.01", self.caption("accuracy_vs_steps"))

    def test_groups_of_one_strategy_have_dashes_of_their_own(self):
        means = {f"sync, towers={towers}": [0.4, 0.5] for towers in (2, 4, 8)}
        self.draw([cell()], tuning=length(100, [100, 200], means))
        self.assertEqual(len(self.rows("accuracy_vs_steps")), 6)

    def test_without_a_choice_nothing_is_drawn(self):
        self.assertIn("the length of training was not chosen by tuning", self.draw([cell()]))
