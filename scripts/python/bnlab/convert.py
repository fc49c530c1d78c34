"""Weights of PyTorch as a safetensors file, which bnlab starts from (`"init_from": {"file": ...}`) and evaluates.

  python -m bnlab.convert resnet50.pth resnet50.safetensors

The checkpoint is a dictionary of tensors, or has one under "state_dict", "model_state_dict", "model" or "weights"; what wrappers
put before every name ("module.", "_orig_mod.", "model.", "net.") is dropped. Nothing in the file is executed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any, Dict

from .weights import write_safetensors

_INSIDE = ("state_dict", "model_state_dict", "model", "weights")
_WRAPPERS = ("module.", "_orig_mod.", "model.", "net.")  # DistributedDataParallel, torch.compile, classes around a network


def tensors_of(checkpoint: Any) -> "Dict[str, Any]":
    """The named tensors of a loaded checkpoint. ValueError where there are none."""
    import torch

    for key in _INSIDE:
        if isinstance(checkpoint, dict) and isinstance(checkpoint.get(key), dict):
            checkpoint = checkpoint[key]
            break
    tensors = {name: each for name, each in checkpoint.items() if isinstance(each, torch.Tensor)} \
        if isinstance(checkpoint, dict) else {}
    if not tensors:
        raise ValueError("expected a dictionary of tensors, or one under " + ", ".join(_INSIDE))
    while wrapper := next((each for each in _WRAPPERS if all(name.startswith(each) for name in tensors)), ""):
        tensors = {name[len(wrapper):]: each for name, each in tensors.items()}
    return tensors


def main() -> int:
    import pickle

    import torch

    parser = argparse.ArgumentParser(prog="python -m bnlab.convert", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a file of torch.save")
    parser.add_argument("safetensors", help="the file to write")
    given = parser.parse_args()
    try:
        tensors = tensors_of(torch.load(given.checkpoint, map_location="cpu", weights_only=True))
        write_safetensors(given.safetensors, tensors)
    except (pickle.UnpicklingError, RuntimeError):  # of weights_only, of TorchScript
        print(f"{given.checkpoint}: holds more than tensors, or is damaged. If you trust it, this writes a dictionary of tensors: "
              """python -c 'import sys, torch; m = torch.load(sys.argv[1], map_location="cpu", weights_only=False); """
              """torch.save(m.state_dict() if hasattr(m, "state_dict") else m, sys.argv[2])' """
              + shlex.join([given.checkpoint, given.checkpoint + ".plain.pt"]), file=sys.stderr)
        return 1
    except Exception as error:  # whatever PyTorch says of a file that it cannot read, or a type that safetensors lack
        print(f"{given.checkpoint}: {error}", file=sys.stderr)
        return 1
    print(f"{given.safetensors}: {len(tensors)} tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
