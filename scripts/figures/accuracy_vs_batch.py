"""Headline metric after the last step against images per tower: a line per strategy, 95 % bars, faint seeds.

After figure 1 of Wu and He, Group Normalization (arXiv 1803.08494). A second panel shows the metric with the batch's
own statistics where that was recorded. Of many strategies those with a single batch size are left out: they have no line.
"""

import layout
import published
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from report import grouping_text, images_per_tower

_STATISTICS = {"saved": "evaluated with the saved statistics", "batch": "evaluated with the batch's own statistics"}
_MOST_LABELS = 6  # lines named at their ends; more of them are named in a legend
_LONGEST_LABEL = 20  # characters of a name beside each of two panels; longer ones would take the panels' place
_DODGE, _WIDEST_DODGE = 0.04, 0.16  # octaves between neighbouring strategies, and all: bars must not hide each other
_BESIDE = 0.009  # of the axis: by so much a seed's dot stands beside its strategy's bar
_EDGE = 0.35  # octaves of the axis outside the outermost batches


def draw(report, cells, condition, styles):
    headline, touched = report.headline, reports.touched(cells)
    if headline is None:
        raise Nothing("no run ended with a result")
    batches = sorted({images_per_tower(cell.grouping) for cell in touched})
    if len(batches) < 2:
        raise Nothing(f"only one batch size, {batches[0]:g} images per tower; a line needs two")
    if len(batches) < len({cell.grouping for cell in touched}):
        raise Nothing("the towers, or how even their batches are, vary at one batch size: no single line per strategy")
    if reports.never_saved(touched):
        raise Nothing("no run was evaluated with the saved statistics")
    globals_ = {cell.grouping.towers * images_per_tower(cell.grouping) for cell in touched}

    strategies, single = _with_lines(touched, styles)
    touched = [cell for cell in touched if cell.strategy in strategies]
    populations = {name: [cell for cell in touched if not cell.lacks(name)] for name in _STATISTICS
                   if name == "saved" or any(name in cell.evaluated for cell in touched)}

    at_ends = len(strategies) <= _MOST_LABELS and (
        len(populations) == 1 or max(map(len, strategies)) <= _LONGEST_LABEL)
    known = report.published(headline, touched)
    figure, all_axes = layout.new_page(
        f"How does {metric_name(headline)} depend on the {report.samples} per tower?",
        _caption(report, [cell for cell in cells if cell.strategy not in single], populations, strategies, globals_, condition)
        + (f" At a single size, and not drawn: {', '.join(single)}." if single else ""),
        style.DOUBLE, 2.75, columns=len(populations), sharey=True,
        legend=None if at_ends else {label: styles[label] for label in strategies},
        references=published.legend(known))
    rows, labelled = [], []
    low, high = batches[0] * 2 ** -_EDGE, batches[-1] * 2 ** _EDGE
    for axes, (population, drawn_cells) in zip(all_axes[0], populations.items()):
        ends, drawn = _draw_lines(axes, drawn_cells, strategies, styles, population, (high / low) ** _BESIDE)
        published.draw(axes, known)
        rows += drawn
        labelled.append((axes, ends))
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, [f"{batch:g}" for batch in batches])
        axes.set_xticks([], minor=True)
        axes.set_xlim(low, high)
        axes.set_xlabel(f"{report.samples} per tower")
        if len(populations) > 1:
            axes.set_title(_STATISTICS[population], loc="left", color=style.GREY)
    layout.keep_to_shares(all_axes[0][0], [row["value"] for row in rows if row.get("value") is not None])
    all_axes[0][0].set_ylabel(metric_name(headline))
    _make_room(all_axes[0], populations)
    for axes, drawn_cells in zip(all_axes[0], populations.values()):
        layout.mark_failures(axes, [(images_per_tower(cell.grouping), styles[cell.strategy].colour, cell.failures)
                                    for cell in drawn_cells if cell.failed])
    if at_ends:
        layout.label_line_ends(figure, labelled)
    return Drawing(figure, rows + published.rows(known), _sentence(touched, batches, headline, report.samples))


def _with_lines(cells, styles):
    """(strategies to draw, those left out)."""
    sizes = {label: {images_per_tower(cell.grouping) for cell in cells if cell.strategy == label} for label in styles}
    every = [label for label in styles if sizes[label]]
    lines = [label for label in every if len(sizes[label]) > 1]
    return (lines, [label for label in every if label not in lines]) if len(every) > _MOST_LABELS and lines else (every, [])


def _draw_lines(axes, cells, strategies, styles, population, beside):
    rows, ends = [], []
    batchless = reports.without_running_statistics(cells)  # what they compute does not depend on the towers
    for k, strategy in enumerate(strategies):
        look = styles[strategy]
        shift = 2 ** (min(_DODGE, _WIDEST_DODGE / len(strategies)) * (k - (len(strategies) - 1) / 2))
        xs, means, bars = [], [], []
        for cell in sorted((c for c in cells if c.strategy == strategy),
                           key=lambda c: images_per_tower(c.grouping)):
            x = images_per_tower(cell.grouping) * shift
            where = {"population": population, "strategy": strategy, "grouping": grouping_text(cell.grouping),
                     "images_per_tower": images_per_tower(cell.grouping), "x_drawn": x}
            value = cell.value(population if population in cell.evaluated else "saved")
            rows += _seed_rows(cell, value, where)
            summary = {"kind": "mean", **where, "n": value.n if value else 0, "failed": cell.failed,
                       "missing": cell.missing, "outcome": cell.failures}
            if value:
                summary.update(value=value.mean, half_width=value.half_width)
                xs.append(x)
                means.append(value.mean)
                bars.append(value.half_width or 0)
                axes.plot([x * beside] * value.n, list(value.seeds.values()), ".", color=look.colour, alpha=0.6,
                          markersize=4, markeredgewidth=0, zorder=2)
            rows.append(summary)
        if xs:
            axes.errorbar(xs, means, yerr=bars, color=look.colour, marker=look.marker, linestyle=look.dash,
                          elinewidth=0.9, capsize=0, zorder=4)
            if len(xs) == 1 and strategy in batchless:
                axes.axhline(means[0], color=look.colour, linestyle=look.dash, zorder=1.5)
            ends.append((strategy, xs[-1], means[-1], look.colour))
    return ends, rows


def _seed_rows(cell, value, where):
    seeds = value.seeds if value else {}
    return [{"kind": "seed", **where, "seed": seed, "value": seeds.get(seed), "outcome": outcome}
            for seed, outcome in sorted(cell.outcomes.items())]


def _make_room(all_axes, populations):
    """Space below the lines for the failure marks."""
    levels = 0
    for cells in populations.values():
        failing = [images_per_tower(cell.grouping) for cell in cells if cell.failed]
        levels = max([levels] + [failing.count(x) for x in failing])
    if levels:
        low, high = all_axes[0].get_ylim()
        share = 0.02 + 0.065 * levels
        all_axes[0].set_ylim(low - (high - low) * share / (1 - share), high)


def _caption(report, cells, populations, strategies, globals_, condition):
    bars = report.bars_text([cell.value("saved") for cell in populations["saved"]])
    parts = [f"{report.name}.", f"With {condition}." if condition else ""]
    if len(globals_) == 1:
        parts.append(f"{next(iter(globals_)):g} {report.samples} per step in all.")
    parts.append(f"Lines: mean of the last checkpoint; dots: single seeds; {bars}.")
    if "batch" in populations:
        alike = [label for label in strategies if label in reports.without_running_statistics(populations["batch"])]
        parts.append(f"Without running statistics, and so the same in both panels: {', '.join(alike)}." if alike else "")
    if any(len({cell.grouping for cell in cells if cell.strategy == label}) == 1 for label in reports.without_running_statistics(cells)):
        parts.append("What does not know the towers is a flat line.")
    parts += [reports.absent_note(populations["saved"], "mark"), report.rates_note(cells)]
    parts += reports.shortfall_notes(cells)
    return " ".join(part for part in parts if part)


def _sentence(cells, batches, headline, samples):
    clauses = []
    for batch in (batches[0], batches[-1]):
        here = [cell for cell in cells if images_per_tower(cell.grouping) == batch and cell.value("saved")]
        if not here:
            clauses.append(f"at {batch:g} {samples} per tower no run ended well")
            continue
        ranked = sorted(here, key=lambda cell: cell.value("saved").mean)
        clauses.append(f"at {batch:g} {samples if batch != 1 else samples[:-1]} per tower from {_value(ranked[0])} "
                       f"to {_value(ranked[-1])}")
    return f"{metric_name(headline)} with the saved statistics runs {' and '.join(clauses)}."


def _value(cell):
    interval = cell.value("saved")
    bar = f" ± {interval.half_width:.3f}" if interval.half_width is not None else ""
    return f"{interval.mean:.3f}{bar} ({cell.strategy}, n = {interval.n})"
