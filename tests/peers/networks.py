"""The table of the networks that bnlab shares with others: how bnlab names each, and how it is built elsewhere. Those that
torchvision and segmentation_models_pytorch have not stand in scripts/python, in plain PyTorch after their papers."""

import segmentation_models_pytorch as smp
import torchvision
from torch import nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.models.segmentation.deeplabv3 import ASPP, DeepLabV3
from torchvision.models.segmentation.fcn import FCN, FCNHead

import bnlab
from comparing import Peer

CLASSES = 3
WIDTH = 8  # of most, for speed; WHOLE has the published one
RESNET50 = {"name": "resnet", "depth": 50, "width": WIDTH}


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


def dilated_resnet50(width, **layers):
    """The maps of the named layers, the last at an eighth of the image: dilated_resnet50(16, layer4="out")."""
    resnet = NarrowResNet(width, Bottleneck, [3, 4, 6, 3], replace_stride_with_dilation=(False, True, True))
    return IntermediateLayerGetter(resnet, layers)


def conv_norm_relu(inputs, outputs, kernel=3, padding=1):
    return [nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def fcn():
    return FCN(dilated_resnet50(WIDTH, layer3="aux", layer4="out"), FCNHead(32 * WIDTH, CLASSES), FCNHead(16 * WIDTH, CLASSES))


def deeplab_v3():
    head = nn.Sequential(ASPP(32 * WIDTH, (12, 24, 36), 40), *conv_norm_relu(40, 40), nn.Conv2d(40, CLASSES, 1))
    return DeepLabV3(dilated_resnet50(WIDTH, layer3="aux", layer4="out"), head, FCNHead(16 * WIDTH, CLASSES))


def unet(encoder):
    return smp.Unet(encoder, encoder_weights=None, classes=CLASSES)


def resnet(depth):
    build = {18: torchvision.models.resnet18, 50: torchvision.models.resnet50}[depth]
    return build(weights=None, num_classes=CLASSES)


def on_resnet50(name, **options):
    return {"name": name, "backbone": RESNET50, "dropout": 0, **options}


def in_plain_pytorch(name, model, **more):
    return Peer(name, model, lambda: bnlab.network(model, "sync", CLASSES), **more)


PEERS = [
    Peer("fcn", on_resnet50("fcn", auxiliary_weight=0.5), fcn),
    in_plain_pytorch("pspnet", on_resnet50("pspnet"), images=5),
    in_plain_pytorch("pspnet_semseg", {**on_resnet50("pspnet"), "backbone": {
        **RESNET50, "stem": "deep", "dilate_first_block": True}}, size=(50, 62), images=5),
    # So wide that the outer taps of the largest dilation see the image.
    Peer("deeplab_v3", on_resnet50("deeplab_v3", head_width=40, auxiliary_weight=0.5, auxiliary_dropout=0), deeplab_v3,
         size=(33, 305)),
    in_plain_pytorch("deeplab_v3_plus", on_resnet50("deeplab_v3_plus", head_width=40, low_width=12), size=(33, 321)),
    in_plain_pytorch("deeplab_v3_plus_8", on_resnet50("deeplab_v3_plus", head_width=40, low_width=12, output_stride=8),
                     size=(33, 49)),
    Peer("unet_resnet18", {"name": "backbone_unet", "backbone": {"name": "resnet", "depth": 18}}, lambda: unet("resnet18"),
         size=(32, 64)),
    Peer("unet_vgg16", {"name": "backbone_unet", "backbone": "vgg16", "center": True}, lambda: unet("vgg16_bn"), size=(32, 64)),
    in_plain_pytorch("segnet_basic", {"name": "segnet_basic", "width": 8}, size=(45, 61)),
    Peer("resnet18", {"name": "classifier", "backbone": {"name": "resnet", "depth": 18}}, lambda: resnet(18), size=(33, 49)),
    in_plain_pytorch("cifar_resnet", {"name": "cifar_resnet", "depth": 20, "width": 8}, size=(32, 32)),
    in_plain_pytorch("frame_lstm", {"name": "frame_lstm", "backbone": {"name": "small_resnet", "depth": 8, "width": 4},
                                    "hidden": 6}, size=(24, 32), images=6, rows_per_sample=3),
]
# As published, in full width.
WHOLE = [
    Peer("fcn_resnet50", {"name": "fcn", "backbone": {"name": "resnet", "depth": 50}, "auxiliary_weight": 0.5, "dropout": 0},
         lambda: torchvision.models.segmentation.fcn_resnet50(
             weights=None, weights_backbone=None, num_classes=CLASSES, aux_loss=True)),
    Peer("resnet50", {"name": "classifier", "backbone": {"name": "resnet", "depth": 50}}, lambda: resnet(50), size=(33, 49)),
]
