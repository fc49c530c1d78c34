#!/usr/bin/env python3
"""Whole training steps: unet(16, 3) at 96x128, 2 images per rank, float32, per_tower and every route of sync, through
shared memory and over sockets.

    tests/bench/step_bench.py [--repeats 5] [--ranks 2] [--program build/release/bnlab] [--peer "python unet_eager.py"]

Prints, for each layout, exchange and strategy, the median step time over the repeats and the images per second relative
to per_tower's; then what one exchange costs inside a step (what sync takes longer than per_tower, over the number of
its exchanges), and the share of the step outside forward, backward and optimizer. With --peer, a rival program runs in
turn with ours, repeat by repeat; then images per second ours / theirs stand beside every row. A peer takes --norm,
--layout, --ranks, --batch-per-rank, --base, --levels, --height, --width, --classes, --steps and --warmup and prints one
JSON line per variant with the keys norm ("bn" or "exact_sync"), layout ("nchw" or "nhwc") and step_ms_median.
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
EXCHANGES = ["shared_memory", "sockets"]
ROUTES = ["all_gather", "all_reduce", "reduce_broadcast", "host", "gather_activations"]
STRATEGIES = {"per_tower": "bn", "sync": "exact_sync",
              **{f"sync(route={route})": "exact_sync" for route in ROUTES[1:]}}
STEPS, WARMUP = 40, 5


def spec(ranks):
    return {"task": {"name": "shapes", "size": [96, 128], "train": 64, "test": 2},
            "model": {"name": "unet", "base": 16, "levels": 3}, "optimizer": {"lr": 0.01, "weight_decay": 1e-4},
            "steps": STEPS + WARMUP, "warmup_steps": WARMUP, "log_every": 1000, "towers": ranks, "batch_per_tower": 2,
            "placement": {"ranks": ranks, "device": "cpu"},
            "matrix": {"memory_format": list(LAYOUTS), "placement.exchange": EXCHANGES,
                       "strategy": ["per_tower", *({"name": "sync", "route": route} for route in ROUTES)]}}


def run_ours(program, ranks):
    """{(layout, exchange, strategy): result of the record}"""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "step.json")
        file.write_text(json.dumps(spec(ranks)))
        subprocess.run([program, "run", file, "--results", folder], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        records = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("step/*/*/record.json")]
    return {(r["spec"]["memory_format"], r["placement"]["exchange"], r["strategy_label"]): r["result"] for r in records}


def run_peer(command, ranks):
    """{(layout, norm): step in milliseconds}"""
    arguments = ["--norm", "bn,exact_sync", "--layout", ",".join(LAYOUTS.values()), "--ranks", str(ranks),
                 "--batch-per-rank", "2", "--base", "16", "--levels", "3", "--height", "96", "--width", "128",
                 "--classes", "5", "--steps", str(STEPS), "--warmup", str(WARMUP)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    lines = subprocess.run(shlex.split(command) + arguments, check=True, capture_output=True, text=True,
                           env=environment).stdout.splitlines()
    found = {(line["layout"], line["norm"]): line["step_ms_median"] for line in map(json.loads, lines)}
    return {(layout, norm): found[LAYOUTS[layout], norm] for layout in LAYOUTS for norm in ("bn", "exact_sync")}


def exchanges_per_step(result):
    return result["communication"]["statistics"]["collectives_per_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--program", default="build/release/bnlab")
    parser.add_argument("--peer", help="command of a rival program")
    options = parser.parse_args()
    ours, peers, outside, exchanges = {}, {}, [], {}
    for _ in range(options.repeats):
        for key, result in run_ours(options.program, options.ranks).items():
            step = result["throughput"]["step_time_s"]["median"]
            parts = result["throughput"]["seconds"]
            ours.setdefault(key, []).append(step * 1e3)
            outside.append((parts["data"] + parts["other"]) / step)
            exchanges[key] = exchanges_per_step(result)
        if options.peer:
            for key, step in run_peer(options.peer, options.ranks).items():
                peers.setdefault(key, []).append(step)
    mine = {key: statistics.median(times) for key, times in ours.items()}
    theirs = {key: statistics.median(times) for key, times in peers.items()}
    print(f"load {os.getloadavg()[0]:.1f}, {options.ranks} ranks, {options.repeats} repeats, medians of {STEPS} steps")
    for (layout, exchange, strategy), step in sorted(mine.items(), key=lambda row: (row[0][:2], row[1])):
        line = (f"{layout:13} {exchange:13} {strategy:30} {step:7.1f} ms"
                f"   images/s of per_tower {mine[layout, exchange, 'per_tower'] / step:.2f}")
        if theirs:
            line += f"   ours / peer's {STRATEGIES[strategy]:10} {theirs[layout, STRATEGIES[strategy]] / step:.2f}"
        print(line)
    for layout in LAYOUTS:
        cost = {exchange: (mine[layout, exchange, "sync"] - mine[layout, exchange, "per_tower"]) * 1e3 /
                exchanges[layout, exchange, "sync"] for exchange in EXCHANGES}
        print(f"{layout:13} one exchange inside a step: {cost['sockets']:.0f} us over sockets, "
              f"{cost['shared_memory']:.0f} us through shared memory")
    if theirs:
        best = [min(times) for times in ([mine[layout, "shared_memory", "per_tower"] for layout in LAYOUTS],
                                         [theirs[layout, "bn"] for layout in LAYOUTS])]
        print(f"per_tower, images/s, each in its better layout: ours / peer {best[1] / best[0]:.2f}")
    print(f"outside forward, backward and optimizer: at most {100 * max(outside):.1f} % of the step")


if __name__ == "__main__":
    sys.exit(main())
