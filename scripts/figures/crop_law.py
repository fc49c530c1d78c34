"""Whether what `per_tower` loses against `sync` follows from the values per statistic at the poorest norm site alone.

  python3 scripts/figures/crop_law.py --names
  python3 scripts/figures/crop_law.py REPORT.json... --out results/crop_size/figures

The reports are those of crop_size and crop_size_streets. In each, the law loss = a v^-k is fitted by least squares to the cells
of 32 and 96 pixels, and judged on those of 64, which have other networks, too. Its interval for a new cell is the 95 % t interval
of a prediction. It holds if on all judged cells together its mean error is below that of the nearest fitted cell, the median
half-width is at most 5 points and at most one of twelve cells lies outside.
"""

import sys
from collections import namedtuple

import numpy as np

import drawing
import layout
import style

FITTED, JUDGED = ("[32,32]", "[96,96]"), ("[64,64]",)  # crops
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447}  # by degrees of freedom

Cell = namedtuple("Cell", "crop levels images values loss")  # loss: points below sync, the mean over seeds
Law = namedtuple("Law", "a k predict")  # predict: values -> (loss, half-width)
Judged = namedtuple("Judged", "cell loss half_width nearest")  # predicted, and the loss of the nearest fitted cell


def cells_of(report):
    sync = {(cell.conditions["task.crop"], cell.conditions["model.levels"]): cell.value("saved").seeds
            for cell in report.cells if cell.label == "sync"}
    found = []
    for cell in report.cells:
        if cell.label != "per_tower":
            continue
        crop, levels = place = cell.conditions["task.crop"], cell.conditions["model.levels"]
        own = cell.value("saved").seeds
        losses = [100 * (sync[place][seed] - own[seed]) for seed in own if seed in sync[place]]
        images = cell.grouping.batch
        values = min(site.numbers["values_per_image"].mean for site in cell.sites) * images
        found.append(Cell(crop, levels, images, values, float(np.mean(losses))))
    return found


def fit(cells):
    v, loss = (np.array([getattr(cell, name) for cell in cells], float) for name in ("values", "loss"))
    freedom = len(cells) - 2

    def at(k):
        shape = v ** -k
        a = shape @ loss / (shape @ shape)
        return np.sum((loss - a * shape) ** 2), a, k

    squares, a, k = min(at(k) for k in np.arange(0, 3.0005, 0.001))
    slopes = lambda values: np.stack([values ** -k, -a * values ** -k * np.log(values)])  # by a and by k
    spread = np.linalg.pinv(slopes(v) @ slopes(v).T)

    def predict(values):
        slope = slopes(np.array(float(values)))
        return a * values ** -k, T_975[freedom] * np.sqrt(squares / freedom * (1 + slope @ spread @ slope))

    return Law(a, k, predict)


def nearest(cell, fitted):
    """The mean loss of those whose values are nearest, by their ratio."""
    apart = [abs(np.log(other.values / cell.values)) for other in fitted]
    return float(np.mean([other.loss for other, far in zip(fitted, apart) if far < min(apart) + 1e-9]))


def judge(report):
    cells = cells_of(report)
    fitted = [cell for cell in cells if cell.crop in FITTED]
    law = fit(fitted)
    return law, fitted, [Judged(cell, *law.predict(cell.values), nearest(cell, fitted)) for cell in cells if cell.crop in JUDGED]


def verdict(judged):
    error = np.mean([abs(each.cell.loss - each.loss) for each in judged])
    beside = np.mean([abs(each.cell.loss - each.nearest) for each in judged])
    half_width = np.median([each.half_width for each in judged])
    outside = sum(abs(each.cell.loss - each.loss) > each.half_width for each in judged)
    holds = error < beside and half_width <= 5 and outside <= len(judged) / 12
    return {"holds": bool(holds), "error": error, "error_of_nearest": beside, "half_width": half_width, "outside": outside,
            "of": len(judged)}


TITLES = {"crop_size": "nuclei", "crop_size_streets": "street images"}


def sentence(found):
    """`found`: what `verdict` says."""
    says = "follows" if found["holds"] else "does not follow"
    return (f"The loss of each GPU's own statistics {says} from the values per statistic: off by {found['error']:.1f} points, "
            f"the nearest cell by {found['error_of_nearest']:.1f}.")


def draw(*found):
    every = [(report.name, *judge(report)) for report in found]
    says = sentence(verdict([each for *_, judged in every for each in judged]))
    looks = {"fitted: 32 and 96 pixels": style.Style(style.BLUE, "o", "none"),
             "judged: 64 pixels": style.Style(style.VERMILION, "s", "none")}
    figure, panels = layout.new_page(says, "per_tower against sync, means over the seeds; lines: the fitted law with its 95 % interval.",
                                     style.DOUBLE, 2.5, columns=len(every), legend=looks)
    rows = []
    for axes, (name, law, fitted, judged) in zip(panels[0], every):
        judged_cells = [each.cell for each in judged]
        all_values = [cell.values for cell in fitted + judged_cells]
        line = np.geomspace(min(all_values) / 1.3, max(all_values) * 1.3, 100)
        predicted, half_width = np.array([law.predict(values) for values in line]).T
        axes.axhline(0, color=style.GREY, linewidth=0.8)
        axes.plot(line, predicted, color=style.BLACK, linewidth=1)
        axes.fill_between(line, predicted - half_width, predicted + half_width, color=style.FAINT, alpha=0.4, linewidth=0)
        for look, cells in zip(looks.values(), (fitted, judged_cells)):
            axes.plot([cell.values for cell in cells], [cell.loss for cell in cells], color=look.colour, marker=look.marker,
                      linestyle="none")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(f"{TITLES[name]}: values per statistic at the poorest site")
        predictions = {id(each.cell): each for each in judged}
        for cell in fitted + judged_cells:
            of = predictions.get(id(cell))
            rows.append({"experiment": name, **cell._asdict(), "predicted": of and of.loss, "half_width": of and of.half_width,
                         "nearest": of and of.nearest})
    panels[0][0].set_ylabel("points below sync")
    return drawing.Drawing(figure, rows, says)


if __name__ == "__main__":
    sys.exit(drawing.of_readme(__doc__, TITLES, "crop_law", draw, drawing.save_page))
