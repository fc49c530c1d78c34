#!/usr/bin/env python3
"""How far images/s that were timed in turns agree between two occasions, which are told apart by their seeds.

  scripts/figures/occasions.py REPORT.json... --second SEED,... --out STEM [--table]

REPORT.json: what `bnlab report --format json` says of an experiment; --second: the seeds of the second occasion; --table: prints
the counts in Markdown in place of a sentence.
"""

import argparse
import math
import statistics
from collections import namedtuple
from pathlib import Path

import layout
import report as reports
import style
from drawing import Drawing, save
from report import grouping_text

_WITHIN = 3  # points
_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306}  # 95 %, by the number of values

# Images/s in % of the run beside, on both occasions, and the half-widths of their 95 % t intervals in the same unit.
Cell = namedtuple("Cell", "experiment name first second first_half second_half")


def cells_of(report, second):
    """The cells of a report that were timed in turns on both occasions; `second`: the seeds of the later one."""
    for row in (row for cell in report.cells for row in cell.rows):
        seeds = row.log_images_per_s.seeds if row.log_images_per_s else {}
        halves = [[value for seed, value in seeds.items() if (seed in second) == late] for late in (False, True)]
        if min(map(len, halves)) >= 2:
            name = ", ".join([row.strategy, grouping_text(row.grouping),
                              *(f"{key} {text}" for key, text in sorted(row.cell.conditions.items())), row.placement])
            (first, first_half), (later, later_half) = map(_per_cent, halves)
            yield Cell(report.name, name, first, later, first_half, later_half)


def _per_cent(logarithms):
    """(mean, half-width) of ratios of which these are the logarithms."""
    mean = 100 * math.exp(statistics.mean(logarithms))
    return mean, mean * _T[len(logarithms)] * statistics.stdev(logarithms) / math.sqrt(len(logarithms))


def _agrees(cell):
    return abs(cell.second - cell.first) <= _WITHIN


def _overlaps(cell):
    return abs(cell.second - cell.first) <= cell.first_half + cell.second_half


def _counts(cells):
    """(cells, those within _WITHIN points, those whose intervals overlap, median and largest distance in points)."""
    apart = sorted(abs(cell.second - cell.first) for cell in cells)
    return len(cells), sum(map(_agrees, cells)), sum(map(_overlaps, cells)), statistics.median(apart), apart[-1]


def draw(cells):
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    styles = style.styles_of(experiments)
    figure, axes = layout.new_page(
        "Do the times repeat?",
        "A mark per cell and way of exchange: images/s in % of the run beside it on the first occasion, and how many points more they "
        f"were on the second. Bars: the half-widths of both 95 % t intervals, added. Grey: within {_WITHIN} points.", style.DOUBLE,
        2.6, legend={name: styles[name] for name in experiments})
    at = axes[0][0]
    at.axhspan(-_WITHIN, _WITHIN, color="#ececec", zorder=0)
    at.axhline(0, color=style.GREY, linewidth=0.8, zorder=1)
    for cell in cells:
        look = styles[cell.experiment]
        at.errorbar(cell.first, cell.second - cell.first, yerr=cell.first_half + cell.second_half, color=look.colour,
                    marker=look.marker, markersize=4, elinewidth=0.7, alpha=0.85)
    at.set_xlabel("images/s on the first occasion, % of the run beside")
    at.set_ylabel("points more on the second")
    numbers = [{**cell._asdict(), "points_more": cell.second - cell.first, "overlaps": _overlaps(cell)} for cell in cells]
    count, within, overlapping, median, largest = _counts(cells)
    return Drawing(figure, numbers, f"Of {count} cells {within} differ by at most {_WITHIN} points between the occasions, the "
                                    f"median by {median:.1f}, the most by {largest:.1f}; in {overlapping} the intervals overlap.")


def markdown(cells):
    text = f"| experiment | cells | within {_WITHIN} points | intervals overlap | median distance, points | largest |\n"
    text += "|---|---:|---:|---:|---:|---:|\n"
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    rows = [(f"[{name}](../{name}/README.md)", [cell for cell in cells if cell.experiment == name]) for name in experiments]
    for name, part in [*rows, ("all", cells)]:
        count, within, overlapping, median, largest = _counts(part)
        text += f"| {name} | {count} | {within} | {overlapping} | {median:.1f} | {largest:.1f} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", metavar="REPORT.json")
    parser.add_argument("--second", required=True, metavar="SEED,...")
    parser.add_argument("--out", required=True, metavar="STEM")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    style.apply()
    Path(asked.out).parent.mkdir(parents=True, exist_ok=True)
    second, cells = set(map(int, asked.second.split(","))), []
    for name in asked.reports:
        with open(name, encoding="utf-8") as file:
            cells += cells_of(reports.read(file), second)
    drawing = draw(cells)
    layout.settle(drawing.figure)
    save(drawing, asked.out)
    print(markdown(cells) if asked.table else drawing.sentence)


if __name__ == "__main__":
    main()
