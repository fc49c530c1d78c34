#!/usr/bin/env python3
"""Training steps of a larger network: pspnet on resnet 18 of width 16, 97x129, 2 ranks x 2 images, float32, with BN per
rank, beside the same network in eager PyTorch under DistributedDataParallel.

    tests/bench/pspnet_bench.py [--repeats 5] [--program build/release/bnlab]

Both programs run in turn, repeat by repeat, in both layouts. Prints the median step times, and the images per second
ours / eager PyTorch's, layout by layout and each in its better layout. Eager PyTorch has its best settings: fused SGD,
gradients as views of their buckets, ReLU in place, no broadcast of buffers.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from rivals import CLASSES, pspnet

LAYOUTS = ["contiguous", "channels_last"]
STEPS, WARMUP = 30, 5
RANKS, BATCH, HEIGHT, WIDTH = 2, 2, 97, 129


def run_ours(program):
    """{layout: step in milliseconds}"""
    spec = {"task": {"name": "shapes", "size": [HEIGHT, WIDTH], "train": 64, "test": 2},
            "model": {"name": "pspnet", "backbone": {"name": "resnet", "width": 16}, "auxiliary_weight": 0.4},
            "strategy": "per_tower", "optimizer": {"lr": 0.01, "weight_decay": 1e-4}, "steps": STEPS + WARMUP,
            "warmup_steps": WARMUP, "log_every": 1000, "towers": RANKS, "batch_per_tower": BATCH,
            "placement": {"ranks": RANKS, "device": "cpu"}, "matrix": {"memory_format": LAYOUTS}}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "pspnet.json")
        file.write_text(json.dumps(spec))
        subprocess.run([program, "run", file, "--results", folder], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        records = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("pspnet/*/*/record.json")]
    return {r["spec"]["memory_format"]: r["result"]["throughput"]["step_time_s"]["median"] * 1e3 for r in records}


def eager_rank(rank, port, sender):
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // RANKS))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    images, labels = torch.randn(BATCH, 3, HEIGHT, WIDTH), torch.randint(CLASSES, (BATCH, HEIGHT, WIDTH))
    variants = {}
    for layout in LAYOUTS:
        memory_format = getattr(torch, f"{layout}_format" if layout == "contiguous" else layout)
        network = pspnet(16, 18).to(memory_format=memory_format)
        ddp = torch.nn.parallel.DistributedDataParallel(network, broadcast_buffers=False, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(network.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)
        variants[layout] = ddp, optimizer, images.to(memory_format=memory_format)
    times = {layout: [] for layout in LAYOUTS}
    for step in range(STEPS + WARMUP):
        for layout, (ddp, optimizer, x) in variants.items():
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            main, auxiliary = ddp(x)
            (cross_entropy(main, labels) + 0.4 * cross_entropy(auxiliary, labels)).backward()
            optimizer.step()
            if step >= WARMUP:
                times[layout].append((time.perf_counter() - begin) * 1e3)
    if rank == 0:
        sender.send({layout: statistics.median(times[layout]) for layout in LAYOUTS})
    dist.destroy_process_group()


def run_eager():
    """{layout: step in milliseconds}"""
    import torch.multiprocessing as processes

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = processes.get_context("spawn")
    receiver, sender = context.Pipe(False)
    ranks = [context.Process(target=eager_rank, args=(rank, port, sender)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    found = receiver.recv()
    for rank in ranks:
        rank.join()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--program", default="build/release/bnlab")
    options = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    times = {"ours": [], "eager": []}
    for _ in range(options.repeats):
        times["ours"].append(run_ours(options.program))
        times["eager"].append(run_eager())
    print(f"load {os.getloadavg()[0]:.1f}, {RANKS} ranks x {BATCH} images, {options.repeats} repeats, medians of {STEPS} steps")
    medians = {who: {layout: statistics.median(run[layout] for run in runs) for layout in LAYOUTS}
               for who, runs in times.items()}
    for layout in LAYOUTS:
        ours, eager = medians["ours"][layout], medians["eager"][layout]
        print(f"{layout:13} ours {ours:6.1f} ms   eager {eager:6.1f} ms   images/s ours / eager {eager / ours:.2f}")
    best = {who: min(found.values()) for who, found in medians.items()}
    print(f"each in its better layout: images/s ours / eager {best['eager'] / best['ours']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
