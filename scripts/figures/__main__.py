"""Draws the figures of an experiment from what `bnlab report --format json` prints; scripts/plot.sh pipes it in.

  bnlab report quickstart --format json | python3 scripts/figures --out results/quickstart/figures

Prints the files written and one sentence per figure on what it shows; a figure without data is not written, and the
reason is printed. Exit status: 0; 1 what came is no report; 2 usage.
"""

import argparse
import os
import re
import sys
from pathlib import Path

import accuracy_by_part
import accuracy_by_population
import accuracy_vs_batch
import accuracy_vs_length
import accuracy_vs_steps
import contrasts
import drawing
import matrix
import memory
import memory_price
import report as reports
import scaling
import statistics_by_site
import step_cost
import style
import throughput_vs_accuracy
import training_curves

FIGURES = (accuracy_vs_batch, throughput_vs_accuracy, accuracy_by_population, accuracy_by_part, training_curves, memory,
           memory_price, matrix, statistics_by_site, contrasts, step_cost, scaling, accuracy_vs_steps, accuracy_vs_length)


def draw_all(report, out, only=(), png=False):
    styles = style.styles_of(report.strategies)
    styles = {label: styles[label] for label in report.strategies}
    os.makedirs(out, exist_ok=True)
    print(f"{report.name}: {sum(cell.ok + cell.failed for cell in report.cells)} of "
          f"{sum(cell.asked for cell in report.cells)} runs")
    for figure in FIGURES:
        for condition, cells in reports.split_by_condition(report.cells, getattr(figure, "PANEL_KEYS", ())):
            name = figure.__name__ + ("-" + re.sub(r"[^A-Za-z0-9.]+", "_", condition) if condition else "")
            if only and figure.__name__ not in only and name not in only:
                continue
            style.Page.title = report.title_on_page(name)
            try:
                drawn = figure.draw(report, cells, condition, styles)
            except drawing.Nothing as reason:
                print(f"  {name}: not drawn, {reason}.")
                continue
            files = drawing.save(drawn, os.path.join(out, name), png)
            print(f"  {name}: {drawn.sentence}")
            for file in files:
                print(f"    {file}")


def _figure_names(text):
    names = [figure.__name__ for figure in FIGURES]
    for name in separated([text]):
        if name.split("-")[0] not in names:
            raise argparse.ArgumentTypeError(f"{name}: there are {', '.join(names)}")
    return text


def separated(texts):
    """["a,b(c=1,d=2)", "e"] as ["a", "b(c=1,d=2)", "e"]: commas within brackets belong to a label."""
    return [part.strip() for text in texts for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _labels(texts, known):
    """A text that is a label, with its commas or without; else what stands between its commas."""
    return [label for text in texts for label in ([text] if text in known else separated([text]))]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="scripts/figures", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder to write to")
    parser.add_argument("--strategies", nargs="+", metavar="LABEL",
                        help="draw these only, with commas or blanks between them; a label with a comma is an argument of its own")
    parser.add_argument("--figures", nargs="+", metavar="NAME", default=(), type=_figure_names,
                        help="draw these only, likewise: a figure, or one condition of it, named as its file without suffix")
    parser.add_argument("--bare", action="store_true", help="without title and caption, and as PDF too: for papers")
    parser.add_argument("--png", action="store_true", help="as PNG too, which without it only those are that a page shows")
    options = parser.parse_args(arguments)
    style.apply(options.bare)
    try:
        report = reports.read(sys.stdin)
        if options.strategies:
            report.keep(_labels(options.strategies, report.strategies))
        report.page = "".join(page.read_text(encoding="utf-8") for page in Path(options.out).resolve().parent.glob("*.md"))
        draw_all(report, options.out, separated(options.figures), options.png)
    except reports.ReportError as error:
        print(f"plot.sh: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
