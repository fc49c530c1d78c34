"""Headline metric on each part of the test split (a drive, a kind of microscopy), under each population: 95 % bars.

A column for all images and one per part, a row per strategy and condition: where a strategy loses, and whether other
statistics win it back there.
"""

import layout
import report as reports
import style
from accuracy_by_population import keep_to_shares, legend, look, mark_failure, populations_of
from drawing import Drawing, Nothing, metric_name
from report import grouping_text, images_per_tower

PANEL_KEYS = reports.EVERY_KEY  # all conditions stand under each other
_ALL = "all images"
_COLUMNS = 4
_ROW, _MORE, _DODGE = 0.09, 0.05, 0.8  # inches per row and per population, and the share over which these spread


def draw(report, cells, condition, styles):
    metric = report.headline
    touched = reports.touched(cells)
    parts = sorted({part for cell in touched for part in cell.parts(metric)}) if metric else []
    if len(parts) < 2:
        raise Nothing("the test split has no parts of which the metric is told")
    populations = populations_of(touched)
    lines = sorted(touched, key=lambda cell: (images_per_tower(cell.grouping), cell.grouping.towers, grouping_text(cell.grouping),
                                              sorted(cell.conditions.items()), list(styles).index(cell.strategy)))
    names = [_line(cell, touched) for cell in lines]
    columns = [_ALL, *parts]
    across = min(_COLUMNS, len(columns))
    blocks = -(-len(columns) // across)
    sentence = _sentence(lines, names, parts, metric)
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [cell.value("saved") for cell in touched]), style.DOUBLE,
        blocks * (0.5 + (_ROW + _MORE * len(populations)) * len(lines)), rows=blocks, columns=across, sharex=True, sharey=True,
        legend=legend(populations))
    rows = []
    for axes, part in zip(all_axes.flat, columns):
        for place, (cell, name) in enumerate(zip(lines, names)):
            rows += _draw_cell(axes, place, cell, name, part, metric, populations)
        axes.set_title(part, loc="left", color=style.GREY)
        axes.set_xlabel(metric_name(metric))
        axes.tick_params(axis="x", labelbottom=True)
        axes.tick_params(axis="y", length=0)
    for axes in all_axes.flat[len(columns):]:
        axes.set_visible(False)
    first = all_axes[0][0]
    first.set_yticks(range(len(lines)), [style.renamed(name, list(styles)) for name in names])
    first.set_ylim(len(lines) - 0.45, -0.55)
    keep_to_shares(first, rows)
    return Drawing(figure, rows, sentence)


def _line(cell, touched):
    """What tells a row from the others."""
    words = [grouping_text(cell.grouping)] if len({each.grouping for each in touched}) > 1 else []
    words += [cell.strategy] if len({each.strategy for each in touched}) > 1 else []
    words += [f"{value} shards" if key == "shards" else f"{key.split('.')[-1]} {value}" for key, value in cell.conditions.items()
              if len({each.conditions.get(key) for each in touched}) > 1]
    return " ".join(words) or cell.strategy


def _draw_cell(axes, place, cell, name, part, metric, populations):
    rows = []
    known = [population for population in populations if population in cell.evaluated | {"saved"}]
    for k, population in enumerate(known):
        value = cell.value(population) if part == _ALL else cell.value_of_part(part, metric, population)
        rows.append({"row": name, "strategy": cell.strategy, "grouping": grouping_text(cell.grouping), "part": part,
                     "population": population, **cell.summary(value)})
        if value is None:
            continue
        colour, marker = look(population, populations)
        axes.errorbar(value.mean, place + _DODGE * ((k + 0.5) / len(known) - 0.5), xerr=value.half_width, color=colour,
                      marker=marker, markersize=3.4, markeredgewidth=0, elinewidth=0.6, linestyle="",
                      zorder=4 if population == "saved" else 3)
    if part == _ALL and cell.failed and cell.value("saved") is None:
        mark_failure(axes, place, cell.failures)
    return rows


def _sentence(lines, names, parts, metric):
    """The part on which the first row is worst, beside all images."""
    first, name = lines[0], names[0]
    scores = {part: first.value_of_part(part, metric, "saved") for part in parts}
    worst = min((part for part in parts if scores[part]), key=lambda part: scores[part].mean, default=None)
    if worst is None or first.value("saved") is None:
        return f"{metric_name(metric)} by part of the test split: {', '.join(parts)}."
    return (f"{name} has {metric_name(metric)} {scores[worst].mean:.3f} on {worst}, the worst of {len(parts)} parts, and "
            f"{first.value('saved').mean:.3f} on all images.")
