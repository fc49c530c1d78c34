"""Steps and kernels on one GPU: the page's numbers from its file. Run by test_figures.py."""

import csv
import json
import pathlib
import tempfile
import unittest

import figures_case  # noqa: F401  it says where the modules of the figures are

import one_gpu
import style
from drawing import save

_COPY = {"strategy": "per_tower", "step_ms": [20, 10.0]}
_DOCUMENT = {
    "norm_cost": [{"seed": seed, "runs": [_COPY, {"strategy": "per_tower", "step_ms": [10.2]}, {"strategy": "none", "step_ms": [9.0, 30]}]}
                  for seed in (0, 1)],
    "unet_bfloat16": [{"program": "bnlab", "strategy": "sync", "cuda_graph": True, "step_ms": [1.0, 3.0]},
                      {"program": "PyTorch", "way": "torch.compile", "step_ms": [5.0, 4.0]}],
    "unet_float32": [], "resnet50_unet_2_images": [],
    "pspnet_bfloat16": [{"strategy": "sync", "cuda_graph": False, "step_ms": time} for time in (22.0, 24.0)],
    "bandwidth": [{"site": "stem", "shape": [2, 64, 9, 9], "kernel": kernel, "dtype": "Float", "layout": "channels_last", "ms": 0.02,
                   "megabytes": 8.0, "share_of_copy": 0.5}
                  for kernel in ("moments", "normalise", "backward_sums", "backward_input", "backward_residual")]}


class OneGpu(unittest.TestCase):
    def test_a_strategy_is_its_fastest_turn_over_that_of_all_copies_of_per_tower(self):
        relative = {norm.strategy: norm.relative for norm in one_gpu.norms_of(_DOCUMENT)}
        self.assertAlmostEqual(relative["none"], 9.0 / 10.1)
        self.assertAlmostEqual(relative["per_tower"], 1)
        self.assertAlmostEqual(one_gpu.copies_apart(_DOCUMENT), 0.02)

    def test_the_figure_has_every_seed_and_kernel(self):
        style.apply()
        with tempfile.TemporaryDirectory() as folder:
            steps, kernels = one_gpu.draw_steps(_DOCUMENT), one_gpu.draw_kernels(_DOCUMENT)
            for drawing, panel in ((steps, "norms"), (kernels, "kernels")):
                stem = pathlib.Path(folder) / panel
                save(drawing, stem)
                with open(stem.with_suffix(".csv"), encoding="utf-8", newline="") as drawn:
                    self.assertEqual([row["panel"] for row in csv.DictReader(drawn)], [panel] * 4)
        self.assertIn("0 of 1 strategies take the time of per_tower within 2 %, none takes 0.89 times as long", steps.sentence)
        self.assertIn("on 8 MB moments reaches 50 % of it", kernels.sentence)

    def test_the_rows_have_medians(self):
        self.assertEqual(list(one_gpu.norm_rows(_DOCUMENT))[0],
                         {"strategy": "none", "fastest_ms_0": "9.00", "fastest_ms_1": "9.00", "over_per_tower": "0.891"})
        steps = {row["program"]: row["step_ms"] for row in one_gpu.step_rows(_DOCUMENT)}
        self.assertEqual(steps, {"bnlab: sync, replayed": "2.00", "PyTorch: torch.compile": "4.50", "bnlab: sync, launched": "23.00"})
        self.assertEqual(list(one_gpu.kernel_rows(_DOCUMENT))[0],
                         {"site": "stem", "shape": "2x64x9x9", "dtype": "Float", "layout": "channels_last", "megabytes": "8",
                          "kernel": "moments", "percent_of_copy": "50", "us": "20"})

    def test_the_page_and_its_rows_have_what_its_file_says(self):
        page = pathlib.Path(__file__).parents[2] / "results/one_gpu"
        document = json.loads((page / "times.json").read_text(encoding="utf-8"))
        text = (page / "README.md").read_text(encoding="utf-8")
        h200 = json.loads((page / "h200.json").read_text(encoding="utf-8"))
        self.assertIn(f"<!-- table:summary -->\n{one_gpu.summary(document)}{one_gpu.h200_summary(h200)}\n<!-- end -->", text)
        for of, tables in ((document, one_gpu._ROWS), (h200, one_gpu._H200_ROWS)):
            for name, rows in tables.items():
                with open(page / f"{name}.csv", encoding="utf-8", newline="") as file:
                    self.assertEqual(list(csv.DictReader(file)), [{key: str(value) for key, value in row.items()} for row in rows(of)], name)

    def test_the_summary_is_of_the_rows(self):
        document = json.loads((pathlib.Path(__file__).parents[2] / "results/one_gpu/times.json").read_text(encoding="utf-8"))
        for kernel in document["bandwidth"]:
            kernel["share_of_copy"] = 0.5
        summary = one_gpu.summary(document)
        self.assertIn("of a copy's rate | 50 % |", summary)
        self.assertIn("| 4.6, 4.9, 1.8 times as fast |", summary)


if __name__ == "__main__":
    unittest.main()
