"""graph.json, run by PyTorch, and compared with the model that it was written from: outputs in both modes, and in training
the gradients of all parameters and of the images, and the running statistics."""

from __future__ import annotations

import copy
import math
import operator
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils import _pytree as pytree

COUNTER = "num_batches_tracked"
MODES = ("train", "evaluate")
# Python's functions on sizes that stand among the operators.
ON_SIZES = {**{name.strip("_"): getattr(operator, name) for name in (
    "add", "sub", "mul", "floordiv", "mod", "truediv", "neg", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "getitem")},
    **{name: getattr(torch, "sym_" + name) for name in ("max", "min", "int", "float", "not")},
    "floor": math.floor, "ceil": math.ceil, "round": round}
NAME_OF = {**{function: name for name, function in ON_SIZES.items()}, math.trunc: "int"}
# What rounding may leave between the graph and the model, relative to the largest number.
_BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-4}
_FAR = 1e30  # a difference where one of two tensors is missing, has another shape or is not finite


class ExportError(ValueError):
    """Says which module stands in the way, and what to do."""


class _Differs(Exception):
    """Says where the graph is not the model."""


def bare(value: Any) -> str:
    return str(value).removeprefix("torch.")


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def output_name(keys: Sequence[Any]) -> str:
    """Of an output in what the model returns: "out" in a dictionary, "0" in a tuple, "" of a single tensor."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in keys)


def run(description: Dict[str, Any], mode: str, tensors: Dict[str, torch.Tensor], images: torch.Tensor) -> Dict[str, torch.Tensor]:
    """The outputs of one of the two graphs by their names, computed by PyTorch from what graph.json says."""
    values: List[Any] = [*(tensors[entry["name"]] for entry in description["tensors"]), images]

    def decoded(value: Any) -> Any:
        if isinstance(value, list):
            return [decoded(each) for each in value]
        if not isinstance(value, dict):
            return value
        (kind, what), = value.items()
        if kind == "v":
            return values[what]
        if kind == "float":
            return float(what)
        if kind == "device":
            return images.device
        return getattr(torch, description["dtype"] if what == "run" else what)

    for node in description[mode]["nodes"]:
        space, name = node["op"].split("::")
        args = [decoded(value) for value in node["args"]]
        dtype, enabled = node.get("autocast", ["bfloat16", False])
        with torch.set_grad_enabled(node.get("grad", True) and torch.is_grad_enabled()), \
                torch.autocast(images.device.type, getattr(torch, dtype), enabled):
            if space == "py":
                values.append(ON_SIZES[name](*args))
            else:
                base, _, overload = name.partition(".")
                call = getattr(getattr(torch.ops.aten, base), overload or "default")
                values.append(call(**{argument.name: value for argument, value in zip(call._schema.arguments, args)}))
    return {output["name"]: values[output["value"]] for output in description[mode]["outputs"]}


def _apart(got: Optional[torch.Tensor], expected: Optional[torch.Tensor]) -> float:
    """The largest difference, relative to the largest expected number, or _FAR."""
    if got is None or expected is None:
        present = expected if got is None else got
        return 0.0 if present is None or not present.any() else _FAR
    if got.shape != expected.shape or not torch.equal(got.isfinite(), expected.isfinite()):
        return _FAR
    if got.numel() == 0:
        return 0.0
    got, expected = (tensor.detach().double().nan_to_num() for tensor in (got, expected))
    return float((got - expected).abs().max() / expected.abs().max().clamp_min(1e-6))


def _own_functions(outputs: Dict[str, torch.Tensor]) -> str:
    """The names of the autograd.Functions of somebody's own that made these outputs."""
    names, seen, waiting = set(), set(), [y.grad_fn for y in outputs.values()]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [behind for behind, _ in node.next_functions]
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                names.add(type(node).__name__.removesuffix("Backward"))
    return ", ".join(sorted(names))


def _passed(call: Callable[[torch.Tensor], Any], images: torch.Tensor,
            training: bool) -> Tuple[Dict[str, torch.Tensor], Optional[torch.Tensor]]:
    """The outputs by their names, and the gradient of the images: training goes back from a sum in which every output has
    weights of its own."""
    x = images.clone().requires_grad_(training)
    torch.manual_seed(5)
    with torch.set_grad_enabled(training):
        answer = pytree.tree_flatten_with_path(call(x.clone()))[0]  # which may change its images
    outputs = {output_name(keys): y for keys, y in answer if isinstance(y, torch.Tensor)}
    if training:
        torch.autograd.backward([(y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=y.device).view(y.shape)).sum()
                                 for y in outputs.values() if y.is_floating_point() and y.requires_grad])
    return outputs, x.grad


def _compared(model: torch.nn.Module, description: Dict[str, Any], tensors: Dict[str, torch.Tensor],
              images: torch.Tensor) -> Dict[str, Any]:
    """How far the graphs are from the model at these images, or, by mode, why the model itself refuses them. Raises _Differs
    where it is more than rounding."""
    found: Dict[str, Any] = {"shape": list(images.shape)}
    for mode in MODES:
        training = mode == "train"
        own = copy.deepcopy(model) if training else copy.deepcopy(model).eval()
        copies = {entry["name"]: tensors[entry["name"]].clone().requires_grad_(training and entry.get("trained", False))
                  for entry in description["tensors"]}
        try:
            expected, of_images = _passed(own, images, training)
        except Exception as error:  # the model's own, of any type
            found[mode] = {"refused": first_line(error)}
            continue
        try:
            got, again = _passed(lambda x: run(description, mode, copies, x), images, training)  # noqa: B023
        except Exception as error:
            raise _Differs(f"the graph fails in mode {mode}: {first_line(error)}") from error
        for output in description[mode]["outputs"]:
            output.setdefault("shape", list(expected[output["name"]].shape) if output["name"] in expected else [])
        apart = {"outputs": {name: _apart(got.get(name), y) for name, y in expected.items()} or {"": _FAR}}
        if training:
            apart["gradients"] = {"the images": _apart(again, of_images),
                                  **{name: _apart(copies[name].grad, p.grad) for name, p in own.named_parameters()}}
            apart["statistics"] = {name: _apart(copies[name], b) for name, b in own.named_buffers() if not name.endswith(COUNTER)}
        found[mode] = {what: max(each.values(), default=0.0) for what, each in apart.items()}
        for what, each in apart.items():
            far = [name for name, difference in each.items() if difference > _BOUNDS.get(images.dtype, 1e-2)]
            if far:  # of gradients the last one in the model's order is nearest to what is at fault
                functions = _own_functions(expected)
                raise _Differs({
                    "outputs": f"its outputs differ from the model's by {found[mode]['outputs']:.2g} in mode {mode}",
                    "gradients": f"the gradient of {far[-1]} differs from the model's" + (functions and (
                        f": torch.export loses the backward of an autograd.Function, here of {functions} behind it; write it with "
                        "operators of PyTorch (a straight-through step is x + (f(x) - x).detach(), checkpoint has "
                        "use_reentrant=False)")),
                    "statistics": f"{far[0]} after a step differs from the model's; checkpointing updates running statistics "
                                  "twice: export without it (bnlab can recompute)"}[what])
        if not training:
            continue
        for entry in description["tensors"]:  # what the outputs do not depend on is not trained
            if entry.get("trained") and own.get_parameter(entry["name"]).grad is None:
                entry["trained"] = False
        of_sites = [f"{site['name']}.{which}" for site in description["sites"] for which in ("running_mean", "running_var")]
        for name in apart["statistics"]:
            if name not in of_sites and not torch.equal(copies[name], tensors[name]):
                raise ExportError(f"{name} is changed by forward(), and every GPU would hold another one; leave the update out")
    return found


def verify(model: torch.nn.Module, description: Dict[str, Any], tensors: Dict[str, torch.Tensor], example: torch.Tensor,
           free: bool) -> None:
    """Compares at the example and at one image, where the graphs have to be right, and at two more sizes. These say which
    others are allowed: all of them, those that differ from the example's by multiples of 32, or none."""
    verified = description["verified"] = []
    for images, where in ((example, ""), (example[:1], " at one image. Something in it branches on the size of the batch, or takes "
                                                       "it as a number of Python, as int(x.shape[0]) does; leave it a size")):
        try:
            verified.append(_compared(model, description, tensors, images))
        except _Differs as why:
            raise ExportError(f"the graph is not the model: {why}{where}") from why
    for mode in MODES:
        if "refused" in verified[0][mode]:
            raise ExportError(f"the model refuses the example in mode {mode}: {verified[0][mode]['refused']}")
    _, channels, height, width = example.shape
    step, why = 0, "" if free else "tracing made its height and width constants"
    for reached, shape in ((32, (3, channels, height + 32, width + 96)), (1, (2, channels, height + 13, width - width // 8 - 1))):
        if why:
            break
        size = f"{shape[2]}x{shape[3]}"
        try:
            found = _compared(model, description, tensors, example.new_empty(shape).normal_())
            if "refused" in found["train"]:
                why = f"the model refuses {size}: {found['train']['refused']}"
            else:
                verified.append(found)
                step = reached
        except _Differs as differs:
            why = f"at {size} {differs}"
    description.update(size_step=step, fixed_size=why)
