"""A network of PyTorch beside the same network of bnlab: equal weights and images in, equal answers out."""

import dataclasses
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Callable
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

PROGRAM = os.environ.get("BNLAB_PROGRAM", "build/release/bnlab")
COUNTER = "num_batches_tracked"


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    model: dict  # as a spec names it
    build: Callable  # () -> a module with forward(images) -> logits, or (logits, auxiliary logits or None)
    classes: int = 3
    size: tuple = (49, 65)
    images: int = 3  # a norm that sees one value per image has something to normalise
    rows_per_sample: int = 1
    strategy: object = "sync"  # as a spec names it


def built(build):
    """The module without the weights that PyTorch would draw: `randomised` puts others there."""
    def undrawn(tensor, *_, **__):
        return tensor
    with mock.patch.object(torch.Tensor, "uniform_", undrawn), mock.patch.object(torch.Tensor, "normal_", undrawn):
        return build()


def randomised(module, dtype, seed=0):
    """The module with random weights and random running statistics, under which activations neither vanish nor grow."""
    generator = torch.Generator().manual_seed(seed)
    module = module.to(dtype)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if name.endswith(COUNTER):
                continue
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if tensor.dim() > 1:
                value = noise / tensor[0].numel() ** 0.5 * 1.4
            elif name.endswith("running_mean") or name.endswith("bias"):
                value = 0.3 * noise
            else:  # gamma, running_var
                value = 0.5 + torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
            tensor.copy_(value)
    for layer in module.modules():
        if isinstance(layer, (torch.nn.Dropout, torch.nn.Dropout2d)):
            layer.p = 0.0  # masks are not drawn alike
    return module


def outputs_of(module, images, rows_per_sample=1):
    """(logits, auxiliary logits or None); a module for clips is given them as such"""
    outputs = module(images if rows_per_sample == 1 else images.unflatten(0, (-1, rows_per_sample)))
    if isinstance(outputs, dict):
        return outputs["out"], outputs.get("aux")
    return outputs[:2] if isinstance(outputs, tuple) else (outputs, None)


def expected_answer(module, inputs, training, rows_per_sample=1):
    """The tensors that `bnlab forward` should write; adds what it should be asked to `inputs`."""
    module.train(training)
    images = inputs["images"].clone().requires_grad_()
    logits, auxiliary = outputs_of(module, images, rows_per_sample)
    answer = {"logits": logits}
    inputs["grad_logits"] = torch.randn(logits.shape, dtype=logits.dtype)
    loss = (logits * inputs["grad_logits"]).sum()
    if training and auxiliary is not None:
        answer["auxiliary"] = auxiliary
        inputs["grad_auxiliary"] = torch.randn(auxiliary.shape, dtype=auxiliary.dtype)
        loss = loss + (auxiliary * inputs["grad_auxiliary"]).sum()
    loss.backward()
    answer["grad/images"] = images.grad
    for name, parameter in module.named_parameters():
        answer["grad/" + name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    if training:
        answer.update({"after/" + name: buffer for name, buffer in module.named_buffers() if not name.endswith(COUNTER)})
    return {name: tensor.detach() for name, tensor in answer.items()}


def bnlab_answer(peer, state, inputs, training, folder):
    """(tensors, what bnlab says of the weights). A folder is for one state."""
    weights, images, out = (str(Path(folder) / f"{name}.safetensors") for name in ("weights", "images", "answer"))
    if not Path(weights).exists():
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, weights)
    save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, images)
    done = subprocess.run([PROGRAM, "forward", weights, "--model", json.dumps(peer.model),
                           "--strategy", peer.strategy if isinstance(peer.strategy, str) else json.dumps(peer.strategy),
                           "--classes", str(peer.classes), "--images", images, "--out", out,
                           "--mode", "train" if training else "evaluate",
                           "--rows-per-sample", str(peer.rows_per_sample)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"bnlab forward: {done.stderr.strip()}")
    return load_file(out), done.stderr.strip()


def largest_differences(expected, found):
    """By kind of tensor ("logits", "grad", ...): the largest difference, relative to the largest number of the tensor,
    and the tensor's name. Gradients that cancel out are measured by a thousandth of the largest gradient."""
    scales = {name: tensor.abs().max().item() for name, tensor in expected.items()}
    floor = {"grad": 1e-3 * max(scale for name, scale in scales.items() if name.startswith("grad/"))}
    largest = {}
    for name, tensor in expected.items():
        kind = name.split("/")[0]
        apart = (found[name] - tensor).abs().max().item()
        difference = apart and apart / (max(scales[name], floor.get(kind, 0)) or math.ulp(0.0))  # of a layer that nothing uses, 0
        largest[kind] = max(largest.get(kind, (0.0, name)), (difference, name))
    return largest


def distance_of_gradients(expected, found):
    """Of all gradients as one vector, relative to its length. In float32 rounding turns a ReLU on or off here and there,
    and with it the gradients of a whole branch, so that single numbers say nothing."""
    names = [name for name in expected if name.startswith("grad/")]

    def length(vectors):
        return sum(vector.double().square().sum().item() for vector in vectors) ** 0.5
    return length(found[name] - expected[name] for name in names) / length(expected[name] for name in names)
