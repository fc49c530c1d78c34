#!/usr/bin/env python3
"""What many towers in one process and many ranks cost: the processor time of a step, all ranks together.

    nice tests/bench/towers_bench.py [--strategies per_tower sync] [--repeats 3] [--most-ranks 16]
                                     [--program build/release/bnlab] [--out FILE]

First 1,024 images as 16, 64, 256 and 1,024 towers of one process; then 64 towers of one image on 1 rank up to --most-ranks
(64 at most), which share the cores of this machine. A step's processor time is that of a run with many steps less that of a
run with few, so that starts and evaluations do not count; runs alternate, and medians over the repeats are printed with the
smallest and largest value. Processor time suffers less from other processes than wall time does. The exponent is that of the
growth from the first row to the last (0: towers or ranks cost nothing; 1: all that a step does is done once per tower or rank).
FILE keeps every number; scripts/figures/towers.py draws it.
"""
import argparse
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

TOWERS, IMAGES, RANKS = [16, 64, 256, 1024], 1024, [1, 4, 16, 64]
FEW, MANY_OF_TOWERS, MANY_OF_RANKS = 2, 42, 202  # steps: enough to stand out from starts that differ


def spec(strategy, towers, batch, steps):
    return {"task": {"name": "shapes", "size": [16, 16], "train": 1024, "test": 4}, "model": {"name": "unet", "base": 8, "levels": 2},
            "steps": steps, "warmup_steps": 0, "log_every": 1000, "optimizer": {"lr": 0.01}, "strategy": strategy,
            "towers": towers, "batch_per_tower": batch, "collective_timeout_s": 600}  # many ranks take long to start


def processor_s(program, asked, ranks):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "towers.json")
        file.write_text(json.dumps(asked))
        subprocess.run([program, "run", file, "--results", folder, "--ranks", str(ranks), "--device", "cpu", "--threads", "1"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def step_ms(program, strategy, towers, batch, ranks, steps_of_many):
    few, many = (processor_s(program, spec(strategy, towers, batch, steps), ranks) for steps in (FEW, steps_of_many))
    return 1e3 * (many - few) / (steps_of_many - FEW)


def table(title, numbers, measure, repeats):
    found = {number: [] for number in numbers}
    load = os.getloadavg()[0]
    for _ in range(repeats):
        for number in numbers:
            found[number].append(measure(number))
    medians = {number: statistics.median(times) for number, times in found.items()}
    first, last = numbers[0], numbers[-1]
    for number, times in found.items():
        print(f"{title:32} {number:6} {medians[number]:10.1f} ms ({min(times):.1f} to {max(times):.1f})"
              f" {medians[number] / medians[first]:7.3f}", flush=True)
    print(f"{title:32} exponent {math.log(medians[last] / medians[first]) / math.log(last / first):.3f}\n", flush=True)
    strategy, along = title.split(", ")
    return {"strategy": strategy, "along": along, "load_before": load, "load_after": os.getloadavg()[0],
            "rows": [{"number": number, "processor_ms": times} for number, times in found.items()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=["per_tower", "sync"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most-ranks", type=int, default=16)
    parser.add_argument("--program", default="build/release/bnlab")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    print(f"processor time of a step, over that of the first row; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    tables = [table(f"{strategy}, towers of a process", TOWERS,
                    lambda towers: step_ms(options.program, strategy, towers, IMAGES // towers, 1, MANY_OF_TOWERS), options.repeats)
              for strategy in options.strategies]
    tables += [table(f"{strategy}, ranks", [ranks for ranks in RANKS if ranks <= options.most_ranks],
                     lambda ranks: step_ms(options.program, strategy, 64, 1, ranks, MANY_OF_RANKS), options.repeats)
               for strategy in options.strategies]
    if options.out:
        options.out.write_text(json.dumps({"images": IMAGES, "steps": [FEW, MANY_OF_TOWERS, MANY_OF_RANKS], "tables": tables}, indent=1) + "\n")


if __name__ == "__main__":
    main()
