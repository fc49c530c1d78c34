"""Headline metric after trainings of several lengths, where the matrix has an axis of steps: a line per strategy, 95 %
bars, faint seeds. A column per towers and batch; a row for the saved statistics and one for the batch's own.
"""

import layout
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from matplotlib.ticker import NullLocator
from report import grouping_text

PANEL_KEYS = ("steps",)
_STATISTICS = {"saved": "saved statistics", "batch": "the batch's own statistics"}


def draw(report, cells, condition, styles):
    headline, touched = report.headline, [cell for cell in reports.touched(cells) if "steps" in cell.conditions]
    lengths = sorted({_steps(cell) for cell in touched})
    if headline is None or len(lengths) < 2:
        raise Nothing("no axis of the matrix is the number of steps")
    if reports.never_saved(touched):
        raise Nothing("no run was evaluated with the saved statistics")
    groupings = sorted({cell.grouping for cell in touched}, key=lambda grouping: -grouping.towers)
    strategies = [label for label in styles if any(cell.strategy == label for cell in touched)]
    populations = [name for name in _STATISTICS if any(name in cell.evaluated for cell in touched)]
    sentence = _sentence(touched, lengths, headline)
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [cell.value("saved") for cell in touched], condition), style.DOUBLE,
        2.5 * len(populations), rows=len(populations), columns=len(groupings), sharey="row", sharex=True,
        legend={name: styles[label] for label, name in style.names(strategies, words=True).items()})
    rows = []
    for population, row_of_axes in zip(populations, all_axes):
        of_row = []
        for grouping, axes in zip(groupings, row_of_axes):
            here = [cell for cell in touched if cell.grouping == grouping and population in cell.evaluated]
            drawn = _draw_lines(axes, here, strategies, styles, population)
            rows, of_row = rows + drawn, of_row + drawn
            axes.set_title(f"{reports.grouping_words(grouping, report.samples)}\n{_STATISTICS[population]}", loc="left", color=style.GREY)
            layout.mark_failures(axes, [(_steps(cell), styles[cell.strategy].colour, cell.failures)
                                        for cell in here if cell.failed])
        layout.fit(row_of_axes[0], of_row)
        row_of_axes[0].set_ylabel(metric_name(headline))
    for axes in all_axes.flat:
        axes.set_xscale("log", base=2)
        axes.set_xlim(lengths[0] / 1.3, lengths[-1] * 1.3)
        axes.set_xticks(lengths, [f"{steps:,}" for steps in lengths])
        axes.xaxis.set_minor_locator(NullLocator())
    for axes in all_axes[-1]:
        axes.set_xlabel("steps of training")
    return Drawing(figure, rows, sentence)


def _steps(cell):
    return int(cell.conditions["steps"])


def _draw_lines(axes, cells, strategies, styles, population):
    rows = []
    for k, strategy in enumerate(strategies):
        look, drawn, place = styles[strategy], [], layout.dodged(axes, k, len(strategies))
        for cell in sorted((cell for cell in cells if cell.strategy == strategy), key=_steps):
            value = cell.value(population)
            where = {"population": population, "strategy": strategy, "grouping": grouping_text(cell.grouping), "steps": _steps(cell)}
            rows += [{"kind": "seed", **where, "seed": seed, "value": (value.seeds if value else {}).get(seed), "outcome": outcome}
                     for seed, outcome in sorted(cell.outcomes.items())]
            rows.append({"kind": "mean", **where, "n": value.n if value else 0, "outcome": cell.failures,
                         "value": value.mean if value else None, "half_width": value.half_width if value else None})
            if value:
                drawn.append((_steps(cell), value))
                axes.plot([_steps(cell)] * value.n, list(value.seeds.values()), ".", color=look.colour, alpha=0.35,
                          markersize=3, markeredgewidth=0, transform=place, zorder=2)
        if drawn:
            axes.errorbar([x for x, _ in drawn], [value.mean for _, value in drawn],
                          yerr=[value.half_width or 0 for _, value in drawn], color=look.colour, marker=look.marker,
                          linestyle=look.dash, elinewidth=0.9, capsize=0, transform=place, zorder=4)
    return rows


def _sentence(cells, lengths, headline):
    names = style.names([cell.strategy for cell in cells])

    def text(steps):
        ranked = sorted((cell for cell in cells if _steps(cell) == steps and cell.value("saved")),
                        key=lambda cell: cell.value("saved").mean)
        if not ranked:
            return f"after {steps:,} steps no run ended well"
        ends = [f"{cell.value('saved').mean:.3f} ({names[cell.strategy]} {grouping_text(cell.grouping)})" for cell in (ranked[0], ranked[-1])]
        return f"after {steps:,} steps from {ends[0]} to {ends[1]}"

    return f"The {metric_name(headline)} ranges {', '.join(text(steps) for steps in (lengths[0], lengths[-1]))}."
