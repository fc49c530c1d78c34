#!/usr/bin/env python3
"""What strategies do not touch, on simulated GPUs as on the CPU: optimizers, losses, evaluations, models, precisions.

  python3 tests/simgpu/test_options.py [Class...]
"""

import struct
import unittest
import zlib

from runs import LATE, TASK, SimulatedRuns, difference

WEIGHED = {"name": "cross_entropy", "label_smoothing": 0.1, "class_weights": [0.2, 1, 1.5, 2, 3]}
RESNET = {"name": "resnet", "width": 2}
# Small networks on images of 35x40; all but the first two have dropout.
NETWORKS = [
    {"name": "segnet_basic", "width": 3},
    {"name": "backbone_unet", "backbone": {"name": "plain", "base": 2}, "output_stride": 8, "decoder_width": 2, "center": True},
    {"name": "fcn", "backbone": RESNET, "auxiliary_weight": 0.4},
    {"name": "pspnet", "backbone": RESNET},
    {"name": "deeplab_v3", "backbone": {"name": "vgg16", "width": 2}, "head_width": 4, "auxiliary_weight": 0.4},
    {"name": "deeplab_v3_plus", "backbone": RESNET, "head_width": 4, "low_width": 3}]

FOLDER = {"name": "image_folder", "root": "own", "size": [32, 32], "short_side": 36}


def steps(count):
    return {"steps": count, "eval_every": count}


class AsOnTheCpu:
    """Cases that are trained together, when the first is asked for."""
    BOUND = 1e-10

    def as_on_the_cpu(self, case):
        if "trained" not in vars(type(self)):
            how = self.options()
            type(self).trained = self.train_cases(self.CASES, *how, ranks=2), self.train_cases(self.CASES, *how, device="cpu")
        ours, theirs = (trained[case] for trained in self.trained)
        self.expect_close(ours, theirs, self.BOUND)
        return ours

    def options(self):
        return ()


class Training(AsOnTheCpu, SimulatedRuns):
    SGD = {"name": "sgd", "lr": 0.05}
    CASES = {
        "optimizers": [{"optimizer": optimizer} for optimizer in (
            SGD, {"name": "adamw", "lr": 0.01, "clip_gradient_norm": 0.05}, SGD | {"momentum": 0, "clip_gradient_norm": 0.5})],
        "losses": [{"task": TASK | {"loss": loss}, "loss_mean": mean}
                   for loss in ({"name": "ohem", "min_kept": 100}, WEIGHED) for mean in ("batch", "tower")],
        "moving averages": [{"weight_ema": 0.9, "strategy": strategy} for strategy in ("sync", "none")],
        "crops": [{"evaluation": {"crop": [8, 8], "flip": True, "scales": [0.75, 1.25]},
                   "populations": ["saved", "batch", "precise"], "precise_batches": 2}],
        "layouts": [{"memory_format": layout} for layout in ("contiguous", "channels_last")],
        "padding": [{"batch_per_tower": 3, "task": TASK | {"train": 26}}],
        "uneven batches": [{"batch_per_tower": [3, 1, 2, 2], "loss_mean": "tower", "strategy": "per_tower"}]}

    def test_optimizers(self):
        self.as_on_the_cpu("optimizers")

    def test_losses(self):
        self.as_on_the_cpu("losses")

    def test_moving_averages_of_weights(self):
        self.as_on_the_cpu("moving averages")

    def test_averaging_weights_in_place_of_gradients(self):
        keys = {"seed": 0, "towers": 2, "average_weights_every": 3, "strategy": "per_tower"}
        self.expect_close(self.train(keys, ranks=2), self.train(keys, device="cpu", ranks=2), 1e-10)

    def test_evaluation_by_crops_and_the_populations(self):
        self.as_on_the_cpu("crops")

    def test_layouts(self):
        self.as_on_the_cpu("layouts")

    def test_uneven_batches_and_padding(self):
        self.as_on_the_cpu("padding")
        (run,) = self.as_on_the_cpu("uneven batches").values()
        self.assertGreater(run.graphs["replayed_steps"], 0, run.graphs)


class Updates(SimulatedRuns):
    """In float32 and bfloat16 the update of the weights is replayed, too."""
    KEYS = {"seed": 0, "steps": 20, "precision": "float32", "weight_ema": 0.9, "populations": ["saved"],
            "matrix": {"strategy": ["sync", {"name": "frozen", "base": "averaged", "from_step": 12}],
                       "optimizer": [{"name": "sgd", "lr": 0.05, "norm_lr_multiplier": 0.5, "warmup_steps": 12},
                                     {"name": "sgd", "lr": 0.05, "momentum": 0, "clip_gradient_norm": 1e30},
                                     {"name": "adamw", "lr": 0.01, "clip_gradient_norm": 0.05}]}}

    trained = {}  # by the number of ranks, for all cases

    def replayed(self, ranks=2):
        if ranks not in self.trained:
            self.trained[ranks] = self.train(self.KEYS, ranks=ranks)
        return self.trained[ranks]

    def expect_the_same(self, ours, theirs):
        self.expect_close(ours, theirs, 0)
        for name, run in ours.items():
            self.assertEqual(run.result["final"], theirs[name].result["final"], name)  # of the averages, too
            self.assertEqual(run.norms, theirs[name].norms, name)

    def test_are_those_of_steps_by_themselves(self):
        for ranks in (1, 2):
            replayed = self.replayed(ranks)
            for name, run in replayed.items():
                self.assertGreaterEqual(run.graphs["replayed_steps"], 5, name)
                self.assertNotIn("why_no_updates", run.graphs)
            self.expect_the_same(self.train(self.KEYS | {"cuda_graph": False}, ranks=ranks), replayed)

    def test_late_streams_change_no_bit(self):
        for late in LATE:
            self.expect_the_same(self.train(self.KEYS, ranks=2, variables=late), self.replayed())

    def test_are_those_of_the_cpu(self):
        self.expect_close(self.replayed(), self.train(self.KEYS, device="cpu"), 1e-3)


class Networks(AsOnTheCpu, SimulatedRuns):
    BOUND = 1e-7  # small sites magnify rounding
    CASES = {
        "pixels": [steps(8) | {"task": TASK | {"size": [35, 40]}, "model": model} for model in NETWORKS],
        "clips": [steps(8) | {"task": {"name": "motion", "frames": 3, "train": 24, "test": 8},
                           "model": {"name": "frame_lstm", "backbone": {"name": "small_resnet", "depth": 8, "width": 2}, "hidden": 3}}],
        "images": [steps(8) | {"task": FOLDER, "model": model} for model in (
            {"name": "classifier", "backbone": RESNET}, {"name": "cifar_resnet", "depth": 8, "width": 2})]}

    def options(self):
        for split, count in (("train", 16), ("val", 4)):
            for label, name in enumerate(("left", "right")):
                folder = self.folder / "data" / "own" / split / name
                folder.mkdir(parents=True)
                for image in range(count // 2):
                    (folder / f"{image}.png").write_bytes(png(40, 40, seed=100 * label + image))
        return "--data", str(self.folder / "data")

    def test_of_pixels(self):
        for run in self.as_on_the_cpu("pixels").values():
            self.assertEqual(run.graphs, {"replayed_steps": 3}, run.record["spec"]["model"]["name"])

    def test_of_clips(self):
        self.as_on_the_cpu("clips")

    def test_of_images(self):
        self.as_on_the_cpu("images")


class Precisions(SimulatedRuns):
    BOUNDS = {"float32": 1e-4, "bfloat16": 0.3}
    CASES = {
        "late": [{"precision": precision, "strategy": strategy}
                 for precision in BOUNDS for strategy in ("sync", {"name": "group_norm", "groups": 2})],
        "tf32": [steps(6) | {"precision": "float32", "tf32": tf32} for tf32 in (False, True)],
        "deterministic": [steps(6) | {"precision": "float32", "deterministic": True}],
        "float32": [steps(6) | {"precision": "float32"}], "bfloat16": [steps(6) | {"precision": "bfloat16"}]}

    def trained(self, case):
        if "on_gpus" not in vars(type(self)):
            type(self).on_gpus = self.train_cases(self.CASES, ranks=2)
        return self.on_gpus[case]

    def test_lose_no_more_than_they_have(self):
        wide = self.train(steps(6) | {"strategy": "sync", "matrix": {"seed": list(range(len(self.CASES)))}}, device="cpu")
        references = {run.record["spec"]["seed"]: run for run in wide.values()}
        for precision, bound in self.BOUNDS.items():
            with self.subTest(precision):
                (run,) = self.trained(precision).values()
                for ours, theirs in zip(run.losses, references[run.record["spec"]["seed"]].losses, strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=bound * theirs)

    def test_tf32_changes_nothing_where_the_cpu_computes(self):
        exact, rounded = self.trained("tf32").values()
        self.assertEqual({exact.record["spec"]["tf32"], rounded.record["spec"]["tf32"]}, {False, True})
        self.assertEqual(difference(exact, rounded), 0)

    def test_late_streams_change_no_bit(self):
        for late in LATE:
            self.expect_close(self.train_cases({"late": self.CASES["late"]}, ranks=2, variables=late)["late"], self.trained("late"), 0)


def png(height, width, seed):
    """A photograph of noise over a gradient."""
    rows = b"".join(b"\0" + bytes((37 * seed + 3 * x * (seed % 5 + 1) + 7 * y * c) % 256 for x in range(width) for c in (1, 2, 3))
                    for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


if __name__ == "__main__":
    unittest.main()
