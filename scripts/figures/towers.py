#!/usr/bin/env python3
"""The processor time of a step against towers and ranks, as tests/bench/towers_bench.py measures it.

  scripts/figures/towers.py FILE --out STEM [--table]     FILE: of towers_bench.py --out; --table: prints the numbers in Markdown
"""

import json
import math
import statistics
from pathlib import Path

import layout
import style
from drawing import Drawing, of_file

_PANELS = {"towers of a process": "towers in one process, the same images", "ranks": "ranks, 64 towers"}


def lines_of(file):
    """(panel, strategy, [(number, median, smallest, largest of all times over the first median)], exponent)."""
    for table in json.loads(Path(file).read_text(encoding="utf-8"))["tables"]:
        first = statistics.median(table["rows"][0]["processor_ms"])
        points = [(row["number"], statistics.median(row["processor_ms"]) / first, min(row["processor_ms"]) / first,
                   max(row["processor_ms"]) / first) for row in table["rows"]]
        exponent = math.log(points[-1][1]) / math.log(points[-1][0] / points[0][0])
        yield table["along"], table["strategy"], points, exponent, first


def draw(lines):
    strategies = list(dict.fromkeys(strategy for _, strategy, *_ in lines))
    styles = style.styles_of(strategies)
    panels = list(dict.fromkeys(along for along, *_ in lines))
    figure, axes = layout.new_page(
        _sentence(lines), "Processor time of a step, all ranks together; medians, bars: smallest to largest; dashes: in proportion to the ranks.",
        style.DOUBLE, 2.4, columns=len(panels), legend={name: styles[label] for label, name in style.names(strategies, words=True).items()})
    numbers = []
    for at, along in zip(axes[0], panels):
        at.axhline(1, color=style.GREY, linewidth=0.8, zorder=1)
        of_panel = [line for line in lines if line[0] == along]
        for k, (_, strategy, points, exponent, _) in enumerate(of_panel):
            look = styles[strategy]
            at.errorbar([number for number, *_ in points], [median for _, median, *_ in points],
                        [[median - low for _, median, low, _ in points], [high - median for _, median, _, high in points]],
                        color=look.colour, marker=look.marker, linestyle=look.dash, markersize=4.5, linewidth=1.1,
                        transform=layout.dodged(at, k, len(of_panel)))
            numbers += [{"panel": along, "strategy": strategy, "number": number, "relative": median, "low": low, "high": high,
                         "exponent": exponent} for number, median, low, high in points]
        ticks = sorted({number for _, _, points, *_ in of_panel for number, *_ in points})
        if along == "ranks":
            at.plot(ticks, [number / ticks[0] for number in ticks], color=style.GREY, linestyle="--", linewidth=0.8, zorder=1)
        at.set_xscale("log", base=4)
        at.set_xlim(ticks[0] / 1.5, ticks[-1] * 1.5)
        at.set_xticks(ticks, [f"{number:,}" for number in ticks])
        at.set_xlabel(_PANELS.get(along, along))
        at.set_ylim(0, 1.05 * max(high for _, _, points, *_ in of_panel for *_, high in points))
    axes[0][0].set_ylabel("relative processor time")
    return Drawing(figure, numbers, _sentence(lines))


def _sentence(lines):
    """For each panel the strategy whose time grows most."""
    most = {}
    for line in sorted(lines, key=lambda line: line[2][-1][1]):
        most[line[0]] = line
    said = [f"{points[-1][1]:.2f} times at {points[-1][0]:,} {along.split()[0]} ({strategy})" for along, strategy, points, *_ in most.values()]
    return f"The processor time of a step grows at most {' and '.join(said)}."


def markdown(lines):
    text = "| along | strategy | number | processor time over the first row | smallest to largest | exponent |\n|---|---|---:|---:|---|---:|\n"
    for along, strategy, points, exponent, first in lines:
        for number, median, low, high in points:
            shown = f"1 ({first:.0f} ms)" if number == points[0][0] else f"{median:.3f}"
            text += f"| {along} | `{strategy}` | {number:,} | {shown} | {low:.3f} to {high:.3f} | "
            text += (f"{exponent:.3f}" if number == points[-1][0] else "") + " |\n"
    return text


if __name__ == "__main__":
    of_file(__doc__, lambda file: list(lines_of(file)), draw, markdown)
