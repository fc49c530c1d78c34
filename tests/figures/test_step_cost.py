import math
from unittest import mock

from matplotlib.axes import Axes

from figures_case import FiguresCase  # first: it says where the modules of the figures are

import drawing
import step_cost
from synthetic import cell, published, quantity


def costing(strategy, more=None, per_exchange=None, sockets=False, **given):
    """A cell on two ranks of one tower, whose steps last `more` milliseconds longer than the baseline's, by seed."""
    made = cell(strategy, towers=2, batch=2, ranks=2, towers_per_rank=1, **given)
    row, = made["rows"]
    row["placement"] += "-sockets" if sockets else ""
    if more:
        row.update(relative_images_per_s=0.7, extra_step_ms=quantity(more, 1.5),
                   extra_us_per_collective=quantity([per_exchange] * len(more)) if per_exchange else None)
    return made


class StepCost(FiguresCase):
    figures = (step_cost,)

    def test_a_row_has_its_mean_its_seeds_and_its_price_per_exchange(self):
        printed = self.draw([costing("per_tower"), costing("sync", [2, 4], 150)])
        mean, = self.rows("step_cost", kind="mean")
        self.assertEqual((mean["strategy"], mean["at"], float(mean["extra_step_ms"])), ("sync", "2x2 on 2 ranks", 3.0))
        self.assertEqual(float(mean["extra_us_per_collective"]), 150)
        self.assertEqual([float(row["extra_step_ms"]) for row in self.rows("step_cost", kind="seed")], [2, 4])
        self.assertIn("0.70, 150 µs", self.caption("step_cost"))
        self.assertIn("3.0 ms more per step", printed)

    def test_only_what_was_timed_beside_the_baseline_has_its_interval(self):
        for beside, text, intervals in (
                ("averaged", "; in turns with averaged.", True),
                ("per_tower", "; in turns with per_tower.", False),
                (None, "; median step minus that of averaged.", False)):
            made = costing("sync", [2, 4])
            made["rows"][0].update(beside=beside, log_images_per_s=quantity([math.log(0.7)] * 2, 0.1))
            with mock.patch.object(Axes, "errorbar", autospec=False, side_effect=None) as shares:
                self.draw([made], published=[published("relative_images_per_s", 0.887, 0.887, "2x2 sync")], baseline="averaged")
            self.assertIn(text, self.caption("step_cost"))
            bars = [call.kwargs["xerr"] for call in shares.call_args_list if call.args[0] == 0.7]
            self.assertEqual(bars != [None], intervals)

    def test_shared_memory_stands_before_sockets(self):
        self.draw([costing("per_tower"), costing("sync", [2]), costing("shuffle", [9], sockets=True)])
        texts = self.caption("step_cost")
        self.assertLess(texts.index("cpu, shared memory"), texts.index("cpu, over sockets"))

    def test_both_have_one_scale(self):
        with mock.patch.object(drawing, "save", return_value=[]) as save:
            self.draw([costing("per_tower"), costing("sync", [2]), costing("shuffle", [40], sockets=True)])
        first, second = save.call_args.args[0].figure.axes
        self.assertEqual(first.get_xlim(), second.get_xlim())
        self.assertGreater(first.get_xlim()[1], 40)

    def test_conditions_are_headings(self):
        self.draw([costing("sync", [k], conditions={"model.base": str(8 * k)}) for k in (1, 2)])
        self.assertEqual([row["at"] for row in self.rows("step_cost", kind="mean")],
                         ["2x2 on 2 ranks, base 8", "2x2 on 2 ranks, base 16"])

    def test_emulated_runs_are_no_figure(self):
        self.assertIn("no throughput counts", self.draw([cell("sync", ranks=1, towers_per_rank=8)]))
