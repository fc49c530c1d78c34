"""A notebook's worth of bnlab: the figure on the README's first screen, drawn from the committed records.

  pip install './scripts/python[figures]'
  python scripts/python/example.py first_screen.svg

Run it from the root of a clone in which the program is built: means and intervals are those of `bnlab report`.
"""

# %% what is there
import sys

import matplotlib
import pandas

import bnlab

STRATEGIES = ["per_tower", "averaged", "sync", "frozen(from_fraction=0.8)", "shuffle", "batch_renorm(r_max=1.5,d_max=0.5)",
              "group_norm", "none"]
photographs = bnlab.load("results/strategies_nuclei")
tradeoff = bnlab.load("results/tradeoff")


# %% accuracy at two images per GPU, on photographs; images/s relative to per_tower, through memory and over sockets
def points() -> pandas.DataFrame:
    cells = photographs.cells
    at_two = cells[(cells.metric == "mean_iou") & (cells.towers == 8) & (cells.batch_per_tower == 2)]
    accuracy = at_two[at_two.population == "saved"].set_index("strategy")
    # The mean over the towers' running statistics, of the networks that per_tower trains.
    accuracy.loc["averaged"] = at_two[at_two.population == "mean"].set_index("strategy").loc["per_tower"]
    cost = tradeoff.cells[tradeoff.cells.metric == "relative_images_per_s"].pivot(
        index="strategy", columns="placement", values="mean")
    rows = []
    for strategy in STRATEGIES:
        found = [label for label in accuracy.index if label == strategy] or \
                [label for label in accuracy.index if label.split("(")[0] == strategy]
        score = accuracy.loc[found[0]]
        rows.append({"strategy": strategy, "accuracy": score["mean"], "accuracy_half_width": score["half_width"], "n": score["n"],
                     "relative_images_per_s": cost.loc[strategy, "2x1-cpu"],
                     "relative_images_per_s_over_sockets": cost.loc[strategy, "2x1-cpu-sockets"]})
    return pandas.DataFrame(rows)


# %% the figure
def draw(table: pandas.DataFrame, file: str) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for number, row in enumerate(table.itertuples()):
        look = {"color": f"C{number}", "marker": "os^Dv<>P"[number % 8]}
        axes.errorbar(row.relative_images_per_s, row.accuracy, yerr=row.accuracy_half_width, linestyle="", label=row.strategy,
                      elinewidth=0.8, **look)
        axes.plot([row.relative_images_per_s_over_sockets, row.relative_images_per_s], [row.accuracy] * 2,
                  linewidth=0.8, markerfacecolor="white", markevery=[0], zorder=1, **look)
    axes.set(xlabel="images/s, per_tower = 1 (hollow: over sockets)", ylabel="mean IoU, 2 images per GPU")
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file)


if __name__ == "__main__":
    draw(points(), sys.argv[1] if len(sys.argv) > 1 else "first_screen.svg")
    print(points().round(3).to_string(index=False))
