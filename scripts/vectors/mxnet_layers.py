"""MXNet's SyncBatchNorm on the CPU: each rank a thread with a context of its own. MXNet 1.9.1 is its last version."""

import os
from concurrent.futures import ThreadPoolExecutor

os.environ["MXNET_CPU_WORKER_NTHREADS"] = "8"  # with one worker the first rank waits for the others forever

import numpy  # pylint: disable=wrong-import-position

numpy.bool = bool  # a name that NumPy has dropped, and that MXNet asks for

import mxnet  # pylint: disable=wrong-import-position
from mxnet.gluon.contrib.nn import SyncBatchNorm  # pylint: disable=wrong-import-position

from judge import Unsupported  # pylint: disable=wrong-import-position

NAMES = {"weight": "gamma", "bias": "beta", "running_mean": "running_mean", "running_var": "running_var"}


class mxnet_sync:
    def __init__(self):
        self.text = f"MXNet {mxnet.__version__}, gluon.contrib.nn.SyncBatchNorm, a thread per rank, CPU"

    def layer(self, case, rank):
        prefix = f"{case.name}/{rank // case.ranks_per_group}/"  # layers with the same one share statistics
        layer = SyncBatchNorm(case.channels, num_devices=case.ranks_per_group, momentum=1 - case.momentum, epsilon=case.eps,
                              center=case.affine, scale=case.affine, prefix=prefix)
        layer.initialize(ctx=mxnet.cpu(rank))
        for ours, theirs in NAMES.items():
            if ours in case.tensors:
                getattr(layer, theirs).set_data(mxnet.nd.array(case.tensors[ours]))
        return layer

    def __call__(self, case):
        if case.dtype != "float32":
            raise Unsupported("float32 alone")
        if case.inputs(0)[0].ndim not in (2, 4) or case.memory_format == "channels_last":
            raise Unsupported("inputs of two or four dimensions alone, channels second")
        if case.momentum is None:
            raise Unsupported("it has no cumulative average")
        if 0 in case.rows:  # what one rank alone says; the others would wait forever
            raise ValueError("Operator _contrib_SyncBatchNorm inferring shapes failed.")
        if case.backward == "after_all":
            raise RuntimeError("two calls before a backward pass race there: wrong gradients or a crash, now and then")
        layers = [self.layer(case, rank) for rank in range(case.ranks)]
        answers = {}

        def tensor(arrays, rank):
            return mxnet.nd.array(arrays[rank], mxnet.cpu(rank), "float32")

        def forward(rank):
            x = tensor(case.inputs(number), rank)
            x.attach_grad()
            with mxnet.autograd.record(train_mode=training):
                y = layers[rank](x)
            answers[f"{number}/{rank}/output"] = y.asnumpy()
            return x, y

        def backward(rank):
            x, y = of_ranks[rank]
            y.backward(tensor(case.grad_outputs(number), rank), train_mode=training)
            answers[f"{number}/{rank}/grad_input"] = x.grad.asnumpy()

        with ThreadPoolExecutor(case.ranks) as threads:
            for number, one_pass in enumerate(case.passes):
                training = one_pass["mode"] == "train"
                of_ranks = list(threads.map(forward, range(case.ranks)))
                if one_pass["backward"]:
                    list(threads.map(backward, range(case.ranks)))
                for ours, theirs in NAMES.items():
                    own = [getattr(layer, theirs) for layer in layers]
                    if ours.startswith("running"):
                        answers[f"{number}/{ours}"] = numpy.stack([own[ranks[0]].data().asnumpy() for ranks in case.groups])
                    elif case.affine and one_pass["backward"]:
                        answers[f"{number}/grad_{ours}"] = sum(parameter.grad().asnumpy() for parameter in own)
        return answers
