"""What models stand on: each gives five maps, whose channels are `channels`."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Union

import torch
import torch.nn.functional as F
from torch import nn

from .blocks import Pair, PairsInLine, conv_and_norm, container
from .norms import Activation, Layers, activated, named

Maps = List[torch.Tensor]


class ResidualBlock(nn.Module):
    """Pairs conv1, bn1, ...; what came in is added before the last ReLU."""

    def __init__(self, layers: Layers, convolutions: List[Mapping[str, Any]], downsample: Optional[nn.Module] = None):
        super().__init__()
        self._count = len(convolutions)
        for n, conv in enumerate(convolutions, start=1):
            module, norm = conv_and_norm(layers, **conv)
            self.add_module(f"conv{n}", module)
            self.add_module(f"bn{n}", norm)
        self.downsample = downsample

    def skip(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.downsample is None else self.downsample(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for n in range(1, self._count + 1):
            norm = getattr(self, f"bn{n}")
            y = norm(getattr(self, f"conv{n}")(y))
            y = activated(norm, y + self.skip(x) if n == self._count else y)
        return y


class ResNet(nn.Module):
    """He et al. 2016, with the names of torchvision; strides beyond the output stride become dilations."""

    output_stride = 32

    def __init__(self, layers: Layers, output_stride: int, depth: int = 18, stem: str = "plain", width: int = 64,
                 dilate_first_block: bool = False):
        super().__init__()
        bottleneck = depth >= 50
        blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}[depth]
        stems = [dict(inputs=3, outputs=width, kernel=7, stride=2, padding=3)] if stem == "plain" else [
            dict(inputs=3, outputs=width, stride=2), dict(inputs=width, outputs=width), dict(inputs=width, outputs=2 * width)]
        self._stems = len(stems)
        for n, conv in enumerate(stems, start=1):
            module, norm = conv_and_norm(layers, **conv)
            self.add_module(f"conv{n}", module)
            self.add_module(f"bn{n}", norm)
        inputs = stems[-1]["outputs"]
        self.channels = [inputs]
        total_stride, dilation = 4, 1
        for s, count in enumerate(blocks):
            stride, before = (1 if s == 0 else 2), dilation
            if total_stride * stride > output_stride:
                dilation, stride = dilation * stride, 1
            total_stride *= stride
            outputs = (width << s) * (4 if bottleneck else 1)
            stage = []
            for place in range(count):
                first = place == 0
                stage.append(self._block(layers, bottleneck, inputs if first else outputs, width << s, outputs,
                                         stride if first else 1,
                                         before if first and not dilate_first_block else dilation))
            self.add_module(f"layer{s + 1}", nn.Sequential(*stage))
            inputs = outputs
            self.channels.append(outputs)

    @staticmethod
    def _block(layers: Layers, bottleneck: bool, inputs: int, width: int, outputs: int, stride: int,
               dilation: int) -> ResidualBlock:
        small, wide = dict(kernel=1, padding=0), dict(padding=dilation, dilation=dilation)
        convolutions = [
            dict(inputs=inputs, outputs=width, **small), dict(inputs=width, outputs=width, stride=stride, **wide),
            dict(inputs=width, outputs=outputs, **small)] if bottleneck else [
            dict(inputs=inputs, outputs=width, stride=stride, **wide), dict(inputs=width, outputs=width, **wide)]
        downsample = Pair(layers, inputs, outputs, relu=False, stride=stride, **small) \
            if stride != 1 or inputs != outputs else None
        return ResidualBlock(layers, convolutions, downsample)

    def forward(self, x: torch.Tensor) -> Maps:
        for n in range(1, self._stems + 1):
            norm = getattr(self, f"bn{n}")
            x = activated(norm, norm(getattr(self, f"conv{n}")(x)))
        maps = [x]
        x = F.max_pool2d(x, 3, 2, 1)
        for s in range(1, 5):
            x = getattr(self, f"layer{s}")(x)
            maps.append(x)
        return maps


class SmallBlock(ResidualBlock):
    """Where shapes change, the skip is every second pixel, with channels of zeros at both ends."""

    def __init__(self, layers: Layers, inputs: int, outputs: int):
        self._stride = 1 if inputs == outputs else 2
        super().__init__(layers, [dict(inputs=inputs, outputs=outputs, stride=self._stride),
                                  dict(inputs=outputs, outputs=outputs)])
        self._before = (outputs - inputs) // 2
        self._behind = outputs - inputs - self._before

    def skip(self, x: torch.Tensor) -> torch.Tensor:
        return x if self._stride == 1 else F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self._before, self._behind))


class SmallResNet(nn.Module):
    """He et al. 2016, section 4.2: for images of 32x32, of depth 6n + 2."""

    output_stride = 4

    def __init__(self, layers: Layers, output_stride: int, depth: int = 20, width: int = 16):
        super().__init__()
        self.conv1, self.bn1 = conv_and_norm(layers, 3, width)
        self.channels = [width, width, width, 2 * width, 4 * width]
        inputs = width
        for s in range(3):
            outputs = width << s
            self.add_module(f"layer{s + 1}", nn.Sequential(*[
                SmallBlock(layers, inputs if place == 0 else outputs, outputs) for place in range((depth - 2) // 6)]))
            inputs = outputs

    def forward(self, x: torch.Tensor) -> Maps:
        x = activated(self.bn1, self.bn1(self.conv1(x)))
        maps = [x, x]
        for s in range(1, 4):
            x = getattr(self, f"layer{s}")(x)
            maps.append(x)
        return maps


class PooledTrunk(nn.Module):
    """Six levels of convolutions with 2x2 max pools between them; pools beyond the output stride are left out."""

    output_stride = 32

    def __init__(self, output_stride: int):
        super().__init__()
        self._stride = output_stride

    def dilation(self, level: int) -> int:
        return max(1, (1 << level) // self._stride)

    def levels(self) -> List[nn.Module]:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> Maps:
        maps = []
        for level, module in enumerate(self.levels()):
            if level > 0 and 1 << level <= self._stride:
                x = F.max_pool2d(x, 2)
            x = module(x)
            if level > 0:
                maps.append(x)
        return maps


class Vgg16(PooledTrunk):
    """Simonyan, Zisserman 2015, with the numbers of torchvision's vgg16_bn, which counts ReLUs and pools too."""

    def __init__(self, layers: Layers, output_stride: int, width: int = 64):
        super().__init__(output_stride)
        self.channels = [2 * width, 4 * width, 8 * width, 8 * width, 8 * width]
        inputs, number, modules = 3, 0, {}
        self._numbers: List[List[int]] = []
        for level, count in enumerate((2, 2, 3, 3, 3)):
            outputs, dilation = width << min(level, 3), self.dilation(level)
            self._numbers.append([])
            for _ in range(count):
                conv, norm = conv_and_norm(layers, inputs, outputs, padding=dilation, dilation=dilation, bias=True)
                modules[str(number)], modules[str(number + 1)] = conv, norm
                self._numbers[-1].append(number)
                inputs, number = outputs, number + 3
            number += 1
        self._numbers.append([])
        self.features = container(modules)

    def levels(self) -> List[nn.Module]:
        def layer(number: int) -> nn.Module:
            return getattr(self.features, str(number))
        return [nn.Sequential(*[each for n in numbers for each in (layer(n), layer(n + 1), Activation(layer(n + 1)))])
                for numbers in self._numbers]


class Plain(PooledTrunk):
    """The encoder of `unet` with six levels."""

    def __init__(self, layers: Layers, output_stride: int, base: int = 16):
        super().__init__(output_stride)
        self.channels = [base << level for level in range(1, 6)]
        inputs = 3
        for level in range(6):
            room, dilation = PairsInLine(), self.dilation(level)
            for n in (1, 2):
                room.add(layers, inputs, base << level, (f"conv{n}", f"norm{n}"), padding=dilation, dilation=dilation)
                inputs = base << level
            self.add_module(f"encoder{level}", room)

    def levels(self) -> List[nn.Module]:
        return [getattr(self, f"encoder{level}") for level in range(6)]


BACKBONES = {"resnet": ResNet, "small_resnet": SmallResNet, "vgg16": Vgg16, "plain": Plain}


def backbone_of(backbone: Union[str, Mapping[str, Any]], layers: Layers, output_stride: Optional[int] = None) -> nn.Module:
    """`output_stride`: None for models that need no dilation."""
    name, options = named(backbone)
    if name not in BACKBONES:
        raise ValueError(f"backbone: there is no twin of {name}; there are {', '.join(sorted(BACKBONES))}")
    kind = BACKBONES[name]
    return kind(layers, output_stride or kind.output_stride, **options)
