#!/usr/bin/env python3
"""What steps and kernels took on one GPU: results/one_gpu.

  scripts/figures/one_gpu.py FILE --out FOLDER [--table norms|steps|kernels]

FILE: the page's times.json; --out: writes one_gpu and kernels there; --table: prints one of the page's tables in Markdown in place of a sentence.
"""

import argparse
import json
import statistics
from collections import namedtuple
from pathlib import Path

import layout
import style
from drawing import Drawing, save_page

_BASE = "per_tower"

# A strategy's fastest turn in each seed, and its mean over that of all copies of per_tower.
Norm = namedtuple("Norm", "strategy fastest_ms relative")
# A kernel on a norm site: bytes of x, share of a copy's rate, microseconds.
Kernel = namedtuple("Kernel", "site shape kernel dtype layout megabytes share us")

_KERNELS = {"moments": style.Style(style.VERMILION, "o", style.SOLID), "backward_sums": style.Style(style.BLUE, "s", style.SOLID),
            "normalise": style.Style(style.GREEN, "^", style.SOLID), "backward_input": style.Style(style.ORANGE, "D", style.SOLID)}


def norms_of(document):
    fastest = {}
    for block in document["norm_cost"]:
        of_block = {}
        for run in block["runs"]:
            of_block.setdefault(run["strategy"], []).append(min(run["step_ms"]))
        for strategy, copies in of_block.items():
            fastest.setdefault(strategy, []).append(statistics.mean(copies))
    base = statistics.mean(fastest[_BASE])
    return [Norm(strategy, times, statistics.mean(times) / base) for strategy, times in fastest.items()]


def copies_apart(document):
    """How far the fastest turns of the copies of per_tower lie apart, at most, relative."""
    apart = []
    for block in document["norm_cost"]:
        copies = [min(run["step_ms"]) for run in block["runs"] if run["strategy"] == _BASE]
        apart.append(max(copies) / min(copies) - 1)
    return max(apart)


def kernels_of(document):
    return [Kernel(line["site"], line["shape"], line["kernel"], line["dtype"], line["layout"], line["megabytes"],
                   line["share_of_copy"], 1000 * line["ms"]) for line in document["bandwidth"]]


def draw_steps(document):
    norms = sorted(norms_of(document), key=lambda norm: -norm.relative)
    base = statistics.mean(next(norm for norm in norms if norm.strategy == _BASE).fastest_ms)
    slowest = norms[0]
    sentence = f"A step of one H100 takes up to {100 * (slowest.relative - 1):.0f} % longer than with per_tower ({style.base_name(slowest.strategy)})."
    figure, axes = layout.new_page(
        sentence, f"U-Net on ResNet-50, 8 images of 256x256, bfloat16, CUDA graph; per_tower {base:.2f} ms; fastest turn of each of two seeds.",
        style.DOUBLE, 2.5)
    at, styles = axes[0][0], style.styles_of([norm.strategy for norm in norms])
    at.axvline(1, color=style.GREY, linewidth=0.8, zorder=1)
    for row, norm in enumerate(norms):
        look = styles[norm.strategy]
        at.plot([time / base for time in norm.fastest_ms], [row] * len(norm.fastest_ms), color=look.colour, marker=look.marker,
                linestyle="", markersize=5)
        at.annotate(f"{norm.relative:.2f}", (max(norm.fastest_ms) / base, row), xytext=(6, 0), textcoords="offset points", va="center",
                    size=style.SMALL)
    at.set_yticks(range(len(norms)), [style.base_name(norm.strategy) for norm in norms])
    at.margins(x=0.08)
    at.set_xlabel("time of a step, per_tower = 1")
    return Drawing(figure, [{"panel": "norms", "strategy": norm.strategy, "seed": seed, "ms": time, "relative": time / base}
                            for norm in norms_of(document) for seed, time in enumerate(norm.fastest_ms)], sentence)


def draw_kernels(document):
    kernels = [kernel for kernel in kernels_of(document) if kernel.layout == "channels_last" and kernel.kernel in _KERNELS]
    slowest = min(kernels, key=lambda kernel: kernel.share)
    sentence = (f"Kernels reach the rate of a copy on large activations; on {slowest.megabytes:.0f} MB {slowest.kernel} reaches "
                f"{100 * slowest.share:.0f} % of it.")
    figure, axes = layout.new_page(sentence, "One H100, six norm sites of a U-Net on ResNet-50, channels_last, float32 and bfloat16.",
                                   style.DOUBLE, 2.6,
                                   legend={name.replace("_", " "): look._replace(dash="") for name, look in _KERNELS.items()})
    at = axes[0][0]
    for name, look in _KERNELS.items():
        points = [kernel for kernel in kernels if kernel.kernel == name]
        at.plot([kernel.megabytes for kernel in points], [kernel.share for kernel in points], color=look.colour, marker=look.marker,
                linestyle="", markersize=4.5, alpha=0.85)
    at.axhline(1, color=style.GREY, linewidth=0.8, zorder=1)
    at.set_xscale("log", base=2)
    ticks = [4, 16, 64, 256]
    at.set_xticks(ticks, [str(tick) for tick in ticks])
    at.set_xlabel("MB of the activations")
    at.set_ylabel("bytes/s, a copy = 1")
    at.set_ylim(bottom=0)
    return Drawing(figure, [{"panel": "kernels", "site": kernel.site, "kernel": kernel.kernel, "dtype": kernel.dtype,
                             "megabytes": kernel.megabytes, "share": kernel.share} for kernel in kernels], sentence)


def norms_table(document):
    text = "| strategy | fastest turn, ms, per seed | over `per_tower` |\n|---|---:|---:|\n"
    for norm in sorted(norms_of(document), key=lambda norm: norm.relative):
        text += f"| `{norm.strategy}` | {', '.join(f'{time:.2f}' for time in norm.fastest_ms)} | {norm.relative:.3f} |\n"
    return text + f"\nThe fastest turns of a seed's three copies of `per_tower` lie within {100 * copies_apart(document):.1f} % of each other.\n"


def steps_table(document):
    """Steps of the U-Net beside PyTorch's, those of the PSPNet, and one with two images."""
    text = "| network | program | step, ms |\n|---|---|---:|\n"
    for precision, runs in (("bfloat16", document["unet_bfloat16"]), ("float32", document["unet_float32"])):
        for run in runs:
            times = run["step_ms"] if isinstance(run["step_ms"], list) else [run["step_ms"]]
            name = run.get("way") or f"`{run['strategy']}`, cuda_graph {'on' if run['cuda_graph'] else 'off'}"
            who = "PyTorch" if "way" in run else "bnlab"
            text += f"| U-Net, 8 images of 96x128, {precision} | {who}: {name} | {statistics.median(times):.2f} |\n"
    shown = {}
    for run in document["pspnet_bfloat16"]:
        shown.setdefault((run["strategy"], run["cuda_graph"]), []).append(run["step_ms"])
    for (strategy, graph), times in shown.items():
        text += (f"| PSPNet on a ResNet-50, 4 images of 473x473, bfloat16 | bnlab: `{strategy}`, cuda_graph {'on' if graph else 'off'} | "
                 f"{statistics.median(times):.2f} |\n")
    for run in document["resnet50_unet_2_images"]:
        text += f"| U-Net on a ResNet-50, 2 images of 256x256, bfloat16 | bnlab: `{run['strategy']}`, alone | {run['step_ms'][1]:.2f} |\n"
    return text


def kernels_table(document):
    names = ["moments", "normalise", "backward_sums", "backward_input", "backward_residual"]
    text = f"| site | dtype | layout | MB | {' | '.join(names)} |\n|---|---|---|---:|{'---:|' * len(names)}\n"
    cells = {}
    for kernel in kernels_of(document):
        site = f"{kernel.site}, {'x'.join(map(str, kernel.shape))}"
        cells.setdefault((site, kernel.dtype, kernel.layout, kernel.megabytes), {})[kernel.kernel] = kernel
    for (site, dtype, layout_name, megabytes), of_site in cells.items():
        shares = " | ".join(f"{100 * of_site[name].share:.0f} % ({of_site[name].us:.0f} us)" for name in names)
        text += f"| {site} | {dtype} | {layout_name} | {megabytes:.0f} | {shares} |\n"
    return text


_TABLES = {"norms": norms_table, "steps": steps_table, "kernels": kernels_table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--out", metavar="FOLDER")
    parser.add_argument("--table", choices=_TABLES)
    asked = parser.parse_args()
    document = json.loads(Path(asked.file).read_text(encoding="utf-8"))
    if asked.out:
        style.apply()
        for name, drawing in (("one_gpu", draw_steps(document)), ("kernels", draw_kernels(document))):
            save_page(drawing, Path(asked.out) / name)
            print(drawing.sentence)
    if asked.table:
        print(_TABLES[asked.table](document))


if __name__ == "__main__":
    main()
