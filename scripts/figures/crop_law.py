"""Whether what `per_tower` loses against `sync` follows from the values per statistic at the poorest norm site, or from the images per GPU.

  python3 scripts/figures/crop_law.py CROP_SIZE.json CROP_SIZE_STREETS.json --out results/crop_size/crop_law [--table]

The reports are those of crop_size and crop_size_streets. In each, the law loss = a n^-k is fitted by least squares to the cells
of 32 and 96 pixels, and judged on those of 64, which have other networks, too. Its interval for a new cell is the 95 % t interval
of a prediction. It holds if on all judged cells together its mean error is below that of the nearest fitted cell, the median
half-width is at most 5 points and at most one of twelve cells lies outside. Once n are the values per statistic, declared before
any run. Once n are the images per GPU, declared after the runs on nuclei and before those on street images.
"""

from collections import namedtuple

import numpy as np

import layout
import report as reports
import style
from drawing import Drawing, of_file

FITTED, JUDGED = ("[32,32]", "[96,96]"), ("[64,64]",)  # crops
BY = {"values": "values per statistic at the poorest site", "images": "images per GPU"}
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447}  # by degrees of freedom

Cell = namedtuple("Cell", "crop levels images values loss")  # loss: points below sync, the mean over seeds
Law = namedtuple("Law", "a k predict")  # predict: n -> (loss, half-width)
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


def fit(cells, by):
    """`by`: a key of BY."""
    v, loss = (np.array([getattr(cell, name) for cell in cells], float) for name in (by, "loss"))
    freedom = len(cells) - 2

    def at(k):
        shape = v ** -k
        a = shape @ loss / (shape @ shape)
        return np.sum((loss - a * shape) ** 2), a, k

    squares, a, k = min(at(k) for k in np.arange(0, 3.0005, 0.001))
    slopes = lambda values: np.stack([values ** -k, -a * values ** -k * np.log(values)])  # by a and by k
    spread = np.linalg.pinv(slopes(v) @ slopes(v).T)

    def predict(n):
        slope = slopes(np.array(float(n)))
        return a * n ** -k, T_975[freedom] * np.sqrt(squares / freedom * (1 + slope @ spread @ slope))

    return Law(a, k, predict)


def nearest(cell, fitted, by):
    """The mean loss of those that are nearest, by their ratio."""
    apart = [abs(np.log(getattr(other, by) / getattr(cell, by))) for other in fitted]
    return float(np.mean([other.loss for other, far in zip(fitted, apart) if far < min(apart) + 1e-9]))


def judge(report, by):
    cells = cells_of(report)
    fitted = [cell for cell in cells if cell.crop in FITTED]
    law = fit(fitted, by)
    return law, fitted, [Judged(cell, *law.predict(getattr(cell, by)), nearest(cell, fitted, by))
                         for cell in cells if cell.crop in JUDGED]


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
    """`found`: what `verdict` says of each key of BY."""
    off = {by: f"{one['error']:.1f}" for by, one in found.items()}
    holding = [BY[by] for by, one in found.items() if one["holds"]]
    holds = f"The law holds by {' and by '.join(holding)}" if holding else "Neither law holds"
    return f"{holds}: images per GPU err by {off['images']} points, values per statistic by {off['values']}."


def judge_all(found):
    """{key of BY: what `judge` says of each report}"""
    return {by: [judge(report, by) for report in found] for by in BY}


def verdicts(every):
    return {by: verdict([each for *_, judged in laws for each in judged]) for by, laws in every.items()}


def markdown(found):
    text = "| loss = a n^-k, n | error | of the nearest cell | interval | outside | verdict |\n|---|---:|---:|---:|---:|---|\n"
    every = judge_all(found)
    alone = [(f", {TITLES[report.name]} alone", verdicts({by: [laws[k]] for by, laws in every.items()})) for k, report in enumerate(found)]
    for where, of_each in [("", verdicts(every)), *alone]:
        for by, one in of_each.items():
            text += (f"| {BY[by]}{where} | {one['error']:.1f} | {one['error_of_nearest']:.1f} | ±{one['half_width']:.1f} | "
                     f"{one['outside']} of {one['of']} | {'-' if where else 'holds' if one['holds'] else 'refuted'} |\n")
    return text


def draw(found):
    every = judge_all(found)
    says = sentence(verdicts(every))
    looks = {"fitted: 32 and 96 pixels": style.Style(style.BLUE, "o", "none"),
             "judged: 64 pixels": style.Style(style.VERMILION, "s", "none")}
    figure, panels = layout.new_page(says, "What per_tower loses against sync, means over the seeds; lines: the fitted law with its 95 % interval.",
                                     style.DOUBLE, 2.3 * len(found), rows=len(found), columns=len(BY), legend=looks)
    rows = []
    for report, of_report, *laws in zip(found, panels, *every.values()):
        for axes, by, (law, fitted, judged) in zip(of_report, BY, laws):
            cells = fitted + [each.cell for each in judged]
            places = [getattr(cell, by) for cell in cells]
            line = np.geomspace(min(places) / 1.2, max(places) * 1.2, 100)
            predicted, half_width = np.array([law.predict(n) for n in line]).T
            axes.axhline(0, color=style.GREY, linewidth=0.8)
            axes.plot(line, predicted, color=style.BLACK, linewidth=1)
            axes.fill_between(line, predicted - half_width, predicted + half_width, color=style.FAINT, alpha=0.4, linewidth=0)
            for look, drawn in zip(looks.values(), (fitted, [each.cell for each in judged])):
                axes.plot([getattr(cell, by) for cell in drawn], [cell.loss for cell in drawn], color=look.colour,
                          marker=look.marker, linestyle="none")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_xlabel(f"{TITLES[report.name]}: {BY[by]}")
            rows += [{"experiment": report.name, "by": by, **cell._asdict(), "predicted": None, "half_width": None,
                      "nearest": None} for cell in fitted]
            rows += [{"experiment": report.name, "by": by, **each.cell._asdict(), "predicted": each.loss,
                      "half_width": each.half_width, "nearest": each.nearest} for each in judged]
        of_report[0].set_ylabel("points below sync")
    # The last digits of a fit are the processor's.
    rounded = [{key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()} for row in rows]
    return Drawing(figure, rounded, says)


if __name__ == "__main__":
    of_file(__doc__, lambda *files: list(map(reports.load, files)), draw, markdown, files=len(TITLES))
