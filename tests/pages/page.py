"""The indented blocks of a page, which its readers paste."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def block(page, start, root=ROOT):
    """The one block with a line that starts so."""
    text = (root / page).read_text(encoding="utf-8")
    blocks = ["".join(line[4:] + "\n" for line in found.splitlines())
              for found in re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)]
    found = [b for b in blocks if any(line.startswith(start) for line in b.splitlines())]
    if len(found) != 1:
        raise ValueError(f"{page}: expected one block with a line that starts with {start!r}, found {len(found)}")
    return found[0].strip("\n") + "\n"


if __name__ == "__main__":  # PAGE START FILE
    pathlib.Path(sys.argv[3]).write_text(block(sys.argv[1], sys.argv[2]), encoding="utf-8")
