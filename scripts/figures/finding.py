"""What quickstart found, in a sentence or two: the last line of scripts/run.sh.

  python3 scripts/figures/finding.py QUICKSTART.json NUCLEI_SMALL_BATCH.json PICTURE
"""

import sys

import report as reports
import style

NAMES = "per_tower", "sync", "group_norm"


def score(report, name, at):
    """Mean IoU of the strategy among the cells for which `at` holds; what does not know the towers has one cell for all."""
    named = [cell for cell in report.cells if style.base_name(cell.strategy) == name]
    found = [cell for cell in named if at(cell)] or named
    if len(found) != 1 or not found[0].value("saved"):
        raise reports.ReportError(f"{report.name} has no number of {name} with one image per tower")
    return f"{found[0].value('saved').mean:.2f}"


def sentence(quickstart, trained, picture):
    now, then = ([score(report, name, lambda cell: cell.grouping.batch == 1) for name in NAMES] for report in (quickstart, trained))
    return (f"With one image per GPU, after {quickstart.last_step} steps: {', '.join(map(' '.join, zip(NAMES, now)))} (mean IoU). "
            f"Trained for {trained.last_step} steps they reach {', '.join(then)}. Picture: {picture}")


if __name__ == "__main__":
    try:
        print(sentence(*map(reports.load, sys.argv[1:3]), sys.argv[3]))
    except reports.ReportError as error:
        sys.exit(f"finding.py: {error}")
