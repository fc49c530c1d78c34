#!/usr/bin/env python3
"""Training steps of a U-Net and a PSPNet beside PyTorch's on the same work, in turn.

    tests/bench/rivals_bench.py [--ranks 1] [--device cuda] [--results DIR] [--program build/release/bnlab]
                               [--case pspnet:bfloat16 unet:float32] [--seconds S] [--warm | --trace [--algorithms N]]

One rank: per_tower over the whole batch and sync over towers of 2 images, which both compute what one BatchNorm2d over the
batch does, beside eager PyTorch and torch.compile. More ranks, 2 images on each: per_tower beside DistributedDataParallel
with BatchNorm2d, sync beside SyncBatchNorm, apex's where it is installed, and torch.compile. bnlab trains with steps
replayed as CUDA graphs and without. PyTorch's processes wait while bnlab's run, and the other way round, round by round.

Prints a line for each run of bnlab's: a verdict, a tab, and its step and the rivals' over it (above 1: bnlab is faster).
Verdicts: ok; slow, where the ratio to the first rival is less than asked (1.5 for replayed steps of the U-Net, else 1; asked
of GPUs alone); FAILED; skipped. All times go to DIR/times-RANKS.json. Exit status 1 if something FAILED.
Rounds and cases for which no time of --seconds is left are left out, the latter aloud. --warm compiles what torch.compile
keeps of the rivals of one rank in its cache, measures nothing and prints nothing. --trace writes what eager PyTorch spends
five steps on, by kernels, into DIR/eager-CASE-N.txt. There cuDNN tries N algorithms: 10, as in bnlab, or with 0 all.
--trial takes tiny sizes, to see that the program runs, and judges no time; PyTorch then runs on the CPU if it sees no GPU.
"""
import argparse
import json
import math
import pathlib
import signal
import statistics
import subprocess
import sys
import time

from rivals import Rivals, prepared

WARMUP = 20
LEAST_S = 30  # that a case takes
UNET = {"model": "unet", "options": {"base": 16, "levels": 3}, "size": [96, 128], "images": 8}
PSPNET = {"model": "pspnet", "options": {"width": 64, "depth": 50}, "size": [473, 473], "images": 4}
CASES = {f"{case['model']}:{case['precision']}": case for case in (
    PSPNET | {"precision": "bfloat16"}, UNET | {"precision": "bfloat16"}, UNET | {"precision": "float32"},
    PSPNET | {"precision": "float32"})}
TRIAL_CASES = [UNET | {"precision": "float32", "options": {"base": 4, "levels": 2}, "size": [16, 16], "images": 4},
               PSPNET | {"precision": "bfloat16", "options": {"width": 4, "depth": 18}, "size": [17, 17]}]
ALONE = ["eager BatchNorm2d", "torch.compile", "torch.compile with graphs"]
TOGETHER = {"per_tower": ["DDP BatchNorm2d"],
            "sync": ["DDP SyncBatchNorm", "DDP SyncBatchNorm of apex", "DDP SyncBatchNorm, torch.compile"]}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=math.inf, help="that all of it may take, about")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--algorithms", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="measured in each round")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results/gpu_check"))
    parser.add_argument("--program", default="build/release/bnlab")
    parser.add_argument("--limit", type=float, default=150, help="seconds for one answer of a program")
    parser.add_argument("--trial", action="store_true")
    options = parser.parse_args()
    if options.trial:
        options.rounds, options.steps = 1, 6
    options.until = time.monotonic() + options.seconds
    return options


def rivals_of(strategy, options, case):
    """The first one is the one to beat."""
    if options.ranks > 1:
        return TOGETHER[strategy]
    return ALONE if not options.trial else ALONE[:2] if case["model"] == "unet" else ALONE[:1]


class Ours:
    """bnlab on one case, with graphs and without: two specs of two runs each, run once in each round."""

    def __init__(self, options, case):
        self.options, self.times, self.records = options, {}, {}
        images, warmup = case["images"], case["warmup"]
        model = {"name": case["model"], **case["options"]}
        if case["model"] == "pspnet":
            model = {"name": "pspnet", "backbone": {"name": "resnet", **case["options"]}, "auxiliary_weight": 0.4}
        towers = {"per_tower": [1, images], "sync": [images // 2, 2]}
        if options.ranks > 1:
            towers = {"per_tower": [options.ranks, images], "sync": [options.ranks, images]}
        spec = {"task": {"name": "shapes", "size": case["size"], "train": 64, "test": 2}, "model": model,
                "optimizer": {"lr": 0.01, "weight_decay": 1e-4}, "precision": case["precision"],
                "memory_format": "channels_last", "steps": options.steps + warmup, "warmup_steps": warmup, "log_every": 1000,
                "matrix": {"strategy,towers,batch_per_tower": [[name, *numbers] for name, numbers in towers.items()]}}
        self.files = []
        for graph in True, False:
            name = f"{case['model']}-{case['precision']}-{options.ranks}{'-graph' if graph else ''}"
            self.files.append(options.results / f"{name}.json")
            self.files[-1].write_text(json.dumps(spec | {"cuda_graph": graph}, indent=1))

    def measure(self):
        for file in self.files:
            log = file.with_suffix(".txt")
            with log.open("w") as said:
                status = subprocess.run(
                    [self.options.program, "run", file, "--ranks", str(self.options.ranks), "--device",
                     self.options.device, "--redo", "all", "--results", self.options.results], stdin=subprocess.DEVNULL,
                    stdout=said, stderr=said, timeout=self.options.limit, check=False).returncode
            paths = (self.options.results / file.stem).glob("[!.]*/[!.]*/record.json")
            records = [json.loads(path.read_text()) for path in paths]
            if status > 1 or not records:  # 1: some runs failed, which their records say
                last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
                raise RuntimeError(f"bnlab ended with {status}: {last}; {log}")
            for record in records:
                self.take(record)

    def take(self, record):
        key = record["spec"]["strategy"]["name"], record["spec"]["cuda_graph"]
        self.records[key] = record
        if record["outcome"]["status"] == "ok":
            self.times.setdefault(key, []).append(record["result"]["throughput"]["step_time_s"]["median"] * 1e3)


def row(options, case, key, ours, rivals, theirs):
    """(verdict, text) of one run of bnlab's."""
    strategy, graph = key
    record = ours.records[key]
    images = "2 images" if options.ranks > 1 else f"{case['images']} images"
    where = f"{options.ranks} ranks x {images}" if options.ranks > 1 else images
    said = f"{case['model']}, {case['precision']}, {where}, {strategy}, cuda_graph {'on' if graph else 'off'}"
    if record["outcome"]["status"] != "ok":
        return "FAILED", f"{said}: {record['outcome']['status']}: {record['outcome']['message']}"
    if rivals.parameters not in (None, record["result"]["parameters"]):
        return "FAILED", f"{said}: {record['result']['parameters']} parameters, PyTorch's has {rivals.parameters}"
    graphs = record["result"].get("cuda_graph") or {}
    if graph and options.device == "cuda" and not graphs.get("replayed_steps"):
        return "FAILED", f"{said}: no step was replayed: {graphs.get('why_not')}"
    step = statistics.median(ours.times[key])
    verdict, ratios = "ok", []
    for place, name in enumerate(rivals_of(strategy, options, case)):
        if name in rivals.refused:
            ratios.append(f"{name} cannot run")
            continue
        ratio = statistics.median(theirs[name]) / step
        asked = ""
        if place == 0 and options.device == "cuda" and not options.trial:
            least = 1.5 if case["model"] == "unet" and graph else 1.0
            asked = f" ({least} asked)"
            verdict = "ok" if ratio >= least else "slow"
        ratios.append(f"{name} / ours {ratio:.2f}{asked}")
    nothing = f" (a trial, PyTorch on {rivals.device}: times mean nothing)" if options.trial else ""
    return verdict, f"{said}: {step:.2f} ms; {', '.join(ratios)}{nothing}"


def refusals(options, case, rivals):
    """Rows for rivals that cannot run. Without one that is to be beaten nothing can be said on a GPU."""
    needed = {names[0] for names in TOGETHER.values()} | {ALONE[0]}
    for name, reason in rivals.refused.items():
        failed = name in needed and rivals.device == "cuda"
        yield ("FAILED" if failed else "skipped"), f"{case['model']}, {case['precision']}: {name}: {reason}"


def cases_of(options):
    """With what is the same in all."""
    all_cases = TRIAL_CASES[:3 - options.ranks] if options.trial else [CASES[name] for name in options.case]
    more = {"warmup": 2 if options.trial else WARMUP, "compile_backend": "eager" if options.trial else "inductor"}
    return [case | more | ({"images": 2} if options.ranks > 1 else {}) for case in all_cases]


def compare(options, case, rivals):
    """Rows of one case, and all its times."""
    ours = Ours(options, case)
    names = sum(TOGETHER.values(), []) if options.ranks > 1 else rivals_of("sync", options, case)
    theirs, longest = {}, 0
    for turn in range(options.rounds):
        begun = time.monotonic()
        if begun + 1.2 * longest > options.until:
            break
        ours.measure()  # a program that fails is told before PyTorch compiles for a minute
        if turn == 0:
            prepared = time.monotonic()
            rivals.prepare(names, case)
            begun += time.monotonic() - prepared
        for name, times in rivals.measure(max(1, options.steps // 10)).items():
            theirs.setdefault(name, []).extend(times)
        longest = max(longest, time.monotonic() - begun)
    rows = [row(options, case, key, ours, rivals, theirs) for key in sorted(ours.records, reverse=True)]
    times = {"case": case, "bnlab_ms": [[*key, found] for key, found in sorted(ours.times.items())], "pytorch_ms": theirs}
    return rows + list(refusals(options, case, rivals)), times


def trace(options, name, case):
    """A row."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = options.algorithms
    torch.backends.cudnn.allow_tf32 = False
    stepper, refusal = prepared(ALONE[0], case, torch.device(options.device), 1)
    if refusal:
        return f"FAILED\t{name}: {refusal}"
    on_gpu = options.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        for _ in range(5):
            stepper.step()
        if on_gpu:
            torch.cuda.synchronize()
    events = seen.key_averages()
    tried = options.algorithms or "all"
    file = options.results / f"eager-{case['model']}-{case['precision']}-{tried}.txt"
    file.write_text(events.table(sort_by=f"self_{options.device}_time_total", row_limit=25, max_name_column_width=120))
    total = sum(event.self_device_time_total if on_gpu else event.self_cpu_time_total for event in events)
    return f"ok\t{name}: {ALONE[0]}, {tried} algorithms tried, spends {total / 5e3:.2f} ms of a step in kernels; {file}"


def main():
    options = parse()
    options.results.mkdir(parents=True, exist_ok=True)
    kept, failed = [], False
    threads = 1 if options.trial else None
    device = "any" if options.trial and options.device == "cuda" else options.device
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that PyTorch's processes end, too
    rivals = Rivals(device, options.ranks, options.limit, threads)
    try:
        for case in cases_of(options):
            name = f"{case['model']}, {case['precision']}"
            try:
                if options.trace:
                    print(trace(options, name, case), flush=True)
                    continue
                if options.warm:
                    rivals.prepare(rivals_of("sync", options, case)[1:], case)
                    continue
                left = options.until - time.monotonic()
                if left < LEAST_S:
                    rows = [("skipped", f"{name}: no time left")]
                else:
                    options.limit = rivals.limit = min(options.limit, left)
                    rows, times = compare(options, case, rivals)
                    kept.append(times)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as reason:
                in_time = time.monotonic() < options.until - 1
                rows = [("FAILED", f"{name}: {reason}") if in_time else ("skipped", f"{name}: no time left: {reason}")]
            for verdict, text in rows:
                failed = failed or verdict == "FAILED"
                print(f"{verdict}\t{text}", flush=True)
            (options.results / f"times-{options.ranks}.json").write_text(json.dumps(kept, indent=1))
    finally:
        rivals.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
