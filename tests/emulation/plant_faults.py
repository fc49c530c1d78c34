#!/usr/bin/env python3
"""Writes copies of the kernels' sources in which every fault of a table is planted behind a switch: fault k is there
where emulation::fault == k. A fault is an original text of a file, which has to occur exactly once, and a faulty one in
which PLANTED stands for the switch. So one build carries all of them.

  python3 tests/emulation/plant_faults.py SOURCES OUT    SOURCES: the root of the project; OUT takes the copies and
                                                         fault_names.hpp
"""

import pathlib
import sys

DEVICE, REDUCE, WALK, SWEEP, HOST, STEPS = "cuda.cuh", "reduce.cuh", "walk.cuh", "sweep.cuh", "sweep.cu", "coefficients.cpp"
CHANNEL, SAMPLES, FORMULAS = "channel.hpp", "sample_channel.hpp", "response.hpp"
RESPONSE, SQUASH, TEAM = "response.cu", "squash.cu", "steps.cu"
FAULTS = [
    # name, file, original, faulty
    ("a barrier is missing", REDUCE, "  __syncthreads();\n  const int team", "  if (!PLANTED) __syncthreads();\n  const int team"),
    ("half of a warp is not summed", REDUCE, "d = width; d < 32;", "d = width; d < (PLANTED ? 16 : 32);"),
    ("a lane adds its own sum", REDUCE, "numbers[k], distance);", "numbers[k], PLANTED ? 0 : distance);"),
    ("a shuffle leaves out half of its lanes", REDUCE, "__shfl_xor_sync(~0u,", "__shfl_xor_sync(PLANTED ? 0xffffu : ~0u,"),
    ("a shuffle waits for lanes that have ended", REDUCE, "  for (int d = 1; d < team && d",
     "  if (PLANTED && lane > 0) return;\n  for (int d = 1; d < team && d"),
    ("the last warp is not summed", REDUCE, "lane < warps) {", "lane < warps - PLANTED) {"),
    ("the warps of a wide tile are not all summed", REDUCE, "lane + team; warp < warps;", "lane + team; warp < warps && !PLANTED;"),
    ("neighbours in a plane are not summed", DEVICE, "v = k + N; v < V;", "v = k + N; v < V && !PLANTED;"),
    ("threads merge as if their means were equal", DEVICE, "const A d = (other", "const A d = PLANTED ? A(0) : (other"),
    ("threads merge as if their pivots were equal", DEVICE, "(other.pivot[k] - pivot[k]) +", "(PLANTED ? A(0) : other.pivot[k] - pivot[k]) +"),
    ("parts merge as if their means were equal", DEVICE, "(part.mean - base)", "(PLANTED ? 0.0 : part.mean - base)"),
    ("parts of a slice share a place", REDUCE, "gridDim.y + blockIdx.y)", "gridDim.y + (PLANTED ? 0 : blockIdx.y))"),
    ("the last part is not merged", REDUCE, "p < gridDim.y)", "p < gridDim.y - PLANTED)"),
    ("the first block merges", REDUCE, "== blocks - 1;", "== (PLANTED ? 0 : blocks - 1);"),
    ("a ticket is not reset", REDUCE, "if (last) *ticket", "if (last && !PLANTED) *ticket"),
    ("tiles share a ticket", REDUCE, "place.slice * gridDim.x + blockIdx.x,", "place.slice * gridDim.x + (PLANTED ? 0 : blockIdx.x),"),
    ("a step does not wait for all slices", REDUCE, "(to.slices > 1 &&", "(to.slices > 1 && !PLANTED &&"),
    ("running statistics are not updated", DEVICE, "return updates; }", "return updates && !PLANTED; }"),
    ("the last channel is not written", REDUCE, "channel < channels, writes", "channel < channels - PLANTED, writes"),
    ("a later launch takes the first slices", HOST, "cut.first_slice = first;", "cut.first_slice = PLANTED ? 0 : first;"),
    ("the tail is lost", WALK, "if (count > 0) f(", "if (count > 0 && !PLANTED) f("),
    ("the last batch is taken for whole", WALK, "at[k] < steps.end;", "at[k] < steps.end || PLANTED;"),
    ("a thread goes on in another channel", WALK, "at += wrap;", "at += PLANTED ? 0 : wrap;"),
    ("a plane counts as one place", WALK, "column -= across;", "column -= PLANTED ? column : across;"),
    ("parts of a plane overlap", WALK, "stride = blockDim.x * gridDim.y;", "stride = blockDim.x * (PLANTED ? 1 : gridDim.y);"),
    ("a block is no power of two", HOST, "int64_t p = 1;", "int64_t p = PLANTED ? std::min(n, limit) : 1;"),
    ("unaligned vectors", SWEEP, "sizeof(T)) != 0) return false;", "sizeof(T)) != 0 && !PLANTED) return false;"),
    ("vectors where none fit", SWEEP, "% kVector<T> == 0;", "% kVector<T> == 0 || PLANTED;"),
    ("the pivot is zero", DEVICE, "= static_cast<A>(x.value[k]);", "= PLANTED ? A(0) : static_cast<A>(x.value[k]);"),
    ("every batch begins anew", DEVICE, "if (count > 0) return;", "if (count > 0 && !PLANTED) return;"),
    ("places beyond the end are counted", DEVICE, "count += inside;", "count += inside || PLANTED;"),
    ("the gradient passes where y is 0", DEVICE, "(y.value[v]) > 0 ?", "(y.value[v]) > (PLANTED ? -1 : 0) ?"),
    ("a sign computed from x leaves out the shift", DEVICE, "scale[v], shift[v]) > 0 ?", "scale[v], PLANTED ? A(0) : shift[v]) > 0 ?"),
    ("ReLU swallows NaN", DEVICE, "in.relu && result < 0 ?", "in.relu && (PLANTED ? !(result > 0) : result < 0) ?"),
    ("the residual is not read", DEVICE, "if (in.residual != nullptr) result", "if (in.residual != nullptr && !PLANTED) result"),
    ("a gradient in another layout is taken as it is", "sweeps.cpp", "if (tensor.strides() == x.strides())",
     "if (PLANTED || tensor.strides() == x.strides())"),
    ("the last channels have no thread", TEAM, "(items + at_once - 1) / at_once", "(items + (PLANTED ? 0 : at_once - 1)) / at_once"),
    ("the remembered variance is biased", CHANNEL, "at_least_one(count - ddof)))};", "at_least_one(count - (PLANTED ? 0 : ddof))))};"),
    ("the variance that normalises is biased", CHANNEL, "at_least_one(count - ddof)) +", "at_least_one(count - (PLANTED ? 0 : ddof))) +"),
    ("every set takes the sums of the first group", CHANNEL, "group_sums + group * summands", "group_sums + (PLANTED ? 0 : group) * summands"),
    ("a set takes the sums of the group before", CHANNEL, "&& grouping.group(s) != group_now) {",
     "&& (PLANTED ? group_now < 0 : grouping.group(s) != group_now)) {"),
    ("the sums of a group's last tower are left out", CHANNEL, "i < summands; i +=", "i < summands - PLANTED; i +="),
    ("sets are counted from this rank's first", CHANNEL, "(first + static_cast", "((PLANTED ? 0 : first) + static_cast"),
    ("a channel relies on the counts of another", CHANNEL, "row[0] = count;  // every channel writes the same, and",
     "if (!PLANTED || c == 0) row[0] = count;  // and"),
    ("pooled moments are not merged", CHANNEL, "if (merges())", "if (merges() && !PLANTED)"),
    ("running statistics are updated before they renormalise", CHANNEL, "team.lanes()) forward.of_set(s, c);\n    team.wait();\n    if (updates &&",
     "team.lanes()) {\n      if (PLANTED && s == 0 && updates) update(c);\n      forward.of_set(s, c);\n    }\n    team.wait();\n    if (!PLANTED && updates &&"),
    ("the backward pass takes each set for one element", CHANNEL, "n < 1 ? T(1) : n;", "n < 1 || PLANTED ? T(1) : n;"),
    ("the steps after an exchange take a launch more", STEPS, "    each_channel<double>(moments, body,",
     "    if (PLANTED) each_item(body.forward, rows_of(rows).channels, rows);\n    each_channel<double>(moments, body,"),
    ("the spread of the means is lost", CHANNEL, "within + between;", "within + (PLANTED ? 0 : between);"),
    ("pooled sums are taken for moments", CHANNEL, "layout == PooledLayout::group_sums &&",
     "layout == PooledLayout::group_sums && !PLANTED &&"),
    ("a rank adds all its towers to the first group", CHANNEL, "if (grouping.group(t) == k) {\n          const",
     "if ((PLANTED ? 0 : grouping.group(t)) == k) {\n          const"),
    ("the squares of the means are left out of the sums", CHANNEL, "in.m2(t, c) + n * (m * m)", "in.m2(t, c) + (PLANTED ? 0 : n) * (m * m)"),
    ("the running variance is taken for a deviation", CHANNEL, "static_cast<T>(sqrt(running_var[c] + static_cast<T>(eps)))",
     "static_cast<T>(PLANTED ? running_var[c] : sqrt(running_var[c] + static_cast<T>(eps)))"),
    ("the channels of a group keep their own means", SAMPLES, "positions * (d * d);", "(PLANTED ? 0 : positions) * (d * d);"),
    ("a group is counted as one channel", SAMPLES, "positions * static_cast<double>(size))",
     "positions * static_cast<double>(PLANTED ? 1 : size))"),
    ("a group's gradients leave out gamma", SAMPLES, "weight == nullptr ? 1 :", "weight == nullptr || PLANTED ? 1 :"),
    ("every thread adds all channels of a group", SAMPLES, "c < end; c += team.lanes()) sum +=",
     "c < end; c += PLANTED ? 1 : team.lanes()) sum +="),
    ("a team leaves out a half", TEAM, "half > 0; half /= 2", "half > (PLANTED ? 1u : 0u); half /= 2"),
    ("the threads of a team have their own sums", TEAM, "const T total = values[first_];", "const T total = values[PLANTED ? own_ : first_];"),
    ("a variance below zero is kept", CHANNEL, "squares && m2 < 0", "squares && m2 < 0 && !PLANTED"),
    ("sums are not divided by the count", CHANNEL, "in.mean(k, c) / at_least_one(n)", "in.mean(k, c) / (PLANTED ? 1 : at_least_one(n))"),
    ("sums of towers go to the group before", CHANNEL, "out[k * columns", "out[(PLANTED && k > 0 ? k - 1 : k) * columns"),
    ("running statistics without a variance are divided by eps", CHANNEL, "running_var == nullptr ? T(1)",
     "running_var == nullptr ? (PLANTED ? T(10) : T(1))"),
    ("every sample takes the group of the first", SAMPLES, "sums + 2 * sample * channels", "sums + (PLANTED ? 0 : 2 * sample) * channels"),
    ("the last sample gives the parameters nothing", SAMPLES, "n < samples; ++n", "n < samples - PLANTED; ++n"),
    ("the parameters have no items", SAMPLES, "(channels + lanes - 1) / lanes", "(PLANTED ? 0 : channels + lanes - 1) / lanes"),
    ("there are no tickets for all slices together", SWEEP, "(slices + 1) * plan.grid.x", "(slices + !PLANTED) * plan.grid.x"),
    ("channels right of the last are read", WALK, "place.inside ? channel : 0;", "place.inside || PLANTED ? channel : 0;"),
    ("a residual of its own alignment is not looked at", SWEEP, "in.y, in.residual, in.out,", "in.y, PLANTED ? in.out : in.residual, in.out,"),
    ("a thread sums without limit", HOST, "ceil_divide(steps, kMaximumSteps)", "PLANTED ? 1 : ceil_divide(steps, kMaximumSteps)"),
    ("a part below zero is kept", DEVICE, "of.m2[0] < 0 ?", "of.m2[0] < 0 && !PLANTED ?"),
    ("a total below zero is kept", DEVICE, "m2 < 0.0 ? 0.0 : m2}", "m2 < 0.0 && !PLANTED ? 0.0 : m2}"),
    ("32 bits count the elements before a row", WALK, "place.channel + row * cut.channels;",
     "place.channel + (PLANTED ? static_cast<int>(row * cut.channels) : row * cut.channels);"),
    ("32 bits count the elements before a plane", WALK, "(begin + first / width) * of_row +",
     "(PLANTED ? static_cast<int>((begin + first / width) * of_row) : (begin + first / width) * of_row) +"),
    ("a ticket is taken before what was written is out", REDUCE, "fetch_add(1, ::cuda",
     "fetch_add(1, PLANTED ? ::cuda::memory_order_acquire : ::cuda"),
    ("what others wrote is read from before the ticket", REDUCE, "fetch_add(1, ", "fetch_add(1, PLANTED ? ::cuda::memory_order_release : "),
    ("two streams share tickets", HOST, "stream.device_index(), stream.id()}", "stream.device_index(), PLANTED ? 0 : stream.id()}"),
    ("all slices are remembered by the first", DEVICE, "all[i * update", "all[(PLANTED ? 0 : i) * update"),
    ("channels beyond the last take towers", TEAM, "inside ? lane : channel", "inside || PLANTED ? lane : channel"),
    ("a channel's threads do not wait for its moments", TEAM, "wait() const { __syncthreads(); }",
     "wait() const {\n    if (!PLANTED) __syncthreads();\n  }"),
    ("channels without an item take part in a sum", REDUCE, "Lanes{inside ? lane :", "Lanes{inside || PLANTED ? lane :"),
    ("the lanes of a channel keep their own sums", REDUCE, "d < all; d *= 2", "d < all && !PLANTED; d *= 2"),
    ("tau is not added", RESPONSE, "passed + tau[v]", "passed + (PLANTED ? A(0) : tau[v])"),
    ("a sign leaves out the residual", RESPONSE, "return kAdds ?", "return kAdds && !PLANTED ?"),
    ("tau gets all gradients", RESPONSE, "passes ? A(0) : dy;", "passes && !PLANTED ? A(0) : dy;"),
    ("the root passes no gradient", FORMULAS, "-scale * (s * s)", "-scale * (PLANTED ? 0 : s * s)"),
    ("the threshold swallows NaN", RESPONSE, "in.relu && z < 0 ?", "in.relu && (PLANTED ? !(z >= 0) : z < 0) ?"),
    ("gamma gets its gradient by x as it came", FORMULAS, "static_cast<double>(invstd[n * channels + c])", "(PLANTED ? 1 : static_cast<double>(invstd[n * channels + c]))"),
    ("eps is left out", FORMULAS, "root(square + eps)", "root(square + (PLANTED ? 0 : eps))"),
    ("the slope's gradient leaves out x", SQUASH, "[0] += u * x;", "[0] += u * (PLANTED ? A(1) : x);"),
    ("the slope gets the first channel's gradient", SQUASH, "c < channels;", "c < (PLANTED ? 1 : channels);"),
    ("tanh passes every gradient", SQUASH, "(1 - t * t)", "(1 - (PLANTED ? A(0) : t * t))"),
    ("a sign is computed without the residual", SQUASH, "if constexpr (kAdds) y = static",
     "if constexpr (kAdds) if (!PLANTED) y = static"),
    ("squashed NaN is swallowed", SQUASH, "in.relu && z < 0 ?", "in.relu && (PLANTED ? !(z >= 0) : z < 0) ?"),
    ("an empty set divides by zero", CHANNEL, "return n < 1 ? 1 : n;", "return n < 1 && !PLANTED ? 1 : n;"),
]


def main(root, out):
    kernels = root / "strategies" / "kernels"
    names = {fault[1] for fault in FAULTS} | {path.name for path in kernels.glob("*.cu")}
    texts = {name: (kernels / name).read_text(encoding="utf-8") for name in names}
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
