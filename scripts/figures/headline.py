"""The figure at the head of the project's README: how many points below `sync` each data set ends with 1, 2 and 4 images per
GPU, and what was run instead of synchronising.

  python3 scripts/figures/headline.py --names
  python3 scripts/figures/headline.py REPORT.json... --out results

The reports are those of the experiments in ROWS, whose names `--names` prints. scripts/publish.sh calls this.
"""

import sys
from collections import namedtuple

import drawing
import layout
import report as reports
import style

# `conditions`: of the runs that are shown, where the matrix has other axes. `lanes`: what is drawn at one height.
Row = namedtuple("Row", "experiment title detail conditions lanes")
PER_TOWER, GROUP_NORM, MABN, FROZEN = "per_tower", "group_norm", "mabn", "frozen(from_fraction=0.8,base=per_tower)"
ROWS = (
    Row("nuclei_small_batch", "Nuclei, crops of 64x64", "U-Net", {}, ((PER_TOWER, GROUP_NORM),)),
    Row("strategies_nuclei", "Nuclei, crops of 32x32", "U-Net", {}, ((PER_TOWER, GROUP_NORM), (FROZEN,), (MABN,))),
    Row("cifar_small_batch", "CIFAR-10, 32x32", "ResNet-8", {}, ((PER_TOWER, GROUP_NORM), (MABN,))),
    Row("training_length", "Synthetic shapes, 40x40", "U-Net", {"steps": "3000"}, ((PER_TOWER, GROUP_NORM),)),
    Row("camvid_small_batch", "Street images, crops of 96x128", "U-Net", {}, ((PER_TOWER, GROUP_NORM),)),
    Row("camvid_resnet", "Street images, crops of 96x128", "U-Net on ResNet-18", {}, ((PER_TOWER,),)),
)
LABELS = {MABN: "mabn", FROZEN: "frozen for the last fifth"}  # of lanes; the others are named in the first row
IMAGES = 1, 2, 4
ANY = None  # images per GPU of what does not depend on them
WIDTH = 9.5  # points: of a mark
LEFT, RIGHT = 68, -9  # points below sync at the edges
GAP = 0.35  # lanes: between one data set and the next
DIGIT = 6.0  # points: from one number in a mark to the next

# Below sync by `points`; `half_width` is None where the comparison was not declared. images: a number, or ANY.
Mark = namedtuple("Mark", "strategy images points half_width n")


def cells_of(report, row, strategy):
    return [cell for cell in report.cells if strategy in (cell.strategy, style.base_name(cell.strategy))
            and row.conditions.items() <= cell.conditions.items()]


def sync_beside(report, row, cell):
    """The runs of `sync` with this grouping; where there are none its only ones, since sync does not know the towers."""
    found = cells_of(report, row, "sync")
    beside = [each for each in found if each.grouping == cell.grouping] or found
    if len(beside) != 1:
        raise reports.ReportError(f"{report.name} has {len(beside)} cells of sync to compare {cell.name} with")
    return beside[0]


def declared(report, cell, sync):
    """The comparison of the two, and its sign: 1 where sync stands first. (None, 0) where none was declared."""
    for each in report.contrasts:
        if each.metric == report.headline and {each.population, each.population_above} == {"saved"} and \
                each.grouping == cell.grouping == sync.grouping and cell.conditions.items() <= each.conditions.items() and \
                each.difference:
            if (each.strategy, each.above) == (sync.label, cell.label):
                return each.difference, 1
            if (each.strategy, each.above) == (cell.label, sync.label):
                return each.difference, -1
    return None, 0


def mark_of(report, row, cell):
    sync = sync_beside(report, row, cell)
    images = ANY if cell.strategy in reports.without_running_statistics(report.cells) else cell.grouping.batch
    difference, sign = declared(report, cell, sync)
    if difference:
        return Mark(style.base_name(cell.strategy), images, 100 * sign * difference.mean, 100 * difference.half_width, difference.n)
    own, others = cell.value("saved"), sync.value("saved")
    if not own or not others or own.seeds.keys() != others.seeds.keys():
        raise reports.ReportError(f"{report.name}: {cell.name} and {sync.name} have not ended well with the same seeds")
    return Mark(style.base_name(cell.strategy), images, 100 * (others.mean - own.mean), None, own.n)


def marks_of(report, row):
    """[[Mark]] of the lanes."""
    lanes = [[mark_of(report, row, cell) for strategy in lane for cell in cells_of(report, row, strategy)
              if cell.grouping.batch in IMAGES] for lane in row.lanes]
    for lane, strategies in zip(lanes, row.lanes):
        if {mark.strategy for mark in lane} != {style.base_name(strategy) for strategy in strategies}:
            raise reports.ReportError(f"{report.name} lacks one of {', '.join(strategies)}")
    return lanes


def draw_lane(axes, lane, y, per_point):
    """`per_point`: units of the x axis to a point of the page. Marks that would cover each other become a long one, from the
    first to the last of them."""
    groups = []
    for mark in sorted((mark for mark in lane if mark.images), key=lambda mark: mark.points):
        if groups and mark.points - groups[-1][-1].points < WIDTH * per_point and mark.strategy == groups[-1][-1].strategy:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    for mark in lane:
        if mark.half_width is not None:
            axes.plot([mark.points - mark.half_width, mark.points + mark.half_width], [y, y], linewidth=0.9,
                      color=style.STRATEGIES[mark.strategy].colour)
        if not mark.images:
            look = style.STRATEGIES[mark.strategy]
            axes.plot(mark.points, y, color=look.colour, marker=look.marker, markersize=7, markeredgecolor="white", zorder=5)
    for group in groups:
        colour = style.STRATEGIES[group[0].strategy].colour
        places = layout.spread([mark.points for mark in group], DIGIT * per_point, -100, 100)
        for edge, shade in ((1.6, "white"), (0, colour)):
            axes.plot([places[0], places[-1]], [y, y], color=shade, linewidth=WIDTH + edge, solid_capstyle="round", zorder=3,
                      marker="o" if len(group) == 1 else "", markersize=WIDTH + edge, markeredgewidth=0)
        for mark, x in zip(group, places):
            axes.annotate(str(mark.images), (x, y), ha="center", va="center_baseline", weight="bold", size=style.SMALL, zorder=4,
                          color=style.BLACK if colour in (style.ORANGE, style.PURPLE) else "white")


def title(every):
    """What was found, of [(Row, [[Mark]])]."""
    ones = [mark.points for _, lanes in every for lane in lanes for mark in lane if mark[:2] == (PER_TOWER, 1)]
    return f"With one image per GPU, batch norm that is not synchronised loses up to {max(ones):.0f} points"


def draw(found):
    """`found`: name of an experiment -> Report."""
    every = [(row, marks_of(found[row.experiment], row)) for row in ROWS]
    figure, all_axes = layout.new_page(
        title(every), "A point is a hundredth of the metric. Bars: 95 % t intervals of the declared comparisons.", style.DOUBLE, 2.85)
    axes = all_axes[0][0]
    axes.set_xlim(LEFT, RIGHT)
    axes.set_ylim(sum(len(lanes) + GAP for _, lanes in every) - 0.5 - GAP / 2, -1.3)
    axes.set_yticks([])
    axes.set_xlabel("points below synchronised batch norm")
    axes.spines["left"].set_visible(False)
    rows, places, y = [], [], 0.0  # places: of the lanes
    for row, lanes in every:
        report, middle = found[row.experiment], y + (len(lanes) - 1) / 2
        steps = row.conditions.get("steps") or report.last_step
        for text, up, look in ((row.title, 1, {"weight": "bold"}),
                               (f"{row.detail}, {steps} steps, {drawing.metric_name(report.headline)}", -1, {"color": style.GREY})):
            axes.annotate(text, (0, middle), xycoords=("axes fraction", "data"), xytext=(-6, up), textcoords="offset points",
                          ha="right", va="bottom" if up > 0 else "top", size=style.SMALL, **look)
        if y:
            axes.axhline(y - 0.5 - GAP / 2, color=style.FAINT, linewidth=0.6, zorder=0)
        places += [y + k for k in range(len(lanes))]
        y += len(lanes) + GAP
        rows += [{"experiment": row.experiment, "metric": report.headline, **mark._asdict()} for lane in lanes for mark in lane]
    axes.axvline(0, 0, 0.93, color=style.BLUE, linewidth=1.6, zorder=1)
    layout.settle(figure)
    per_point = (LEFT - RIGHT) / (axes.get_window_extent().width * 72 / figure.dpi)
    every_lane = [each for row, lanes in every for each in zip(lanes, row.lanes)]

    def name(text, at, strategy, **options):
        axes.annotate(text, at, textcoords="offset points", size=style.SMALL, va="center", color=style.STRATEGIES[strategy].colour, **options)

    for (lane, strategies), y in zip(every_lane, places):
        draw_lane(axes, lane, y, per_point)
        if strategies[0] in LABELS:
            far = max(mark.points + (mark.half_width or 0) for mark in lane)
            name(LABELS[strategies[0]], (far, y), lane[0].strategy, xytext=(-9, 0), ha="right")
    first = every_lane[0][0]
    name("sync", (0, -1), "sync", xytext=(0, 0), ha="center")
    name("each GPU by itself (per_tower), with 1, 2 or 4 images", (max(mark.points for mark in first), -0.9), PER_TOWER, xytext=(-5, 0))
    name("group_norm", (0, 0), GROUP_NORM, xytext=(8, 0))
    return drawing.Drawing(figure, rows, title(every) + ".")


if __name__ == "__main__":
    sys.exit(drawing.of_readme(__doc__, [row.experiment for row in ROWS], "headline",
                               lambda *found: draw({report.name: report for report in found}), drawing.save_page))
