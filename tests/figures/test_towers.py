"""The processor time of a step against towers and ranks. Run by test_figures.py."""

import csv
import json
import pathlib
import tempfile
import unittest

import figures_case  # noqa: F401  it says where the modules of the figures are

import style
import towers
from drawing import save


class Towers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "times.json"
        tables = [{"strategy": "sync", "along": "ranks", "rows": [{"number": 1, "processor_ms": [90, 100, 120]},
                                                                  {"number": 16, "processor_ms": [190, 200, 230]}]},
                  {"strategy": "sync", "along": "towers of a process", "rows": [{"number": 16, "processor_ms": [50.0]},
                                                                                {"number": 1024, "processor_ms": [55.0]}]}]
        self.file.write_text(json.dumps({"tables": tables}), encoding="utf-8")
        self.lines = list(towers.lines_of(self.file))

    def test_times_are_medians_over_that_of_the_first_point(self):
        style.apply()
        drawing = towers.draw(self.lines)
        save(drawing, self.file.with_suffix(""))
        with open(self.file.with_suffix(".csv"), encoding="utf-8", newline="") as drawn:
            rows = list(csv.DictReader(drawn))
        self.assertEqual([(row["number"], row["relative"], row["low"], row["high"]) for row in rows[:2]],
                         [("1", "1.0", "0.9", "1.2"), ("16", "2.0", "1.9", "2.3")])
        self.assertEqual(float(rows[1]["exponent"]), 0.25)
        self.assertIn("grows at most 1.10 times at 1,024 towers (sync) and 2.00 times at 16 ranks (sync)", drawing.sentence)

    def test_the_table_has_the_same_numbers(self):
        self.assertIn("| ranks | `sync` | 16 | 2.000 | 1.900 to 2.300 | 0.250 |", towers.markdown(self.lines))
