"""The page that every figure stands on (title above, panels, caption below), and marks and labels that do not overlap.

The title states what the figure shows, in the words of the page that shows it; the caption has one line: whose numbers they are, of how many seeds, and what is missing.
"""

import functools

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox, ScaledTranslation

import style

_LINE, _TITLE = 0.128, 0.15  # inches from one line of the caption, and of the title, to the next
_DODGE, _WIDEST_DODGE = 3.0, 10.0  # points between neighbours at one place of the axis, and from the first to the last
_LEGEND_LINE = 0.17  # and from one line of a legend to the next, with room for two legends under each other
LIST_LINE = 0.125  # and from one line of a list to the next
_MARGIN = 0.06


@functools.cache
def _text_width(text, size=style.SMALL, weight="normal"):
    """Inches."""
    measure = FigureCanvasAgg(Figure(figsize=(1, 1)))
    font = FontProperties(size=size, weight=weight)
    width, _, _ = measure.get_renderer().get_text_width_height_descent(text, font, False)
    return width / measure.figure.dpi


def _legend_columns(labels, width):
    """As many as fit, each as wide as its widest label. Labels stand under each other, the first columns hold one more."""
    widths = [_text_width(label) + 0.65 for label in labels]
    for columns in range(len(labels), 1, -1):
        each, more = divmod(len(labels), columns)
        starts = [k * each + min(k, more) for k in range(columns + 1)]
        if sum(max(widths[start:end]) for start, end in zip(starts, starts[1:])) <= width - 2 * _MARGIN:
            return columns
    return 1


def _wrap(text, width, **font):
    """Lines of text at most `width` inches wide, by measured widths."""
    lines = [""]
    for word in text.replace("n = ", "n\u00a0=\u00a0").replace(" %", "\u00a0%").split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _text_width(longer, **font) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def list_width(lines):
    """Inches that `list_aside` needs for these texts."""
    return max(map(_text_width, lines)) + 0.35


def list_aside(figure, entries, width):
    """Writes (Style, text) under each other in the right `width` inches of the page, beside the panels."""
    page_width, page_height = figure.get_size_inches()
    top = page_height - (0.12 if style.Page.bare else 0.42)
    for k, (look, text) in enumerate(entries):
        y = (top - k * LIST_LINE) / page_height
        left = page_width - width
        figure.add_artist(Line2D([(left + 0.08) / page_width], [y], color=look.colour, marker=look.marker,
                                 markersize=4, linestyle=""))
        figure.text((left + 0.2) / page_width, y, text, size=style.SMALL, va="center")


def new_page(title, caption, width, panel_height, rows=1, columns=1, legend=None, references=None, aside=0, **subplots):
    """(figure, axes [rows, columns]): the height grows with the caption, the panels keep theirs (inches, all rows).

    `legend`: label -> Style of the strategies to name in rows under the title; `references`: likewise of lines to compare
    with, named under each other; `aside`: inches at the right that the panels leave free.
    """
    lines = [] if style.Page.bare else _wrap(caption, width - 2 * _MARGIN)
    legends = [(named, columns, _LEGEND_LINE * -(-len(named) // columns))
               for named, columns in ((legend, _legend_columns(list(legend or ()), width)), (references, 1)) if named]
    bottom = len(lines) * _LINE + 2 * _MARGIN if lines else 0
    font = {"size": style.TEXT + 0.5, "weight": "bold"}
    titles = [] if style.Page.bare else _wrap((style.Page.title or title).removesuffix("."), width - 2 * _MARGIN, **font)
    title_height = 0.15 + _TITLE * len(titles) if titles else 0
    top = title_height + (0.06 + sum(lines for _, _, lines in legends) if legends else 0)
    height = top + panel_height + bottom
    figure = FigureCanvasAgg(Figure(figsize=(width, height), layout="constrained")).figure
    figure.get_layout_engine().set(rect=(0, bottom / height, 1 - aside / width, panel_height / height), w_pad=0.05, h_pad=0.04)
    for k, line in enumerate(titles):
        figure.text(_MARGIN / width, 1 - (0.07 + k * _TITLE) / height, line, va="top", **font)
    for k, line in enumerate(lines):
        figure.text(_MARGIN / width, (bottom - _MARGIN - k * _LINE) / height, line, va="top", size=style.SMALL,
                    color=style.GREY)
    below = title_height or 0.06
    for named, columns_of_legend, its_height in legends:
        handles = [Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dash, label=label,
                          markerfacecolor=look.fill or look.colour) for label, look in named.items()]
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(_MARGIN / width, 1 - below / height), borderpad=0,
                      borderaxespad=0, ncols=columns_of_legend, handlelength=4.2, columnspacing=1.5).set_in_layout(False)
        below += its_height
    return figure, figure.subplots(rows, columns, squeeze=False, **subplots)


def settle(figure):
    """Lays the panels out and keeps them there, so that labels can be placed among what is drawn."""
    figure.draw_without_rendering()


def dodged(axes, k, count):
    """Where the k-th of `count` neighbours stands: beside its place by some points, on every part of the axis by as many."""
    step = min(_DODGE, _WIDEST_DODGE / count)
    return axes.transData + ScaledTranslation((k - (count - 1) / 2) * step / 72, 0, axes.figure.dpi_scale_trans)


def fit(axes, rows):
    """Shows all values with their bars; a metric that is a share stays in [0, 1], however wide its interval over few seeds is."""
    values = [(row["value"], row.get("half_width") or 0) for row in rows if row.get("value") is not None]
    if not values:
        return
    low, high = min(value - bar for value, bar in values), max(value + bar for value, bar in values)
    low, high = low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1)
    shares = all(0 <= value <= 1 for value, _ in values)
    axes.set_ylim(max(low, -0.03) if shares else low, min(high, 1.03) if shares else high)


def plain_rows(axes, headings=None, rows=None):
    """Rows need neither marks nor lines at the left. `headings`, `rows`: y -> text, where rows stand in grey under headings."""
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    if rows:
        axes.set_yticks([*headings, *rows], [*headings.values(), *rows.values()])
        axes.spines["left"].set_visible(False)
        for label in axes.get_yticklabels()[len(headings):]:
            label.set_color(style.GREY)


def spread(wanted, gap, low, high):
    """Positions nearest to the wanted ones, in the same order, at least `gap` apart and within [low, high] if they fit.

    Neighbours that are too close merge into a block about the mean of what its members want.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks = []  # [sum of (wanted - own offset in the block), members]

    def start(block):
        size = len(block[1])
        return min(max(block[0] / size, low), max(low, high - gap * (size - 1)))

    for i in order:
        blocks.append([wanted[i], [i]])
        while len(blocks) > 1 and start(blocks[-2]) + gap * len(blocks[-2][1]) > start(blocks[-1]):
            total, members = blocks.pop()
            shift = gap * len(blocks[-1][1])
            blocks[-1][0] += total - shift * len(members)
            blocks[-1][1] += members
    positions = [0.0] * len(wanted)
    for block in blocks:
        for k, i in enumerate(block[1]):
            positions[i] = start(block) + gap * k
    return positions


def label_line_ends(figure, labelled):
    """Names lines at the right edge of their axes. `labelled`: [(axes, [(text, x, y, colour)])], in data units.

    Labels are drawn twice: first to let the layout make room for them, then spread so that none overlaps.
    """
    gap = style.SMALL * 1.25  # points
    drawn = []
    for axes, ends in labelled:
        drawn.append([axes.annotate(text, (1.0, y), xycoords=("axes fraction", "data"), xytext=(13, 0),
                                    textcoords="offset points", va="center", size=style.SMALL, color=colour)
                      for text, x, y, colour in ends])
    settle(figure)
    figure.set_layout_engine("none")
    to_points = 72 / figure.dpi
    for (axes, ends), texts in zip(labelled, drawn):
        box = axes.get_window_extent()
        wanted = [axes.transData.transform((x, y))[1] * to_points for _, x, y, _ in ends]
        placed = spread(wanted, gap, (box.y0 + 4) * to_points, box.y1 * to_points)
        for text, want, place, (_, x, y, colour) in zip(texts, wanted, placed, ends):
            text.set_position((13, place - want))
            edge = axes.transAxes.inverted()
            points = [axes.transData.transform((x, y)), (box.x1 + 4 / to_points, want / to_points),
                      (box.x1 + 11 / to_points, place / to_points)]
            xs, ys = zip(*(edge.transform(point) for point in points))
            axes.plot(xs, ys, transform=axes.transAxes, color=colour, linewidth=0.5, alpha=0.6, clip_on=False,
                      zorder=1)


def label_points(figure, axes, points, obstacles):
    """Writes (text, x, y, colour) beside its point, where it covers no other label, point or error bar.

    `obstacles`: boxes in data units with a weight (x0, y0, x1, y1, weight). A label that moved away gets a thin line
    to its point.
    """
    settle(figure)
    figure.set_layout_engine("none")
    renderer = figure.canvas.get_renderer()
    inside = axes.get_window_extent()
    pixels = figure.dpi / 72

    def box_of(x0, y0, x1, y1, pad):
        (left, bottom), (right, top) = axes.transData.transform([(x0, y0), (x1, y1)])
        return Bbox([[left - pad * pixels, bottom - pad * pixels], [right + pad * pixels, top + pad * pixels]])

    taken = [(box_of(*box, pad=1), weight) for *box, weight in obstacles]
    taken += [(box_of(x, y, x, y, pad=4), 1) for _, x, y, _ in points]
    for text, x, y, colour in points:
        label = axes.annotate(text, (x, y), xytext=(0, 0), textcoords="offset points", size=style.SMALL,
                              color=colour, va="center", ha="left", zorder=6)
        width, height = (extent / pixels for extent in label.get_window_extent(renderer).bounds[2:])

        def cost(offset):
            label.set_position(offset)
            box = label.get_window_extent(renderer).padded(1)
            overlaps = [(Bbox.intersection(box, other), weight) for other, weight in taken]
            covered = sum(both.width * both.height * weight for both, weight in overlaps if both is not None)
            clear = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
            middle = (offset[0] + width / 2, offset[1])
            return covered * 10 + (0 if clear else 1e4) + 0.05 * (middle[0] ** 2 + 4 * middle[1] ** 2)

        offsets = [(dx, dy) for dy in (0, 8, -8, 12, -12, 18, -18, 26, -26, 36, -36)
                   for dx in (7, -7 - width, -width / 2, 16, -16 - width, 30, -30 - width)]
        best = min(offsets, key=cost)
        label.set_position(best)
        box = label.get_window_extent(renderer)
        taken.append((box, 1))
        if abs(best[1]) > 12:
            axes.annotate("", (x, y), xytext=_nearest(best, width, height), textcoords="offset points", zorder=2,
                          arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6,
                                      "shrinkA": 0, "shrinkB": 4})


def _nearest(offset, width, height):
    """The point of a label's box nearest to what it names, as an offset in points."""
    x = min(max(0, offset[0]), offset[0] + width)
    y = min(max(0, offset[1] - height / 2), offset[1] + height / 2)
    return (x, y)


def mark_failures(axes, marks, stacked=False):
    """× at the bottom of the axes: [(x in data units, colour, text)]; those of one x (or all) above each other."""
    transform = axes.get_xaxis_transform()
    below = {}
    for x, colour, text in marks:
        column = None if stacked else x
        level = below[column] = below.get(column, -1) + 1
        y = 0.035 + 0.065 * level
        axes.plot([x], [y], marker="x", color=colour, markersize=4.5, markeredgewidth=1.3, transform=transform,
                  linestyle="", clip_on=False, zorder=5)
        axes.annotate(text, (x, y), xycoords=transform, xytext=(5, 0), textcoords="offset points", va="center",
                      size=style.SMALL - 0.8, color=colour, annotation_clip=False)
