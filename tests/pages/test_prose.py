#!/usr/bin/env python3
"""Holds how pages read: sentences, cells, paragraphs and sizes by the rules of prose.py. What breaks a rule today is counted in
prose_counts.json, and may become less, never more; README, the pages of HELD_AT_ZERO and the answers break none. A new page
begins at zero.

  python3 tests/pages/test_prose.py
  python3 tests/pages/test_prose.py lower     write down that there is less; without prose_counts.json, what there is
"""

import json
import sys
import unittest
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parents[2]
COUNTS = Path(__file__).with_name("prose_counts.json")
FOLDERS = ["experiments", "harness", "results", "scripts", "strategies", "tests"]
HELD_AT_ZERO = ["README.md", "results/limits.md", "results/questions.md"]


def pages(root=ROOT):
    found = [*root.glob("*.md"), *(page for folder in FOLDERS for page in (root / folder).rglob("*.md"))]
    made_here = ("results/here/", "results/gpu_check/")
    return {name: page.read_text(encoding="utf-8") for page in sorted(found)
            if not (name := page.relative_to(root).as_posix()).startswith(made_here)}


def faults(page, text):
    found = prose.faults(text, is_strict=page in HELD_AT_ZERO)
    return {rule: len(broken) for rule, broken in found.items()} | ({"size": over} if (over := prose.over_size(page, text)) else {})


def changes(page, text, held):
    """A sentence for each rule of which the page breaks another number than it is held to."""
    now = faults(page, text)
    for rule in sorted(now.keys() | held.keys()):
        count, before = now.get(rule, 0), held.get(rule, 0)
        if count != before:
            cure = ("see them: python3 tests/pages/prose.py " + page if count > before else
                    "hold it there: python3 tests/pages/test_prose.py lower")
            yield f"{page}: {rule}: {count}, held to {before}; {cure}"


class Prose(unittest.TestCase):
    def test_no_page_reads_worse_than_it_is_held_to_and_the_first_ones_break_no_rule(self):
        held = json.loads(COUNTS.read_text(encoding="utf-8"))
        self.assertEqual(held.keys() & set(HELD_AT_ZERO), set())
        there = pages()
        self.assertEqual(sorted(held.keys() - there.keys()), [], "these pages are gone: python3 tests/pages/test_prose.py lower")
        wrong = [change for page, text in there.items() for change in changes(page, text, held.get(page, {}))]
        self.assertFalse(wrong, "\n" + "\n".join(wrong))


class Planted(unittest.TestCase):
    """Each rule sees what it is for, and nothing in what is just right."""

    def check(self, rule, right, wrong, is_strict=False):
        self.assertEqual(prose.faults(right, is_strict), {}, rule)
        self.assertEqual({found: len(broken) for found, broken in prose.faults(wrong, is_strict).items()}, {rule: 1}, wrong)

    def test_long_sentences(self):
        words = "A " + "a " * 28 + "b"
        self.check("words", f"{words}. {words}.", f"{words} c.")
        self.check("words", f"| {'a ' * 30}|", f"| {'a ' * 31}|")
        self.check("words", f"- {words}\n- {words}\n  ", f"- {words}\n  c")
        self.check("words", f"# {words}\n{words}", f"<details><summary>x</summary>\n\n{words} c.\n</details>")

    def test_numbers_links_and_brackets(self):
        self.check("numbers", "1, 2.5 and 3 % of `sync(x=4)` in v5.", "1, 2, 3 and 4.")
        self.check("links", "[a](b). See ![p](q) and [c](d).", "[a](b) and [c](d).")
        self.check("brackets", "One (two) `f(x)` f(g(x)). Three [four](five) (six).", "One (two) and three (four).")

    def test_cells_paragraphs_and_semicolons(self):
        self.check("cells", f"| {'x' * 120} |\n|---|", f"| {'x' * 121} |")
        self.check("paragraphs", "x" * 500 + "\n\n" + "x" * 500, "x" * 250 + "\n" + "x" * 250)
        self.check("semicolons", "Do `a; b`.", "Do a; b.", is_strict=True)
        self.assertEqual(prose.faults("Do a; b."), {})

    def test_what_the_program_writes_counts_but_for_folded_tables(self):
        for note in ("1, 2, 3 and 4.", "- 1, 2, 3 and 4."):
            self.check("numbers", "", f"<!-- table:x -->\n{note}\n<!-- end -->\n")
            self.check("numbers", "", f"<details>\n<!-- table:x -->\n| x |\n\n{note}\n<!-- end -->\n</details>")
        table = f"<!-- table:x -->\n| {'x' * 121} |\n<!-- end -->\n"
        self.check("cells", f"<details>\n{table}</details>", table)
        self.check("cells", f"<details>\n{table}</details>", f"<details>\n| {'x' * 121} |\n</details>")

    def test_prose_that_hides(self):
        prose_of_fifteen = "this is a line of prose that has dressed up as code to slip through"
        self.check("hidden", f"    {prose_of_fifteen[5:]}", f"    {prose_of_fifteen}")
        self.check("hidden", "```\nbnlab run x   trains, slowly\n```\n", f"```\n{prose_of_fifteen}\n```\n")
        self.check("hidden", "<!-- table:x --><!-- end -->", "<!-- this is\n a note -->")
        self.check("hidden", f"![{'x' * 120}](y.png)", f"![{'x' * 121}](y.png)")

    def test_house_words(self):
        for wrong in ("It wins by the means.", "0.2 beside 0.7.", "0.2 in place of 0.7.", "So the means lie.", "That is not seen to help.",
                      "It loses at one.", "It loses at one and at two images.", "At one and two it loses.", "At one, two and four, it loses.",
                      "What does not know the towers.", "The loss is that of `sync`."):
            self.assertEqual([*prose.faults(wrong)], ["house"], wrong)
        for right in ("It loses at one image.", "At one and two images it loses.", "At one, two and four images.", "At one of them.",
                      "The means lie apart.", "That often."):
            self.assertEqual(prose.faults(right), {}, right)

    def test_sizes(self):
        for page, budget in (("README.md", 8000), ("results/README.md", 8000), ("results/x/README.md", 5000), ("harness/x/README.md", 5000), ("experiments/spec.md", 49000), ("experiments/sources.md", 13000)):
            self.assertEqual([prose.over_size(page, "x" * size) for size in (budget, budget + 1, budget + 1001)], [0, 1, 2], page)
        self.assertEqual([prose.over_size("strategies/own.md", "\n" * lines) for lines in (80, 81, 91)], [0, 1, 2])
        self.assertEqual(prose.over_size("README.md", "\n" * 151), 1)
        self.assertEqual(prose.over_size("results/x/README.md", "x" * 4000 + "<details>" + "x" * 4000), 0)
        self.assertEqual(prose.over_size("CHANGELOG.md", "x\n" * 9000), 0)

    def test_a_count_may_only_fall_and_then_is_held_there(self):
        def changed(text, held):
            return [change.split(";")[0] for change in changes("a.md", text, held)]
        self.assertEqual(changed("1, 2, 3 and 4.", {"numbers": 1}), [])
        self.assertEqual(changed("1, 2, 3 and 4.", {}), ["a.md: numbers: 1, held to 0"])
        self.assertEqual(changed("1.", {"numbers": 1}), ["a.md: numbers: 0, held to 1"])


def lower():
    """No count is raised: what has become more stays to be mended."""
    held = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else None
    lines = []
    for page, text in pages().items():
        counts = faults(page, text)
        if page in HELD_AT_ZERO:
            counts = {}
        elif held is not None:
            counts = {rule: min(count, held.get(page, {}).get(rule, 0)) for rule, count in counts.items()}
        if counts := {rule: count for rule, count in counts.items() if count}:
            lines.append(f" {json.dumps(page)}: {json.dumps(counts)}")
    COUNTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["lower"]:
        lower()
    else:
        unittest.main()
