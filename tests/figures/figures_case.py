"""A test that draws figures of a made-up report and looks at what came."""

import contextlib
import csv
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

import plot  # first: it says where the modules of the figures are

from synthetic import report


class FiguresCase(unittest.TestCase):
    figures = plot.FIGURES  # those that the cases of a class draw

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = Path(self.folder.name) / "out"

    def draw(self, cells, *options, contrasts=(), published=(), out=None, **about):
        """Draws a report of these cells and returns what was printed."""
        return self.draw_text(json.dumps(report(cells, contrasts, published, **about)), *options, out=out)

    def draw_text(self, text, *options, out=None):
        printed = io.StringIO()
        stdin, sys.stdin = sys.stdin, io.StringIO(text)
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                names = [figure.__name__ for figure in self.figures]
                self.status = plot.main(["--out", str(out or self.out), "--figures", *names, *options])
            for file in Path(out or self.out).glob("*.svg"):
                self.assertNotIn("?</text>", file.read_text(encoding="utf-8"), "a figure states what it shows")
        finally:
            sys.stdin = stdin
        return printed.getvalue()

    def rows(self, figure, **where):
        with open(self.out / f"{figure}.csv", encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in where.items())]

    def svg(self, figure):
        return (self.out / f"{figure}.svg").read_text(encoding="utf-8")

    def texts(self, figure):
        """All texts of a figure, with plain spaces."""
        texts = [piece.split("</text>")[0].split(">", 1)[-1] for piece in self.svg(figure).split("<text ")[1:]]
        return [text.replace("\u00a0", " ").replace("&#215;", "×") for text in texts]

    def caption(self, figure):
        """The same in one line."""
        return " ".join(self.texts(figure))
