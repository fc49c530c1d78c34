"""Headline metric of every strategy under each population that was evaluated: a row per strategy, 95 % bars.

Beside each other in a row, populations tell a bad running mean (saved below the others) from bad weights (all low).
A panel per grouping and kind of shards, so that iid and sorted shards of one experiment stand side by side. Where the
panels have few strategies in common they stand under each other, each with its own.
"""

import layout
import published
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from report import grouping_text, images_per_tower

PANEL_KEYS = ("shards",)  # axes of the matrix that get panels here, where other figures are drawn once per value
_LOOKS = {"saved": (style.BLACK, "o"), "mean": (style.ORANGE, "d"), "pooled": (style.BLUE, "s"),
          "precise": (style.GREEN, "^"), "batch": (style.SKY, "v"), "ema": (style.PURPLE, "P")}
_STATISTICS = {"saved": "saved", "mean": "mean over the GPUs", "pooled": "pooled over the GPUs", "precise": "recomputed",
               "batch": "the test batch's own", "ema": "saved, with averaged weights"}
_TOWERS = (style.VERMILION, "<>*pXh8")  # colour of tower:K, and a marker for each
_COLUMNS = 3
_LITTLE = 0.005  # of the metric
_FILLED = 2 / 3  # of the rows of panels side by side, at least
_ROW, _MORE, _DODGE = 0.10, 0.05, 0.75  # inches per strategy and per population, and the share over which these spread


def draw(report, cells, condition, styles):
    if report.headline is None:
        raise Nothing("no run ended with a result")
    touched = reports.touched(cells)
    populations = populations_of(touched)
    panels = sorted({_panel(cell) for cell in touched},
                    key=lambda panel: (panel[1], images_per_tower(panel[0]), panel[0].towers, grouping_text(panel[0])))
    if len(populations) < 2 and len({shards for _, shards in panels}) < 2:
        raise Nothing("only one population, saved, was evaluated")
    strategies = _rows(panels, touched, styles)
    side_by_side = len(set(map(tuple, strategies))) == 1

    known = report.published(report.headline, touched)
    columns = 1 if not side_by_side else 2 if len(panels) == 4 else min(_COLUMNS, len(panels))
    heights = [0.55 + (_ROW + _MORE * len(populations)) * len(strategies[k]) for k in range(0, len(panels), columns)]
    sentence, names = _sentence(touched, populations, panels, report.headline), style.names(list(styles))
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [cell.value("saved") for cell in touched], condition), style.DOUBLE, sum(heights),
        rows=len(heights), columns=columns, sharex=True, sharey=side_by_side, height_ratios=heights,
        legend=legend(populations), references=published.legend(known))
    rows = []
    for axes, panel, labels in zip(all_axes.flat, panels, strategies):
        rows += _draw_panel(axes, panel, touched, labels, populations)
        published.draw(axes, known, upright=True)
        axes.set_title(_panel_text(panel, panels, report.samples), loc="left", color=style.GREY)
        if columns > 1 or panel == panels[-1]:
            axes.set_xlabel(metric_name(report.headline))
        axes.tick_params(axis="x", labelbottom=True)
        axes.tick_params(axis="y", length=0)
        axes.set_yticks(range(len(labels)), [names[label] for label in labels])
        axes.set_ylim(len(labels) - 0.45, -0.55)
    for axes in all_axes.flat[len(panels):]:
        axes.set_visible(False)
    keep_to_shares(all_axes[0][0], rows)
    return Drawing(figure, rows + published.rows(known), sentence)


def _rows(panels, cells, styles):
    """The strategies of each panel: its own, or, where few rows stay empty so, those of all."""
    own = [[label for label in styles if any(_panel(cell) == panel and cell.strategy == label for cell in cells)]
           for panel in panels]
    scores = {cell.strategy: cell.value("saved").mean for cell in reversed(cells) if cell.value("saved")}
    for labels in own:
        labels.sort(key=lambda label: -scores.get(label, 0))
    every = sorted((label for label in styles if any(label in labels for labels in own)), key=lambda label: -scores.get(label, 0))
    return own if sum(map(len, own)) < _FILLED * len(panels) * len(every) else [every] * len(panels)


def _panel(cell):
    return cell.grouping, cell.conditions.get("shards", "iid")


def _panel_text(panel, panels, samples):
    grouping, shards = panel
    return f"{grouping_text(grouping)}, {shards} shards" if len({each[1] for each in panels}) > 1 else reports.grouping_words(grouping, samples)


def populations_of(cells):
    """Those of all cells, the table's in its order, towers behind saved."""
    names = {name for cell in cells for name in cell.evaluated} | {"saved"}
    return sorted(names, key=lambda name: (name != "saved", not name.startswith("tower:"),
                                           list(_LOOKS).index(name) if name in _LOOKS else -1, name))


def look(population, populations):
    if population in _LOOKS:
        return _LOOKS[population]
    towers = [name for name in populations if name not in _LOOKS]
    return _TOWERS[0], _TOWERS[1][towers.index(population) % len(_TOWERS[1])]


def statistics_of(population):
    return _STATISTICS.get(population) or population.replace("tower:", "GPU ")


def legend(populations):
    """Text -> Style: the statistics that a network is evaluated with."""
    return {statistics_of(population): style.Style(*look(population, populations), "") for population in populations}


def _draw_panel(axes, panel, cells, strategies, populations):
    rows, everywhere = [], reports.of_every_grouping(cells)
    for cell in cells:
        if _panel(cell) != panel and (cell not in everywhere or _panel(cell)[1] != panel[1] or cell.strategy not in strategies):
            continue
        place = strategies.index(cell.strategy)
        evaluated = set().union(*(each.evaluated for each in cells if each.strategy == cell.strategy), {"saved"})
        known = [population for population in populations if population in evaluated]
        for k, population in enumerate(known):
            value = cell.value(population)
            y = place + _DODGE * ((k + 0.5) / len(known) - 0.5)
            if _panel(cell) == panel:
                rows.append({"strategy": cell.strategy, "grouping": grouping_text(panel[0]), "shards": panel[1],
                             "population": population, **cell.summary(value)})
            colour, marker = look(population, populations)
            if value:
                axes.errorbar(value.mean, y, xerr=value.half_width, color=colour, marker=marker, markersize=3.4,
                              markeredgewidth=0, elinewidth=0.6, linestyle="", zorder=4 if population == "saved" else 3)
            elif cell.failed and population == "saved":
                mark_failure(axes, place, cell.failures)
    return rows


def mark_failure(axes, place, failures):
    """Where no run of a row ended well: ×, and how they ended."""
    at = axes.get_yaxis_transform()
    axes.plot([0.03], [place], marker="x", color=style.GREY, markersize=4, transform=at)
    axes.annotate(failures, (0.03, place), xycoords=at, xytext=(6, 0), textcoords="offset points", va="center",
                  size=style.SMALL - 0.8, color=style.GREY)


def keep_to_shares(axes, rows):
    values = [row["value"] for row in rows if row.get("value") is not None]
    if values and all(0 <= value <= 1 for value in values):
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, -0.03), min(high, 1.03))


def _sentence(cells, populations, panels, headline):
    """Where other statistics than the saved ones help most."""
    gains = [(cell.value(name).mean - cell.value("saved").mean, cell, name) for cell in cells if cell.value("saved")
             for name in populations if name != "saved" and name in cell.evaluated and cell.value(name)]
    if not gains:
        return f"{metric_name(headline)} with the saved statistics only."
    gain, cell, name = max(gains, key=lambda each: each[0])
    if gain < _LITTLE:
        return f"No other statistics are better than the saved ones by more than {_LITTLE} of {metric_name(headline)}."
    where = _panel_text(_panel(cell), panels, "") if len({each[1] for each in panels}) > 1 else grouping_text(cell.grouping)
    return (f"{style.names([each.strategy for each in cells])[cell.strategy]} at {where} gains most from other statistics: {metric_name(headline)} "
            f"{cell.value(name).mean:.3f} with {statistics_of(name)}, {cell.value('saved').mean:.3f} with the saved ones.")
