#!/usr/bin/env python3
"""Verdicts on what bandwidth_bench printed on a GPU, one line for each site, dtype and layout. scripts/gpu_check.sh calls it:

    scripts/gpu_bandwidth.py bandwidth.jsonl

ok where every kernel reaches its bar, else slow; then a tab and each kernel's share of a copy's rate.
"""
import json
import sys


def rows(lines):
    groups = {}
    for line in lines:
        groups.setdefault((line["site"], tuple(line["shape"]), line["dtype"], line["layout"]), []).append(line)
    for (site, (images, channels, height, width), dtype, layout), kernels in groups.items():
        shares = [f"{line['kernel']} {100 * line['share_of_copy']:.0f} %" +
                  (f" ({100 * line['bar']:.0f} asked)" if line["verdict"] == "slow" else "") for line in kernels]
        yield ("slow" if any(line["verdict"] == "slow" for line in kernels) else "ok",
               f"{site}, {images} x {channels} x {height} x {width}, {dtype}, {layout}, {kernels[0]['megabytes']:.0f} MB: "
               f"{', '.join(shares)} of a copy's {kernels[0]['copy_GB_per_s']:.0f} GB/s")


def main():
    with open(sys.argv[1]) as file:
        lines = [json.loads(line) for line in file if line.startswith("{")]
        for verdict, text in rows(lines):
            print(f"{verdict}\t{text}")


if __name__ == "__main__":
    main()
