#!/usr/bin/env python3
"""Whole training steps: unet(16, 3) at 96x128, 2 ranks x 2 images, float32, per_tower and every route of sync.

    tests/bench/step_bench.py [--repeats 3] [--program build/release/bnlab] [--peer "python unet_eager.py"]

Prints the median step time of each variant over the repeats, the tax of each route (step with sync / without) and the
share of the step outside forward, backward and optimizer. With --peer, a rival program runs in turn with ours, repeat by
repeat, and the ratios ours / theirs are printed too, every route's beside the rival's one. A peer
takes --norm, --layout, --ranks, --batch-per-rank, --base, --levels,
--height, --width, --classes, --steps and --warmup and prints one JSON line per variant with the keys norm ("bn" or
"exact_sync"), layout ("nchw" or "nhwc") and step_ms_median.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

LAYOUTS = {"contiguous": "nchw", "channels_last": "nhwc"}
ROUTES = ["all_gather", "all_reduce", "reduce_broadcast", "host", "gather_activations"]
STRATEGIES = {"per_tower": "bn", "sync": "exact_sync",
              **{f"sync(route={route})": "exact_sync" for route in ROUTES[1:]}}
STEPS, WARMUP = 40, 5


def spec():
    return {"task": {"name": "shapes", "size": [96, 128], "train": 64, "test": 2},
            "model": {"name": "unet", "base": 16, "levels": 3}, "optimizer": {"lr": 0.01, "weight_decay": 1e-4},
            "steps": STEPS + WARMUP, "warmup_steps": WARMUP, "log_every": 1000, "towers": 2, "batch_per_tower": 2,
            "matrix": {"memory_format": list(LAYOUTS),
                       "strategy": ["per_tower", *({"name": "sync", "route": route} for route in ROUTES)]}}


def run_ours(program):
    """{(layout, strategy): result of the record}"""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "step.json")
        file.write_text(json.dumps(spec()))
        subprocess.run([program, "run", file, "--ranks", "2", "--device", "cpu", "--results", folder], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        records = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("step/*/*/record.json")]
    return {(r["spec"]["memory_format"], r["strategy_label"]): r["result"] for r in records}


def run_peer(command):
    """{(layout, strategy): step in milliseconds}"""
    arguments = ["--norm", "bn,exact_sync", "--layout", ",".join(LAYOUTS.values()), "--ranks", "2",
                 "--batch-per-rank", "2", "--base", "16", "--levels", "3", "--height", "96", "--width", "128",
                 "--classes", "5", "--steps", str(STEPS), "--warmup", str(WARMUP)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    lines = subprocess.run(shlex.split(command) + arguments, check=True, capture_output=True, text=True,
                           env=environment).stdout.splitlines()
    found = {(line["layout"], line["norm"]): line["step_ms_median"] for line in map(json.loads, lines)}
    return {(layout, norm): found[LAYOUTS[layout], norm] for layout in LAYOUTS for norm in ("bn", "exact_sync")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", default="build/release/bnlab")
    parser.add_argument("--peer", help="command of a rival program")
    options = parser.parse_args()
    ours, peers, outside = {}, {}, []
    for _ in range(options.repeats):
        for key, result in run_ours(options.program).items():
            step = result["throughput"]["step_time_s"]["median"]
            parts = result["throughput"]["seconds"]
            ours.setdefault(key, []).append(step * 1e3)
            outside.append((parts["data"] + parts["other"]) / step)
        if options.peer:
            for key, step in run_peer(options.peer).items():
                peers.setdefault(key, []).append(step)
    print(f"load {os.getloadavg()[0]:.1f}, {options.repeats} repeats, medians of {STEPS} steps")
    for layout in LAYOUTS:
        for strategy, norm in STRATEGIES.items():
            mine = statistics.median(ours[layout, strategy])
            line = f"{layout:14} {strategy:32} {mine:7.1f} ms   x per_tower {tax(ours, layout, strategy, 'per_tower'):.2f}"
            if peers:
                theirs = statistics.median(peers[layout, norm])
                line += (f"   peer {norm:10} {theirs:7.1f} ms   x its bn {tax(peers, layout, norm, 'bn'):.2f}"
                         f"   ours / peer {mine / theirs:.2f}")
            print(line)
    if peers:
        best = [min(statistics.median(times[layout, name]) for layout in LAYOUTS)
                for times, name in ((ours, "per_tower"), (peers, "bn"))]
        print(f"per_tower, each in its better layout: ours / peer {best[0] / best[1]:.2f}")
    print(f"outside forward, backward and optimizer: at most {100 * max(outside):.1f} % of the step")


def tax(times, layout, name, without):
    return statistics.median(times[layout, name]) / statistics.median(times[layout, without])


if __name__ == "__main__":
    sys.exit(main())
