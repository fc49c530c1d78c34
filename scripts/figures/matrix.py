"""The whole matrix at a glance: a row per strategy, a column per grouping and condition, each field the mean headline metric.

What exchanges something in a step stands above what does not, each sorted by value at the smallest batch. What does not depend on
the towers has one field over all of them. Failed and missing runs stand in their fields; one without any finished run is hatched.
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
_SCALE = matplotlib.colors.Normalize(0, 1)  # the same on all pages
_FIELD = 0.28, 0.62  # inches: height, least width
_HEADING = 0.6  # rows that one takes


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
    places, headings = _places(cells, strategies, columns)
    everywhere = reports.of_every_grouping(cells) if len({_column(cell)[0] for cell in cells}) == 1 else []

    titles, names = [_title(column, columns, report.samples) for column in columns], style.names(strategies, words=True)
    lines, sentence = 1 + max(title.count("\n") for title in titles), _sentence(cells, report.headline)
    width = max(style.SINGLE, layout.list_width(names.values()) + len(columns) * max(_FIELD[1], layout.list_width(
        [line for title in titles for line in title.split("\n")]) - 0.2))
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [cell.value("saved") for cell in touched], bars=""), width,
        0.2 + 0.13 * lines + _FIELD[0] * (max(places.values()) + 1))
    axes, rows = all_axes[0][0], []
    for cell in cells:
        span = (0, len(columns)) if cell in everywhere else (columns.index(_column(cell)), 1)
        rows.append(_draw_field(axes, cell, *span, places[cell.strategy]))
    axes.set_xticks(range(len(columns)), titles)
    axes.set_yticks(list(places.values()), [names[label] for label in places])
    for text, y in headings.items():
        axes.text(-0.5, y, text, va="center", size=style.SMALL, color=style.GREY)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(max(places.values()) + 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return Drawing(figure, rows, sentence)


def _column(cell):
    return tuple(sorted(cell.conditions.items())), cell.grouping


def _places(cells, strategies, columns):
    """(strategy -> y, heading -> y), in rows from the top."""
    def first(label):
        """The value in the first column that has one."""
        found = sorted((columns.index(_column(cell)), cell.value("saved").mean) for cell in cells
                       if cell.strategy == label and cell.value("saved"))
        return found[0][1] if found else -1

    def exchanges(label):
        counts = [row.collectives_per_step for cell in cells if cell.strategy == label for row in cell.rows]
        return any(count and count.mean for count in counts)
    rows = sorted(strategies, key=lambda label: (not exchanges(label), -first(label)))
    many = sum(map(exchanges, rows))
    if many in (0, len(rows)):
        return {label: k for k, label in enumerate(rows)}, {}
    places = {label: k + _HEADING * (1 if k < many else 2) for k, label in enumerate(rows)}
    return places, {"with an exchange in a step": _HEADING / 2 - 0.5, "without": many + 1.5 * _HEADING - 0.5}


def _title(column, columns, samples):
    conditions, grouping = column
    several_groupings = len({each for _, each in columns}) > 1
    parts = [f"{key.rsplit('.', 1)[-1]} {text}" for key, text in conditions]
    return "\n".join(parts + (reports.grouping_words(grouping, samples).split(": ") if several_groupings or not parts else []))


def _draw_field(axes, cell, x, columns, y):
    value = cell.value("saved")
    colour = matplotlib.colormaps[_COLOURS](_SCALE(value.mean)) if value else "white"
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), columns, 1, facecolor=colour, edgecolor="white" if value else style.FAINT,
                             linewidth=1, hatch=None if value else "////"))
    short = [f"× {cell.failures}"] if cell.failed else []
    short += [f"{cell.missing} missing"] if cell.missing else []
    lines = ([f"{value.mean:.3f}"] if value else []) + short
    dark = value and sum(colour[:3]) < 1.5
    axes.text(x + (columns - 1) / 2, y, "\n".join(lines), ha="center", va="center", size=style.SMALL - (0.8 if len(lines) > 1 else 0),
              linespacing=1.0, color="white" if dark else style.BLACK)
    return {"strategy": cell.strategy, "grouping": grouping_text(cell.grouping), **cell.conditions,
            "n": value.n if value else 0, "value": value.mean if value else None,
            "half_width": value.half_width if value else None, "failed": cell.failed, "missing": cell.missing,
            "outcome": cell.failures}


def _sentence(cells, headline):
    finished = [cell for cell in cells if cell.value("saved")]
    if not finished:
        return "No run of the matrix ended well."

    names = style.names([cell.strategy for cell in cells])

    def text(cell):
        words = [names[cell.strategy], grouping_text(cell.grouping)] + [f"{k} = {v}" for k, v in sorted(cell.conditions.items())]
        return f"{cell.value('saved').mean:.3f} ({', '.join(words)})"
    ranked = sorted(finished, key=lambda cell: cell.value("saved").mean)
    return f"The {metric_name(headline)} ranges from {text(ranked[0])} to {text(ranked[-1])}."
