"""How a page reads, by rules that a program can check: what of it breaks which rule.

  python3 tests/pages/prose.py PAGE...     what stands out, rule by rule
"""

import re
import sys
from pathlib import Path

MOST_WORDS, MOST_NUMBERS, LONGEST_CELL, LONGEST_PARAGRAPH = 30, 3, 120, 500
LOOKED_UP = {"experiments/spec.md": 49, "experiments/sources.md": 13}  # kilobytes of what nobody reads from top to bottom
CODE_WORDS = 15  # in a row: no code, but prose in its dress

_COUNT = r"(?:one|two|three|four|five|six|seven|eight|sixteen)"
# What says it longer, later or less clearly than a plain word does.
HOUSE_WORDS = re.compile(
    r"\bby the means\b|\bso the means lie\b|\bbeside\b|\bin place of\b|\b(?:is|are) not seen to\b|\bdoes not know the (?:towers|GPUs)\b|\bthat of\b"
    # "at one" of what? Of a list the whole, by a lookahead: Python 3.11.2 loses matches of *+.
    rf"|\bat {_COUNT}(?=(?P<more>(?:(?:, | and | or | to ){_COUNT})*))(?P=more)(?=[^\w\s]|$|\s(?:and|or|it|they|the|a|on|in|is|are|as|by|per|over|under|against|where|which)\b)",
    re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w./-])[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w/])")
_PICTURE, _LINK, _CODE = re.compile(r"!\[([^\]]*)\]\([^)]*\)"), re.compile(r"\[([^\]]*)\]\([^)]*\)"), re.compile(r"`[^`]*`")
_BRACKET = re.compile(r"(?<!\w)\(")  # none of a label: group_norm(groups=4)
_COMMENT, _MARKER = re.compile(r"<!--(.*?)-->", re.DOTALL), re.compile(r"\s*[\w:-]+\s*")


class Blocks:
    """What a page consists of. A paragraph is one line, whatever it was wrapped to."""

    def __init__(self, text):
        self.paragraphs, self.cells, self.code, self.pictures = [], [], [], _PICTURE.findall(text)
        self.comments = [found for found in _COMMENT.findall(text) if not _MARKER.fullmatch(found)]
        self._paragraph = []
        self._read(_COMMENT.sub(lambda found: found.group() if _MARKER.fullmatch(found[1]) else "", text).split("\n"))
        self._end()

    def _end(self):
        if self._paragraph:
            self.paragraphs.append(" ".join(self._paragraph))
        self._paragraph = []

    def _read(self, lines):
        fenced, after_blank, folded, of_program, summary = False, True, False, False, False
        for line in lines:
            folded = (folded or "<details" in line) and "</details" not in line
            of_program = (of_program or "<!-- table:" in line) and "<!-- end" not in line
            summary = (summary or "<!-- summary:" in line) and "<!-- end" not in line  # whose cells name strategies and options
            text = re.sub(r"<[^>]+>", " ", line).strip().removeprefix("> ")
            if folded and of_program and text.startswith("|"):
                self._end()
            elif line.lstrip().startswith("```"):
                self._end()
                fenced = not fenced
            elif fenced or (after_blank and line.startswith("    ") and text):
                self.code.append(text)
                continue  # a line below code is code, too
            elif text.startswith("|"):
                self._end()
                if not summary and not re.fullmatch(r"[|\s:-]+", text):
                    self.cells += [cell.strip() for cell in re.split(r"(?<!\\)\|", text)[1:-1]]
            else:
                begun = re.match(r"(?:[-*+]|\d+\.|#+)\s+", text)
                if begun or not text:
                    self._end()
                if text:
                    self._paragraph.append(text[begun.end() if begun else 0:])
                if text.startswith("#"):
                    self._end()
            after_blank = not line.strip()


def plain(text):
    """As it is read: links are their text, pictures nothing."""
    return _LINK.sub(r"\1", _PICTURE.sub("", text)).replace("**", "")


def sentences(text):
    text = re.sub(r"\b(e\.g|i\.e|vs|et al|etc|approx)\.", r"\1", text)
    return [found for found in re.split(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`*\[(\"])", text) if found.strip()]


def without_code(text):
    return _CODE.sub("`", text)


def faults(text, is_strict=False):
    """{rule: what breaks it} of a page. Strict: README, answers and the pages that both lead to."""
    blocks = Blocks(text)
    all_sentences = [found for block in blocks.paragraphs + blocks.cells for found in sentences(block)]
    found = {
        "words": [each for each in all_sentences if len(plain(each).split()) > MOST_WORDS],
        "numbers": [each for each in all_sentences if len(_NUMBER.findall(without_code(plain(each)))) > MOST_NUMBERS],
        "links": [each for each in all_sentences if len(_LINK.findall(_PICTURE.sub("", each))) > 1],
        "brackets": [each for each in all_sentences if len(_BRACKET.findall(without_code(plain(each)))) > 1],
        "house": [each for each in all_sentences for _ in HOUSE_WORDS.findall(without_code(plain(each)))],
        "cells": [cell for cell in blocks.cells if len(plain(cell)) > LONGEST_CELL],
        "paragraphs": [block for block in blocks.paragraphs if len(plain(block)) > LONGEST_PARAGRAPH],
        "hidden": [line for line in blocks.code if re.search(rf"(?:\b[A-Za-z'-]+[,;:.]? ){{{CODE_WORDS - 1}}}[A-Za-z]", line)]
                  + [comment for comment in blocks.comments if len(comment.split()) > 3]
                  + [alt for alt in blocks.pictures if len(alt) > LONGEST_CELL],
    }
    if is_strict:
        found["semicolons"] = [each for each in all_sentences if ";" in without_code(plain(each))]
    return {rule: broken for rule, broken in found.items() if broken}


def over_size(page, text):
    """Kilobytes and tens of lines that it has too many, begun ones included. What is folded does not count on a result page."""
    kilobytes, lines = budget(page)
    if re.fullmatch(r"results/\w+/README\.md", page):
        text = text.split("<details>")[0]
    return (max(0, -((1000 * kilobytes - len(text.encode())) // 1000)) if kilobytes else 0) + (
        max(0, -((lines - text.count("\n")) // 10)) if lines else 0)


def budget(page):
    """(kilobytes, lines), 0: any."""
    if page == "README.md":
        return 8, 150
    if page == "CHANGELOG.md":
        return 0, 0
    if page in LOOKED_UP:
        return LOOKED_UP[page], 0
    if re.fullmatch(r"results/\w+\.md", page):
        return 8, 0
    if page.endswith("/README.md") or page.startswith("results/"):
        return 5, 0
    return 0, 80


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for rule, broken in faults(Path(name).read_text(encoding="utf-8"), is_strict=True).items():
            for one in broken:
                print(f"{name}: {rule}: {one}")
