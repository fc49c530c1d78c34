"""Numbers that others have published, beside the measured ones: a thin grey line each, or a band from one to the other.

Each has a dash of its own, so that they differ in black and white; the legend says which is whose.
"""

import style

_DASHES = (style.DASHED, style.DOTTED, style.DASH_DOT)


def legend(published):
    """Label -> Style: "published 0.463 to 0.494: Badrinarayanan 2017"."""
    return {f"published {_text(number)}: {number.source}": style.Style(style.GREY, "", _DASHES[k % len(_DASHES)])
            for k, number in enumerate(published)}


def draw(axes, published, upright=False):
    """`upright`: the metric is that of the x axis."""
    line, band = (axes.axvline, axes.axvspan) if upright else (axes.axhline, axes.axhspan)
    for number, look in zip(published, legend(published).values()):
        for end in {number.low, number.high}:
            line(end, color=look.colour, linestyle=look.dash, linewidth=0.8, zorder=1)
        if number.low < number.high:
            band(number.low, number.high, color=look.colour, alpha=0.12, linewidth=0, zorder=0)


def rows(published):
    """For the CSV."""
    return [{"kind": "published", "metric": number.metric, "from": number.low, "to": number.high, "source": number.source}
            for number in published]


def _text(number):
    ends = [f"{end:.3f}".removesuffix("0") for end in (number.low, number.high)]
    return " to ".join(dict.fromkeys(ends))
