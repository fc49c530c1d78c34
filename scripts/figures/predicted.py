#!/usr/bin/env python3
"""The tables of results/prediction, from what `bnlab cost --json` says. Each prints a summary in Markdown and writes every row.

  scripts/figures/predicted.py price NETWORK=COST.json... --csv FILE     what synchronising takes
  scripts/figures/predicted.py quality VALIDATE.json --csv FILE          how good the predictions are
  scripts/figures/predicted.py steps VALIDATE.json                       the same of the steps, by ranks and exchange
"""

import argparse
import json
import statistics
from pathlib import Path

from drawing import write_csv

_SYNC = "sync(route=all_reduce)"
_SHOWN = (8, 64)  # GPUs
_STEPS = "Steps, each by its rank's own work and the probe's exchanges"


def read(file):
    return json.loads(Path(file).read_text(encoding="utf-8"))


def digits(number, of=2):
    return f"{float(f'{number:.{of}g}'):g}"


def interval(of, unit, text, sign=""):
    return f"{text(unit * of['mid'])}{sign} ({text(unit * of['low'])} to {text(unit * of['high'])})"


def price_rows(networks):
    for network, file in networks:
        for row in (each for each in read(file)["rows"] if each["ranks"] in _SHOWN):
            yield {"network": network, "strategy": row["strategy"], "gpus": row["ranks"],
                   **{f"{name}_{at}": digits(unit * row[key][at], 5) for name, key, unit in (
                       ("step_ms", "step_s", 1e3), ("statistics_ms", "statistics_s", 1e3), ("gradients_ms", "gradients_s", 1e3),
                       ("percent_of_images_per_s", "relative_images_per_s", 100)) for at in ("low", "mid", "high")}}


def more(row, alone):
    """Seconds that a step takes more."""
    return {at: row["step_s"][at] - alone["step_s"][at] for at in ("low", "mid", "high")}


def share(percent):
    text = f"{percent:.0f}"
    return text if text != "100" else f"{percent:.1f}"


def price_table(networks):
    text = "| network | GPUs | ms more a step | images/s left |\n|---|---:|---:|---:|\n"
    for network, file in networks:
        rows = {(row["strategy"], row["ranks"]): row for row in read(file)["rows"]}
        for gpus in (gpus for gpus in _SHOWN if (_SYNC, gpus) in rows):
            row = rows[_SYNC, gpus]
            text += (f"| {network} | {gpus} | {interval(more(row, rows['per_tower', gpus]), 1e3, digits)} | "
                     f"{interval(row['relative_images_per_s'], 100, share, ' %')} |\n")
    return text


def error(row):
    return abs(row["predicted_s"]["mid"] / row["measured_s"] - 1)


def quality_rows(checked):
    for title, part in checked.items():
        for row in part["rows"]:
            yield {"part": title, "what": row["what"], "by": row["by"],
                   **{f"predicted_us_{at}": digits(1e6 * row["predicted_s"][at], 5) for at in ("low", "mid", "high")},
                   "measured_us": digits(1e6 * row["measured_s"], 5), "error_percent": f"{100 * error(row):.1f}", "inside": row["inside"]}


def quality_table(checked):
    text = "| predicted | inside their interval | median error | worst |\n|---|---:|---:|---:|\n"
    for title, part in checked.items():
        text += (f"| {title} | {part['in_interval']} of {part['count']} | {100 * part['median_error']:.1f} % | "
                 f"{100 * part['worst_error']:.1f} % |\n")
    return text


def steps_table(checked):
    settings = {}
    for row in checked[_STEPS]["rows"]:
        settings.setdefault(row["by"], []).append(row)
    text = "| steps of | inside their interval | median error | worst |\n|---|---:|---:|---:|\n"
    for setting, rows in sorted(settings.items()):
        errors = [100 * error(row) for row in rows]
        text += (f"| {setting.replace('_', ' ')} | {sum(row['inside'] for row in rows)} of {len(rows)} | "
                 f"{statistics.median(errors):.1f} % | {max(errors):.1f} % |\n")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["price", "quality", "steps"])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--csv", metavar="FILE")
    asked = parser.parse_args()
    if asked.table == "price":
        networks = [file.rpartition("=")[::2] for file in asked.files]
        rows, text = price_rows(networks), price_table(networks)
    else:
        checked = read(asked.files[0])
        rows, text = quality_rows(checked), quality_table(checked) if asked.table == "quality" else steps_table(checked)
    if asked.csv:
        write_csv(list(rows), asked.csv)
    print(text)


if __name__ == "__main__":
    main()
