"""A notebook's worth of bnlab: the second figure of the project's README, drawn from the committed records.

  pip install './scripts/python[figures]'
  python scripts/python/example.py price.svg

Run it from the root of a clone in which the program is built: means and intervals are those of `bnlab report`.
"""

# %% what is there
import sys

import matplotlib
import pandas

import bnlab

photographs = bnlab.load("results/strategies_nuclei")
tradeoff = bnlab.load("results/tradeoff")


# %% accuracy at two images per GPU, on photographs; images/s relative to per_tower, through memory and over sockets
def points() -> pandas.DataFrame:
    cells = photographs.cells
    at_two = cells[(cells.metric == "mean_iou") & (cells.population == "saved") & (cells.towers == 8) & (cells.batch_per_tower == 2)]
    accuracy = at_two.set_index("strategy")[["mean", "half_width", "n"]].add_prefix("accuracy_")
    times = tradeoff.cells
    times = times[(times.metric == "relative_images_per_s") & (times.batch_per_tower == 2)]
    return times.pivot(index="strategy", columns="placement", values="mean").join(accuracy).reset_index()


# %% the figure
def draw(table: pandas.DataFrame, file: str) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for number, row in table.iterrows():
        look = {"color": f"C{number}", "marker": "os^Dv<>P"[number % 8]}
        axes.errorbar(row["2x1-cpu"], row.accuracy_mean, yerr=row.accuracy_half_width, linestyle="", label=row.strategy, elinewidth=0.8,
                      **look)
        axes.plot([row["2x1-cpu-sockets"], row["2x1-cpu"]], [row.accuracy_mean] * 2, linewidth=0.8, markerfacecolor="white",
                  markevery=[0], zorder=1, **look)
    axes.set(xlabel="images/s, per_tower = 1 (hollow: over sockets)", ylabel="mean IoU, 2 images per GPU")
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file)


if __name__ == "__main__":
    draw(points(), sys.argv[1] if len(sys.argv) > 1 else "price.svg")
    print(points().round(3).to_string(index=False))
