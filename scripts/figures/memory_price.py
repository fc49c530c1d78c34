"""What memory saved by accumulation and recomputation costs: peak memory, time per image and exchanges, a line per way to save it."""

import layout
import report as reports
import style
from drawing import Drawing, Nothing
from report import grouping_text, images_per_tower

PANEL_KEYS = ("accumulate", "recompute")
_DODGE = 0.5  # of a line's height, over all strategies
_RECOMPUTED = ("none", "blocks", "naive")


def _exchanges_per_image(row):
    images, count = row.grouping.towers * images_per_tower(row.grouping), row.collectives_per_step
    return count and reports.Quantity(count.n, count.mean / images, None, {seed: each / images for seed, each in count.seeds.items()})


_QUANTITIES = (("peak of tensors (MiB)", lambda row: row.memory["tensors"], lambda peak: peak / 2 ** 20),
               ("time per image (ms)", lambda row: row.images_per_s if row.is_claimed else None, lambda rate: 1e3 / rate),
               ("exchanges per image", _exchanges_per_image, lambda count: count))


def draw(report, cells, condition, styles):
    rows = [row for cell in cells for row in cell.rows if row.memory["tensors"]]
    ways = sorted({_way(row) for row in rows}, key=_order)
    if len({way[2:] for way in ways}) < 2:
        raise Nothing("the runs accumulate and recompute alike")
    strategies = [label for label in styles if any(row.strategy == label for row in rows)]
    names = _names(ways)
    sentence = _sentence(rows, names)
    figure, all_axes = layout.new_page(
        sentence, report.caption(cells, [row.memory["tensors"] for row in rows], condition, bars="bars: smallest to largest"),
        style.DOUBLE, 0.5 + 0.36 * len(ways), columns=len(_QUANTITIES), sharey=True,
        legend={name: styles[label] for label, name in style.names(strategies, words=True).items()})
    drawn = []
    for axes, quantity in zip(all_axes.flat, _QUANTITIES):
        drawn += _draw_panel(axes, quantity, rows, names, strategies, styles)
    first = all_axes[0][0]
    first.set_yticks(range(len(ways)), list(names.values()))
    first.set_ylabel(f"GPUs x {report.samples} per GPU")
    first.set_ylim(len(ways) - 0.5, -0.5)
    return Drawing(figure, drawn, sentence)


def _way(row):
    """Grouping, placement, passes per step, what is recomputed."""
    conditions = row.cell.conditions
    return row.grouping, row.placement, int(conditions.get("accumulate", 1)), conditions.get("recompute", "none")


def _order(way):
    grouping, placement, passes, recomputed = way
    return -images_per_tower(grouping), grouping.towers, placement, passes, _RECOMPUTED.index(recomputed)


def _name(way):
    grouping, _, passes, recomputed = way
    words = [f"{passes} passes"] * (passes > 1) + [f"recompute {recomputed}"] * (recomputed != "none")
    return f"{grouping_text(grouping)}, {' and '.join(words) or 'plain'}"


def _names(ways):
    """Way -> its name, with the placement where there are several of it."""
    plain = [_name(way) for way in ways]
    return {way: f"{name}, {way[1]}" if plain.count(name) > 1 else name for way, name in zip(ways, plain)}


def _draw_panel(axes, quantity, rows, names, strategies, styles):
    name, measured, shown = quantity
    ways, drawn = list(names), []
    for row in rows:
        values = measured(row)
        if not values:
            continue
        look, place = styles[row.strategy], strategies.index(row.strategy)
        y = ways.index(_way(row)) + _DODGE * ((place + 0.5) / len(strategies) - 0.5)
        seeds = [shown(value) for value in values.seeds.values()]
        axes.plot([min(seeds), max(seeds)], [y, y], color=look.colour, linewidth=1.1, zorder=2)
        axes.plot([shown(values.mean)], [y], marker=look.marker, color=look.colour, markersize=4.5, linestyle="none", zorder=3,
                  clip_on=False)
        drawn.append({"quantity": name, "way": names[_way(row)], "placement": row.placement, "strategy": row.strategy,
                      "n": values.n, "value": shown(values.mean), "low": min(seeds), "high": max(seeds)})
    axes.set_xlabel(name)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    return drawn


def _sentence(rows, names):
    """The least against the plain run of the most, for the strategy that comes first."""
    rows = [row for row in rows if row.strategy == rows[0].strategy]
    plain = max(rows, key=lambda row: row.memory["tensors"].mean)
    least = min((row for row in rows if row.grouping == plain.grouping), key=lambda row: row.memory["tensors"].mean)
    share = least.memory["tensors"].mean / plain.memory["tensors"].mean
    return f"{names[_way(least)]} needs {share:.2f} of the peak of {names[_way(plain)]} ({plain.strategy})."
