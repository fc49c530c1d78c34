"""The pictures that `bnlab predict` has written, on one sheet: image, truth, and each run's answer beside them.

  python3 scripts/figures/contact_sheet.py predictions [--titles TEXT...]        (scripts/plot.sh predictions calls it)

Writes contact_sheet.png into the folder. `--titles`: of the runs, in their order, in place of what tells them apart.
Exit status: 0; 1 the folder holds no predictions, or as many titles as it has not runs; 2 usage.
"""

import argparse
import json
import os
import sys

import layout
import style
from matplotlib.image import imread

_CELL = 1.1  # inches, the width of a picture
_MOST_COLUMNS = 10


def titles(runs):
    """What tells the runs apart, and no more: strategy, then grouping, then seed, then the hash of the run's id."""
    named = [run["strategy"].replace("(", "\n(", 1) for run in runs]
    for part in (lambda run: f"{run['towers']}x{run['batch_per_tower']}", lambda run: f"seed {run['seed']}",
                 lambda run: run["run_id"].rsplit("-", 1)[-1]):
        if len(set(named)) == len(named):
            break
        named = [f"{name}\n{part(run)}" for name, run in zip(named, runs)]
    return named


def draw(folder, given_titles=None):
    with open(os.path.join(folder, "predictions.json"), encoding="utf-8") as file:
        predictions = json.load(file)
    samples, runs = predictions["samples"], predictions["runs"][:_MOST_COLUMNS - 2]
    if given_titles and len(given_titles) != len(predictions["runs"]):
        raise ValueError(f"expected {len(predictions['runs'])} titles, one per run, got {len(given_titles)}")
    columns = [("image", [sample["image"] for sample in samples]), ("truth", [sample["truth"] for sample in samples])]
    columns += [(title, run["answers"]) for title, run in zip(given_titles or titles(runs), runs)]
    first = imread(os.path.join(folder, samples[0]["image"]))
    height = _CELL * first.shape[0] / first.shape[1]
    left_out = len(predictions["runs"]) - len(runs)
    caption = (f"Test samples {', '.join(str(sample['sample']) for sample in samples)} of the task "
               f"{predictions['task']['name']}; population {predictions['population']}."
               + (f" {left_out} more runs are not shown." if left_out else ""))
    figure, axes = layout.new_page("What does each strategy answer?", caption, _CELL * len(columns) + 0.12,
                                   len(samples) * (height + 0.04) + 0.35, rows=len(samples), columns=len(columns))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02)
    for column, (title, files) in enumerate(columns):
        for row, name in enumerate(files):
            cell = axes[row][column]
            cell.imshow(imread(os.path.join(folder, name)), interpolation="nearest")
            cell.set_axis_off()
            if row == 0:
                cell.set_title(title, size=style.SMALL)
    path = os.path.join(folder, "contact_sheet.png")
    figure.savefig(path, metadata={"Software": None})
    return path


def main():
    parser = argparse.ArgumentParser(prog="contact_sheet", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what bnlab predict has written")
    parser.add_argument("--titles", nargs="+", metavar="TEXT", help="of the runs, in their order")
    options = parser.parse_args()
    style.apply()
    try:
        print(draw(options.folder, options.titles))
    except (OSError, ValueError, KeyError, IndexError) as error:
        print(f"plot.sh: {options.folder}: no predictions to draw ({error})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
