"""What the networks are built of."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn

from .norms import Layers, activated


def conv_and_norm(layers: Layers, inputs: int, outputs: int, relu: bool = True,
                  **conv: Any) -> Tuple[nn.Module, nn.Module]:
    return layers.conv(inputs, outputs, **conv), layers.norm(outputs, relu)


class Pair(nn.Module):
    """A convolution, its norm, and a ReLU unless `relu` is false, under names of their own."""

    def __init__(self, layers: Layers, inputs: int, outputs: int, names: Tuple[str, str] = ("0", "1"), relu: bool = True,
                 **conv: Any):
        super().__init__()
        self._names, self._relu = names, relu
        for name, module in zip(names, conv_and_norm(layers, inputs, outputs, relu, **conv)):
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        conv, norm = (getattr(self, name) for name in self._names)
        y = norm(conv(x))
        return activated(norm, y) if self._relu else y


class PairsInLine(nn.Module):
    """Convolutions with norm and ReLU, one behind another: add(layers, inputs, outputs, names of conv and norm)."""

    def __init__(self) -> None:
        super().__init__()
        self._pairs: List[Tuple[str, str]] = []

    def add(self, layers: Layers, inputs: int, outputs: int, names: Tuple[str, str], **conv: Any) -> None:
        for name, module in zip(names, conv_and_norm(layers, inputs, outputs, **conv)):
            self.add_module(name, module)
        self._pairs.append(names)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for names in self._pairs:
            conv, norm = (getattr(self, name) for name in names)
            x = activated(norm, norm(conv(x)))
        return x


def container(modules: Dict[str, nn.Module]) -> nn.Module:
    """Modules under names, called one by one."""
    room = nn.Module()
    for name, module in modules.items():
        room.add_module(name, module)
    return room


def resized(x: torch.Tensor, like: torch.Tensor, mode: str = "bilinear", corners: bool = False) -> torch.Tensor:
    size = like.shape[2:]
    if x.shape[2:] == size:
        return x
    return F.interpolate(x, size=size, mode=mode, align_corners=corners if mode == "bilinear" else None)


class PixelHead(nn.Module):
    """3x3 convolution - norm - ReLU - dropout - 1x1 convolution to the classes; `names` of the three layers."""

    def __init__(self, layers: Layers, inputs: int, width: int, classes: int, dropout: float = 0.0,
                 drops_channels: bool = False, names: Tuple[str, str, str] = ("0", "1", "4"),
                 before: Optional[nn.Module] = None):
        super().__init__()
        if before is not None:  # so that all layers are numbered as one sequence
            self.add_module("0", before)
        self._names, self._dropout, self._drops_channels = names, dropout, drops_channels
        conv, norm = conv_and_norm(layers, inputs, width)
        for name, module in zip(names, (conv, norm, layers.conv(width, classes, kernel=1, padding=0, norm_follows=False))):
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        conv, norm, last = (getattr(self, name) for name in self._names)
        x = activated(norm, norm(conv(x)))
        drop = F.dropout2d if self._drops_channels else F.dropout
        return last(drop(x, self._dropout, self.training))


class Aspp(nn.Module):
    """Atrous spatial pyramid pooling (Chen et al. 2017)."""

    def __init__(self, layers: Layers, inputs: int, width: int, output_stride: int, dropout: float):
        super().__init__()
        self._dropout = dropout
        branches: Dict[str, nn.Module] = {"0": Pair(layers, inputs, width, kernel=1, padding=0)}
        for i in (1, 2, 3):
            dilation = i * 96 // output_stride
            branches[str(i)] = Pair(layers, inputs, width, padding=dilation, dilation=dilation)
        branches["4"] = Pair(layers, inputs, width, ("1", "2"), kernel=1, padding=0)
        self.convs = container(branches)
        self.project = Pair(layers, 5 * width, width, kernel=1, padding=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *spatial, of_mean = self.convs.children()
        maps = [branch(x) for branch in spatial]
        maps.append(resized(of_mean(F.adaptive_avg_pool2d(x, 1)), x))
        return F.dropout(self.project(torch.cat(maps, 1)), self._dropout, self.training)
