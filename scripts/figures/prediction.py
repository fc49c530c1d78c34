#!/usr/bin/env python3
"""Efficiency against ranks, as `bnlab cost --json` predicts it: a line per strategy with its interval, measured points on it.

  scripts/figures/prediction.py --out STEM TITLE=COST.json...     a panel for each file

Efficiency is the images/s of all ranks over those of as many ranks that wait for nobody, each with the step of the baseline
(the first strategy that exchanges gradients alone). Each file has rows of one exchange.
"""

import argparse
import json
from pathlib import Path

import layout
import style
from drawing import Drawing, save_page


def rows_of(file, strategies):
    rows = [row for row in json.loads(Path(file).read_text(encoding="utf-8"))["rows"] if "refused" not in row]
    labels = strategies or list(dict.fromkeys(row["strategy"] for row in rows))
    baseline = next(row for row in rows if row["statistics_s"]["mid"] == 0)
    own = baseline["own_s"]["mid"]
    points = []
    for row in rows:
        if row["strategy"] in labels and row["model"] == rows[0]["model"]:
            step, measured = row["step_s"], row["measured_step_s"]
            points.append({"strategy": row["strategy"], "ranks": row["ranks"], "efficiency": own / step["mid"],
                           "low": own / step["high"], "high": min(own / step["low"], 1.2),
                           "measured": own / measured if measured else None})
    return points


def _measured_note(panels):
    measured = [point for points in panels.values() for point in points if point["measured"]]
    outside = [f"{point['strategy']} on {point['ranks']} ranks" for point in measured
               if not point["low"] <= point["measured"] <= point["high"]]
    if not measured:
        return ""
    return f"Marks: what was measured, {len(measured) - len(outside)} of {len(measured)} inside its band" + (
        f" (outside: {', '.join(outside)})." if outside else ".")


def draw(panels, strategies):
    every = {title: rows_of(file, strategies) for title, file in panels}
    labels = list(dict.fromkeys(point["strategy"] for points in every.values() for point in points))
    styles = style.styles_of(labels)
    figure, axes = layout.new_page(
        "How efficient are more ranks?",
        "Images/s of all ranks over those of as many ranks that wait for nobody, predicted by bnlab cost; bands: its intervals. "
        + _measured_note(every), style.DOUBLE, 2.6, columns=len(every),
        legend={label: styles[label] for label in labels}, sharey=True)
    numbers = []
    for at, (title, points) in zip(axes[0], every.items()):
        for label in labels:
            line = sorted((point for point in points if point["strategy"] == label), key=lambda point: point["ranks"])
            if not line:
                continue
            look = styles[label]
            ranks = [point["ranks"] for point in line]
            at.plot(ranks, [point["efficiency"] for point in line], color=look.colour, linestyle=look.dash)
            at.fill_between(ranks, [point["low"] for point in line], [point["high"] for point in line], color=look.colour,
                            alpha=0.12, linewidth=0)
            measured = [point for point in line if point["measured"]]
            at.plot([point["ranks"] for point in measured], [point["measured"] for point in measured], color=look.colour,
                    marker=look.marker, linestyle="none")
            numbers += [{"panel": title, **point} for point in line]
        ranks = sorted({point["ranks"] for point in points})
        at.set_xscale("log", base=2)
        at.set_xticks(ranks, [str(number) for number in ranks])
        at.set_xlabel("ranks")
        at.set_ylim(0, 1.2)
        at.set_title(title, loc="left", color=style.GREY)
    axes[0][0].set_ylabel("efficiency")
    ends = [f"{point['strategy']} {point['efficiency']:.2f}" for points in list(every.values())[-1:]
            for point in points if point["ranks"] == max(p["ranks"] for p in points)]
    return Drawing(figure, numbers, "Efficiency on most ranks: " + ", ".join(ends) + ".")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("panels", nargs="+", metavar="TITLE=COST.json")
    parser.add_argument("--out", required=True, metavar="STEM")
    parser.add_argument("--strategies", help="labels, separated by semicolons; default: all")
    asked = parser.parse_args()
    style.apply()
    panels = [panel.split("=", 1) for panel in asked.panels]
    drawing = draw(panels, asked.strategies.split(";") if asked.strategies else None)
    save_page(drawing, asked.out)
    print(drawing.sentence)


if __name__ == "__main__":
    main()
