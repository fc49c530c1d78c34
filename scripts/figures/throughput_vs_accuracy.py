"""Headline metric against images/s with the Pareto front: which strategies are worth their price. Where all runs were timed
in turns with another one, images/s are relative to its.

A front (front.py) joins real multi-rank runs (one tower per rank, nothing beside them) of one device, world size and exchange.
Emulated runs have another marker and are never on it; runs that shared the machine with others (placement.jobs > 1) are left out.
"""

import math
from dataclasses import dataclass

import front
import layout
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from report import grouping_text

_MOST_NAMES = 12  # points per panel with their strategy beside them; more are numbered, and listed at the side


@dataclass
class Point:
    strategy: str
    grouping: tuple
    placement: str
    real: bool
    throughput: object  # Quantity
    accuracy: object
    standing: str = ""  # of a real point among the others of its world


def draw(report, cells, condition, styles):
    ended = [row for cell in cells for row in cell.rows]
    side_by_side = sum(row.beside_others for row in ended)
    usable = [row for row in ended if row.images_per_s or row.failed]
    if not any(row.images_per_s for row in usable):
        raise Nothing(f"all {side_by_side} runs shared the machine with others (jobs > 1): no throughput to show"
                      if side_by_side else "no run ended with a result")
    if reports.never_saved(cells):
        raise Nothing("no run was evaluated with the saved statistics")
    worlds = {}
    for row in usable:
        worlds.setdefault(row.world, []).append(row)
    relative = all(row.log_images_per_s for row in usable if row.images_per_s)
    beside = reports.run_beside([row for row in usable if row.images_per_s])
    panels = {world: (_points_of(rows, relative), rows) for world, rows in sorted(worlds.items())}
    points = [point for points, _ in panels.values() for point in points]

    strategies = [label for label in styles if any(row.strategy == label for row in usable)]
    crowded = any(len(points) > _MOST_NAMES for points, _ in panels.values())
    numbers = _numbers(points, strategies) if crowded else {}
    entries = _entries(numbers, points, styles, single=len(panels) == 1)
    aside = layout.list_width([text for _, text in entries]) if crowded else 0
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    sentence = _sentence(panels)
    figure, all_axes = layout.new_page(
        sentence, _caption(report, cells, ended, usable, points, condition), style.DOUBLE, max(2.8 * lines, layout.LIST_LINE * len(entries) + 0.2), rows=lines, columns=columns,
        aside=aside, legend=front.legend() if any(point.real for point in points) else None)
    layout.list_aside(figure, entries, aside)
    rows = []
    for axes, (world, (points, there)) in zip(all_axes.flat, panels.items()):
        rows += _draw_panel(axes, world, points, there, styles, "relative_images_per_s" if relative else "images_per_s")
        axes.set_xlabel(f"images/s, {beside or 'the run'} beside = 1" if relative else "images/s of all ranks")
        axes.set_ylabel(metric_name(report.headline))
        if len(panels) > 1:
            axes.set_title(_world_text(world), loc="left", color=style.GREY)
    for axes in all_axes.flat[len(panels):]:
        axes.set_visible(False)
    for axes, (points, _) in zip(all_axes.flat, panels.values()):
        several = len({point.grouping for point in points}) > 1
        layout.label_points(figure, axes, [
            (_label(point, several, numbers), point.throughput.mean, point.accuracy.mean,
             styles[point.strategy].colour) for point in points], _obstacles(axes, points))
    return Drawing(figure, rows, sentence)


def ratio_of(log):
    """The ratio whose logarithm was measured; its interval as far as it is narrow."""
    ratio = math.exp(log.mean)
    return reports.Quantity(log.n, ratio, log.half_width and ratio * log.half_width,
                            {seed: math.exp(value) for seed, value in log.seeds.items()})


def _rate(point):
    """Three decimals of a ratio, one of images/s."""
    return f"{point.throughput.mean:.{3 if point.throughput.mean < 10 else 1}f}"


def _points_of(rows, relative):
    points = [Point(row.strategy, row.grouping, row.placement, row.is_real,
                    ratio_of(row.log_images_per_s) if relative else row.images_per_s, row.value("saved"))
              for row in rows if row.images_per_s and row.value("saved")]
    real = [point for point in points if point.real]
    for point, standing in zip(real, front.standings([(point.throughput, point.accuracy) for point in real])):
        point.standing = standing
    return points


def _on_front(points):
    return [point for point in points if point.standing == front.FRONT]


def _draw_panel(axes, world, points, there, styles, unit):
    rows = []
    for point in points:
        look = styles[point.strategy]
        axes.errorbar(point.throughput.mean, point.accuracy.mean, xerr=point.throughput.half_width,
                      yerr=point.accuracy.half_width, color=look.colour, marker=look.marker if point.real else "+",
                      markersize=6.5 if not point.real else 5.5, markeredgewidth=1.6 if not point.real else 1.1,
                      markerfacecolor=front.fill(look.colour, point.standing) if point.real else look.colour, elinewidth=0.7, zorder=4 if point.real else 3)
        rows.append({"kind": "real" if point.real else "emulated", "device": world[0], "ranks": world[1],
                     "strategy": point.strategy, "grouping": grouping_text(point.grouping),
                     "placement": point.placement, "n": point.throughput.n,
                     unit: point.throughput.mean, f"{unit}_half_width": point.throughput.half_width,
                     "accuracy": point.accuracy.mean, "accuracy_half_width": point.accuracy.half_width,
                     "standing": point.standing})
    axes.margins(0.16)
    axes.set(xlim=(max(axes.get_xlim()[0], 0), axes.get_xlim()[1]), ylim=axes.get_ylim())
    layout.fit(axes, [{"value": point.accuracy.mean, "half_width": point.accuracy.half_width} for point in points])
    _mark_failures(axes, [row for row in there if row.failed], styles)
    xs, ys = front.outline(axes, [(point.throughput.mean, point.accuracy.mean) for point in _on_front(points)])
    axes.plot(xs, ys, color=style.GREY, linewidth=0.9, alpha=0.7, zorder=1)
    axes.fill_between(xs, ys, axes.get_ylim()[0], color="#f4f4f4", linewidth=0, zorder=0)
    rows += [{"kind": "failed or missing", "device": world[0], "ranks": world[1], "strategy": row.strategy,
              "grouping": grouping_text(row.grouping), "n": row.ok, "failed": row.failed,
              "missing": row.missing, "outcome": row.failures} for row in there if row.failed or row.missing]
    return rows


def _mark_failures(axes, failing, styles):
    if not failing:
        return
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    texts = [(styles[cell.strategy].colour, f"{cell.strategy} {grouping_text(cell.grouping)}: {cell.failures}")
             for cell in failing]
    if len(texts) > 4:
        texts = [(style.BLACK, f"{len(texts)} points with failed runs, see below")]
    axes.set_ylim(low - 0.07 * len(texts) * (high - low), high)
    layout.mark_failures(axes, [(left + 0.02 * (right - left), colour, text) for colour, text in texts])


def _obstacles(axes, points):
    """Boxes of the error bars and of the front, for labels to keep off, with how much each matters."""
    boxes = []
    for point in points:
        x, y = point.throughput.mean, point.accuracy.mean
        across, up = point.throughput.half_width or 0, point.accuracy.half_width or 0
        boxes += [(x - across, y, x + across, y, 1), (x, y - up, x, y + up, 1)]
    xs, ys = front.outline(axes, [(point.throughput.mean, point.accuracy.mean) for point in _on_front(points)])
    boxes += [(x0, min(y0, y1), x1, max(y0, y1), 0.15) for x0, x1, y0, y1 in zip(xs, xs[1:], ys, ys[1:])]
    return boxes


def _numbers(points, strategies):
    """(strategy, grouping) -> number, in the order of the strategies."""
    named = sorted({(strategies.index(point.strategy), grouping_text(point.grouping), point.grouping)
                    for point in points}, key=lambda each: each[:2])
    return {(strategies[place], grouping): k for k, (place, _, grouping) in enumerate(named, 1)}


def _entries(numbers, points, styles, single):
    """[(Style, "3  sync 8x2: 40.1, 0.612")]: what the numbers mean, with the values where there is one panel."""
    several = len({point.grouping for point in points}) > 1
    entries = []
    for (strategy, grouping), number in numbers.items():
        text = f"{number}  {strategy}" + (f" {grouping_text(grouping)}" if several else "")
        values = [point for point in points if (point.strategy, point.grouping) == (strategy, grouping)]
        if single and len(values) == 1:
            text += f":  {_rate(values[0])}, {values[0].accuracy.mean:.3f}"
        entries.append((styles[strategy], text))
    return entries


def _label(point, several_groupings, numbers):
    if numbers:
        return str(numbers[point.strategy, point.grouping])
    return point.strategy + (f" {grouping_text(point.grouping)}" if several_groupings else "")


def _world_text(world):
    device, ranks, sockets = world
    return f"{ranks} rank{'s' if ranks > 1 else ''} on {device}{', over sockets' if sockets else ''}"


def _caption(report, cells, ended, rows, points, condition):
    counts = [reports.count_text([getattr(point, name) for point in points]) for name in ("throughput", "accuracy")]
    groupings = list(dict.fromkeys(grouping_text(point.grouping) for point in points))
    return report.caption(cells, [point.accuracy for point in points], condition,
                          f"GPUs x {report.samples} per GPU: {', '.join(groupings)}",
                          f"images/s: {counts[0]}" if counts[0] != counts[1] else "",
                          "" if all(point.real for point in points) else "plus signs: emulated, on no front",
                          *reports.throughput_notes(ended, rows))


def _sentence(panels):
    clauses = []
    for world, (points, _) in panels.items():
        names = [f"{point.strategy} {grouping_text(point.grouping)}" for point in sorted(_on_front(points), key=lambda p: p.throughput.mean)]
        clauses.append((f"{', '.join(names)} on the front" if names else "the intervals decide on no front" if any(p.real for p in points)
                        else "no front, as all points are emulated") + f" of {_world_text(world)}")
    return f"Throughput against accuracy: {'; '.join(clauses)}."
