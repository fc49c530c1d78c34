"""The records of bnlab in Python: data frames of runs, curves and comparisons, and networks as modules of PyTorch.

    import bnlab
    results = bnlab.load("results/quickstart")
    results.runs.groupby("strategy")["saved.mean_iou"].mean()
    results.contrasts                         # what `bnlab report` says of the declared comparisons
    model = bnlab.torch_model(results.runs.iloc[0])   # needs torch, and the run's weights
    logits = model(images)
    bnlab.export(model, example, "mine")      # any PyTorch model, for "model": {"name": "exported", "file": "mine"}

Nothing here trains, and the program needs none of it.
"""

from .records import Results, load
from .weights import read_safetensors, write_safetensors

__all__ = ["Results", "export", "load", "load_into", "network", "read_safetensors", "torch_model", "write_safetensors"]


def __getattr__(name: str):
    if name in ("load_into", "network", "torch_model"):  # torch is imported by whoever asks for a network
        from . import networks
        return getattr(networks, name)
    if name == "export":  # likewise; the module is called as the function that it is named after
        from importlib import import_module
        return import_module(".export", __name__)
    raise AttributeError(f"module 'bnlab' has no attribute {name!r}")
