#!/usr/bin/env python3
"""Draws the annotations of a COCO file (instances JSON) into label maps: one PNG of class ids for each image.

Polygons, run lengths and run lengths as pycocotools compresses them are read; a pixel belongs to a polygon if its centre does
(pycocotools may differ by a pixel at edges). Where objects overlap, the smaller one is in front. Classes are numbered 1, 2, ... in the order of their COCO
ids, 0 is the background, and 255 is void: what `iscrowd` marks. The lines that a spec's task needs are printed.

  .venv/bin/python scripts/coco_labels.py instances.json mydata/labels [--categories person,car] [--objects]
"""

import argparse
import json
import os
import pathlib
import sys

try:
    import numpy as np
    from PIL import Image
except ImportError:
    sys.exit("coco_labels.py: NumPy or Pillow is missing; use the Python that scripts/setup.sh set up: "
             ".venv/bin/python scripts/coco_labels.py FILE FOLDER")

VOID = 255


def counts_of(text):
    """The run lengths that pycocotools writes as text: 5 bits a character, each the difference from the last but one."""
    counts, at = [], 0
    while at < len(text):
        value = shift = 0
        more = True
        while more:
            code = ord(text[at]) - 48
            value |= (code & 0x1f) << shift
            more, at, shift = bool(code & 0x20), at + 1, shift + 5
        if code & 0x10:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    return counts


def inside(polygon, height, width):
    """The pixels whose centres the polygon [x, y, x, y, ...] surrounds an odd number of times."""
    if len(polygon) < 6 or len(polygon) % 2:
        raise ValueError(f"expected a polygon of three corners or more, x and y in turn, got {len(polygon)} numbers")
    corners = np.asarray(polygon, float).reshape(-1, 2)
    crossings = np.zeros((height, width + 1), np.int32)  # of each row: how many edges lie left of which pixel's centre
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0)):
        top, bottom = np.clip(np.ceil(np.sort([y0, y1]) - 0.5), 0, height).astype(int)
        rows = np.arange(top, bottom)
        if len(rows):
            x = x0 + (rows + 0.5 - y0) * (x1 - x0) / (y1 - y0)
            np.add.at(crossings, (rows, np.clip(np.ceil(x - 0.5), 0, width).astype(int)), 1)
    return np.cumsum(crossings, axis=1)[:, :width] % 2 == 1


def mask_of(shape, height, width):
    """Where the object of a `segmentation` is."""
    if isinstance(shape, list):
        return np.logical_or.reduce([inside(polygon, height, width) for polygon in shape])
    if shape["size"] != [height, width]:
        raise ValueError(f"its run lengths are of an image of [height, width] {shape['size']}, expected {[height, width]}")
    counts = counts_of(shape["counts"]) if isinstance(shape["counts"], str) else shape["counts"]
    if sum(counts) != width * height:
        raise ValueError(f"its run lengths make {sum(counts)} pixels, expected {width * height}")
    runs = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return runs.reshape(width, height).T  # column by column, from the left


def chosen_categories(coco, names):
    """The classes in order: the COCO ids of all categories, or of the named ones."""
    categories = sorted(coco["categories"], key=lambda category: category["id"])
    unknown = [name for name in names if name not in [category["name"] for category in categories]]
    if unknown:
        raise ValueError(f"no category is called {', '.join(unknown)}; there are: "
                         f"{', '.join(category['name'] for category in categories)}")
    chosen = [category for category in categories if not names or category["name"] in names]
    if len(chosen) >= VOID:
        raise ValueError(f"expected at most {VOID - 1} categories, got {len(chosen)}; name some of them with --categories")
    return chosen


def check_ids(coco):
    """Raises ValueError where annotations are of an image or a category that the file does not have."""
    for key, family in (("image_id", "images"), ("category_id", "categories")):
        known = {each["id"] for each in coco[family]}
        strays = [each for each in coco["annotations"] if each.get(key) not in known]
        if strays:
            more = f"; so it is with {len(strays) - 1} more" if len(strays) > 1 else ""
            raise ValueError(f"annotation {strays[0].get('id')}: {key} {strays[0].get(key)} is not among its {family}{more}")


def place_of(image, folder):
    """The label map of an image, below the folder."""
    place = pathlib.PurePath(os.path.normpath(image["file_name"]))
    if place.is_absolute() or not place.name or place.parts[0] == "..":
        raise ValueError(f"image {image['id']}: file_name {json.dumps(image['file_name'])} leads out of {folder}")
    return (folder / place).with_suffix(".png")


def draw(image, annotations, class_of):
    """The label map of one image, and what was wrong with single annotations."""
    height, width = image["height"], image["width"]
    labels, faults, masks = np.zeros((height, width), np.uint8), [], []
    for annotation in annotations:
        if annotation["category_id"] not in class_of or not annotation.get("segmentation"):
            continue
        try:
            mask = mask_of(annotation["segmentation"], height, width)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            faults.append(f"{image['file_name']}: annotation {annotation.get('id')}: {error}")
            continue
        masks.append((mask, VOID if annotation.get("iscrowd") else class_of[annotation["category_id"]]))
    for mask, number in sorted(masks, key=lambda each: -each[0].sum()):
        labels[mask] = number
    return labels, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=pathlib.Path, metavar="FILE", help="instances_train2017.json and its like")
    parser.add_argument("labels", type=pathlib.Path, metavar="FOLDER", help="of the label maps; made if it is not there")
    parser.add_argument("--categories", default="", help="names with commas between them; default: all")
    parser.add_argument("--objects", action="store_true", help="no label maps for images without any object")
    options = parser.parse_args()
    try:
        coco = json.loads(options.annotations.read_text(encoding="utf-8"))
        if not all(isinstance(coco.get(key), list) for key in ("images", "annotations", "categories")):
            raise ValueError("expected an object with the lists images, annotations and categories, as COCO's instances have")
        chosen = chosen_categories(coco, [name.strip() for name in options.categories.split(",") if name.strip()])
        check_ids(coco)
        places = [place_of(image, options.labels) for image in coco["images"]]
    except (OSError, ValueError, AttributeError) as error:
        sys.exit(f"coco_labels.py: {options.annotations}: {error}")
    except KeyError as key:
        sys.exit(f"coco_labels.py: {options.annotations}: an image or a category lacks the key {key}")
    class_of = {category["id"]: number for number, category in enumerate(chosen, start=1)}
    of_image = {}
    for annotation in coco["annotations"]:
        of_image.setdefault(annotation["image_id"], []).append(annotation)
    written, all_faults = 0, []
    for image, place in zip(coco["images"], places):
        annotations = of_image.get(image["id"], [])
        if options.objects and not any(annotation["category_id"] in class_of for annotation in annotations):
            continue
        labels, faults = draw(image, annotations, class_of)
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(labels).save(place)
        written, all_faults = written + 1, all_faults + faults
    for fault in all_faults[:20]:
        print(f"coco_labels.py: {fault}", file=sys.stderr)
    if len(all_faults) > 20:
        print(f"coco_labels.py: and {len(all_faults) - 20} more", file=sys.stderr)
    print(f"{written} label maps in {options.labels}; for the task `folder`:")
    print('"classes": ' + json.dumps(["background"] + [category["name"] for category in chosen], ensure_ascii=False))
    return 1 if all_faults else 0


if __name__ == "__main__":
    sys.exit(main())
