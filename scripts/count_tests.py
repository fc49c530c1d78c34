"""Adds up what ctest (a JUnit file) and unittest (its text output) ran, and prints it as the last line.

A test of ctest may be many cases of GoogleTest; then the folder `reports` beside the JUnit file has their report. Names
what failed and what was skipped, so that a skip is never silent. Exit status 1 if a test failed or none ran.
"""

import argparse
import os
import re
import sys
import xml.etree.ElementTree as ElementTree


def count_googletest(path):
    """(passed, failed names, skipped names) of one report of GoogleTest."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            failed.append(name)
        elif case.get("result") == "completed":
            passed += 1
        else:
            skipped.append(name)
    return passed, failed, skipped


def count_ctest(path):
    """(passed, failed names, skipped names). A test whose program is missing counts as failed, not as skipped."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
        report = os.path.join(os.path.dirname(path), "reports", re.sub(r"\W", "_", name) + ".xml")
        cases = count_googletest(report) if os.path.exists(report) else (0, [], [])
        passed, failed, skipped = passed + cases[0], failed + cases[1], skipped + cases[2]
        if case.get("status") == "run":
            passed += 0 if any(cases) else 1
        elif case.get("status") == "disabled" or message.startswith("SKIP_"):
            skipped.append(name)
        elif not cases[1]:  # it crashed or took too long
            failed.append(name)
    return passed, failed, skipped


def count_unittest(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    ran = re.search(r"^Ran (\d+) tests? in", text, re.MULTILINE)
    if not ran:
        return 0, [f"{path}: the tests did not run to their end"], []
    failed = re.findall(r"^(?:FAIL|ERROR): (\S+)", text, re.MULTILINE)
    skipped = re.search(r"skipped=(\d+)", text)
    skipped = [f"a test of {path}"] * int(skipped.group(1)) if skipped else []
    return int(ran.group(1)) - len(failed) - len(skipped), failed, skipped


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("reports", nargs="+", help="JUnit files (.xml) and outputs of unittest")
    arguments.add_argument("--skipped", type=int, default=0, help="tests left out before they could be started")
    arguments = arguments.parse_args()
    passed, failed, skipped = 0, [], []
    for path in arguments.reports:
        try:
            counts = count_ctest(path) if path.endswith(".xml") else count_unittest(path)
        except (OSError, ElementTree.ParseError) as error:
            counts = 0, [f"{path}: {error}"], []
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    for name in skipped:
        print(f"skipped: {name}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped) + arguments.skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
