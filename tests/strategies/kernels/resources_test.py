#!/usr/bin/env python3
"""What nvcc makes of the sweeps of strategies/kernels for sm_90 and sm_100: registers, spills, and how many of a
processor's threads run at once. No loop may spill, and half of the threads must fit. Needs nvcc, but no GPU.

  python3 tests/strategies/kernels/resources_test.py BUILD [--table]

BUILD is a build folder: the kernels are compiled as they are there, but for these architectures (skipped, with exit
status 77, where it has none for CUDA). --table prints the table of strategies/kernels/README.md, and checks nothing.
Loops are found in what nvdisasm shows. Where there is none (beside nvcc, on PATH, or in the triton that comes with torch),
16 bytes of spills are taken to be outside of loops, and more are not.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ARCHITECTURES = ("sm_90", "sm_100")
SWEEPS = ("moments", "sums", "normalise", "input_gradient", "response", "squash")  # files of strategies/kernels
THREADS = 256  # of a block
MAIN = ("MomentsOperation", "BackwardSums", "BackwardSumsFromInput", "Normalise", "InputGradient", "InputGradientFromInput")

Kernel = collections.namedtuple("Kernel", "operation dtype layout vector registers shared spilled in_loops")


def blocks_at_once(kernel):
    """On a processor of 65,536 registers, dealt out to warps by 256, of 2,048 threads and 228 KiB of shared memory."""
    warps = THREADS // 32
    of_warp = -(-kernel.registers * 32 // 256) * 256
    return min(2048 // THREADS, 65536 // (of_warp * warps), 228 * 1024 // (kernel.shared + 1024))


def occupancy(kernel):
    return blocks_at_once(kernel) * THREADS / 2048


def parts_of(sass):
    """Functions by name: a list of labels (with a colon) and instructions each, from nvdisasm's text."""
    functions, current = {}, None
    for line in sass.splitlines():
        if match := re.match(r"\.text\.(\S+):", line):
            current = functions.setdefault(match[1], [])
        elif line.startswith("//-"):
            current = None
        elif current is not None:
            if match := re.match(r"(\.L_\w+:)|\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
                current.append(match[1] or match[2])
    return functions


def spills_in_loops(function):
    """How many loads and stores of local memory can be met again by a thread that has met them."""
    blocks, labels = [[]], {}
    for item in function:
        if item.endswith(":"):
            blocks.append([])
            labels[item[:-1]] = len(blocks) - 1
        else:
            blocks[-1].append(item)
            if re.search(r"\b(BRA|EXIT|RET)\b", item):
                blocks.append([])
    after = []
    for number, block in enumerate(blocks):
        targets, goes_on = set(), number + 1 < len(blocks)
        if block and (jump := re.match(r"(@\S+\s+)?(BRA|EXIT|RET)\b(.*)", block[-1])):
            if target := re.search(r"\((\.L_\w+)\)", jump[3]):
                targets.add(labels[target[1]])
            goes_on = goes_on and bool(jump[1] or re.search(r"\bU?P\d", jump[3]))
        after.append(targets | ({number + 1} if goes_on else set()))
    return sum(len(re.findall(r"\b(?:LDL|STL)\b", " ".join(block)))
               for number, block in enumerate(blocks)
               if re.search(r"\b(LDL|STL)\b", " ".join(block)) and number in reached_from(number, after))


def reached_from(start, after):
    reached, waiting = set(), list(after[start])
    while waiting:
        block = waiting.pop()
        if block not in reached:
            reached.add(block)
            waiting.extend(after[block])
    return reached


def readable(names):
    shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, shown.splitlines()))


def kernels_in(messages, sass):
    """messages: of ptxas -v, for one architecture; sass: nvdisasm's text, or None."""
    functions = parts_of(sass) if sass else None
    entries = re.split(r"Compiling entry function '(?=\w*bnlab)", messages)[1:]  # and not those of the toolkit's headers
    names = readable([entry.split("'")[0] for entry in entries])
    for entry in entries:
        name = entry.split("'")[0]
        shown = re.sub(r"\(\w+\)(?=\d)|c10::|bnlab::kernels::cuda::|\(anonymous namespace\)::", "", names[name])
        sweep = re.search(r"(?:reduce|apply)<(\w+)<(\w+), (?:\(bool\))?(\w+), (\d+)(?:, (?:\(bool\))?(\w+))?>", shown)
        if not sweep:  # a small step
            continue
        operation, dtype, rows, vector, flag = sweep.groups()
        if flag in ("true", "1"):
            operation += "FromInput" if operation in ("BackwardSums", "InputGradient") else "Adding"
        stores, loads = map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", entry).groups())
        shared = re.search(r"(\d+) bytes smem", entry)
        guessed = stores + loads if max(stores, loads) > 16 else 0
        yield Kernel(operation, dtype, "rows" if rows in ("true", "1") else "planes", int(vector),
                     int(re.search(r"Used (\d+) registers", entry)[1]), int(shared[1]) if shared else 0, stores + loads,
                     spills_in_loops(functions[name]) if functions else guessed)


def nvdisasm(nvcc, command):
    beside = pathlib.Path(nvcc).resolve().parent / "nvdisasm"
    packages = [path.parent for path in map(pathlib.Path, re.findall(r"(/[^\s=]+/torch)/include\b", command))]
    bundled = [path / "triton/backends/nvidia/bin/nvdisasm" for path in packages]
    return next((str(path) for path in [beside, *bundled] if path.exists()), shutil.which("nvdisasm"))


def fingerprint(build, command):
    """Of what a command reads, by the headers that the build's own compilation has met; "" where it keeps no such list."""
    try:
        listed = subprocess.run(["ninja", "-C", build, "-t", "deps", command[command.index("-o") + 1]], capture_output=True,
                                text=True).stdout.split("\n\n")[0].splitlines()
    except OSError:
        return ""
    if not listed or "(VALID)" not in listed[0]:
        return ""
    found = hashlib.sha256(shlex.join(command).encode())
    for file in (__file__, *(pathlib.Path(build, line.strip()) for line in listed[1:])):
        found.update(pathlib.Path(file).read_bytes())
    return found.hexdigest()


def measured(build):
    """Kernels of each architecture, or why there are none: as they were found before in this build folder, if nothing that
    they are compiled from has changed."""
    commands = pathlib.Path(build, "compile_commands.json")
    entries = json.loads(commands.read_text(encoding="utf-8")) if commands.exists() else []
    found = {stem: e for e in entries for stem in SWEEPS
             if e["file"].endswith(f"strategies/kernels/{stem}.cu") and "nvcc" in e["command"].split()[0]}
    if not found:
        return f"{build} compiles no CUDA kernels"
    kept = pathlib.Path(build, "kernel_resources.json")
    before = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    after = {}
    for stem, entry in found.items():
        now = fingerprint(build, shlex.split(entry["command"]))
        known = now and before.get(stem, {}).get("of") == now
        after[stem] = before[stem] if known else {"of": now, "kernels": compiled(entry)}
    kept.write_text(json.dumps(after), encoding="utf-8")
    return {name: sorted(Kernel(*values) for file in after.values() for values in file["kernels"][name])
            for name in ARCHITECTURES}


def compiled(entry):
    """Kernels of each architecture, by a command of compile_commands.json."""
    words = [word for word in shlex.split(entry["command"]) if not word.startswith(("--generate-code", "-gencode"))]
    del words[words.index("-c"):]
    virtual = ARCHITECTURES[0].replace("sm_", "compute_")
    with tempfile.TemporaryDirectory() as folder:
        command = words + [f"--generate-code=arch={virtual},code=[{','.join(ARCHITECTURES)}]", "-Xptxas", "-v", "-fatbin",
                           "--keep", "--keep-dir", folder, entry["file"], "-o", f"{folder}/kernels.fatbin"]
        made = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
        if made.returncode != 0:
            raise SystemExit(f"{shlex.join(command)}\n{made.stderr}")
        tool = nvdisasm(words[0], entry["command"])
        if tool is None:
            print("no nvdisasm: spills in loops are told from others by their size alone")
        result = {}
        for architecture in ARCHITECTURES:
            (cubin,) = pathlib.Path(folder).glob(f"*{architecture}.cubin")
            sass = tool and subprocess.run([tool, "-c", cubin], capture_output=True, text=True, check=True).stdout
            messages = "".join(entry for entry in re.split(r"(?=ptxas info\s+: Compiling entry)", made.stderr)
                               if f"for '{architecture}'" in entry)
            result[architecture] = sorted(kernels_in(messages, sass))
        return result


def show(kernels):
    print("| kernel | registers | spilled bytes | in loops | occupancy |\n|---|---|---|---|---|")
    for first, second in zip(*kernels.values()):
        if first.operation in MAIN and first.vector > 1 and first.dtype in ("float", "BFloat16"):
            both = [(k.registers, k.spilled, k.in_loops, f"{occupancy(k):.0%}") for k in (first, second)]
            cells = [" / ".join(map(str, pair)) for pair in zip(*both)]
            print(f"| {first.operation}, {first.dtype}, {first.layout} | {' | '.join(cells)} |")


class Resources(unittest.TestCase):
    def test_kernels_spill_in_no_loop_and_leave_room_for_half_of_the_threads(self):
        for architecture, kernels in self.kernels.items():
            self.assertGreater(len(kernels), 50)
            for kernel in kernels:
                with self.subTest(f"{architecture}: {kernel}"):
                    self.assertEqual(kernel.in_loops, 0, "spills in loops")
                    self.assertGreaterEqual(occupancy(kernel), 0.5)

    def test_loops_are_told_from_what_is_around_them(self):
        text = """.text.f:
        /*0000*/                   STL [R1], R2 ;
.L_x_0:
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0020*/              @!P0 BRA `(.L_x_2) ;
{}
        /*0040*/               @P1 BRA `(.L_x_0) ;
        /*0050*/                   EXIT ;
.L_x_2:
        /*0060*/                   LDL R3, [R1] ;
        /*0070*/                   BRA `({}) ;
.L_x_3:
        /*0080*/                   BRA `(.L_x_3) ;
"""
        inside = "        /*0030*/              @P2 LDL R3, [R1] ;"
        for spill, back, expected in (("", ".L_x_3", 0), (inside, ".L_x_3", 1), ("", ".L_x_0", 1), (inside, ".L_x_0", 2)):
            self.assertEqual(spills_in_loops(parts_of(text.format(spill, back))["f"]), expected)

    def test_registers_and_shared_memory_bound_how_many_blocks_there_are(self):
        for registers, shared, blocks in ((32, 0, 8), (64, 0, 4), (65, 0, 3), (90, 0, 2), (32, 100 * 1024, 2)):
            self.assertEqual(blocks_at_once(Kernel("f", "float", "rows", 4, registers, shared, 0, 0)), blocks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not isinstance(kernels := measured(arguments.build), dict):
        print(f"SKIPPED: {kernels}")
        sys.exit(77)
    show(kernels)
    if not arguments.table:
        Resources.kernels = kernels
        unittest.main(argv=[sys.argv[0]])
