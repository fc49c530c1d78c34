"""Peak memory of the busiest rank per strategy, tensors (filled) beside the whole process (hollow), from zero."""

import math

import cells as cell_lists
import layout
import style
from drawing import Drawing, Nothing
from records import grouping_text, images_per_tower

_UNITS = (("GiB", 2 ** 30), ("MiB", 2 ** 20), ("KiB", 2 ** 10), ("bytes", 1))
_KINDS = (("tensors", "result.memory.peak_memory_bytes"), ("process", "result.memory.peak_rss_bytes"))
_COLUMNS = 4


def draw(experiment, runs, condition, styles):
    def key(run):
        return run.grouping, run.placement["name"]

    cells = {kind: cell_lists.make_cells(runs, lambda run, path=path: _largest(run, path), experiment.seeds, key)
             for kind, path in _KINDS}
    if not any(cell.values for cell in cells["tensors"].values()):
        raise Nothing("no run has recorded its peak memory")
    strategies = [label for label in styles if any(run.strategy == label for run in runs)]
    panels = sorted({where for _, where in cells["tensors"]}, key=lambda w: (images_per_tower(w[0]), w[0].towers, w[1]))
    largest = max(max(cell.values.values()) for kind in cells.values() for cell in kind.values() if cell.values)
    unit, scale = next((name, size) for name, size in _UNITS if largest >= size or size == 1)

    columns = min(_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure, all_axes = layout.new_page(
        "How much memory does each strategy need?", _caption(experiment, cells, condition),
        style.DOUBLE, lines * (0.62 + 0.27 * len(strategies)),
        rows=lines, columns=columns, sharex=True, sharey=True)
    rows = []
    for axes, where in zip(all_axes.flat, panels):
        rows += _draw_panel(axes, where, cells, strategies, styles, scale)
        axes.set_title(f"{grouping_text(where[0])} on {where[1]}", loc="left", color=style.GREY)
        axes.set_xlabel(f"peak per rank ({unit})")
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    for axes in all_axes.flat[len(panels):]:
        axes.set_visible(False)
    first = all_axes[0][0]
    first.set_yticks(range(len(strategies)), strategies)
    first.set_ylim(len(strategies) - 0.45, -0.55)
    first.set_xlim(0, largest / scale * 1.22)
    return Drawing(figure, rows, _sentence(cells["tensors"], unit, scale))


def _largest(run, path):
    values = [value for value in run.at(path) or [] if isinstance(value, (int, float))]
    return max(values) if values else None


def _draw_panel(axes, where, cells, strategies, styles, scale):
    rows = []
    for k, (kind, _) in enumerate(_KINDS):
        for place, strategy in enumerate(strategies):
            cell = cells[kind].get((strategy, where))
            y = place + (k - 0.5) * 0.36
            colour = styles[strategy].colour
            if cell is None:
                continue
            row = {"kind": kind, "strategy": strategy, "grouping": grouping_text(where[0]), "placement": where[1],
                   "n": len(cell.values), "failed": len(cell.failed), "missing": len(cell.missing),
                   "outcome": cell.failures}
            rows.append(row)
            if not cell.values:
                if k == 0 and cell.failed:
                    axes.plot([0.03], [place], marker="x", color=colour, markersize=4.5, markeredgewidth=1.3,
                              transform=axes.get_yaxis_transform())
                    axes.annotate(cell.failures, (0.03, place), xycoords=axes.get_yaxis_transform(), xytext=(6, 0),
                                  textcoords="offset points", va="center", size=style.SMALL - 0.8, color=colour)
                continue
            mean, low, high = cell.interval.mean, min(cell.values.values()), max(cell.values.values())
            row.update(mean_bytes=mean, low_bytes=low, high_bytes=high)
            axes.barh(y, mean / scale, height=0.32, color=colour if k == 0 else "white", edgecolor=colour,
                      linewidth=0.8, zorder=2)
            axes.plot([low / scale, high / scale], [y, y], color=style.GREY, linewidth=0.9, zorder=3)
            axes.annotate(_digits(mean / scale), (high / scale, y), xytext=(2.5, -0.3), textcoords="offset points",
                          va="center", size=style.SMALL - 0.8, color=style.GREY)
    return rows


def _digits(value):
    """Three significant digits: "99.0", "175"."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def _caption(experiment, cells, condition):
    tensors = list(cells["tensors"].values())
    parts = [f"{experiment.name}.", f"With {condition}." if condition else "",
             "Panels: towers x images per tower, on ranks x towers per rank.",
             "Filled bars: peak of tensors and library workspaces; hollow: peak resident set of the process; both of "
             "the busiest rank" + (", mean over seeds, with a line from the smallest to the largest;"
                               if any(len(cell.values) > 1 for cell in tensors) else ";"),
             f"{cell_lists.count_text(tensors)}."]
    parts += cell_lists.shortfall_notes(tensors, len(experiment.unfinished))
    return " ".join(part for part in parts if part)


def _sentence(tensors, unit, scale):
    filled = sorted((cell for cell in tensors.values() if cell.values), key=lambda cell: cell.interval.mean)
    low, high = filled[0], filled[-1]
    return (f"Peak tensor memory of the busiest rank lies between {_digits(low.interval.mean / scale)} {unit} "
            f"({low.strategy} {grouping_text(low.grouping)}) and {_digits(high.interval.mean / scale)} {unit} "
            f"({high.strategy} {grouping_text(high.grouping)}).")
