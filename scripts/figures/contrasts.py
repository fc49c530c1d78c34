"""The comparisons that the spec declared, as a forest plot: a row per comparison, a panel per metric, zero as a line.

A row is the mean difference, paired by seed, with its 95 % t interval; at the right stand the numbers and the verdict.
Neighbouring rows stand under the pair that they have in common, or under the place, whichever more of them share. Of many
comparisons those are shown that the page rests on, then the first ones declared; the CSV has them all.
"""

import re
from itertools import takewhile

import layout
import report as reports
import style
from accuracy_by_population import statistics_of
from drawing import Drawing, Nothing, metric_name
from report import grouping_text

PANEL_KEYS = reports.EVERY_KEY  # the comparisons belong to the experiment, not to one of its conditions
_COSTS = {key: (each.get("axis", each["title"]), 1 / each.get("size", 1)) for key, each in reports.MEASURES.items() if "in_specs" in each}
_MOST = 8  # rows
_LINE, _AROUND = 0.165, 0.42  # inches per line, and for the axis of a panel
_GAP = 0.35  # lines between the rows under one heading and the next heading
_BELOW = 0.3  # lines from a mean to the dots of its seeds
_MARGIN = "#e4e4e4"
_DIGIT = "\u2007"  # a space as wide as a digit


def draw(report, cells, condition, styles):
    if not report.contrasts:
        raise Nothing("the spec declares no comparison")
    shown = [contrast for contrast in report.contrasts if contrast.difference]
    if not shown:
        raise Nothing(f"none of {len(report.contrasts)} declared comparisons has a pair of finished runs")
    first = sorted(shown, key=report.place_on_page)[:_MOST]
    drawn = [contrast for contrast in shown if contrast in first]
    by_metric = {contrast.metric: [each for each in drawn if each.metric == contrast.metric] for contrast in drawn}
    places = {metric: _places(contrasts) for metric, contrasts in by_metric.items()}
    lines = [max(rows) + 1 for rows, _ in places.values()]
    sentence = _sentence(first[0])
    figure, all_axes = layout.new_page(
        sentence, _caption(report, cells, shown, drawn), style.DOUBLE,
        _LINE * sum(lines) + _AROUND * len(lines), rows=len(lines), gridspec_kw={"height_ratios": lines})
    numbers = dict(zip(drawn, _numbers(drawn)))
    for axes, (metric, contrasts) in zip(all_axes[:, 0], by_metric.items()):
        _draw_panel(axes, metric, contrasts, numbers, *places[metric], styles, report)
        if _is_logarithm(metric):
            _draw_noise(axes, _noise(cells), _unit(metric)[1])
    return Drawing(figure, [row for contrast in report.contrasts for row in _rows(contrast)],
                   sentence)


def _pair(contrast):
    """"sync - per_tower", with the statistics in brackets where these are not the saved ones on both sides."""
    populations, (side, above) = (contrast.population, contrast.population_above), map(_brief, contrast.sides)
    plain = contrast.metric in _COSTS or set(populations) == {"saved"}
    if side == above and not plain:
        return f"{side} [{' - '.join(populations)}]"
    return " - ".join(each + ("" if plain else f" [{population}]") for each, population in zip((side, above), populations))


def _brief(side):
    """"sync at 8x1" of runs that are named by their keys."""
    return re.sub(r"^strategy=(.+), towers=(\d+), batch_per_tower=(\d+)$", r"\1 at \2x\3", side)


def _in_words(text):
    """"sync (recomputed)" of "sync [precise]"."""
    return re.sub(r"\[(.+?)\]", lambda found: f"({' - '.join(map(statistics_of, found[1].split(' - ')))})", text)


def _where(contrast):
    """"8x2, shards iid", and the placement where a cost was compared on several."""
    if not contrast.grouping:
        return re.sub(r"(?:\w+\.)*(\w+)=", r"\1 ", contrast.at) if contrast.difference else ""
    conditions = [f"{key.rsplit('.', 1)[-1]} {text}" for key, text in sorted(contrast.conditions.items())]
    placement = [f"as {contrast.placement}"] if contrast.placement else []
    return ", ".join([grouping_text(contrast.grouping)] + conditions + placement)


def _noise(cells):
    """How far two copies of the run beside which others were timed lie apart at most, in the mean of a row; None where none was."""
    return max((abs(row.same_log_images_per_s.mean) for cell in cells for row in cell.rows if row.same_log_images_per_s),
               default=None)


def _draw_noise(axes, noise, scale):
    for place in () if noise is None else (-noise * scale, noise * scale):
        axes.axvline(place, color=style.GREY, linewidth=0.8, linestyle=":", zorder=1)
        axes.annotate("two copies of a run" if place > 0 else "", (place, 1), xycoords=("data", "axes fraction"), xytext=(2, -5),
                      textcoords="offset points", size=style.SMALL - 0.8, color=style.GREY)


def _places(contrasts):
    """(y of every contrast: text, y of every heading: text), in lines. A heading stands once above neighbours that share it."""
    rows, headings, y, rest = {}, {}, 0, contrasts
    while rest:
        streaks = [[*takewhile(lambda each: part(each) == part(rest[0]), rest)] for part in (_pair, _where)]
        heading, text = (_where, _pair) if len(streaks[1]) > len(streaks[0]) else (_pair, _where)
        together = max(streaks, key=len)
        y += _GAP if rows else 0
        headings[y] = heading(rest[0])
        rows.update((y + 1 + k, text(contrast)) for k, contrast in enumerate(together))
        y, rest = max(rows) + 1, rest[len(together):]
    return rows, headings


def _is_logarithm(metric):
    return "is_logarithm" in reports.MEASURES.get(metric, ())


def _unit(metric):
    """(text of the axis, factor)."""
    return _COSTS.get(metric, (f"{metric_name(metric)} (points)", 100))


def _draw_panel(axes, metric, contrasts, numbers, rows, headings, styles, report):
    text, scale = _unit(metric)
    for y, contrast in zip(rows, contrasts):
        look, difference = styles[contrast.strategy], contrast.difference
        if contrast.margin is not None:
            axes.barh(y, 2 * contrast.margin * scale, left=-contrast.margin * scale, height=1, color=_MARGIN, zorder=0)
        axes.errorbar(difference.mean * scale, y, xerr=(difference.half_width or 0) * scale, color=look.colour,
                      marker=look.marker, markerfacecolor="white" if difference.n < report.fewest_seeds else look.colour,
                      markersize=4, elinewidth=0.9, zorder=4)
        axes.plot([value * scale for value in difference.seeds.values()], [y + _BELOW] * difference.n, ".",
                  color=look.colour, alpha=0.6, markersize=3.5, markeredgewidth=0, zorder=3)
        axes.annotate(f"{numbers[contrast]}   {contrast.verdict}, n = {difference.n}", (1, y),
                      xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points", va="center",
                      size=style.SMALL)
    axes.use_sticky_edges = False
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
    words = {grouping_text(each.grouping): reports.grouping_words(each.grouping, report.samples) for each in contrasts if each.grouping}
    layout.plain_rows(axes, *({y: words.get(text) or _in_words(style.renamed(text, list(styles))) for y, text in texts.items()}
                              for texts in (headings, rows)))
    axes.set_ylim(max(rows) + 0.6, -0.5)
    axes.set_xlabel(text if _is_logarithm(metric) else f"difference of {text}")


def _numbers(contrasts):
    """"+6.3 ± 1.6", padded so that they stand in a column."""
    scaled = [(contrast.difference, _unit(contrast.metric)[1]) for contrast in contrasts]
    means = [f"{difference.mean * scale:+z.1f}" for difference, scale in scaled]
    bars = ["" if difference.half_width is None else f"{difference.half_width * scale:.1f}" for difference, scale in scaled]
    widths = max(map(len, means)), max(map(len, bars))
    return [mean.replace("-", "\u2212").rjust(widths[0], _DIGIT) + (" ± " if bar else f" {_DIGIT} ") + bar.rjust(widths[1], _DIGIT)
            for mean, bar in zip(means, bars)]


def _caption(report, cells, shown, drawn):
    without = len(report.contrasts) - len(shown)
    return report.caption(cells, [contrast.difference for contrast in drawn], report.declared.split(";")[0],
                          f"{len(drawn)} of {len(shown)} comparisons" if len(drawn) < len(shown) else "",
                          f"{without} without a pair of finished runs" if without else "")


def _rows(contrast):
    difference = contrast.difference
    where = {"metric": contrast.metric, "contrast": _pair(contrast),
             "at": _where(contrast), "margin": contrast.margin}
    mean = {"kind": "mean", **where, "n": difference.n if difference else 0, "verdict": contrast.verdict}
    if not difference:
        return [mean]
    return [{**mean, "value": difference.mean, "half_width": difference.half_width}] + [
        {"kind": "seed", **where, "seed": seed, "value": value} for seed, value in sorted(difference.seeds.items())]


def _sentence(contrast):
    populations, (text, scale) = (contrast.population, contrast.population_above), _unit(contrast.metric)
    sides = [style.renamed(side, contrast.sides) for side in contrast.sides]
    if contrast.metric not in _COSTS and set(populations) != {"saved"}:
        sides = [f"{side} ({statistics_of(population)})" for side, population in zip(sides, populations)]
    unit = re.sub(r"(.+) \((.+)\)", r"\2 of \1", text)  # "points of mean IoU"
    by = _numbers([contrast])[0].strip(_DIGIT + " ")[1:]
    way = "below" if contrast.difference.mean * scale < 0 else "above"
    return f"{sides[0]} is {by} {unit} {way} {sides[1]} at {_where(contrast)}: {contrast.verdict}."
