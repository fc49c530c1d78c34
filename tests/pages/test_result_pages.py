#!/usr/bin/env python3
"""The form of a result page: the finding as title, advice and certainty, a figure and its numbers, a table, what was expected, how it was made,
limits; all else folded.

  python3 tests/pages/test_result_pages.py
"""

import re
import unittest
from pathlib import Path

import prose

RESULTS = Path(__file__).resolve().parents[2] / "results"
MOST_LINES, MOST_BYTES = 80, 5000
LONGEST_TITLE, MOST_WORDS_OF_A_TITLE, MOST_WORDS_OF_ADVICE, MOST_WORDS_OF_BOTH, LONGEST_QUESTION = 90, 15, 25, 60, 90
MOST_WORDS_UNTIL_KNOWN = 45  # of title, advice and certainty, above the figure: 14 seconds at 200 words a minute
MOST_LIMITS = 5
WORDS_OF_EVIDENCE = "../limits.md#what-a-verdict-means"
PARTS = ["# ", "**Advice.** ", "**How sure.** ", "![", "**Question.** ", "**In numbers.** ", "Rests on", "<!-- summary:NAME -->", "<!-- end -->",
         "## Expected beforehand", "## How it was made", "## Limits", "<details><summary>"]
FOLDED = ["<!-- table:NAME -->", "<!-- end -->", "</details>"]
# What **How sure.** says: whose comparisons have which word, where they differ; *seen* and *predicted* have reasons of their own.
CERTAINTIES = {"Firm": r": declared before the runs, and repeated\.| for .+, (?:once|open) for .+\.",
               "Once": r": declared before the runs, not repeated\.|: declared before the runs\. Its repeat was not\.| for .+, firm for .+\.",
               "Seen": r": expected beforehand, without a dated record\.|: declared after the runs\.|: one run\.|: \w+ seeds, so only a direction\.",
               "Open": r": declared before the runs, not decided\.",
               "Predicted": r": no exchange between GPUs was measured\."}
# Conditions, which stand in **In numbers.**, in columns and on the page of limits.
CONDITIONS = re.compile(r"\bn = |\bsteps\b|\bseeds?\b|\bdeclared\b", re.IGNORECASE)


def pages():
    """{NAME: text}"""
    return {page.parent.name: page.read_text(encoding="utf-8") for page in sorted(RESULTS.glob("*/README.md"))}


def is_of_an_experiment(name):
    """Pages that are made otherwise have a publish.sh of their own."""
    return not (RESULTS / name / "publish.sh").exists()


def paragraph(text, mark):
    found = re.search(rf"^{re.escape(mark)}(.*?)(?=\n\n|\nRests on|\n\*\*|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def words_until_known(text):
    """How many stand above the figure."""
    return len(prose.plain(text[:text.index("\n\n![")]).removeprefix("# ").split())


def vocabulary(text):
    """What the words of a page mean, as far as it uses them above the table: the paragraph below the numbers."""
    top = text.partition("<!-- summary:")[0].partition("<!-- table:")[0]
    top = re.sub(r"^\*Points\* .*\n(?:.+\n)*|^`(?:sync|per_tower)` takes .*\n(?:.+\n)*", "", top, flags=re.MULTILINE)
    rests_on = " ".join(top.partition("\nRests on")[2].partition("<!--")[0].split())
    said = []
    if re.search(r"\bpoints?\b", top.replace("log points", "")):
        metrics = [words for key, words in (("mean_iou", "of mean IoU"), ("top1", "of top-1 accuracy")) if key in rests_on]
        said.append(f"*Points* are hundredths {' or '.join(metrics) or 'of mean IoU'}.")
    ways = [f"`{name}` {words}" for name, words in (("sync", "over all GPUs"), ("per_tower", "over each GPU's own images"))
            if re.search(rf"`(?:[^`]* )?{name}\b", top)]
    if ways:
        said.append(", ".join(ways).replace("` over", "` takes statistics over", 1) + ".")
    if grouping := re.search(r"\b(\d+)x(\d+)\b(?!-cpu)", rests_on):
        gpus, images = grouping.groups()
        sample = "clip" if "shuffle" in rests_on else "image"
        said.append(f"`{grouping.group()}`: {gpus} GPUs with {images} {sample}{'s' if images != '1' else ''} each.")
    if placement := re.search(r"\b(\d+)x\d+-cpu\b", rests_on):
        said.append(f"`{placement.group()}`: {placement[1]} CPU ranks.")
    return " ".join(said)


def faults_of_words(text):
    """Sentences on words that a page does not explain, or explains otherwise than the others."""
    if not re.search(rf"^\*\*How sure\.\*\* \[\w+\]\({re.escape(WORDS_OF_EVIDENCE)}\)", text, re.MULTILINE):
        yield f"the word of evidence is no link to {WORDS_OF_EVIDENCE}"
    how_sure, rests_on = paragraph(text, "**How sure.** "), text.partition("\nRests on")[2].partition("<!--")[0]
    word, _, reason = prose.plain(how_sure).replace(":", " :").partition(" ")
    if not re.fullmatch(CERTAINTIES.get(word, r"\b\B"), reason if reason.startswith(":") else f" {reason}"):
        yield f"**How sure.** has other words than the other pages: {how_sure}"
    if word == "Once" and ("not repeated" in reason) == ("again in" in rests_on):
        yield "what it rests on was repeated, or not, otherwise than **How sure.** says"
    below_numbers = [" ".join(block.split()) for block in text.partition("\n**In numbers.** ")[2].split("\n\n")[1:2]]
    if (expected := vocabulary(text)) and below_numbers != [expected]:
        yield f"below the numbers stands not {expected!r}"


def faults_of_form(name, text):
    """Sentences on what differs from the form."""
    above, _, below = text.partition("<details>")
    lines, size = above.count("\n"), len(above.encode())
    if lines > MOST_LINES or size > MOST_BYTES:
        yield f"{lines} lines and {size} bytes stand before the folded part, at most {MOST_LINES} and {MOST_BYTES}"
    place = 0
    for part in PARTS + FOLDED:
        found = re.compile("^" + re.escape(part.replace("NAME", name)), re.MULTILINE).search(text, place)
        if found:
            place = found.end()
        elif part != "Rests on":
            yield f"{part.replace('NAME', name).strip()!r} is missing, or stands before what it should follow"
    if "\n|" in above.partition("<!-- summary:")[0] + above.partition("## Expected")[2]:
        yield "a table by hand stands before the folded part"
    for section, items in re.findall(r"^## (.*)\n\n((?:.+\n)*)", above, re.MULTILINE):
        bullets = re.split(r"^- ", items, flags=re.MULTILINE)[1:]
        if section == "Limits" and len(bullets) > MOST_LIMITS:
            yield f"there are {len(bullets)} limits, at most {MOST_LIMITS}"
        if section == "Expected beforehand" and not all(re.search(r"\*(came|did not come|open)\*", each) for each in bullets):
            yield "a part of what was expected has none of *came*, *did not come* and *open*"
    if below.count("<details") or text.count("\n# ") or re.search(r"^## ", below, re.MULTILINE):
        yield "there is one folded part, and no heading in it"


def faults_of_answer(text, strategies):
    """Sentences on what is wrong with title, question, advice and numbers."""
    title, question, advice, numbers = (paragraph(text, mark) for mark in ("# ", "**Question.** ", "**Advice.** ", "**In numbers.** "))
    for which, words, most in (("title", title, MOST_WORDS_OF_A_TITLE), ("advice", advice, MOST_WORDS_OF_ADVICE),
                               ("advice and numbers", f"{advice} {numbers}", MOST_WORDS_OF_BOTH)):
        if (count := len(prose.plain(words).split())) > most:
            yield f"the {which} has {count} words, at most {most}"
    for which, words, most in (("title", title, LONGEST_TITLE), ("question", question, LONGEST_QUESTION)):
        if len(words) > most:
            yield f"the {which} has {len(words)} characters, at most {most}"
    for which, words in (("title", title), ("advice", advice)):
        if found := CONDITIONS.search(words):
            yield f"the {which} has a condition, {found.group()!r}, which belongs to **In numbers.**"
        yield from (f"the {which}: {rule}: {broken[0]}" for rule, broken in prose.faults(words, is_strict=True).items())
    if not strategies & {span.partition("(")[0] for span in re.findall(r"`([^`]*)`", advice)}:
        yield "the advice names no strategy"


def known_strategies():
    return {name for file in (RESULTS.parent / "strategies").rglob("*.cpp")
            for name in re.findall(r'\bRegistered<\w+>\s+\w+\s*\{\s*\{\s*(?:\.name\s*=\s*)?"(\w+)"', file.read_text(encoding="utf-8"))}


class ResultPages(unittest.TestCase):
    def test_every_page_of_an_experiment_has_the_form(self):
        there = [name for name in pages() if is_of_an_experiment(name)]
        self.assertGreater(len(there), 30)
        wrong = [f"results/{name}/README.md: {fault}" for name in there for fault in faults_of_form(name, pages()[name])]
        self.assertFalse(wrong, "\n" + "\n".join(wrong))

    def test_answer_advice_and_certainty_are_known_after_few_words(self):
        counts = {name: words_until_known(text) for name, text in pages().items()}
        self.assertEqual({name: count for name, count in counts.items() if count > MOST_WORDS_UNTIL_KNOWN}, {})

    def test_the_index_has_every_page_by_its_question(self):
        """Those that the program writes no row for stand below its table."""
        table, below = (RESULTS / "README.md").read_text(encoding="utf-8").split("<!-- end -->\n")
        lacking = [line for name, text in pages().items() if f"]({name}/README.md)" not in table
                   and (line := f"- [{paragraph(text, '**Question.** ')}]({name}/README.md)\n") not in below]
        self.assertEqual(lacking, [])

    def test_answers_are_short_and_give_advice(self):
        answers, strategies = {name: text for name, text in pages().items() if "\n**In numbers.** " in text}, known_strategies()
        self.assertGreater(len(answers), 34)
        self.assertIn("prediction", answers)
        self.assertIn("sync", strategies)
        wrong = [f"results/{name}/README.md: {fault}" for name, text in answers.items() for fault in faults_of_answer(text, strategies)]
        self.assertFalse(wrong, "\n" + "\n".join(wrong))

    def test_every_page_explains_its_words_and_all_alike(self):
        answers = {name: text for name, text in pages().items() if "\n**In numbers.** " in text}
        wrong = [f"results/{name}/README.md: {fault}" for name, text in answers.items() for fault in faults_of_words(text)]
        self.assertFalse(wrong, "\n" + "\n".join(wrong))


PAGE = """# It wins 5 points

**Advice.** Take `sync`.

**How sure.** Firm: declared.

![It](figures/it.png)

**Question.** What wins?

**In numbers.** It wins.
Rests on `sync - x, y`.

<!-- summary:x -->
<!-- end -->

## Expected beforehand

- It wins: *came*.

## How it was made

- At once.

## Limits

- None.

<details><summary>All</summary>

<!-- table:x -->
<!-- end -->

</details>
"""


class Planted(unittest.TestCase):
    """Each rule sees what it is for, and nothing in what is just right."""

    def test_the_form(self):
        def faults(page):
            return [*faults_of_form("x", page), *faults_of_answer(page, {"sync"})]
        self.assertEqual(faults(PAGE), [])
        for right, wrong, fault in (
                ("- At once.", "- At once.\n" * 60, "lines and"), ("- At once.", "a" * 5000, "bytes stand"),
                ("![It]", "[It]", "'![' is missing"), ("<!-- summary:x -->", "<!-- summary:y -->", "summary:x"),
                ("## Limits", "## Bounds", "'## Limits'"), ("</details>", "", "'</details>'"),
                ("- At once.", "| a | b |", "by hand"), ("It wins 5 points", "a " * 16, "16 words"),
                ("It wins 5 points", "a" * 91, "91 characters"), ("What wins?", "a" * 91, "91 characters"),
                ("It wins 5 points", "It wins; it does", "semicolons"), ("It wins 5 points", "It wins on other seeds", "'seeds'"),
                ("Take `sync`.", "Take heart.", "no strategy"), ("Take `sync`.", "`sync` " + "a " * 25, "26 words"),
                ("**In numbers.** It wins.", "**In numbers.** " + "a " * 59, "61 words"), ("**Advice.** Take `sync`.\n\n", "", "missing"),
                ("- None.", "- None.\n" * 6, "6 limits"), ("*came*", "came", "a part of what"),
                ("<!-- table:x -->", "## More\n<!-- table:x -->", "no heading")):
            found = faults(PAGE.replace(right, wrong))
            self.assertTrue(any(fault in each for each in found), (wrong[:30], found))

    def test_the_words_that_a_page_explains(self):
        page = PAGE.replace("Firm: declared.", f"[Once]({WORDS_OF_EVIDENCE}): declared before the runs, not repeated.").replace("Rests on `sync - x, y`", "{}\nRests on `sync - x at {}, y`")
        explained = "`sync` takes statistics over all GPUs.", "*Points* are hundredths of mean IoU. "
        for at, right in (("z", explained[0]), ("8x1", explained[0] + " `8x1`: 8 GPUs with 1 image each."),
                          ("4x2", explained[0] + " `4x2`: 4 GPUs with 2 images each."), ("2x1-cpu", explained[0] + " `2x1-cpu`: 2 CPU ranks.")):
            self.assertEqual([*faults_of_words(page.format("\n" + explained[1] + right + "\n", at))], [], at)
            for wrong in ("", explained[1] + "`sync` takes all.", right):
                self.assertIn("below the numbers", " ".join(faults_of_words(page.format(f"\n{wrong}\n", at))), (at, wrong))
        right = page.format("\n" + "".join(reversed(explained)) + "\n", "z")
        self.assertIn("no link", next(faults_of_words(right.replace(f"]({WORDS_OF_EVIDENCE})", "]"))))
        in_part = right.replace(": declared before the runs, not repeated.", " for y, firm for x.")
        self.assertEqual([*faults_of_words(in_part.replace("z, y`", "z, y`, again in x"))], [])
        for wrong, fault in ((right.replace("z, y`", "z, y`, again in x"), "repeated, or not"), (in_part, "repeated, or not"),
                             (right.replace("not repeated", "partly repeated"), "other words"), (right.replace("[Once]", "[Seen]"), "other words"),
                             (right.replace("[Once]", "[Sure]"), "other words")):
            self.assertIn(fault, " ".join(faults_of_words(wrong)), wrong)

    def test_the_words_until_answer_advice_and_certainty_are_known(self):
        self.assertEqual(words_until_known(PAGE), len("It wins 5 points Advice. Take `sync`. How sure. Firm: declared.".split()))
        self.assertEqual(words_until_known("# It [wins](x)\n\nAs it\nwill.\n\n![It](x.png)\n\nMore.\n"), 5)


if __name__ == "__main__":
    unittest.main()
