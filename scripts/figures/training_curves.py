"""Training loss and headline metric against steps: mean and min-max band over seeds, one column per grouping.

From metrics.jsonl; where that file is absent, from the history in the record. Failed runs are thin lines ending in ×.
"""

from collections import Counter, defaultdict

import cells as cell_lists
import layout
import style
from drawing import Drawing, Nothing, metric_name
from records import grouping_text, images_per_tower

_MOST_POINTS = 30  # of one loss curve; of longer ones, neighbouring reports are averaged
_COLUMNS = 4
_MOST_BANDS = 12  # strategies with a band each; of more, only the means are drawn


def draw(experiment, runs, condition, styles):
    headline = experiment.headline
    quantities = ["train loss"] + ([metric_name(headline)] if headline else [])
    curves = {}  # (quantity, grouping, strategy) -> {seed: (status, {step: value})}
    for grouping in dict.fromkeys(run.grouping for run in runs):
        for strategy in styles:
            here = [run for run in runs if run.grouping == grouping and run.strategy == strategy]
            for seed, run in sorted(cell_lists.one_per_seed(here).items()):
                for quantity, curve in zip(quantities, (_losses(run), _scores(run, headline))):
                    if curve:
                        curves.setdefault((quantity, grouping, strategy), {})[seed] = (run.status, curve)
    if not curves:
        raise Nothing("no run has logged a curve")
    longest = max(len(curve) for seeds in curves.values() for _, curve in seeds.values())
    span = -(-longest // _MOST_POINTS)

    groupings = sorted({grouping for _, grouping, _ in curves}, key=lambda g: (images_per_tower(g), g.towers))
    columns = min(_COLUMNS, len(groupings))
    blocks = -(-len(groupings) // columns)
    rows_of_panels = len(quantities) * blocks
    if len(groupings) == 1:
        columns, rows_of_panels = len(quantities), 1
    strategies = [label for label in styles if any(key[2] == label for key in curves)]
    figure, all_axes = layout.new_page(
        f"How do {' and '.join(quantities)} move with the steps?",
        _caption(experiment, runs, condition, span, len(strategies) <= _MOST_BANDS), style.DOUBLE, 0.35 + 1.7 * rows_of_panels,
        rows=rows_of_panels, columns=columns, legend={label: styles[label] for label in strategies}, sharex=True)
    rows, used = [], set()
    for q, quantity in enumerate(quantities):
        drawn = []
        for g, grouping in enumerate(groupings):
            at = (0, q) if len(groupings) == 1 else (g // columns * len(quantities) + q, g % columns)
            axes = all_axes[at]
            used.add(at)
            drawn.append(axes)
            rows += _draw_panel(axes, quantity, grouping, curves, styles, span, len(strategies) <= _MOST_BANDS)
            if q == 0 or len(groupings) == 1:
                axes.set_title(f"{grouping_text(grouping)} (towers x images)" if g == 0 else grouping_text(grouping),
                               loc="left", color=style.GREY)
            if at[1] == 0 or len(groupings) == 1:
                axes.set_ylabel(quantity)
            if at[0] == rows_of_panels - 1:
                axes.set_xlabel("steps")
        _share_scale(drawn)
    for at in set(map(tuple, _indices(all_axes))) - used:
        all_axes[at].set_visible(False)
    return Drawing(figure, rows, _sentence(curves, quantities[-1], groupings))


def _losses(run):
    rows = [(row.get("step"), row.get("loss")) for row in run.metrics() if row.get("kind") == "train"]
    if not rows:
        rows = [(entry.get("step"), entry.get("train_loss")) for entry in run.at("result.history") or []]
    return {step: value for step, value in rows if value is not None}


def _scores(run, headline):
    rows = [(row.get("step"), row.get("metrics", {}).get(headline)) for row in run.metrics()
            if row.get("kind") == "eval" and row.get("population") == "saved"]
    if not rows:
        rows = [(entry.get("step"), (entry.get(headline) or {}).get("saved"))
                for entry in run.at("result.history") or []]
    return {step: value for step, value in rows if value is not None}


def _averaged(curve, span):
    """[(step, value)] with every `span` consecutive values replaced by their mean, at the last one's step."""
    points = sorted(curve.items())
    spans = [points[k:k + span] for k in range(0, len(points), span)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in spans]


def _draw_panel(axes, quantity, grouping, curves, styles, span, bands):
    rows, ends = [], Counter()
    for strategy, look in styles.items():
        seeds = curves.get((quantity, grouping, strategy), {})
        where = {"quantity": quantity, "strategy": strategy, "grouping": grouping_text(grouping)}
        span_here = span if quantity == "train loss" else 1
        by_step = defaultdict(list)
        for seed, (status, curve) in seeds.items():
            points = _averaged(curve, span_here)
            if status == "ok":
                for step, value in points:
                    by_step[step].append(value)
                continue
            axes.plot(*zip(*points), color=look.colour, linewidth=0.5, alpha=0.7, scaley=False)
            ends[max(curve), look.colour, status] += 1
            rows += [{"kind": "failed run", **where, "step": step, "seed": seed, "outcome": status, "value": value}
                     for step, value in points]
        steps = sorted(by_step)
        means = [sum(by_step[step]) / len(by_step[step]) for step in steps]
        lows, highs = [min(by_step[step]) for step in steps], [max(by_step[step]) for step in steps]
        if bands:
            axes.fill_between(steps, lows, highs, color=look.colour, alpha=0.15, linewidth=0)
        axes.plot(steps, means, color=look.colour, linestyle=look.dash, marker=look.marker if len(steps) < 12 else "",
                  markersize=3.2, linewidth=1.2)
        rows += [{"kind": "mean", **where, "step": step, "n": len(by_step[step]), "value": mean, "low": low,
                  "high": high} for step, mean, low, high in zip(steps, means, lows, highs)]
    layout.mark_failures(axes, [(x, colour, f"{count} {status}") for (x, colour, status), count in ends.items()],
                         stacked=True)
    return rows


def _share_scale(panels):
    limits = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        if axes is not panels[0] and axes.get_subplotspec().colspan.start > 0:
            axes.tick_params(labelleft=False)


def _indices(all_axes):
    return [(i, j) for i in range(all_axes.shape[0]) for j in range(all_axes.shape[1])]


def _caption(experiment, runs, condition, span, bands):
    cells = list(cell_lists.make_cells(runs, lambda run: run.metric("saved"), experiment.seeds).values())
    several = any(len(cell.values) > 1 for cell in cells)
    parts = [f"{experiment.name}.", f"With {condition}." if condition else "",
             "Lines: mean over the seeds that ended well;" if several else "Lines: single runs;",
             "bands: their smallest and largest value;" if several and bands else "",
             f"{cell_lists.count_text(cells)}."]
    if span > 1:
        parts.append(f"Losses: averages of {span} reports.")
    if any(cell.failed for cell in cells):
        parts.append("Thin lines: failed runs, which end at their ×.")
    parts += cell_lists.shortfall_notes(cells, len(experiment.unfinished))
    return " ".join(part for part in parts if part)


def _sentence(curves, quantity, groupings):
    """From where to where each strategy goes at the smallest batch, means over the seeds that ended well."""
    clauses = []
    for (name, grouping, strategy), seeds in curves.items():
        ended = [curve for status, curve in seeds.values() if status == "ok"]
        if name != quantity or grouping != groupings[0] or not ended:
            continue
        first = sum(curve[min(curve)] for curve in ended) / len(ended)
        last = sum(curve[max(curve)] for curve in ended) / len(ended)
        clauses.append(f"{strategy} from {first:.3f} to {last:.3f}")
    return f"{quantity} at {grouping_text(groupings[0])} moves between its first and last report: {', '.join(clauses)}."
