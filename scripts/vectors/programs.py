"""bnlab itself: its program, asked by `bnlab layer`; and answers that a program in any language has left in a file."""

import json
import os
import subprocess
import tempfile

import numpy

from judge import Unsupported, read_safetensors

WORDS = {"NaN": numpy.nan, "Infinity": numpy.inf, "-Infinity": -numpy.inf}


def as_json(array):
    flat = [float(v) if numpy.isfinite(v) else "NaN" if numpy.isnan(v) else "Infinity" if v > 0 else "-Infinity"
            for v in array.ravel()]
    return {"shape": list(array.shape), "data": flat}


def numbers(values):
    return numpy.array([WORDS.get(v, v) for v in values], dtype=numpy.float64)


def from_json(tensor):
    return numbers(tensor["data"]).reshape(tensor["shape"])


class bnlab_program:
    """The strategy sync, or another in this form: bnlab_program:{"name": "sync", "route": "all_reduce"}. Each rank is a
    rank of the program. With groups it saves the mean of their running statistics, and that is judged."""

    def __init__(self, strategy='{"name": "sync"}'):
        self.program = os.environ.get("BNLAB_PROGRAM", "bnlab")
        self.strategy = json.loads(strategy)
        version = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=True).stdout.split()
        self.text = f"bnlab {version[1]}, `bnlab layer`, {', '.join(map(str, self.strategy.values()))}"
        self.known = {}  # by the case's name: the steps that the program answers, or the error that it says

    def __call__(self, case):
        if not self.can_ask(case):
            raise Unsupported("only single ranks are judged by this strategy")
        if case.name not in self.known:
            self.ask([case])
        found = self.known[case.name]
        if isinstance(found, RuntimeError):
            raise found
        return self.named(case, found)

    def can_ask(self, case):
        return self.strategy["name"] == "sync" or (case.ranks == 1 and case.ranks_per_group <= 1)

    def ask(self, cases):
        """One call of the program for each number of ranks; its start takes longer than a case."""
        for ranks in sorted({case.ranks for case in cases if self.can_ask(case)}):
            with tempfile.TemporaryDirectory() as folder:
                files = {}
                for case in cases:
                    if case.ranks == ranks and self.can_ask(case):
                        files[os.path.join(folder, f"{len(files)}.json")] = case
                for file, case in files.items():
                    with open(file, "w", encoding="utf-8") as out:
                        json.dump(self.question(case), out)
                done = subprocess.run([self.program, "layer", *files, "--ranks", str(ranks)], capture_output=True, text=True,
                                      check=False)
            refused = {line.split(": ", 1)[0]: line for line in done.stderr.splitlines()}
            answered = iter(done.stdout.splitlines())
            for file, case in files.items():
                answer = None if file in refused else next(answered, None)
                self.known[case.name] = (RuntimeError(refused.get(file, done.stderr)) if answer is None
                                         else json.loads(answer)["steps"])

    def question(self, case):
        strategy = {**self.strategy, "eps": case.eps, "momentum": case.momentum, "affine": case.affine}
        if self.strategy["name"] == "sync":
            strategy["group_size"] = case.ranks_per_group
        asked = {"strategy": strategy, "dtype": case.dtype, "memory_format": case.memory_format, "steps": []}
        for name in ("weight", "bias", "running_mean", "running_var"):
            if name in case.tensors:
                asked[name] = case.tensors[name].tolist()
        for number, one_pass in enumerate(case.passes):
            towers = [{"input": as_json(x)} for x in case.inputs(number)]
            for tower, dy in zip(towers, case.grad_outputs(number)):
                tower["grad_output"] = as_json(dy)
            asked["steps"].append({"mode": one_pass["mode"], "towers": towers})
        return asked

    @staticmethod
    def named(case, steps):
        answers, sums = {}, {"grad_weight": 0, "grad_bias": 0}
        for number, step in enumerate(steps):
            for rank, tower in enumerate(step["towers"]):
                answers[f"{number}/{rank}/output"] = from_json(tower["output"])
                if "grad_input" in tower:
                    answers[f"{number}/{rank}/grad_input"] = from_json(tower["grad_input"])
            for name in sums:  # a pass of `bnlab layer` goes backward before the next goes forward: their sum is the same
                if name in step:
                    sums[name] = numbers(step[name]) + (sums[name] if case.backward == "after_all" else 0)
                    answers[f"{number}/{name}"] = sums[name]
            for name in ("running_mean", "running_var"):
                expected = case.tensors[f"{number}/{name}"]
                # The mean over the groups is as far off as a group may be.
                answers[f"{number}/{name}"] = expected + (numbers(step[name]) - expected.mean(axis=0))
        return answers


class answers:
    """A safetensors file with tensors named as the expected ones, "CASE/0/1/output"; a case without any was refused, and
    one with "CASE/unsupported" cannot be asked. "FILE=what it is" says whose they are."""

    def __init__(self, argument):
        file, _, text = argument.partition("=")
        self.tensors, self.text = read_safetensors(file), text or file

    def __call__(self, case):
        found = {name[len(case.name) + 1 :]: tensor for name, tensor in self.tensors.items()
                 if name.startswith(case.name + "/")}
        if "unsupported" in found:
            raise Unsupported("the file says so")
        if not found:
            raise RuntimeError("no answer")
        return found
