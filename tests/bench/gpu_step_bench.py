#!/usr/bin/env python3
"""Whole training steps on one GPU: unet(base, levels) under every strategy, beside eager PyTorch on the same work.

    tests/bench/gpu_step_bench.py [--device cuda] [--precision float32 bfloat16] [--results DIR]

Every strategy trains with the towers on one rank, on a GPU once step by step and once with steps replayed as CUDA graphs;
its record goes to DIR/steps-*. Eager PyTorch trains the same network
with one BatchNorm2d over the batch, once before and once after, in this Python. Prints one line per run: milliseconds per
step and the ratio eager / ours (above 1: ours is faster).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

from rivals import CLASSES, unet

TRIAL = {"size": [32, 32], "base": 8, "levels": 2, "steps": 6}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--size", type=int, nargs=2, default=[96, 128])
    parser.add_argument("--base", type=int, default=16)
    parser.add_argument("--levels", type=int, default=3)
    parser.add_argument("--towers", type=int, default=4)
    parser.add_argument("--batch-per-tower", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="measured; 20 more come before")
    parser.add_argument("--results", default="results/gpu_check")
    parser.add_argument("--program", default="build/release/bnlab")
    parser.add_argument("--trial", action="store_true", help="tiny sizes, to see that the program runs")
    options = parser.parse_args()
    if options.trial:
        vars(options).update(TRIAL)
    return options


def strategies(program):
    listed = subprocess.run([program, "list", "strategies", "--json"], check=True, capture_output=True, text=True).stdout
    return [entry["name"] for entry in json.loads(listed)]


def run_ours(options, precision):
    """The records, by strategy and, where steps were replayed, how many."""
    folder = pathlib.Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    records = {}
    for graph in (False, True) if options.device == "cuda" else (False,):
        file = folder / f"steps-{precision}{'-graph' if graph else ''}.json"
        file.write_text(json.dumps({
            "task": {"name": "shapes", "size": options.size, "train": 128, "test": 2},
            "model": {"name": "unet", "base": options.base, "levels": options.levels},
            "optimizer": {"lr": 0.01, "weight_decay": 1e-4}, "precision": precision, "cuda_graph": graph,
            "steps": options.steps + 20, "warmup_steps": 20, "log_every": 1000,
            "towers": options.towers, "batch_per_tower": options.batch_per_tower,
            "matrix": {"strategy": strategies(options.program)}}, indent=1))
        status = subprocess.run([options.program, "run", file, "--ranks", "1", "--device", options.device,
                                 "--results", folder], stdout=subprocess.DEVNULL, check=False).returncode
        if status > 1:  # 1: some runs failed, which is shown below
            sys.exit(status)
        for path in sorted(folder.glob(f"{file.stem}/*/*/record.json")):
            record = json.loads(path.read_text())
            records[label(record)] = record
    return records


def label(record):
    if not record["spec"]["cuda_graph"]:
        return record["strategy_label"]
    graph = (record.get("result") or {}).get("cuda_graph", {})
    return f"{record['strategy_label']}, {graph.get('replayed_steps', 0)} replayed"


def run_eager(options, precision):
    """Median milliseconds of a step."""
    import torch
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    device = torch.device(options.device)
    model = unet(options.base, options.levels).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4,
                                fused=device.type == "cuda" or None)
    batch = options.towers * options.batch_per_tower
    images = torch.randn(batch, 3, *options.size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (batch, *options.size), device=device)

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize()

    times = []
    for group in range(2 + max(1, options.steps // 10)):  # steps in groups of ten, so that the host runs ahead
        wait()
        start = time.perf_counter()
        for _ in range(10):
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                (outputs,) = model(images)
            torch.nn.functional.cross_entropy(outputs.float(), labels).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        wait()
        if group >= 2:
            times.append((time.perf_counter() - start) * 100)
    return statistics.median(times)


def main():
    options = parse()
    failed = 0
    for precision in options.precision:
        before = run_eager(options, precision)
        records = run_ours(options, precision)
        eager = statistics.median([before, run_eager(options, precision)])
        work = f"{precision}, {options.towers} towers x {options.batch_per_tower} images"
        print(f"{work:40} {'eager PyTorch, one BatchNorm':32} {eager:8.2f} ms")
        for name, record in records.items():
            if record["outcome"]["status"] != "ok":
                failed += 1
                print(f"{work:40} {name:32} {record['outcome']['status']}: {record['outcome']['message']}")
                continue
            ours = record["result"]["throughput"]["step_time_s"]["median"] * 1e3
            print(f"{work:40} {name:32} {ours:8.2f} ms   eager / ours {eager / ours:5.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
