#!/usr/bin/env python3
"""What steps and kernels took on one GPU: results/one_gpu.

  scripts/figures/one_gpu.py FILE [--out FOLDER] [--rows FOLDER]

FILE: the page's times.json, of an H100; beside it lies h200.json. --out draws one_gpu and kernels there. --rows prints the page's summary,
and writes norms.csv, steps.csv and kernels.csv, and of the H200 exchange.csv and newer_kernels.csv.
"""

import argparse
import json
import statistics
from collections import namedtuple
from pathlib import Path

import layout
import style
from drawing import Drawing, save_page, write_csv

_BASE = "per_tower"
_ALIKE = 0.02

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
    others = [norm for norm in norms if norm.strategy != _BASE]
    alike = [norm for norm in others if abs(norm.relative - 1) < _ALIKE]
    sentence = (f"On one H100 {len(alike)} of {len(others)} strategies take the time of {_BASE} within {100 * _ALIKE:.0f} %, "
                f"{style.base_name(others[0].strategy)} takes {others[0].relative:.2f} times as long.")
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


def norm_rows(document):
    for norm in sorted(norms_of(document), key=lambda norm: norm.relative):
        yield {"strategy": norm.strategy, **{f"fastest_ms_{seed}": f"{time:.2f}" for seed, time in enumerate(norm.fastest_ms)},
               "over_per_tower": f"{norm.relative:.3f}"}


def step_rows(document):
    """Median steps of the U-Net and of PyTorch's, of the PSPNet, and one with two images."""
    times = {}
    for part, network in (("unet_bfloat16", "U-Net, 8 images of 96x128, bfloat16"), ("unet_float32", "U-Net, 8 images of 96x128, float32"),
                          ("pspnet_bfloat16", "PSPNet on a ResNet-50, 4 images of 473x473, bfloat16"),
                          ("resnet50_unet_2_images", "U-Net on a ResNet-50, 2 images of 256x256, bfloat16")):
        for run in document[part]:
            graph = {True: "replayed", False: "launched", None: "alone"}[run.get("cuda_graph")]
            program = f"PyTorch: {run['way']}" if "way" in run else f"bnlab: {run['strategy']}, {graph}"
            of_run = run["step_ms"] if isinstance(run["step_ms"], list) else [run["step_ms"]]
            times.setdefault((network, program), []).extend([of_run[1]] if part == "resnet50_unet_2_images" else of_run)
    for (network, program), of_steps in times.items():
        yield {"network": network, "program": program, "step_ms": f"{statistics.median(of_steps):.2f}"}


def kernel_rows(document):
    for kernel in kernels_of(document):
        yield {"site": kernel.site, "shape": "x".join(map(str, kernel.shape)), "dtype": kernel.dtype, "layout": kernel.layout,
               "megabytes": f"{kernel.megabytes:.0f}", "kernel": kernel.kernel, "percent_of_copy": f"{100 * kernel.share:.0f}",
               "us": f"{kernel.us:.0f}"}


def exchange_rows(h200):
    for row in h200["exchange"]:
        yield {"collective": row["op"], "bytes": row["size_bytes"], "launched_us": row["launched_us"], "in_graph_us": row["in_graph_us"]}


def newer_kernel_rows(h200):
    for row in h200["kernels"]:
        yield {"site": row["site"], "shape": "x".join(map(str, row["shape"])), "dtype": row["dtype"], "layout": row["layout"],
               "megabytes": f"{row['megabytes']:.0f}", "kernel": row["kernel"], "before_us": row["before_us"], "after_us": row["after_us"]}


def h200_summary(h200):
    apart = max(run["largest_difference"] for run in h200["two_ranks"])
    small = [row["in_graph_us"] for row in h200["exchange"] if row["op"] == "all_gather" and row["size_bytes"] <= 1 << 14]

    def sooner(chosen):
        times = [row["before_us"] / row["after_us"] for row in h200["kernels"]
                 if row["kernel"] in ("moments", "backward_sums") and row["megabytes"] < 30 and chosen(row)]
        return f"{min(times):.1f} to {max(times):.1f} times as fast"
    deep = sooner(lambda row: row["layout"] == "contiguous" and row["site"].endswith("stage 4"))
    return (f"| two ranks on one H200, over peers: losses and gradients against the CPU's | {apart:.0e} |\n"
            f"| an exchange of theirs of up to 16 KB, in a graph | {min(small):.1f} to {max(small):.1f} us |\n"
            f"| newer sums over up to 27 MB of channels_last, H200 | {sooner(lambda row: row['layout'] == 'channels_last')} |\n"
            f"| the same over contiguous planes of 7x7 and 30x30 | {deep} |\n")


def summary(document):
    norms = {style.base_name(norm.strategy): norm.relative for norm in norms_of(document)}
    steps = {(row["network"], row["program"]): float(row["step_ms"]) for row in step_rows(document)}
    unet, pspnet = (next(network for network, _ in steps if network.startswith(name)) for name in ("U-Net, 8", "PSPNet"))
    replayed = steps[unet, "bnlab: per_tower, replayed"]
    ratios = [f"{steps[unet, f'PyTorch: {way}'] / replayed:.1f}" for way in ("eager BatchNorm2d", "torch.compile", "torch.compile with graphs")]
    saved = 1 - steps[pspnet, "bnlab: per_tower, replayed"] / steps[pspnet, "bnlab: per_tower, launched"]
    large = min(kernel.share for kernel in kernels_of(document) if round(kernel.megabytes) == 256)

    def span(digits, *names):
        of_names = [norms[name] for name in names]
        return f"{min(of_names):.{digits}f} to {max(of_names):.{digits}f}"
    return (f"| what | seen |\n|---|---:|\n"
            f"| a step with group norm, batch renorm or no norm, against `per_tower` | {span(2, 'group_norm', 'batch_renorm', 'none')} times |\n"
            f"| the same with layer norm, filter response norm or dynamic tanh | "
            f"{span(1, 'layer_norm', 'filter_response_norm', 'dynamic_tanh')} times |\n"
            f"| a replayed step of a small U-Net, against PyTorch eager, compiled, compiled with graphs | {', '.join(ratios)} times as fast |\n"
            f"| what replaying saves of a PSPNet's step | {100 * saved:.0f} % |\n"
            f"| the slowest kernel on tensors of 256 MB, of a copy's rate | {100 * large:.0f} % |\n")


_ROWS = {"norms": norm_rows, "steps": step_rows, "kernels": kernel_rows}
_H200_ROWS = {"exchange": exchange_rows, "newer_kernels": newer_kernel_rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--out", metavar="FOLDER")
    parser.add_argument("--rows", metavar="FOLDER")
    asked = parser.parse_args()
    document = json.loads(Path(asked.file).read_text(encoding="utf-8"))
    if asked.out:
        style.apply()
        for name, drawing in (("one_gpu", draw_steps(document)), ("kernels", draw_kernels(document))):
            save_page(drawing, Path(asked.out) / name)
            print(drawing.sentence)
    if asked.rows:
        h200 = json.loads(Path(asked.file).with_name("h200.json").read_text(encoding="utf-8"))
        for of, tables in ((document, _ROWS), (h200, _H200_ROWS)):
            for name, rows in tables.items():
                write_csv(list(rows(of)), Path(asked.rows) / f"{name}.csv")
        print(summary(document) + h200_summary(h200))


if __name__ == "__main__":
    main()
