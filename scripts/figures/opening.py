"""What `quickstart` found, in words: the first sentence of the project's README, and the last of scripts/run.sh.

  bnlab report quickstart --format json | python3 scripts/figures/opening.py
"""

import sys
import textwrap

import report as reports
import style


BACKGROUND_EVERYWHERE = 0.28  # what that answer has of mean IoU on the test tiles of nuclei


def cell(report, name):
    """The strategy of this label, or the only one of this name, on even shards."""
    cells = [each for each in report.cells if each.conditions.get("shards", "iid") == "iid"]
    found = [each for each in cells if each.strategy == name] or \
            [each for each in cells if style.base_name(each.strategy) == name]
    if len(found) != 1:
        raise reports.ReportError(f"{report.name} has {len(found)} strategies that {name} may mean")
    return found[0]


def sentence(quickstart):
    """Lines of Markdown."""
    saved = {name: cell(quickstart, name).value("saved") for name in ("per_tower", "sync", "group_norm")}
    batch = cell(quickstart, "per_tower").value("batch")
    if None in (*saved.values(), batch):
        raise reports.ReportError("some strategy of quickstart has no run that ended well")
    lost = saved["per_tower"].mean < BACKGROUND_EVERYWHERE
    beneath = f", less than background everywhere would have ({BACKGROUND_EVERYWHERE:.2f})" if lost else ""
    text = (f"What one image per GPU costs, on photographs of nuclei after a short training with 8 towers of one image: where "
            f"each normalises its own image (`per_tower`), the network has {saved['per_tower'].mean:.2f} of mean IoU{beneath}; "
            f"synchronised (`sync`) it has {saved['sync'].mean:.2f}, with `group_norm` {saved['group_norm'].mean:.2f}. With the "
            f"statistics of the test images in place of those that it saved, the same `per_tower` has {batch.mean:.2f} "
            f"([quickstart](results/quickstart/README.md), {saved['sync'].n} seeds: a first look, no verdict).")
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    try:
        print(sentence(reports.read(sys.stdin)), end="")
    except reports.ReportError as error:
        sys.exit(f"opening.py: {error}")
