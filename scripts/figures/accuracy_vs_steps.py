"""What a longer training gains: the best mean of each group at every length that was tried, when the length was chosen.

These are the runs that tune, on seeds and images of their own, each group at its best setting of that length.
"""

import re

import layout
import report as reports
import style
from drawing import Drawing, Nothing, metric_name
from matplotlib.ticker import NullLocator

PANEL_KEYS = reports.EVERY_KEY  # the length is chosen for the whole experiment
_MOST_LABELS = 6  # lines named at their ends; more of them are named in a legend
_DASHES = ("-", "--", ":", "-.")  # of groups that share a strategy


def draw(report, cells, condition, styles):
    tuning = report.tuning
    if not tuning or not tuning["length"]:
        raise Nothing("the length of training was not chosen by tuning")
    length, groups = tuning["length"], tuning["groups"]
    looks = _looks(groups, styles)
    names = {group: style.renamed(name, list(styles)) for group, name in _names(groups).items()}
    figure, all_axes = layout.new_page(
        _sentence(tuning, names), _caption(report, tuning, names), style.DOUBLE, 2.6,
        legend={names[name]: look for name, (look, _) in looks.items()} if len(groups) > _MOST_LABELS else None)
    axes, rows, ends = all_axes[0][0], [], []
    for group in groups:
        look, dash = looks[group["group"]]
        means = group["best_mean_at_each_length"]
        axes.plot(length["tried"], means, color=look.colour, marker=look.marker, linestyle=dash, zorder=4)
        ends.append((names[group["group"]], length["tried"][-1], means[-1], look.colour))
        rows += [{"group": group["group"], "steps": steps, "value": mean, "chosen": steps == length["chosen"]}
                 for steps, mean in zip(length["tried"], means)]
    axes.axvline(length["chosen"], color=style.GREY, linewidth=0.8, zorder=1)
    axes.annotate("chosen", (length["chosen"], 0), xycoords=("data", "axes fraction"), xytext=(-3, 4),
                  textcoords="offset points", ha="right", color=style.GREY, fontsize=style.SMALL)
    axes.set_xscale("log", base=2)
    axes.set_xticks(length["tried"], [f"{steps:,}" for steps in length["tried"]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("steps")
    axes.set_ylabel(metric_name(tuning["metric"]))
    layout.fit(axes, rows)
    if len(groups) <= _MOST_LABELS:
        layout.label_line_ends(figure, [(axes, ends)])
    return Drawing(figure, rows, _sentence(tuning, names))


def _looks(groups, styles):
    """Group -> (look of its strategy, dash): groups of one strategy are told apart by their dashes."""
    looks, seen = {}, {}
    for group in groups:
        strategy = group["group"].split(", ")[0]
        look = styles.get(strategy) or next(iter(styles.values()))
        count = seen[strategy] = seen.get(strategy, -1) + 1
        looks[group["group"]] = look, look.dash if count == 0 else _DASHES[count % len(_DASHES)]
    return looks


def _names(groups):
    """Group -> its strategy, with the rest of the group where several share the strategy."""
    strategies = [group["group"].split(", ")[0] for group in groups]
    return {group["group"]: strategy if strategies.count(strategy) == 1 else re.sub(r", (?:\w+\.)*", ", ", group["group"])
            for group, strategy in zip(groups, strategies)}


def _caption(report, tuning, names):
    length, seeds = tuning["length"], len(tuning["seeds"])
    gain = f"{length['gain_below']:g}"
    why = f"the longest, as {', '.join(names[each] for each in length['still_gaining'])} still gained {gain}" \
        if length["still_gaining"] else f"the shortest from which doubling gains less than {gain}"
    return f"{report.name}, while tuning; {'one seed' if seeds == 1 else f'mean over {seeds} seeds'}; chosen: {why}."


def _sentence(tuning, names):
    """What the chosen length gains whom most."""
    length = tuning["length"]
    at = length["tried"].index(length["chosen"])
    group = max(tuning["groups"], key=lambda group: group["best_mean_at_each_length"][at] - group["best_mean_at_each_length"][0])
    means = group["best_mean_at_each_length"]
    return (f"From {length['tried'][0]:,} to the chosen {length['chosen']:,} steps {names[group['group']]} gains most: "
            f"{metric_name(tuning['metric'])} {means[0]:.3f} to {means[at]:.3f}.")
