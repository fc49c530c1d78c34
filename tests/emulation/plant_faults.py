#!/usr/bin/env python3
"""Writes copies of the kernels' sources in which every fault of a table is planted behind a switch: fault k is there
where emulation::fault == k. A fault is an original text of a file, which has to occur exactly once, and a faulty one in
which PLANTED stands for the switch. So one build carries all of them.

  python3 tests/emulation/plant_faults.py SOURCES OUT    SOURCES: the root of the project; OUT takes the copies and
                                                         fault_names.hpp
"""

import pathlib
import sys

KERNELS, WALK, OPERATIONS = "cuda_kernels.cuh", "cuda_walk.cuh", "cuda_operations.cuh"
FAULTS = [
    # name, file, original, faulty
    ("a barrier is missing", KERNELS, "    __syncthreads();\n  }\n", "    if (!PLANTED) __syncthreads();\n  }\n"),
    ("half of a block is not summed", KERNELS, "other < n; other += left", "other < (PLANTED ? n / 2 : n); other += left"),
    ("a thread adds its own sum", KERNELS, "+= values[k][other];", "+= values[k][PLANTED ? t : other];"),
    ("neighbours in a plane are not counted", KERNELS, "v < V; ++v) add(", "v < (PLANTED && !kRows ? 1 : V); ++v) add("),
    ("parts merge as if their means were equal", KERNELS, "second + count * (dist", "second + (PLANTED ? 0 : count) * (dist"),
    ("parts of a slice share a place", KERNELS, "parts + blockIdx.y * 3", "parts + (PLANTED ? 0 : blockIdx.y) * 3"),
    ("the last part is not merged", KERNELS, "p + k * step < gridDim.y ?", "p + k * step < gridDim.y - PLANTED ?"),
    ("the first block merges", KERNELS, "== blocks - 1;", "== (PLANTED ? 0 : blocks - 1);"),
    ("a ticket is not reset", KERNELS, "(ticket, blocks - 1)", "(ticket, blocks - !PLANTED)"),
    ("tiles share a ticket", KERNELS, "place.slice * gridDim.x + blockIdx.x",
     "place.slice * gridDim.x + (PLANTED ? 0 : blockIdx.x)"),
    ("a finish step does not wait for all slices", KERNELS, "blockIdx.x, to.slices)", "blockIdx.x, PLANTED ? 1 : to.slices)"),
    ("a tile relies on the counts of another", OPERATIONS, "row[0] = count;", "if (!PLANTED || channel == 0) row[0] = count;"),
    ("the pair is not updated", OPERATIONS, "if (with_pair) pair", "if (with_pair && !PLANTED) pair"),
    ("the last channel is not written", KERNELS, "t < tile && inside) {", "t < tile && inside && channel < channels - PLANTED) {"),
    ("a later launch takes the first slices", WALK, "layout.plane, first, plane_parts",
     "layout.plane, PLANTED ? 0 : first, plane_parts"),
    ("the tail is lost", WALK, "for (; k < end; k += step) f(", "for (; k < end - PLANTED; k += step) f("),
    ("batches overlap", WALK, "k += kBatch * step)", "k += (kBatch - PLANTED) * step)"),
    ("parts of a plane overlap", WALK, "width * V * cut.plane_parts;", "width * V * (PLANTED ? 1 : cut.plane_parts);"),
    ("a block is no power of two", WALK, "int64_t p = 1;", "int64_t p = PLANTED ? std::min(n, limit) : 1;"),
    ("unaligned vectors", "cuda.cu", "% 16 != 0) return false;", "% 16 != 0 && !PLANTED) return false;"),
    ("vectors where none fit", "cuda.cu", "sizeof(T))) ==\n         0;", "sizeof(T))) ==\n         0 || PLANTED;"),
    ("the pivot is zero", OPERATIONS, "if (count == 0) pivot", "if (count == 0 && !PLANTED) pivot"),
    ("the gradient passes where y is 0", OPERATIONS, "(y.value[v]) > 0 ?", "(y.value[v]) > (PLANTED ? -1 : 0) ?"),
    ("a sign computed from x leaves out the shift", OPERATIONS, "scale[v], shift[v]) > 0 ?", "scale[v], PLANTED ? A(0) : shift[v]) > 0 ?"),
    ("ReLU swallows NaN", OPERATIONS, "in.relu && result[v] < 0 ?", "in.relu && (PLANTED ? !(result[v] > 0) : result[v] < 0) ?"),
    ("the residual is not read", OPERATIONS, "if (in.residual != nullptr) {", "if (in.residual != nullptr && !PLANTED) {"),
    ("a gradient in another layout is taken as it is", "kernels.cpp", "if (tensor.strides() == x.strides())",
     "if (PLANTED || tensor.strides() == x.strides())"),
    ("the last channels have no thread", "each_item.cu", "(items + kThreads - 1) / kThreads", "(items + (PLANTED ? 0 : kThreads - 1)) / kThreads"),
    ("the remembered variance is biased", "finish_channel.hpp", "at_least_one(in.count(i) - 1)", "at_least_one(in.count(i) - !PLANTED)"),
    ("every set takes the sums of the first group", "finish_channel.hpp", "shared + row * summands", "shared + (PLANTED ? 0 : row) * summands"),
    ("a set takes the sums of the group before", "finish_channel.hpp", "if (sharing.row(s) != row_now) {",
     "if (PLANTED ? row_now < 0 : sharing.row(s) != row_now) {"),
    ("the sums of a group's last tower are left out", "finish_channel.hpp", "i < summands; ++i", "i < summands - PLANTED; ++i"),
    ("sets are counted from this rank's first", "rows.hpp", "(first + static_cast", "((PLANTED ? 0 : first) + static_cast"),
    ("a channel relies on the counts of another", "merge_channel.hpp", "row[0] = count;  // every channel writes the same, and",
     "if (!PLANTED || c == 0) row[0] = count;  // and"),
    ("the moments that met are not merged", "finish_channel.hpp", "if (content == Content::towers) {", "if (content == Content::towers && !PLANTED) {"),
    ("the pair is updated before it renormalises", "finish_channel.hpp", "    forward(c);\n    if (updates) {",
     "    if (updates && PLANTED) pair(c);\n    forward(c);\n    if (updates && !PLANTED) {"),
    ("the backward pass takes each set for one element", "finish_channel.hpp", "static_cast<T>(n);", "static_cast<T>(PLANTED ? 1 : n);"),
    ("the steps after an exchange take a launch more", "finish.cpp", "    each_item(steps, ",
     "    if (PLANTED) each_item(steps.forward, rows_of(rows).channels, rows);\n    each_item(steps, "),
    ("the spread of the means is lost", "merge_channel.hpp", "within + between;", "within + (PLANTED ? 0 : between);"),
    ("sums that met are taken for moments", "finish_channel.hpp", "} else if (content == Content::sums) {", "} else if (content == Content::sums && !PLANTED) {"),
    ("a rank adds all its towers to the first group", "merge_channel.hpp", "if (sharing.row(t) == k) {\n          const", "if ((PLANTED ? 0 : sharing.row(t)) == k) {\n          const"),
    ("the squares of the means are left out of the sums", "merge_channel.hpp", "in.m2(t, c) + n * (m * m)", "in.m2(t, c) + (PLANTED ? 0 : n) * (m * m)"),
    ("the saved variance is taken for a deviation", "finish_channel.hpp", "static_cast<T>(sqrt(saved_var[c] + static_cast<T>(eps)))",
     "static_cast<T>(PLANTED ? saved_var[c] : sqrt(saved_var[c] + static_cast<T>(eps)))"),
    ("the channels of a group keep their own means", "sample_group.hpp", "positions * (d * d);", "(PLANTED ? 0 : positions) * (d * d);"),
    ("a group is counted as one channel", "sample_group.hpp", "positions * static_cast<double>(size))",
     "positions * static_cast<double>(PLANTED ? 1 : size))"),
    ("a group's gradients leave out gamma", "sample_group.hpp", "weight == nullptr ? 1 :", "weight == nullptr || PLANTED ? 1 :"),
    ("a lane leaves out its channels", "sample_group.hpp", "c = first + lane;", "c = first + (PLANTED ? 0 : lane);"),
    ("a variance below zero is kept", "merge_channel.hpp", "squares && m2 < 0", "squares && m2 < 0 && !PLANTED"),
    ("sums are not divided by the count", "merge_channel.hpp", "in.mean(k, c) / at_least_one(n)", "in.mean(k, c) / (PLANTED ? 1 : at_least_one(n))"),
    ("sums of towers go to the group before", "merge_channel.hpp", "out[k * columns", "out[(PLANTED && k > 0 ? k - 1 : k) * columns"),
    ("a pair without a variance is divided by eps", "finish_channel.hpp", "invstd[c] = saved_var == nullptr ? T(1)", "invstd[c] = saved_var == nullptr ? (PLANTED ? T(10) : T(1))"),
    ("every sample takes the group of the first", "sample_group.hpp", "sums + 2 * sample * channels", "sums + (PLANTED ? 0 : 2 * sample) * channels"),
    ("the last sample gives the parameters nothing", "sample_group.hpp", "n < samples; ++n", "n < samples - PLANTED; ++n"),
    ("the parameters have no items", "sample_finish.cpp", "samples * groups * lanes + channels, sums", "samples * groups * lanes + (PLANTED ? 0 : channels), sums"),
    ("an empty set divides by zero", "rows.hpp", "return n < 1 ? 1 : n;", "return n < 1 && !PLANTED ? 1 : n;"),
]


def main(root, out):
    kernels = root / "strategies" / "kernels"
    texts = {name: (kernels / name).read_text(encoding="utf-8") for name in {fault[1] for fault in FAULTS}}
    for number, (name, file, original, faulty) in enumerate(FAULTS, 1):
        if texts[file].count(original) != 1:
            sys.exit(f'{file} has to contain exactly once, to plant the fault "{name}": {original}')
        texts[file] = texts[file].replace(original, faulty.replace("PLANTED", f"(::emulation::fault == {number})"))
    folder = out / "strategies" / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text('#include "tests/emulation/fault.hpp"\n' + text, encoding="utf-8")
    names = "".join(f'    "{fault[0]}",\n' for fault in FAULTS)
    (out / "fault_names.hpp").write_text(f"constexpr const char* kFaults[] = {{\n{names}}};\n", encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
