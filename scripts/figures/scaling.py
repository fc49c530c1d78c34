"""Images per second of one rank and of several: a bar per strategy and number of ranks, with the share of the ideal.

Every rank holds one tower, and the images of a tower stay as many, so the ideal is the number of ranks times what one
rank does (weak scaling). A panel per batch and kind of placement; the runs of one rank belong to all kinds of their device.
"""

from collections import defaultdict

import layout
import report as reports
import style
from drawing import Drawing, Nothing

_BAR, _AROUND, _GAP = 0.17, 0.55, 0.5  # inches per bar and around a panel, bars between two strategies


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
    sentence, ordered = _sentence(panels, single), sorted(panels.items(), key=lambda each: str(each[0]))
    bars = [len(rows) + len(shown) * _GAP for _, rows in ordered]
    figure, all_axes = layout.new_page(
        sentence, _caption(report, cells, ended, panels, several, condition), style.DOUBLE,
        sum(_AROUND + _BAR * count for count in bars), rows=len(panels), height_ratios=bars, sharex=True)
    drawn = []
    for axes, (panel, rows) in zip(all_axes[:, 0], ordered):
        failed = [row for row in ended if row.failed and row.ranks == row.grouping.towers and row.strategy in shown
                  and _panel(row) == panel]
        drawn += _draw_panel(axes, panel, rows, failed, single, shown)
    all_axes[-1][0].set_xlabel("images/s of all ranks")
    return Drawing(figure, drawn, sentence)


def _panel(row):
    """(images per tower, "cpu-sockets")."""
    return row.grouping.batch, row.placement.split("-", 1)[1]


def _line(row):
    """What a run of one rank and its ideal are shared by."""
    return row.strategy, row.grouping.batch, row.device


def _draw_panel(axes, panel, rows, failed, single, styles):
    drawn, names, places, y = [], style.names(list(styles)), {}, 0
    for strategy, look in styles.items():
        for row in sorted((row for row in rows + failed if row.strategy == strategy), key=lambda row: row.ranks):
            places[y] = f"{names[strategy]}, {row.ranks} rank{'s' if row.ranks > 1 else ''}"
            if row in failed:
                axes.annotate(f"× {row.failures}", (0, y), xytext=(3, 0), textcoords="offset points", va="center", size=style.SMALL,
                              color=look.colour)
            else:
                speed, base = row.images_per_s, single[_line(row)].images_per_s.mean
                bar = speed.half_width or 0
                axes.barh(y, speed.mean, xerr=bar, height=0.8, color=look.colour, alpha=0.5 if row.ranks == 1 else 1,
                          error_kw={"elinewidth": 0.9, "ecolor": style.BLACK})
                axes.annotate(f"{speed.mean:.0f}" + (f", {speed.mean / row.ranks / base:.2f} of the ideal" if row.ranks > 1 else ""),
                              (speed.mean + bar, y), xytext=(4, 0), textcoords="offset points", va="center", size=style.SMALL)
                drawn += _rows(row, panel, base)
            y += 1
        y += _GAP
    axes.margins(x=0.2)
    axes.set_yticks(list(places), places.values())
    axes.set_ylim(y - _GAP - 0.4, -0.6)
    layout.plain_rows(axes)
    axes.set_title(_panel_text(panel), loc="left", color=style.GREY)
    return drawn


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
    left_out = sorted({row.strategy for row in several} - {row.strategy for row in shown}, key=style.catalogue_order)
    return report.caption(cells, [row.images_per_s for row in shown], condition,
                          f"without a run of one rank: {', '.join(left_out)}" if left_out else "", *reports.throughput_notes(ended, shown))


def _sentence(panels, single):
    clauses = []
    for panel, rows in sorted(panels.items(), key=lambda each: str(each[0])):
        most = max(row.ranks for row in rows)
        shares = [f"{row.images_per_s.mean / single[_line(row)].images_per_s.mean:.2f} times with {row.strategy}"
                  for row in rows if row.ranks == most]
        clauses.append(f"{most} ranks do {', '.join(shares)} ({_panel_text(panel)})")
    return f"Against one rank, {'; '.join(clauses)}."
