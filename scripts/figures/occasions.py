#!/usr/bin/env python3
"""How far images/s that were timed in turns agree between two occasions.

  scripts/figures/occasions.py FIRST.json SECOND.json ... --out STEM [--table]

FIRST.json, SECOND.json: what `bnlab report --format json` says of one experiment's runs of the first occasion and of the second,
and so on for further experiments; --table: prints the counts in Markdown in place of a sentence.
"""

import math
import statistics
from collections import namedtuple

import layout
import report as reports
import style
from drawing import Drawing, of_file
from report import grouping_text

_WITHIN = 3  # points

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


def draw(cells):
    count, within, _, median, largest = _counts(cells)
    sentence = f"{within} of {count} times differ by at most {_WITHIN} points between two occasions, the most by {largest:.1f}."
    figure, axes = layout.new_page(sentence, f"Images/s in % of the run beside; median difference {median:.1f}; grey: within {_WITHIN} points.",
                                   style.DOUBLE, 2.2)
    at = axes[0][0]
    numbers = [{**cell._asdict(), "points_more": cell.second - cell.first, "overlaps": _overlaps(cell)} for cell in cells]
    furthest = math.ceil(largest)
    at.axvspan(-_WITHIN, _WITHIN, color="#ececec", zorder=0)
    ways = {"through shared memory, or one rank": False, "over sockets": True}
    at.hist([[row["points_more"] for row in numbers if row["name"].endswith("-sockets") == sockets] for sockets in ways.values()],
            bins=range(-furthest, furthest + 1), stacked=True, color=(style.BLUE, style.SKY), edgecolor="white", label=list(ways))
    at.legend(loc="upper left")
    at.set_xlabel("points more on the second occasion")
    at.set_ylabel("cells")
    return Drawing(figure, numbers, sentence)


def markdown(cells):
    text = f"| experiment | cells | within {_WITHIN} points | intervals overlap | median distance, points | largest |\n"
    text += "|---|---:|---:|---:|---:|---:|\n"
    experiments = list(dict.fromkeys(cell.experiment for cell in cells))
    rows = [(f"[{name}](../{name}/README.md)", [cell for cell in cells if cell.experiment == name]) for name in experiments]
    for name, part in [*rows, ("all", cells)]:
        count, within, overlapping, median, largest = _counts(part)
        text += f"| {name} | {count} | {within} | {overlapping} | {median:.1f} | {largest:.1f} |\n"
    return text


def cells_of_all(*files):
    read = list(map(reports.load, files))
    return [cell for first, second in zip(read[::2], read[1::2], strict=True) for cell in cells_of(first, second)]


if __name__ == "__main__":
    of_file(__doc__, cells_of_all, draw, markdown, files="+")
