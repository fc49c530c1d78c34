"""What the accuracy of trained networks costs in throughput: the second figure of the project's README.

  python3 scripts/figures/price.py --names
  python3 scripts/figures/price.py STRATEGIES.json TIMES.json --out results

The reports are those of NAMES: the accuracy is of the first, with BATCH images per tower of a global batch of sixteen, the times
are of the second, with as many images on each of two ranks. scripts/publish.sh calls this.
"""

import sys
from collections import namedtuple

import drawing
import front
import layout
import report as reports
import style
import throughput_vs_accuracy

NAMES = "strategies_nuclei", "tradeoff"
BATCH = 2
LABELS = {"frozen": "frozen for the last fifth"}  # of strategies that figures call otherwise

Point = namedtuple("Point", "strategy over_sockets throughput accuracy standing")  # both Quantities


def throughput_of(cell, over_sockets):
    """Relative to the baseline, with the interval of what it has over the run beside."""
    rows = [row for row in cell.rows if row.over_sockets == over_sockets and row.log_images_per_s]
    if len(rows) != 1 or not rows[0].is_real:
        raise reports.ReportError(f"{cell.name} has no times that count, {'over sockets' if over_sockets else 'through shared memory'}")
    return throughput_vs_accuracy.ratio_of(rows[0].log_images_per_s)._replace(mean=rows[0].relative_images_per_s)


def points_of(strategies, times):
    """[Point] through shared memory, [Point] over sockets."""
    trained = {cell.label: cell.value("saved") for cell in strategies.cells if cell.grouping.batch == BATCH}
    panels = []
    for over_sockets in (False, True):
        pairs = [(cell, throughput_of(cell, over_sockets), trained.get(cell.label))
                 for cell in times.cells if cell.grouping.batch == BATCH]
        lacking = [cell.label for cell, _, accuracy in pairs if not accuracy]
        if lacking or not pairs:
            raise reports.ReportError(f"{strategies.name} has no accuracy of {', '.join(lacking) or 'what was timed'}")
        standings = front.standings([pair[1:] for pair in pairs])
        panels.append([Point(cell.label, over_sockets, *values, standing) for (cell, *values), standing in zip(pairs, standings)])
    return panels


def title(panels):
    """What `sync` wins over `per_tower`, and what that costs."""
    shared, sockets = ({style.base_name(point.strategy): point for point in panel} for panel in panels)
    def less(panel):
        return f"{100 * (1 - panel['sync'].throughput.mean):.0f} %"
    won = shared["sync"].accuracy.mean - shared["per_tower"].accuracy.mean
    return (f"With two images per GPU, sync wins {100 * won:.0f} points for {less(shared)} of the images/s, "
            f"over sockets for {less(sockets)}")


def draw(strategies, times):
    panels = points_of(strategies, times)
    styles = style.styles_of([point.strategy for point in panels[0]])
    figure, all_axes = layout.new_page(title(panels), "Bars: 95 % t intervals.", style.DOUBLE, 2.75, columns=2,
                                       legend=front.legend(), sharey=True)
    rows = []
    for axes, points, way in zip(all_axes[0], panels, ("through shared memory", "over sockets")):
        for point in points:
            look, x, y = styles[point.strategy], point.throughput, point.accuracy
            axes.errorbar(x.mean, y.mean, xerr=x.half_width, yerr=y.half_width, color=look.colour, marker=look.marker, markersize=6,
                          elinewidth=0.7, markerfacecolor=front.fill(look.colour, point.standing), zorder=4)
            rows.append({"strategy": point.strategy, "exchange": "sockets" if point.over_sockets else "shared_memory",
                         "relative_images_per_s": x.mean, "relative_images_per_s_half_width": x.half_width, "n_of_times": x.n,
                         "accuracy": y.mean, "accuracy_half_width": y.half_width, "n_of_accuracy": y.n, "standing": point.standing})
        axes.margins(0.2, 0.12)
        axes.set_xlabel("images/s, per_tower = 1")
        axes.set_title(way, loc="left", color=style.GREY)
    all_axes[0][0].set_ylabel(drawing.metric_name(strategies.headline))
    layout.settle(figure)
    for axes, points in zip(all_axes[0], panels):
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
        xs, ys = front.outline(axes, [(point.throughput.mean, point.accuracy.mean) for point in points if point.standing == front.FRONT])
        axes.plot(xs, ys, color=style.GREY, linewidth=0.9, alpha=0.7, zorder=1)
        boxes = [(x.mean - x.half_width, y.mean, x.mean + x.half_width, y.mean, 1) for _, _, x, y, _ in points] + \
                [(x.mean, y.mean - y.half_width, x.mean, y.mean + y.half_width, 1) for _, _, x, y, _ in points] + \
                [(x0, min(y0, y1), x1, max(y0, y1), 0.15) for x0, x1, y0, y1 in zip(xs, xs[1:], ys, ys[1:])]
        layout.label_points(figure, axes, [(LABELS.get(style.base_name(point.strategy), style.base_name(point.strategy)),
                                            point.throughput.mean, point.accuracy.mean, styles[point.strategy].colour)
                                           for point in points], boxes)
    return drawing.Drawing(figure, rows, title(panels) + ".")


if __name__ == "__main__":
    sys.exit(drawing.of_readme(__doc__, NAMES, "price", draw, drawing.save))
