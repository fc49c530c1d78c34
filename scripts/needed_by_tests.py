"""What the tests that ctest would run need: prints the files to build, and on stderr how long building and testing will
take, for scripts/test.sh.

  python3 scripts/needed_by_tests.py PRESET [ctest arguments]
"""

import json
import os
import pathlib
import re
import subprocess
import sys

UNKNOWN_SECONDS = 20  # of a file that this folder has not compiled yet, where it has compiled none


def tests_of(preset, arguments):
    listed = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1", *arguments], capture_output=True, text=True)
    if listed.returncode != 0:
        sys.exit(listed.stderr)
    return [{"name": test["name"]} | {each["name"]: each["value"] for each in test["properties"]}
            for test in json.loads(listed.stdout)["tests"]]


def build_seconds(folder, files):
    """(steps, seconds of one core) until the files are there, by what the steps have taken here."""
    plan = folder / "plan.ninja"  # without the question whether the configuration is new, which a dry run stops at
    plan.write_text(re.sub(r"^build build\.ninja:.*?\n\n", "", (folder / "build.ninja").read_text(encoding="utf-8"),
                           flags=re.MULTILINE | re.DOTALL), encoding="utf-8")
    said = subprocess.run(["ninja", "-C", folder, "-f", plan.name, "-n", *files], capture_output=True, text=True).stdout
    steps = re.findall(r"^\[\d+/\d+\] (?:Building \w+ object|Linking .*?) ?(\S+)$", said, re.MULTILINE)
    log = folder / ".ninja_log"
    took = {}
    for line in log.read_text(encoding="utf-8").splitlines()[1:] if log.exists() else []:
        begin, end, _, file, _ = line.split("\t")
        took[file] = (int(end) - int(begin)) / 1000
    compiled = [seconds for file, seconds in took.items() if file.endswith(".o")]
    usual = sum(compiled) / len(compiled) if compiled else UNKNOWN_SECONDS
    return len(steps), sum(took.get(file, usual if file.endswith(".o") else 1) for file in steps)


def test_seconds(folder, tests):
    """Of one core, as they took here before or as their COST says; and the longest of them."""
    file = folder / "Testing/Temporary/CTestCostData.txt"
    took = {}
    for line in file.read_text(encoding="utf-8").split("---")[0].splitlines() if file.exists() else []:
        name, runs, seconds = line.rsplit(" ", 2)
        if int(runs) > 0:
            took[name] = float(seconds)
    each = [took.get(test["name"], test.get("COST", 1)) for test in tests]
    return sum(each), max(each, default=0)


def in_words(seconds):
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def main(preset, arguments):
    folder = pathlib.Path("build", preset).resolve()
    tests = tests_of(preset, arguments)
    if not tests:
        sys.exit(f"No test is called so: {' '.join(arguments)}")
    files = sorted({os.path.relpath(file, folder) for test in tests for file in test.get("REQUIRED_FILES", [])})
    cores = os.cpu_count()
    steps, building = build_seconds(folder, files) if files else (0, 0)
    testing, longest = test_seconds(folder, tests)
    print(f"{len(tests)} test{'s' if len(tests) > 1 else ''}, about {in_words(max(longest, testing / 2))}"
          f"{f', after {steps} steps of building, about {in_words(building / cores)}' if steps else ''}.", file=sys.stderr)
    print("\n".join(files))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
