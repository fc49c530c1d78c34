#!/usr/bin/env python3
"""Holds `bnlab.export` to PyTorch: what it writes, what it refuses, and that it says which module stands in the way.

  python3 tests/python/test_export.py

Exit status 77, which ctest reports as skipped, where torch is not installed.
"""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts/python")]

try:
    import torch
except ImportError as error:
    print(f"SKIPPED: the export of PyTorch models, because {error}; scripts/setup.sh installs it")
    sys.exit(77)

import bnlab
from bnlab.export import COUNTER, GRAPH, WEIGHTS, ExportError, main
from bnlab.exported_graph import run
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)


class Small(nn.Module):
    """A convolution, a batch norm and a head, with room for what a test is about."""

    def __init__(self, classes=5, **norm):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4, **norm)
        self.head = nn.Conv2d(4, classes, 1)

    def body(self, x):
        return F.relu(self.norm(self.conv(x)))

    def between(self, y):
        return y

    def forward(self, x):
        return self.head(self.between(self.body(x)))


def batch(height=16, width=16, dtype=torch.float32):
    return torch.randn(2, 3, height, width, dtype=dtype, generator=torch.Generator().manual_seed(3))


class Tied(Small):
    def __init__(self):
        super().__init__(classes=4)
        self.other = nn.Conv2d(4, 4, 1, bias=False)
        self.other.weight = self.head.weight

    def between(self, y):
        return self.other(y)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Exports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "mine"
        torch.manual_seed(0)

    def export(self, model, images=None, **options):
        return bnlab.export(model, batch() if images is None else images, self.folder, **options)

    def refused(self, model, *words, images=None, **options):
        with self.assertRaises(ExportError) as caught:
            self.export(model, images, **options)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertFalse(self.folder.exists(), "nothing may be written of a model that is refused")

    def ops(self, description, mode="train"):
        return [node["op"] for node in description[mode]["nodes"]]


class WhatIsWritten(Exports):
    def test_site_has_its_name_eps_momentum_and_affine(self):
        description = self.export(Small(eps=1e-3, momentum=0.01))
        self.assertEqual(description["sites"], [{"name": "norm", "channels": 4, "eps": 1e-3, "momentum": 0.01, "affine": True,
                                                 "trained": True}])
        bare = self.export(Small(affine=False))["sites"][0]
        self.assertFalse(bare["affine"])

    def test_graphs_and_weights_are_read_back_from_the_folder(self):
        model = Small()
        returned = self.export(model)
        description = json.loads((self.folder / GRAPH).read_text())
        self.assertEqual(description, returned)
        weights = bnlab.read_safetensors(self.folder / WEIGHTS)
        self.assertEqual(set(weights), {entry["name"] for entry in description["tensors"]})
        images = torch.randn(4, 3, 24, 40)
        with torch.no_grad():
            expected = model.eval()(images)
        torch.testing.assert_close(run(description, "evaluate", weights, images)[""], expected, rtol=0, atol=0)

    def test_arguments_are_written_out_and_counters_are_not(self):
        description = self.export(Small())
        convolution = next(node for node in description["train"]["nodes"] if node["op"] == "aten::conv2d")
        self.assertEqual(convolution["args"][3:], [[1, 1], [1, 1], [1, 1], 1])
        self.assertEqual(convolution["module"], "conv")
        self.assertNotIn("aten::add_.Tensor", self.ops(description))

    def test_model_is_left_as_it_was(self):
        model = Small()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        drawn = torch.get_rng_state()
        self.export(model.eval())
        self.assertFalse(model.training)
        self.assertTrue(torch.equal(torch.get_rng_state(), drawn))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)

    def test_batch_height_and_width_are_free(self):
        description = self.export(Small())
        self.assertEqual((description["size_step"], description["fixed_size"]), (1, ""))
        shapes = [found["shape"] for found in description["verified"]]
        self.assertEqual(shapes, [[2, 3, 16, 16], [1, 3, 16, 16], [3, 3, 48, 112], [2, 3, 29, 13]])
        for found in description["verified"]:
            self.assertEqual((found["train"]["outputs"], found["train"]["gradients"], found["train"]["statistics"]), (0, 0, 0))
            self.assertEqual(found["evaluate"]["outputs"], 0)

    def test_fixed_size_frees_the_batch_alone(self):
        description = self.export(Small(), fixed_size=True)
        self.assertEqual(description["size_step"], 0)
        self.assertIn("constants", description["fixed_size"])
        self.assertEqual({tuple(found["shape"][2:]) for found in description["verified"]}, {(16, 16)})

    def test_outputs_have_the_names_of_a_dictionary_or_the_places_of_a_tuple(self):
        class Two(Small):
            def forward(self, x):
                y = self.body(x)
                return {"out": self.head(y), "aux": y} if self.training else {"out": self.head(y)}

        class Pair(Small):
            def forward(self, x):
                return self.head(self.body(x)), x.mean()

        def names(model, mode):
            return [output["name"] for output in self.export(model)[mode]["outputs"]]

        self.assertEqual(names(Two(), "train"), ["out", "aux"])
        self.assertEqual(names(Two(), "evaluate"), ["out"])
        self.assertEqual(self.export(Two())["train"]["outputs"][1]["shape"], [2, 4, 16, 16])
        self.assertEqual(names(Pair(), "train"), ["0", "1"])

    def test_evaluation_is_a_graph_of_its_own(self):
        class Own(Small):
            def between(self, y):
                return F.dropout(y, 0.5) * 2 if self.training else y

        description = self.export(Own())
        self.assertIn("aten::dropout", self.ops(description))
        self.assertNotIn("aten::mul.Tensor", self.ops(description, "evaluate"))

    def test_addition_says_whether_its_operands_have_one_shape(self):
        class Adds(Small):
            def between(self, y):
                return (y + self.conv.weight[:, :1, :1, 0]) + y

        class Scaled(Small):
            def between(self, y):
                return torch.add(y, y, alpha=2)

        self.assertNotIn("like", json.dumps(self.export(Scaled())["train"]))
        marks = [node.get("like", False) for node in self.export(Adds())["train"]["nodes"] if node["op"] == "aten::add.Tensor"]
        self.assertEqual(marks, [False, True])

    def frozen(self, model):
        return {entry["name"] for entry in self.export(model)["tensors"] if entry.get("trained") is False}

    def test_parameters_that_get_no_gradient_are_frozen(self):
        class Unused(Small):
            def __init__(self):
                super().__init__()
                self.unused = nn.Linear(2, 2)

            def between(self, y):
                return y + self.conv.bias.detach().mean()

            def body(self, x):
                return F.relu(self.norm(F.conv2d(x, self.conv.weight, padding=1)))

        self.assertEqual(self.frozen(Unused()), {"unused.weight", "unused.bias", "conv.bias"})

    def test_frozen_parameters_and_norms_stay_frozen(self):
        model = Small()
        model.head.weight.requires_grad_(False)
        self.assertEqual(self.frozen(model), {"head.weight"})

        model = Small().train()
        model.norm.eval()
        description = self.export(model)
        self.assertEqual(description["sites"], [])
        self.assertIn("aten::batch_norm", self.ops(description))

    def test_synchronised_norm_is_a_plain_site(self):
        description = self.export(nn.SyncBatchNorm.convert_sync_batchnorm(Small()))
        self.assertEqual([site["name"] for site in description["sites"]], ["norm"])

    def test_weight_standardisation_is_no_site(self):
        class Standardised(Small):
            def forward(self, x):
                w = F.batch_norm(self.conv.weight.reshape(1, 4, -1), None, None, training=True).reshape(4, 3, 3, 3)
                return self.head(F.relu(self.norm(F.conv2d(x, w, padding=1))))

        description = self.export(Standardised())
        self.assertEqual([site["name"] for site in description["sites"]], ["norm"])
        self.assertEqual(self.ops(description).count("aten::batch_norm"), 2)

    def test_shared_norm_is_one_site_at_two_nodes(self):
        class Twice(Small):
            def between(self, y):
                return self.norm(y)

        description = self.export(Twice())
        self.assertEqual(len(description["sites"]), 1)
        for mode in ("train", "evaluate"):
            self.assertEqual([n["site"] for n in description[mode]["nodes"] if n["op"] == "aten::batch_norm"], [0, 0])

    def test_tied_weights_stand_once_with_both_names(self):
        description = self.export(Tied())
        entry = next(entry for entry in description["tensors"] if "aliases" in entry)
        self.assertEqual((entry["name"], entry["aliases"]), ("head.weight", ["other.weight"]))
        self.assertEqual(len(bnlab.read_safetensors(self.folder / WEIGHTS)), len(description["tensors"]))

    def test_regions_of_no_grad_and_autocast_mark_their_nodes(self):
        class Regions(Small):
            def between(self, y):
                with torch.no_grad():
                    scale = y.abs().mean()
                with torch.autocast("cpu", torch.bfloat16):
                    z = F.conv2d(y, self.head.weight[:4])
                return z.float() / scale

        nodes = self.export(Regions())["train"]["nodes"]
        self.assertIn("aten::abs", [node["op"] for node in nodes if node.get("grad") is False])
        self.assertIn("aten::conv2d", [node["op"] for node in nodes if node.get("autocast") == ["bfloat16", True]])

    def test_type_and_device_of_the_export_are_those_of_the_run(self):
        class Grid(Small):
            def between(self, y):
                return y + torch.arange(y.shape[3], dtype=y.dtype, device=y.device) + torch.tensor([0.5])

        text = json.dumps(self.export(Grid())["train"])
        self.assertIn('{"dtype": "run"}', text)
        self.assertIn('{"device": "run"}', text)
        self.assertNotIn("cpu", text)

    def test_constants_of_small_types_are_kept_as_int64(self):
        class Masked(Small):
            def __init__(self):
                super().__init__()
                self.register_buffer("mask", torch.tensor([True, False, True, True]).view(4, 1, 1), persistent=False)

            def between(self, y):
                return y.masked_fill(self.mask, 0)

        description = self.export(Masked())
        self.assertEqual(next(e["dtype"] for e in description["tensors"] if e["name"] == "mask"), "bool")
        self.assertEqual(bnlab.read_safetensors(self.folder / WEIGHTS)["mask"].dtype, torch.int64)

    def test_several_initialisations_are_several_files(self):
        description = self.export(Small, seeds=3)
        self.assertTrue(description["initialisations"])
        weights = [bnlab.read_safetensors(self.folder / name)["conv.weight"] for name in description["weights"]]
        self.assertEqual(len(weights), 3)
        for seed, weight in enumerate(weights):
            torch.manual_seed(seed)
            self.assertTrue(torch.equal(weight, Small().conv.weight))


class WhatIsRefused(Exports):
    def test_function_whose_backward_is_lost(self):
        class Rounded(nn.Module):
            def forward(self, x):
                return Straight.apply(x)

        class Own(Small):
            def __init__(self):
                super().__init__()
                self.rounded = Rounded()

            def between(self, y):
                return self.rounded(y)

        self.refused(Own(), "norm.bias differs", "of Straight behind it", "straight-through")

    def test_size_that_became_a_constant_fixes_the_sizes(self):
        class Halved(Small):
            def forward(self, x):
                return F.interpolate(super().forward(x), size=(int(x.shape[2] * 0.5), 8))

        description = self.export(Halved())
        self.assertEqual(description["size_step"], 0)
        self.assertRegex(description["fixed_size"], "at 48x112 its outputs differ")

    def test_sizes_that_take_another_way_through_the_model_are_not_allowed(self):
        class ByThree(Small):
            def between(self, y):
                return y + 1 if y.shape[2] % 32 == 0 else y - 1

        class Asserts(Small):
            def between(self, y):
                if y.shape[2] % 16:
                    raise ValueError("expected multiples of 16")
                return y

        description = self.export(ByThree(), batch(64, 64))
        self.assertEqual(description["size_step"], 32)
        self.assertIn("at 77x55 its outputs differ", description["fixed_size"])
        self.assertEqual(self.export(ByThree(), batch(32, 32))["size_step"], 32)
        description = self.export(Asserts())
        self.assertEqual(description["size_step"], 32)
        self.assertIn("the model refuses 29x13: expected multiples of 16", description["fixed_size"])

    def test_batch_that_became_a_constant(self):
        class Rows(Small):
            def between(self, y):
                return y + y.new_zeros(int(y.shape[0]), 1, 1, 1)

        self.refused(Rows(), "one image", "int(x.shape[0])")

    def test_branch_on_one_image(self):
        class Alone(Small):
            def between(self, y):
                return y * 2 if y.shape[0] == 1 else y

        self.refused(Alone(), "one image")

    def test_parameters_trained_in_a_region_without_gradients(self):
        class Saving(Small):
            def body(self, x):
                return torch.utils.checkpoint.checkpoint(super().body, x, use_reentrant=True)

        self.refused(Saving(), "use_reentrant=False")

    def test_checkpoint_that_updates_statistics_twice(self):
        class Saving(Small):
            def body(self, x):
                return torch.utils.checkpoint.checkpoint(super().body, x, use_reentrant=False)

        self.refused(Saving(), "norm.running_mean", "export without it")

    def test_buffer_that_follows_the_images(self):
        class Remembers(Small):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(()))

            def between(self, y):
                self.mean.add_(y.detach().mean())
                return y

        self.refused(Remembers(), "mean is changed by forward()")

    def test_noise_that_is_not_drawn_for_each_image(self):
        for draw in (lambda rows: torch.randn(4, rows, 1, 1).transpose(0, 1), lambda _rows: torch.rand(4, 1, 1),
                     lambda rows: torch.empty(rows * 2, 1).bernoulli_(0.5).reshape(-1, 2, 1, 1).sum(1, keepdim=True)):
            class Noisy(Small):
                def between(self, y):
                    return y * draw(y.shape[0])  # noqa: B023

            self.refused(Noisy(), "does not draw for each image", "first dimension is the batch")

    def test_norm_without_running_statistics_or_with_a_cumulative_average(self):
        self.refused(Small(track_running_stats=False), "norm", "track_running_stats=True")
        self.refused(Small(momentum=None), "norm", "momentum None")

    def test_norm_that_shares_its_weight_with_another(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4))
        model[2].weight = model[1].weight
        self.refused(model, "2: a batch norm must hold", "which no other norm shares")

    def test_eps_and_momentum_that_no_norm_can_have(self):
        self.refused(Small(eps=-1e-5), "norm", "eps")  # by PyTorch itself
        for numbers in ({"eps": float("nan")}, {"momentum": 1.5}, {"momentum": -0.1}):
            self.refused(Small(**numbers), "norm: expected an eps and a momentum from 0 to 1", str(next(iter(numbers.values()))))

    def test_branch_on_values(self):
        class Branch(Small):
            def between(self, y):
                return y if y.mean() > 0 else -y

        with contextlib.redirect_stderr(io.StringIO()) as printed:
            self.refused(Branch(), "the model (test_export.py:", "torch.where")
        self.assertEqual(printed.getvalue(), "", "PyTorch would print the whole graph")

    def test_compiled_model(self):
        self.refused(torch.compile(Small()), "_orig_mod")

    def test_numbers_that_python_draws(self):
        import random

        class Random(Small):
            def between(self, y):
                return y * random.random()

        self.refused(Random(), "outputs differ")

    def test_example_of_one_image_or_of_another_type(self):
        self.refused(Small(), "two images or more", images=batch()[:1])
        self.refused(Small(), "torch.float32".removeprefix("torch."), images=batch(dtype=torch.float64))

    def test_seeds_of_a_model_that_is_made(self):
        self.refused(Small(), "function", seeds=2)


class WeightsBack(Exports):
    def run_of(self, weights, strategy="sync", **model):
        """The folder of a run that ended with these weights."""
        run = self.folder.parent / "run"
        run.mkdir(exist_ok=True)
        bnlab.write_safetensors(run / WEIGHTS, {n: tensor for n, tensor in weights.items() if tensor.is_floating_point()})
        record = {"spec": {"model": {"name": "exported", "file": "mine", **model}, "strategy": {"name": strategy}}}
        (run / "record.json").write_text(json.dumps(record), encoding="utf-8")
        return run

    def trained(self, model, *without):
        return {name: tensor + 1 for name, tensor in model.state_dict().items() if name not in without}

    def test_trained_weights_come_back_under_their_names(self):
        model, other = Small(), Small()
        trained = self.trained(model)
        bnlab.load_into(other, self.run_of(trained))
        for name, tensor in other.state_dict().items():
            expected = torch.tensor(0) if name.endswith(COUNTER) else trained[name]
            self.assertTrue(torch.equal(tensor, expected), name)

    def test_tied_weights_come_back_under_all_their_names(self):
        model, other = Tied(), Tied()
        bnlab.load_into(other, self.run_of(self.trained(model, "other.weight")))
        self.assertTrue(torch.equal(other.other.weight, model.head.weight + 1))
        self.assertIs(other.other.weight, other.head.weight)

    def test_a_run_of_an_exported_model_has_no_twin(self):
        with self.assertRaisesRegex(ValueError, "load_into"):
            bnlab.torch_model(self.run_of(self.trained(Small())))

    def test_a_run_that_evaluates_by_other_norms_is_refused(self):
        run = self.run_of(self.trained(Small()), "group_norm")
        with self.assertRaisesRegex(ValueError, "under group_norm the network no longer evaluates by the batch norms"):
            bnlab.load_into(Small(), run)
        with self.assertRaisesRegex(ValueError, "no longer evaluates by"):
            bnlab.load_into(Small(), self.run_of(self.trained(Small()), numbers="strategy"))

    def test_weights_of_another_model_are_refused_and_nothing_is_loaded(self):
        model = Small()
        before = model.norm.weight.clone()
        for run in (self.run_of(self.trained(Small(), "norm.running_mean")), self.run_of(self.trained(Small(classes=7))),
                    self.run_of({**self.trained(Small()), "more": torch.zeros(1)})):
            with self.assertRaisesRegex(ValueError, "of another model"):
                bnlab.load_into(model, run)
        self.assertTrue(torch.equal(model.norm.weight, before))


class CommandLine(Exports):
    def run_main(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*words, "--folder", str(self.folder)])
        return status, out.getvalue(), err.getvalue()

    def test_a_function_of_a_module_is_exported_and_the_line_of_the_spec_is_printed(self):
        status, out, _ = self.run_main("test_export:Small", "--example", "2,3,16,16")
        self.assertEqual(status, 0)
        self.assertIn("norm sites: 1", out)
        self.assertIn(f'"model": {{"name": "exported", "file": "{self.folder}"}}', out)

    def test_a_refusal_is_one_line_and_status_1(self):
        status, _, err = self.run_main("test_export:Small", "--example", "1,3,16,16")
        self.assertEqual((status, len(err.splitlines())), (1, 1))


if __name__ == "__main__":
    sys.modules["test_export"] = sys.modules[__name__]
    unittest.main()
