"""scripts/figures/__main__.py as a module, for the cases to call."""

import importlib.util
import sys
from pathlib import Path

try:
    import matplotlib  # noqa: F401 pylint: disable=unused-import
except ImportError as error:
    print(f"SKIPPED: the tests of the figures, because {error}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts" / "figures"))

_spec = importlib.util.spec_from_file_location("figures_main", ROOT / "scripts" / "figures" / "__main__.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
FIGURES, draw_all, main, separated = _module.FIGURES, _module.draw_all, _module.main, _module.separated
