"""Safetensors files, in which bnlab keeps weights, read and written by nothing but the standard library and torch."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Mapping, Union

if TYPE_CHECKING:
    import torch

_LONGEST_HEADER = 100_000_000  # bytes; that of the format
_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
          "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}


def read_safetensors(file: Union[str, "os.PathLike[str]"]) -> "Dict[str, torch.Tensor]":
    """The tensors of a safetensors file by name. Raises ValueError for a file of another kind."""
    import torch

    types = {name: getattr(torch, dtype) for name, dtype in _TYPES.items()}
    content = Path(file).read_bytes()
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else _LONGEST_HEADER
    if length >= _LONGEST_HEADER or 8 + length > len(content):
        raise ValueError(f"{file}: not a safetensors file")
    header = json.loads(content[8:8 + length])
    data = memoryview(content)[8 + length:]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if entry["dtype"] not in types or not 0 <= begin <= end <= len(data):
            raise ValueError(f"{file}: {name} is damaged or of an unknown type, {entry['dtype']}")
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=types[entry["dtype"]]) if end > begin else \
            torch.empty(0, dtype=types[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write_safetensors(file: Union[str, "os.PathLike[str]"], tensors: "Mapping[str, torch.Tensor]") -> None:
    """Writes tensors of any layout and device under their names. Raises ValueError for a type that the format lacks."""
    import torch

    names = {str(getattr(torch, dtype)): name for name, dtype in _TYPES.items()}
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        if str(tensor.dtype) not in names:
            raise ValueError(f"{name}: {tensor.dtype}; expected one of {', '.join(_TYPES.values())}")
        data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": names[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [end, end + len(data)]}
        parts.append(data)
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(file).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
