"""Draws the figures of an experiment, or of every experiment in a results folder, from its records alone.

  scripts/plot.sh results/quickstart                   into results/quickstart/figures/
  scripts/plot.sh results --out build/figures          into build/figures/EXPERIMENT/

Prints the files written and one sentence per figure on what it shows; a figure without data is not written, and the
reason is printed. Exit status: 0; 1 a record cannot be read; 2 usage; 3 matplotlib is lacking.
"""

import argparse
import os
import re
import sys

import accuracy_by_population
import accuracy_vs_batch
import cells
import drawing
import memory
import records
import style
import throughput_vs_accuracy
import training_curves

FIGURES = (accuracy_vs_batch, throughput_vs_accuracy, accuracy_by_population, training_curves, memory)


def draw_experiment(folder, out):
    experiment = records.read_experiment(folder)
    styles = style.styles_of(experiment.strategies)
    styles = {label: styles[label] for label in experiment.strategies}
    os.makedirs(out, exist_ok=True)
    print(f"{experiment.name}: {len(experiment.runs)} records"
          + (f", {len(experiment.unfinished)} runs without one" if experiment.unfinished else ""))
    for figure in FIGURES:
        for condition, runs in cells.split_by_condition(experiment.runs, getattr(figure, "PANEL_KEYS", ())):
            name = figure.__name__ + ("-" + re.sub(r"[^A-Za-z0-9.]+", "_", condition) if condition else "")
            try:
                drawn = figure.draw(experiment, runs, condition, styles)
            except drawing.Nothing as reason:
                print(f"  {name}: not drawn, {reason}.")
                continue
            files = drawing.save(drawn, os.path.join(out, name))
            print(f"  {name}: {drawn.sentence}")
            for file in files:
                print(f"    {file}")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="scripts/plot.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="RESULTS/EXPERIMENT or RESULTS")
    parser.add_argument("--out", help="where to write; FOLDER/figures if not given")
    options = parser.parse_args(arguments)
    style.apply()
    try:
        experiments = records.find_experiments(options.folder)
        for folder in experiments:
            out = options.out or os.path.join(folder, "figures")
            if options.out and folder != options.folder:
                out = os.path.join(options.out, os.path.basename(folder))
            draw_experiment(folder, out)
    except records.RecordError as error:
        print(f"plot.sh: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
