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


class Training(SimulatedRuns):
    def as_on_the_cpu(self, keys, cpu_ranks=1):
        keys = {"strategy": "sync", "seed": 0} | keys
        self.expect_close(self.train(keys, ranks=2), self.train(keys, device="cpu", ranks=cpu_ranks), 1e-10)

    def test_optimizers(self):
        sgd = {"name": "sgd", "lr": 0.05}
        adamw = {"name": "adamw", "lr": 0.01, "clip_gradient_norm": 0.05}
        self.as_on_the_cpu({"matrix": {"optimizer": [sgd, adamw, sgd | {"momentum": 0, "clip_gradient_norm": 0.5}]}})

    def test_losses(self):
        tasks = [TASK | {"loss": {"name": "ohem", "min_kept": 100}}, TASK | {"loss": WEIGHED}]
        self.as_on_the_cpu({"matrix": {"task": tasks, "loss_mean": ["batch", "tower"]}})

    def test_moving_averages_of_weights(self):
        self.as_on_the_cpu({"weight_ema": 0.9, "matrix": {"strategy": ["sync", "none"]}})

    def test_averaging_weights_in_place_of_gradients(self):
        self.as_on_the_cpu({"towers": 2, "average_weights_every": 3, "strategy": "per_tower"}, cpu_ranks=2)

    def test_evaluation_by_crops_and_the_populations(self):
        self.as_on_the_cpu({"evaluation": {"crop": [8, 8], "flip": True, "scales": [0.75, 1.25]},
                            "populations": ["saved", "batch", "precise"], "precise_batches": 2})

    def test_layouts(self):
        self.as_on_the_cpu({"matrix": {"memory_format": ["contiguous", "channels_last"]}})

    def test_uneven_batches_and_padding(self):
        self.as_on_the_cpu({"batch_per_tower": 3, "task": TASK | {"train": 26}})
        keys = {"seed": 0, "batch_per_tower": [3, 1, 2, 2], "loss_mean": "tower", "strategy": "per_tower"}
        (run,) = self.train(keys, ranks=2).values()
        self.assertGreater(run.graphs["replayed_steps"], 0, run.graphs)
        self.expect_close({"uneven": run}, {"uneven": next(iter(self.train(keys, device="cpu").values()))}, 1e-10)


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


class Networks(SimulatedRuns):
    def as_on_the_cpu(self, keys, *more):
        keys = {"strategy": "sync", "seed": 0, "steps": 8, "eval_every": 8} | keys
        runs = self.train(keys, *more, ranks=2)
        self.expect_close(runs, self.train(keys, *more, device="cpu"), 1e-7)  # small sites magnify rounding
        return runs

    def test_of_pixels(self):
        runs = self.as_on_the_cpu({"task": TASK | {"size": [35, 40]}, "matrix": {"model": NETWORKS}})
        for name, run in runs.items():
            self.assertEqual(run.graphs, {"replayed_steps": 3}, run.record["spec"]["model"]["name"])

    def test_of_clips(self):
        self.as_on_the_cpu({"task": {"name": "motion", "frames": 3, "train": 24, "test": 8},
                            "model": {"name": "frame_lstm", "backbone": {"name": "small_resnet", "depth": 8, "width": 2},
                                      "hidden": 3}})

    def test_of_images(self):
        for split, count in (("train", 16), ("val", 4)):
            for label, name in enumerate(("left", "right")):
                folder = self.folder / "data" / "own" / split / name
                folder.mkdir(parents=True)
                for image in range(count // 2):
                    (folder / f"{image}.png").write_bytes(png(40, 40, seed=100 * label + image))
        task = {"name": "image_folder", "root": "own", "size": [32, 32], "short_side": 36}
        models = [{"name": "classifier", "backbone": RESNET}, {"name": "cifar_resnet", "depth": 8, "width": 2}]
        self.as_on_the_cpu({"task": task, "matrix": {"model": models}}, "--data", str(self.folder / "data"))


class Precisions(SimulatedRuns):
    def test_lose_no_more_than_they_have(self):
        keys = {"strategy": "sync", "seed": 0, "steps": 6, "eval_every": 6}
        wide = self.train(keys, device="cpu")
        for precision, bound in (("float32", 1e-4), ("bfloat16", 0.3)):
            with self.subTest(precision):
                narrow = self.train(keys | {"precision": precision}, ranks=2)
                (run,), (reference,) = narrow.values(), wide.values()
                for ours, theirs in zip(run.losses, reference.losses):
                    self.assertAlmostEqual(ours, theirs, delta=bound * theirs)

    def test_tf32_changes_nothing_where_the_cpu_computes(self):
        keys = {"strategy": "sync", "seed": 0, "steps": 6, "eval_every": 6, "precision": "float32", "matrix": {"tf32": [False, True]}}
        exact, rounded = self.train(keys, ranks=2).values()
        self.assertEqual({exact.record["spec"]["tf32"], rounded.record["spec"]["tf32"]}, {False, True})
        self.assertEqual(difference(exact, rounded), 0)

    def test_late_streams_change_no_bit(self):
        keys = {"seed": 0, "matrix": {"precision": ["float32", "bfloat16"], "strategy": ["sync", {"name": "group_norm", "groups": 2}]}}
        at_once = self.train(keys, ranks=2)
        for late in LATE:
            self.expect_close(self.train(keys, ranks=2, variables=late), at_once, 0)


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
