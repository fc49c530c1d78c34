#!/usr/bin/env python3
"""Efficiency of so many ranks, as `bnlab cost --json` predicts it: a row per number of ranks and strategy, with its interval.

  scripts/figures/prediction.py COST.json --out STEM

Efficiency is the images/s of all ranks over those of as many ranks that wait for nobody, each with the step of the baseline
(the first strategy that exchanges gradients alone). The file has rows of one exchange.
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
                           "measured": own / measured if measured else None, "step_ms": 1e3 * step["mid"]})
    return points


def draw(points):
    """A crossed mark is what was measured."""
    labels = list(dict.fromkeys(point["strategy"] for point in points))
    styles, names = style.styles_of(labels), style.names(labels, words=True)
    ranks = sorted({point["ranks"] for point in points})
    sentence = _sentence(points)
    figure, axes = layout.new_page(sentence, "Predicted from published clusters and a measured step; lines: intervals; at the right: ms per step.",
                                   style.DOUBLE, 0.45 + 0.2 * (len(labels) + 0.6) * len(ranks),
                                   legend={names[label]: styles[label]._replace(dash="") for label in labels})
    at, places = axes[0][0], {}
    for k, point in enumerate(sorted(points, key=lambda point: (point["ranks"], labels.index(point["strategy"])))):
        y = k + 0.6 * ranks.index(point["ranks"])
        places.setdefault(point["ranks"], []).append(y)
        look = styles[point["strategy"]]
        at.plot([point["low"], point["high"]], [y, y], color=look.colour, linewidth=1.6, solid_capstyle="butt")
        at.plot(point["efficiency"], y, color=look.colour, marker=look.marker, markersize=6)
        if point["measured"]:
            at.plot(point["measured"], y, color=style.BLACK, marker="+", markersize=7)
        at.annotate(f"{point['step_ms']:.1f} ms", (1, y), xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points",
                    va="center", size=style.SMALL)
    at.set_yticks([sum(ys) / len(ys) for ys in places.values()], [f"{number:,} GPUs" if number > 1 else "1 GPU" for number in places])
    layout.plain_rows(at)
    at.invert_yaxis()
    at.set_xlim(0, 1.02)
    at.set_xlabel("images/s of all GPUs, over those of as many that wait for nobody")
    return Drawing(figure, points, sentence)


def _sentence(points):
    """What the last strategy keeps of the images/s of the first one."""
    of = {(point["strategy"], point["ranks"]): point["efficiency"] for point in points}
    first, last = (style.base_name(points[k]["strategy"]) for k in (0, -1))
    kept = [f"{of[points[-1]['strategy'], ranks] / of[points[0]['strategy'], ranks]:.2f} on {ranks:,}"
            for ranks in dict.fromkeys(point["ranks"] for point in points)]
    return f"Predicted: of the images/s of {first} {last} keeps {', '.join(kept)} GPUs."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="COST.json")
    parser.add_argument("--out", required=True, metavar="STEM")
    parser.add_argument("--strategies", help="labels, separated by semicolons; default: all")
    asked = parser.parse_args()
    style.apply()
    drawing = draw(rows_of(asked.file, asked.strategies.split(";") if asked.strategies else None))
    save_page(drawing, asked.out)
    print(drawing.sentence)


if __name__ == "__main__":
    main()
