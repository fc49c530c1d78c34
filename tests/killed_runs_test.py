#!/usr/bin/env python3
"""Kills runs at random moments, starts them again until they are done, and compares what they leave with an undisturbed
run, to the bit. In the suite with a few trials; by hand with many:

  BNLAB_PROGRAM=build/release/bnlab tests/killed_runs_test.py --trials 100 --seed 1
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

# What varies beside the strategy. Each stands for another part of what a run must hold to go on.
OPTIONS = [
    {},
    {"optimizer": {"name": "adamw", "lr": 0.01}, "weight_ema": 0.9},
    {"populations": ["saved", "tower:1", "mean", "pooled"], "precision": "bfloat16"},
    {"data_workers": 2, "shards": "sorted:class", "batch_per_tower": [3, 1]},
    {"average_weights_every": 10},
]
MOST_KILLS = 3


def program():
    return os.environ.get("BNLAB_PROGRAM", "build/release/bnlab")


def strategies():
    listed = subprocess.run([program(), "list", "strategies", "--format", "json"], check=True, capture_output=True, text=True)
    fitting = {"ghost": {"name": "ghost", "virtual_batch": 1}}  # divides every tower's batch
    return [fitting.get(entry["name"], entry["name"]) for entry in json.loads(listed.stdout)]


def spec_of(strategy, options, steps):
    spec = {
        "task": {"name": "shapes", "size": [16, 16], "train": 24, "test": 8},
        "model": {"name": "unet", "base": 8, "levels": 2},  # norms of 8 channels: group_norm has 8 groups
        "strategy": strategy, "towers": 2, "batch_per_tower": 2, "seed": 3, "steps": steps,
        "log_every": 3, "eval_every": 40, "warmup_steps": 1,
    }
    return {**spec, **options}


def start(spec_file, results, ranks):
    command = [program(), "run", spec_file, "--results", results, "--ranks", str(ranks), "--retry"]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def run_folder(results):
    found = [path for path in results.glob("*/*/*") if path.is_dir()]
    return found[0] if found else None


def children(process):
    try:
        return list(map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
    except OSError:
        return []


def reached(results, lines):
    folder = run_folder(results)
    try:
        return folder is not None and (folder / "metrics.jsonl").read_bytes().count(b"\n") >= lines
    except FileNotFoundError:  # not there yet, or the folder was just taken over
        return False


def kill(process, chance):
    """The launcher or one of its ranks, by force, or the launcher in order."""
    ranks = children(process)
    how = chance.choice(["launcher", "rank", "interrupt", "terminate"])
    try:
        if how == "rank" and ranks:
            os.kill(chance.choice(ranks), signal.SIGKILL)
        else:
            process.send_signal({"interrupt": signal.SIGINT, "terminate": signal.SIGTERM}.get(how, signal.SIGKILL))
    except ProcessLookupError:
        pass
    process.communicate()
    while any(os.path.exists(f"/proc/{rank}") for rank in ranks):  # ranks die with their launcher
        time.sleep(0.01)
    return how


def kept(results):
    """The record's result and the log without what depends on the clock and the machine; the weights."""
    folder = run_folder(results)
    record = json.loads((folder / "record.json").read_text())
    resumed = record["result"].pop("resumed_at_steps", [])
    for of_the_machine in ("start_s", "throughput", "memory"):
        record["result"].pop(of_the_machine)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("time_s")
    weights = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    assert not (folder / "checkpoints").exists(), "checkpoints are left"
    return {"status": record["outcome"]["status"], "result": record["result"], "log": lines, "weights": weights}, resumed


def trial(folder, strategy, options, ranks, steps, chance):
    """Whether all is alike, the kills, and the steps from which the run went on."""
    spec = spec_of(strategy, options, steps)
    plain, disturbed = folder / "plain.json", folder / "disturbed.json"
    plain.write_text(json.dumps(spec))
    disturbed.write_text(json.dumps({**spec, "checkpoint_every": chance.choice([1, 5, 20])}))
    process = start(plain, folder / "a", ranks)
    _, talk = process.communicate()
    assert process.returncode == 0, talk
    expected, _ = kept(folder / "a")

    kills = []
    while len(kills) < MOST_KILLS:
        process = start(disturbed, folder / "b", ranks)
        lines = chance.randrange(steps // 3)
        while process.poll() is None and not reached(folder / "b", lines):
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        if process.poll() is not None:
            process.communicate()
            break
        kills.append(kill(process, chance))
    for _ in range(2):  # a rank that was killed is booked as a crash, which is tried once more
        process = start(disturbed, folder / "b", ranks)
        _, talk = process.communicate()
        if process.returncode == 0:
            break
    assert process.returncode == 0, talk
    left, resumed = kept(folder / "b")
    return [key for key in expected if left[key] != expected[key]], kills, resumed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    names = strategies()
    chance.shuffle(names)
    failed = resumes = 0
    for number in range(arguments.trials):
        strategy, options = names[number % len(names)], chance.choice(OPTIONS)
        ranks = 2 if "average_weights_every" in options else chance.choice([1, 2])
        with tempfile.TemporaryDirectory(prefix="bnlab_killed_") as folder:
            differing, kills, resumed = trial(pathlib.Path(folder), strategy, options, ranks, arguments.steps, chance)
        failed += bool(differing)
        resumes += len(resumed)
        verdict = f"DIFFERS in {', '.join(differing)}" if differing else "equal"
        print(f"{number}: {json.dumps(strategy)} {json.dumps(options)} {ranks} ranks: {' '.join(kills) or 'no kill'}; "
              f"went on from {resumed}: {verdict}", flush=True)
    print(f"seed {arguments.seed}: {arguments.trials} trials, {resumes} resumes, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
    sys.exit(main())
