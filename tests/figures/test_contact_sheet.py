"""The contact sheet of what `bnlab predict` has written, and command lines that scripts/plot.sh cannot do. Run by
test_figures.py."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import matplotlib.image
import PIL.Image

import plot  # first: it says where the modules of the figures are

import contact_sheet


class ContactSheet(unittest.TestCase):
    """The sheet of what `bnlab predict` has written."""

    @staticmethod
    def run_of(strategy, seed=0, towers=8):
        return {"strategy": strategy, "towers": towers, "batch_per_tower": 2, "seed": seed, "answers": ["a.png"],
                "run_id": f"{strategy}-{towers}x2-seed{seed}-0123"}

    def test_titles_say_what_tells_the_runs_apart_and_no_more(self):
        titles = contact_sheet.titles
        self.assertEqual(titles([self.run_of("sync"), self.run_of("none")]), ["sync", "none"])
        self.assertEqual(titles([self.run_of("sync"), self.run_of("sync", towers=4)]), ["sync\n8x2", "sync\n4x2"])
        self.assertEqual(titles([self.run_of("sync"), self.run_of("sync", 1)]), ["sync\n8x2\nseed 0", "sync\n8x2\nseed 1"])

    def predicted(self):
        """A folder with the pictures of two runs."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        matplotlib.image.imsave(f"{folder.name}/a.png", [[0.0, 1.0], [1.0, 0.0]])
        predictions = {"task": {"name": "shapes"}, "population": "saved",
                       "samples": [{"sample": 3, "image": "a.png", "truth": "a.png"}],
                       "runs": [self.run_of("sync"), self.run_of("none")]}
        Path(folder.name, "predictions.json").write_text(json.dumps(predictions), encoding="utf-8")
        return folder.name

    def test_draws_a_row_per_sample_and_a_column_per_run(self):
        picture = matplotlib.image.imread(contact_sheet.draw(self.predicted()))
        self.assertGreater(picture.shape[1], picture.shape[0])  # one row of four

    def test_the_legend_names_the_classes_that_are_shown(self):
        folder = self.predicted()
        picture = PIL.Image.new("P", (2, 2))
        picture.putpalette([0, 0, 0, 128, 0, 0] + [0] * 84 + [10, 20, 30] + [0] * 672 + [224, 224, 192], "RGB")
        for place, value in enumerate((0, 1, 30, 255)):
            picture.putpixel((place % 2, place // 2), value)
        picture.save(os.path.join(folder, "a.png"))
        drawn, colours = contact_sheet.shown(os.path.join(folder, "a.png"))
        legend = contact_sheet.legend_of(colours, ["background"])
        self.assertEqual(list(legend), ["background", "class 1", "class 30", "void"])
        self.assertEqual(tuple(drawn[0][1]), legend["class 1"].colour)
        self.assertEqual(tuple(drawn[1][0]), legend["class 30"].colour, "also where the palette is the file's own")
        self.assertNotEqual(legend["class 30"].colour, legend["background"].colour)
        self.assertEqual(tuple(drawn[1][1]), (1, 1, 1), "void is white")
        plain, named = (Path(contact_sheet.draw(folder, None, names)).read_bytes() for names in (None, [f"class of {value}" for value in range(31)]))
        self.assertNotEqual(plain, named)

    def test_errors_are_red_and_classes_grey(self):
        folder = self.predicted()
        with self.assertRaisesRegex(contact_sheet.DoNotFit, "expected predictions of classes, pixel by pixel"):
            contact_sheet.draw(folder, errors=True)
        for name, ids in (("truth", (0, 1, 2, 255)), ("a", (0, 2, 2, 1))):
            picture = PIL.Image.new("P", (2, 2))
            picture.putpalette([10, 20, 30] * 256)
            picture.putdata(ids)
            picture.save(os.path.join(folder, f"{name}.png"))
        truth, _ = contact_sheet.label_map(os.path.join(folder, "truth.png"))
        answer, _ = contact_sheet.label_map(os.path.join(folder, "a.png"))
        drawn, colours = contact_sheet.shown_errors(os.path.join(folder, "a.png"), truth, contact_sheet.greys_of(3))
        red, (white, dark) = contact_sheet.to_rgb(contact_sheet._WRONG), (colours[0], colours[2])
        self.assertEqual([tuple(pixel) for row in drawn for pixel in row], [white, red, dark, colours[1]], "void cannot be wrong")
        self.assertEqual((white, dark), ((1, 1, 1), (0.4, 0.4, 0.4)))
        self.assertAlmostEqual(contact_sheet.share_wrong([answer], [truth]), 1 / 3)
        with open(os.path.join(folder, "predictions.json"), encoding="utf-8") as file:
            predictions = json.load(file)
        predictions["samples"][0]["truth"] = "truth.png"
        Path(folder, "predictions.json").write_text(json.dumps(predictions), encoding="utf-8")
        plain, marked = (Path(contact_sheet.draw(folder, errors=errors)).read_bytes() for errors in (False, True))
        self.assertNotEqual(plain, marked)

    def test_columns_say_what_the_runs_beside_the_folder_scored(self):
        folder = self.predicted()
        beside = Path(folder, "predictions")
        beside.mkdir()
        with open(os.path.join(folder, "predictions.json"), encoding="utf-8") as file:
            predictions = json.load(file)
        self.assertEqual(contact_sheet.scores(str(beside), predictions), ["", ""])
        record = Path(folder, predictions["runs"][1]["run_id"], "1x8-cpu", "record.json")
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps({"result": {"final": {"saved": {"mean_iou": 0.416}}}}), encoding="utf-8")
        self.assertEqual(contact_sheet.scores(str(beside), predictions), ["", "mean IoU 0.42"])
        predictions["population"] = "precise"
        record.write_text(json.dumps({"result": {"final": {"precise": {"mean_iou": 0.416}}}}), encoding="utf-8")
        self.assertEqual(contact_sheet.scores(str(beside), predictions), ["", "mean IoU 0.42"])

    def test_the_heading_has_the_scores_or_how_many_networks_answered(self):
        for scored, heading in ((["", ""], "The answers of 2 trained networks"), (["mean IoU 0.42", ""], "sync mean IoU 0.42")):
            with mock.patch.object(contact_sheet, "scores", return_value=scored), \
                    mock.patch.object(contact_sheet.layout, "new_page", wraps=contact_sheet.layout.new_page) as page:
                contact_sheet.draw(self.predicted())
            self.assertEqual(page.call_args.args[0], heading)

    def test_titles_can_be_given_one_per_run(self):
        folder = self.predicted()
        plain, titled = (Path(contact_sheet.draw(folder, titles)).read_bytes() for titles in (None, ["with it", "without"]))
        self.assertNotEqual(plain, titled)
        with self.assertRaisesRegex(contact_sheet.DoNotFit, "expected 2 titles, one per run, got 1: alone"):
            contact_sheet.draw(folder, ["alone"])

    def test_every_class_needs_a_name(self):
        check = contact_sheet.check_names
        for task, ids, names, message in (
                ({}, {0, 4, 255}, ["sky"], "expected 5 names or more, as the pictures show ids up to 4, got 1: sky"),
                ({"classes": 3}, {0}, ["sky", "road"], "expected 3 names, one for each class, got 2: sky, road"),
                ({"classes": ["a", "b"]}, {0}, list("abc"), "expected 2 names, one for each class, got 3: a, b, c")):
            with self.assertRaisesRegex(contact_sheet.DoNotFit, message):
                check(names, task, ids)
        check(["sky", "road"], {}, {0, 255})
        check(["sky"], {}, set())
        check(["sky", "road"], {"classes": 2}, {0, 1})

    @staticmethod
    def plot(*words):
        """Exit status and what scripts/plot.sh says, where no program is asked for anything."""
        done = subprocess.run([plot.ROOT / "scripts/plot.sh", *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "BNLAB_PROGRAM": "/bin/true", "BNLAB_PYTHON": sys.executable})
        return done.returncode, done.stdout + done.stderr

    def test_plot_sh_says_in_one_line_what_it_cannot_do(self):
        folder = self.predicted()
        file = os.path.join(folder, "a.png")
        for words, status, message in (
                ([folder, "--out"], 2, "plot.sh: --out: expected a path behind it, got nothing\n"),
                ([folder, "--spec", "--bare"], 2, "plot.sh: --spec: expected a path behind it, got --bare\n"),
                ([plot.ROOT / "results", "--out", file], 2,
                 f"plot.sh: --out {file}: expected a folder that can be made and written to\n"),
                ([folder, "--titles", "alone"], 1,
                 f"plot.sh: {folder}: --titles: expected 2 titles, one per run, got 1: alone\n")):
            self.assertEqual(self.plot(*words), (status, message))
