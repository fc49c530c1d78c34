"""The models: each is made from (layers, classes, its options by their names in specs). `last_layer` answers for the classes."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple, Type, Union

import torch
import torch.nn.functional as F
from torch import nn

from .backbones import backbone_of
from .blocks import Aspp, Pair, PairsInLine, PixelHead, container, resized
from .norms import Layers, activated

Component = Union[str, Mapping[str, Any]]
Answer = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]


class UNet(nn.Module):
    """Ronneberger et al. 2015, with padding and nearest upsampling."""

    last_layer = "head"

    def __init__(self, layers: Layers, classes: int, base: int = 16, levels: int = 3):
        super().__init__()
        self._levels = levels
        inputs = 3
        for level in range(levels):
            self.add_module(f"encoder{level}", self._block(layers, inputs, base << level))
            inputs = base << level
        for level in reversed(range(levels - 1)):
            self.add_module(f"decoder{level}", self._block(layers, inputs + (base << level), base << level))
            inputs = base << level
        self.head = layers.conv(inputs, classes, kernel=1, padding=0, norm_follows=False)

    @staticmethod
    def _block(layers: Layers, inputs: int, outputs: int) -> nn.Module:
        block = PairsInLine()
        for n in (1, 2):
            block.add(layers, inputs if n == 1 else outputs, outputs, (f"conv{n}", f"norm{n}"))
        return block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level in range(self._levels):
            x = getattr(self, f"encoder{level}")(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for level in reversed(range(self._levels - 1)):
            x = torch.cat([resized(x, skips[level], "nearest"), skips[level]], 1)
            x = getattr(self, f"decoder{level}")(x)
        return self.head(x)


class BackboneUNet(nn.Module):
    """A U-Net on any backbone, with the decoder and names of segmentation_models_pytorch."""

    last_layer = "segmentation_head.0"

    def __init__(self, layers: Layers, classes: int, backbone: Component = "resnet", output_stride: int = 32,
                 decoder_width: int = 16, center: bool = False):
        super().__init__()
        self.encoder = backbone_of(backbone, layers, output_stride)
        maps = self.encoder.channels
        parts: Dict[str, nn.Module] = {}
        if center:
            parts["center"] = nn.Sequential(Pair(layers, maps[4], maps[4]), Pair(layers, maps[4], maps[4]))
        blocks: Dict[str, nn.Module] = {}
        inputs = maps[4]
        for b in range(5):
            outputs = decoder_width << (4 - b)
            skip = maps[3 - b] if b < 4 else 0
            blocks[str(b)] = container({"conv1": Pair(layers, inputs + skip, outputs), "conv2": Pair(layers, outputs, outputs)})
            inputs = outputs
        self.decoder = container({**parts, "blocks": container(blocks)})
        self.segmentation_head = container({"0": layers.conv(decoder_width, classes, norm_follows=False)})

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.encoder(images)
        x = self.decoder.center(maps[4]) if hasattr(self.decoder, "center") else maps[4]
        for b, block in enumerate(self.decoder.blocks.children()):
            if b < 4:
                x = torch.cat([resized(x, maps[3 - b], "nearest"), maps[3 - b]], 1)
            else:
                x = resized(x, images, "nearest")
            x = block.conv2(block.conv1(x))
        return getattr(self.segmentation_head, "0")(x)


class PixelNetwork(nn.Module):
    """A head on a backbone, and perhaps an auxiliary head on the map before the last, in training."""

    align_corners = False
    auxiliary_name = "aux_classifier"

    def __init__(self, layers: Layers, backbone: Component, output_stride: int):
        super().__init__()
        self.backbone = backbone_of(backbone, layers, output_stride)
        self.channels: List[int] = self.backbone.channels

    def add_auxiliary(self, layers: Layers, weight: float, classes: int, **head: Any) -> None:
        inputs = self.channels[3]
        self.has_auxiliary = weight > 0
        if self.has_auxiliary:
            self.add_module(self.auxiliary_name, PixelHead(layers, inputs, inputs // 4, classes, **head))

    def answer(self, maps: List[torch.Tensor]) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, images: torch.Tensor) -> Answer:
        maps = self.backbone(images)
        logits = resized(self.answer(maps), images, corners=self.align_corners)
        if not (self.training and getattr(self, "has_auxiliary", False)):
            return logits
        return logits, resized(getattr(self, self.auxiliary_name)(maps[3]), images, corners=self.align_corners)


class Fcn(PixelNetwork):
    """Long, Shelhamer, Darrell 2015, as in torchvision."""

    last_layer = "classifier.4"

    def __init__(self, layers: Layers, classes: int, backbone: Component = "resnet", output_stride: int = 8,
                 auxiliary_weight: float = 0, dropout: float = 0.1):
        super().__init__(layers, backbone, output_stride)
        inputs = self.channels[4]
        self.classifier = PixelHead(layers, inputs, inputs // 4, classes, dropout)
        self.add_auxiliary(layers, auxiliary_weight, classes, dropout=dropout)

    def answer(self, maps: List[torch.Tensor]) -> torch.Tensor:
        return self.classifier(maps[4])


class PspLevel(nn.Module):
    """Numbered as in semseg, where 0 is the averaging."""

    def __init__(self, layers: Layers, cells: int, inputs: int, outputs: int, has_norm: bool):
        super().__init__()
        self._cells = cells
        self.add_module("1", layers.conv(inputs, outputs, kernel=1, padding=0, norm_follows=has_norm))
        self.add_module("2", layers.norm(outputs) if has_norm else nn.Identity())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = getattr(self, "2")
        y = norm(getattr(self, "1")(F.adaptive_avg_pool2d(x, self._cells)))
        return resized(activated(norm, y), x, corners=True)


class PspNet(PixelNetwork):
    """Zhao et al. 2017, as in semseg."""

    last_layer = "cls.4"
    align_corners = True
    auxiliary_name = "aux"

    def __init__(self, layers: Layers, classes: int, backbone: Component = "resnet", output_stride: int = 8,
                 auxiliary_weight: float = 0.4, bins: Tuple[int, ...] = (1, 2, 3, 6), norm_at_bin_1: bool = True,
                 dropout: float = 0.1):
        super().__init__(layers, backbone, output_stride)
        inputs = self.channels[4]
        self.ppm = container({"features": container({
            str(n): PspLevel(layers, cells, inputs, inputs // len(bins), cells != 1 or norm_at_bin_1)
            for n, cells in enumerate(bins)})})
        self.cls = PixelHead(layers, 2 * inputs, inputs // 4, classes, dropout, drops_channels=True)
        self.add_auxiliary(layers, auxiliary_weight, classes, dropout=dropout, drops_channels=True)

    def answer(self, maps: List[torch.Tensor]) -> torch.Tensor:
        x = maps[4]
        return self.cls(torch.cat([x, *(level(x) for level in self.ppm.features.children())], 1))


class DeepLabV3(PixelNetwork):
    """Chen et al. 2017, as in torchvision."""

    last_layer = "classifier.4"

    def __init__(self, layers: Layers, classes: int, backbone: Component = "resnet", output_stride: int = 8,
                 auxiliary_weight: float = 0, head_width: int = 256, dropout: float = 0.5, auxiliary_dropout: float = 0.1):
        super().__init__(layers, backbone, output_stride)
        pyramid = Aspp(layers, self.channels[4], head_width, output_stride, dropout)
        self.classifier = PixelHead(layers, head_width, head_width, classes, names=("1", "2", "4"), before=pyramid)
        self.add_auxiliary(layers, auxiliary_weight, classes, dropout=auxiliary_dropout)

    def answer(self, maps: List[torch.Tensor]) -> torch.Tensor:
        return self.classifier(getattr(self.classifier, "0")(maps[4]))


class DeepLabV3Plus(PixelNetwork):
    """Chen et al. 2018, as in VainF/DeepLabV3Plus-Pytorch."""

    last_layer = "classifier.classifier.3"

    def __init__(self, layers: Layers, classes: int, backbone: Component = "resnet", output_stride: int = 16,
                 head_width: int = 256, low_width: int = 48, dropout: float = 0.1):
        super().__init__(layers, backbone, output_stride)
        self.classifier = container({
            "project": Pair(layers, self.channels[1], low_width, kernel=1, padding=0),
            "aspp": Aspp(layers, self.channels[4], head_width, output_stride, dropout),
            "classifier": PixelHead(layers, low_width + head_width, head_width, classes, names=("0", "1", "3"))})

    def answer(self, maps: List[torch.Tensor]) -> torch.Tensor:
        low = self.classifier.project(maps[1])
        return self.classifier.classifier(torch.cat([low, resized(self.classifier.aspp(maps[4]), low)], 1))


class SegNetBasic(nn.Module):
    """Badrinarayanan et al. 2015: every level is unpooled to the places of its maxima."""

    last_layer = "conv_classifier"

    def __init__(self, layers: Layers, classes: int, width: int = 64):
        super().__init__()
        for level in range(1, 5):
            for name, inputs in ((f"conv{level}", 3 if level == 1 else width), (f"conv_decode{level}", width)):
                self.add_module(name, layers.conv(inputs, width, kernel=7, padding=3))
                self.add_module(f"{name}_bn", layers.norm(width, relu="decode" not in name))
        self.conv_classifier = layers.conv(width, classes, kernel=1, padding=0, norm_follows=False)

    def _pair(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return getattr(self, f"{name}_bn")(getattr(self, name)(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level in range(1, 5):
            x = activated(getattr(self, f"conv{level}_bn"), self._pair(f"conv{level}", x))
            size = x.shape[2:]
            x, places = F.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True)
            kept.append((places, size))
        for level in range(4, 0, -1):
            places, size = kept.pop()
            x = self._pair(f"conv_decode{level}", F.max_unpool2d(x, places, 2, 2, output_size=size))
        return self.conv_classifier(x)


class Classifier(nn.Module):
    """Any backbone, the mean of its last map, and a linear layer; on resnet it is torchvision's, name by name."""

    last_layer = "fc"

    def __init__(self, layers: Layers, classes: int, backbone: Component = "resnet"):
        super().__init__()
        trunk = backbone_of(backbone, layers)
        for name, module in trunk.named_children():  # which makes their names begin with no prefix
            self.add_module(name, module)
        self._trunk = [trunk]  # in a list, so that its layers are not counted a second time
        self.fc = nn.Linear(trunk.channels[-1], classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc(self._trunk[0](images)[-1].mean((2, 3)))


class CifarResNet(Classifier):
    """The network for CIFAR of He et al. 2016, section 4.2."""

    def __init__(self, layers: Layers, classes: int, depth: int = 20, width: int = 16):
        super().__init__(layers, classes, {"name": "small_resnet", "depth": depth, "width": width})


class FrameLstm(nn.Module):
    """A backbone over the frames of clips [n, frames, 3, H, W], then an LSTM or their mean (Donahue et al. 2015)."""

    last_layer = "fc"

    def __init__(self, layers: Layers, classes: int, backbone: Component = "small_resnet", temporal: str = "lstm",
                 hidden: int = 64):
        super().__init__()
        self.backbone = backbone_of(backbone, layers)
        width = self.backbone.channels[-1]
        self.lstm: Optional[nn.LSTM] = nn.LSTM(width, hidden, batch_first=True) if temporal == "lstm" else None
        self.fc = nn.Linear(hidden if self.lstm else width, classes)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        vectors = self.backbone(clips.flatten(0, 1))[-1].mean((2, 3)).view(*clips.shape[:2], -1)
        return self.fc(self.lstm(vectors)[0][:, -1] if self.lstm else vectors.mean(1))


MODELS: Dict[str, Type[nn.Module]] = {
    "unet": UNet, "backbone_unet": BackboneUNet, "fcn": Fcn, "pspnet": PspNet, "deeplab_v3": DeepLabV3,
    "deeplab_v3_plus": DeepLabV3Plus, "segnet_basic": SegNetBasic, "classifier": Classifier, "cifar_resnet": CifarResNet,
    "frame_lstm": FrameLstm}
