"""Images per second, and the share of the ideal, against the number of ranks: a line per strategy.

Every rank holds one tower, and the images of a tower stay as many, so the ideal is the number of ranks times what one
rank does (weak scaling). A row of panels per batch and kind of placement; the runs of one rank belong to all kinds of
their device.
"""

from collections import defaultdict

from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

import layout
import report as reports
import style
from drawing import Drawing, Nothing

_ROW = 2.35  # inches
_DODGE, _WIDEST_DODGE = 0.07, 0.3  # octaves between neighbouring strategies, and all: bars must not hide each other
_BESIDE = 2 ** 0.025  # a seed's dot stands beside its strategy's bar


def draw(report, cells, condition, styles):
    ended = [row for cell in cells for row in cell.rows]
    alone = [row for row in ended if row.is_claimed]
    single = {_line(row): row for row in alone if row.ranks == 1}
    several = [row for row in alone if row.ranks > 1]
    if not several:
        raise Nothing("no run of several ranks, one tower each, had the machine to itself")
    if not single:
        raise Nothing("no run of a single rank with one tower is there to compare with")
    panels = defaultdict(list)
    for row in several:
        if _line(row) in single:
            panels[_panel(row)].append(row)
    if not panels:
        raise Nothing("no strategy was run by a single rank and by several with the same images per tower")
    for rows in panels.values():
        rows += [single[line] for line in {_line(row): None for row in rows}]
        rows.sort(key=lambda row: row.ranks)

    strategies = {row.strategy for rows in panels.values() for row in rows}
    shown = {label: look for label, look in styles.items() if label in strategies}
    figure, all_axes = layout.new_page(
        "How does the throughput grow with the ranks?", _caption(report, cells, ended, panels, several, condition),
        style.DOUBLE, _ROW * len(panels) + 0.1, rows=len(panels), columns=2, legend=shown)
    drawn = []
    for line, (panel, rows) in zip(all_axes, sorted(panels.items(), key=lambda each: str(each[0]))):
        failed = [row for row in ended if row.failed and row.ranks == row.grouping.towers and row.strategy in shown
                  and _panel(row) == panel]
        drawn += _draw_panels(line, panel, rows, failed, single, shown)
    return Drawing(figure, drawn, _sentence(panels, single))


def _panel(row):
    """(images per tower, "cpu-sockets")."""
    return row.grouping.batch, row.placement.split("-", 1)[1]


def _line(row):
    """What a run of one rank and its ideal are shared by."""
    return row.strategy, row.grouping.batch, row.device


def _draw_panels(axes, panel, rows, failed, single, styles):
    throughput, efficiency = axes
    ranks = sorted({row.ranks for row in rows + failed})
    drawn = []
    for k, (strategy, look) in enumerate(styles.items()):
        shift = 2 ** (min(_DODGE, _WIDEST_DODGE / len(styles)) * (k - (len(styles) - 1) / 2))
        own = [row for row in rows if row.strategy == strategy]
        if not own:
            continue
        base = single[_line(own[0])].images_per_s.mean
        throughput.plot([ranks[0] * shift, ranks[-1] * shift], [base * ranks[0], base * ranks[-1]], color=look.colour,
                        linewidth=0.8, linestyle=style.DOTTED, zorder=1)
        _draw_line(throughput, own, look, shift, lambda row: 1)
        _draw_line(efficiency, own, look, shift, lambda row: 1 / (row.ranks * base))
        for row in own:
            drawn += _rows(row, panel, base)
    efficiency.axhline(1, color=style.GREY, linewidth=0.6, zorder=1)
    throughput.set_yscale("log", base=2)
    throughput.yaxis.set(major_locator=LogLocator(base=2, subs=(1, 1.5)), minor_locator=NullLocator(),
                         major_formatter=StrMethodFormatter("{x:g}"))
    for each, text in ((throughput, "images/s of all ranks"), (efficiency, "efficiency")):
        each.set_xscale("log", base=2)
        each.set_xticks(ranks, ranks)
        each.set_xticks([], minor=True)
        each.set_xlim(ranks[0] * 2 ** -0.3, ranks[-1] * 2 ** 0.3)
        each.set_xlabel("ranks")
        each.set_ylabel(text)
    efficiency.set_ylim(0, max(1.08, efficiency.get_ylim()[1]))
    throughput.set_title(_panel_text(panel), loc="left", color=style.GREY)
    layout.mark_failures(throughput, [(row.ranks, styles[row.strategy].colour, row.failures) for row in failed])
    return drawn


def _draw_line(axes, rows, look, shift, scale):
    xs = [row.ranks * shift for row in rows]
    axes.errorbar(xs, [row.images_per_s.mean * scale(row) for row in rows],
                  yerr=[(row.images_per_s.half_width or 0) * scale(row) for row in rows], color=look.colour,
                  marker=look.marker, linestyle=look.dash, elinewidth=0.9, zorder=4)
    for x, row in zip(xs, rows):
        seeds = [value * scale(row) for value in row.images_per_s.seeds.values()]
        axes.plot([x * _BESIDE] * len(seeds), seeds, ".", color=look.colour, alpha=0.6, markersize=4, markeredgewidth=0,
                  zorder=2)


def _rows(row, panel, base):
    speed, ideal = row.images_per_s, row.ranks * base
    where = {"strategy": row.strategy, "images_per_rank": panel[0], "panel": panel[1], "placement": row.placement,
             "ranks": row.ranks}
    bar = speed.half_width
    return [{"kind": "mean", **where, "n": speed.n, "images_per_s": speed.mean, "half_width": bar,
             "efficiency": speed.mean / ideal, "efficiency_half_width": None if bar is None else bar / ideal}] + [
        {"kind": "seed", **where, "seed": seed, "images_per_s": value, "efficiency": value / ideal}
        for seed, value in sorted(speed.seeds.items())]


def _panel_text(panel):
    images, kind = panel
    return f"{images} image{'s' if images != 1 else ''} per rank, {kind.replace('-', ', ')}"


def _caption(report, cells, ended, panels, several, condition):
    shown = [row for rows in panels.values() for row in rows]
    parts = [f"{report.name}.", f"With {condition}." if condition else "", "Every rank holds one tower.",
             f"Marks: mean; dots: single seeds; {report.bars_text([row.images_per_s for row in shown])}.",
             "Dotted: the ideal, ranks times the mean of one rank. Efficiency: the share of it that is reached; its "
             "bars take the mean of one rank as exact. Ranks and images/s have logarithmic axes."]
    left_out = sorted({row.strategy for row in several} - {row.strategy for row in shown}, key=style.catalogue_order)
    if left_out:
        parts.append(f"Left out, without a run of one rank: {', '.join(left_out)}.")
    parts += reports.throughput_notes(ended, shown) + reports.shortfall_notes(cells)
    return " ".join(part for part in parts if part)


def _sentence(panels, single):
    clauses = []
    for panel, rows in sorted(panels.items(), key=lambda each: str(each[0])):
        most = max(row.ranks for row in rows)
        shares = [f"{row.images_per_s.mean / single[_line(row)].images_per_s.mean:.2f} times with {row.strategy}"
                  for row in rows if row.ranks == most]
        clauses.append(f"{most} ranks do {', '.join(shares)} ({_panel_text(panel)})")
    return f"Against one rank, {'; '.join(clauses)}."
