#!/usr/bin/env python3
"""Short runs that show whether training on this machine's GPUs works. scripts/gpu_check.sh calls it:

    scripts/gpu_runs.py first --program build/release/bnlab --results DIR --gpus 1 --nccl 2.28.9
    scripts/gpu_runs.py lost  ...

first: one run on one GPU against the CPU, steps replayed as CUDA graphs against steps launched one by one, a run
that is killed and resumed against one that was not, and two ranks against the CPU. lost: of two ranks on two GPUs
one is killed; the run has to end and its record to name the rank. All train in float64, where losses and gradient
norms of all steps have to agree to 1e-8. Prints one line for each: a verdict (ok, FAILED, skipped), a tab, and the
numbers or the reason. Exit status 1 if one FAILED.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

BOUND = 1e-8
STEPS = 60
SPEC = {"question": "does this GPU do what the CPU does?", "claim": "losses agree to 1e-8",
        "task": {"name": "shapes", "size": [16, 16], "train": 32, "test": 12, "nuisance": 0.2},
        "model": {"name": "unet", "base": 4, "levels": 2}, "precision": "float64",
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4},
        "steps": STEPS, "eval_every": STEPS, "checkpoint_every": 10, "warmup_steps": 1, "log_every": 1,
        "towers": 4, "batch_per_tower": 2, "populations": ["saved", "batch"], "strategy": "sync", "seed": 0}


class Wrong(Exception):
    """What a row says behind FAILED."""


class Skipped(Exception):
    """Why there is nothing to say."""


class Run:
    """One experiment of one run in a folder of its own below the results."""

    started = []  # all, so that none outlives this program

    def __init__(self, options, name, keys, device="cuda", ranks=1, variables=None):
        self.limit = options.limit
        self.folder = options.results / options.part / name
        self.folder.mkdir(parents=True)
        spec = self.folder / f"{name}.json"
        spec.write_text(json.dumps(SPEC | keys, indent=1))
        self.command = [options.program, "run", spec, "--device", device, "--ranks", str(ranks), "--threads", "1",
                        "--results", self.folder]
        self.environment = os.environ | (variables or {})
        self.log = self.folder / "said.txt"
        self.process = None

    def start(self):
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        Run.started.append(self)

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def wait(self):
        """Until the run has ended by itself."""
        try:
            self.process.wait(timeout=self.limit)
        except subprocess.TimeoutExpired:
            raise Wrong(f"did not end in {self.limit} s; {self.log}") from None
        finally:
            self.kill()

    def wait_until(self, happened):
        """False if the run ends first."""
        deadline = time.monotonic() + self.limit
        while not happened():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                self.kill()
                raise Wrong(f"came to nothing in {self.limit} s; {self.log}")
            time.sleep(0.001)
        return True

    def train(self):
        """To its end, which has to be a good one."""
        self.start()
        self.wait()
        outcome = self.record()["outcome"]
        if outcome["status"] != "ok":
            raise Wrong(f"{outcome['status']}: {outcome['message']}; {self.log}")
        return self

    def files(self, name):
        return [file for file in self.folder.rglob(name) if file.suffix != ".tmp"]

    def record(self):
        records = self.files("record.json")
        if len(records) != 1:
            said = self.log.read_text(errors="replace").strip().splitlines()
            last = said[-1] if said else "said nothing"
            raise Wrong(f"no record, exit status {self.process.returncode}: {last}; {self.log}")
        return json.loads(records[0].read_text())

    def result(self, *keys):
        found = self.record()["result"]
        for key in keys:
            found = (found or {}).get(key)
        return found

    def numbers(self):
        """Loss and norm of the gradient by step; of a step that was made twice those of the last time."""
        (file,) = self.files("metrics.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return {line["step"]: (line["loss"], line["gradient_norm"]) for line in lines if line["kind"] == "train"}


def agree(run, other):
    """How far apart the numbers of two runs are, as text; raises where they are too far apart."""
    ours, theirs = run.numbers(), other.numbers()
    if not ours or ours.keys() != theirs.keys():
        raise Wrong(f"{len(ours)} steps in place of {len(theirs)}; {run.folder}")
    apart = [abs(a - b) / max(1, abs(b)) for step, pair in ours.items() for a, b in zip(pair, theirs[step])]
    worst = math.inf if any(map(math.isnan, apart)) else max(apart)
    said = f"{len(ours)} steps, losses and gradients differ by {worst:.1e} at most"
    if not worst <= BOUND:
        raise Wrong(f"{said}, more than {BOUND:.0e}; {run.folder}, {other.folder}")
    return said


def version(text):
    return tuple(int(part) for part in text.split(".") if part.isdigit())


class First:
    """Runs that other rows compare with are made once, by the first that asks."""

    def __init__(self, options):
        self.options = options
        self.made = {}

    def run(self, name, keys=None, **more):
        if name not in self.made:
            try:
                self.made[name] = Run(self.options, name, keys or {}, **more).train()
            except Wrong as reason:
                self.made[name] = reason
        if isinstance(self.made[name], Wrong):
            raise self.made[name]
        return self.made[name]

    def one_rank(self):
        return f"against the CPU: {agree(self.run('gpu'), self.run('cpu', device='cpu'))}"

    def graphs(self):
        run, plain = self.run("gpu"), self.run("plain", {"cuda_graph": False})
        replayed = run.result("cuda_graph", "replayed_steps") or 0
        if replayed == 0:
            raise Wrong(f"no step was replayed: {run.result('cuda_graph', 'why_not')}; {run.folder}")
        if plain.result("cuda_graph", "replayed_steps"):
            raise Wrong(f"steps were replayed with cuda_graph false; {plain.folder}")
        return f"{replayed} steps replayed; against steps by themselves: {agree(run, plain)}"

    def resumed(self):
        for name, longer in (("resumed", 1), ("resumed_longer", 30)):  # the longer one for a GPU that is too fast
            keys = {"steps": STEPS * longer, "eval_every": STEPS * longer}
            run = Run(self.options, name, keys)
            run.start()
            if run.wait_until(lambda run=run: run.files("step*.safetensors")):
                run.kill()
                if not run.files("record.json") or run.record()["outcome"]["status"] != "ok":
                    break
        else:
            raise Wrong(f"the run ended before it could be killed; {run.log}")
        run.train()
        at = run.result("resumed_at_steps")
        if not at:
            raise Wrong(f"it began again from the first step; {run.folder}")
        whole = self.run("gpu") if longer == 1 else self.run("whole_longer", keys)
        return f"killed, resumed at step {at[-1]}; against one that was not: {agree(run, whole)}"

    def two_ranks(self):
        variables, where = {}, "two GPUs"
        if self.options.gpus < 2:
            if version(self.options.nccl) < (2, 30):
                raise Skipped(f"there is one GPU, which NCCL {self.options.nccl} gives to one rank; 2.30 shares it")
            variables, where = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}, "one GPU that they share"
        run = self.run("two_ranks", ranks=2, variables=variables)
        return f"on {where}, against one rank on the CPU: {agree(run, self.run('cpu', device='cpu'))}"

    def rows(self):
        return {"one rank": self.one_rank, "CUDA graphs": self.graphs, "resume": self.resumed,
                "two ranks": self.two_ranks}


def rank_processes(pid):
    """Of the launcher's children, by their ranks."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            variables = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            found |= {int(name[5:]): int(child) for name in variables if name.startswith(b"RANK=")}
    return found


class Lost:
    def __init__(self, options):
        self.options = options

    def lose(self, name, keys):
        if self.options.gpus < 2:
            raise Skipped("there is one GPU; this needs two")
        endless = {"steps": 1000000, "eval_every": 1000000, "checkpoint_every": 1000000, "collective_timeout_s": 15}
        run = Run(self.options, name, endless | keys, ranks=2)
        run.start()
        try:
            def in_the_middle():
                return any(file.read_bytes().count(b"\n") > 12 for file in run.files("metrics.jsonl"))
            if not run.wait_until(in_the_middle):
                raise Wrong(f"the run ended by itself; {run.log}")
            ranks = rank_processes(run.process.pid)
            if sorted(ranks) != [0, 1]:
                raise Wrong(f"the processes of the ranks were not found: {ranks}; {run.log}")
            os.kill(ranks[1], signal.SIGKILL)
            begun = time.monotonic()
            run.wait()
        finally:
            run.kill()
        outcome = run.record()["outcome"]
        found = outcome["status"], outcome["rank"], outcome["signal"]
        said = f"ended after {time.monotonic() - begun:.0f} s: {found[0]}, rank {found[1]}, {found[2]}"
        if found != ("interrupted", 1, "SIGKILL"):
            raise Wrong(f"{said}; expected interrupted, rank 1, SIGKILL; {run.log}")
        return said

    def rows(self):
        return {"a rank killed while steps are replayed": lambda: self.lose("replayed", {}),
                "a rank killed, cuda_graph off": lambda: self.lose("plain", {"cuda_graph": False})}


def print_rows(rows):
    """The exit status."""
    failed = False
    for name, row in rows.items():
        try:
            verdict, said = "ok", row()
        except Skipped as reason:
            verdict, said = "skipped", reason
        except Wrong as reason:
            verdict, said, failed = "FAILED", reason, True
        print(f"{verdict}\t{name}: {said}", flush=True)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["first", "lost"])
    parser.add_argument("--program", type=os.path.abspath, default="build/release/bnlab")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="its folder first or lost is emptied")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--nccl", default="0", help="its version")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each run")
    options = parser.parse_args()
    shutil.rmtree(options.results / options.part, ignore_errors=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what waits for a run ends it
    try:
        return print_rows((First if options.part == "first" else Lost)(options).rows())
    finally:
        for run in Run.started:
            if run.process.poll() is None:
                run.kill()


if __name__ == "__main__":
    sys.exit(main())
