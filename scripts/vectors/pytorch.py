"""PyTorch on the CPU, and what is built on it. SyncBatchNorm refuses CPU tensors, and the operators that it consists of
(torch.batch_norm_stats, batch_norm_gather_stats_with_counts, ...) have no CPU kernels, so it is not judged."""

import os
import tempfile

import numpy
import torch

from judge import Unsupported

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def tensor(array, case):
    x = torch.from_numpy(numpy.array(array)).to(DTYPES[case.dtype])
    if case.memory_format == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last_3d if x.dim() == 5 else torch.channels_last)
    return x


def loaded(layer, case):
    """With the case's start; statistics and parameters of half-precision inputs stay float32."""
    layer.to(torch.float64 if case.dtype == "float64" else torch.float32)
    with torch.no_grad():
        for name in ("weight", "bias", "running_mean", "running_var"):
            if name in case.tensors:
                getattr(layer, name).copy_(torch.from_numpy(numpy.array(case.tensors[name])))
    return layer


def answer(case, layers, parts, forward):
    """layers: one per part; parts: the ranks that each of them has; forward(layer, inputs of its ranks) -> outputs."""
    answers, kept = {}, []
    for number, one_pass in enumerate(case.passes):
        for part, (layer, ranks) in enumerate(zip(layers, parts)):
            layer.train(one_pass["mode"] == "train")
            xs = [tensor(case.inputs(number)[r], case).requires_grad_() for r in ranks]
            ys = forward(layer, xs)
            answers.update({f"{number}/{r}/output": y.detach().double().numpy() for r, y in zip(ranks, ys)})
            if one_pass["backward"]:
                kept.append((number, ranks, xs, ys, [tensor(case.grad_outputs(number)[r], case) for r in ranks]))
        for name in ("running_mean", "running_var"):
            own = {ranks[0]: getattr(layer, name).detach().double().numpy().copy() for layer, ranks in zip(layers, parts)}
            # a layer of one rank stands for its group
            answers[f"{number}/{name}"] = numpy.stack(list(own.values()))
        if kept and (case.backward == "after_each" or number + 1 == len(case.passes)):
            for layer in layers:
                layer.zero_grad()
            torch.autograd.backward([y for _, _, _, ys, _ in kept for y in ys], [d for *_, dys in kept for d in dys])
            for of_pass, ranks, xs, _, _ in kept:
                answers.update({f"{of_pass}/{r}/grad_input": x.grad.double().numpy() for r, x in zip(ranks, xs)})
            if case.affine:
                for name in ("weight", "bias"):
                    grads = [getattr(layer, name).grad for layer in layers]
                    answers[f"{number}/grad_{name}"] = sum(g for g in grads if g is not None).double().numpy()
            kept = []
    return answers


class torch_whole_batch:
    """A layer for each group of ranks, which gets their samples as one batch."""

    def __init__(self):
        self.text = f"torch {torch.__version__}, BatchNorm1d/2d/3d on the whole batch of a group, CPU"

    def layer(self, case, dims):
        kinds = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
        return kinds[dims](case.channels, eps=case.eps, momentum=case.momentum, affine=case.affine)

    def __call__(self, case):
        if len({x.shape[1:] for x in case.inputs(0)}) > 1:
            raise Unsupported("images of different sizes are no batch")

        def forward(layer, xs):
            return layer(torch.cat(xs)).split([len(x) for x in xs])

        layers = [loaded(self.layer(case, case.inputs(0)[0].ndim), case) for _ in case.groups]
        return answer(case, layers, case.groups, forward)


class timm(torch_whole_batch):
    def __init__(self):
        import timm.layers  # pylint: disable=import-outside-toplevel

        self.make = timm.layers.BatchNormAct2d
        self.text = f"timm {timm.__version__}, BatchNormAct2d without activation on the whole batch of a group, CPU"

    def layer(self, case, dims):
        if dims != 4:
            raise Unsupported("inputs of four dimensions alone")
        return self.make(case.channels, eps=case.eps, momentum=case.momentum, affine=case.affine, apply_act=False)


class naive_sync:
    """NaiveSyncBatchNorm of detectron2, which is not on PyPI, as the package detectron2-layers has it; over Gloo, each rank
    a process. `naive_sync:N` for its stats_mode "N"."""

    def __init__(self, mode=""):
        from importlib.metadata import version  # pylint: disable=import-outside-toplevel

        from detectron2_layers.batch_norm import NaiveSyncBatchNorm  # pylint: disable=import-outside-toplevel

        self.mode, self.make = mode, NaiveSyncBatchNorm
        self.text = (f'detectron2-layers {version("detectron2-layers")}, NaiveSyncBatchNorm(stats_mode="{mode}") over Gloo, '
                     f"torch {torch.__version__}")
        self.crews = {}

    def __call__(self, case):
        if case.inputs(0)[0].ndim != 4:
            raise Unsupported("inputs of four dimensions alone")
        if len(case.groups) > 1:
            raise Unsupported("it knows no groups")
        if case.ranks not in self.crews:
            context = torch.multiprocessing.get_context("spawn")
            pipes = [context.Pipe() for _ in range(case.ranks)]
            at = tempfile.mktemp()
            for rank, (_, theirs) in enumerate(pipes):
                context.Process(target=serve, args=(theirs, rank, case.ranks, at, self.mode), daemon=True).start()
            self.crews[case.ranks] = [ours for ours, _ in pipes]
        crew = self.crews[case.ranks]
        for pipe in crew:
            pipe.send(case)
        of_ranks = [pipe.recv() for pipe in crew]
        failed = next((found for found in of_ranks if isinstance(found, str)), None)
        if failed is not None:
            raise RuntimeError(failed)
        answers = {}
        for found in of_ranks:
            for name, array in found.items():
                answers[name] = answers[name] + array if name.split("/")[1].startswith("grad_") and name in answers else array
        return answers


def serve(pipe, rank, ranks, at, mode):
    """A rank, which answers cases until its pipe is closed; what fails on one rank must be refused by all of them."""
    from detectron2_layers.batch_norm import NaiveSyncBatchNorm  # pylint: disable=import-outside-toplevel

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{at}", rank=rank, world_size=ranks)
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        if mode == "" and 0 in case.rows:  # an assertion of its own, which would leave the others waiting
            pipe.send('SyncBatchNorm(stats_mode="") does not support zero batch size.')
            continue
        try:
            layer = NaiveSyncBatchNorm(case.channels, eps=case.eps, momentum=case.momentum, affine=case.affine,
                                       stats_mode=mode)
            found = answer(case, [loaded(layer, case)], [[rank]], lambda layer, xs: [layer(xs[0])])
        except Exception as error:  # the judge calls it a refusal
            found = (str(error).strip() or type(error).__name__).splitlines()[0]
        pipe.send(found)
