"""What is committed, as the program reports it: BNLAB_PROGRAM, else build/release/bnlab."""

import functools
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("BNLAB_PROGRAM", ROOT / "build" / "release" / "bnlab"))
# Pages that are made otherwise have a publish.sh of their own.
EXPERIMENTS = sorted(page.parent.name for page in (ROOT / "results").glob("*/README.md")
                     if not (page.parent / "publish.sh").exists())


def _bnlab(*words):
    return subprocess.run([PROGRAM, *words, "--results", ROOT / "results"], check=True, cwd=ROOT, capture_output=True,
                          encoding="utf-8").stdout


@functools.cache
def _pages():
    """By experiment: the committed page with what `bnlab report NAME --into results` writes into it."""
    with tempfile.TemporaryDirectory() as folder:
        pages = {name: Path(folder) / name / "README.md" for name in EXPERIMENTS}
        for name, page in pages.items():
            page.parent.mkdir()
            page.write_text(page_of(name), encoding="utf-8")
        _bnlab("report", *EXPERIMENTS, "--into", folder)
        return {name: page.read_text(encoding="utf-8") for name, page in pages.items()}


def bnlab_page(name):
    return _pages()[name]


def table_in(page, name):
    return page.split(f"<!-- table:{name} -->\n")[1].split("<!-- end -->")[0]


@functools.cache
def _reports():
    """By experiment: its report as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        _bnlab("report", *EXPERIMENTS, "--format", "json", "--out", folder)
        return {file.stem: file.read_text(encoding="utf-8") for file in Path(folder).glob("*.json")}


def bnlab_report(name):
    return _reports()[name]


def page_of(name):
    return (ROOT / "results" / name / "README.md").read_text(encoding="utf-8")


def written_on(name):
    """The page as people wrote it: without what the program put there."""
    return re.sub(r"<!-- (?:summary|table):.*?<!-- end -->\n?", "", page_of(name), flags=re.DOTALL)


def answered(document):
    """The pages whose answers a document has, in the order of experiments/README.md: README.md has the first one of each
    question and the prediction, results/README.md has all experiments."""
    questions = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8").split("| | spec | question |\n")[1]
    rows = [line.split("|")[1:3] for line in questions.split("\n\n")[0].split("\n")]
    names = [re.findall(r"`(\w+)\.json`", specs) for _, specs in rows]
    if document == "README.md":
        names = [found[:1] for found, (question, _) in zip(names, rows) if question.strip().startswith("Q")]
    found = [name for found in names for name in found
             if re.search(r"^\*\*In numbers\.\*\*", page_of(name), re.MULTILINE)]
    return found + ["prediction"] if document == "README.md" else found


_MARK, _END = "<!-- table:answers -->\n", "<!-- end -->"


@functools.cache
def evidence():
    """{NAME: "firm", ...}: how well the answer of each experiment is founded."""
    return dict(reversed(found) for found in re.findall(r"\((firm|once|seen|predicted|open)\)\n  .*?(\w+)$", _bnlab("answers", "--short"),
                                                        re.MULTILINE))


def with_answers(document):
    """The text of a document of this project, its table of answers written again."""
    before, table = (ROOT / document).read_text(encoding="utf-8").split(_MARK)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.md"
        page.write_text(_MARK + _END + "\n", encoding="utf-8")
        _bnlab("answers", *answered(document), *(["--short"] if document == "README.md" else []), "--into", page)
        answers = page.read_text(encoding="utf-8").removeprefix(_MARK).split(_END)[0]
        there = os.path.relpath(ROOT / "results", Path(folder).resolve()) + "/"
    here = os.path.relpath(ROOT / "results", (ROOT / document).parent) + "/"
    answers = answers.replace(f"]({there}", f"]({here}").replace("](./", "](")
    return before + _MARK + answers + _END + table.split(_END, 1)[1]
