from figures_case import FiguresCase  # first: it says where the modules of the figures are

import accuracy_by_part
from synthetic import cell


class AccuracyByPart(FiguresCase):
    figures = (accuracy_by_part,)

    @staticmethod
    def cells():
        return [cell(strategy, batch=batch, saved=[0.5, 0.7], others={"batch": (0.8, 0.8)}, conditions={"shards": "iid"},
                     parts={"saved": {"dusk": (score, score + 0.2), "day": (0.9, 0.9)}, "batch": {"dusk": (0.6,), "day": (0.7,)}})
                for strategy, batch, score in (("sync", 2, 0.4), ("per_tower", 1, 0.1), ("per_tower", 2, 0.3))]

    def test_every_part_has_a_column_beside_all_images(self):
        printed = self.draw(self.cells())
        row, = self.rows("accuracy_by_part", row="8x1 per_tower", part="dusk", population="saved")
        self.assertAlmostEqual(float(row["value"]), 0.2)
        self.assertEqual((row["n"], row["half_width"]), ("2", "0.25"))
        row, = self.rows("accuracy_by_part", row="8x2 sync", part="all images", population="batch")
        self.assertAlmostEqual(float(row["value"]), 0.8)
        self.assertIn("8x1 per_tower has mean IoU 0.200 on dusk, the worst of 2 parts, and 0.600 on all images", printed)
        self.assertIn("the test batch's own", self.caption("accuracy_by_part"))

    def test_rows_stand_by_images_per_tower_and_are_named_by_what_differs(self):
        self.draw(self.cells())
        rows = list(dict.fromkeys(row["row"] for row in self.rows("accuracy_by_part")))
        self.assertEqual(rows, ["8x1 per_tower", "8x2 per_tower", "8x2 sync"])
        self.draw([cell("sync", conditions={"task.light": light}, parts={"saved": {"dusk": (0.4,), "day": (0.9,)}})
                   for light in ("strong", "weak")])
        rows = list(dict.fromkeys(row["row"] for row in self.rows("accuracy_by_part")))
        self.assertEqual(rows, ["light strong", "light weak"])

    def test_failed_runs_have_a_mark_and_uneven_towers_a_place(self):
        self.draw(self.cells() + [cell("none", saved=(), failures={0: "oom"}, conditions={"shards": "iid"})] +
                  [cell("sync", towers=2, batch=batch, conditions={"shards": "iid"}) for batch in (4, [2, 6])])
        self.assertIn(" 1 oom ", self.caption("accuracy_by_part"))  # beside the ×; the caption has it in brackets
        row, = self.rows("accuracy_by_part", row="8x2 none", part="all images")
        self.assertEqual((row["n"], row["outcome"], row["value"]), ("0", "1 oom", ""))
        self.assertEqual({row["row"] for row in self.rows("accuracy_by_part", strategy="sync")}, {"8x2 sync", "2x4 sync", "2x[2,6] sync"})
        self.assertIn("1 failed (×).", self.caption("accuracy_by_part"))

    def test_a_split_without_parts_is_no_figure(self):
        self.assertIn("not drawn, the test split has no parts", self.draw([cell()]))
        self.assertIn("not drawn", self.draw([cell(parts={"saved": {"dusk": (0.4,)}})]))
