#!/usr/bin/env python3
"""What a GPU does in training steps, by traces of NVIDIA's nsys. scripts/gpu_check.sh calls it:

    scripts/gpu_trace.py --nsys nsys --program build/release/bnlab --results DIR --gpus 2

Traces 100 training steps with steps replayed as CUDA graphs and without: of a U-Net on one GPU; where there are two, of a
PSPNet on both, under per_tower (whose only exchange is that of the gradients) and sync. Looks at the kernels from the 60th
to the 90th in a hundred, some 30 steps without start, warm-up and evaluation, and prints a line for each run: a verdict, a
tab, how much of the time kernels run, how long NCCL's kernels take in a step (waiting for other ranks included) and how
much of that passes beside other kernels. slow: under per_tower more than 5 % of the time passes with NCCL's kernels alone.
Traces stay in DIR, for nsys-ui. Exit status 1 if something FAILED.
"""
import argparse
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys

MOST_ALONE = 0.05
STEPS = 100
UNET = {"task": {"name": "shapes", "size": [96, 128], "train": 64, "test": 2}, "towers": 4, "batch_per_tower": 2,
        "model": {"name": "unet", "base": 16, "levels": 3}}
PSPNET = {"task": {"name": "shapes", "size": [473, 473], "train": 64, "test": 2}, "towers": 2, "batch_per_tower": 2,
          "model": {"name": "pspnet", "backbone": {"name": "resnet", "depth": 50}}}
SMALL = {"task": {"name": "shapes", "size": [16, 16], "train": 32, "test": 2}, "towers": 2, "batch_per_tower": 2,
         "model": {"name": "unet", "base": 4, "levels": 2}}


class Wrong(Exception):
    """What a row says behind FAILED."""


def merged(intervals):
    """The same times as intervals that do not touch each other, in order."""
    found = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return found


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def common(ones, others):
    """How long two lists of merged intervals are both under way."""
    total = i = k = 0
    while i < len(ones) and k < len(others):
        total += max(0, min(ones[i][1], others[k][1]) - max(ones[i][0], others[k][0]))
        if ones[i][1] < others[k][1]:
            i += 1
        else:
            k += 1
    return total


def shares(kernels):
    """Of [(begin, end, name)] of one GPU, in the middle of a run: the shares of the time with any kernel under way, with
    NCCL's, and with NCCL's alone."""
    kernels = sorted(kernels)
    first, last = len(kernels) * 6 // 10, len(kernels) * 9 // 10
    window = kernels[first][0], kernels[last][0]
    span = window[1] - window[0]
    if span <= 0:
        raise Wrong(f"{len(kernels)} kernels are too few to look at")
    inside = [(max(begin, window[0]), min(end, window[1]), name) for begin, end, name in kernels
              if end > window[0] and begin < window[1]]
    nccl = merged((begin, end) for begin, end, name in inside if name.startswith("nccl"))
    others = merged((begin, end) for begin, end, name in inside if not name.startswith("nccl"))
    both = common(nccl, others)
    return {"busy": (length(nccl) + length(others) - both) / span, "nccl": length(nccl) / span,
            "alone": (length(nccl) - both) / span}


def kernels_by_gpu(file):
    """Of nsys' export. Each process numbers its GPUs from 0."""
    found = {}
    with sqlite3.connect(file) as database:
        try:
            rows = database.execute("SELECT kernels.globalPid, kernels.deviceId, kernels.start, kernels.end, names.value FROM "
                                    "CUPTI_ACTIVITY_KIND_KERNEL AS kernels JOIN StringIds AS names ON names.id = "
                                    "kernels.shortName").fetchall()
        except sqlite3.Error as error:
            raise Wrong(f"{file} has no kernels: {error}") from None
    for process, device, begin, end, name in rows:
        found.setdefault((process, device), []).append((begin, end, name))
    if not found:
        raise Wrong(f"{file} has no kernels")
    return found


def end_all_of(process):
    """Of nsys, of the run below it, and of what else it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def trace(options, name, keys, ranks):
    """The record of a run under nsys, and the shares of each GPU."""
    base = {"optimizer": {"lr": 0.01, "weight_decay": 1e-4}, "precision": "bfloat16", "steps": STEPS,
            "eval_every": STEPS, "warmup_steps": 10, "log_every": 1000}
    options.results.mkdir(parents=True, exist_ok=True)
    spec = options.results / f"{name}.json"
    spec.write_text(json.dumps(base | keys, indent=1))
    export, log = options.results / f"{name}.sqlite", options.results / f"{name}.txt"
    export.unlink(missing_ok=True)
    command = [options.nsys, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node",
               "--force-overwrite=true", "--export=sqlite", f"--output={options.results / name}", options.program, "run", spec,
               "--device", "cuda", "--ranks", str(ranks), "--redo", "all", "--results", options.results]
    with log.open("w") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        try:
            process.wait(timeout=options.limit)
        except subprocess.TimeoutExpired:
            raise Wrong(f"nsys and the run did not end in {options.limit:.0f} s; {log}") from None
        finally:
            end_all_of(process)
    records = list((options.results / name).glob("[!.]*/[!.]*/record.json"))
    last = (log.read_text(errors="replace").strip().splitlines() or ["nothing was said"])[-1]
    if not records:
        raise Wrong(f"no record: {last}; {log}")
    record = json.loads(records[0].read_text())
    if record["outcome"]["status"] != "ok":
        raise Wrong(f"{record['outcome']['status']}: {record['outcome']['message']}; {log}")
    if not export.exists():
        raise Wrong(f"nsys left no {export.name}: {last}; {log}")
    try:
        return record, [shares(kernels) for kernels in kernels_by_gpu(export).values()]
    finally:
        export.unlink()  # made again by `nsys export --type sqlite`


def row(record, gpus):
    """(verdict, text). Of several GPUs the one on which NCCL runs alone for longest."""
    worst = max(gpus, key=lambda each: each["alone"])
    result = record["result"]
    step = result["throughput"]["step_time_s"]["median"] * 1e3
    replayed = (result.get("cuda_graph") or {}).get("replayed_steps", 0)
    said = f"{step:.2f} ms a step under nsys, {replayed} replayed; kernels run {100 * min(g['busy'] for g in gpus):.0f} % of it"
    if not worst["nccl"]:
        return "ok", said
    beside = 1 - worst["alone"] / worst["nccl"]
    said += f"; NCCL {worst['nccl'] * step:.3f} ms of a step, {100 * beside:.0f} % of that beside other kernels"
    if record["spec"]["strategy"]["name"] != "per_tower":
        return "ok", said
    return ("slow" if worst["alone"] > MOST_ALONE else "ok",
            f"{said}; alone {100 * worst['alone']:.1f} % of the time (at most {100 * MOST_ALONE:.0f} asked)")


def cases(options):
    """(name, keys, ranks)"""
    networks = [("unet", UNET, 1, "per_tower")]
    if options.gpus > 1:
        networks += [("pspnet", PSPNET, 2, "per_tower"), ("pspnet", PSPNET, 2, "sync")]
    if options.trial:
        networks = [("small", SMALL, min(2, options.gpus), "per_tower")]
    for name, network, ranks, strategy in networks:
        for graph in True, False:
            yield (f"{name}-{strategy}-{ranks}{'-graph' if graph else ''}",
                   network | {"strategy": strategy, "cuda_graph": graph}, ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nsys", default="nsys")
    parser.add_argument("--program", default="build/release/bnlab")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--limit", type=float, default=150, help="seconds for each trace")
    parser.add_argument("--trial", action="store_true", help="one tiny network, to see that the program runs")
    options = parser.parse_args()
    failed = False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what waits for a run ends it
    for name, keys, ranks in cases(options):
        try:
            verdict, said = row(*trace(options, name, keys, ranks))
            said += " (a trial: times mean nothing)" if options.trial else ""
        except Wrong as reason:
            verdict, said, failed = "FAILED", reason, True
        print(f"{verdict}\t{name}: {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
