import io
import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from figures_case import FiguresCase  # first: it says where the modules of the figures are

import crop_law
import drawing
import report as reports
import style
from committed import bnlab_report, page_of, table_in
from plot import ROOT

CROPS = {"[32,32]": 32, "[64,64]": 64, "[96,96]": 96}


def report(loss, name="crop_size"):
    """Of three seeds, where `per_tower` loses what `loss` says of the values and the crop."""
    def cell(label, crop, images, score):
        values = (CROPS[crop] // 4) ** 2
        return SimpleNamespace(
            label=label, conditions={"task.crop": crop, "model.levels": "3"}, grouping=SimpleNamespace(batch=images),
            value=lambda _: SimpleNamespace(seeds={seed: score + 0.01 * seed for seed in range(3)}),
            sites=[SimpleNamespace(numbers={"values_per_image": SimpleNamespace(mean=n)}) for n in (4 * values, values)])
    cells = [cell("sync", crop, 1, 0.7) for crop in CROPS]
    cells += [cell("per_tower", crop, images, 0.7 - loss((CROPS[crop] // 4) ** 2 * images, CROPS[crop]) / 100)
              for crop in CROPS for images in (1, 2, 4)]
    return SimpleNamespace(name=name, cells=cells)


class CropLaw(FiguresCase):
    def test_a_power_of_the_values_is_found_and_holds(self):
        law, fitted, judged = crop_law.judge(report(lambda values, _: 200 * values ** -0.4), "values")
        self.assertEqual((len(fitted), len(judged)), (6, 3))
        self.assertAlmostEqual(law.a, 200, delta=0.5)
        self.assertAlmostEqual(law.k, 0.4, places=3)
        self.assertTrue(crop_law.verdict(judged)["holds"])

    def test_a_loss_of_the_crop_alone_refutes_both(self):
        for by in crop_law.BY:
            judged = crop_law.judge(report(lambda _, crop: {32: 30, 64: 2, 96: 30}[crop]), by)[2]
            self.assertFalse(crop_law.verdict(judged)["holds"])

    def test_the_figure_says_how_far_each_law_is_off_and_predicts_what_was_judged(self):
        def by_images(values, crop):
            return 40 / (values / (crop // 4) ** 2)
        drawn = crop_law.draw([report(by_images), report(by_images, "crop_size_streets")])
        self.assertRegex(drawn.sentence, r"^Neither law holds: images .* by 0\.0 points, values .* by [1-9].*\.$")
        predicted = [row for row in drawn.rows if row["predicted"] is not None]
        self.assertEqual({(row["experiment"], row["crop"]) for row in predicted},
                         {("crop_size", "[64,64]"), ("crop_size_streets", "[64,64]")})
        for row in predicted:
            if row["by"] == "images":
                self.assertAlmostEqual(row["predicted"], row["loss"], places=2)

    def test_the_crops_are_those_of_both_specs(self):
        for name in ("crop_size", "crop_size_streets"):
            spec = json.loads((ROOT / f"experiments/{name}.json").read_text(encoding="utf-8"))
            crops = {json.dumps(crop, separators=(",", ":")) for crop, _ in spec["matrix"]["task.crop,model.levels"]}
            self.assertEqual(crops, {*crop_law.FITTED, *crop_law.JUDGED})


class CommittedLaw(unittest.TestCase):
    def test_figure_and_table_show_what_the_records_give(self):
        found = [reports.read(io.StringIO(bnlab_report(name))) for name in crop_law.TITLES]
        style.apply()
        with tempfile.TemporaryDirectory() as out:
            drawing.save_page(crop_law.draw(found), Path(out, "crop_law"))
            self.assertEqual(Path(out, "crop_law.csv").read_text(encoding="utf-8"),
                             (ROOT / "results/crop_size/crop_law.csv").read_text(encoding="utf-8"))
        self.assertEqual(table_in(page_of("crop_size"), "law").strip(), crop_law.markdown(found).strip())
