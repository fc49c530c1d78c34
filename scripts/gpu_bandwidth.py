#!/usr/bin/env python3
"""What share of a copy's rate the kernels reach, by bandwidth_bench, one line for each site, dtype and layout.
scripts/gpu_check.sh calls it:

    scripts/gpu_bandwidth.py --program build/release/tests/bench/bandwidth_bench --log DIR/bandwidth.jsonl
                             [--against OTHER] [--seconds 300] [--trial] [-- options of bandwidth_bench]

With --against the program takes turns with that of another build, and each kernel's time there over its time here
stands behind it (above 1: faster now). Two turns each, one where no time is left. ok where every kernel reaches its
bar, else slow; then a tab and the shares. --trial takes tiny shapes, to see that the program runs, and judges nothing.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

TURNS = 2


def measured(program, words, seconds, log):
    """The lines of one turn, also of one that was cut short, and its exit status."""
    try:
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=seconds, check=False)
        text, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as cut:
        text, status = cut.stdout or b"", 124
    lines = [line for line in text.decode(errors="replace").splitlines() if line.startswith("{") and line.endswith("}")]
    for line in lines:
        print(json.dumps({"program": program} | json.loads(line)), file=log, flush=True)
    return [json.loads(line) for line in lines], status


def by_kernel(lines):
    found = {}
    for line in lines:
        group = found.setdefault((line["site"], tuple(line["shape"]), line["dtype"], line["layout"]), {})
        group.setdefault(line["kernel"], []).append(line)
    return found


def rows(lines, others=()):
    before = by_kernel(others)
    for key, kernels in by_kernel(lines).items():
        site, (images, channels, height, width), dtype, layout = key
        shares, slow = [], False
        for name, turns in kernels.items():
            share = statistics.median(turn["share_of_copy"] for turn in turns)
            said = f"{name} {100 * share:.0f} %"
            if share < turns[0].get("bar", 0):
                slow = True
                said += f" ({100 * turns[0]['bar']:.0f} asked)"
            if earlier := before.get(key, {}).get(name):
                said += " x{:.2f}".format(min(turn["ms"] for turn in earlier) / min(turn["ms"] for turn in turns))
            shares.append(said)
        first = next(iter(kernels.values()))[0]
        yield ("slow" if slow else "ok",
               f"{site}, {images} x {channels} x {height} x {width}, {dtype}, {layout}, {first['megabytes']:.0f} MB: "
               f"{', '.join(shares)} of a copy's {first['copy_GB_per_s']:.0f} GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--against")
    parser.add_argument("--log", required=True)
    parser.add_argument("--seconds", type=float, default=300, help="that all turns may take")
    parser.add_argument("--trial", action="store_true")
    parser.add_argument("words", nargs="*", help="for bandwidth_bench")
    options = parser.parse_args()
    if options.trial:
        options.words = ["--trial", "yes", "--rounds", "1", *options.words]
    programs = [options.program, *([options.against] if options.against else [])]
    lines, until, longest, status = [[] for _ in programs], time.monotonic() + options.seconds, 0, 0
    with open(options.log, "w") as log:
        for turn in range(TURNS if options.against else 1):
            for program, its_lines in list(zip(programs, lines))[::-1 if turn % 2 else 1]:
                begun = time.monotonic()
                if turn and begun + 1.2 * longest > until:
                    continue
                found, ended = measured(program, options.words, max(1, until - begun), log)
                its_lines += found
                status = status or ended
                longest = max(longest, time.monotonic() - begun)
    if options.trial:
        count = len(lines[0])
        print(f"{'ok' if count else 'FAILED'}\t{count} measurements (a trial: times mean nothing)", flush=True)
        return status
    for verdict, text in rows(*lines):
        print(f"{verdict}\t{text}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
