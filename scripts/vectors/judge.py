#!/usr/bin/env python3
"""Judges implementations of batch normalisation by the files that `bnlab vectors` writes. Needs Python and NumPy alone.

  bnlab vectors --out vectors
  python3 scripts/vectors/judge.py vectors plain                  a line per implementation, and what it fails
  python3 scripts/vectors/judge.py vectors torch_whole_batch --only 'huge*' --verbose
  python3 scripts/vectors/judge.py vectors answers:FILE           answers of a program in any language
  python3 scripts/vectors/judge.py vectors answers:FILE --like plain_fault:biased       another's answers are expected
  python3 scripts/vectors/judge.py vectors torch_whole_batch timm --json OUT  the verdicts, for `--table OUT...` (README.md)

An implementation is a function from a Case to its answers, {name: array} with the names that Case.expected has. It
raises Unsupported where it has no way to be asked; any other exception is a refusal.
"""

import argparse
import datetime
import fnmatch
import importlib
import json
import pathlib
import runpy
import struct
import sys

import numpy

VERSION = 1  # of the files that this reads
RUNNING = ("running_mean", "running_var")
# name: the module beside this file that has it, as the function of that name
MODULES = {"plain": "plain", "plain_fault": "plain", "bnlab_program": "programs", "answers": "programs",
           "torch_whole_batch": "pytorch", "timm": "pytorch", "naive_sync": "pytorch",
           "flax_batch_norm": "flax_layers", "keras_whole_batch": "keras_layers", "keras_sync": "keras_layers",
           "horovod_sync": "horovod_layers", "mxnet_sync": "mxnet_layers"}


class Unsupported(Exception):
    """The implementation offers no way to compute this case; the text says why."""


def read_safetensors(file):
    """{name: array}: 8 bytes with the length of a JSON header, the header, the numbers."""
    data = pathlib.Path(file).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = {"F64": "<f8", "F32": "<f4", "I64": "<i8"}[entry["dtype"]]
        tensors[name] = numpy.frombuffer(data[8 + length + begin : 8 + length + end], dtype).reshape(entry["shape"])
    return tensors


class Case:
    """A case: its entry in vectors.json as attributes, and its tensors by their names behind the case's own."""

    def __init__(self, entry, tensors):
        self.__dict__.update(entry)  # name, catches, dtype, memory_format, rows, ranks_per_group, eps, momentum, ...
        self.tensors = {name[len(self.name) + 1 :]: t for name, t in tensors.items() if name.startswith(self.name + "/")}
        self.ranks = len(self.rows)
        size = self.ranks_per_group
        self.groups = [list(range(first, first + size)) for first in range(0, self.ranks, size)]
        self.channels = len(self.tensors["running_mean"])

    def weight(self):
        return self.tensors.get("weight", numpy.ones(self.channels))

    def bias(self):
        return self.tensors.get("bias", numpy.zeros(self.channels))

    def inputs(self, number):
        return [self.tensors[f"{number}/{rank}/input"] for rank in range(self.ranks)]

    def grad_outputs(self, number):
        """One per rank, or nothing where the pass has no backward pass."""
        return [self.tensors[f"{number}/{rank}/grad_output"] for rank in range(self.ranks)
                if self.passes[number]["backward"]]

    def expected(self):
        """{name: array} of what is to be answered: "0/1/output", "0/grad_weight", "0/running_var" [groups, channels]."""
        given = ("input", "grad_output")
        return {name: t for name, t in self.tensors.items() if "/" in name and name.split("/")[-1] not in given}

    def expected_with_biased_variance(self):
        """The same where the running variance remembers the divisor N in place of N - 1, and evaluations use that."""
        answers = dict(self.expected())
        unbiased = numpy.tile(self.tensors["running_var"], (len(self.groups), 1))
        biased = unbiased
        for number, one_pass in enumerate(self.passes):
            after = self.tensors[f"{number}/running_var"]
            if one_pass["mode"] == "train":
                weight = 1 / (number + 1) if self.momentum is None else self.momentum
                counts = numpy.array([[sum(self.inputs(number)[r][:, 0].size for r in group)] for group in self.groups])
                written = (after - (1 - weight) * unbiased) / weight * (counts - 1) / numpy.maximum(counts, 1)
                biased = numpy.where(counts > 0, (1 - weight) * biased + weight * written, biased)
            for group, ranks in enumerate(self.groups if one_pass["mode"] == "eval" else []):
                scale = numpy.sqrt((after[group] + self.eps) / (biased[group] + self.eps))
                for rank in ranks:
                    y, dx = (f"{number}/{rank}/{what}" for what in ("output", "grad_input"))
                    shape = [-1 if axis == 1 else 1 for axis in range(answers[y].ndim)]
                    bias = self.bias().reshape(shape)
                    answers[y] = (answers[y] - bias) * scale.reshape(shape) + bias
                    if dx in answers:
                        answers[dx] = answers[dx] * scale.reshape(shape)
                if f"{number}/grad_weight" in answers and len(self.groups) == 1:
                    answers[f"{number}/grad_weight"] = answers[f"{number}/grad_weight"] * scale
            unbiased = after
            answers[f"{number}/running_var"] = biased
        return answers


def read_cases(folder):
    file = pathlib.Path(folder) / "vectors.json"
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        sys.exit(f"{file}: {getattr(problem, 'strerror', None) or problem}; `bnlab vectors --out {folder}` writes it")
    if (index["format"], index["version"]) != ("batch-norm vectors", VERSION):
        sys.exit(f"{folder}: expected vectors of version {VERSION}, got {index['format']} {index['version']}")
    tensors = read_safetensors(pathlib.Path(folder) / index["tensors"])
    by_case = {}
    for name, tensor in tensors.items():
        for end in (i for i, letter in enumerate(name) if letter == "/"):
            by_case.setdefault(name[:end], {})[name] = tensor
    return [Case(entry, by_case[entry["name"]]) for entry in index["cases"]]


def error(kind, expected, answer):
    """The largest one. A value that is not a number is to be answered with one that is none either; of running
    statistics such channels are not judged."""
    if answer is None or numpy.shape(answer) != expected.shape:
        return numpy.inf
    answer = numpy.asarray(answer, dtype=numpy.float64)
    is_number = numpy.isfinite(expected)
    if not numpy.all(numpy.isfinite(answer[is_number])):
        return numpy.inf
    if kind not in RUNNING and numpy.any(numpy.isfinite(answer[~is_number])):
        return numpy.inf
    return float(numpy.max(numpy.abs(answer - expected)[is_number], initial=0))


def compare(case, expected, answers):
    """{kind: (error, allowed)} of the worst tensor of each kind: "output", "running_var", ..."""
    worst = {}
    for name, tensor in expected.items():
        kind = name.split("/")[-1]
        allowed = case.passes[int(name.split("/")[0])]["allowed"][kind]
        found = (error(kind, tensor, answers.get(name)), allowed)
        if kind not in worst or found[0] / max(found[1], 1e-300) > worst[kind][0] / max(worst[kind][1], 1e-300):
            worst[kind] = found
    return worst


def judge(case, implementation, like=None):
    """{"verdict": "passed" | "failed" | "refused" | "unsupported", ...}; like is another, whose answers are expected."""
    try:
        with numpy.errstate(all="ignore"):
            answers = implementation(case)
            of_like = like(case) if like else case.expected()
            expected = {name: of_like[name] for name in case.expected()}
    except Unsupported as reason:
        return {"verdict": "unsupported", "why": str(reason)}
    except Exception as refusal:  # whatever an implementation throws is its answer
        why = (str(refusal).strip() or type(refusal).__name__).splitlines()[0][:200]
        return {"verdict": "passed" if case.may_refuse else "refused", "why": why}
    worst = compare(case, expected, answers)
    failed = [kind for kind, (found, allowed) in worst.items() if not found <= allowed]
    biased = compare(case, case.expected_with_biased_variance(), answers) if failed and not like else worst
    return {"verdict": "failed" if failed else "passed", "failed": failed, "worst": worst,
            "with_biased_variance": all(found <= allowed for found, allowed in biased.values())}


def named(text):
    """The implementation that "timm", "answers:FILE" or, for a class of the user's own, "FILE.py:CLASS" names."""
    name, _, argument = text.partition(":")
    sys.modules.setdefault("judge", sys.modules[__name__])  # which their modules import
    if name.endswith(".py"):
        if not pathlib.Path(name).is_file():
            sys.exit(f"{name}: no such file")
        own = runpy.run_path(name)
        if argument not in own:
            sys.exit(f"{name} has no class {argument}" if argument else f"which class of {name}? {name}:CLASS")
        return own[argument]()
    if name not in MODULES:
        sys.exit(f"unknown implementation {name}: there are {', '.join(MODULES)}, and FILE.py:CLASS")
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    made = getattr(importlib.import_module(MODULES[name]), name)
    return made(argument) if argument else made()


def counts(verdicts):
    def number(test):
        return sum(1 for verdict in verdicts.values() if test(verdict))

    asked = len(verdicts) - number(lambda v: v["verdict"] == "unsupported")
    return {"asked": asked, "passed": number(lambda v: v["verdict"] == "passed"),
            "with_biased_variance": number(lambda v: v["verdict"] == "passed" or v.get("with_biased_variance")),
            "refused": number(lambda v: v["verdict"] == "refused")}


def families(verdicts, which):
    """"huge_mean (8)": cases by the beginnings of their names."""
    found = {}
    for name, verdict in verdicts.items():
        if which(verdict):
            found[name.split("/")[0]] = found.get(name.split("/")[0], 0) + 1
    return ", ".join(f"{family} ({number})" for family, number in found.items()) or "-"


def fails(verdict):
    """Whatever the divisor of the running variance."""
    return verdict["verdict"] == "refused" or (verdict["verdict"] == "failed" and not verdict["with_biased_variance"])


def table(results):
    """Counts, and a folded table of what is behind them."""
    passes = ["| implementation | cases it can be asked | passed | passed with N as the divisor of running variances |", "|---|---:|---:|---:|"]
    families_of = ["<details><summary>Families of cases, and how many of each</summary>\n\n<!-- table:families -->",
                   "| implementation | fails or refuses with either divisor | cannot be asked |", "|---|---|---|"]
    for result in results:
        text, verdicts = result["text"], result["verdicts"]
        n = counts(verdicts)
        passes.append(f"| {text} | {n['asked']} | {n['passed']} | {n['with_biased_variance']} |")
        failed, unasked = families(verdicts, fails), families(verdicts, lambda v: v["verdict"] == "unsupported")
        if (failed, unasked) != ("-", "-"):
            families_of.append(f"| {text} | {failed} | {unasked} |")
    return "\n".join([*passes, "", *families_of, "<!-- end -->\n\n</details>"])


def reason(verdict):
    if "worst" not in verdict:
        return verdict["why"]
    return ", ".join(f"{kind} off by {verdict['worst'][kind][0]:.2g}, allowed {verdict['worst'][kind][1]:.2g}"
                     for kind in verdict["failed"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="what `bnlab vectors --out` wrote")
    parser.add_argument("implementations", nargs="*", help=", ".join(MODULES) + ", or a class of your own: FILE.py:CLASS")
    parser.add_argument("--only", default="*", help="cases whose names are like this: 'huge_mean*float32'")
    parser.add_argument("--like", help="another implementation, whose answers are expected instead of the files'")
    parser.add_argument("--verbose", action="store_true", help="a line for each case that is not passed")
    parser.add_argument("--json", help="where the verdicts go")
    parser.add_argument("--table", nargs="+", help="no judging: the table of such verdicts, in Markdown")
    asked = parser.parse_args()
    if asked.table:
        print(table([result for file in asked.table for result in json.loads(pathlib.Path(file).read_text())]))
        return 0
    if not asked.folder or not asked.implementations:
        parser.error("a folder of vectors and an implementation are needed")
    cases = [case for case in read_cases(asked.folder) if fnmatch.fnmatch(case.name, asked.only)]
    if asked.like:  # of several groups bnlab's program saves the mean of their statistics
        cases = [case for case in cases if len(case.groups) == 1]
    results = []
    for text in asked.implementations:
        try:
            implementation = named(text)
            like = named(asked.like) if asked.like else None
        except (OSError, ImportError, ValueError) as problem:
            sys.exit(f"{text}: {problem}")
        for one in (implementation, like):
            if hasattr(one, "ask"):
                one.ask(cases)
        verdicts = {case.name: judge(case, implementation, like) for case in cases}
        results.append({"text": implementation.text, "date": datetime.date.today().isoformat(), "verdicts": verdicts})
        n = counts(verdicts)
        unasked = len(cases) - n["asked"]
        print(f"{implementation.text}: {n['passed']} of {n['asked']} passed; fails: "
              + families(verdicts, lambda v: v["verdict"] in ("failed", "refused"))
              + (f"; {unasked} cannot be asked" if unasked else ""), flush=True)
        for name, verdict in verdicts.items() if asked.verbose else []:
            if verdict["verdict"] != "passed":
                print(f"  {name}: {verdict['verdict']}: {reason(verdict)}")
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps(results), encoding="utf-8")
    return int(any(v["verdict"] in ("failed", "refused") for result in results for v in result["verdicts"].values()))


if __name__ == "__main__":
    sys.exit(main())
