"""What a figure hands back, and how it becomes files: picture, CSV of what is drawn, one sentence."""

import argparse
import csv
import os
import re
from collections import namedtuple
from pathlib import Path

import layout
import report as reports
import style

Drawing = namedtuple("Drawing", "figure rows sentence")


class Nothing(Exception):
    """There is nothing to draw; the text says why."""


def metric_name(key):
    """"mean IoU" of "mean_iou", "mean IoU of histology" of "groups.histology.mean_iou"."""
    if key.startswith("groups."):
        _, group, metric = key.split(".", 2)
        return f"{metric_name(metric)} of {group}"
    return key.replace("_", " ").replace("iou", "IoU").replace("top1", "top-1 accuracy")


def save_page(drawing, stem):
    """Lays out a figure that stands by itself, and saves it; its folder need not be there."""
    Path(stem).parent.mkdir(parents=True, exist_ok=True)
    layout.settle(drawing.figure)
    return save(drawing, stem)


def is_shown(stem):
    """Whether a page beside the folder of the picture, or above, shows STEM.png, or links to it."""
    stem = Path(stem).resolve()
    return any(re.search(rf"\[[^\]]*\]\({re.escape(os.path.relpath(stem, page.parent))}\.png\)", page.read_text(encoding="utf-8"))
               for folder in stem.parents[:4] for page in folder.glob("*.md"))


def save(drawing, stem, png=False):
    """Writes STEM.svg and STEM.csv, and STEM.png where a page shows it or it is asked for; returns their paths."""
    write_csv(drawing.rows, f"{stem}.csv")
    return style.save_picture(drawing.figure, stem, drawing.sentence, png or is_shown(stem)) + [f"{stem}.csv"]


def write_csv(rows, path):
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def of_file(manual, read, draw, markdown=None, files=1):
    """The program of a figure of its own: draws what `read` makes of its files, saves it as --out STEM and prints its sentence, or
    with --table what `markdown` makes of the same."""
    parser = argparse.ArgumentParser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=files, metavar="FILE")
    parser.add_argument("--out", required=True, metavar="STEM")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    style.apply()
    numbers = read(*asked.files)
    drawing = draw(numbers)
    save_page(drawing, asked.out)
    print(markdown(numbers) if asked.table else drawing.sentence)


def of_readme(manual, names, stem, draw, save):
    """The program of a figure of README: its reports, one of each experiment in `names`, drawn and saved as STEM."""
    parser = argparse.ArgumentParser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*")
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    if options.names:
        print(*names)
        return 0
    style.apply()
    print(*save(draw(*map(reports.load, options.reports)), f"{options.out}/{stem}"), sep="\n")
    return 0
