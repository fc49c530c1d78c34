"""The numbers that people write on results/NAME/README.md, looked up in what `bnlab report` says of NAME.

A number is looked up where it has decimals, an interval or a unit of UNITS; other integers are counts. It is right where a
fact of the report is that number in the unit that is written, rounded to the digits that are written. Where its paragraph,
bullet or row of a table names strategies or norm sites in backticks, or a title does in PLAIN_WORDS, only facts of these count.
Facts of sites count where the word "site" is there and what they tell of ("mean", "variance", "between"), those of classes,
pixels or groups of the test split where these are named, points of a curve where their step is, single seeds where "seed 3" is.
Free of this are

- numbers without a unit that stand in the spec (rates, weights);
- what stands in quotation marks: expectations, and what other people say;
- numbers of another page, beside a link to it: its report is then looked up, too.

  python3 tests/figures/page_numbers.py [NAME...]     how many numbers are looked up, and which are wrong
"""

import functools
import json
import re
import sys
from collections import namedtuple

from committed import EXPERIMENTS, ROOT, bnlab_report, written_on
from facts import facts_of

# What is written: the number and one unit of its last digit, and the same of what follows ±, or None.
Number = namedtuple("Number", "text value step half_width half_step unit start")

UNITS = {  # what is written -> kinds of facts, and what turns their unit into this one
    "points": [("score", 100), ("difference", 100), ("contrast", 100)],
    "%": [("contrast", 100), ("score", 100), ("site", 100), ("ratio", 100), ("quotient", 100), ("loss of rate", 100)],
    "times": [("ratio", 1), ("quotient", 1)],
    "images/s": [("rate", 1), ("contrast", 1)],
    "collectives": [("collectives", 1)],
    "ms": [("ms", 1)],
    "µs": [("us", 1)],
    **{unit: [("bytes", 1 / size)]
       for unit, size in (("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30))},
    "p": [("p", 1)],
    "p <": [("p", 1)],
    "within": [("difference", 1), ("contrast", 1)],
    "": [("score", 1), ("score", 100), ("contrast", 1), ("contrast", 100), ("ratio", 1), ("rate", 1), ("site", 1),
         ("curve", 1)],
}
UNITS |= {f"within {unit}": [("margin", 100), *UNITS[unit]] for unit in ("points", "%")}

_DIGITS = r"\d+(?:,\d{3})*(?:\.\d+)?"
_NUMBER = re.compile(
    rf"(?<![\w.,/=^])(?P<within>(?:within|by) )?(?P<p>p (?P<below><)?(?:= |of | )?)?"
    rf"[-−]?(?P<value>{_DIGITS})(?!\w|[.,/]\d)(?: ?± ?(?P<half>{_DIGITS}))?"
    r"(?: ?(?P<unit>points?\b|%|times\b|images/s|collectives\b|[mµ]s\b|[KMG]i?B\b)"
    r"|(?P<points> (?:of the|to|and|or) (?=[\d.]+ points)))?")
PLAIN_WORDS = {"sync": "[Ss]ynchronis", "per_tower": "each GPU's own statistics", "group_norm": "[Gg]roup norm",
               "frozen": "[Ff]reezing|frozen"}  # of titles
_NOT_OURS = re.compile(r'`[^`]*`|"[^"]*"|\]\([^)]*\)|\b95 % (?=t |interval)')


def blocks_of(text):
    """Paragraphs, bullets and rows of tables, a line each, without code and comments, and without what was seen before: of that
    there are no records."""
    blocks = [""]
    for line in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split("\n"):
        if not line.strip() or line.startswith("    "):
            blocks.append("")
        elif re.match(r"[-|#]", line):
            blocks.append(line)
        else:
            blocks[-1] += " " + line.strip()
    return [block.strip() for block in blocks if block and not block.strip().startswith("**Seen before.**")]


def numbers_in(block):
    """Those that are looked up unless the spec has them."""
    for match in _NUMBER.finditer(_NOT_OURS.sub(lambda other: "`" * len(other.group()), block)):
        value, half = match["value"], match["half"]
        unit = "p <" if match["below"] else "p" if match["p"] else "points" if match["points"] else match["unit"] or ""
        if "." in value or half or unit:
            unit = "points" if unit == "point" else unit or ("within" if match["within"] else "")
            unit = f"within {unit}" if match["within"] == "within " and f"within {unit}" in UNITS else unit
            yield Number(match.group().strip(), *_read(value), *(_read(half) if half else (None, None)), unit, match.start())


def _read(digits):
    return float(digits.replace(",", "")), 10.0 ** -len(digits.partition(".")[2])


def is_right(number, fact):
    if number.unit == "p <":
        return fact.kind == "p" and fact.value < number.value
    return any(_rounds(value, number.value, number.step) for value in values_for(number, fact))


def values_for(number, fact):
    """The fact in the unit of the number, once for each kind that it may be; none where the kind or the interval differs."""
    for kind, factor in UNITS[number.unit]:
        if kind == fact.kind and (number.half_width is None or fact.half_width is not None and
                                  _rounds(fact.half_width * factor, number.half_width, number.half_step)):
            yield fact.value * factor


def _rounds(exact, written, step):
    return abs(abs(exact) - written) <= 0.5 * step + 1e-9


class Page:
    """What a page may state. `facts`: of the report; `elsewhere`: from another page's name to its facts."""

    def __init__(self, facts, spec="", elsewhere=lambda name: []):
        self.facts, self.elsewhere = facts, elsewhere
        self.spec = [float(text) for text in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])", spec)]

    def numbers(self, text):
        """[(number, facts that count, block)] of all that is looked up."""
        for block in blocks_of(text):
            facts = None
            for number in numbers_in(block):
                if not self._is_of_spec(number):
                    facts = self._facts_for(block) if facts is None else facts
                    yield number, facts, block

    def _is_of_spec(self, number):
        return (number.unit in ("", "within") and number.half_width is None and
                any(_rounds(each, number.value, number.step) for each in self.spec))

    def wrong(self, text):
        """A sentence for each number that is none of the facts."""
        for number, facts, block in self.numbers(text):
            if not any(is_right(number, fact) for fact in facts):
                others = [fact.of for fact in self.facts if is_right(number, fact)][:3]
                hint = f", but {'; '.join(others)} would be" if others else ""
                yield f"{number.text} is no fact of the report{hint}\n    {_sentence_at(number.start, block)}"

    def _facts_for(self, block):
        linked = re.findall(r"\]\((?:\.\./)?(\w+)/README", block)
        reports = [self.facts, *map(self.elsewhere, linked)]
        spans = set(re.findall(r"`([^`]*)`", block))
        spans |= {name for name, words in PLAIN_WORDS.items() if block.startswith("# ") and re.search(words, block)}
        named = [_named(spans, set().union(*(fact.strategies for fact in facts))) for facts in reports]
        facts = [fact for facts, here in zip(reports, named) for fact in facts if not any(named) or fact.strategies & here]
        sites = spans & {fact.site for fact in facts}
        words = set(re.findall(r"\w+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d)", "", block)))
        words |= {form for word in words for form in (word.lower(), word.removesuffix("s"), word.removesuffix("es"))}
        words |= {f"seed {number}" for number in re.findall(r"\b[Ss]eed \(?(\d+)", block)}
        return [fact for fact in facts if words.issuperset(fact.needs) and
                (not sites or fact.site is None or fact.site in sites)]


def _named(spans, labels):
    """The strategies of a report that are named, if need be without their options."""
    return {label for label in labels if label in spans or (_name(label) in spans and _name(label) not in labels)}


def _name(label):
    return label.partition("(")[0]


def _sentence_at(place, block):
    ends = [0, *(match.end() for match in re.finditer(r"[.:;] ", block)), len(block)]
    return block[max(end for end in ends if end <= place):min(end for end in ends if end > place)].strip()


@functools.cache
def committed_facts(name):
    return facts_of(json.loads(bnlab_report(name)))


def committed_page(name):
    return Page(committed_facts(name), _spec(next((ROOT / "experiments").rglob(f"{name}.json"))), committed_facts)


def _spec(file):
    text = file.read_text(encoding="utf-8")
    extended = re.search(r'"extends": *"([^"]+)"', text)
    return text + (_spec(file.parent / extended[1]) if extended else "")


def main(names):
    some_wrong = False
    for name in names or EXPERIMENTS:
        page, text = committed_page(name), written_on(name)
        wrong = list(page.wrong(text))
        print(f"{name}: {len(list(page.numbers(text)))} numbers looked up, {len(wrong)} wrong")
        for sentence in wrong:
            print(f"  {sentence}")
        some_wrong = some_wrong or bool(wrong)
    return int(some_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
