#!/usr/bin/env python3
"""A U-Net (base 16, 96x128) on two CPU ranks: bnlab::DataParallel beside Python's DistributedDataParallel, in turn.

    tests/bench/data_parallel_bench.py [--images 4] [--rounds 15] [--program build/release/tests/bench/data_parallel_bench]

`per_tower` beside DDP with BatchNorm2d; `sync` beside DDP with a synchronised batch norm as people write it in Python: the
mean and the mean of the squares by a differentiable all_reduce (torch's own SyncBatchNorm has no CPU kernels). One thread per
rank; each side waits while the other trains. Prints a line for each pair: images/s of both, and the median and the quartiles
of the ratios of neighbouring turns (above 1: bnlab is faster). Exit status 1 where the two networks differ in size.
"""
import argparse
import os
import socket
import statistics
import subprocess
import sys

RANKS, STEPS = 2, 10
# What `bnlab launch` sets for every program that it starts: freed memory stays with the process.
SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_TOP_PAD_": "67108864",
            "MALLOC_ARENA_MAX": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Ranks:
    """Processes that print their parameters, then train as many steps as they are told and answer with the seconds."""

    def __init__(self, command, settings):
        port = free_port()
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
                                               "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
                                               "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"} | settings)
            for rank in range(RANKS)]
        self.parameters = {int(process.stdout.readline()) for process in self.processes}

    def seconds(self):
        for process in self.processes:
            print(STEPS, file=process.stdin, flush=True)
        return max(float(process.stdout.readline()) for process in self.processes)

    def end(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def synchronised(network):
    """The network with every BatchNorm2d exchanged for one over all ranks."""
    import torch
    import torch.distributed.nn.functional

    class EagerSync(torch.nn.BatchNorm2d):
        def forward(self, x):
            count = x.numel() // x.shape[1] * RANKS
            sums = torch.cat([x.sum((0, 2, 3)), x.square().sum((0, 2, 3))])
            mean, square = (torch.distributed.nn.functional.all_reduce(sums) / count).chunk(2)
            variance = square - mean.square()
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            scale = self.weight * torch.rsqrt(variance + self.eps)
            return x * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]

    for module in network.modules():
        for name, child in module.named_children():
            if isinstance(child, torch.nn.BatchNorm2d):
                setattr(module, name, EagerSync(child.num_features))
    return network


def serve(kind, images):
    """One of Python's ranks."""
    import time

    import rivals
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    if kind == "sync":
        build = rivals.unet
        rivals.NETWORKS["unet"] = lambda **options: synchronised(build(**options))
    torch.manual_seed(1)
    case = {"model": "unet", "options": {"base": 16, "levels": 3}, "size": [96, 128], "images": images, "precision": "float32"}
    stepper = rivals.Stepper("eager", case, torch.device("cpu"), RANKS)
    print(stepper.parameters, flush=True)
    for line in sys.stdin:
        torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(int(line)):
            stepper.step()
        print(time.perf_counter() - begin, flush=True)
    torch.distributed.destroy_process_group()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--images", type=int, default=4, help="per rank")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--program", default="build/release/tests/bench/data_parallel_bench")
    options.add_argument("--serve", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.serve:
        return serve(asked.serve, asked.images)
    status = 0
    for strategy, rival in (("per_tower", "DDP, BatchNorm2d"), ("sync", "DDP, synchronised in Python")):
        python = [sys.executable, __file__, "--serve", strategy, "--images", str(asked.images)]
        sides = Ranks([asked.program, strategy, str(asked.images), "1"], SETTINGS), Ranks(python, {}), Ranks(python, SETTINGS)
        if len({*sides[0].parameters, *sides[1].parameters}) != 1:
            print(f"{strategy}: other networks: {sides[0].parameters} and {sides[1].parameters} parameters")
            status = 1
        times = [tuple(side.seconds() for side in sides) for _ in range(asked.rounds + 1)][1:]  # the first warms up
        for side in sides:
            side.end()
        ours = [RANKS * asked.images * STEPS / each[0] for each in times]
        print(f"{strategy:<10} DataParallel {statistics.median(ours):.1f} images/s")
        for side, how in ((1, ""), (2, ", started as bnlab launch starts programs")):
            ratios = [each[side] / each[0] for each in times]
            low, middle, high = statistics.quantiles(ratios, n=4)
            theirs = RANKS * asked.images * STEPS / statistics.median(each[side] for each in times)
            print(f"{'':<10} {rival}{how}: {theirs:.1f} images/s, x{middle:.2f} ({low:.2f} to {high:.2f})")
    return status


if __name__ == "__main__":
    sys.exit(main())
