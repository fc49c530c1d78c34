"""A PyTorch model as a `model` of bnlab: its graphs of training and evaluation, and its weights.

    bnlab.export(model, torch.rand(2, 3, 96, 96), "mine")
    python -m bnlab.export module:function --example 2,3,96,96 --folder mine

write mine/graph.json and mine/weights.safetensors, which `"model": {"name": "exported", "file": "mine"}` trains under
any strategy. What is written is read back and compared with the model itself before it counts: outputs and gradients in
training, outputs in evaluation, at the example, at one image, and at another size.

graph.json numbers its values: the tensors of the weights file come first, then the images, then one value a node. Nodes
are operators of ATen with all their arguments in the order of their schema, or Python's arithmetic on sizes (py::add).
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import math
import operator
import os
import sys
import types
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch.utils import _pytree as pytree

from .weights import read_safetensors, write_safetensors

VERSION = 1  # of graph.json
GRAPH, WEIGHTS = "graph.json", "weights.safetensors"
COUNTER = ".num_batches_tracked"
MODES = ("train", "evaluate")

# Python's functions on sizes that stand among the operators.
_ON_SIZES = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
             "mod": operator.mod, "truediv": operator.truediv, "neg": operator.neg, "pow": operator.pow,
             "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
             "ge": operator.ge, "and": operator.and_, "or": operator.or_, "getitem": operator.getitem,
             "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "round": round, "max": torch.sym_max,
             "min": torch.sym_min, "int": torch.sym_int, "float": torch.sym_float, "not": torch.sym_not}
_NAME_OF = {function: name for name, function in _ON_SIZES.items()}
_REGIONS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
# What only asserts, and bnlab's own checks take over.
_ASSERTIONS = ("aten::_assert_tensor_metadata",)
# Differences that rounding leaves between the graph and the model, relative to the largest number.
_BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-4}
_FAR = 1e30  # a difference where one of two tensors is missing, has another shape or is not finite


class ExportError(ValueError):
    """Says which module stands in the way, and what to do."""


def _bare(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _module_of(node: torch.fx.Node) -> str:
    """The path of the innermost module that the node was traced in; "" for the model itself."""
    paths = [entry[0] for entry in (node.meta.get("nn_module_stack") or {}).values()]
    return paths[-1] if paths and not paths[-1].startswith("_empty_nn_module") else ""


def _named(path: str) -> str:
    return path or "the model itself"


def _aliases(model: torch.nn.Module) -> Dict[str, List[str]]:
    """All names of every parameter and buffer by each of them; the first one is its name in the export."""
    names: Dict[int, List[str]] = {}
    for tensors in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in tensors:
            names.setdefault(id(tensor), []).append(name)
    return {name: group for group in names.values() for name in group}


def _traced(model: torch.nn.Module, example: torch.Tensor, fixed_size: bool) -> torch.export.ExportedProgram:
    auto = torch.export.Dim.AUTO
    free = {0: auto} if fixed_size else {0: auto, **{d: auto for d in range(2, example.dim())}}
    for path, module in model.named_modules():
        if hasattr(module, "_orig_mod"):
            raise ExportError(f"{_named(path)} is compiled; export the module that was given to torch.compile: its _orig_mod")
        if getattr(module, "momentum", 0) is None and isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            raise ExportError(f"{path}: momentum None (a cumulative average) cannot be exported; give it a number and choose "
                              "momentum null in the strategy")
    try:
        program = torch.export.export(model, (example,), dynamic_shapes=(free,), strict=False)
    except Exception as error:  # of many types, by what stands in the way
        lines = [line for line in str(error).splitlines() if line.strip()]
        asserted = "" if fixed_size else "; where the model asserts a size, try fixed_size (--fixed-size)"
        raise ExportError(f"torch.export refuses the model: {type(error).__name__}: {' '.join(lines[:3])[:600]}{asserted}. "
                          "A branch on the values of a tensor has to become torch.where, and .item() has to go") from error
    return program


def _images(program: torch.export.ExportedProgram) -> torch.fx.Node:
    names = set(program.graph_signature.user_inputs)
    return next(n for n in program.graph.nodes if n.op == "placeholder" and n.name in names)


class _Writer:
    """One program's nodes, flat: those of regions (no_grad, autocast) carry what holds in them."""

    def __init__(self, program: torch.export.ExportedProgram, mode: str, tensors: "_Tensors", run_type: torch.dtype) -> None:
        self.nodes: List[Dict[str, Any]] = []
        self.run_type, self.tensors = run_type, tensors
        batch = _images(program).meta["val"].shape[0]
        if isinstance(batch, int):
            raise ExportError(f"tracing made the batch the constant {batch}; leave its size a size, and no number of Python")
        self.batch = batch.node.expr
        ids = {}
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        self.first = len(tensors.entries)  # the images; set again when both programs' tensors are known
        for node in program.graph.nodes:
            if node.op == "placeholder":
                spec = specs[node.name]
                ids[node] = "images" if spec.target is None else tensors.number(spec.target, spec.kind.name, mode)
        self.ids, self.program = ids, program

    def write(self) -> Dict[str, Any]:
        """Called once the tensors of both programs are numbered."""
        self.first = len(self.tensors.entries)
        ids = {node: self.first if value == "images" else value for node, value in self.ids.items()}
        self.depends = {self.first}  # values that follow from the images
        values = self.walk(self.program.graph, self.program.graph_module, ids, {})
        return {"nodes": self.nodes, "outputs": self.outputs(values)}

    def outputs(self, values: Sequence[Any]) -> List[Dict[str, Any]]:
        tree = pytree.tree_unflatten(list(values), self.program.call_spec.out_spec)
        named = pytree.tree_flatten_with_path(tree, is_leaf=lambda v: isinstance(v, dict) and set(v) == {"v"})[0]
        return [{"name": ".".join(_key(k) for k in keys), "value": value["v"]} for keys, value in named
                if isinstance(value, dict)]  # their shapes at the example come with the comparison

    def walk(self, graph: torch.fx.Graph, owner: torch.nn.Module, ids: Dict[Any, Any], state: Dict[str, Any]) -> List[Any]:
        for node in graph.nodes:
            if node.op == "get_attr" and isinstance(getattr(owner, node.target, None), torch.fx.GraphModule):
                ids[node] = getattr(owner, node.target)
            elif node.op == "output":
                return [self.encoded(value, ids, "") for value in node.args[0]]
            elif node.op == "call_function":
                ids[node] = self.call(node, ids, state)
            elif node.op != "placeholder":
                raise ExportError(f"{_named(_module_of(node))}: a {node.op} of {node.target} cannot be written")
        raise ExportError("a graph without outputs")

    def call(self, node: torch.fx.Node, ids: Dict[Any, Any], state: Dict[str, Any]) -> Any:
        target, where = node.target, _named(_module_of(node))
        name = getattr(target, "__name__", str(target))
        if target is operator.getitem and isinstance(ids[node.args[0]], list):  # of a region
            return ids[node.args[0]][node.args[1]]["v"]
        if name in _REGIONS:
            return self.region(node, name, ids, state)
        if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
            return self.operator(node, ids, state)
        if target in _NAME_OF:
            return self.add(node, "py::" + _NAME_OF[target], [self.encoded(a, ids, where) for a in node.args], state)
        raise ExportError(f"{where}: {target} is no operator of ATen; put operators of PyTorch in its place"
                          + (", and torch.where for torch.cond" if name == "cond" else ""))

    def region(self, node: torch.fx.Node, name: str, ids: Dict[Any, Any], state: Dict[str, Any]) -> List[Any]:
        if name == "wrap_with_autocast":
            device, dtype, enabled, _cache, body, *given = node.args
            state = {**state, "autocast": [_bare(dtype or torch.get_autocast_dtype(device)), enabled]}
        else:
            enabled, body, *given = node.args
            state = {**state, "grad": enabled}
        graph = ids[body].graph
        holes = [n for n in graph.nodes if n.op == "placeholder"]
        return self.walk(graph, ids[body], dict(zip(holes, (ids[g] for g in given))), state)

    def operator(self, node: torch.fx.Node, ids: Dict[Any, Any], state: Dict[str, Any]) -> Any:
        schema, where, args = node.target._schema, _named(_module_of(node)), []
        if schema.name in _ASSERTIONS:
            return None
        for place, argument in enumerate(schema.arguments):
            if not argument.kwarg_only and place < len(node.args):
                value = node.args[place]
            else:
                value = node.kwargs.get(argument.name, argument.default_value)
            args.append(self.encoded(value, ids, where))
        if self.is_counter(schema, args):
            return args[0]["v"]
        op = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        value = self.add(node, op, args, state)
        self.mark(node, schema, args, self.nodes[-1])
        return value

    def is_counter(self, schema: Any, args: List[Any]) -> bool:
        """Whether a node does nothing but count a batch, which bnlab does itself. The count is noted."""
        if schema.name != "aten::add_" or args[0]["v"] >= self.first:
            return False
        entry = self.tensors.entries[args[0]["v"]]
        if entry["name"].endswith(COUNTER):
            entry["counts"] = entry.get("counts", 0) + 1
        return "counts" in entry

    def add(self, node: torch.fx.Node, op: str, args: List[Any], state: Dict[str, Any]) -> int:
        self.nodes.append({"op": op, "args": args, "module": _module_of(node), **state})
        value = self.first + len(self.nodes)
        if any(v in self.depends for v in _values(args)):
            self.depends.add(value)
        return value

    def mark(self, node: torch.fx.Node, schema: Any, args: List[Any], entry: Dict[str, Any]) -> None:
        """What the program must know of a node beside its arguments: whether it draws, and for how many rows an image;
        whether it is a batch norm of the images, or an addition of tensors of one shape."""
        given = {argument.name: value for argument, value in zip(schema.arguments, args)}
        silent = given.get("train") is False or given.get("p", given.get("dropout_p")) == 0
        if torch.Tag.nondeterministic_seeded in node.target.tags and not silent:
            drawn = node.meta["val"][0] if isinstance(node.meta["val"], (tuple, list)) else node.meta["val"]
            size = drawn.shape[0] if drawn.dim() > 0 else 0
            rows = (size.node.expr if isinstance(size, torch.SymInt) else 0) / self.batch
            elsewhere = any(self.batch in d.node.expr.free_symbols for d in drawn.shape if isinstance(d, torch.SymInt))
            entry["random"] = int(rows) if rows.is_Integer and rows > 0 else -1 if elsewhere else 0
        if schema.name == "aten::batch_norm" and given["input"]["v"] in self.depends:
            entry["normalises"] = True
        if schema.name in ("aten::add", "aten::add_") and isinstance(node.args[1], torch.fx.Node):
            first, second = (getattr(operand.meta.get("val"), "shape", None) for operand in node.args[:2])
            if first == second and first is not None:
                entry["like"] = True  # a norm before it may take the other operand as its residual
        if not any(v in self.depends for v in _values(args)):
            return
        for argument, value in zip(schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, dict):
                if value["v"] < self.first:
                    name = self.tensors.entries[value["v"]]["name"]
                    raise ExportError(f"{_named(entry['module'])}: {name} is updated from the images, and every GPU would hold "
                                      "another one; leave the update out of forward()")
                self.depends.add(value["v"])

    def encoded(self, value: Any, ids: Dict[Any, Any], where: str) -> Any:
        """Numbers, texts, null and lists as they are; everything else as an object of one key."""
        if isinstance(value, torch.fx.Node):
            return {"v": ids[value]}
        if isinstance(value, (list, tuple)):
            return [self.encoded(v, ids, where) for v in value]
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": "run" if value == self.run_type else _bare(value)}
        if isinstance(value, torch.device):
            return {"device": "run"}
        if isinstance(value, torch.memory_format):
            return {"memory_format": _bare(value)}
        if value is torch.strided:
            return {"layout": "strided"}
        raise ExportError(f"{where}: an argument {value!r} cannot be written")


def _key(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _values(args: Any) -> List[int]:
    if isinstance(args, dict):
        return [args["v"]] if "v" in args else []
    return [v for arg in args for v in _values(arg)] if isinstance(args, list) else []


class _Tensors:
    """The tensors that both graphs read, numbered; one under several names stands once."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.aliases = _aliases(model)
        self.own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
        self.entries: List[Dict[str, Any]] = []
        self.values: Dict[str, torch.Tensor] = {}
        self.numbers: Dict[str, int] = {}
        for name, tensor in self.own.items():  # those that no graph reads come along, too
            if self.aliases[name][0] == name:
                self.append(name, tensor, "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer")

    def append(self, name: str, tensor: torch.Tensor, kind: str) -> int:
        entry = {"name": name, "kind": kind, "dtype": _bare(tensor.dtype), "shape": list(tensor.shape)}
        if kind == "parameter":
            entry["trained"] = tensor.requires_grad
        if len(self.aliases.get(name, [])) > 1:
            entry["aliases"] = self.aliases[name][1:]
        self.numbers[name] = len(self.entries)
        self.entries.append(entry)
        self.values[name] = tensor.detach().clone()
        return self.numbers[name]

    def number(self, target: str, kind: str, mode: str) -> int:
        if target in self.aliases:
            return self.numbers[self.aliases[target][0]]
        return self.numbers[f"{mode}:{target}"] if f"{mode}:{target}" in self.numbers else self.lifted(target, kind, mode)

    def lifted(self, target: str, kind: str, mode: str) -> int:
        if kind != "CONSTANT_TENSOR" or not isinstance(self.constants.get(target), torch.Tensor):
            raise ExportError(f"{target}: a {kind.lower()} that is no tensor cannot be written")
        return self.append(f"{mode}:{target}", self.constants[target], "constant")

    constants: Dict[str, Any] = {}  # of the program whose inputs are being numbered


class Graph:
    """One of the two graphs of a graph.json, run by PyTorch: what was written, held to the model that it was made of."""

    def __init__(self, description: Dict[str, Any], mode: str, tensors: Dict[str, torch.Tensor]) -> None:
        self.description, self.graph = description, description[mode]
        self.run_type = getattr(torch, description["dtype"])
        self.tensors = [tensors[entry["name"]] for entry in description["tensors"]]

    def __call__(self, images: torch.Tensor) -> Dict[str, torch.Tensor]:
        values: List[Any] = [*self.tensors, images]
        for node in self.graph["nodes"]:
            dtype, enabled = node.get("autocast", ["bfloat16", False])
            with torch.set_grad_enabled(node.get("grad", True) and torch.is_grad_enabled()), \
                    torch.autocast(images.device.type, getattr(torch, dtype), enabled):
                values.append(self.called(node["op"], [self.decoded(a, values) for a in node["args"]]))
        return {output["name"]: values[output["value"]] for output in self.graph["outputs"]}

    def called(self, op: str, args: List[Any]) -> Any:
        space, name = op.split("::")
        if space == "py":
            return _ON_SIZES[name](*args)
        base, _, overload = name.partition(".")
        call = getattr(getattr(torch.ops.aten, base), overload or "default")
        by_name = {a.name: v for a, v in zip(call._schema.arguments, args) if a.kwarg_only}
        return call(*args[:len(args) - len(by_name)], **by_name)

    def decoded(self, value: Any, values: List[Any]) -> Any:
        if isinstance(value, list):
            return [self.decoded(v, values) for v in value]
        if not isinstance(value, dict):
            return value
        (kind, what), = value.items()
        if kind == "v":
            return values[what]
        if kind == "float":
            return float(what)
        if kind == "device":
            return values[len(self.tensors)].device
        return self.run_type if what == "run" else getattr(torch, what)


def _flat(outputs: Any) -> Dict[str, torch.Tensor]:
    named = pytree.tree_flatten_with_path(outputs)[0]
    return {".".join(_key(k) for k in keys): value for keys, value in named if isinstance(value, torch.Tensor)}


def _apart(got: Optional[torch.Tensor], expected: Optional[torch.Tensor]) -> float:
    """The largest difference, relative to the largest expected number, or _FAR."""
    if got is None or expected is None:
        present = expected if got is None else got
        return 0.0 if present is None or not present.any() else _FAR
    if got.shape != expected.shape:
        return _FAR
    if got.numel() == 0:
        return 0.0
    got, expected = got.detach().double(), expected.detach().double()
    if not torch.equal(got.isfinite(), expected.isfinite()):
        return _FAR
    apart = (got - expected).nan_to_num().abs().max() / expected.nan_to_num().abs().max().clamp_min(1e-6)
    return float(apart)


def _scalar(outputs: Dict[str, torch.Tensor]) -> torch.Tensor:
    """A sum in which every output has a weight of its own."""
    return sum((y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=y.device).reshape(y.shape)).sum()
               for y in outputs.values() if y.is_floating_point() and y.requires_grad)


class _OwnFunctions:
    """The modules of a model in which an autograd.Function of somebody's own computed: its backward is lost in a graph."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.seen, self.found = set(), []
        for path, module in model.named_modules():  # innermost hooks run first
            module.register_forward_hook(lambda _module, _inputs, outputs, path=path: self.look(path, outputs))

    def look(self, path: str, outputs: Any) -> None:
        waiting = [y.grad_fn for y in pytree.tree_leaves(outputs) if isinstance(y, torch.Tensor)]
        while waiting:
            node = waiting.pop()
            if node is None or node in self.seen:
                continue
            self.seen.add(node)
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                self.found.append(f"{_named(path)} ({type(node).__name__.removesuffix('Backward')})")
            waiting += [n for n, _ in node.next_functions]


def _compared(model: torch.nn.Module, description: Dict[str, Any], tensors: Dict[str, torch.Tensor],
              images: torch.Tensor) -> Dict[str, Any]:
    """How far the graphs are from the model at these images; {"refused": why} where the model itself refuses them."""
    found: Dict[str, Any] = {"shape": list(images.shape)}
    for mode in MODES:
        own = copy.deepcopy(model)
        if mode == "evaluate":
            own.eval()
        functions = _OwnFunctions(own)
        x, again = (images.clone().requires_grad_(mode == "train") for _ in range(2))
        try:
            torch.manual_seed(5)
            with torch.set_grad_enabled(mode == "train"):
                expected = _flat(own(x.clone()))  # which it may change
        except Exception as error:  # the model's own refusal, of any type
            found[mode] = {"refused": str(error).splitlines()[0][:200]}
            continue
        for output in description[mode]["outputs"]:
            output.setdefault("shape", list(expected[output["name"]].shape) if output["name"] in expected else [])
        copies = {name: t.clone() for name, t in tensors.items()}
        for entry in description["tensors"]:
            copies[entry["name"]].requires_grad_(entry.get("trained", False) and mode == "train")
        try:
            torch.manual_seed(5)
            with torch.set_grad_enabled(mode == "train"):
                got = Graph(description, mode, copies)(again.clone())
        except Exception as error:
            found[mode] = {"fails": str(error).splitlines()[0][:200]}
            continue
        differences = found[mode] = {"outputs": max((_apart(got.get(n), y) for n, y in expected.items()), default=_FAR)}
        if mode == "evaluate" or differences["outputs"] == _FAR:
            continue
        _scalar(expected).backward()
        loss = _scalar(got)
        if isinstance(loss, torch.Tensor):
            loss.backward()
        # The last one in the model's order that differs is nearest to what is at fault.
        gradients = {n: _apart(copies[n].grad, p.grad) for n, p in own.named_parameters() if n in copies}
        gradients["the images"] = _apart(again.grad, x.grad)
        differences["gradients"] = max(gradients.values())
        bound = _BOUNDS.get(images.dtype, 1e-2)
        far = [n for n, apart in gradients.items() if apart > bound]
        if far:
            differences["at"] = ([n for n in far if n != "the images"] or far)[-1]
            differences["own_functions"] = functions.found
        buffers = [(n, b) for n, b in own.named_buffers() if n in copies and not n.endswith(COUNTER)]
        differences["statistics"] = max((_apart(copies[n], b) for n, b in buffers), default=0.0)
    return found


def _fault(found: Dict[str, Any], dtype: torch.dtype) -> str:
    """What is wrong with a comparison; "" where the graphs are the model, or the model itself refuses."""
    bound = _BOUNDS.get(dtype, 1e-2)
    for mode in MODES:
        if "fails" in found[mode]:
            return f"the graph fails in mode {mode}: {found[mode]['fails']}"
        if found[mode].get("outputs", 0) > bound:
            return f"its outputs differ from the model's by {found[mode]['outputs']:.2g} in mode {mode}"
        if found[mode].get("gradients", 0) > bound:
            own = found[mode]["own_functions"]
            return f"the gradient of {found[mode]['at']} differs from the model's" + (
                f": torch.export loses the backward of an autograd.Function, here of {', '.join(own)}; write it with operators "
                "of PyTorch (a straight-through step is x + (f(x) - x).detach(), checkpoint has use_reentrant=False)" if own
                else "")
    return ""


_COMPARED = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_COMBINED = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Div: "truediv",
             ast.Pow: "pow", ast.USub: "neg", ast.Not: "not"}


_OF_ONE = ("neg", "not", "trunc", "floor", "ceil", "round", "int", "float")


def _postfix(node: ast.expr) -> List[Any]:
    """A guard of torch.export with each function behind what it takes: [{"size": 2}, 2, "floordiv", 8, "eq"]. ValueError or
    KeyError where it is of another kind."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return [node.value]
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return [*_postfix(node.left), *_postfix(node.comparators[0]), _COMPARED[type(node.ops[0])]]
    if isinstance(node, ast.BinOp):
        return [*_postfix(node.left), *_postfix(node.right), _COMBINED[type(node.op)]]
    if isinstance(node, ast.UnaryOp):
        return [*_postfix(node.operand), _COMBINED[type(node.op)]]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".size()"):
        return [{"size": ast.literal_eval(node.slice)}]
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).split(".")[-1].removeprefix("sym_").lower()
        first, *others = map(_postfix, node.args)
        if name in _OF_ONE or (name in ("max", "min") and others):
            return first + ([name] if name in _OF_ONE else [part for other in others for part in (*other, name)])
    raise ValueError(ast.dump(node))


def _holds(guard: List[Any], shape: Sequence[int]) -> bool:
    stack: List[Any] = []
    for part in guard:
        if isinstance(part, str):
            taken = [stack.pop() for _ in range(1 if part in _OF_ONE else 2)]
            stack.append(_ON_SIZES[part](*reversed(taken)))
        else:
            stack.append(shape[part["size"]] if isinstance(part, dict) else part)
    return bool(stack.pop())


def _guards(programs: Sequence[torch.export.ExportedProgram], verified: List[List[int]]) -> List[Any]:
    """The equalities between sizes that tracing went by, but for those that a verified size breaks: they were about strides.
    PyTorch 2.8 tells none."""
    guards = []
    for code in dict.fromkeys(code for program in programs for code in getattr(program, "_guards_code", [])):
        try:
            guard = _postfix(ast.parse(code, mode="eval").body)
        except (KeyError, ValueError, SyntaxError):
            continue
        if guard[-1] == "eq" and all(_holds(guard, shape) for shape in verified):
            guards.append(guard)
    return guards


def _sites(description: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The batch norms of the images that training normalises by the batch, each once; their nodes are told their number."""
    sites: List[Dict[str, Any]] = []
    tensors = description["tensors"]
    for mode in MODES:
        for node in description[mode]["nodes"]:
            if not node.pop("normalises", False):
                continue
            _input, weight, bias, mean, variance, training, momentum, eps, _cudnn = node["args"]
            if mode == "train" and training and None in (mean, variance):
                raise ExportError(f"{node['module']}: a batch norm without running statistics; give it track_running_stats=True")
            if None in (mean, variance):
                continue
            if any(t is not None and t["v"] >= len(tensors) for t in (weight, bias, mean, variance)):
                raise ExportError(f"{node['module']}: a batch norm whose weight or statistics are computed; it has to hold them")
            name = tensors[mean["v"]]["name"].rpartition(".")[0]
            known = next((i for i, site in enumerate(sites) if site["name"] == name), None)
            if known is None and mode == "train" and training:
                known = len(sites)
                parameters = [tensors[p["v"]] for p in (weight, bias) if p is not None]
                if len({p["trained"] for p in parameters}) > 1 or len(parameters) == 1:
                    raise ExportError(f"{name}: weight and bias must both be there, and both be trained or frozen")
                sites.append({"name": name, "channels": tensors[mean["v"]]["shape"][0], "eps": eps, "momentum": momentum,
                              "affine": bool(parameters), "trained": all(p["trained"] for p in parameters)})
            if known is not None:
                node["site"] = known
    return sites


def _described(model: torch.nn.Module, example: torch.Tensor, fixed_size: bool) -> Tuple[Dict[str, Any], Dict[str, torch.Tensor]]:
    if not isinstance(example, torch.Tensor) or example.dim() < 3 or example.shape[0] < 2:
        raise ExportError("expected an example of two images or more, [2, 3, height, width]: with one image the batch is a constant")
    weights = [p.dtype for p in model.parameters()]
    run_type = weights[0] if weights else example.dtype
    if example.dtype != run_type:
        raise ExportError(f"expected an example of the weights' type, {_bare(run_type)}, got {_bare(example.dtype)}")
    trained = copy.deepcopy(model) if model.training else copy.deepcopy(model).train()
    tensors = _Tensors(trained)
    programs, writers = [], []
    for mode in MODES:
        programs.append(_traced(trained if mode == "train" else copy.deepcopy(trained).eval(), example, fixed_size))
        tensors.constants = programs[-1].constants
        writers.append(_Writer(programs[-1], mode, tensors, run_type))
    description: Dict[str, Any] = {"version": VERSION, "torch": torch.__version__, "dtype": _bare(run_type),
                                   "example": list(example.shape), "tensors": tensors.entries}
    for mode, writer in zip(MODES, writers):
        description[mode] = writer.write()
    description["sites"] = _sites(description)
    sizes = _images(programs[0]).meta["val"].shape[2:]
    free = all(isinstance(size, torch.SymInt) for size in sizes)
    _verify(trained, description, tensors.values, example, free)
    right = [found["shape"] for found in description["verified"] if "outputs" in found["train"]]
    description["guards"] = _guards(programs, right)
    return description, tensors.values


def _verify(model: torch.nn.Module, description: Dict[str, Any], tensors: Dict[str, torch.Tensor], example: torch.Tensor,
            free: bool) -> None:
    """Compares at the example, at one image and at another size. Raises ExportError unless the first two are right."""
    first = _compared(model, description, tensors, example)
    if "refused" in first["train"]:
        raise ExportError(f"the model refuses the example: {first['train']['refused']}")
    if fault := _fault(first, example.dtype):
        raise ExportError(f"the graph is not the model: at {first['shape']} {fault}")
    description["verified"] = [first]
    one = _compared(model, description, tensors, example[:1])
    if fault := _fault(one, example.dtype):
        raise ExportError(f"the graph is not the model at one image, where {fault}. Something in it branches on the size of the "
                          "batch, or takes it as a number of Python, as int(x.shape[0]) does; leave it a size")
    description["verified"].append(one)
    description["fixed_size"] = "" if free else "tracing made its height and width constants"
    larger = [3, example.shape[1], *(size + 32 * (d + 1) for d, size in enumerate(example.shape[2:]))]
    doubled = [3, example.shape[1], *(2 * size for size in example.shape[2:])]
    for shape in (larger, doubled) if free else ([3, *example.shape[1:]],):
        other = _compared(model, description, tensors, torch.randn(shape, dtype=example.dtype, device=example.device))
        if "refused" in other["train"]:
            continue  # by the model itself
        fault = _fault(other, example.dtype)
        if fault and not free:
            raise ExportError(f"the graph is not the model: at {shape} {fault}")
        if fault:
            description["fixed_size"] = f"at {shape} {fault}"
        else:
            description["verified"].append(other)
        return
    description["fixed_size"] = description["fixed_size"] or "the model refuses other sizes: " + other["train"]["refused"]


def _storable(tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """Types that bnlab's files lack are kept as int64; graph.json has their own."""
    lacking = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
    return {name: t.to(torch.int64) if t.dtype in lacking else t for name, t in tensors.items()}


def export(model: "Union[torch.nn.Module, Callable[[], torch.nn.Module]]", example: torch.Tensor,
           folder: "Union[str, os.PathLike[str]]", seeds: int = 0, fixed_size: bool = False) -> Dict[str, Any]:
    """Writes the model, or what a function without arguments makes, into a folder and returns what graph.json says.

    example: [2 or more, 3, height, width], of the type of the weights. seeds: 0, and every run starts from the weights that
    the model has; or so many initialisations, each made by the function after torch.manual_seed(0, 1, ...), for runs of these
    seeds. fixed_size: height and width are those of the example. Raises ExportError where the graph is not the model."""
    if seeds and isinstance(model, torch.nn.Module):
        raise ExportError("several seeds need a function that makes the model, in the place of the model")
    torch.manual_seed(0)
    made = model if isinstance(model, torch.nn.Module) else model()
    description, tensors = _described(made, example, fixed_size)
    files = {"weights_seed0.safetensors" if seeds else WEIGHTS: tensors}
    for seed in range(1, seeds):
        torch.manual_seed(seed)
        own = _Tensors(model().train())  # type: ignore[operator]
        files[f"weights_seed{seed}.safetensors"] = {**tensors, **own.values}
    description["weights"] = list(files)
    description["initialisations"] = bool(seeds)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, values in files.items():
        write_safetensors(target / name, _storable(values))
    (target / GRAPH).write_text(json.dumps(description, separators=(",", ":")) + "\n")
    return description


def load_into(model: torch.nn.Module, run: Any) -> None:
    """Puts the weights of a run into the PyTorch model that was exported for it, under the names of its state_dict. run: its
    folder, or a row of `Results.runs`. Raises ValueError for a run whose sites hold other tensors than batch norms do."""
    folder = Path(run if isinstance(run, (str, os.PathLike)) else run["folder"])
    spec = json.loads((folder / "record.json").read_text(encoding="utf-8"))["spec"]
    exported = Path(spec["model"]["file"])
    description = json.loads((exported / GRAPH).read_text(encoding="utf-8"))
    began = read_safetensors(exported / description["weights"][spec["seed"] if description["initialisations"] else 0])
    trained, state, own = read_safetensors(folder / WEIGHTS), {}, model.state_dict()
    for entry in description["tensors"]:
        name = entry["name"]
        value = trained.get(name, began[name])
        if name.endswith(COUNTER):
            value = value + entry.get("counts", 0) * spec["steps"]
        elif name not in trained and value.is_floating_point() and entry["kind"] != "constant":
            raise ValueError(f"{folder}: has no {name}, so that its strategy cannot be put into a PyTorch model; those with running "
                             "statistics can")
        state.update({alias: value for alias in (name, *entry.get("aliases", [])) if alias in own})
    model.load_state_dict(state)


def summary(description: Dict[str, Any]) -> str:
    """What was exported and verified, one fact a line."""
    lines = [f"{len(description['sites'])} sites of batch norm, {len(description['train']['nodes'])} nodes in training, "
             f"{len(description['evaluate']['nodes'])} in evaluation; outputs in training: "
             + ", ".join(output["name"] or "(the only one)" for output in description["train"]["outputs"])]
    for found in description["verified"]:
        train = found["train"]
        lines.append(f"{found['shape']}: " + (f"PyTorch refuses to train: {train['refused']}" if "refused" in train else
                     f"as PyTorch: outputs differ by {train['outputs']:.1g}, gradients by {train['gradients']:.1g}, running "
                     f"statistics by {train['statistics']:.1g}"))
    if description["fixed_size"]:
        lines.append(f"sizes other than those above are refused: {description['fixed_size']}")
    return "\n".join(lines)


def main(words: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bnlab.export", description="Exports a PyTorch model for bnlab.")
    parser.add_argument("model", help="module:function, a function without arguments that makes the model")
    parser.add_argument("--example", required=True, help="a batch of two or more: 2,3,96,96")
    parser.add_argument("--folder", help="where graph.json and the weights go; by default one of the function's name")
    parser.add_argument("--seeds", type=int, default=0, help="so many initialisations, for runs of these seeds")
    parser.add_argument("--fixed-size", action="store_true", help="height and width are those of the example")
    given = parser.parse_args(words)
    module, _, function = given.model.partition(":")
    try:
        shape = [int(n) for n in given.example.split(",")]
        make = getattr(importlib.import_module(module), function)
    except (ValueError, ImportError, AttributeError) as error:
        parser.error(f"{error}; expected module:function of a module that can be imported here, and --example 2,3,96,96")
    folder = given.folder or function
    try:
        torch.manual_seed(0)
        model = make()
        example = torch.randn(shape, dtype=next((p.dtype for p in model.parameters()), torch.float32))
        print(summary(export(make if given.seeds else model, example, folder, given.seeds, given.fixed_size)))
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
