#!/usr/bin/env python3
"""Prints a fingerprint of what a run computes, taken over the tokens of the sources that take part in it.

Names and places of files, comments, layout and include lines do not count. The working tree is read, so that a change
counts before it is committed, and a new file before git knows it.

  cmake/fingerprint.py ROOT
"""

import hashlib
import pathlib
import re
import sys

# What a run computes with, beside the sources directly in harness/.
FOLDERS = ["strategies", "harness/communicator", "harness/models", "harness/tasks", "harness/training"]
FLAGS = "cmake/kernels.cmake"  # the flags of the kernels decide how they round
SUFFIXES = {".cpp", ".hpp", ".inc", ".cu", ".cuh"}

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


def fingerprint(root):
    texts = [tokens(path.read_text(encoding="utf-8")) for path in sources(root)]
    if (root / FLAGS).exists():
        texts.append(flags((root / FLAGS).read_text(encoding="utf-8")))
    digests = sorted(hashlib.sha256(text.encode()).hexdigest() for text in texts)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


if __name__ == "__main__":
    print(fingerprint(pathlib.Path(sys.argv[1])))
