#!/usr/bin/env python3
"""Several launchers work on one folder, and they and their ranks are killed at random moments and started again. Every run
must end well, with the result of an undisturbed matrix, and nothing but runs may be left. By hand with more kills:

  BNLAB_PROGRAM=build/release/bnlab BNLAB_KILLS=200 tests/killed_matrix_test.py --seed 1
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

LAUNCHERS = 2
FINE = (0, 1, 75)  # 1: a rank was killed, 75: others have runs


def program():
    return os.environ.get("BNLAB_PROGRAM", "build/release/bnlab")


def start(spec, results):
    command = [program(), "run", spec, "--results", results, "--ranks", "2", "--threads", "1"]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ranks_of(launcher):
    try:
        return list(map(int, pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()))
    except OSError:
        return []


def records(results):
    return [json.loads(file.read_text()) for file in results.glob("*/[!.]*/[!.]*/record.json")]


def answers(results):
    return {record["run_id"]: (record["outcome"]["status"], record["result"] and record["result"]["final"]) for record in records(results)}


def end(launcher):
    _, said = launcher.communicate()
    assert launcher.returncode in (*FINE, -signal.SIGKILL), f"{launcher.returncode}: {said}"


def kill_one(launchers, chance):
    """By force. What was killed: a launcher or a rank."""
    launcher = chance.choice(launchers)
    ranks = ranks_of(launcher)
    what, process = ("rank", chance.choice(ranks)) if ranks and chance.random() < 0.5 else ("launcher", launcher.pid)
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return "none"
    return what


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    wanted = int(os.environ.get("BNLAB_KILLS", "6"))
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="bnlab_killed_") as name:
        folder = pathlib.Path(name)
        spec = folder / "spec.json"
        spec.write_text(json.dumps({
            "task": {"name": "shapes", "size": [16, 16], "train": 24, "test": 8}, "model": {"name": "unet", "base": 4, "levels": 2},
            "steps": 40, "log_every": 2, "towers": 2, "batch_per_tower": 2, "checkpoint_every": 5,
            "matrix": {"seed": list(range(max(2, wanted // 16))), "strategy": ["per_tower", "sync"]}}))
        undisturbed = start(spec, folder / "a")
        end(undisturbed)
        expected = answers(folder / "a")
        kills = {"launcher": 0, "rank": 0, "none": 0}
        launchers = [start(spec, folder / "b") for _ in range(LAUNCHERS)]
        while kills["launcher"] + kills["rank"] < wanted:
            time.sleep(chance.uniform(0.2, 6))
            kills[kill_one(launchers, chance)] += 1
            for i, launcher in enumerate(launchers):
                if launcher.poll() is not None:
                    end(launcher)
                    launchers[i] = start(spec, folder / "b")
        for launcher in launchers:
            end(launcher)
        last = start(spec, folder / "b")
        end(last)
        statuses = sorted({record["outcome"]["status"] for record in records(folder / "b")})
        left = [str(file.relative_to(folder)) for file in (folder / "b").rglob(".*") if file.name not in (".hashes", ".running", ".data_checks")]
        left += [str(file) for file in (folder / "b").rglob("checkpoints")]
        print(f"seed {arguments.seed}: {kills['launcher']} launchers and {kills['rank']} ranks killed, {len(expected)} runs, "
              f"outcomes {', '.join(statuses)}; left: {', '.join(left) or 'nothing'}")
        differing = [run for run, answer in expected.items() if answers(folder / "b").get(run) != answer]
        for run in differing:
            print(f"{run}: {answers(folder / 'b').get(run)}, expected {expected[run]}")
        return 1 if differing or left or last.returncode != 0 else 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
    sys.exit(main())
