"""Folders of results as data frames. Runs and curves are read from the files themselves; means, intervals and the declared
comparisons are those that `bnlab report` computes, and nothing of them is computed here a second time."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Union

if TYPE_CHECKING:
    import pandas

Folder = Union[str, "os.PathLike[str]"]
Row = Dict[str, Any]

SCHEMA_VERSION = 1
# The table of the program (harness/experiment/measures.hpp explains its keys).
_MEASURES: List[Row] = json.loads((Path(__file__).parent / "measures.json").read_text(encoding="utf-8"))
# Those that are columns of `runs` behind the keys that were varied, memory last.
_COLUMNS = [{"column": "outcome", "path": "outcome.status"}, {"column": "message", "path": "outcome.message"},
            *sorted((each for each in _MEASURES if "column" in each), key=lambda each: "largest_of_ranks" in each)]


def load(folder: Folder, program: Optional[Folder] = None) -> "Results":
    """The results of an experiment (RESULTS/EXPERIMENT), or of all below a folder of results.

    `program`: the program `bnlab`, which `Results.cells` and `Results.contrasts` ask; without it the environment variable
    BNLAB_PROGRAM, `bnlab` on the PATH, or the one that this clone has built. Raises FileNotFoundError where no run is.
    """
    return Results(Path(folder), program)


class Results:
    """The runs below a folder. Frames are made when they are first asked for, and kept."""

    def __init__(self, folder: Path, program: Optional[Folder] = None):
        self.folder = folder
        self._program = program
        self._files = [file for pattern in ("runs.jsonl", "*/runs.jsonl", "*/*/record.json", "*/*/*/record.json")
                       for file in sorted(folder.glob(pattern))
                       if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
        if not self._files:
            raise FileNotFoundError(f"{folder}: no runs there; expected RESULTS/EXPERIMENT, or RESULTS with several")

    def __repr__(self) -> str:
        return f"<bnlab results of {len(self._runs)} runs in {self.folder}>"

    @functools.cached_property
    def _runs(self) -> Dict[str, Row]:
        """The records by the folders of their runs, sorted; those of ledgers with what was logged under "log"."""
        runs = {}
        for file in self._files:  # a run's own folder goes before the ledger
            is_ledger = file.name == "runs.jsonl"
            for number, line in enumerate(file.read_bytes().splitlines() if is_ledger else [file.read_bytes()], 1):
                place = f"{file}:{number}" if is_ledger else str(file)
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{place}: {error}") from error
                if record.get("kind") != "bnlab.run" or record.get("schema_version") != SCHEMA_VERSION:
                    raise ValueError(f"{place}: expected a record of schema version {SCHEMA_VERSION}")
                runs[str(file.parent / record["run_id"] / record["placement"]["name"] if is_ledger else file.parent)] = record
        return dict(sorted(runs.items()))

    @functools.cached_property
    def records(self) -> List[Row]:
        """The records as they were written, each with the folder of its run, there or kept in a ledger, under "folder"."""
        return [{**{key: value for key, value in record.items() if key != "log"}, "folder": folder}
                for folder, record in self._runs.items()]

    @functools.cached_property
    def runs(self) -> "pandas.DataFrame":
        """A row per run and placement: experiment, run_id, seed, the keys of specs in which the runs differ, strategy,
        outcome, the numbers of the last evaluation ("saved.mean_iou"), costs, times, revision, folder. The columns are those
        of `bnlab report --format csv`, without `stale` and `throughput_counts`, which the program alone can tell."""
        records = _with_times(self.records)
        flat = [_flat(record["spec"]) for record in records]
        keys = sorted({key for spec in flat for key in spec
                       if key.split(".")[0] not in ("strategy", "seed") and key != "timing.with"})
        varied = [key for key in keys if len({spec[key] for spec in flat if key in spec}) > 1]
        rows = []
        for record, spec in zip(records, flat):
            row = {"experiment": record["experiment"], "run_id": record["run_id"], "seed": record["spec"]["seed"],
                   **{key: spec.get(key) for key in varied}, "strategy": record["strategy_label"]}
            result = record["result"] or {}
            row.update({measure["column"]: _value(record, measure) for measure in _COLUMNS})
            row.update({f"{population}.{metric}": value for population, metrics in result.get("final", {}).items()
                        for metric, value in metrics.items() if not isinstance(value, (list, dict))})
            rows.append({**row, "folder": record["folder"]})
        return _frame(rows)

    @functools.cached_property
    def curves(self) -> "pandas.DataFrame":
        """What was measured while the runs went on, a row per number: experiment, run_id, placement, strategy, seed, step,
        epoch, time_s, population (of evaluations), metric ("loss", "lr", "gradient_norm", "mean_iou", ...), value."""
        return _frame([point for record in self.records for point in _points(record, self._runs[record["folder"]].get("log"))],
                      ["experiment", "run_id", "placement", "strategy", "seed", "step", "epoch", "time_s", "population",
                       "metric", "value"])

    @functools.cached_property
    def reports(self) -> List[Row]:
        """What `bnlab report --format json` says of each experiment."""
        folders = sorted({Path(record["folder"]).parent.parent for record in self.records})
        return [self._report(folder) for folder in folders]

    @functools.cached_property
    def cells(self) -> "pandas.DataFrame":
        """Means over seeds with 95 % intervals, a row per cell of the matrix, placement and number: experiment, cell (its name
        in tables), strategy, group, towers, batch_per_tower, the other keys that were varied, placement, population (of
        scores), metric, n, mean, half_width. Scores have placement None: they count under every one."""
        rows: List[Row] = []
        for report in self.reports:
            for cell in report["cells"]:
                of = {"experiment": report["experiment"], "cell": ", ".join(cell["cell"].values()),
                      "strategy": cell["strategy"], "group": cell["group"],
                      "towers": cell["towers"], "batch_per_tower": _hashable(cell["batch_per_tower"]), **cell["conditions"]}
                for population, metrics in cell["metrics"].items():
                    rows += [{**of, "placement": None, "population": population, "metric": metric, **_mean(value)}
                             for metric, value in metrics.items()]
                for row in cell["rows"]:
                    at = {**of, "placement": row["placement"], "population": None}
                    rows += [{**at, "metric": key, **_mean(value)} for key, value in row.items()
                             if isinstance(value, dict) and "half_width" in value]
                    if row.get("relative_images_per_s") is not None:
                        timed = row["log_images_per_s"] or row["images_per_s"]
                        rows.append({**at, "metric": "relative_images_per_s", "n": timed["n"],
                                     "mean": row["relative_images_per_s"], "half_width": None})
        return _frame(rows)

    @functools.cached_property
    def contrasts(self) -> "pandas.DataFrame":
        """The comparisons that specs declare: experiment, metric, strategy, above, at, n, mean and half_width of the difference
        paired by seed, p, p_holm, p_sign_flip, verdict, warning."""
        rows = []
        for report in self.reports:
            for contrast in report["contrasts"]:
                strategy, above = contrast["sides"]
                rows.append({"experiment": report["experiment"], "metric": contrast["declared"]["metric"],
                             "strategy": strategy, "above": above, "at": contrast["at"], **_mean(contrast["difference"]),
                             **{key: contrast.get(key) for key in ("p", "p_holm", "p_sign_flip", "verdict", "warning")}})
        return _frame(rows, ["experiment", "metric", "strategy", "above", "at", "n", "mean", "half_width", "p", "p_holm",
                             "p_sign_flip", "verdict", "warning"])

    def _report(self, folder: Path) -> Row:
        spec = str(folder.resolve()) if (folder / "spec.json").exists() else folder.resolve().name  # one of experiments/
        command = [str(_found_program(self._program).resolve()), "report", spec, "--results", str(folder.resolve().parent),
                   "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):  # 1: some runs failed, which the report says
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def _found_program(given: Optional[Folder]) -> Path:
    known = [given, os.environ.get("BNLAB_PROGRAM"), shutil.which("bnlab"),
             *(parent / "build/release/bnlab" for parent in [Path.cwd(), *Path(__file__).resolve().parents])]
    for each in known:
        if each and Path(each).is_file():
            return Path(each)
    raise FileNotFoundError("means, intervals and comparisons are computed by the program `bnlab`, which is not there; build "
                            "it (scripts/build.sh), or name it: load(folder, program=...) or BNLAB_PROGRAM. "
                            "Results.runs and Results.curves need no program")


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _value(record: Row, measure: Row) -> Any:
    value = _at(record, measure["path"])
    return max(value or [None]) if "largest_of_ranks" in measure else value


def _with_times(records: List[Row]) -> List[Row]:
    """The records, with the times of runs that were timed in the world of another one taken from its record."""
    times = {}
    for host in records:
        placement = host["placement"]
        if host["outcome"]["status"] == "ok" and placement["jobs"] == 1 and not placement["emulated"]:
            for other in _at(host, "result.timing.with") or []:
                times[Path(host["folder"]).parent.parent, other["run_id"], placement["name"]] = other
    merged = []
    for record in records:
        other = times.get((Path(record["folder"]).parent.parent, record["run_id"], record["placement"]["name"]))
        result = record["result"]
        if other and result and _at(record, "spec.timing.with") is None:
            throughput = {**(result.get("throughput") or {}), **other["throughput"]}
            record = {**record, "result": {**result, "timing": other["timing"], "throughput": throughput}}
        merged.append(record)
    return merged


def _flat(value: Mapping[str, Any], before: str = "") -> Row:
    """{"model": {"name": "unet"}} -> {"model.name": "unet"}; lists become tuples."""
    flat: Row = {}
    for key, each in value.items():
        if isinstance(each, Mapping):
            flat.update(_flat(each, f"{before}{key}."))
        else:
            flat[before + key] = _hashable(each)
    return flat


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else \
        json.dumps(value) if isinstance(value, dict) else value


def _mean(quantity: Optional[Mapping[str, Any]]) -> Row:
    return {key: (quantity or {"n": 0}).get(key) for key in ("n", "mean", "half_width")}


def _log(file: Path) -> Iterator[Row]:
    lines = file.read_bytes().split(b"\n") if file.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            if number == len(lines):  # behind the last newline: nothing, or what a killed run has half written
                return
            raise ValueError(f"{file}:{number}: {error}") from error


def _points(record: Row, log: Optional[List[Row]]) -> Iterator[Row]:
    """`log`: what the ledger has of the run; None where its folder has it."""
    of = {"experiment": record["experiment"], "run_id": record["run_id"], "placement": record["placement"]["name"],
          "strategy": record["strategy_label"], "seed": record["spec"]["seed"]}
    for entry in _log(Path(record["folder"]) / "metrics.jsonl") if log is None else log:
        at = {**of, **{key: entry.get(key) for key in ("step", "epoch", "time_s")}, "population": entry.get("population")}
        split = f"{entry['split']}." if "split" in entry else ""
        numbers = {split + key: value for key, value in entry["metrics"].items()} if entry["kind"] == "eval" else \
            {key: entry.get(key) for key in ("loss", "lr", "gradient_norm")} if entry["kind"] == "train" else {}
        yield from ({**at, "metric": key, "value": value} for key, value in numbers.items()
                    if not isinstance(value, (list, dict)))


def _frame(rows: List[Row], columns: Optional[List[str]] = None) -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise ImportError("data frames need pandas: pip install pandas; Results.records needs nothing") from error
    return pandas.DataFrame(rows, columns=columns if not rows else None)
