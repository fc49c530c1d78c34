"""Reads and checks the records of an experiment: RESULTS/EXPERIMENT/RUN_ID/PLACEMENT/record.json and metrics.jsonl.

Everything that the figures know comes through here. A record that cannot be trusted is an error that names its file.
"""

import json
import os
from collections import namedtuple
from dataclasses import dataclass, field

import style

SCHEMA_VERSION = 1
STATUSES = ("ok", "diverged", "oom", "timeout", "crashed", "error", "interrupted")


class RecordError(Exception):
    pass


Grouping = namedtuple("Grouping", "towers batch")  # images of one tower: a number, or a tuple where towers differ


def images_per_tower(grouping):
    """A number for an axis: the mean where towers differ."""
    batch = grouping.batch
    return sum(batch) / len(batch) if isinstance(batch, tuple) else batch


def grouping_text(grouping):
    batch = grouping.batch
    return f"{grouping.towers}x" + (f"[{','.join(map(str, batch))}]" if isinstance(batch, tuple) else str(batch))


@dataclass
class Run:
    file: str
    record: dict

    def at(self, path):
        """The value at a dotted path of the record; None where there is none."""
        value = self.record
        for key in path.split("."):
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return value

    def number(self, path):
        value = self.at(path)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def strategy(self):
        return self.record["strategy_label"]

    @property
    def seed(self):
        return self.record["spec"]["seed"]

    @property
    def status(self):
        return self.record["outcome"]["status"]

    @property
    def grouping(self):
        batch = self.record["spec"]["batch_per_tower"]
        if isinstance(batch, list):
            batch = batch[0] if len(set(batch)) == 1 else tuple(batch)
        return Grouping(self.record["spec"]["towers"], batch)

    @property
    def placement(self):
        return self.record["placement"]

    @property
    def headline(self):
        return self.at("result.headline")

    @property
    def populations(self):
        """Those that the last checkpoint was evaluated with."""
        return list(self.at("result.final") or {})

    def metric(self, population):
        """The headline metric after the last step; None where it was not measured."""
        return self.number(f"result.final.{population}.{self.headline}")

    @property
    def may_claim_throughput(self):
        """Side-by-side runs disturb each other: their throughput is never shown."""
        return self.placement["jobs"] == 1

    @property
    def is_real(self):
        """One tower per rank and several ranks: what a user's multi-GPU run would be."""
        return not self.placement["emulated"] and self.placement["towers_per_rank"] == 1 and self.placement["ranks"] > 1

    def metrics(self):
        """The lines of metrics.jsonl, without a last one that was cut off; [] where there is no such file."""
        path = os.path.join(os.path.dirname(self.file), "metrics.jsonl")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        rows = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                if number == len(lines):  # no newline after it: the writer was killed
                    break
                raise RecordError(f"{path}:{number}: expected a JSON object, got {line[:60]!r}") from error
        return rows


@dataclass
class Experiment:
    name: str
    runs: list
    unfinished: list = field(default_factory=list)  # run folders without a record

    @property
    def strategies(self):
        return sorted({run.strategy for run in self.runs}, key=style.catalogue_order)

    @property
    def seeds(self):
        return sorted({run.seed for run in self.runs})

    @property
    def headline(self):
        return next((run.headline for run in self.runs if run.headline), None)


def _expect(file, condition, message):
    if not condition:
        raise RecordError(f"{file}: {message}")


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_record(file):
    try:
        with open(file, encoding="utf-8") as opened:
            record = json.load(opened)
    except (OSError, ValueError) as error:
        raise RecordError(f"{file}: expected a JSON record, got {error}") from error
    _expect(file, isinstance(record, dict), "expected a JSON object")
    version, kind = record.get("schema_version"), record.get("kind")
    _expect(file, kind == "bnlab.run" and version == SCHEMA_VERSION,
            f"expected a bnlab.run record of schema version {SCHEMA_VERSION}, got kind {kind!r}, version {version!r}")
    run = Run(file, record)
    for path in ("experiment", "run_id", "strategy_label", "placement.name", "placement.device"):
        _expect(file, isinstance(run.at(path), str), f"{path}: expected a text, got {run.at(path)!r}")
    for path in ("spec.seed", "spec.towers", "placement.ranks", "placement.towers_per_rank", "placement.jobs"):
        _expect(file, _is_count(run.at(path)), f"{path}: expected a count, got {run.at(path)!r}")
    emulated = run.at("placement.emulated")
    _expect(file, isinstance(emulated, bool), f"placement.emulated: expected true or false, got {emulated!r}")
    batch = run.at("spec.batch_per_tower")
    _expect(file, _is_count(batch) or (isinstance(batch, list) and batch and all(map(_is_count, batch))),
            f"spec.batch_per_tower: expected a count or a list of them, got {batch!r}")
    status = run.at("outcome.status")
    _expect(file, status in STATUSES, f"outcome.status: expected one of {', '.join(STATUSES)}, got {status!r}")
    _expect(file, status != "ok" or isinstance(run.headline, str), "result.headline: missing from a finished run")
    return run


def _folders(path):
    return sorted(os.path.join(path, name) for name in os.listdir(path)
                  if not name.startswith(".") and os.path.isdir(os.path.join(path, name)))


def read_experiment(folder):
    """All records of RESULTS/EXPERIMENT, sorted by strategy, grouping, seed and placement."""
    runs, unfinished = [], []
    for run_folder in _folders(folder):
        for placement in _folders(run_folder):
            file = os.path.join(placement, "record.json")
            if os.path.exists(file):
                runs.append(read_record(file))
            else:
                unfinished.append(placement)
    headlines = sorted({run.headline for run in runs if run.headline})
    _expect(folder, len(headlines) < 2, f"expected one headline metric, got {', '.join(headlines)}")
    runs.sort(key=lambda run: (style.catalogue_order(run.strategy), run.grouping.towers, str(run.grouping.batch),
                               run.seed, run.placement["name"]))
    return Experiment(os.path.basename(os.path.abspath(folder)), runs, unfinished)


def find_experiments(folder):
    """The folder itself if it is an experiment's, else those of the experiments in it."""
    if not os.path.isdir(folder):
        raise RecordError(f"{folder}: expected the folder of an experiment or of several, found no folder")

    def holds_records(path):
        return any(os.path.exists(os.path.join(placement, "record.json"))
                   for run_folder in _folders(path) for placement in _folders(run_folder))

    found = [folder] if holds_records(folder) else [path for path in _folders(folder) if holds_records(path)]
    if not found:
        raise RecordError(f"{folder}: no records found; expected {folder}/[EXPERIMENT/]RUN_ID/PLACEMENT/record.json")
    return found
