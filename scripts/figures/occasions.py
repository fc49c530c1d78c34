#!/usr/bin/env python3
"""How far images/s that were timed in turns agree between two occasions.

  scripts/figures/occasions.py FIRST.json SECOND.json ... --out STEM [--table]

FIRST.json, SECOND.json: what `bnlab report --format json` says of one experiment's runs of the first occasion and of the second,
and so on for further experiments; --table: prints the counts in Markdown in place of a sentence.
"""

import argparse
import math
import statistics
from collections import namedtuple

import layout
import report as reports
import style
from drawing import Drawing, save_page
from report import grouping_text

_WITHIN = 3  # points

_COLOURS = (style.VERMILION, style.BLUE, style.GREEN, style.ORANGE, style.PURPLE, style.BLACK)
_MARKERS = ("o", "s", "^", "D", "v", "P")
# Images/s in % of the run beside, on both occasions, and the half-widths of their intervals in the same unit.
Cell = namedtuple("Cell", "experiment name first second first_half second_half")


def cells_of(first, second):
    """The cells of an experiment that both reports of it have timed in turns, several runs each."""
    later = _timed(second)
    for name, (mean, half) in _timed(first).items():
        if name in later:
            yield Cell(first.name, name, mean, later[name][0], half, later[name][1])


def _timed(report):
    """Name of the cell -> (mean, half-width), in % of the run beside."""
    found = {}
    for row in (row for cell in report.cells for row in cell.rows):
        log = row.log_images_per_s
        if log and log.half_width is not None:
            conditions = [f"{key} {text}" for key, text in sorted(row.cell.conditions.items())]
            mean = 100 * math.exp(log.mean)
            found[", ".join([row.strategy, grouping_text(row.grouping), *conditions, row.placement])] = mean, mean * log.half_width
    return found


def _agrees(cell):
    return abs(cell.second - cell.first) <= _WITHIN


def _overlaps(cell):
    return abs(cell.second - cell.first) <= cell.first_half + cell.second_half


def _counts(cells):
    """(cells, those within _WITHIN points, those whose intervals overlap, median and largest distance in points)."""
    apart = sorted(abs(cell.second - cell.first) for cell in cells)
    return len(cells), sum(map(_agrees, cells)), sum(map(_overlaps, cells)), statistics.median(apart), apart[-1]


def _look(k):
    """Every further round of the colours has other markers."""
    turn, place = divmod(k, len(_COLOURS))
    return style.Style(_COLOURS[place], _MARKERS[(place + turn) % len(_MARKERS)], "")


def draw(cells):
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    styles = {name: _look(k) for k, name in enumerate(experiments)}
    figure, axes = layout.new_page(
        "Do the times repeat?",
        "A mark per cell and way of exchange: images/s in % of the run beside it on the first occasion, and how many points more they "
        f"were on the second. Bars: the half-widths of both 95 % t intervals, added. Hollow: over sockets. Grey: within {_WITHIN} points.", style.DOUBLE,
        2.6, legend={name: styles[name] for name in experiments})
    at = axes[0][0]
    at.axhspan(-_WITHIN, _WITHIN, color="#ececec", zorder=0)
    at.axhline(0, color=style.GREY, linewidth=0.8, zorder=1)
    for cell in cells:
        look = styles[cell.experiment]
        at.errorbar(cell.first, cell.second - cell.first, yerr=cell.first_half + cell.second_half, color=look.colour,
                    marker=look.marker, markersize=4, elinewidth=0.7, alpha=0.85,
                    markerfacecolor="white" if cell.name.endswith("-sockets") else look.colour)
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
    parser.add_argument("--out", required=True, metavar="STEM")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    style.apply()
    read = []
    for name in asked.reports:
        with open(name, encoding="utf-8") as file:
            read.append(reports.read(file))
    cells = [cell for first, second in zip(read[::2], read[1::2], strict=True) for cell in cells_of(first, second)]
    drawing = draw(cells)
    save_page(drawing, asked.out)
    print(markdown(cells) if asked.table else drawing.sentence)


if __name__ == "__main__":
    main()
