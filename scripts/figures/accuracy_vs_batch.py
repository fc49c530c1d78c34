"""Headline metric after the last step against images per tower: a line per strategy, 95 % bars, faint seeds.

After figure 1 of Wu and He, Group Normalization (arXiv 1803.08494). A second panel shows the metric with the batch's
own statistics where that was recorded. What does not depend on the towers is a flat line; of many strategies the others with a
single batch size are left out.
"""

import layout
import published
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from report import grouping_text, images_per_tower

_STATISTICS = {"saved": "evaluated with the saved statistics", "batch": "evaluated with the batch's own statistics"}
_MOST_LABELS = 6  # lines named at their ends; more of them are named in a legend
_EDGE = 0.35  # octaves of the axis outside the outermost batches


def draw(report, cells, condition, styles):
    headline, touched = report.headline, reports.touched(cells)
    if headline is None:
        raise Nothing("no run ended with a result")
    batches = sorted({images_per_tower(cell.grouping) for cell in touched})
    if len(batches) < 2:
        raise Nothing(f"only one batch size, {batches[0]:g} images per GPU; a line needs two")
    if len(batches) < len({cell.grouping for cell in touched}):
        raise Nothing("the towers, or how even their batches are, vary at one batch size: no single line per strategy")
    if reports.never_saved(touched):
        raise Nothing("no run was evaluated with the saved statistics")
    strategies, single = _with_lines(touched, styles)
    touched = [cell for cell in touched if cell.strategy in strategies]
    populations = {name: [cell for cell in touched if not cell.lacks(name)] for name in _STATISTICS
                   if name == "saved" or any(name in cell.evaluated for cell in touched)}

    at_ends = len(strategies) <= _MOST_LABELS
    names = style.names(strategies, words=len(populations) == 1 or not at_ends)
    sentence = _sentence(touched, batches, headline, report.samples)
    known = report.published(headline, touched)
    figure, all_axes = layout.new_page(
        sentence, report.caption([cell for cell in cells if cell.strategy not in single],
                                 [cell.value("saved") for cell in populations["saved"]], condition,
                                 f"at a single size, and not drawn: {', '.join(single)}" if single else ""),
        style.DOUBLE, 2.75, columns=len(populations), sharey=True,
        legend=None if at_ends else {names[label]: styles[label] for label in strategies},
        references=published.legend(known))
    rows, labelled = [], []
    low, high = batches[0] * 2 ** -_EDGE, batches[-1] * 2 ** _EDGE
    for axes, (population, drawn_cells) in zip(all_axes[0], populations.items()):
        ends, drawn = _draw_lines(axes, drawn_cells, names, styles, population, at_ends)
        published.draw(axes, known)
        rows += drawn
        labelled.append((axes, ends))
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, [f"{batch:g}" for batch in batches])
        axes.set_xticks([], minor=True)
        axes.set_xlim(low, high)
        axes.set_xlabel(f"{report.samples} per GPU")
        if len(populations) > 1:
            axes.set_title(_STATISTICS[population], loc="left", color=style.GREY)
    layout.fit(all_axes[0][0], rows)
    all_axes[0][0].set_ylabel(metric_name(headline))
    _make_room(all_axes[0], populations)
    for axes, drawn_cells in zip(all_axes[0], populations.values()):
        layout.mark_failures(axes, [(images_per_tower(cell.grouping), styles[cell.strategy].colour, cell.failures)
                                    for cell in drawn_cells if cell.failed])
    if at_ends:
        layout.label_line_ends(figure, labelled)
    return Drawing(figure, rows + published.rows(known), sentence)


def _with_lines(cells, styles):
    """(strategies to draw, those left out)."""
    sizes = {label: {images_per_tower(cell.grouping) for cell in cells if cell.strategy == label} for label in styles}
    every = [label for label in styles if sizes[label]]
    flat = reports.without_running_statistics(cells)
    lines = [label for label in every if len(sizes[label]) > 1 or label in flat]
    return (lines, [label for label in every if label not in lines]) if len(every) > _MOST_LABELS and lines else (every, [])


def _draw_lines(axes, cells, names, styles, population, at_ends):
    rows, ends = [], []
    batchless = reports.without_running_statistics(cells)  # what they compute does not depend on the towers
    for k, strategy in enumerate(names):
        look, place = styles[strategy], layout.dodged(axes, k, len(names))
        xs, means, bars = [], [], []
        for cell in sorted((c for c in cells if c.strategy == strategy),
                           key=lambda c: images_per_tower(c.grouping)):
            x = images_per_tower(cell.grouping)
            where = {"population": population, "strategy": strategy, "grouping": grouping_text(cell.grouping), "images_per_tower": x}
            value = cell.value(population if population in cell.evaluated else "saved")
            rows += _seed_rows(cell, value, where)
            rows.append({"kind": "mean", **where, **cell.summary(value)})
            if value:
                xs.append(x)
                means.append(value.mean)
                bars.append(value.half_width or 0)
                if at_ends or strategy not in batchless:
                    axes.plot([x] * value.n, list(value.seeds.values()), ".", color=look.colour, alpha=0.6, markersize=4,
                              markeredgewidth=0, transform=layout.dodged(axes, k + 1, len(names)), zorder=2)
        if xs and not at_ends and strategy in batchless:  # with many strategies no more than the line
            axes.axhline(means[0], color=look.colour, linestyle=look.dash, linewidth=0.8, zorder=1.5)
        elif xs:
            axes.errorbar(xs, means, yerr=bars, color=look.colour, marker=look.marker, linestyle=look.dash,
                          elinewidth=0.9, capsize=0, transform=place, zorder=4)
            if len(xs) == 1 and strategy in batchless:
                axes.axhline(means[0], color=look.colour, linestyle=look.dash, zorder=1.5)
            ends.append((names[strategy], xs[-1], means[-1], look.colour))
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


def _sentence(cells, batches, headline, samples):
    """The best and the worst with the fewest images per tower, and both with the most that either has."""
    def at(batch, of=None):
        here = [cell for cell in cells if images_per_tower(cell.grouping) == batch and cell.value("saved")]
        return {cell.strategy: cell.value("saved").mean for cell in here if of is None or cell.strategy in of}

    first = at(batches[0])
    where = f"{batches[0]:g} {samples if batches[0] != 1 else samples[:-1]} per GPU"
    if not first:
        return f"With {where} no run ended well."
    ends = sorted({max(first, key=first.get): None, min(first, key=first.get): None}, key=first.get, reverse=True)
    later = next(({batch: found} for batch in reversed(batches[1:]) if len(found := at(batch, ends)) == len(ends)), {})
    names = style.names(list(dict.fromkeys(cell.strategy for cell in cells)))
    best, *worst = [f"{names[label]} {{}}{first[label]:.2f}" for label in ends]
    return (f"With {where} {best.format(f'reaches {metric_name(headline)} ')}" + "".join(f", {text.format('')}" for text in worst)
            + "".join(f"; with {batch:g} {samples} {' and '.join(f'{means[label]:.2f}' for label in ends)}" for batch, means in later.items())
            + ".")
