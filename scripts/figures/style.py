"""How every figure looks: colours, markers and dashes of the strategies, sizes, fonts, and what makes files reproduce.

Colours are those of Okabe and Ito (jfly.uni-koeln.de/color), told apart by colour-blind readers. A strategy keeps its
colour, marker and dash in all figures, whatever its options; marker and dash alone tell it apart in grey. Of several variants in
one figure the first has the look of its name, the others a marker and a dash of their own.
"""

import re
import zlib
from collections import namedtuple

import matplotlib

SINGLE, DOUBLE = 3.3, 6.9  # inches: one column, two columns
TEXT, SMALL = 8.0, 6.8  # points
GREY, FAINT = "#555555", "#bbbbbb"

ORANGE, SKY, GREEN, BLUE = "#E69F00", "#56B4E9", "#009E73", "#0072B2"
VERMILION, PURPLE, BLACK = "#D55E00", "#CC79A7", "#000000"
WINE, OCHRE = "#882255", "#999933"  # two more, of Tol (personal.sron.nl/~pault)

SOLID, DASHED, DOTTED, DASH_DOT = "-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (5, 1.4, 1, 1.4))

Style = namedtuple("Style", "colour marker dash")

# In the catalogue's order, which is also the order in legends and tables.
STRATEGIES = {
    "per_tower": Style(VERMILION, "o", SOLID),
    "single_tower": Style(VERMILION, "<", DASHED),
    "last_tower": Style(VERMILION, ">", DOTTED),
    "every_tower": Style(ORANGE, "d", DASH_DOT),
    "averaged": Style(ORANGE, "^", DASHED),
    "sync": Style(BLUE, "s", SOLID),
    "batch_renorm": Style(SKY, "D", SOLID),
    "frozen": Style(PURPLE, "*", SOLID),
    "ghost": Style(SKY, "v", DASHED),
    "norm_batch": Style(BLUE, "D", DASHED),
    "cmbn": Style(ORANGE, "X", SOLID),
    "shuffle": Style(WINE, "P", DASH_DOT),
    "precise": Style(SKY, "8", DOTTED),
    "none": Style(BLACK, "h", DOTTED),
    "weight_norm": Style(OCHRE, "p", DASHED),
    "weight_standardisation": Style(GREEN, "X", DOTTED),
    "group_norm": Style(GREEN, "v", DASH_DOT),
    "filter_response_norm": Style(GREEN, "P", DASHED),
    "mabn": Style(ORANGE, "^", SOLID),
    "dynamic_tanh": Style(BLACK, "8", SOLID),
    "layer_norm": Style(GREEN, "^", DOTTED),
    "instance_norm": Style(GREEN, "d", DOTTED),
}

_COLOURS = (VERMILION, BLUE, GREEN, ORANGE, SKY, PURPLE, BLACK)
_MARKERS = ("o", "^", "s", "v", "D", "<", "P", ">", "8", "d", "p", "h")
_DASHES = (DASHED, DOTTED, DASH_DOT, (0, (7, 2)), (0, (2, 1)), (0, (3, 1, 1, 1, 1, 1)))


def base_name(label):
    """"sync" of "sync(gradient=stopped)", "per_tower" of "per_tower, norm_lr_multiplier 0.1"."""
    return re.split(r"[(,]", label, maxsplit=1)[0].strip()


def catalogue_order(label):
    """A sort key: named strategies as in the table, their variants behind them, unknown names last."""
    names = list(STRATEGIES)
    base = base_name(label)
    return (names.index(base) if base in STRATEGIES else len(names), label)


def _variants(label, own_colour):
    """Styles for a label outside the table, the preferred one first; they depend on the label alone. With `own_colour`
    it is told apart from its name by colour, too.
    """
    base = base_name(label)
    hashed = zlib.crc32(label.encode())
    if own_colour:
        colours = _COLOURS
    elif base in STRATEGIES:
        colours = [STRATEGIES[base].colour]
    else:
        colours = [_COLOURS[zlib.crc32(base.encode()) % len(_COLOURS)]]
    count = len(_MARKERS) * len(_DASHES)
    for k in range(count):
        at = (hashed + k) % count
        for colour in colours:
            yield Style(colour, _MARKERS[at % len(_MARKERS)], _DASHES[at // len(_MARKERS)])


def styles_of(labels):
    """Label -> Style for all strategies of an experiment, no two of one marker and dash.

    The first of a name (in catalogue order, the plain one before its variants) has its row of the table. Others keep its colour
    with a marker and a dash of their own; where those of two would be alike, the later one takes the next free. Where all are
    variants of one name, colours tell them apart.
    """
    one_name = len(labels) > 1 and len({base_name(label) for label in labels}) == 1
    styles, taken = {}, {(look.marker, look.dash) for look in STRATEGIES.values()}
    markers = {look.marker for base, look in STRATEGIES.items() if base in map(base_name, labels)}
    for label in sorted(set(labels), key=catalogue_order):
        base = base_name(label)
        if base in STRATEGIES and base not in map(base_name, styles):
            styles[label] = STRATEGIES[base]
            continue
        used = [look.colour for look in styles.values()]
        choices = sorted(_variants(label, one_name), key=lambda choice: one_name and used.count(choice.colour))
        free = [choice for choice in choices if (choice.marker, choice.dash) not in taken]
        styles[label] = next((choice for choice in free if choice.marker not in markers), (free or choices)[0])
        taken.add((styles[label].marker, styles[label].dash))
        markers.add(styles[label].marker)
    return styles


class Page:
    """What stands around the panels."""
    bare = False  # without title and caption, and as a PDF too: for papers


def apply(bare=False):
    """Sets matplotlib up, whatever the user's own settings are."""
    Page.bare = bare
    matplotlib.use("Agg")
    matplotlib.rcdefaults()
    matplotlib.rcParams.update({
        "font.size": TEXT,
        "axes.titlesize": TEXT,
        "axes.labelsize": TEXT,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "legend.fontsize": SMALL,
        "axes.linewidth": 0.6,
        "axes.edgecolor": GREY,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.6,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": BLACK,
        "ytick.labelcolor": BLACK,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.linewidth": 1.4,
        "lines.markersize": 4.5,
        "lines.markeredgewidth": 0.9,
        "legend.frameon": False,
        "hatch.linewidth": 0.5,
        "savefig.dpi": 200,
        "svg.fonttype": "none",
        "pdf.fonttype": 42,  # TrueType, as publishers ask
        "svg.hashsalt": "bnlab",
    })


def save_picture(figure, stem, sentence=None):
    """Writes STEM.svg and STEM.png (and STEM.pdf of a bare page), without a date or a version inside; returns their
    paths. The SVG holds the sentence as its description, which HTML pages give to those who cannot see the figure.
    """
    figure.savefig(f"{stem}.svg", metadata={"Date": None, "Creator": None, "Description": sentence})
    figure.savefig(f"{stem}.png", metadata={"Software": None})
    if not Page.bare:
        return [f"{stem}.svg", f"{stem}.png"]
    figure.savefig(f"{stem}.pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return [f"{stem}.svg", f"{stem}.png", f"{stem}.pdf"]
