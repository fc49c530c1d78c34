#!/usr/bin/env python3
"""What a run costs beside its training: a matrix of runs of one step each, with ranks that stay between the runs and with
ranks that are started for each, in turn.

    tests/bench/start_bench.py [--repeats 3] [--runs 20] [--ranks 2] [--program build/release/bnlab]

Prints, for both, the medians over the repeats of wall time and processor time per run, and over all runs the median and
the largest time from the start of a run to its first step (of those that stay, without the first run of each matrix); at
last the ratios of the medians.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time


def spec(runs, ranks):
    return {"task": {"name": "shapes", "size": [32, 32], "train": 64, "test": 4},
            "model": {"name": "unet", "base": 8, "levels": 2}, "steps": 1, "warmup_steps": 0, "towers": ranks,
            "batch_per_tower": 2, "matrix": {"seed": list(range(runs)), "strategy": ["per_tower", "sync"]}}


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(options, *more):
    """(wall seconds, processor seconds, seconds to the first step of each run), the first two per run"""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "start.json")
        file.write_text(json.dumps(spec(options.runs // 2, options.ranks)))
        wall, processor = time.monotonic(), processor_s()
        subprocess.run([options.program, "run", file, "--results", folder, "--ranks", str(options.ranks), "--device", "cpu",
                        *more], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall, processor = time.monotonic() - wall, processor_s() - processor
        records = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("start/*/*/record.json")]
    starts = [r["result"]["start_s"] for r in records if more or r["placement"]["runs_before"] > 0]
    return wall / len(records), processor / len(records), starts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--program", default="build/release/bnlab")
    options = parser.parse_args()
    kinds = {"staying": (), "fresh": ("--fresh-ranks",)}
    found = {kind: [] for kind in kinds}
    for _ in range(options.repeats):
        for kind, arguments in kinds.items():
            found[kind].append(run(options, *arguments))
    print(f"{options.runs} runs of one step, {options.ranks} ranks, {options.repeats} repeats, load {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} cores\n")
    print(f"{'ranks':8} {'wall s/run':>11} {'processor s/run':>16} {'first step after s':>19} {'at most':>8}")
    medians = {}
    for kind, repeats in found.items():
        starts = [start for repeat in repeats for start in repeat[2]]
        medians[kind] = [statistics.median(repeat[i] for repeat in repeats) for i in (0, 1)] + [statistics.median(starts)]
        wall, processor, start = medians[kind]
        print(f"{kind:8} {wall:11.3f} {processor:16.3f} {start:19.3f} {max(starts):8.3f}")
    print(f"{'ratio':8}" + "".join(f" {a / b:{width}.2f}" for a, b, width in
                                   zip(medians["staying"], medians["fresh"], (11, 16, 19))))


if __name__ == "__main__":
    main()
