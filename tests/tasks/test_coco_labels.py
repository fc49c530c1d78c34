#!/usr/bin/env python3
"""scripts/coco_labels.py: polygons and run lengths of a COCO file become label maps of class ids."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
try:
    import numpy as np
    from PIL import Image
    import coco_labels
except (ImportError, SystemExit):
    print("SKIPPED: NumPy or Pillow is missing; scripts/setup.sh brings them with matplotlib")
    sys.exit(77)


def rectangle(left, top, right, bottom):
    return [left, top, right, top, right, bottom, left, bottom]


class Masks(unittest.TestCase):
    def test_a_pixel_belongs_to_a_polygon_if_its_centre_does(self):
        mask = coco_labels.inside(rectangle(1, 2, 5, 4), 6, 8)
        self.assertEqual(np.argwhere(mask).tolist(), [[y, x] for y in (2, 3) for x in (1, 2, 3, 4)])
        self.assertEqual(coco_labels.inside(rectangle(0.6, 0, 2.4, 1), 1, 4).tolist(), [[False, True, False, False]])
        triangle = coco_labels.inside([0, 0, 10, 0, 0, 10], 10, 10)
        self.assertEqual([row.sum() for row in triangle], list(range(9, -1, -1)))

    def test_what_lies_outside_the_image_is_cut_off(self):
        self.assertEqual(coco_labels.inside(rectangle(-3, -3, 2, 9), 4, 5).sum(), 8)

    def test_a_hole_is_where_the_outline_goes_round_twice(self):
        outline = rectangle(0, 0, 6, 6) + [0, 0] + rectangle(2, 2, 4, 4) + [2, 2]
        self.assertEqual(coco_labels.inside(outline, 6, 6).sum(), 32)

    def test_run_lengths_go_down_the_columns_compressed_or_not(self):
        mask = np.zeros((4, 3), bool)
        mask[1:3, 1] = mask[3, 2] = True
        counts = [5, 2, 4, 1]
        for runs in (counts, compressed(counts)):
            self.assertEqual(coco_labels.mask_of({"size": [4, 3], "counts": runs}, 4, 3).tolist(), mask.tolist())

    def test_long_and_falling_run_lengths_are_read(self):
        counts = [0, 70000, 3, 5, 1, 40, 100000, 2]
        self.assertEqual(coco_labels.counts_of(compressed(counts)), counts)


def compressed(counts):
    """What rleToString of COCO's maskApi.c writes."""
    text = ""
    for place, count in enumerate(counts):
        value = count - counts[place - 2] if place > 2 else count
        while True:
            code, value = value & 0x1f, value >> 5
            more = value != -1 if code & 0x10 else value != 0
            text += chr((code | 0x20 if more else code) + 48)
            if not more:
                break
    return text


class Command(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.coco = {"images": [{"id": 7, "file_name": "a/b.jpg", "height": 6, "width": 8},
                                {"id": 9, "file_name": "empty.jpg", "height": 2, "width": 2}],
                     "categories": [{"id": 44, "name": "bottle"}, {"id": 3, "name": "car"}],
                     "annotations": [self.annotation(1, 44, [rectangle(1, 1, 3, 3)]),
                                     self.annotation(2, 3, [rectangle(0, 0, 6, 5), rectangle(7, 0, 8, 1)]),
                                     {**self.annotation(3, 3, {"size": [6, 8], "counts": [45, 3]}), "iscrowd": 1}]}

    @staticmethod
    def annotation(number, category, segmentation):
        return {"id": number, "image_id": 7, "category_id": category, "segmentation": segmentation}

    def draw(self, *words, code=0):
        file = self.folder / "instances.json"
        file.write_text(json.dumps(self.coco))
        done = subprocess.run([sys.executable, ROOT / "scripts/coco_labels.py", file, self.folder / "labels", *words],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def labels(self, name="a/b.png"):
        with Image.open(self.folder / "labels" / name) as image:
            self.assertEqual(image.mode, "L")
            return np.asarray(image)

    def test_classes_are_numbered_in_the_order_of_ids_and_the_smaller_object_is_in_front(self):
        said = self.draw()
        labels = self.labels()
        self.assertEqual(labels.shape, (6, 8))
        self.assertEqual(labels[1:3, 1:3].tolist(), [[2, 2], [2, 2]])
        self.assertEqual((labels == 1).sum(), 6 * 5 - 4 + 1)
        self.assertEqual(np.argwhere(labels == 255).tolist(), [[3, 7], [4, 7], [5, 7]])
        self.assertEqual(self.labels("empty.png").tolist(), [[0, 0], [0, 0]])
        self.assertIn('"classes": ["background", "car", "bottle"]', said)

    def test_some_categories_alone(self):
        said = self.draw("--categories", "bottle", "--objects")
        self.assertEqual(sorted(np.unique(self.labels())), [0, 1])
        self.assertFalse((self.folder / "labels/empty.png").exists())
        self.assertIn('"classes": ["background", "bottle"]', said)

    def test_mistakes_are_named(self):
        self.coco["annotations"] += [self.annotation(4, 3, [[1, 2, 3]]),
                                     self.annotation(5, 3, {"size": [6, 8], "counts": [1, 2]})]
        said = self.draw(code=1)
        self.assertIn("a/b.jpg: annotation 4: expected a polygon of three corners", said)
        self.assertIn("annotation 5: its run lengths make 3 pixels, expected 48", said)
        self.assertEqual((self.labels() == 2).sum(), 4)  # the others are drawn
        self.assertIn("no category is called cup; there are: car, bottle", self.draw("--categories", "cup", code=1))
        self.coco = {"images": [{"id": 7, "height": 6, "width": 8}], "categories": [], "annotations": []}
        self.assertIn("instances.json: an image or a category lacks the key 'file_name'", self.draw(code=1))
        self.coco = {"images": []}
        self.assertIn("expected an object with the lists images, annotations and categories", self.draw(code=1))

    def test_ids_that_the_file_does_not_have_stop_it_before_anything_is_written(self):
        stray = {**self.annotation(4, 3, [rectangle(0, 0, 1, 1)]), "image_id": 8}
        self.coco["annotations"].append(stray)
        self.assertIn("instances.json: annotation 4: image_id 8 is not among its images\n", self.draw(code=1))
        self.coco["annotations"][-1:] = [self.annotation(5, 99, [rectangle(0, 0, 1, 1)]), self.annotation(6, 98, [])]
        self.assertIn("instances.json: annotation 5: category_id 99 is not among its categories; so it is with 1 more\n",
                      self.draw(code=1))
        self.assertFalse((self.folder / "labels").exists())
        self.coco["annotations"][-2:] = []
        self.draw("--categories", "car")  # what is not asked for is none of these

    def test_names_that_lead_out_of_the_folder_are_refused(self):
        for name in ("../b.jpg", "a/../../b.jpg", str(self.folder / "b.jpg"), "", ".."):
            self.coco["images"][1]["file_name"] = name
            self.assertIn(f'instances.json: image 9: file_name "{name}" leads out of ', self.draw(code=1))
        self.assertFalse((self.folder / "labels").exists())
        self.coco["images"][1]["file_name"] = "a/../empty.jpg"
        self.draw()
        self.assertEqual(self.labels("empty.png").tolist(), [[0, 0], [0, 0]])


if __name__ == "__main__":
    unittest.main()
