"""What bnlab writes for other programs, read by them: event files by TensorBoard, the schema of specs by jsonschema.

Needs the program in BNLAB_PROGRAM; what is not installed (scripts/peers.sh) is skipped aloud. Exit status 77: all was.
"""

import contextlib
import glob
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("BNLAB_PROGRAM", os.path.join(ROOT, "build/release/bnlab"))


def needs(module):
    installed = importlib.util.find_spec(module) is not None
    return unittest.skipUnless(installed, f"{module} is not installed; scripts/peers.sh does it")


def bnlab(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True, cwd=ROOT).stdout


@needs("tensorboard")
class EventFiles(unittest.TestCase):
    def test_tensorboard_reads_the_curves_of_a_run(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        with open(os.path.join(ROOT, "results/quickstart/runs.jsonl"), encoding="utf-8") as ledger:
            [kept] = [run for run in map(json.loads, ledger) if run["run_id"].startswith("sync-8x1-seed0-")]
        lines = kept["log"]
        losses = [(line["step"], line["loss"]) for line in lines if line["kind"] == "train"]
        scores = [(line["step"], line["metrics"]["mean_iou"]) for line in lines
                  if line["kind"] == "eval" and line["population"] == "saved"]
        with tempfile.TemporaryDirectory() as folder:
            bnlab("export", "results/quickstart", "--tensorboard", folder)
            run = os.path.join(folder, kept["run_id"], kept["placement"]["name"])
            with contextlib.redirect_stderr(io.StringIO()):
                events = EventAccumulator(run, size_guidance={"scalars": 0}).Reload()
        for tag, wanted in (("train/loss", losses), ("saved/mean_iou", scores)):
            read = [(event.step, event.value) for event in events.Scalars(tag)]
            self.assertEqual([step for step, _ in read], [step for step, _ in wanted])
            for (_, value), (_, truth) in zip(read, wanted):
                self.assertAlmostEqual(value, truth, delta=1e-6 * abs(truth))


@needs("typing_extensions")  # of jsonschema's parts, which come with PyTorch's
@needs("jsonschema")
class SpecSchema(unittest.TestCase):
    def setUp(self):
        import jsonschema
        schema = json.loads(bnlab("schema"))
        jsonschema.Draft202012Validator.check_schema(schema)
        self.validator = jsonschema.Draft202012Validator(schema)

    def spec(self, name="overviews/quickstart.json"):
        with open(os.path.join(ROOT, "experiments", name)) as file:
            return json.load(file)

    def test_every_committed_spec_fits(self):
        files = glob.glob(os.path.join(ROOT, "experiments/**/*.json"), recursive=True)
        self.assertTrue(files)
        for file in files:
            with open(file) as text:
                problems = [error.message for error in self.validator.iter_errors(json.load(text))]
            self.assertEqual(problems, [], file)

    def test_mistakes_do_not(self):
        for change in ({"stepps": 3}, {"steps": "many"}, {"steps": 0}, {"precision": "float8"}, {"model": "uunet"},
                       {"model": {"name": "unet", "bass": 8}}, {"model": {"name": "unet", "base": "8"}},
                       {"contrasts": [{"strategy": "sync", "above": "per_tower"}]}):
            self.assertFalse(self.validator.is_valid({**self.spec(), **change}), change)

    def test_the_spec_that_init_writes_fits_and_can_be_planned(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "mine.json")
            bnlab("init", file)
            plan = json.loads(bnlab("plan", file, "--json", "--results", folder))
            self.assertGreater(plan["to_start"], 6)
            with open(file) as text:
                spec = "".join(line.split(" //")[0] if not line.startswith("//") else "" for line in text)
        self.assertEqual([error.message for error in self.validator.iter_errors(json.loads(spec))], [])


if __name__ == "__main__":
    result = unittest.main(exit=False, argv=sys.argv).result
    skipped = len(result.skipped) == result.testsRun
    sys.exit(1 if not result.wasSuccessful() else 77 if skipped else 0)
