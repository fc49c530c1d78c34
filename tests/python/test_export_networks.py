#!/usr/bin/env python3
"""Exports 30 networks of torchvision, segmentation_models_pytorch and timm: each graph is the model, to the last bit, at the
example, at one image and at other sizes, wherever PyTorch itself runs the model.

  PYTHONPATH=build/peers python3 tests/python/test_export_networks.py

BNLAB_NETWORKS=resnet18,Unet tries these alone. Exit status 77, which ctest reports as skipped, where torch or these packages
are not installed (scripts/peers.sh installs them).
"""

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts/python")]

try:
    import segmentation_models_pytorch
    import timm
    import torch
    from torchvision import models
except ImportError as error:
    print(f"SKIPPED: exported networks, because {error}; scripts/peers.sh installs what is needed")
    sys.exit(77)

import bnlab

ONE_VALUE = "more than 1 value per channel"


def torchvision_model(name, **options):
    if hasattr(models, name):
        return lambda: getattr(models, name)(weights=None, **options)
    return lambda: getattr(models.segmentation, name)(weights=None, weights_backbone=None, **options)


def smp(name):
    return lambda: getattr(segmentation_models_pytorch, name)("resnet34", encoder_weights=None, classes=5)


def timm_model(name):
    return lambda: timm.create_model(name)


def googlenet():
    """With one of its two auxiliary heads: bnlab trains one."""
    model = torchvision_model("googlenet", init_weights=False)()
    model.aux1 = None
    return model


# The networks that the export is promised for, with the size of their example.
NAMED = {
    **{name: (torchvision_model(name), 64) for name in (
        "resnet18", "resnet50", "resnext50_32x4d", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "convnext_tiny",
        "fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large")},
    "inception_v3": (torchvision_model("inception_v3", init_weights=False), 299),
    **{name: (smp(name), 64) for name in ("Unet", "UnetPlusPlus", "FPN", "DeepLabV3Plus", "MAnet", "Linknet")},
    "PSPNet": (smp("PSPNet"), 96),
    **{name: (timm_model(name), 64) for name in ("hrnet_w18", "regnety_008")},
}
# Ten more, chosen before they were tried.
CHOSEN = {
    "googlenet": (googlenet, 96),
    **{name: (torchvision_model(name), 64) for name in ("shufflenet_v2_x1_0", "mnasnet0_5", "regnet_y_400mf")},
    "PAN": (smp("PAN"), 128), "UPerNet": (smp("UPerNet"), 64),
    **{name: (timm_model(name), 64) for name in ("res2net50_26w_4s", "ghostnet_100", "nf_resnet50", "dpn68")},
}


class Networks(unittest.TestCase):
    def check(self, name, make, size):
        torch.manual_seed(0)
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            description = bnlab.export(make(), torch.randn(2, 3, size, size), folder)
        verified = description["verified"]
        print(f"{name}: {time.process_time() - began:.0f} s, {len(description['sites'])} sites, {len(description['train']['nodes'])} "
              f"nodes, at {[found['shape'] for found in verified]}, steps of {description['size_step']} {description['fixed_size']}",
              flush=True)
        for found in verified:
            with self.subTest(network=name, shape=found["shape"]):
                self.assertEqual(found["evaluate"], {"outputs": 0})
                if "refused" in found["train"]:
                    self.assertIn(ONE_VALUE, found["train"]["refused"])
                else:
                    self.assertEqual(found["train"], {"outputs": 0, "gradients": 0, "statistics": 0})
        self.assertGreaterEqual(len(verified), 3, "the example, one image, and another size")

    def test_graphs_are_the_models_that_they_were_made_of(self):
        chosen = os.environ.get("BNLAB_NETWORKS", "")
        for name, (make, size) in {**NAMED, **CHOSEN}.items():
            if not chosen or name in chosen.split(","):
                with self.subTest(network=name):
                    self.check(name, make, size)


if __name__ == "__main__":
    unittest.main()
