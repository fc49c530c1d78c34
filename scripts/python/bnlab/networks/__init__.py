"""The networks of bnlab as modules of PyTorch, with the names and shapes of its weights files.

In evaluation they answer as `bnlab forward` does, with any strategy's running statistics or, where it has none, with what it
normalises by. In training mode every norm sees the batch that it is given, as one tower would: a twin is for looking at
networks and for using them, and is no replica of a strategy's training.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Mapping, Union

from torch import nn

from ..weights import read_safetensors
from .models import MODELS
from .norms import layers_of, named

__all__ = ["network", "torch_model"]

Component = Union[str, Mapping[str, Any]]  # a name, or {"name": ..., its parameters}, as in specs


def network(model: Component, strategy: Component, classes: int) -> nn.Module:
    """A fresh network: network({"name": "unet", "base": 8}, "sync", classes=5). What is left out has bnlab's defaults.

    Its forward takes images [n, 3, H, W] of the kind that the weights were trained with, or clips [n, frames, 3, H, W] for
    models that answer for clips, and gives logits; in training mode (logits, auxiliary logits) where the model has such a
    head. Raises ValueError for a model, strategy or parameter that it does not know.
    """
    name, options = named(model)
    if name not in MODELS:
        raise ValueError(f"model: there is no twin of {name}; there are {', '.join(sorted(MODELS))}")
    try:
        return MODELS[name](layers_of(strategy), classes, **options)
    except TypeError as error:
        raise ValueError(f"model {name}: {error}") from error


def torch_model(run: Any) -> nn.Module:
    """The trained network of a run, in evaluation mode: its folder, or a row of `Results.runs`.

    Raises FileNotFoundError where the run's weights are not there (results/record.md says which files are committed), and
    RuntimeError where they do not fit.
    """
    folder = Path(run if isinstance(run, (str, os.PathLike)) else run["folder"])
    file = folder / "weights.safetensors"
    if not file.exists():
        raise FileNotFoundError(f"{file} is not there: weights are not committed; `bnlab run` writes them anew")
    spec = json.loads((folder / "record.json").read_text(encoding="utf-8"))["spec"]
    weights = read_safetensors(file)
    last = MODELS[named(spec["model"])[0]].last_layer
    classes = weights[next(name for name in (f"{last}.bias", f"{last}.weight") if name in weights)].shape[0]
    model = network(spec["model"], spec["strategy"], classes)
    expected = {name for name in model.state_dict() if not name.endswith("num_batches_tracked")}
    if expected != set(weights):
        raise RuntimeError(f"{file} does not fit: it lacks {sorted(expected - set(weights))}, and nothing takes "
                           f"{sorted(set(weights) - expected)}")
    dtypes = {tensor.dtype for tensor in weights.values()}
    model = model.to(next(iter(dtypes))) if len(dtypes) == 1 else model
    model.load_state_dict(weights, strict=False)  # checked above; PyTorch's counters of batches stay 0
    return model.eval()
