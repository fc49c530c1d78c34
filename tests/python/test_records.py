#!/usr/bin/env python3
"""Holds the data frames of scripts/python to what bnlab says of the committed records.

  BNLAB_PROGRAM=build/release/bnlab PYTHONPATH=build/peers python3 tests/python/test_records.py

Exit status 77, which ctest reports as skipped, where pandas is not installed (scripts/peers.sh does it).
"""

import csv
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scripts/python"
sys.path += [str(PACKAGE)]

try:
    import pandas
except ImportError as error:
    print(f"SKIPPED: the data frames of scripts/python, because {error}; scripts/peers.sh installs it")
    sys.exit(77)

import bnlab

PROGRAM = os.environ.get("BNLAB_PROGRAM", str(ROOT / "build/release/bnlab"))


def report(*words):
    return subprocess.run([PROGRAM, "report", *words], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def kept(experiment):
    return [json.loads(line) for line in (ROOT / "results" / experiment / "runs.jsonl").read_text(encoding="utf-8").splitlines()]


class Frames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["BNLAB_PROGRAM"] = PROGRAM
        cls.results = bnlab.load("results/freezing")

    def test_runs_are_those_of_the_csv(self):
        runs = self.results.runs.astype(object).where(self.results.runs.notna(), None)
        by_key = {(row["run_id"], row["placement"]): row for row in runs.to_dict("records")}
        rows = list(csv.DictReader(io.StringIO(report("freezing", "--format", "csv"))))
        rows = [row for row in rows if row["outcome"] != "missing"]
        self.assertEqual(len(by_key), len(rows))
        shared = [title for title in rows[0] if title not in ("towers x batch", "stale", "throughput_counts")]
        self.assertEqual([title for title in shared if title not in runs.columns], [])
        for row in rows:
            mine = by_key[row["run_id"], row["placement"]]
            for title in shared:
                if isinstance(mine[title], (int, float)) and not isinstance(mine[title], bool):
                    self.assertEqual(mine[title], float(row[title]), (title, row["run_id"]))
                else:
                    self.assertEqual({None: "", True: "true", False: "false"}.get(mine[title], mine[title]), row[title], title)

    def test_runs_in_the_world_of_another_one_have_its_times(self):
        records = [run for run in kept("statistics_route") if "-seed10-" in run["run_id"] and run["placement"]["name"] == "2x1-cpu"][:2]
        with tempfile.TemporaryDirectory() as folder:
            records[0]["result"]["timing"]["with"] = [
                {"run_id": records[1]["run_id"], "timing": {}, "throughput": {"images_per_s": 12.5}}]
            records[1]["spec"]["timing"]["with"] = None
            for record in records:
                file = Path(folder, record["run_id"], "2x1-cpu", "record.json")
                file.parent.mkdir(parents=True)
                file.write_text(json.dumps(record), encoding="utf-8")
            runs = bnlab.load(Path(folder)).runs.set_index("run_id")
        self.assertEqual(runs.images_per_s[records[1]["run_id"]], 12.5)
        own = records[0]["result"]["throughput"]["images_per_s"]
        self.assertEqual(runs.images_per_s[records[0]["run_id"]], own)

    def test_a_line_of_the_table_of_measures_is_a_column(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(PACKAGE / "bnlab", Path(folder, "bnlab"))
            table = Path(folder, "bnlab/measures.json")
            measures = json.loads(table.read_text(encoding="utf-8")) + [{"column": "made_up", "path": "result.parameters"}]
            table.write_text(json.dumps(measures), encoding="utf-8")
            done = subprocess.run([sys.executable, "-c", "import bnlab; print(*bnlab.load('results/quickstart').runs.made_up)"],
                                  cwd=ROOT, capture_output=True, text=True, check=True,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])})
        self.assertEqual(set(map(int, done.stdout.split())), {run["result"]["parameters"] for run in kept("quickstart")})

    def test_keys_in_which_runs_differ_are_columns(self):
        runs = bnlab.load("results/running_statistics").runs
        self.assertEqual(set(runs["task.nuisance"]), {0.05, 0.2, 0.5})
        self.assertEqual(set(runs.shards), {"iid", "sorted:class", "sorted:brightness"})
        self.assertNotIn("model.name", runs.columns)

    def test_curves_hold_every_line_of_the_logs(self):
        run = kept("quickstart")[0]
        lines = run["log"]
        curves = bnlab.load("results/quickstart").curves
        mine = curves[(curves.run_id == run["run_id"]) & (curves.placement == run["placement"]["name"])]
        losses = mine[mine.metric == "loss"]
        self.assertEqual(list(zip(losses.step, losses.value)), [(each["step"], each["loss"]) for each in lines if each["kind"] == "train"])
        evaluations = [each for each in lines if each["kind"] == "eval" and each["population"] == "saved"]
        metric = next(iter(evaluations[0]["metrics"]))
        scores = mine[(mine.metric == metric) & (mine.population == "saved")]
        self.assertEqual(list(zip(scores.step, scores.value)), [(each["step"], each["metrics"][metric]) for each in evaluations])

    def test_a_run_answers_the_same_from_its_folder_and_from_a_ledger(self):
        run = kept("quickstart")[0]
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder, "runs.jsonl")
            ledger.write_text(json.dumps(run) + "\n", encoding="utf-8")
            from_ledger = bnlab.load(folder)
            own = Path(folder, run["run_id"], run["placement"]["name"])
            self.write(run, own)
            for with_ledger in (True, False):
                if not with_ledger:
                    ledger.unlink()
                other = bnlab.load(folder)
                self.assertEqual(other.records, from_ledger.records)
                for frame in ("runs", "curves"):
                    pandas.testing.assert_frame_equal(getattr(from_ledger, frame), getattr(other, frame))

    @staticmethod
    def write(run, folder):
        """The run's own folder, as training leaves it."""
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run["log"]), encoding="utf-8")
        record = {key: value for key, value in run.items() if key != "log"}
        (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")

    def test_a_damaged_line_of_a_ledger_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder, "runs.jsonl")
            ledger.write_text(json.dumps(kept("quickstart")[0]) + "\n{\"run", encoding="utf-8")
            with self.assertRaisesRegex(ValueError, f"{ledger}:2: "):
                print(bnlab.load(folder).runs)

    def test_a_half_written_last_line_is_left_out_and_any_other_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder, "run", "2x1-cpu")
            self.write(kept("quickstart")[0], run)
            log = run / "metrics.jsonl"
            whole = log.read_bytes()
            expected = bnlab.load(folder).curves
            log.write_bytes(whole + b'{"kind": "train", "step": 1')
            pandas.testing.assert_frame_equal(bnlab.load(folder).curves, expected)
            log.write_bytes(b'{"kind": "train"\n' + whole)
            with self.assertRaisesRegex(ValueError, f"{log}:1: "):
                print(bnlab.load(folder).curves)

    def test_comparisons_and_means_are_those_of_the_report(self):
        said = json.loads(report("freezing", "--format", "json"))
        contrasts = self.results.contrasts
        self.assertEqual(list(contrasts.verdict), [each["verdict"] for each in said["contrasts"]])
        self.assertEqual(list(contrasts["mean"]), [each["difference"]["mean"] for each in said["contrasts"]])
        cell = said["cells"][0]
        cells = self.results.cells
        mine = cells[(cells.cell == ", ".join(cell["cell"].values())) & (cells.metric == "mean_iou")
                     & (cells.population == "saved")]
        self.assertEqual(list(mine["half_width"]), [cell["metrics"]["saved"]["mean_iou"]["half_width"]])

    def test_relative_throughput_counts_the_runs_that_were_timed(self):
        said = json.loads(report("tradeoff", "--format", "json"))
        said["cells"] = said["cells"][:2]
        for cell, quantity in zip(said["cells"], ("log_images_per_s", "images_per_s")):
            cell["rows"] = cell["rows"][:1]
            cell["rows"][0].update({"log_images_per_s": None, quantity: {"n": 3, "mean": 0.1, "half_width": 0.2}})
        results = bnlab.load("results/tradeoff")
        results.reports = [said]
        cells = results.cells
        self.assertEqual(list(cells[cells.metric == "relative_images_per_s"].n), [3, 3])

    def test_a_folder_of_results_has_all_experiments(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("quickstart", "freezing"):
                os.symlink(ROOT / "results" / name, Path(folder, name))
            self.assertEqual(set(bnlab.load(folder).runs.experiment), {"quickstart", "freezing"})

    def test_what_is_missing_is_named(self):
        with self.assertRaisesRegex(FileNotFoundError, "no runs there; expected RESULTS/EXPERIMENT"):
            bnlab.load("experiments")

    def test_failed_runs_have_a_row(self):
        runs = bnlab.load("results/pyramid_pooling").runs
        refused = runs[runs.outcome == "error"]
        self.assertGreater(len(refused), 0)
        self.assertTrue(refused.message.str.contains("more than 1 value per channel").all())
        self.assertTrue(refused["saved.mean_iou"].isna().all())


class Package(unittest.TestCase):
    def test_the_example_draws_what_the_second_figure_of_the_readme_shows(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder, "price.svg")
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])}
            code = (f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); import example; table = example.points(); "
                    f"example.draw(table, {str(picture)!r}); print(table.to_csv(index=False))")
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
                                  env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("<svg", picture.read_text(encoding="utf-8"))
        expected = pandas.read_csv(ROOT / "results/price.csv").set_index(["strategy", "exchange"])
        found = pandas.read_csv(io.StringIO(done.stdout)).set_index("strategy")
        self.assertEqual(set(found.index), set(expected.index.get_level_values("strategy")))
        for strategy, row in found.iterrows():
            shared, sockets = (expected.loc[(strategy, exchange)] for exchange in ("shared_memory", "sockets"))
            for mine, theirs in ((row["accuracy_mean"], shared["accuracy"]), (row["accuracy_half_width"], shared["accuracy_half_width"]),
                                 (row["2x1-cpu"], shared["relative_images_per_s"]),
                                 (row["2x1-cpu-sockets"], sockets["relative_images_per_s"])):
                self.assertAlmostEqual(mine, theirs, 12, strategy)

    @unittest.skipUnless(importlib.util.find_spec("setuptools"), "this Python has no setuptools")
    def test_it_installs_whole_and_needs_no_torch_to_load(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(PACKAGE, Path(folder, "source"))
            # What pip does with it, but that it fetches nothing.
            subprocess.run([sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "build_py", "--build-lib",
                            str(Path(folder, "target"))], check=True, capture_output=True, cwd=Path(folder, "source"))
            installed = {path.relative_to(Path(folder, "target")).as_posix() for path in Path(folder, "target").rglob("*")}
            own = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "bnlab").rglob("*")
                   if path.suffix in (".py", ".typed", ".json")}
            self.assertEqual(own - installed, set())
            code = "import sys, bnlab; bnlab.load('results/quickstart').runs; assert 'torch' not in sys.modules"
            subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env={
                **os.environ, "PYTHONPATH": os.pathsep.join([str(Path(folder, "target")), os.environ.get("PYTHONPATH", "")])})


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(verbosity=1)
