"""What is committed, as the program reports it: BNLAB_PROGRAM, else build/release/bnlab."""

import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("BNLAB_PROGRAM", ROOT / "build" / "release" / "bnlab"))
EXPERIMENTS = sorted(page.parent.name for page in (ROOT / "results").glob("*/README.md"))


@functools.cache
def bnlab_report(name, form):
    return subprocess.run([PROGRAM, "report", ROOT / "experiments" / f"{name}.json", "--results", ROOT / "results",
                           "--format", form], check=True, capture_output=True, encoding="utf-8").stdout
