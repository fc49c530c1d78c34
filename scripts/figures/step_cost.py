"""What a step of each strategy costs more than one of the baseline: a row per cell, a column per way to exchange.

Columns have one scale. A row is the mean over the seeds of what a median step takes longer, paired by seed, with its 95 % t interval; at the right
stand the same per exchange, and the images/s relative to the baseline's. Where others have published such a share, a last
column draws it beside these.
"""

import math

import layout
import published
import report as reports
import style
from drawing import Drawing, Nothing
from report import grouping_text, images_per_tower

PANEL_KEYS = reports.EVERY_KEY  # all conditions stand under each other
_LINE, _AROUND = 0.165, 0.6  # inches per line, and for the axis of the panels
_GAP = 0.35  # lines between the cells of one heading and the next heading
_BELOW = 0.3  # lines from a mean to the dots of its seeds


def draw(report, cells, condition, styles):
    rows = [row for cell in cells for row in cell.rows if row.is_real and row.extra_step_ms]
    if not rows:
        raise Nothing("no throughput counts of a strategy beside a baseline's, on real ranks alone on their machine")
    columns = sorted({_way(row) for row in rows}, reverse=True)  # shared memory before sockets
    headings, places = _places(rows)
    lines = max(places.values()) + 1
    known = report.published("relative_images_per_s", [row.cell for row in rows])
    sentence, names = _sentence(report, rows), style.names([strategy for _, strategy in places])
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [row.extra_step_ms for row in rows], _measured(report, rows)), style.DOUBLE,
        _LINE * lines + _AROUND, columns=len(columns) + bool(known), references=published.legend(known), sharey=True)
    for axes, way in zip(all_axes[0], columns):
        _draw_panel(axes, [row for row in rows if _way(row) == way], places, styles)
        axes.set_title(way, loc="left", color=style.GREY)
        axes.set_xlabel("ms more per step" if known else "milliseconds more per step")
    low, high = zip(*(axes.get_xlim() for axes in all_axes[0][:len(columns)]))
    for axes in all_axes[0][:len(columns)]:
        axes.set_xlim(min(low), max(high))  # one scale, so that their lengths can be compared
    if known:
        _draw_shares(all_axes[0][-1], rows, places, styles, known, report.baseline)
    for axes in all_axes[0]:
        axes.set_ylim(lines - 0.4, -0.5)
        layout.plain_rows(axes, headings, {y: names[strategy] for (_, strategy), y in places.items()})
    return Drawing(figure, _numbers(rows) + published.rows(known), sentence)


def _way(row):
    return f"{row.device}, over sockets" if row.over_sockets else row.device if row.device != "cpu" else "cpu, shared memory"


def _heading(row):
    """"2x1 on 2 ranks, base 8"."""
    conditions = [f"{key.rsplit('.', 1)[-1]} {text}" for key, text in sorted(row.cell.conditions.items())]
    return ", ".join([f"{grouping_text(row.grouping)} on {row.world[1]} ranks"] + conditions)


def _places(rows):
    """(y: text of the headings, (heading, strategy): y), in lines from the top."""
    def rank(row):  # conditions stay in the order of the matrix
        return row.world[1], row.grouping.towers, images_per_tower(row.grouping)

    headings, places, y = {}, {}, 0
    for heading in dict.fromkeys(map(_heading, sorted(rows, key=rank))):
        y += _GAP if places else 0
        headings[y] = heading
        y += 1
        for row in rows:
            if _heading(row) == heading and (heading, row.strategy) not in places:
                places[heading, row.strategy] = y
                y += 1
    return headings, places


def _draw_panel(axes, rows, places, styles):
    for row in rows:
        look, more, y = styles[row.strategy], row.extra_step_ms, places[_heading(row), row.strategy]
        axes.errorbar(more.mean, y, xerr=more.half_width or 0, color=look.colour, marker=look.marker, markersize=4,
                      elinewidth=0.9, zorder=4)
        axes.plot(list(more.seeds.values()), [y + _BELOW] * more.n, ".", color=look.colour, alpha=0.6, markersize=3.5,
                  markeredgewidth=0, zorder=3)
        axes.annotate(_cost_text(row), (1, y), xycoords=("axes fraction", "data"), xytext=(4, 0),
                      textcoords="offset points", va="center", size=style.SMALL - 0.6)
    axes.annotate("images/s,\nper exchange", (1, 1), xycoords="axes fraction", xytext=(4, 2), textcoords="offset points",
                  size=style.SMALL - 0.6, color=style.GREY)
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)


def _log_half_width(row, baseline):
    """Of the logarithm of the share; None where another run than the baseline's stood beside."""
    return row.log_images_per_s.half_width if row.log_images_per_s and row.beside == baseline else None


def _draw_shares(axes, rows, places, styles, known, baseline):
    for row in rows:
        look = styles[row.strategy]
        share, half = row.relative_images_per_s, _log_half_width(row, baseline)
        bar = None if half is None else [[share * (1 - math.exp(-half))], [share * (math.exp(half) - 1)]]
        axes.errorbar(share, places[_heading(row), row.strategy], xerr=bar, color=look.colour, marker=look.marker, elinewidth=0.9,
                      markerfacecolor="white" if row.over_sockets else look.colour, markersize=4, linestyle="", zorder=4)
    published.draw(axes, known, upright=True)
    axes.axvline(1, color=style.GREY, linewidth=0.8, zorder=1)
    axes.set_title("hollow: over sockets", loc="left", color=style.GREY)
    axes.set_xlabel(f"images/s, {baseline} = 1")


def _cost_text(row):
    per_exchange = row.extra_us_per_collective
    return f"{row.relative_images_per_s:.2f}" + (f", {per_exchange.mean:.0f} µs" if per_exchange else "")


def _measured(report, rows):
    beside = reports.run_beside(rows) if all(row.log_images_per_s for row in rows) else None
    if beside is None:
        return f"median step minus that of {report.baseline}"
    return f"in turns with {beside}"


def _numbers(rows):
    numbers = []
    for row in rows:
        more, per_exchange = row.extra_step_ms, row.extra_us_per_collective
        where = {"at": _heading(row), "placement": row.placement, "strategy": row.strategy}
        numbers.append({"kind": "mean", **where, "n": more.n, "extra_step_ms": more.mean, "half_width": more.half_width,
                        "extra_us_per_collective": per_exchange.mean if per_exchange else None,
                        "relative_images_per_s": row.relative_images_per_s})
        numbers += [{"kind": "seed", **where, "seed": seed, "extra_step_ms": value}
                    for seed, value in sorted(more.seeds.items())]
    return numbers


def _sentence(report, rows):
    dearest = max(rows, key=lambda row: row.extra_step_ms.mean)
    return (f"{dearest.strategy} at {_heading(dearest)} ({_way(dearest)}) costs most, {dearest.extra_step_ms.mean:.1f} ms more per "
            f"step than {report.baseline}.")
