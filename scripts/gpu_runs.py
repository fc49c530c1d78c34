#!/usr/bin/env python3
"""Short runs that show whether training on this machine's GPUs works. scripts/gpu_check.sh calls it:

    scripts/gpu_runs.py first|two|lost|strategies --program build/release/bnlab --results DIR --gpus 1

first: one run on one GPU against the CPU, steps replayed as CUDA graphs against steps launched one by one, a run
that is killed and resumed against one that was not, and two ranks on two GPUs against the CPU. two: two ranks that
exchange over peers' memory, so that they may share one GPU, against the CPU; then one of them is killed. lost: the
same of two ranks over NCCL; the run has to end and its record to name the rank. These train in float64, where losses
and gradient norms of all steps have to agree to 1e-8. strategies: norm_cost_gpu, two of its seeds.
Prints one line for each: a verdict (ok, slow, FAILED, skipped), a tab, and the numbers or the reason. Exit status 1
if one FAILED.
"""
import argparse
import fnmatch
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
ENDS_IN_S = 20  # a run of which a rank was killed
MOST_OF_PER_TOWER = 1.05
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


class Slow(Exception):
    """What a row says of figures that miss their bar."""


class Run:
    """One experiment of one run in a folder of its own below the results."""

    started = []  # all, so that none outlives this program

    def __init__(self, options, name, keys, device="cuda", ranks=1, exchange=None):
        self.limit = options.limit
        self.folder = options.results / options.part / name
        self.folder.mkdir(parents=True)
        spec = self.folder / f"{name}.json"
        spec.write_text(json.dumps(SPEC | keys, indent=1))
        self.command = [options.program, "run", spec, "--device", device, "--ranks", str(ranks), "--threads", "1",
                        "--results", self.folder, *(["--exchange", exchange] if exchange else [])]
        self.log = self.folder / "said.txt"
        self.process = None

    def start(self):
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        Run.started.append(self)
        return self

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
        """False if the run ends first. Its folder gets another name then."""
        def has_happened():
            try:
                return happened()
            except FileNotFoundError:
                return False

        deadline = time.monotonic() + self.limit
        while not has_happened():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                self.kill()
                raise Wrong(f"came to nothing in {self.limit} s; {self.log}")
            time.sleep(0.001)
        return True

    def train(self):
        return self.start().end()

    def end(self):
        """Which has to be a good one."""
        self.wait()
        outcome = self.record()["outcome"]
        if outcome["status"] != "ok":
            raise Wrong(f"{outcome['status']}: {outcome['message']}; {self.log}")
        return self

    def files(self, name):
        return [pathlib.Path(folder, file) for folder, _, files in os.walk(self.folder) for file in fnmatch.filter(files, name)]

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


def agree_with_graphs(run, other, graphs=True):
    """The same, of a run whose steps were replayed, or were not."""
    replayed = run.result("cuda_graph", "replayed_steps") or 0
    if graphs and not replayed:
        raise Wrong(f"no step was replayed: {run.result('cuda_graph', 'why_not')}; {run.folder}")
    if replayed and not graphs:
        raise Wrong(f"steps were replayed with cuda_graph false; {run.folder}")
    return f"{replayed} steps replayed; {agree(run, other)}"


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
        plain = self.run("plain", {"cuda_graph": False})
        agree_with_graphs(plain, plain, graphs=False)
        return f"against steps by themselves: {agree_with_graphs(self.run('gpu'), plain)}"

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
        if self.options.gpus < 2:
            raise Skipped("there is one GPU, and this needs two; gpu_check.sh two shares it")
        run = self.run("two_ranks", ranks=2)
        return f"on two GPUs, against one rank on the CPU: {agree(run, self.run('cpu', device='cpu'))}"

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


def lose(options, name, keys, exchange=None):
    """Kills one of two ranks while they train."""
    endless = {"steps": 1000000, "eval_every": 1000000, "checkpoint_every": 1000000, "collective_timeout_s": 15}
    run = Run(options, name, endless | keys, ranks=2, exchange=exchange).start()
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
    took, outcome = time.monotonic() - begun, run.record()["outcome"]
    found = outcome["status"], outcome["rank"], outcome["signal"]
    said = f"ended after {took:.0f} s: {found[0]}, rank {found[1]}, {found[2]}"
    if found != ("interrupted", 1, "SIGKILL"):
        raise Wrong(f"{said}; expected interrupted, rank 1, SIGKILL; {run.log}")
    if took > ENDS_IN_S:
        raise Wrong(f"{said}; expected within {ENDS_IN_S} s; {run.log}")
    return said


class Two:
    STRATEGIES = ["sync", "per_tower", "batch_renorm"]

    def __init__(self, options):
        self.options, self.cpu = options, {}

    def against_the_cpu(self, strategy, graphs):
        if not self.cpu:  # those of all strategies go on beside what the GPU does
            self.cpu = {name: Run(self.options, f"{name}_cpu", {"strategy": name}, device="cpu").start()
                        for name in self.STRATEGIES}
        run = Run(self.options, f"{strategy}{'' if graphs else '_plain'}", {"strategy": strategy, "cuda_graph": graphs},
                  ranks=2, exchange="peers").train()
        return agree_with_graphs(run, self.cpu[strategy].end(), graphs)

    def rows(self):
        where = "one GPU" if self.options.gpus < 2 else "two GPUs"
        found = {f"two ranks on {where}, {name}, cuda_graph {'on' if graphs else 'off'}":
                 lambda name=name, graphs=graphs: self.against_the_cpu(name, graphs)
                 for name in self.STRATEGIES for graphs in (True, False)}
        return found | {f"a rank of two on {where} killed": lambda: lose(self.options, "killed", {}, "peers")}


class Lost:
    def __init__(self, options):
        self.options = options

    def lose(self, name, keys):
        if self.options.gpus < 2:
            raise Skipped("there is one GPU; this needs two")
        return lose(self.options, name, keys)

    def rows(self):
        return {"a rank killed while steps are replayed": lambda: self.lose("replayed", {}),
                "a rank killed, cuda_graph off": lambda: self.lose("plain", {"cuda_graph": False})}


class Strategies:
    """norm_cost_gpu: the first run of a seed has its turns with those of all other strategies."""

    def __init__(self, options):
        self.options = options

    def of_seed(self, seed):
        run = Run(self.options, f"seed{seed}", {})
        run.command = [self.options.program, "run", "norm_cost_gpu", "--device", "cuda", "--only", f"seed={seed}", "--only",
                       "strategy=per_tower", "--results", run.folder]
        run.limit = 400
        timing = run.train().result("timing")
        base = min(map(min, timing["against_step_ms"]))
        over = {each["run_id"].rsplit("-", 3)[0]: min(each["timing"]["step_ms"]) / base for each in timing["with"]}
        said = f"{base:.2f} ms; " + ", ".join(f"{name} {times:.3f}" for name, times in sorted(over.items(), key=lambda each: each[1]))
        if max(over.values()) > MOST_OF_PER_TOWER:
            raise Slow(f"{said} ({MOST_OF_PER_TOWER} asked)")
        return said

    def rows(self):
        return {f"fastest steps over per_tower's, seed {seed}": lambda seed=seed: self.of_seed(seed) for seed in (0, 1)}


def print_rows(rows):
    """The exit status."""
    failed = False
    for name, row in rows.items():
        try:
            verdict, said = "ok", row()
        except Skipped as reason:
            verdict, said = "skipped", reason
        except Slow as reason:
            verdict, said = "slow", reason
        except Wrong as reason:
            verdict, said, failed = "FAILED", reason, True
        print(f"{verdict}\t{name}: {said}", flush=True)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"first": First, "two": Two, "lost": Lost, "strategies": Strategies}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--program", type=os.path.abspath, default="build/release/bnlab")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="its folder of the part's name is emptied")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, help="seconds for each run")
    options = parser.parse_args()
    shutil.rmtree(options.results / options.part, ignore_errors=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what waits for a run ends it
    try:
        return print_rows(parts[options.part](options).rows())
    finally:
        for run in Run.started:
            if run.process.poll() is None:
                run.kill()


if __name__ == "__main__":
    sys.exit(main())
