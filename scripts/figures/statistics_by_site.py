"""What the running statistics of each norm site are worth, in the order of the network: a row of panels per grouping.

How far the saved mean and variance lie from recomputed ones says why a network answers well with the batch's statistics
alone; the share of the variance between the towers says where averaging their variances must matter.
"""

import layout
import report as reports
import style
from drawing import Drawing, Nothing
from report import grouping_text, images_per_tower

QUANTITIES = {"saved_mean_error": "error of the saved mean\n(standard deviations)",
              "saved_variance_error": "error of the saved variance\n(|log ratio|)",
              "between_sets": "share of the variance\nbetween towers"}
_ROW = 1.35  # inches
_MOST_NAMES = 12


def draw(report, cells, condition, styles):
    if report.headline is None:
        raise Nothing("no run ended with a result")
    touched = [cell for cell in reports.touched(cells) if any(key in site.numbers for site in cell.sites for key in QUANTITIES)]
    if not touched:
        raise Nothing("no run was evaluated under both saved and precise statistics")
    groupings = sorted({cell.grouping for cell in touched},
                       key=lambda grouping: (images_per_tower(grouping), grouping.towers, grouping_text(grouping)))
    known = [key for key in QUANTITIES if any(key in site.numbers for cell in touched for site in cell.sites)]
    names = [site.name for site in max((cell.sites for cell in touched), key=len)]
    shown = {label: look for label, look in styles.items() if any(cell.strategy == label for cell in touched)}
    sentence, names_of = _sentence(touched, known[0]), style.names(list(shown), words=True)
    figure, all_axes = layout.new_page(sentence, report.caption(cells, [cell.value("saved") for cell in touched], condition, bars=""),
                                       style.DOUBLE, _ROW * len(groupings) + 0.6, rows=len(groupings), columns=len(known),
                                       legend={names_of[label]: look for label, look in shown.items()}, sharex=True, sharey="col")
    rows = []
    for line, grouping in zip(all_axes, groupings):
        for axes, key in zip(line, known):
            for cell in touched:
                if cell.grouping == grouping:
                    rows += _draw_line(axes, cell, key, names, shown[cell.strategy])
        line[0].set_ylabel(reports.grouping_words(grouping, report.samples).replace(": ", "\n"), color=style.GREY)
    for axes, key in zip(all_axes[0], known):
        axes.set_ylim(bottom=0)  # of the whole column
        axes.set_title(QUANTITIES[key], loc="right", size=style.SMALL)
    for axes in all_axes[-1]:
        if len(names) <= _MOST_NAMES:
            axes.set_xticks(range(len(names)), names, rotation=90, size=style.SMALL - 1.2)
        else:
            axes.set_xticks([0, len(names) - 1], ["1", str(len(names))])
            axes.set_xlabel("norm site, from the first to the last")
    return Drawing(figure, rows, sentence)


def _draw_line(axes, cell, key, names, look):
    places, values, rows = [], [], []
    for site in cell.sites:
        quantity = site.numbers.get(key)
        if quantity and site.name in names:
            places.append(names.index(site.name))
            values.append(quantity.mean)
            rows.append({"strategy": cell.strategy, "grouping": grouping_text(cell.grouping), "site": site.name,
                         "quantity": key, "n": quantity.n, "value": quantity.mean, "half_width": quantity.half_width})
            for value in quantity.seeds.values():
                axes.plot(places[-1], value, marker=".", markersize=1.6, color=look.colour, alpha=0.5, linestyle="")
    axes.plot(places, values, color=look.colour, marker=look.marker, linestyle=look.dash, markersize=3.2, linewidth=1)
    return rows


def _sentence(touched, key):
    value, *words = max((site.numbers[key].mean, site.name, cell.strategy, grouping_text(cell.grouping))
                        for cell in touched for site in cell.sites if key in site.numbers)
    return f"The {QUANTITIES[key].split(chr(10))[0]} is largest at {words[0]} of {', '.join(words[1:])} ({value:.3f})."
