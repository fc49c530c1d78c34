"""The report of an experiment, as `bnlab report --format json` prints it. Every number that a figure shows is in there:
means, intervals, failed and missing runs are computed by bnlab and nowhere else.
"""

import json
import re
from collections import defaultdict, namedtuple
from pathlib import Path

import style

Grouping = namedtuple("Grouping", "towers batch")  # images of one tower: a number, or a tuple where towers differ
Quantity = namedtuple("Quantity", "n mean half_width seeds")  # half_width is None where n < 2; seeds: seed -> value

Site = namedtuple("Site", "name numbers")  # of a norm site: key -> Quantity
Published = namedtuple("Published", "metric low high source")  # low and high are the same where it is one number


# The program's table of what it measures, by key (harness/experiment/measures.hpp).
MEASURES = {each["key"]: each for each in json.loads(
    (Path(__file__).parents[1] / "python/bnlab/measures.json").read_text(encoding="utf-8")) if "key" in each}
_GROUPING = ("towers x batch", "towers", "batch_per_tower", "strategy")


class _Every:
    def __contains__(self, key):
        return True


EVERY_KEY = _Every()


class ReportError(Exception):
    pass


def images_per_tower(grouping):
    """A number for an axis: the mean where towers differ."""
    batch = grouping.batch
    return sum(batch) / len(batch) if isinstance(batch, tuple) else batch


def grouping_text(grouping):
    batch = grouping.batch
    return f"{grouping.towers}x" + (f"[{','.join(map(str, batch))}]" if isinstance(batch, tuple) else str(batch))


def grouping_words(grouping, samples):
    """"8x2: 2 images per GPU"."""
    batch = grouping.batch
    count = f"{min(batch)} to {max(batch)}" if isinstance(batch, tuple) else batch
    return f"{grouping_text(grouping)}: {count} {samples[:-1] if count == 1 else samples} per GPU"


def _quantity(value):
    """None where nothing was measured; a number that has no seeds is itself."""
    if not isinstance(value, dict):
        return value
    if value["n"] == 0:
        return None
    return Quantity(value["n"], value["mean"], value["half_width"], {each["seed"]: each["value"] for each in value["seeds"]})


class Scores:
    """What became of the runs of a cell, on one placement or on all."""

    def __init__(self, given):
        self.asked, self.ok, self.missing = given["asked"], given["ok"], given["missing"]
        self.failed = sum(given["failures"].values())
        self.failures = ", ".join(f"{count} {outcome}" for outcome, count in sorted(given["failures"].items()))
        self.outcomes = {each["seed"]: each["outcome"] for each in given["outcomes"]}
        self._values = given["values"]

    def value(self, population):
        """The headline metric; None where no run has it."""
        return _quantity(self._values.get(population))

    def summary(self, value):
        """Of a mean what a CSV says: with its interval, and with what became of the runs."""
        return {"n": value.n if value else 0, "failed": self.failed, "missing": self.missing, "outcome": self.failures,
                **({"value": value.mean, "half_width": value.half_width} if value else {})}


class Row(Scores):
    """A cell on one placement, with its costs."""

    def __init__(self, given, cell, baseline):
        super().__init__(given)
        self.cell, self.strategy, self.grouping = cell, cell.strategy, cell.grouping
        self.placement, self.ranks, self.device = given["placement"], given["ranks"], given["device"]
        self.over_sockets = self.placement.endswith("-sockets")
        self.world = self.device, self.ranks, self.over_sockets
        self.is_claimed = bool(given["images_per_s"])  # one tower per rank, alone on the machine
        # What a user's multi-GPU run would be: the same with several ranks.
        self.is_real = self.is_claimed and self.ranks > 1
        self.__dict__.update({key: _quantity(given.get(key)) for key in MEASURES})  # None where it was not measured so
        self.images_per_s = self.images_per_s or self.emulated_images_per_s
        self.beside = given.get("beside", baseline)  # the label of the run in turn; None where no label tells it
        self.beside_others = self.ok - (self.images_per_s.n if self.images_per_s else 0) if given["ran_beside_others"] else 0
        self.memory = {"tensors": self.peak_memory_bytes, "process": self.peak_rss_bytes}
        self.machines = set(given["machines"])


class Cell(Scores):
    def __init__(self, given, baseline):
        super().__init__(given)
        batch = given["batch_per_tower"]
        self.label, self.group = given["strategy"], given["group"]  # the label of the strategy
        self.strategy = self.label  # what figures call it, see _tell_apart
        self.name = self.label if self.group == "all" else f"{self.group} {self.label}"
        self.grouping = Grouping(given["towers"], tuple(batch) if isinstance(batch, list) else batch)
        self.conditions = given["conditions"]
        # What the matrix sets together with the strategy: {"optimizer.lr": "0.01"}.
        self.tied = {key: text for key, text in given["cell"].items()
                     if key not in self.conditions and key not in _GROUPING and not key.startswith("placement")}
        self.evaluated = set(given["evaluated"])
        asked = set(given.get("populations", ()))
        # Without them a cell has one of the populations that the spec asks for; None where the report does not tell.
        self.has_running_statistics = asked <= self.evaluated if asked and self.evaluated else None
        self.curves = given["curves"]
        self._metrics = given["metrics"]
        self.sites = [Site(site["name"], {key: _quantity(value) for key, value in site.items() if key != "name"})
                      for site in given["sites"]]
        self.rows = [Row(row, self, baseline) for row in given["rows"] if row["placement"]]

    def lacks(self, population):
        """Whether it has running statistics, and was evaluated, but not so."""
        return bool(self.has_running_statistics and self.evaluated) and population not in self.evaluated

    def parts(self, metric):
        """The parts of the test split of which the metric is told, in the order of their names."""
        return sorted({name.split("/")[1] for metrics in self._metrics.values() for name in metrics
                       if name.startswith("groups/") and name.endswith(f"/{metric}")})

    def value_of_part(self, part, metric, population):
        """None where no run has it."""
        return _quantity(self._metrics.get(population, {}).get(f"groups/{part}/{metric}"))


class Contrast:
    """A comparison that the spec declared, within one group of cells; `difference` is None where no pair is finished."""

    def __init__(self, given, cells):
        declared = given["declared"]
        self.metric, self.margin = declared["metric"], declared.get("equivalence_margin")
        self.sides, (self.strategy, self.above) = given["sides"], given["strategies"]
        self.population = declared.get("population", "saved")
        self.population_above = declared.get("above_population") or self.population
        self.difference, self.verdict = _quantity(given["difference"]), given["verdict"]
        here, self.placement = next(((cell, row and row.placement) for cell in cells if cell.label == self.strategy
                                     for row in (None, *cell.rows) if _place(cell, row) == given["at"]), (None, None))
        self.at, self.grouping = given["at"], here.grouping if here else None  # runs that differ in other keys have none
        at = {key: str(value) for key, value in declared.get("at", {}).items() if key not in ("towers", "batch_per_tower")}
        self.conditions = at | (here.conditions if here else {})


def _place(cell, row):
    """Where a comparison says that it was made: a group of cells, and for costs of several placements one of them."""
    if row is None:
        return cell.group
    return row.placement if cell.group == "all" else f"{cell.group}, {row.placement}"


class Report:
    def __init__(self, given):
        self.name = given["experiment"]
        self.page = ""  # what it says in words, where it has a page
        self.cells = [Cell(cell, given["baseline"]) for cell in given["cells"]]
        self.contrasts = [Contrast(contrast, self.cells) for contrast in given["contrasts"]]
        self._published = [(Published(each["metric"], each["from"], each["to"], each["source"]), each["cell"])
                           for each in given["published"] if each["population"] == "saved"]  # which figures show
        self.headline = given["headline"] if any(cell.ok for cell in self.cells) else None
        self.samples = given["samples"]  # what a batch counts: images or clips
        self.baseline, self.tuning = given["baseline"], given["tuning"]
        self.declared = given["declared_in_short"]
        self.fewest_seeds = given["fewest_seeds_for_a_verdict"]
        self._tell_apart()
        self.cells.sort(key=lambda cell: style.catalogue_order(cell.strategy))

    def _tell_apart(self):
        """A strategy that the matrix has with several settings is called "per_tower, norm_lr_multiplier 0.1" but for the first."""
        first = {}
        for cell in self.cells:
            plain = first.setdefault(cell.label, cell.tied)
            cell.strategy = ", ".join([cell.label] + [f"{key.rsplit('.', 1)[-1]} {text}" for key, text in cell.tied.items()
                                                      if text != plain.get(key)])
            for row in cell.rows:
                row.strategy = cell.strategy

    @property
    def strategies(self):
        return list(dict.fromkeys(cell.strategy for cell in self.cells))

    @property
    def last_step(self):
        """At which all were evaluated that the report compares."""
        return max(point["step"] for cell in self.cells for point in cell.curves[self.headline]["points"])

    def keep(self, labels):
        """Leaves out all strategies but these."""
        for label in labels:
            if label not in self.strategies:
                raise ReportError(f"no run of {self.name} has the strategy {label}; there are {'; '.join(self.strategies)}")
        self.cells = [cell for cell in self.cells if cell.strategy in labels]
        self.contrasts = [each for each in self.contrasts if each.strategy in labels and each.above in labels]

    def place_on_page(self, contrast):
        """Where the page names it behind "Rests on", as a sort key; those behind all others that it does not name."""
        at = "" if contrast.at == "all" else f" at {contrast.at}"
        populations = " - ".join(dict.fromkeys((contrast.population, contrast.population_above)))
        name = f"`{' - '.join(contrast.sides)}{at}, " + ("" if contrast.metric in MEASURES else f"{contrast.metric} {populations}`")
        return self.page.find(name) if name in self.page else len(self.page)

    def title_on_page(self, figure):
        """What the page says that the figure shows, None where it does not show it: the text of the picture."""
        found = re.search(rf"!\[([^\]]+)\]\(figures/{re.escape(figure)}\.png\)", self.page)
        return found and found[1]

    def published(self, metric, cells):
        """What others have published of the metric, for comparison with some of these cells: each number once."""
        names = {name for cell in cells for name in (cell.name, *(f"{cell.name} {row.placement}" for row in cell.rows))}
        return list(dict.fromkeys(number for number, cell in self._published if number.metric == metric and cell in names))

    def caption(self, cells, quantities, *notes, bars="bars: 95 % t intervals"):
        """One line: the experiment, what the bars are, how many seeds the numbers have, what is to be noted, and what is missing."""
        most = max((quantity.n for quantity in quantities if quantity), default=0)
        few = f"fewer than {self.fewest_seeds}: a direction, no verdict"
        failed, missing = (sum(getattr(cell, name) for cell in cells) for name in ("failed", "missing"))
        parts = [self.name, bars if most > 1 else "", count_text(quantities), few if 1 < most < self.fewest_seeds else "", *notes,
                 f"{failed} failed (×)" if failed else "", f"{missing} missing" if missing else ""]
        return "; ".join(part for part in parts if part) + "."


def read(file):
    try:
        return Report(json.load(file))
    except (KeyError, TypeError, ValueError) as error:
        raise ReportError(f"expected what bnlab report --format json prints, got {type(error).__name__}: {error}") from error


def load(name):
    """The report in a file."""
    with open(name, encoding="utf-8") as file:
        return read(file)


def split_by_condition(cells, panel_keys=()):
    """[(text, cells)], so that no line joins different questions: a nuisance level that every strategy meets gives a
    figure per level. `panel_keys` are the axes that a figure shows side by side; EVERY_KEY stands for all.
    """
    parts = defaultdict(list)
    for cell in cells:
        parts[", ".join(f"{key} = {text}" for key, text in sorted(cell.conditions.items()) if key not in panel_keys)
              ].append(cell)
    return sorted(parts.items())


def touched(cells):
    """Those of which at least one run is finished."""
    return [cell for cell in cells if cell.ok or cell.failed]


def without_running_statistics(cells):
    """The strategies that have none; where the report does not tell, those whose weights were evaluated in one way where those
    of others were in several.
    """
    if any(cell.has_running_statistics is not None for cell in cells):
        return {cell.strategy for cell in cells if cell.has_running_statistics is False}
    several = {cell.strategy for cell in cells if len(cell.evaluated) > 1}
    return {cell.strategy for cell in cells} - several if several else set()


def of_every_grouping(cells):
    """The cells of strategies that have one grouping, and no running statistics: what they compute does not depend on the towers."""
    flat = without_running_statistics(cells)
    return [cell for cell in cells if cell.strategy in flat
            and {each.grouping for each in cells if each.strategy == cell.strategy} == {cell.grouping}]


def never_saved(cells):
    """Whether runs ended well, but none was evaluated with the saved statistics."""
    return any(cell.ok for cell in cells) and not any(cell.value("saved") for cell in cells)


def run_beside(rows):
    """The label of the run that all of these rows were timed in turns with; None where they differ or no label tells it."""
    labels = {row.beside for row in rows}
    return labels.pop() if len(labels) == 1 else None


def count_text(quantities):
    """"n = 6 seeds", or the range where they differ."""
    counts = sorted({quantity.n for quantity in quantities if quantity})
    if not counts:
        return "n = 0"
    if len(counts) == 1:
        return f"n = {counts[0]} seed" + ("s" if counts[0] > 1 else "")
    return f"n = {counts[0]} to {counts[-1]} seeds"


def throughput_notes(ended, shown):
    """On runs whose throughput does not count, and on rows that were not measured alike."""
    side_by_side = sum(row.beside_others for row in ended)
    machines = set().union(*(row.machines for row in shown))
    return [f"{side_by_side} left out that shared the machine (jobs > 1)" if side_by_side else "",
            f"caution: {len(machines)} different machines or thread counts" if len(machines) > 1 else ""]
