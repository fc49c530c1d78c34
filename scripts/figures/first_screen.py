"""The first screen of the project's README: writes its first sentence and the numbers of its table, and draws the same
points.

  python3 scripts/figures/first_screen.py README.md NUCLEI.json STRATEGIES.json TRADEOFF.json QUICKSTART.json --out results

Between the lines <!-- opening --> and <!-- end --> stands what `nuclei_small_batch` found, and what the picture of `quickstart` shows.
The rows are those of the table that follows the line <!-- first-screen --> in the README; the second column names the
strategy. The three from the fourth on become its accuracy at 1, 2 and 4 images per tower in the report of `strategies_nuclei`, the
last its images per second relative to the baseline in that of `tradeoff`, through shared memory and over sockets.
scripts/publish.sh calls this.
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
Point = namedtuple("Point", "strategy accuracy shared sockets seeds")  # accuracy: a Quantity; images/s by exchange, over so many seeds
GROUPINGS = reports.Grouping(16, 1), reports.Grouping(8, 2), reports.Grouping(4, 4)
SAME = "the same"  # what does not know the towers was run with two images each alone


def accuracy_of(name, strategies, grouping):
    """None where the spec does not ask for the strategy so. `averaged` trains what per_tower does: its score is that of the mean over
    the towers' running statistics.
    """
    name, population = ("per_tower", "mean") if name == "averaged" else (name, "saved")
    here = [each for each in strategies.cells if each.grouping == grouping]
    found = [each for each in here if each.strategy == name] or \
            [each for each in here if style.base_name(each.strategy) == name]
    if len(found) > 1:
        raise reports.ReportError(f"{strategies.name} has {len(found)} strategies that {name} may mean")
    if found and found[0].value(population) is None:
        raise reports.ReportError(f"{strategies.name} has no number of {name} with {grouping.towers} towers")
    return found[0].value(population) if found else None


def fill(text, strategies, tradeoff):
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
        scores = [accuracy_of(name, strategies, grouping) for grouping in GROUPINGS]
        accuracy = scores[GROUPINGS.index((8, 2))]
        if accuracy is None:
            raise reports.ReportError(f"{strategies.name} has no {name} at two images per tower")
        rows = opening.cell(tradeoff, name).rows
        relative = {row.over_sockets: row.relative_images_per_s for row in rows}
        point = Point(name, accuracy, relative[False], relative[True], min(row.images_per_s.n for row in rows))
        cells[3:] = [*(f"{score.mean:.3f}±{score.half_width:.3f}" if score else SAME for score in scores),
                     f"{point.shared:.2f}, {point.sockets:.2f}"]
        points.append(point)
        lines[k] = "| " + " | ".join(cells) + " |"
    return before + mark + "\n".join(lines), points


def open_with(text, nuclei, quickstart):
    """The text with what the two have found in its place."""
    before, mark, rest = text.partition(OPENING)
    if not mark or END not in rest:
        raise reports.ReportError(f"the README has no lines {OPENING.strip()} and {END.strip()}")
    return before + mark + opening.headline(nuclei) + "\n" + opening.caption(quickstart) + END + rest.partition(END)[2]


def draw(points, strategies):
    styles = style.styles_of([point.strategy for point in points])
    figure, all_axes = layout.new_page(
        "What does accuracy at two images per tower cost in throughput?",
        "Accuracy: results/strategies_nuclei, microscopy images, 8 towers with 2 images each, "
        f"{strategies.bars_text([point.accuracy for point in points])}. "
        f"Throughput: results/tradeoff, a U-Net twice as wide on shapes, 2 ranks with 2 images each on one CPU, mean over {min(point.seeds for point in points)} seeds; "
        "filled: exchanges through shared memory, hollow: over sockets. group_norm: trained with 4 groups, timed with 8; "
        "frozen: timed before it freezes.",
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
    axes.set_ylabel(drawing.metric_name(strategies.headline))
    layout.label_points(figure, axes, [(style.base_name(point.strategy), point.sockets, point.accuracy.mean,
                                        styles[point.strategy].colour) for point in points], obstacles)
    return drawing.Drawing(figure, rows, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readme")
    parser.add_argument("nuclei")
    parser.add_argument("strategies")
    parser.add_argument("tradeoff")
    parser.add_argument("quickstart")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    style.apply()
    def read(name):
        with open(name, encoding="utf-8") as file:
            return reports.read(file)
    nuclei, strategies = read(options.nuclei), read(options.strategies)
    tradeoff, quickstart = read(options.tradeoff), read(options.quickstart)
    with open(options.readme, encoding="utf-8") as file:
        text, points = fill(open_with(file.read(), nuclei, quickstart), strategies, tradeoff)
    with open(options.readme, "w", encoding="utf-8") as file:
        file.write(text)
    for file in drawing.save(draw(points, strategies), os.path.join(options.out, "first_screen")):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
