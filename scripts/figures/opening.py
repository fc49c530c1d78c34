"""What was found, in words: the first sentences of the project's README, and the last one of scripts/run.sh.

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


def filled(text):
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) + "\n"


def beneath_background(score):
    return f"less than predicting background everywhere ({BACKGROUND_EVERYWHERE:.2f})" if score < BACKGROUND_EVERYWHERE else ""


def headline(nuclei):
    """What a small batch per GPU costs, from the report of `nuclei_small_batch`: lines of Markdown."""
    def score(name, towers, population="saved"):
        at = [each.value(population) for each in nuclei.cells
              if style.base_name(each.strategy) == name and each.grouping.towers == towers]
        if len(at) != 1 or at[0] is None:
            raise reports.ReportError(f"{nuclei.name} has no number of {name} with {towers} towers")
        return at[0]
    one, two = score("per_tower", 16), score("per_tower", 8)
    below = sum(value < BACKGROUND_EVERYWHERE for value in one.seeds.values())
    beneath = f" ({below} of {one.n} seeds score below predicting background everywhere, {BACKGROUND_EVERYWHERE:.2f})" if below else ""
    equal = [each for each in nuclei.contrasts if each.verdict == "equal" and each.grouping and each.grouping.towers == 8
             and [style.base_name(side) for side in each.sides] == ["group_norm", "sync"]]
    if not equal:
        raise reports.ReportError(f"{nuclei.name} does not find group_norm equal to another strategy; the opening of README says so")
    return filled(
        f"With one image per GPU, each GPU normalising its own image (`per_tower`), a U-Net on microscopy images of nuclei reaches a mean "
        f"IoU of {one.mean:.2f}{beneath}; with synchronised BN (`sync`) it reaches {score('sync', 16).mean:.2f}. "
        f"With two images per GPU it is {two.mean:.2f} against {score('sync', 8).mean:.2f}, and `group_norm` equals `sync` within 2 points. "
        f"Nearly all of the loss comes with fixed statistics: with the test batch's own the same `per_tower` networks reach "
        f"{score('per_tower', 16, 'batch').mean:.2f} and {score('per_tower', 8, 'batch').mean:.2f}, with recomputed running statistics "
        f"{score('per_tower', 16, 'precise').mean:.2f} and {score('per_tower', 8, 'precise').mean:.2f} "
        f"([nuclei_small_batch](results/nuclei_small_batch/README.md), {one.n} seeds, {nuclei.last_step} steps, each strategy at a learning rate that tuning chose).")


def caption(quickstart):
    """What the picture shows, which is of one seed, and what all have found."""
    return filled("The picture shows one seed of a shorter training. " + sentence(quickstart))


def sentence(quickstart):
    """What a short training shows of it: lines of Markdown."""
    saved = {name: cell(quickstart, name).value("saved") for name in ("per_tower", "sync", "group_norm")}
    batch = cell(quickstart, "per_tower").value("batch")
    if None in (*saved.values(), batch):
        raise reports.ReportError("some strategy of quickstart has no run that ended well")
    beneath = beneath_background(saved["per_tower"].mean)
    return filled(
        f"With one image on each of 8 GPUs, after a short training on microscopy images of nuclei, the mean IoU is "
        f"{saved['per_tower'].mean:.2f} for `per_tower` (each GPU normalises its own image{'; ' + 'in the mean ' + beneath.replace(' (', ', ').rstrip(')') if beneath else ''}), "
        f"{saved['sync'].mean:.2f} for `sync` (synchronised BN) and {saved['group_norm'].mean:.2f} for `group_norm`. Evaluated with the "
        f"test images' own statistics, the same `per_tower` networks have {batch.mean:.2f} "
        f"([quickstart](results/quickstart/README.md), {saved['sync'].n} seeds, one learning rate: a first look, no verdict).")


if __name__ == "__main__":
    try:
        print(sentence(reports.read(sys.stdin)), end="")
    except reports.ReportError as error:
        sys.exit(f"opening.py: {error}")
