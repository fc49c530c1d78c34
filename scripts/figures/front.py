"""Which points of throughput against accuracy are worth their price, as far as intervals tell.

A point is beaten where another one is surely above it in both values, and on the front where every other one is surely below it
in one of them: where the intervals lie apart. What has no interval is surely nothing.
"""

import style

FRONT, BEATEN, UNDECIDED = "front", "beaten", "undecided"


def surely_above(a, b):
    """Whether a Quantity lies above another one, with intervals that do not meet."""
    return None not in (a.half_width, b.half_width) and a.mean - a.half_width > b.mean + b.half_width


def standings(points):
    """Of each (throughput, accuracy), both a Quantity."""
    def of(k):
        others = [[surely_above(*pair) for pair in zip(other, points[k])] + [surely_above(*pair) for pair in zip(points[k], other)]
                  for i, other in enumerate(points) if i != k]
        if any(above[0] and above[1] for above in others):
            return BEATEN
        return FRONT if all(above[2] or above[3] for above in others) else UNDECIDED
    return [of(k) for k in range(len(points))]


def fill(colour, standing):
    """matplotlib's markerfacecolor."""
    return {FRONT: colour, BEATEN: "white", UNDECIDED: (colour, 0.35)}[standing]


def legend():
    texts = {FRONT: "on the front", BEATEN: "beaten: another is faster and better", UNDECIDED: "undecided by the intervals"}
    return {text: style.Style(style.GREY, "o", "", fill(style.GREY, standing)) for standing, text in texts.items()}


def outline(axes, points):
    """Corners of the staircase under these (x, y), from the left edge of the axes to the bottom."""
    xs, ys = [axes.get_xlim()[0]], []
    for x, y in sorted(points):
        xs += [x] * 2
        ys += [y] * 2
    return (xs, ys + [axes.get_ylim()[0]]) if ys else ([], [])
