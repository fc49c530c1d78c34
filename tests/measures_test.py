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
MOST = 3  # files: the table, what measures the number, and what computes with it
# Keys that more files may name, and why.
MORE = {}


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
                most, why = MORE.get(key, (MOST, "the rule"))
                self.assertLessEqual(len(files), most, f"{why}: {files}")
                if key in MORE:
                    self.assertEqual(len(files), most, f"fewer than MORE says: {files}")

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
