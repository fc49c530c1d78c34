"""Keras on TensorFlow, on the CPU."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras  # pylint: disable=wrong-import-position
import numpy  # pylint: disable=wrong-import-position
import tensorflow  # pylint: disable=wrong-import-position

from judge import Unsupported  # pylint: disable=wrong-import-position


class keras_whole_batch:
    """A layer for each group of ranks, which gets their samples as one batch."""

    def __init__(self):
        self.text = (f"Keras {keras.__version__}, BatchNormalization on the whole batch of a group, "
                     f"TensorFlow {tensorflow.__version__}, CPU")

    def layer(self, case, axis):
        policy = case.dtype if case.dtype in ("float64", "float32") else "mixed_" + case.dtype
        layer = keras.layers.BatchNormalization(axis=axis, momentum=1 - case.momentum, epsilon=case.eps, center=case.affine,
                                                scale=case.affine, dtype=policy)
        layer.build((None,) + tuple(case.channels if i == axis % self.dims else None for i in range(1, self.dims)))
        for ours, theirs in (("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"),
                             ("running_var", "moving_variance")):
            if ours in case.tensors:
                getattr(layer, theirs).assign(case.tensors[ours])
        return layer

    def __call__(self, case):
        if case.momentum is None:
            raise Unsupported("it has no cumulative average")
        if len({x.shape[1:] for x in case.inputs(0)}) > 1:
            raise Unsupported("images of different sizes are no batch")
        self.dims = case.inputs(0)[0].ndim
        last = case.memory_format == "channels_last"
        layers = [self.layer(case, -1 if last else 1) for _ in case.groups]

        def tensor(arrays):
            whole = numpy.concatenate(arrays)
            return tensorflow.constant(numpy.moveaxis(whole, 1, -1) if last else whole, dtype=case.dtype)

        def of_ranks(values, xs):
            values = numpy.asarray(tensorflow.cast(values, "float64"))
            values = numpy.moveaxis(values, -1, 1) if last else values
            return numpy.split(values, numpy.cumsum([len(x) for x in xs])[:-1])

        answers, grads = {}, {"weight": 0, "bias": 0}
        for number, one_pass in enumerate(case.passes):
            for layer, ranks in zip(layers, case.groups):
                xs = [case.inputs(number)[r] for r in ranks]
                x = tensor(xs)
                with tensorflow.GradientTape() as tape:
                    tape.watch(x)
                    y = layer(x, training=one_pass["mode"] == "train")
                answers.update({f"{number}/{r}/output": v for r, v in zip(ranks, of_ranks(y, xs))})
                if not one_pass["backward"]:
                    continue
                sources = [x] + ([layer.gamma.value, layer.beta.value] if case.affine else [])
                dx, *dparams = tape.gradient(y, sources, tensor([case.grad_outputs(number)[r] for r in ranks]))
                answers.update({f"{number}/{r}/grad_input": v for r, v in zip(ranks, of_ranks(dx, xs))})
                for name, grad in zip(grads, dparams):
                    grads[name] = grads[name] + numpy.asarray(grad, numpy.float64)
            for name, theirs in (("running_mean", "moving_mean"), ("running_var", "moving_variance")):
                kept = [numpy.asarray(getattr(layer, theirs), numpy.float64) for layer in layers]
                answers[f"{number}/{name}"] = numpy.stack(kept)
            if case.affine and (case.backward == "after_each" or number + 1 == len(case.passes)):
                answers.update({f"{number}/grad_{name}": grad for name, grad in grads.items()})
                grads = {"weight": 0, "bias": 0}
        return answers
