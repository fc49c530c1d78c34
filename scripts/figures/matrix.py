"""The whole matrix at a glance: a row per strategy, a column per grouping and condition, each field the mean headline metric.

Failed and missing runs stand in their fields; a field without any finished run is hatched.
"""

import matplotlib
from matplotlib.patches import Rectangle

import layout
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from report import grouping_text, images_per_tower

PANEL_KEYS = reports.EVERY_KEY
_COLOURS = "cividis"  # even in lightness, and the same to colour-blind readers
_FIELD = 0.28, 0.62  # inches: height, least width


def draw(report, cells, condition, styles):
    touched = reports.touched(cells)
    if not touched:
        raise Nothing("no run has ended")
    if reports.never_saved(touched):
        raise Nothing("no run was evaluated with the saved statistics")
    columns = sorted({_column(cell) for cell in cells}, key=lambda c: (c[0], images_per_tower(c[1]), c[1].towers))
    strategies = [label for label in styles if any(cell.strategy == label for cell in cells)]
    if len(columns) < 2 or len(strategies) < 2:
        raise Nothing("the matrix is a single line")
    values = [cell.value("saved").mean for cell in touched if cell.value("saved")]
    colours = matplotlib.colormaps[_COLOURS]
    scale = matplotlib.colors.Normalize(min(values, default=0), max(values, default=1))

    titles = [_title(column, columns) for column in columns]
    lines = 1 + max(title.count("\n") for title in titles)
    width = max(style.SINGLE, layout.list_width(strategies) + len(columns) * max(_FIELD[1], layout.list_width(
        [line for title in titles for line in title.split("\n")]) - 0.2))
    figure, all_axes = layout.new_page(
        f"How does {metric_name(report.headline)} vary over the matrix?" if report.headline else "What became of the matrix?", _caption(report, cells), width,
        0.2 + 0.13 * lines + _FIELD[0] * len(strategies))
    axes, rows = all_axes[0][0], []
    for cell in cells:
        x, y = columns.index(_column(cell)), strategies.index(cell.strategy)
        rows.append(_draw_field(axes, cell, x, y, colours, scale))
    axes.set_xticks(range(len(columns)), titles)
    axes.set_yticks(range(len(strategies)), strategies)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(strategies) - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return Drawing(figure, rows, _sentence(cells))


def _column(cell):
    return tuple(sorted(cell.conditions.items())), cell.grouping


def _title(column, columns):
    conditions, grouping = column
    several_groupings = len({each for _, each in columns}) > 1
    parts = [f"{key.rsplit('.', 1)[-1]} {text}" for key, text in conditions]
    return "\n".join(parts + ([grouping_text(grouping)] if several_groupings or not parts else []))


def _column_keys(cells, samples):
    keys = sorted({key for cell in cells for key in cell.conditions})
    return keys if keys and len({cell.grouping for cell in cells}) == 1 else keys + [f"towers x {samples} per tower"]


def _draw_field(axes, cell, x, y, colours, scale):
    value = cell.value("saved")
    colour = colours(scale(value.mean)) if value else "white"
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white" if value else style.FAINT,
                             linewidth=1, hatch=None if value else "////"))
    short = [f"× {cell.failures}"] if cell.failed else []
    short += [f"{cell.missing} missing"] if cell.missing else []
    lines = ([f"{value.mean:.3f}"] if value else []) + short
    dark = value and sum(colour[:3]) < 1.5
    axes.text(x, y, "\n".join(lines), ha="center", va="center", size=style.SMALL - (0.8 if len(lines) > 1 else 0),
              linespacing=1.0, color="white" if dark else style.BLACK)
    return {"strategy": cell.strategy, "grouping": grouping_text(cell.grouping), **cell.conditions,
            "n": value.n if value else 0, "value": value.mean if value else None,
            "half_width": value.half_width if value else None, "failed": cell.failed, "missing": cell.missing,
            "outcome": cell.failures}


def _caption(report, cells):
    counts = reports.count_text([cell.value("saved") for cell in reports.touched(cells)])
    parts = [f"{report.name}.", "Fields: mean of the last checkpoint with the saved statistics;", f"{counts}.",
             f"Columns: {', '.join(_column_keys(cells, report.samples))}."]
    if any(not cell.ok for cell in cells):
        parts.append("Hatched: no run ended well.")
    if len(cells) < len({_column(cell) for cell in cells}) * len({cell.strategy for cell in cells}):
        parts.append("Blank: the spec does not ask for it.")
    return " ".join(part for part in [*parts, report.rates_note(cells), *reports.shortfall_notes(cells)] if part)


def _sentence(cells):
    finished = [cell for cell in cells if cell.value("saved")]
    failed, missing = sum(cell.failed for cell in cells), sum(cell.missing for cell in cells)
    rest = f"; {failed} runs failed, {missing} are missing" if failed or missing else ""
    if not finished:
        return f"No run of the matrix ended well{rest}."
    best = max(finished, key=lambda cell: cell.value("saved").mean)
    where = ", ".join([grouping_text(best.grouping)] + [f"{k} = {v}" for k, v in sorted(best.conditions.items())])
    return f"The highest mean of the matrix is {best.value('saved').mean:.3f} ({best.strategy}, {where}){rest}."
