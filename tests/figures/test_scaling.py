"""Images/s against the number of ranks. Run by test_figures.py."""

from figures_case import FiguresCase  # first: it says where the modules of the figures are

import scaling
from synthetic import cell


def run(ranks, images_per_s, strategy="sync", **changed):
    """A cell of one tower per rank."""
    seeds = range(len(images_per_s))
    return cell(strategy, ranks, **{"saved": [0.5 for _ in seeds], "images_per_s": images_per_s, "ranks": ranks,
                                    "towers_per_rank": 1, "speed_half_width": 3, **changed})


class Scaling(FiguresCase):
    figures = (scaling,)

    def test_efficiency_is_the_share_of_as_many_times_one_rank(self):
        printed = self.draw([run(1, (10, 14)), run(2, (18, 18)), run(4, (24, 36))])
        means = self.rows("scaling", kind="mean")
        self.assertEqual([row["ranks"] for row in means], ["1", "2", "4"])
        self.assertEqual([float(row["images_per_s"]) for row in means], [12, 18, 30])
        self.assertEqual([float(row["efficiency"]) for row in means], [1, 0.75, 0.625])
        self.assertEqual([float(row["efficiency_half_width"]) for row in means], [0.25, 0.125, 0.0625])
        self.assertEqual([float(row["efficiency"]) for row in self.rows("scaling", kind="seed", ranks="4")], [0.5, 0.75])
        self.assertIn("4 ranks do 2.50 times with sync (2 images per rank, cpu)", printed)

    def test_emulated_towers_and_runs_beside_others_are_no_points(self):
        self.draw([run(1, (10,)), run(2, (18,)), cell(towers=8, images_per_s=(90,)), run(4, (30,), beside_others=True)])
        self.assertEqual([row["ranks"] for row in self.rows("scaling", kind="mean")], ["1", "2"])
        self.assertIn("; 1 left out that shared the machine", self.caption("scaling"))

    def test_each_strategy_is_measured_against_its_own_single_rank(self):
        self.draw([run(1, (10,)), run(2, (18,)), run(1, (20,), "none"), run(2, (30,), "none"), run(2, (7,), "shuffle")])
        self.assertEqual({(row["strategy"], row["efficiency"]) for row in self.rows("scaling", kind="mean", ranks="2")},
                         {("sync", "0.9"), ("none", "0.75")})
        self.assertIn("; without a run of one rank: shuffle.", self.caption("scaling"))

    def test_batches_and_exchanges_are_lines_of_their_own(self):
        cells = [run(ranks, (10 * ranks * batch,), batch=batch) for batch in (1, 4) for ranks in (1, 2)]
        over_sockets = run(2, (8,), batch=1)
        over_sockets["rows"][0]["placement"] = "2x1-cpu-sockets"
        self.draw(cells + [over_sockets])
        self.assertEqual([(row["images_per_rank"], row["panel"], row["efficiency"])
                          for row in self.rows("scaling", kind="mean", ranks="2")],
                         [("1", "cpu", "1.0"), ("1", "cpu-sockets", "0.4"), ("4", "cpu", "1.0")])
        self.assertIn("1 image per rank, cpu, sockets", self.caption("scaling"))

    def test_other_machines_and_failed_runs_are_said(self):
        other = run(2, (18,))
        other["rows"][0]["machines"] = ["another"]
        self.draw([run(1, (10,)), other, run(2, (30,), "none"), run(1, (20,), "none"),
                   run(2, (), "averaged", failures={0: "oom"}), run(1, (20,), "averaged"),
                   run(4, (), failures={0: "crashed"})])
        caption = self.caption("scaling")
        self.assertIn("; caution: 2 different machines or thread counts; 2 failed (×).", caption)
        self.assertEqual(caption.count("× 1 crashed"), 1)
        self.assertNotIn("averaged", {row["strategy"] for row in self.rows("scaling")})

    def test_without_one_rank_or_several_there_is_no_figure(self):
        self.assertIn("not drawn, no run of a single rank", self.draw([run(2, (18,)), run(4, (30,))]))
        self.assertIn("not drawn, no run of several ranks", self.draw([run(1, (10,)), cell(towers=8)]))
        self.assertIn("not drawn, no strategy was run by a single rank and by several",
                      self.draw([run(1, (10,), batch=1), run(2, (18,), batch=4)]))
