#!/usr/bin/env python3
"""A number of records is told in one line of the table of measures, and named in few other files.

  python3 tests/measures_test.py
"""

import json
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = json.loads((ROOT / "scripts/python/bnlab/measures.json").read_text(encoding="utf-8"))
SCHEMA = json.loads((ROOT / "results/record.schema.json").read_text(encoding="utf-8"))
MOST = 3  # files: the table, what measures the number, and what computes with it or draws it
# Keys that more files may name, and why.
MORE = {
    "images_per_s": (12, "timers write it alone and in turns; costs are over it; three figures draw it"),
    "log_images_per_s": (8, "four figures draw it"),
    "same_log_images_per_s": (4, "a figure draws it as noise, and a sentence says it"),
    "relative_images_per_s": (10, "four figures and the example draw it; predictions and published numbers are of it, too"),
    "step_time_s": (5, "timers write it alone and in turns; a script reads it beside a trace"),
    "step_ms": (9, "predictions and times of GPUs have a number of that name"),
    "peak_memory_bytes": (13, "so is called what asks a device; probes, plans and predictions have a number of that name"),
    "peak_rss_bytes": (6, "so is called what asks the system; plans reckon with it"),
    "collectives_per_step": (6, "costs are over it; two figures draw it"),
    "bytes_per_step": (4, "a note below the table asks for it"),
    "exchange_share": (4, "so is called the function that measures it"),
}


def naming(word):
    """The files of harness/, strategies/ and scripts/ that name it."""
    whole = re.compile(rf"\b{re.escape(word)}\b".encode())
    return sorted(path.relative_to(ROOT).as_posix() for folder in ("harness", "strategies", "scripts")
                  for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
                  and whole.search(path.read_bytes()))


def in_schema(path, of):
    """Whether the schema of a record knows the dotted path."""
    if "$ref" in of:
        return in_schema(path, SCHEMA["$defs"][of["$ref"].rsplit("/", 1)[-1]])
    if "anyOf" in of:
        return any(in_schema(path, one) for one in of["anyOf"])
    first, _, rest = path.partition(".")
    known = of.get("properties", {}).get(first) or of.get("additionalProperties")
    return isinstance(known, dict) and (not rest or in_schema(rest, known))


class Measures(unittest.TestCase):
    def test_few_files_name_a_key(self):
        for key in (each["key"] for each in TABLE if "key" in each):
            with self.subTest(key):
                files = naming(key)
                self.assertLessEqual(len(files), MORE.get(key, (MOST,))[0], files)
                self.assertTrue(key not in MORE or len(files) > MOST, f"{key} need not stand in MORE")

    def test_the_schema_has_what_the_table_reads(self):
        for each in TABLE:
            path = each.get("path", [])
            for one in [path] if isinstance(path, str) else path:
                self.assertTrue(in_schema(one, SCHEMA), one)

    def test_a_line_has_the_keys_that_the_program_reads(self):
        known = set(re.findall(r'option\("(\w+)"', (ROOT / "harness/experiment/measures.hpp").read_text(encoding="utf-8")))
        self.assertEqual({key for each in TABLE for key in each} - known, set())
        self.assertEqual(known - {key for each in TABLE for key in each}, set())


if __name__ == "__main__":
    unittest.main()
