#!/usr/bin/env python3
"""Prints fingerprints of what runs compute, taken over the tokens of the sources that take part in them.

Names and places of files, comments, layout and include lines do not count. The working tree is read, so that a change
counts before it is committed, and a new file before git knows it.

  cmake/fingerprint.py ROOT     a part and its fingerprint on each line:
    all         everything
    shared      what every run computes with
    cuda        what runs on GPUs compute with: .cu, .cuh, those named cuda_*, the flags, and every source that asks
              whether it is compiled for or works on a GPU
    sync, ...   the source of a component that only runs with this component compute with

A component (strategy, model, task, optimizer, loss, ...) has a part of its own if its file registers it and defines
nothing that another file could use: all of it lies in one namespace, bnlab::NAME, that no other file names.
"""

import hashlib
import pathlib
import re
import sys

# What a run computes with, beside the sources directly in harness/.
FOLDERS = ["strategies", "harness/support", "harness/communicator", "harness/models", "harness/tasks", "harness/training", "harness/inference"]
FLAGS = "cmake/kernels.cmake"  # the flags of the kernels decide how they round
CUDA = {".cu", ".cuh"}
SUFFIXES = {".cpp", ".hpp", ".inc"} | CUDA

DROPPED = re.compile(r"^\s*#\s*(?:include|pragma\s+once)\b.*$", re.MULTILINE)
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | R"(?P<mark>\w*)\(.*?\)(?P=mark)"   # raw string
      | "(?:\\.|[^"\\\n])*"                # string
      | '(?:\\[^\n]|[^'\\\n])+'            # character
      | \w+ | \S""",
    re.DOTALL | re.VERBOSE,
)


def tokens(text):
    found = TOKEN.finditer(DROPPED.sub("", text))
    return "\n".join(match.group() for match in found if match.group("comment") is None)


def flags(text):
    """The words of a CMake file but for comments and paths."""
    return "\n".join(re.sub(r"#[^\n]*|\S*/\S*", " ", text).split())


def sources(root):
    """The float64 references stand beside the strategies but take no part in a run."""
    found = list((root / "harness").glob("*"))
    for folder in FOLDERS:
        found += (root / folder).rglob("*")
    return [path for path in found if path.suffix in SUFFIXES and "reference" not in path.relative_to(root).parts]


FOR_GPUS = re.compile(r"\b(BNLAB_WITH_CUDA|USE_C10D_NCCL|is_cuda|BNLAB_BOTH|__CUDA_ARCH__)\b")


def only_for_gpus(path):
    return path.suffix in CUDA or path.name.startswith("cuda_")


def digest(texts):
    digests = sorted(hashlib.sha256(text.encode()).hexdigest() for text in texts)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


def components(path, text, texts):
    """The names that a source registers, or none if others can use what it defines."""
    names = re.findall(r'\bRegistered\n<\n\w+\n>\n\w+\n{\n{\n\.\nname\n=\n"(\w+)"', text)
    spaces = set(re.findall(r"(?:^|\n)namespace\n(bnlab(?:\n:\n:\n\w+)*)\n{", text))
    if not names or len(spaces) != 1 or "bnlab" in spaces:
        return []
    space = spaces.pop().split("\n")[-1]
    used = re.compile(rf"(?:^|\n)(?:{space}\n:\n:|namespace\nbnlab\n:\n:\n{space}\n)")
    return [] if any(used.search(other) for file, other in texts.items() if file != path) else names


def fingerprints(root):
    """The parts and their fingerprints, by name."""
    texts = {path: tokens(path.read_text(encoding="utf-8")) for path in sources(root)}
    parts = {"all": [], "shared": [], "cuda": []}
    if (root / FLAGS).exists():
        text = flags((root / FLAGS).read_text(encoding="utf-8"))
        parts["all"].append(text)
        parts["shared"].append(text)
        parts["cuda"].append(text)
    for path, text in texts.items():
        names = ["cuda"] if only_for_gpus(path) else components(path, text, texts) or ["shared"]
        if FOR_GPUS.search(text) and "cuda" not in names:
            names = [*names, "cuda"]
        for name in ["all", *names]:
            parts.setdefault(name, []).append(text)
    return {name: digest(found) for name, found in parts.items()}


if __name__ == "__main__":
    for name, print_ in fingerprints(pathlib.Path(sys.argv[1])).items():
        print(name, print_)
