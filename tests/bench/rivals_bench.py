#!/usr/bin/env python3
"""Training steps of a U-Net and a PSPNet beside PyTorch's on the same work, in turn.

    tests/bench/rivals_bench.py [--ranks 1] [--device cuda] [--results DIR] [--program build/release/bnlab]
                               [--precision float32 bfloat16]

One rank: per_tower over the whole batch and sync over towers of 2 images, which both compute what one BatchNorm2d over the
batch does, beside eager PyTorch and torch.compile. More ranks, 2 images on each: per_tower beside DistributedDataParallel
with BatchNorm2d, sync beside SyncBatchNorm, apex's where it is installed, and torch.compile. bnlab trains with steps
replayed as CUDA graphs and without. PyTorch's processes wait while bnlab's run, and the other way round, round by round.

Prints a line for each run of bnlab's: a verdict, a tab, and its step and the rivals' over it (above 1: bnlab is faster).
Verdicts: ok; slow, where the ratio to the first rival is less than asked (1.5 for replayed steps of the U-Net, else 1; asked
of GPUs alone); FAILED; skipped. All times go to DIR/times-RANKS.json. Exit status 1 if something FAILED.
--trial takes tiny sizes, to see that the program runs, and judges no time; PyTorch then runs on the CPU if it sees no GPU.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys

from rivals import Rivals

WARMUP = 20
UNET = {"model": "unet", "options": {"base": 16, "levels": 3}, "size": [96, 128], "images": 8}
PSPNET = {"model": "pspnet", "options": {"width": 64, "depth": 50}, "size": [473, 473], "images": 4}
CASES = [UNET | {"precision": "float32"}, UNET | {"precision": "bfloat16"}, PSPNET | {"precision": "bfloat16"},
         PSPNET | {"precision": "float32"}]
TRIAL_CASES = [UNET | {"precision": "float32", "options": {"base": 4, "levels": 2}, "size": [16, 16], "images": 4},
               PSPNET | {"precision": "bfloat16", "options": {"width": 4, "depth": 18}, "size": [17, 17]}]
ALONE = ["eager BatchNorm2d", "torch.compile", "torch.compile with graphs"]
TOGETHER = {"per_tower": ["DDP BatchNorm2d"],
            "sync": ["DDP SyncBatchNorm", "DDP SyncBatchNorm of apex", "DDP SyncBatchNorm, torch.compile"]}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="measured in each round")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results/gpu_check"))
    parser.add_argument("--program", default="build/release/bnlab")
    parser.add_argument("--limit", type=float, default=150, help="seconds for one answer of a program")
    parser.add_argument("--trial", action="store_true")
    options = parser.parse_args()
    if options.trial:
        options.rounds, options.steps = 1, 6
    return options


def rivals_of(strategy, options, case):
    """The first one is the one to beat."""
    if options.ranks > 1:
        return TOGETHER[strategy]
    if case["model"] == "unet":
        return ALONE[:2] if options.trial else ALONE
    return ALONE[:1] if options.trial else ALONE[:2]  # to compile takes minutes


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


def compare(options, case, rivals):
    """Rows of one case, and all its times."""
    if options.ranks > 1:
        case = case | {"images": 2}
    case = case | {"warmup": 2 if options.trial else WARMUP, "compile_backend": "eager" if options.trial else "inductor"}
    ours = Ours(options, case)
    names = sum(TOGETHER.values(), []) if options.ranks > 1 else rivals_of("sync", options, case)
    theirs = {}
    for turn in range(options.rounds):
        ours.measure()  # a program that fails is told before PyTorch compiles for a minute
        if turn == 0:
            rivals.prepare(names, case)
        for name, times in rivals.measure(max(1, options.steps // 10)).items():
            theirs.setdefault(name, []).extend(times)
    rows = [row(options, case, key, ours, rivals, theirs) for key in sorted(ours.records, reverse=True)]
    times = {"case": case, "bnlab_ms": [[*key, found] for key, found in sorted(ours.times.items())], "pytorch_ms": theirs}
    return rows + list(refusals(options, case, rivals)), times


def main():
    options = parse()
    options.results.mkdir(parents=True, exist_ok=True)
    kept, failed = [], False
    threads = 1 if options.trial else None
    device = "any" if options.trial and options.device == "cuda" else options.device
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that PyTorch's processes end, too
    rivals = Rivals(device, options.ranks, options.limit, threads)
    try:
        for case in TRIAL_CASES[:3 - options.ranks] if options.trial else CASES:
            if case["precision"] not in options.precision:
                continue
            try:
                rows, times = compare(options, case, rivals)
                kept.append(times)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as reason:
                rows = [("FAILED", f"{case['model']}, {case['precision']}: {reason}")]
            for verdict, text in rows:
                failed = failed or verdict == "FAILED"
                print(f"{verdict}\t{text}", flush=True)
            (options.results / f"times-{options.ranks}.json").write_text(json.dumps(kept, indent=1))
    finally:
        rivals.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
