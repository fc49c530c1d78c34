"""The first screen of the project's README: writes its first sentence and the numbers of its table, and draws the same
points.

  python3 scripts/figures/first_screen.py README.md CATALOGUE.json TRADEOFF.json QUICKSTART.json --out results

What stands between the lines <!-- opening --> and <!-- end --> is what `quickstart` found.
The rows are those of the table that follows the line <!-- first-screen --> in the README; the second column names the
strategy. The fourth becomes its accuracy in the report of `catalogue` (even shards), the fifth its images per second
relative to the baseline in that of `tradeoff`, through shared memory and over sockets. scripts/publish.sh calls this.
"""

import argparse
import os
import sys
from collections import namedtuple

import drawing
import layout
import opening
import report as reports
import style

MARK = "<!-- first-screen -->\n"
OPENING, END = "<!-- opening -->\n", "<!-- end -->\n"
Point = namedtuple("Point", "strategy accuracy shared sockets")  # accuracy: a Quantity; images/s by exchange


def fill(text, catalogue, tradeoff):
    """(text with the numbers in place, [Point])."""
    before, mark, rest = text.partition(MARK)
    if not mark:
        raise reports.ReportError(f"the README has no line {MARK.strip()}")
    lines, points = rest.split("\n"), []
    for k, line in enumerate(lines):
        if not line.startswith("|"):
            break
        if k < 2:  # titles and rule
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = cells[1].strip("`")
        accuracy = opening.cell(catalogue, name).value("saved")
        relative = {row.over_sockets: row.relative_images_per_s for row in opening.cell(tradeoff, name).rows}
        point = Point(name, accuracy, relative[False], relative[True])
        cells[3:] = [f"{accuracy.mean:.3f}±{accuracy.half_width:.3f}", f"{point.shared:.2f}, {point.sockets:.2f}"]
        points.append(point)
        lines[k] = "| " + " | ".join(cells) + " |"
    return before + mark + "\n".join(lines), points


def open_with(text, quickstart):
    """The text with the sentence of `quickstart` in its place."""
    before, mark, rest = text.partition(OPENING)
    if not mark or END not in rest:
        raise reports.ReportError(f"the README has no lines {OPENING.strip()} and {END.strip()}")
    return before + mark + opening.sentence(quickstart) + END + rest.partition(END)[2]


def draw(points, catalogue):
    styles = style.styles_of([point.strategy for point in points])
    figure, all_axes = layout.new_page(
        "What does accuracy at two images per GPU cost in throughput?",
        "Accuracy: results/catalogue, 8 towers with 2 images each, "
        f"{catalogue.bars_text([point.accuracy for point in points])}. "
        "Throughput: results/tradeoff, 2 ranks with 2 images each on one CPU, mean over seeds; "
        "filled: exchanges through shared memory, hollow: over sockets.",
        style.DOUBLE * 0.8, 2.7)
    axes, rows, obstacles = all_axes[0][0], [], []
    for point in points:
        look, y = styles[point.strategy], point.accuracy.mean
        axes.errorbar(point.shared, y, yerr=point.accuracy.half_width, color=look.colour, marker=look.marker,
                      markersize=5.5, elinewidth=0.7)
        axes.plot([point.sockets, point.shared], [y, y], color=look.colour, linewidth=0.7, alpha=0.6)
        axes.plot(point.sockets, y, color=look.colour, marker=look.marker, markersize=5.5, markerfacecolor="white",
                  zorder=1.5)
        obstacles.append((point.shared, y - point.accuracy.half_width, point.shared, y + point.accuracy.half_width, 1))
        obstacles.append((point.sockets, y, point.shared, y, 1))
        rows.append({"strategy": point.strategy, "accuracy": y, "accuracy_half_width": point.accuracy.half_width,
                     "n": point.accuracy.n, "relative_images_per_s": point.shared,
                     "relative_images_per_s_over_sockets": point.sockets})
    axes.margins(0.18, 0.08)
    axes.set_xlabel("images/s, per_tower = 1")
    axes.set_ylabel(drawing.metric_name(catalogue.headline))
    layout.label_points(figure, axes, [(style.base_name(point.strategy), point.sockets, point.accuracy.mean,
                                        styles[point.strategy].colour) for point in points], obstacles)
    return drawing.Drawing(figure, rows, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readme")
    parser.add_argument("catalogue")
    parser.add_argument("tradeoff")
    parser.add_argument("quickstart")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    style.apply()
    def read(name):
        with open(name, encoding="utf-8") as file:
            return reports.read(file)
    catalogue, tradeoff, quickstart = read(options.catalogue), read(options.tradeoff), read(options.quickstart)
    with open(options.readme, encoding="utf-8") as file:
        text, points = fill(open_with(file.read(), quickstart), catalogue, tradeoff)
    with open(options.readme, "w", encoding="utf-8") as file:
        file.write(text)
    for file in drawing.save(draw(points, catalogue), os.path.join(options.out, "first_screen")):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
