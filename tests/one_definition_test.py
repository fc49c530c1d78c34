#!/usr/bin/env python3
"""No two classes of the project have the same full name: programs that hold both would mix up their members, and no
compiler or linker says so.

  python3 tests/one_definition_test.py
"""

import collections
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh"}
HIDDEN = "<unnamed>"
# Comments, and texts in quotes.
SKIPPED = re.compile(r'R"(?P<mark>\w*)\(.*?\)(?P=mark)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
SCOPE = re.compile(
    r"\bnamespace\s*(?P<space>[\w:]*)\s*{"
    r"|\b(?:struct|class)\s+(?P<name>\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?{"
    r"|(?P<open>{)|}"
)


def classes(text):
    """The full names of the classes that other sources could see."""
    scopes = []  # the name of a namespace, or None
    for match in SCOPE.finditer(SKIPPED.sub(" ", text)):
        if match.group() == "}":
            if scopes:
                scopes.pop()
        elif match.group("space") is not None:
            scopes.append(match.group("space") or HIDDEN)
        else:
            if match.group("name") and None not in scopes and HIDDEN not in scopes:
                yield "::".join([*scopes, match.group("name")])
            scopes.append(None)


def defined_twice(root):
    places = collections.defaultdict(set)
    for folder in ("harness", "strategies"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                for name in classes(path.read_text(encoding="utf-8")):
                    places[name].add(path.relative_to(root).as_posix())
    return {name: sorted(found) for name, found in places.items() if len(found) > 1}


class OneDefinition(unittest.TestCase):
    def test_every_class_has_a_name_of_its_own(self):
        self.assertEqual(defined_twice(ROOT), {})

    def test_finds_the_classes_of_this_project(self):
        text = (ROOT / "harness/strategy.hpp").read_text(encoding="utf-8")
        self.assertEqual(list(classes(text)), ["bnlab::Batch", "bnlab::StepWork", "bnlab::Strategy"])

    def test_a_second_definition_is_found(self):
        first = "namespace bnlab {\nclass Sum : public A {};\nvoid f() { struct Local {}; }\n}"
        for second, twice in {
            "namespace bnlab { // struct {\nstruct Sum {};\n}": True,
            "namespace bnlab {\nclass Sum;\n}": False,
            "namespace bnlab {\nnamespace {\nclass Sum {};\n}\n}": False,
            "namespace bnlab::shuffle {\nclass Sum {};\n}": False,
            "namespace bnlab {\nclass Other { struct Sum {}; struct Local {}; };\n}": False,
            'namespace bnlab {\nconst char* kText = "class Sum {";\n}': False,
        }.items():
            with self.subTest(second), tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "harness").mkdir()
                (root / "harness/a.hpp").write_text(first)
                (root / "harness/b.cpp").write_text(second)
                self.assertEqual(list(defined_twice(root)), ["bnlab::Sum"] if twice else [])


if __name__ == "__main__":
    unittest.main()
