"""A PyTorch model as a `model` of bnlab: its graphs of training and evaluation, and its weights.

    bnlab.export(model, torch.rand(2, 3, 96, 96), "mine")
    python -m bnlab.export module:function --example 2,3,96,96 --folder mine

write mine/graph.json and mine/weights.safetensors, which `"model": {"name": "exported", "file": "mine"}` trains under
any strategy. What is written is run and compared with the model itself before it counts: outputs and gradients in
training, outputs in evaluation, at the example, at one image and at two other sizes.

graph.json numbers its values: the tensors of the weights file come first, then the images, then one value a node. Nodes
are operators of ATen with all their arguments in the order of their schema, or Python's arithmetic on sizes (py::add).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import json
import logging
import math
import operator
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import torch
from torch.utils import _pytree as pytree

from .exported_graph import COUNTER, MODES, NAME_OF, ExportError, bare, first_line, output_name, verify
from .weights import write_safetensors

VERSION = 1  # of graph.json
GRAPH, WEIGHTS = "graph.json", "weights.safetensors"


def _module_of(node: torch.fx.Node) -> str:
    """The path of the innermost module that the node was traced in; "" for the model itself."""
    paths = [entry[0] for entry in (node.meta.get("nn_module_stack") or {}).values()]
    return paths[-1] if paths and not paths[-1].startswith("_empty_nn_module") else ""


def _where(node: torch.fx.Node) -> str:
    return _module_of(node) or "the model"


def _traced(model: torch.nn.Module, example: torch.Tensor, fixed_size: bool) -> torch.export.ExportedProgram:
    for path, module in model.named_modules():
        if hasattr(module, "_orig_mod"):
            raise ExportError(f"{path or 'the model'} is compiled; export what was given to torch.compile: its _orig_mod")
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.momentum is None:
            raise ExportError(f"{path}: momentum None (a cumulative average) cannot be exported; give it a number and choose "
                              "momentum null in the strategy")
    free = {dimension: torch.export.Dim.AUTO for dimension in ((0,) if fixed_size else (0, 2, 3))}
    logging.disable(logging.WARNING)  # of inequalities between sizes that PyTorch could not solve, with their tracebacks
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # where it prints the whole graph of a model that it refuses
            return torch.export.export(model, (example,), dynamic_shapes=(free,), strict=False)
    except Exception as error:  # of many types, by what stands in the way
        cure = "a branch on the values of a tensor has to become torch.where" if "DataDependent" in type(error).__name__ else \
            "where the model asserts a size, fixed_size (--fixed-size) may help"
        raise ExportError(f"{_at_fault(model, error)}: torch.export refuses this: {type(error).__name__}: {first_line(error)}; "
                          + cure) from error
    finally:
        logging.disable(logging.NOTSET)


def _at_fault(model: torch.nn.Module, error: Exception) -> str:
    """The innermost module in which an error arose, with the line in its file."""
    paths, found = {id(module): path for path, module in model.named_modules()}, "the model"
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = paths.get(id(frame.f_locals.get("self")))
        if path is not None:
            found = f"{path or 'the model'} ({os.path.basename(frame.f_code.co_filename)}:{line})"
    return found


class _Tensors:
    """The tensors that both graphs read, numbered. One under several names stands once, under the first."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.entries: List[Dict[str, Any]] = []
        self.values: Dict[str, torch.Tensor] = {}
        self.numbers: Dict[str, int] = {}
        known: Dict[int, int] = {}
        for kind, tensors in (("parameter", model.named_parameters), ("buffer", model.named_buffers)):
            for name, tensor in tensors(remove_duplicate=False):  # those that no graph reads come along, too
                if id(tensor) in known:
                    self.entries[known[id(tensor)]].setdefault("aliases", []).append(name)
                else:
                    known[id(tensor)] = self.append(name, kind, tensor)
                self.numbers[name] = known[id(tensor)]

    def append(self, name: str, kind: str, tensor: torch.Tensor) -> int:
        self.entries.append({"name": name, "kind": kind, "dtype": bare(tensor.dtype), "shape": list(tensor.shape)})
        if kind == "parameter":
            self.entries[-1]["trained"] = tensor.requires_grad
        self.values[name] = tensor.detach().clone()
        return len(self.entries) - 1

    def inputs(self, program: torch.export.ExportedProgram, mode: str) -> Dict[str, Optional[int]]:
        """The numbers of a graph's inputs by their names there; None for the images. Constants are taken in."""
        inputs: Dict[str, Optional[int]] = {}
        for spec in program.graph_signature.input_specs:
            number = self.numbers.get(spec.target)
            if number is None and spec.target is not None:
                if not isinstance(program.constants.get(spec.target), torch.Tensor):
                    raise ExportError(f"{spec.target}: a {spec.kind.name.lower()} that is no tensor cannot be written")
                number = self.append(f"{mode}:{spec.target}", "constant", program.constants[spec.target])
            inputs[spec.arg.name] = number
        return inputs


class _Writer:
    """One program's nodes, flat: those of regions (no_grad, autocast) carry what holds in them."""

    def __init__(self, mode: str, tensors: List[Dict[str, Any]], sites: List[Dict[str, Any]], run_type: torch.dtype) -> None:
        self.mode, self.tensors, self.sites, self.run_type = mode, tensors, sites, run_type
        self.images = len(tensors)
        self.nodes: List[Dict[str, Any]] = []

    def write(self, program: torch.export.ExportedProgram, inputs: Dict[str, Optional[int]]) -> Dict[str, Any]:
        holes = [node for node in program.graph.nodes if node.op == "placeholder"]
        ids = {node: self.images if inputs[node.name] is None else inputs[node.name] for node in holes}
        batch, _channels, *sizes = next(node for node in holes if inputs[node.name] is None).meta["val"].shape
        self.free = all(isinstance(size, torch.SymInt) for size in sizes)
        if isinstance(batch, int):
            raise ExportError(f"tracing made the batch the constant {batch}; leave its size a size, and no number of Python")
        self.batch = batch.node.expr
        answer = pytree.tree_unflatten(self.walk(program.graph_module, ids, {}), program.call_spec.out_spec)
        named = pytree.tree_flatten_with_path(answer, is_leaf=lambda v: isinstance(v, dict) and set(v) == {"v"})[0]
        return {"nodes": self.nodes,
                "outputs": [{"name": output_name(keys), "value": value["v"]} for keys, value in named if isinstance(value, dict)]}

    def walk(self, owner: torch.fx.GraphModule, ids: Dict[Any, Any], state: Dict[str, Any]) -> List[Any]:
        for node in owner.graph.nodes:
            if node.op == "call_function":
                ids[node] = self.call(node, ids, state)
            elif node.op == "get_attr":  # the body of a region
                ids[node] = getattr(owner, node.target)
        return [self.encoded(value, ids) for value in owner.graph.output_node().args[0]]

    def call(self, node: torch.fx.Node, ids: Dict[Any, Any], state: Dict[str, Any]) -> Any:
        target, name = node.target, getattr(node.target, "__name__", str(node.target))
        if target is operator.getitem and isinstance(ids[node.args[0]], list):  # of a region
            return ids[node.args[0]][node.args[1]]["v"]
        if name == "wrap_with_set_grad_enabled":
            enabled, body, *given = node.args
            return self.region(ids[body], [ids[value] for value in given], {**state, "grad": enabled})
        if name == "wrap_with_autocast":
            device, dtype, enabled, _cache, body, *given = node.args
            autocast = [bare(dtype or torch.get_autocast_dtype(device)), enabled]
            return self.region(ids[body], [ids[value] for value in given], {**state, "autocast": autocast})
        if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
            return self.operator(node, ids, state)
        if target in NAME_OF:
            return self.add(node, "py::" + NAME_OF[target], [self.encoded(value, ids) for value in node.args], state)
        raise ExportError(f"{_where(node)}: {target} is no operator of ATen; put operators of PyTorch in its "
                          "place (torch.where for torch.cond)")

    def region(self, body: torch.fx.GraphModule, given: List[Any], state: Dict[str, Any]) -> List[Any]:
        return self.walk(body, dict(zip((n for n in body.graph.nodes if n.op == "placeholder"), given)), state)

    def operator(self, node: torch.fx.Node, ids: Dict[Any, Any], state: Dict[str, Any]) -> Any:
        schema = node.target._schema
        given = {**dict(zip((a.name for a in schema.arguments), node.args)), **node.kwargs}
        args = {a.name: self.encoded(given.get(a.name, a.default_value), ids) for a in schema.arguments}
        if schema.name == "aten::_assert_tensor_metadata":  # bnlab has checks of its own
            return None
        if schema.name == "aten::add_" and args["self"]["v"] < self.images:
            counter = args["self"]["v"]
            if self.tensors[counter]["name"].endswith(COUNTER):  # of batches: batch norms need none
                return counter
        op = schema.name + (schema.overload_name and "." + schema.overload_name)
        return self.add(node, op, list(args.values()), {**state, **self.marks(node, schema.name, args)})

    def add(self, node: torch.fx.Node, op: str, args: List[Any], more: Dict[str, Any]) -> int:
        self.nodes.append({"op": op, "args": args, "module": _module_of(node), **more})
        return self.images + len(self.nodes)

    def marks(self, node: torch.fx.Node, name: str, args: Dict[str, Any]) -> Dict[str, Any]:
        """What bnlab must know of a node beside its arguments: which site it is; that it adds two tensors of one shape."""
        if name == "aten::batch_norm":
            site = self.site(node, args)
            return {} if site is None else {"site": site}
        values = [getattr(operand, "meta", {}).get("val") for operand in node.args[:2]]
        if name in ("aten::add", "aten::add_") and args["alpha"] == 1 and all(isinstance(v, torch.Tensor) for v in values):
            return {"like": True} if values[0].shape == values[1].shape else {}
        silent = args.get("train") is False or args.get("p", args.get("dropout_p")) == 0
        if torch.Tag.nondeterministic_seeded in node.target.tags and not silent:
            shape = pytree.tree_leaves(node.meta["val"])[0].shape
            if [self.follows(size) for size in shape] != [True] + [False] * (len(shape) - 1) or shape[0].node.expr != self.batch:
                raise ExportError(f"{_where(node)}: {name} does not draw for each image by itself, so that no placement would see "
                                  "the numbers of another; draw a tensor whose first dimension is the batch")
        return {}

    def follows(self, size: Any) -> bool:
        return isinstance(size, torch.SymInt) and self.batch in size.node.expr.free_symbols

    def site(self, node: torch.fx.Node, args: Dict[str, Any]) -> Optional[int]:
        """The number of the site that a batch norm is; None for one that training does not normalise by the batch."""
        if args["running_mean"] is None and not self.follows(node.args[0].meta["val"].shape[0]):
            return None  # it standardises a weight
        held = {key: args[key]["v"] for key in ("running_mean", "running_var", "weight", "bias") if args[key] is not None}
        entries = [self.tensors[value] for value in held.values() if value < self.images]
        name = entries[0]["name"].rpartition(".")[0] if entries else ""
        known = next((number for number, site in enumerate(self.sites) if site["name"] == name), None)
        if known is not None or self.mode != "train" or not args["training"]:
            return known
        numbers = {key: args[key] for key in ("eps", "momentum")}
        if not all(isinstance(number, (int, float)) and 0 <= number <= 1 for number in numbers.values()):
            raise ExportError(f"{_where(node)}: expected an eps and a momentum from 0 to 1, got {numbers}")
        trained = {entry.get("trained", False) for entry in entries[2:]}
        its_own = [entry["name"] for entry in entries] == [f"{name}.{key}" for key in held]
        if args["running_mean"] is None or not its_own or len(held) == 3 or len(trained) > 1:
            raise ExportError(f"{_where(node)}: a batch norm must hold running statistics (track_running_stats=True), and a weight "
                              "and a bias, both trained or both frozen, or neither, which no other norm shares")
        self.sites.append({"name": name, "channels": entries[0]["shape"][0], **numbers, "affine": len(held) == 4,
                           "trained": trained == {True}})
        return len(self.sites) - 1

    def encoded(self, value: Any, ids: Dict[Any, Any]) -> Any:
        """Numbers, texts, null and lists as they are; everything else as an object of one key."""
        if isinstance(value, torch.fx.Node):
            return {"v": ids[value]}
        if isinstance(value, (list, tuple)):
            return [self.encoded(each, ids) for each in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": "run" if value == self.run_type else bare(value)}
        if isinstance(value, torch.device):
            return {"device": "run"}
        if isinstance(value, torch.memory_format):
            return {"memory_format": bare(value)}
        if isinstance(value, torch.layout):
            return None  # the default
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise ExportError(f"an argument of type {type(value).__name__} cannot be written: {value}")


@torch.random.fork_rng(devices=[])  # the caller's random numbers go on as if there had been no export
def export(model: "Union[torch.nn.Module, Callable[[], torch.nn.Module]]", example: "Union[torch.Tensor, Sequence[int]]",
           folder: "Union[str, os.PathLike[str]]", seeds: int = 0, fixed_size: bool = False) -> Dict[str, Any]:
    """Writes the model, or what a function without arguments makes, into a folder and returns what graph.json says.

    example: [2 or more, 3, height, width], of the type of the weights; or this shape. seeds: 0, and every run starts from the
    weights that the model has; or so many initialisations, each made by the function after torch.manual_seed(0, 1, ...), for
    runs of these seeds. fixed_size: height and width are those of the example. Raises ExportError where the graph is not the
    model."""
    if seeds and isinstance(model, torch.nn.Module):
        raise ExportError("several seeds need a function that makes the model, in the place of the model")
    torch.manual_seed(0)
    made = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model()
    run_type = next((parameter.dtype for parameter in made.parameters()), torch.float32)
    if not isinstance(example, torch.Tensor):
        example = torch.randn(list(example), dtype=run_type)
    if example.dim() != 4 or example.shape[0] < 2:
        raise ExportError(f"expected an example of [2, 3, height, width], two images or more, since with one the batch would be a "
                          f"constant; got {list(example.shape)}")
    if example.dtype != run_type:
        raise ExportError(f"expected an example of the weights' type, {bare(run_type)}, got {bare(example.dtype)}")
    if not made.training:  # of a model in training some norms may be frozen
        made.train()
    programs = {mode: _traced(made if mode == "train" else copy.deepcopy(made).eval(), example, fixed_size) for mode in MODES}
    tensors = _Tensors(made)
    inputs = {mode: tensors.inputs(program, mode) for mode, program in programs.items()}
    description: Dict[str, Any] = {"version": VERSION, "torch": torch.__version__, "dtype": bare(run_type),
                                   "example": list(example.shape), "sites": [], "tensors": tensors.entries}
    for mode, program in programs.items():
        writer = _Writer(mode, tensors.entries, description["sites"], run_type)
        description[mode] = writer.write(program, inputs[mode])
    verify(made, description, tensors.values, example, writer.free)
    files = {"weights_seed0.safetensors" if seeds else WEIGHTS: tensors.values}
    for seed in range(1, seeds):
        torch.manual_seed(seed)
        files[f"weights_seed{seed}.safetensors"] = {**tensors.values, **_Tensors(model()).values}  # type: ignore[operator]
    description.update(weights=list(files), initialisations=bool(seeds))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    lacking = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)  # of bnlab's files; graph.json has the types
    for name, values in files.items():
        write_safetensors(target / name, {n: v.to(torch.int64) if v.dtype in lacking else v for n, v in values.items()})
    (target / GRAPH).write_text(json.dumps(description, separators=(",", ":")) + "\n")
    return description


def summary(description: Dict[str, Any]) -> str:
    """What was exported and verified, one fact a line."""
    outputs = ", ".join(f"{output['name']} {output['shape']}".strip() for output in description["train"]["outputs"])
    lines = [f"norm sites: {len(description['sites'])}; outputs in training: {outputs}"]
    for found in description["verified"]:
        apart = found["train"].items()
        lines.append(f"{found['shape']}: " + (f"PyTorch refuses to train: {found['train']['refused']}" if "refused" in found["train"]
                     else "differs from PyTorch in " + ", ".join(f"{what} by {difference:.1g}" for what, difference in apart)))
    sizes = {0: "this size alone", 32: "sizes that differ from these by multiples of 32", 1: "every size"}
    why = description["fixed_size"] and f", because {description['fixed_size']}"
    return "\n".join([*lines, f"bnlab takes {sizes[description['size_step']]}{why}"])


def main(words: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bnlab.export", description="Exports a PyTorch model for bnlab.")
    parser.add_argument("model", help="module:function, a function without arguments that makes the model")
    parser.add_argument("--example", required=True, help="a batch of two or more: 2,3,96,96")
    parser.add_argument("--folder", help="where graph.json and the weights go; by default one of the function's name")
    parser.add_argument("--seeds", type=int, default=0, help="so many initialisations, for runs of these seeds")
    parser.add_argument("--fixed-size", action="store_true", help="height and width are those of the example")
    given = parser.parse_args(words)
    module, _, function = given.model.partition(":")
    folder = given.folder or function
    try:
        shape = [int(n) for n in given.example.split(",")]
        make = getattr(importlib.import_module(module), function)
    except (ValueError, ImportError, AttributeError) as error:
        parser.error(f"{error}; expected module:function of a module that can be imported here, and --example 2,3,96,96")
    try:
        print(summary(export(make, shape, folder, given.seeds, given.fixed_size)))
    except ExportError as error:
        print(f"{given.model}: {error}", file=sys.stderr)
        return 1
    print(f'{folder}: "model": {{"name": "exported", "file": "{folder}"}}')
    return 0


class _Callable(types.ModuleType):
    """So that bnlab.export is a function, which this module is named after."""

    def __call__(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
if __name__ == "__main__":
    sys.exit(main())
