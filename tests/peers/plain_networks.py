"""Networks that torchvision and segmentation_models_pytorch have not, in plain PyTorch after their papers: on torchvision's
ResNet where they stand on a backbone, with the names of the implementations that people have weights of."""

import collections

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.models.segmentation.deeplabv3 import ASPP


class NarrowResNet(ResNet):
    """torchvision's ResNet, but the first stage has `width` channels in place of 64."""

    def __init__(self, width, *args, **kwargs):
        self.width = width
        super().__init__(*args, **kwargs)

    def _make_layer(self, block, planes, *args, **kwargs):
        if planes == 64:
            self.inplanes = self.width
            self.conv1 = nn.Conv2d(3, self.width, 7, stride=2, padding=3, bias=False)
            self.bn1 = nn.BatchNorm2d(self.width)
        return super()._make_layer(block, planes * self.width // 64, *args, **kwargs)


def dilated_resnet50(width, output_stride, **layers):
    """The maps of the named layers: dilated_resnet50(16, 8, layer4="out")."""
    dilated = {32: (False, False, False), 16: (False, False, True), 8: (False, True, True)}[output_stride]
    resnet = NarrowResNet(width, Bottleneck, [3, 4, 6, 3], replace_stride_with_dilation=dilated)
    return IntermediateLayerGetter(resnet, layers)


def as_semseg_has_it(resnet, width):
    """The same behind three 3x3 convolutions in place of one of 7x7, the last with twice the channels; the first block of a
    dilated stage is dilated like its others."""
    stem = []
    for n, (inputs, outputs, stride) in enumerate([(3, width, 2), (width, width, 1), (width, 2 * width, 1)], start=1):
        stem += [(f"conv{n}", nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)),
                 (f"bn{n}", nn.BatchNorm2d(outputs)), (f"relu{n}", nn.ReLU())]
    rest = [(name, module) for name, module in resnet.named_children() if name not in ("conv1", "bn1", "relu")]
    first = resnet.layer1[0]
    first.conv1 = nn.Conv2d(2 * width, width, 1, bias=False)
    first.downsample[0] = nn.Conv2d(2 * width, 4 * width, 1, bias=False)
    for stage, dilation in ((resnet.layer3, 2), (resnet.layer4, 4)):
        stage[0].conv2.dilation = stage[0].conv2.padding = (dilation, dilation)
    return IntermediateLayerGetter(nn.Sequential(collections.OrderedDict(stem + rest)), resnet.return_layers)


def conv_norm_relu(inputs, outputs, kernel=3, padding=1):
    return [nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def grown(x, size, align_corners):
    return F.interpolate(x, size=size, mode="bilinear", align_corners=align_corners)


class PyramidPooling(nn.Module):
    def __init__(self, channels, bins):
        super().__init__()
        self.features = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(cells), *conv_norm_relu(channels, channels // len(bins), 1, 0)) for cells in bins)

    def forward(self, x):
        return torch.cat([x] + [grown(level(x), x.shape[2:], True) for level in self.features], 1)


class PspNet(nn.Module):
    """Zhao et al. 2017 with semseg's head, all of whose resizes align corners; of_semseg: and its backbone."""

    def __init__(self, width, classes, of_semseg=False):
        super().__init__()
        channels = 32 * width
        self.backbone = dilated_resnet50(width, 8, layer3="before", layer4="last")
        if of_semseg:
            self.backbone = as_semseg_has_it(self.backbone, width)
        self.ppm = PyramidPooling(channels, (1, 2, 3, 6))

        def end(inputs, inside):
            return nn.Sequential(*conv_norm_relu(inputs, inside), nn.Dropout2d(0.1), nn.Conv2d(inside, classes, 1))
        self.cls = end(2 * channels, channels // 4)
        self.aux = end(channels // 2, channels // 8)

    def forward(self, x):
        maps = self.backbone(x)
        return (grown(self.cls(self.ppm(maps["last"])), x.shape[2:], True),
                grown(self.aux(maps["before"]), x.shape[2:], True) if self.training else None)


class DeepLabV3Plus(nn.Module):
    """Chen et al. 2018 with the decoder and names of VainF/DeepLabV3Plus-Pytorch."""

    def __init__(self, width, head_width, low_width, classes, output_stride):
        super().__init__()
        self.backbone = dilated_resnet50(width, output_stride, layer1="low", layer4="last")
        self.classifier = nn.Module()
        self.classifier.project = nn.Sequential(*conv_norm_relu(4 * width, low_width, 1, 0))
        self.classifier.aspp = ASPP(32 * width, [rate * 96 // output_stride for rate in (1, 2, 3)], head_width)
        self.classifier.classifier = nn.Sequential(*conv_norm_relu(low_width + head_width, head_width),
                                                   nn.Conv2d(head_width, classes, 1))

    def forward(self, x):
        maps = self.backbone(x)
        low = self.classifier.project(maps["low"])
        high = grown(self.classifier.aspp(maps["last"]), low.shape[2:], False)
        return grown(self.classifier.classifier(torch.cat([low, high], 1)), x.shape[2:], False)


class SegNetBasic(nn.Module):
    """Badrinarayanan et al. 2015: four levels, each unpooled to the places of its maxima; pools round sizes up as Caffe's."""

    def __init__(self, width, classes):
        super().__init__()
        for level in range(1, 5):
            self.add_module(f"conv{level}", nn.Conv2d(3 if level == 1 else width, width, 7, padding=3, bias=False))
            self.add_module(f"conv{level}_bn", nn.BatchNorm2d(width))
            self.add_module(f"conv_decode{level}", nn.Conv2d(width, width, 7, padding=3, bias=False))
            self.add_module(f"conv_decode{level}_bn", nn.BatchNorm2d(width))
        self.conv_classifier = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for level in range(1, 5):
            x = getattr(self, f"conv{level}_bn")(getattr(self, f"conv{level}")(x)).relu()
            size = x.shape[2:]
            x, places = F.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True)
            kept.append((places, size))
        for level in range(4, 0, -1):
            places, size = kept.pop()
            x = F.max_unpool2d(x, places, 2, 2, output_size=size)
            x = getattr(self, f"conv_decode{level}_bn")(getattr(self, f"conv_decode{level}")(x))
        return self.conv_classifier(x)


class SmallBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=outputs // inputs, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if y.shape != x.shape:  # every second pixel, channels of zeros in equal numbers at both ends
            lacking = y.shape[1] - x.shape[1]
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, lacking // 2, lacking // 2))
        return (y + x).relu()


class CifarResNet(nn.Module):
    """He et al. 2016, section 4.2, of depth 6n + 2."""

    def __init__(self, depth, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for stage in range(3):
            inputs, outputs = width << max(stage - 1, 0), width << stage
            blocks = [SmallBlock(inputs if block == 0 else outputs, outputs) for block in range((depth - 2) // 6)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(4 * width, classes)

    def vectors(self, x):
        x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu())))
        return x.mean((2, 3))

    def forward(self, x):
        return self.fc(self.vectors(x))


class FrameLstm(nn.Module):
    """A CIFAR ResNet over every frame of a clip, and the last output of an LSTM over them (Donahue et al. 2015)."""

    def __init__(self, depth, width, hidden, frames, classes):
        super().__init__()
        self.frames = frames
        self.backbone = CifarResNet(depth, width, classes)
        del self.backbone.fc
        self.lstm = nn.LSTM(4 * width, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        vectors = self.backbone.vectors(x)
        outputs, _ = self.lstm(vectors.view(-1, self.frames, vectors.shape[1]))
        return self.fc(outputs[:, -1])
