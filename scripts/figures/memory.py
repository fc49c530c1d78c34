"""Peak memory of the busiest rank per strategy, tensors (filled) beside the whole process (hollow), from zero."""

import math

import layout
import report as reports
import style
from drawing import Drawing, Nothing
from report import grouping_text, images_per_tower

_UNITS = (("GiB", 2 ** 30), ("MiB", 2 ** 20), ("KiB", 2 ** 10), ("bytes", 1))
_KINDS = ("tensors", "process")
_COLUMNS = 2
PANEL_KEYS = ("accumulate", "recompute")


def draw(report, cells, condition, styles):
    rows = [row for cell in cells for row in cell.rows]
    measured = [row.memory[kind] for row in rows for kind in _KINDS if row.memory[kind]]
    if not any(row.memory["tensors"] for row in rows):
        raise Nothing("no run has recorded its peak memory")
    strategies = [label for label in styles if any(row.strategy == label for row in rows)]
    panels = sorted({_panel(row) for row in rows}, key=lambda w: (images_per_tower(w[0]), w[0].towers, w[1], w[2]))
    largest = max(max(quantity.seeds.values()) for quantity in measured)
    unit, scale = next((name, size) for name, size in _UNITS if largest >= size or size == 1)

    columns = min(_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    sentence, names = _sentence(rows, unit, scale), style.names(strategies, words=True)
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [row.memory["tensors"] for row in rows], condition, bars=""),
        style.DOUBLE, lines * (0.62 + 0.27 * len(strategies)),
        rows=lines, columns=columns, sharex=True, sharey=True,
        legend={"tensors": style.Style(style.GREY, "s", ""), "the whole process": style.Style(style.GREY, "s", "", "white")})
    drawn = []
    for axes, where in zip(all_axes.flat, panels):
        drawn += _draw_panel(axes, [row for row in rows if _panel(row) == where], strategies, styles, scale)
        axes.set_title(f"{reports.grouping_words(where[0], report.samples)}, on {where[1]}\n{', '.join(where[2])}".strip(), loc="left", color=style.GREY)
        axes.set_xlabel(f"peak per rank ({unit})")
        axes.tick_params(axis="x", labelbottom=True)
        layout.plain_rows(axes)
    for axes in all_axes.flat[len(panels):]:
        axes.set_visible(False)
    first = all_axes[0][0]
    first.set_yticks(range(len(strategies)), names.values())
    first.set_ylim(len(strategies) - 0.45, -0.55)
    first.set_xlim(0, largest / scale * 1.22)
    return Drawing(figure, drawn, sentence)


def _panel(row):
    """Grouping, placement, and how memory is saved, in words."""
    return row.grouping, row.placement, tuple(f"{key} {value}" for key, value in _ways(row).items())


def _draw_panel(axes, rows, strategies, styles, scale):
    drawn = []
    for row in rows:
        place, colour = strategies.index(row.strategy), styles[row.strategy].colour
        for k, kind in enumerate(_KINDS):
            peak = row.memory[kind]
            y = place + (k - 0.5) * 0.36
            drawn.append({"kind": kind, "strategy": row.strategy, "grouping": grouping_text(row.grouping),
                          "placement": row.placement, **_ways(row), "n": peak.n if peak else 0, "failed": row.failed,
                          "missing": row.missing, "outcome": row.failures})
            if peak:
                low, high = min(peak.seeds.values()), max(peak.seeds.values())
                drawn[-1].update(mean_bytes=peak.mean, low_bytes=low, high_bytes=high)
                axes.barh(y, peak.mean / scale, height=0.32, color=colour if k == 0 else "white", edgecolor=colour,
                          linewidth=0.8, zorder=2)
                axes.plot([low / scale, high / scale], [y, y], color=style.GREY, linewidth=0.9, zorder=3)
                axes.annotate(_digits(peak.mean / scale), (high / scale, y), xytext=(2.5, -0.3),
                              textcoords="offset points", va="center", size=style.SMALL - 0.8, color=style.GREY)
            elif k == 0 and row.failed:
                at = axes.get_yaxis_transform()
                axes.plot([0.03], [place], marker="x", color=colour, markersize=4.5, markeredgewidth=1.3, transform=at)
                axes.annotate(row.failures, (0.03, place), xycoords=at, xytext=(6, 0), textcoords="offset points",
                              va="center", size=style.SMALL - 0.8, color=colour)
    return drawn


def _ways(row):
    return {key: row.cell.conditions[key] for key in PANEL_KEYS if key in row.cell.conditions}


def _digits(value):
    """Three significant digits: "99.0", "175"."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def _sentence(rows, unit, scale):
    filled = sorted((row for row in rows if row.memory["tensors"]), key=lambda row: row.memory["tensors"].mean)

    def extreme(row):
        return f"{_digits(row.memory['tensors'].mean / scale)} {unit} ({row.strategy} {grouping_text(row.grouping)})"

    return f"Peak tensor memory of the busiest rank lies between {extreme(filled[0])} and {extreme(filled[-1])}."
