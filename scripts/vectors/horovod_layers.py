"""Horovod's SyncBatchNormalization for Keras 2, without Horovod: the layer's own file, out of an unpacked source package, and
sums over threads in place of its all-reduce."""

import pathlib
import runpy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from keras_layers import answer, forward_backward, keras, loaded, tensorflow

from judge import Unsupported


class Ranks:
    """The ranks of a case; they meet in every sum, as in that of its gradient."""

    def __init__(self, size):
        self.own, self.parts, self.barrier = threading.local(), [None] * size, threading.Barrier(size, timeout=60)

    def sum(self, tensor):
        self.parts[self.own.rank] = tensor
        self.barrier.wait()
        total = tensorflow.add_n(self.parts)
        self.barrier.wait()
        return total

    def allreduce(self, tensor, op):
        return tensorflow.custom_gradient(lambda x: (self.sum(x), self.sum))(tensor)


class horovod_sync:
    """`horovod_sync:horovod-0.28.1`, the folder of the source package."""

    def __init__(self, folder):
        name = pathlib.Path(folder).name.replace("horovod-", "Horovod ")
        self.text = (f"{name}, tensorflow.SyncBatchNormalization with sums over threads, Keras {keras.__version__}, "
                     f"TensorFlow {tensorflow.__version__}, CPU")
        self.ranks = None
        sys.modules["horovod.tensorflow.mpi_ops"] = SimpleNamespace(
            _allreduce=lambda x, op: self.ranks.allreduce(x, op), size=lambda: len(self.ranks.parts), rank=None, Sum=None)
        self.make = runpy.run_path(f"{folder}/horovod/tensorflow/sync_batch_norm.py")["SyncBatchNormalization"]

    def __call__(self, case):
        if len(case.groups) > 1:
            raise Unsupported("it knows no groups")
        self.ranks = Ranks(case.ranks)
        layers = [loaded(self.make, case) for _ in range(case.ranks)]

        def of_part(_, xs, dys, training):
            def of_rank(rank):
                self.ranks.own.rank = rank
                return forward_backward(layers[rank], xs[rank], dys[rank] if dys else None, training)

            with ThreadPoolExecutor(case.ranks) as threads:
                ys, *grads = zip(*threads.map(of_rank, range(case.ranks)))
            return ys, grads[0] if grads else [], [sum(of_ranks) for of_ranks in grads[1:]]

        return answer(case, layers[:1], case.groups, of_part)
