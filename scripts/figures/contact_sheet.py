"""The pictures that `bnlab predict` has written, on one sheet: image, truth, and each run's answer beside them.

  python3 scripts/figures/contact_sheet.py predictions [--titles TEXT...] [--classes TEXT...] [--errors]
                                                                         (scripts/plot.sh predictions calls it)

Writes contact_sheet.png into the folder. `--titles`: of the runs, in their order, in place of what tells them apart.
`--classes`: names for the legend, in the order of their ids, where the task's options do not name them. `--errors`: classes are
grey, and what a run gets wrong is red. Where the folder lies beside the runs' folders, as results/NAME/predictions does, each
column also says what its run scored.
Exit status: 0; 1 the folder holds no predictions, or titles, classes or --errors do not fit them; 2 usage.
"""

import argparse
import glob
import json
import os
import sys
import textwrap

import numpy
import PIL.Image  # comes with matplotlib
from matplotlib.colors import to_rgb
from matplotlib.image import imread

import layout
import style

_CELL = 1.1  # inches, the width of a picture
_MOST_COLUMNS = 10
_VOID = 255
_COLOURS = (style.BLACK, style.ORANGE, style.SKY, style.GREEN, "#F0E442", style.BLUE, style.VERMILION, style.PURPLE,
            "#6B3E26", "#B3E2A5", "#8C8C8C", "#C8102E")
_WRONG = "#C8102E"
_TITLE = 22  # characters of a title that a column has room for


class DoNotFit(ValueError):
    """Titles or names of classes that are not as many as the predictions have runs or classes, or errors of what is no label map."""


def titles(runs):
    """What tells the runs apart, and no more: strategy, then grouping, then seed, then the hash of the run's id."""
    named = [run["strategy"].replace("(", "\n(", 1) for run in runs]
    for part in (lambda run: f"{run['towers']}x{run['batch_per_tower']}", lambda run: f"seed {run['seed']}",
                 lambda run: run["run_id"].rsplit("-", 1)[-1]):
        if len(set(named)) == len(named):
            break
        named = [f"{name}\n{part(run)}" for name, run in zip(named, runs)]
    return named


def record_of(experiment, run_id):
    """The record of a run, in its folder or in the ledger of its experiment; None where there is none."""
    for file in sorted(glob.glob(os.path.join(glob.escape(experiment), run_id, "*", "record.json"))):
        with open(file, encoding="utf-8") as record:
            return json.load(record)
    for ledger in glob.glob(os.path.join(glob.escape(experiment), "runs.jsonl")):
        with open(ledger, encoding="utf-8") as lines:
            return next((record for record in map(json.loads, lines) if record["run_id"] == run_id), None)
    return None


def scores(folder, predictions):
    """Of each run "mean IoU 0.42" on the whole test split, from its record beside the folder; "" where there is none."""
    texts = []
    for run in predictions["runs"]:
        record = record_of(os.path.join(folder, os.pardir), run["run_id"])
        texts.append("")
        if record:
            final = record["result"]["final"]
            value = final.get(predictions["population"], final.get("saved", {})).get("mean_iou")
            texts[-1] = "" if value is None else f"mean IoU {value:.2f}"
    return texts


def label_map(file):
    """(ids [height, width], its own palette [ids, 3]), or (None, None) of another picture."""
    with PIL.Image.open(file) as picture:
        if picture.mode != "P":
            return None, None
        return numpy.asarray(picture), numpy.array(picture.getpalette()).reshape(-1, 3) / 255


def shown(file):
    """(picture as it is drawn, {id of a class that it shows: its colour}). The ids of label maps get colours that everybody
    can tell apart, as far as there are any; void is white."""
    ids, palette = label_map(file)
    if ids is None:
        return imread(file), {}
    return painted(ids, numpy.array([colour_of(value, palette) for value in range(256)]))


def shown_errors(file, truth, greys):
    """The same in greys [ids, 3], red where a label map differs from the truth."""
    ids, _ = label_map(file)
    if ids is None:
        return imread(file), {}
    picture, colours = painted(ids, greys)
    picture[is_wrong(ids, truth)] = to_rgb(_WRONG)
    return picture, colours


def painted(ids, colours):
    return colours[ids], {value: tuple(colours[value]) for value in numpy.unique(ids).tolist()}


def greys_of(classes):
    """From white for class 0 on, and white for void."""
    greys = numpy.interp(numpy.arange(256), [0, max(classes - 1, 1)], [1, 0.4])
    greys[_VOID] = 1
    return numpy.repeat(greys[:, None], 3, axis=1)


def is_wrong(ids, truth):
    return (ids != truth) & (truth != _VOID)


def share_wrong(answers, truths):
    """Of all pixels whose truth is a class."""
    return sum(is_wrong(*pair).sum() for pair in zip(answers, truths)) / max(sum((truth != _VOID).sum() for truth in truths), 1)


def colour_of(value, palette):
    if value == _VOID:
        return (1, 1, 1)
    return to_rgb(_COLOURS[value]) if value < len(_COLOURS) else tuple(palette[value]) if value < len(palette) else (0, 0, 0)


def legend_of(colours, names):
    """Name -> Style of classes, of {id: colour}."""
    return {"void" if value == _VOID else names[value] if value < len(names) else f"class {value}":
            style.Style(colour, "s", "") for value, colour in sorted(colours.items())}


def check_names(names, task, ids):
    """Raises DoNotFit unless there is a name for every class: as many as the task has, where its options tell, else for
    every id that the pictures show."""
    classes = task.get("classes")
    count = len(classes) if isinstance(classes, list) else classes
    if count is not None and len(names) != count:
        raise DoNotFit(f"--classes: expected {count} names, one for each class, got {len(names)}: {', '.join(names)}")
    highest = max((value for value in ids if value != _VOID), default=0)
    if len(names) <= highest:
        raise DoNotFit(f"--classes: expected {highest + 1} names or more, as the pictures show ids up to {highest}, "
                       f"got {len(names)}: {', '.join(names)}")


def draw(folder, given_titles=None, class_names=None, errors=False):
    with open(os.path.join(folder, "predictions.json"), encoding="utf-8") as file:
        predictions = json.load(file)
    samples, runs = predictions["samples"], predictions["runs"][:_MOST_COLUMNS - 2]
    if given_titles and len(given_titles) != len(predictions["runs"]):
        raise DoNotFit(f"--titles: expected {len(predictions['runs'])} titles, one per run, got {len(given_titles)}: "
                       f"{', '.join(given_titles)}")
    task = predictions["task"]
    names = class_names or (task["classes"] if isinstance(task.get("classes"), list) else [])
    told = ["\n".join(textwrap.fill(line, _TITLE, break_long_words=False, break_on_hyphens=False) for line in title.split("\n"))
            for title in given_titles or titles(predictions["runs"])]
    of_runs = scores(folder, predictions)
    named = [f"{title}\n{score}" if score else title for title, score in zip(told, of_runs)]
    columns = [("image", [sample["image"] for sample in samples]), ("truth", [sample["truth"] for sample in samples])]
    columns += [(title, run["answers"]) for title, run in zip(named, runs)]
    first = imread(os.path.join(folder, samples[0]["image"]))  # all cells have its shape
    height = _CELL * first.shape[0] / first.shape[1]
    left_out = len(predictions["runs"]) - len(runs)
    def maps(files):
        ids = [label_map(os.path.join(folder, name))[0] for name in files]
        if any(each is None for each in ids):
            raise DoNotFit("--errors: expected predictions of classes, pixel by pixel")
        return ids

    told_scores = [f"{title.split(chr(10))[0]} {score}" for title, score in zip(told, of_runs) if score]
    heading = ", ".join(told_scores) or f"The answers of {len(runs)} trained network{'s' if len(runs) > 1 else ''}"
    if errors:
        truths = maps(columns[1][1])
        greys = greys_of(1 + max(truth[truth != _VOID].max(initial=0) for truth in truths))
        pictures = {name: shown_errors(os.path.join(folder, name), truth, greys)
                    for _, files in columns for name, truth in zip(files, truths)}
        heading = "Wrong pixels (red): " + ", ".join(
            f"{title.split(chr(10))[0]} {100 * share_wrong(maps(run['answers']), truths):.0f} %" for title, run in zip(told, runs))
    else:
        pictures = {name: shown(os.path.join(folder, name)) for _, files in columns for name in files}
    colours = {value: colour for _, of_picture in pictures.values() for value, colour in of_picture.items()}
    if class_names:
        check_names(class_names, task, colours)
    legend = legend_of(colours, names)
    caption = (f"{task['name']}, test samples {', '.join(str(sample['sample']) for sample in samples)}"
               + (f"; seed {runs[0]['seed']}" if len({run["seed"] for run in runs}) == 1 else "")
               + (f"; {left_out} more runs" if left_out else "") + ".")
    lines = max(title.count("\n") for title, _ in columns)
    figure, axes = layout.new_page(heading, caption, _CELL * len(columns) + 0.12,
                                   len(samples) * (height + 0.04) + 0.25 + 0.1 * lines, rows=len(samples),
                                   columns=len(columns), legend=legend)
    for key in figure.legends[0].legend_handles if figure.legends else ():
        key.set(markersize=6, markeredgecolor=style.GREY, markeredgewidth=0.4)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02)
    for column, (title, files) in enumerate(columns):
        for row, name in enumerate(files):
            cell = axes[row][column]
            cell.imshow(pictures[name][0], interpolation="nearest")
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
    parser.add_argument("--classes", nargs="+", metavar="TEXT", help="names of the classes, in the order of their ids")
    parser.add_argument("--errors", action="store_true", help="classes in grey, and what a run gets wrong in red")
    options = parser.parse_args()
    style.apply()
    try:
        print(draw(options.folder, options.titles, options.classes, options.errors))
    except DoNotFit as error:
        print(f"plot.sh: {options.folder}: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError, KeyError, IndexError) as error:
        print(f"plot.sh: {options.folder}: no predictions to draw ({error})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
