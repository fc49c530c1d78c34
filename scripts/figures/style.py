"""How every figure looks: colours, markers and dashes of the strategies, sizes, fonts, and what makes files reproduce.

Colours are those of Okabe and Ito (jfly.uni-koeln.de/color) and some of Tol (personal.sron.nl/~pault), told apart by colour-blind
readers. Every strategy and every variant in VARIANTS has its own look in all figures; marker and dash alone tell it apart in grey.
Another variant looks as its name does, where nothing else in the figure does.
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
WINE, OCHRE, INDIGO, TEAL, BROWN = "#882255", "#999933", "#332288", "#44AA99", "#6B3E26"

SOLID, DASHED, DOTTED, DASH_DOT = "-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (5, 1.4, 1, 1.4))

Style = namedtuple("Style", "colour marker dash fill", defaults=(None,))  # fill: of the marker, where it is not the colour

_BOW_TIE = (-1, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)
_WIDE = (-1, -0.4), (1, -0.4), (1, 0.4), (-1, 0.4), (-1, -0.4)
_TALL = tuple((y, x) for x, y in _WIDE)

# In the catalogue's order, which is also the order in legends and tables.
STRATEGIES = {
    "per_tower": Style(VERMILION, "o", SOLID),
    "single_tower": Style(INDIGO, "<", DASHED),
    "last_tower": Style(VERMILION, ">", DOTTED),
    "every_tower": Style(OCHRE, "d", DASH_DOT),
    "averaged": Style(ORANGE, "^", DASHED),
    "sync": Style(BLUE, "s", SOLID),
    "batch_renorm": Style(SKY, "D", SOLID),
    "frozen": Style(PURPLE, "*", SOLID),
    "ghost": Style(SKY, (4, 1, 45), DASHED),
    "norm_batch": Style(INDIGO, "H", DASHED),
    "cmbn": Style(OCHRE, "X", SOLID),
    "shuffle": Style(WINE, "P", DASH_DOT),
    "precise": Style(INDIGO, "8", DOTTED),
    "none": Style(BLACK, "h", DOTTED),
    "weight_norm": Style(BROWN, "p", DASHED),
    "weight_standardisation": Style(TEAL, (4, 1, 0), DOTTED),
    "group_norm": Style(GREEN, "v", DASH_DOT),
    "filter_response_norm": Style(TEAL, (6, 1, 0), DASHED),
    "mabn": Style(ORANGE, (5, 0, 180), SOLID),
    "dynamic_tanh": Style(BLACK, _BOW_TIE, SOLID),
    "layer_norm": Style(GREEN, _WIDE, DOTTED),
    "instance_norm": Style(WINE, _TALL, DOTTED),
}
# Those that figures show beside others of their name; a look follows from the place in this list.
VARIANTS = (
    "sync(gradient=stopped)", "sync(gradient=own_tower)", "sync(variance=averaged)", "sync(group_size=2)", "sync(moments=e_x2)",
    "sync(momentum=0.001)", "sync(route=all_reduce)", "sync(route=gather_activations)", "sync(route=host)",
    "sync(route=reduce_broadcast)", "per_tower(momentum=0.001)", "per_tower(momentum=0.01)", "per_tower, norm_lr_multiplier 0.1",
    "every_tower(momentum=0.01)", "averaged(merge=pooled)", "frozen(from_fraction=0.8)", "frozen(from_fraction=0.8,base=per_tower)",
    "weight_norm(mean_only_bn=true)", "frozen(train_affine=true)",
)
# What a name means, where there is room for it.
_WORDS = {"per_tower": "per_tower (each GPU by itself)", "sync": "sync (over all GPUs)", "none": "none (no norm)"}
_NAMES = {"frozen(from_fraction=0.8)": "sync, frozen for the last fifth", "frozen(train_affine=true)": "frozen, affine trained",
          "frozen(from_fraction=0.8,base=per_tower)": "per_tower, frozen for the last fifth",
          "weight_norm(mean_only_bn=true)": "weight_norm with mean-only BN"}

_COLOURS = (WINE, ORANGE, SKY, TEAL, BROWN, BLACK, PURPLE, INDIGO, GREEN, OCHRE)
_MARKERS = ("^", "v", "<", "X", ">", "p", "d", "D", "H", "*", "8")
_DASHES = ((0, (7, 2)), (0, (2, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2, 2, 2)), (0, (1, 3)))  # no strategy of the table has one


def base_name(label):
    """"sync" of "sync(gradient=stopped)", "per_tower" of "per_tower, norm_lr_multiplier 0.1"."""
    return re.split(r"[(,]", label, maxsplit=1)[0].strip()


def names(labels, words=False):
    """Label -> what a figure calls it: without its options, where no other label has the name. `words`: with what it means."""
    bases = [base_name(label) for label in labels]

    def name(label, base):
        if bases.count(base) > 1 and label != base:
            return re.sub(r"[(,]\s*", ", ", label.rstrip(")")).replace("=", " ")
        return _WORDS.get(base, base) if words else base

    return {label: _NAMES.get(label) or name(label, base) for label, base in zip(labels, bases)}


def renamed(text, labels):
    """The text with the labels in it as figures call them."""
    for label, name in sorted(names(labels).items(), key=lambda each: -len(each[0])):
        text = text.replace(label, name)
    return text


def catalogue_order(label):
    """A sort key: named strategies as in the table, their variants behind them, unknown names last."""
    order = list(STRATEGIES)
    base = base_name(label)
    return (order.index(base) if base in STRATEGIES else len(order), label)


def _nth(k, colour):
    return Style(colour, _MARKERS[k % len(_MARKERS)], _DASHES[k % len(_DASHES)])  # the two lengths have no common divisor


def styles_of(labels):
    """Label -> Style for all strategies of an experiment, no two of one marker and dash."""
    fixed = STRATEGIES | {label: _nth(k, _COLOURS[k % len(_COLOURS)]) for k, label in enumerate(VARIANTS)}
    styles = {label: fixed[label] for label in labels if label in fixed}
    for label in sorted(set(labels) - set(styles), key=catalogue_order):
        base, markers = base_name(label), {look.marker for look in styles.values()}
        taken = {(look.marker, look.dash) for look in styles.values()}
        choices = [fixed[base]] if base in fixed else []
        colour = choices[0].colour if choices else _COLOURS[zlib.crc32(base.encode()) % len(_COLOURS)]
        choices += [_nth(zlib.crc32(label.encode()) + k, colour) for k in range(len(_MARKERS) * len(_DASHES))]
        free = [look for look in choices if (look.marker, look.dash) not in taken]
        apart = [look for look in free if look.marker not in markers or look == fixed.get(base)]
        styles[label] = (apart or free or choices)[0]
    return styles


class Page:
    """What stands around the panels."""
    bare = False  # without title and caption, and as a PDF too: for papers
    title = None  # where a page has words for the figure


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


def save_picture(figure, stem, sentence=None, png=False):
    """Writes STEM.svg, of a bare page STEM.pdf and where asked STEM.png, without a date or a version inside; returns their paths.
    The SVG holds the sentence as its description, which HTML pages give to those who cannot see the figure.
    """
    metadata = {"svg": {"Date": None, "Creator": None, "Description": sentence}, "png": {"Software": None},
                "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}
    files = [f"{stem}.{form}" for form in ["svg"] + ["png"] * png + ["pdf"] * Page.bare]
    for file in files:
        figure.savefig(file, metadata=metadata[file.rsplit(".", 1)[1]])
    return files
