"""Training loss, gradient norm and headline metric against steps: mean and min-max band over seeds, one column per grouping.

Failed runs are thin lines that end at their ×.
"""

from collections import Counter

import layout
import published
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from matplotlib.ticker import LogLocator, NullFormatter
from report import grouping_text, images_per_tower

_GRADIENT = "gradient norm"
_COLUMNS = 4
_MOST_BANDS = 12  # strategies with a band each; of more, only the means are drawn


def draw(report, cells, condition, styles):
    headline = report.headline
    accuracy = metric_name(headline) if headline else None
    quantities = {"train loss": "train_loss", _GRADIENT: "gradient_norm"}
    if headline:  # on the validation split where the weights were selected there: the test split is looked at once
        quantities |= {accuracy: headline, f"{accuracy} in validation": f"validation.{headline}"}
    curves = {(quantity, cell.grouping, cell.strategy): cell.curves[key]
              for cell in cells for quantity, key in quantities.items() if key in cell.curves}
    quantities = [quantity for quantity in quantities if _moves(quantity, curves)]
    curves = {key: curve for key, curve in curves.items() if key[0] in quantities}
    if not curves:
        raise Nothing("no run has logged a curve of two points or more")

    groupings = sorted({grouping for _, grouping, _ in curves}, key=lambda g: (images_per_tower(g), g.towers))
    columns = min(_COLUMNS, len(groupings))
    blocks = -(-len(groupings) // columns)
    rows_of_panels = len(quantities) * blocks
    if len(groupings) == 1:
        columns, rows_of_panels = len(quantities), 1
    strategies = [label for label in styles if any(key[2] == label for key in curves)]
    known = report.published(headline, cells) if accuracy in quantities else []
    sentence = _sentence(curves, [quantity for quantity in quantities if quantity != _GRADIENT or len(quantities) == 1][-1], groupings)
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [cell.value("saved") for cell in reports.touched(cells)], condition,
                                 bars="bands: smallest to largest" if len(strategies) <= _MOST_BANDS else ""),
        style.DOUBLE, 0.35 + 1.7 * rows_of_panels, rows=rows_of_panels, columns=columns,
        legend={name: styles[label] for label, name in style.names(strategies, words=True).items()},
        references=published.legend(known), sharex=True)
    rows, used = [], set()
    for q, quantity in enumerate(quantities):
        drawn = []
        for g, grouping in enumerate(groupings):
            at = (0, q) if len(groupings) == 1 else (g // columns * len(quantities) + q, g % columns)
            axes = all_axes[at]
            used.add(at)
            drawn.append(axes)
            rows += _draw_panel(axes, quantity, grouping, curves, styles, len(strategies) <= _MOST_BANDS)
            if quantity == accuracy:
                published.draw(axes, known)
            if q == 0 or len(groupings) == 1:
                axes.set_title(reports.grouping_words(grouping, report.samples), loc="left", color=style.GREY)
            if at[1] == 0 or len(groupings) == 1:
                axes.set_ylabel(quantity)
            if at[0] == rows_of_panels - 1:
                axes.set_xlabel("steps")
        _share_scale(drawn)
        if quantity == _GRADIENT:
            _label_decades(drawn)
    for at in set(map(tuple, _indices(all_axes))) - used:
        all_axes[at].set_visible(False)
    return Drawing(figure, rows + published.rows(known), sentence)


def _moves(quantity, curves):
    """Whether it has more than the one dot that an evaluation after the last step alone leaves."""
    return any(len(points["points"]) > 1 for points in
               (part for key, curve in curves.items() if key[0] == quantity for part in (curve, *curve["failed"])))


def _draw_panel(axes, quantity, grouping, curves, styles, bands):
    rows, ends = [], Counter()
    for strategy, look in styles.items():
        curve = curves.get((quantity, grouping, strategy), {"points": [], "failed": []})
        where = {"quantity": quantity, "strategy": strategy, "grouping": grouping_text(grouping)}
        for run in curve["failed"]:
            steps, values = zip(*((point["step"], point["value"]) for point in run["points"]))
            axes.plot(steps, values, color=look.colour, linewidth=0.5, alpha=0.7, scaley=False)
            ends[steps[-1], look.colour, run["outcome"]] += 1
            rows += [{"kind": "failed run", **where, "step": step, "seed": run["seed"], "outcome": run["outcome"],
                      "value": value} for step, value in zip(steps, values)]
        points = curve["points"]
        steps = [point["step"] for point in points]
        if bands:
            axes.fill_between(steps, [point["low"] for point in points], [point["high"] for point in points],
                              color=look.colour, alpha=0.15, linewidth=0)
        axes.plot(steps, [point["mean"] for point in points], color=look.colour, linestyle=look.dash,
                  marker=look.marker if len(steps) < 12 else "", markersize=3.2, linewidth=1.2)
        rows += [{"kind": "mean", **where, "step": point["step"], "n": point["n"], "value": point["mean"],
                  "low": point["low"], "high": point["high"]} for point in points]
    if quantity == _GRADIENT:
        axes.set_yscale("log")
    layout.mark_failures(axes, [(x, colour, f"{count} {status}") for (x, colour, status), count in ends.items()],
                         stacked=True)
    return rows


def _share_scale(panels):
    limits = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        if axes is not panels[0] and axes.get_subplotspec().colspan.start > 0:
            axes.tick_params(labelleft=False)


def _label_decades(panels):
    """Plain numbers, and some between powers of ten where there are few of these."""
    low, high = panels[0].get_ylim()
    for axes in panels:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
        axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def _indices(all_axes):
    return [(i, j) for i in range(all_axes.shape[0]) for j in range(all_axes.shape[1])]


def _sentence(curves, quantity, groupings):
    """Where the quantity ends, in the mean of the seeds that ended well, at the smallest batch."""
    ends = {strategy: curve["points"][-1]["mean"] for (name, grouping, strategy), curve in curves.items()
            if name == quantity and grouping == groupings[0] and curve["points"]}
    if not ends:
        return f"No run at {grouping_text(groupings[0])} ended well."
    names = style.names(list(ends))
    first, last = max(ends, key=ends.get), min(ends, key=ends.get)
    texts = [f"{ends[label]:.3f} with {names[label]}" for label in dict.fromkeys([first, last])]
    return f"The {quantity} ends at {' and '.join(texts)} ({grouping_text(groupings[0])})."
