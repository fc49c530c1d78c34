"""Cells of an experiment: the seeds of one strategy in one grouping, what came out of each, and what is missing.

Also splits an experiment where other keys of the spec vary, so that a mean is never taken over different questions.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import intervals
from records import grouping_text

# Axes of the figures themselves.
_OWN_KEYS = ("strategy", "seed", "towers", "batch_per_tower")


@dataclass
class Cell:
    strategy: str
    grouping: tuple
    values: dict = field(default_factory=dict)  # seed -> number, of the runs that ended well
    failed: dict = field(default_factory=dict)  # seed -> outcome
    missing: list = field(default_factory=list)  # seeds of the experiment without a finished run here

    @property
    def interval(self):
        return intervals.t_interval(self.values.values())

    @property
    def asked(self):
        return len(self.values) + len(self.failed) + len(self.missing)

    @property
    def failures(self):
        """"2 diverged, 1 oom", or an empty text."""
        outcomes = list(self.failed.values())
        return ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(set(outcomes)))


def one_per_seed(runs):
    """Placement never changes a result: of several runs of one seed the best ended one counts, real ones first."""
    chosen = {}
    for run in sorted(runs, key=lambda run: (run.status != "ok", not run.is_real, run.placement["name"])):
        chosen.setdefault(run.seed, run)
    return chosen


def make_cells(runs, value, seeds, key=lambda run: run.grouping):
    """Cells by (strategy, key(run)) in the order of `runs`; `value` maps a run to its number or None."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.strategy, key(run)].append(run)
    cells = {}
    for (strategy, where), members in groups.items():
        cell = cells[strategy, where] = Cell(strategy, members[0].grouping)
        for seed, run in sorted(one_per_seed(members).items()):
            number = value(run)
            if run.status == "ok" and number is not None:
                cell.values[seed] = number
            elif run.status == "ok":
                cell.failed[seed] = "no value"
            elif run.status != "interrupted":
                cell.failed[seed] = run.status
        cell.missing = sorted(set(seeds) - set(cell.values) - set(cell.failed))
    return cells


def _flat(value, path=""):
    if not isinstance(value, dict):
        return {path: str(value)}
    flat = {}
    for key, inner in value.items():
        flat.update(_flat(inner, f"{path}.{key}" if path else key))
    return flat


def split_by_condition(runs, panel_keys=()):
    """[(text, runs)]: one entry, with an empty text, unless spec keys other than the figures' own axes vary.

    `panel_keys` are axes that a figure shows side by side.

    A key counts if two runs that agree in strategy, grouping, seed and placement differ in it: a learning rate that
    belongs to a strategy does not split, a nuisance level that every strategy meets does.
    """
    specs = {id(run): {key: text for key, text in _flat(run.record["spec"]).items()
                       if key.split(".")[0] not in (*_OWN_KEYS, *panel_keys)} for run in runs}
    twins = defaultdict(list)
    for run in runs:
        twins[run.strategy, run.grouping, run.seed, run.placement["name"]].append(specs[id(run)])
    varying = set()
    for group in twins.values():
        for key in set().union(*group):
            if len({spec.get(key) for spec in group}) > 1:
                varying.add(key)
    parts = defaultdict(list)
    for run in runs:
        parts[tuple((key, specs[id(run)].get(key, "absent")) for key in sorted(varying))].append(run)
    return [(", ".join(f"{key} = {text}" for key, text in part), parts[part]) for part in sorted(parts)]


def count_text(cells):
    """"n = 6 seeds", or the range where cells differ."""
    counts = sorted({len(cell.values) for cell in cells if cell.values})
    if not counts:
        return "n = 0"
    if len(counts) == 1:
        return f"n = {counts[0]} seed" + ("s" if counts[0] > 1 else "")
    return f"n = {counts[0]} to {counts[-1]} seeds"


def bars_text(cells, name="bars"):
    """What the error bars are, over how many seeds."""
    if not any(len(cell.values) > 1 for cell in cells):
        return f"{'No' if name[0].isupper() else 'no'} error bars, {count_text(cells)}"
    single = ", none where n = 1" if any(len(cell.values) == 1 for cell in cells) else ""
    return f"{name}: 95 % t interval over seeds{single}; {count_text(cells)}"


def shortfall_notes(cells, unfinished=0, at_most=6):
    """Sentences on failed and missing runs, for a figure's caption. Long lists are cut; the CSV has all of them."""
    def listing(title, entries):
        if not entries:
            return []
        rest = len(entries) - at_most
        more = f"; and {rest} more cells (see the CSV)" if rest > 0 else ""
        return [f"{title}: " + "; ".join(entries[:at_most]) + more + "."]

    failed = [f"{cell.strategy} {grouping_text(cell.grouping)} ({cell.failures} of {cell.asked})"
              for cell in cells if cell.failed]
    missing = [f"{cell.strategy} {grouping_text(cell.grouping)} ({len(cell.missing)} of {cell.asked} runs missing)"
               for cell in cells if cell.missing]
    notes = listing("Failed (×)", failed) + listing("Incomplete", missing)
    if unfinished:
        notes.append(f"{unfinished} run{'s' if unfinished > 1 else ''} started and not finished.")
    return notes


def absent_notes(cells, at_most=6):
    """A sentence on combinations of strategy and grouping that no run has touched."""
    strategies = list(dict.fromkeys(cell.strategy for cell in cells))
    groupings = list(dict.fromkeys(cell.grouping for cell in cells))
    present = {(cell.strategy, cell.grouping) for cell in cells}
    absent = [f"{strategy} {grouping_text(grouping)}" for strategy in strategies for grouping in groupings
              if (strategy, grouping) not in present]
    rest = len(absent) - at_most
    more = f" and {rest} more" if rest > 0 else ""
    return [f"Not run: {', '.join(absent[:at_most])}{more}."] if absent else []
