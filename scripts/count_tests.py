"""Adds up the cases that ctest ran, from its JUnit file, and prints the sum as the last line.

A test of ctest may be many cases: of GoogleTest, whose report is in the folder `reports` beside the JUnit file, or of
unittest, which says how many in its output. Names what failed and what was skipped, so that a skip is never silent. Exit
status 1 if a test failed or none ran.
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


def count_unittest(name, text):
    """The same of what unittest has printed last, or None where it has not."""
    ran = re.findall(r"^Ran (\d+) tests? in", text, re.MULTILINE)
    if not ran:
        return None
    failed = list(dict.fromkeys(re.findall(r"^(?:FAIL|ERROR): (\S+)", text, re.MULTILINE)))
    skipped = re.findall(r"^(?:OK|FAILED) \(.*skipped=(\d+)", text, re.MULTILINE)
    skipped = [f"a case of {name}"] * int(skipped[-1]) if skipped else []
    return int(ran[-1]) - len(failed) - len(skipped), failed, skipped


def count_ctest(path):
    """(passed, failed names, skipped names). A test whose program is missing counts as failed, not as skipped."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
        report = os.path.join(os.path.dirname(path), "reports", re.sub(r"\W", "_", name) + ".xml")
        cases = count_googletest(report) if os.path.exists(report) else count_unittest(name, case.findtext("system-out", ""))
        if case.get("status") == "disabled" or message.startswith("SKIP_"):
            cases = 0, [], [name]
        elif case.get("status") != "run":  # if no case failed, it crashed or took too long
            cases = (cases[0], cases[1] or [name], cases[2]) if cases else (0, [name], [])
        elif cases is None:
            cases = (0, [name], []) if re.search(r"/\d+of\d+$", name) else (1, [], [])  # a shard reports, or ended too early
        passed, failed, skipped = passed + cases[0], failed + cases[1], skipped + cases[2]
    return passed, failed, skipped


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("report", help="the JUnit file (.xml)")
    path = arguments.parse_args().report
    try:
        passed, failed, skipped = count_ctest(path)
    except (OSError, ElementTree.ParseError) as error:
        passed, failed, skipped = 0, [f"{path}: {error}"], []
    for name in skipped:
        print(f"skipped: {name}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
