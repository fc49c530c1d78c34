"""The networks of bnlab as modules of PyTorch, with the names and shapes of its weights files.

In evaluation they answer as `bnlab forward` does, with any strategy's running statistics or, where it has none, with what it
normalises by. In training mode every norm sees the batch that it is given, as one tower would: a twin is for looking at
networks and for using them, and is no replica of a strategy's training.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple, Union

import torch
from torch import nn

from ..weights import read_safetensors
from .models import MODELS
from .norms import BatchNorms, layers_of, named

__all__ = ["load_into", "network", "torch_model"]

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


def _read(run: Any) -> Tuple[Path, Dict[str, Any], Dict[str, torch.Tensor]]:
    folder = Path(run if isinstance(run, (str, os.PathLike)) else run["folder"])
    file = folder / "weights.safetensors"
    if not file.exists():
        raise FileNotFoundError(f"{file} is not there: weights are not committed; `bnlab run` writes them anew")
    spec = json.loads((folder / "record.json").read_text(encoding="utf-8"))["spec"]
    return file, spec, read_safetensors(file)


def torch_model(run: Any) -> nn.Module:
    """The trained network of a run, in evaluation mode: its folder, or a row of `Results.runs`.

    Raises FileNotFoundError where the run's weights are not there (results/record.md says which files are committed), and
    RuntimeError where they do not fit.
    """
    file, spec, weights = _read(run)
    if named(spec["model"])[0] == "exported":
        raise ValueError("bnlab.load_into(model, run) puts the weights of an exported model into it")
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


def load_into(model: nn.Module, run: Any) -> None:
    """Puts the trained weights of a run into the PyTorch model that was exported for it (bnlab.export). run: its folder, or a
    row of `Results.runs`. PyTorch's counters of batches stay as they are.

    Raises FileNotFoundError as above, and ValueError where the strategy evaluates by other norms than the model's batch norms,
    or the model is not the one that was exported.
    """
    file, spec, weights = _read(run)
    strategy = named(spec["strategy"])[0]
    if type(layers_of(spec["strategy"])) is not BatchNorms or spec["model"].get("numbers") == "strategy":
        raise ValueError(f"{file}: under {strategy} the network no longer evaluates by the batch norms of the PyTorch model, so that "
                         "its weights would give other answers there")
    own: Dict[str, torch.Tensor] = {**dict(model.named_parameters(remove_duplicate=False)),
                                    **dict(model.named_buffers(remove_duplicate=False))}
    fitting = {id(own[name]) for name, value in weights.items() if name in own and own[name].shape == value.shape}
    lacking = [name for name, tensor in own.items() if tensor.is_floating_point() and id(tensor) not in fitting]
    if lacking or set(weights) - set(own):
        raise ValueError(f"{file} is of another model: it lacks {lacking[:5]} of these shapes, and nothing takes "
                         f"{sorted(set(weights) - set(own))[:5]}")
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)
