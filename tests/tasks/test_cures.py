#!/usr/bin/env python3
"""Every command that a message about data proposes, typed as it is printed; what comes of it is compared with the truth.

  BNLAB_PROGRAM=build/release/bnlab .venv/bin/python tests/tasks/test_cures.py
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("BNLAB_PROGRAM", "build/release/bnlab")).resolve()
try:
    import numpy as np
    from PIL import Image
except ImportError:
    print("SKIPPED: NumPy or Pillow is missing; scripts/setup.sh brings them with matplotlib")
    sys.exit(77)

SIZE = 24
COLOURS = np.array([[0, 0, 0], [230, 60, 60], [60, 60, 230], [60, 230, 60]], np.uint8)  # of classes
VOC = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]], np.uint8)
NAMES = ("train/one", "train/two", "train/three", "test/four")
OF_SOURCES = "in the folder of bnlab's sources: "
needs_interpreter = unittest.skipUnless((ROOT / ".venv/bin/python").exists(), "scripts/setup.sh makes the Python of scripts")


def truth(name):
    """The ids of a picture: four classes in unequal shares, others for each name; the test split lacks the last."""
    ids = np.random.default_rng(len(name)).choice(4, (4, 4), p=(0.2, 0.4, 0.3, 0.1))
    ids[0] = (0, 1, 2, 3)
    ids = np.kron(ids, np.ones((SIZE // 4, SIZE // 4))).astype(np.uint8)
    return np.where(ids == 3, 1, ids) if name.startswith("test") else ids


def palette(ids, file, colours=COLOURS):
    image = Image.fromarray(ids, "P")
    image.putpalette(colours.flatten().tolist())
    image.save(file)


def grey(ids, file):
    Image.fromarray(ids).save(file)


def deep(ids, file):
    Image.fromarray(ids.astype(np.uint16)).save(file)


def transparent(ids, file):
    Image.fromarray(np.stack([ids, np.full_like(ids, 128)], 2)).save(file)


def coloured(ids, file):
    Image.fromarray(COLOURS[ids]).save(file)


def coloured_as_voc(ids, file):
    Image.fromarray(VOC[ids]).save(file)


class Cures(unittest.TestCase):
    task = {"name": "folder", "root": "my data", "classes": 4, "crop": [16, 16]}

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="it's here ")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        self.data = self.folder / "data/my data"

    def write(self, kinds):
        """Photographs, and label maps of these kinds, the last of which is repeated."""
        for place, name in enumerate(NAMES):
            image, labels = self.image(name), self.labels(name)
            image.parent.mkdir(parents=True, exist_ok=True)
            labels.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(self.photograph(name)).save(image)
            kinds[min(place, len(kinds) - 1)](truth(name), labels)

    @staticmethod
    def photograph(name):
        steps = np.arange(SIZE, dtype=np.uint8)
        down, right = np.meshgrid(4 * steps, 60 + 4 * steps, indexing="ij")
        return np.stack([down, right, 9 * truth(name)], 2).astype(np.uint8)

    def image(self, name, ending=".png"):
        split, own = name.split("/")
        return self.data / split / "images" / (own + ending)

    def labels(self, name, folder="labels"):
        split, own = name.split("/")
        return self.data / split / folder / (own + ".png")

    def ids(self, name, folder):
        with Image.open(self.labels(name, folder)) as image:
            self.assertIn(image.mode, "LP")
            return np.asarray(image)

    def plan(self, *words, spec=None, code):
        """What `bnlab plan` says of the data."""
        spec = {"question": "q", "claim": "c", "task": self.task, "model": {"name": "unet", "base": 2, "levels": 1},
                "strategy": "sync", "towers": 2, "batch_per_tower": 1, "steps": 1} | (spec or {})
        (self.folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        done = subprocess.run([PROGRAM, "plan", "spec.json", "--data", "data", "--results", "results", *words],
                              capture_output=True, text=True, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def type(self, command, code=0):
        folder = ROOT if command.startswith((".venv", "PYTHONPATH")) else self.folder
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, check=False,
                              env=os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, code, command + "\n" + done.stdout + done.stderr)
        return done

    def type_labels(self, edit=lambda command: command):
        """Types the command that `plan` proposes, the one that this prints, and the key that takes the result."""
        said = self.plan(code=2)
        command, key = re.search(r'(bnlab labels .*), and this takes them: "labels": "(\w+)"', said).groups()
        printed = re.search("^bnlab labels .*$", self.type(command).stdout, re.MULTILINE)
        if printed:
            self.type(edit(printed[0]))
        self.plan("task.labels=" + key, code=0)
        return key


class OfLabels(Cures):
    def expect_truth(self, key):
        for name in NAMES:
            np.testing.assert_array_equal(self.ids(name, key), truth(name), name)

    def test_ids_stay_ids_whatever_kinds_of_files_are_mixed(self):
        for kinds in ([transparent], [palette, transparent], [transparent, palette], [grey, deep, transparent, palette],
                      [palette, coloured], [deep, coloured_as_voc, lambda ids, file: palette(ids, file, VOC)]):
            with self.subTest([kind.__name__ for kind in kinds]):
                self.setUp()
                self.write(kinds)
                self.expect_truth(self.type_labels())

    def test_colours_of_voc_get_its_ids(self):
        self.write([coloured_as_voc])
        self.expect_truth(self.type_labels())

    def test_other_colours_are_numbered_alike_in_all_splits(self):
        self.write([coloured])
        key = self.type_labels()
        pairs = {pair for name in NAMES for pair in zip(truth(name).flat, self.ids(name, key).flat)}
        self.assertEqual(len(pairs), 4, pairs)
        self.assertEqual({number for _, number in pairs}, {0, 1, 2, 3})

    def test_beside_ids_colours_are_left_to_the_user(self):
        self.write([grey, coloured])
        said = self.plan(code=2)
        command = re.search(r"(bnlab labels .*), and this", said)[1]
        printed = re.search("^bnlab labels .*$", self.type(command).stdout, re.MULTILINE)[0]
        self.assertIn("put the id", self.type(printed, code=2).stderr)

        def known(printed):
            for number, colour in enumerate(COLOURS):
                printed = printed.replace(bytes(colour).hex() + "=?", f"{bytes(colour).hex()}={number}")
            return printed
        self.expect_truth(self.type_labels(known))

    def test_colours_that_palettes_number_otherwise_are_told(self):
        self.write([palette, lambda ids, file: palette(ids, file, COLOURS[[0, 2, 1, 3]]), transparent])
        command = re.search(r"(bnlab labels .*), and this", self.plan(code=2))[1]
        self.assertRegex(self.type(command).stderr, "note: 3c3ce6 is id 1 in .*two.png and id 2 in .*one.png")

    def test_ids_of_sixteen_bits_need_no_cure(self):
        for kinds in ([deep], [palette, deep], [deep, palette]):
            with self.subTest([kind.__name__ for kind in kinds]):
                self.setUp()
                self.write(kinds)
                self.plan(code=0)

    def test_a_folder_with_the_splits_inside_keeps_them(self):
        self.write([palette, transparent])
        for kind in ("images", "labels"):
            (self.data / kind).mkdir()
            for split in ("train", "test"):
                (self.data / split / kind).rename(self.data / kind / split)
        key = self.type_labels()
        for name in NAMES:
            with Image.open(self.data / key / f"{name}.png") as image:
                np.testing.assert_array_equal(np.asarray(image), truth(name), name)

    @needs_interpreter
    def test_annotations_of_coco_are_drawn(self):
        self.write([grey])
        self.labels("train/two").unlink()
        right = truth("train/two")
        boxes = [(int(right[y, x]), x, y) for y in range(0, SIZE, 6) for x in range(0, SIZE, 6) if right[y, x]]
        corners = [[x, y, x + 6, y, x + 6, y + 6, x, y + 6] for _, x, y in boxes]
        coco = {"images": [{"id": 1, "file_name": "two.jpg", "height": SIZE, "width": SIZE}],
                "categories": [{"id": number, "name": str(number)} for number in (1, 2, 3)],
                "annotations": [{"id": place, "image_id": 1, "category_id": box[0], "segmentation": [polygon]}
                                for place, (box, polygon) in enumerate(zip(boxes, corners))]}
        (self.data / "train/labels/instances.json").write_text(json.dumps(coco), encoding="utf-8")
        self.type(re.search(OF_SOURCES + "(.*coco_labels.py .*)", self.plan(code=2))[1])
        np.testing.assert_array_equal(self.ids("train/two", "labels_ids"), right)


@needs_interpreter
class OfPhotographs(Cures):
    def expect_cured(self, ending):
        self.type(re.search(OF_SOURCES + "(.*convert_images.py .*)", self.plan(code=2))[1])
        self.plan(code=0)
        with Image.open(self.image("train/two", ending)) as image:
            self.assertLessEqual(np.abs(np.asarray(image).astype(int) - self.photograph("train/two")).max(), 12, ending)

    def test_other_formats_become_the_same_pictures(self):
        exact = {".tif": {}, ".webp": {"lossless": True}, ".bmp": {}, ".avif": {"quality": 100, "subsampling": "4:4:4"}}
        for ending, options in exact.items():
            for written in (ending, ".png"):  # its own ending, and one that it does not have
                with self.subTest(ending, written=written):
                    self.setUp()
                    self.write([grey])
                    self.image("train/two").unlink()
                    with self.image("train/two", written).open("wb") as file:
                        Image.fromarray(self.photograph("train/two")).save(file, ending[1:].replace("tif", "tiff"), **options)
                    self.expect_cured(".png")

    def test_cmyk_becomes_rgb(self):
        self.write([grey])
        self.image("train/two").unlink()
        cmyk = Image.fromarray(self.photograph("train/two")).convert("CMYK")
        cmyk.save(self.image("train/two", ".jpg"), quality=100, subsampling=0)
        self.expect_cured(".jpg")

    def test_pictures_of_classes_are_replaced(self):
        self.task = {"name": "image_folder", "root": "my data", "size": [16, 16]}
        for name in ("train/a/1", "train/b/2", "test/a/3", "test/b/4"):
            (self.data / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(self.photograph(name)).save(self.data / f"{name}.png")
        (self.data / "train/b/2.png").unlink()
        Image.fromarray(self.photograph("train/b/2")).save(self.data / "train/b/2.tif")
        model = {"model": {"name": "classifier", "backbone": {"name": "resnet", "width": 2}}}
        self.type(re.search(OF_SOURCES + "(.*convert_images.py .*)", self.plan(spec=model, code=2))[1])
        self.plan(spec=model, code=0)
        with Image.open(self.data / "train/b/2.png") as image:
            np.testing.assert_array_equal(np.asarray(image), self.photograph("train/b/2"))


@needs_interpreter
class OfWeights(Cures):
    def test_a_checkpoint_of_pytorch_becomes_the_same_weights(self):
        sys.path.insert(0, str(ROOT / "scripts/python"))
        try:
            import torch
            from bnlab.weights import read_safetensors
        except ImportError as error:
            self.skipTest(str(error))
        self.write([grey])
        state = {"w": torch.arange(6.0).view(2, 3), "norm.running_var": torch.ones(3, dtype=torch.float64)}
        torch.save(state, self.folder / "my net; touch gone.pth")
        said = self.plan(spec={"init_from": {"file": "my net; touch gone.pth"}}, code=2)
        self.type(re.search(OF_SOURCES + "(.*)", said)[1])
        self.assertFalse((ROOT / "gone.pth").exists())
        read = read_safetensors(self.folder / "my net; touch gone.safetensors")
        self.assertEqual(set(read), set(state))
        for name, tensor in state.items():
            self.assertTrue(torch.equal(read[name], tensor), name)


if __name__ == "__main__":
    unittest.main()
