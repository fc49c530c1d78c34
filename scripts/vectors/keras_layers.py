"""Keras on TensorFlow, on the CPU: the whole batch in one call, or each rank a replica of MirroredStrategy."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras  # pylint: disable=wrong-import-position
import numpy  # pylint: disable=wrong-import-position
import tensorflow  # pylint: disable=wrong-import-position

from judge import Unsupported  # pylint: disable=wrong-import-position

tensorflow.config.set_logical_device_configuration(
    tensorflow.config.list_physical_devices("CPU")[0], [tensorflow.config.LogicalDeviceConfiguration()] * 8)


def loaded(make, case, **options):
    """A layer with the case's start; statistics and parameters of half-precision inputs stay float32."""
    if case.momentum is None:
        raise Unsupported("it has no cumulative average")
    dims, last = case.inputs(0)[0].ndim, case.memory_format == "channels_last"
    policy = case.dtype if case.dtype in ("float64", "float32") else "mixed_" + case.dtype
    momentum = numpy.float64(1 - case.momentum)  # a number of Python would be rounded to float32 by Keras 2
    layer = make(axis=-1 if last else 1, momentum=momentum, epsilon=case.eps, center=case.affine,
                 scale=case.affine, dtype=policy, **options)
    layer.build((None,) + tuple(case.channels if i == (dims - 1 if last else 1) else None for i in range(1, dims)))
    for ours, theirs in (("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"),
                         ("running_var", "moving_variance")):
        if ours in case.tensors:
            getattr(layer, theirs).assign(case.tensors[ours])
    return layer


def forward_backward(layer, x, dy, training):
    """Output and, with dy, the gradients of x, gamma and beta."""
    with tensorflow.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=training)
    sources = [x] + [v if isinstance(v, tensorflow.Variable) else v.value for v in layer.trainable_variables]
    return [y] if dy is None else [y, *tape.gradient(y, sources, dy)]


def answer(case, layers, parts, of_part):
    """layers: one per part; parts: the ranks that each of them has; of_part(layer, inputs, gradients or nothing, training)
    -> outputs, gradients of inputs, and sums for gamma and beta, each a list."""
    last = case.memory_format == "channels_last"
    answers, grads = {}, {"weight": 0, "bias": 0}

    def tensors(arrays, ranks):
        return [tensorflow.constant(numpy.moveaxis(arrays[r], 1, -1) if last else arrays[r], case.dtype) for r in ranks]

    for number, one_pass in enumerate(case.passes):
        for layer, ranks in zip(layers, parts):
            dys = tensors(case.grad_outputs(number), ranks) if one_pass["backward"] else []
            ys, dxs, dparams = of_part(layer, tensors(case.inputs(number), ranks), dys, one_pass["mode"] == "train")
            for what, values in (("output", ys), ("grad_input", dxs)):
                for rank, value in zip(ranks, values):
                    value = numpy.asarray(tensorflow.cast(value, "float64"))
                    answers[f"{number}/{rank}/{what}"] = numpy.moveaxis(value, -1, 1) if last else value
            for name, grad in zip(grads, dparams):
                grads[name] = grads[name] + numpy.asarray(grad, numpy.float64)
        for name, theirs in (("running_mean", "moving_mean"), ("running_var", "moving_variance")):
            kept = [numpy.asarray(getattr(layer, theirs), numpy.float64) for layer in layers]
            answers[f"{number}/{name}"] = numpy.stack(kept)
        if case.affine and (case.backward == "after_each" or number + 1 == len(case.passes)):
            answers.update({f"{number}/grad_{name}": grad for name, grad in grads.items()})
            grads = {"weight": 0, "bias": 0}
    return answers


class keras_whole_batch:
    """A layer for each group of ranks, which gets their samples as one batch."""

    def __init__(self):
        self.text = (f"Keras {keras.__version__}, BatchNormalization on the whole batch of a group, "
                     f"TensorFlow {tensorflow.__version__}, CPU")

    def __call__(self, case):
        if len({x.shape[1:] for x in case.inputs(0)}) > 1:
            raise Unsupported("images of different sizes are no batch")

        def of_part(layer, xs, dys, training):
            found = forward_backward(layer, tensorflow.concat(xs, 0), tensorflow.concat(dys, 0) if dys else None, training)
            y, *dx = (tensorflow.split(v, [len(x) for x in xs]) for v in found[:2])
            return y, sum(dx, []), found[2:]

        return answer(case, [loaded(keras.layers.BatchNormalization, case) for _ in case.groups], case.groups, of_part)


class keras_sync:
    """synchronized=True, the ranks of a group being replicas of MirroredStrategy; `keras_sync:2` for the layer of Keras 2."""

    def __init__(self, version="3"):
        self.make, self.options = keras.layers.BatchNormalization, {"synchronized": True}
        name = f"Keras {keras.__version__}, BatchNormalization(synchronized=True)"
        if version == "2":
            import tf_keras  # pylint: disable=import-outside-toplevel

            self.make, self.options = tf_keras.layers.experimental.SyncBatchNormalization, {}
            name = f"tf_keras {tf_keras.__version__}, experimental.SyncBatchNormalization"
        self.text = f"{name} under MirroredStrategy, TensorFlow {tensorflow.__version__}, CPU"

    def __call__(self, case):
        strategy = tensorflow.distribute.MirroredStrategy([f"CPU:{i}" for i in range(len(case.groups[0]))],
                                                          tensorflow.distribute.ReductionToOneDevice())

        def of_part(layer, xs, dys, training):
            def replica():
                rank = tensorflow.distribute.get_replica_context().replica_id_in_sync_group
                return forward_backward(layer, xs[rank], dys[rank] if dys else None, training)

            ys, *grads = map(strategy.experimental_local_results, strategy.run(replica))
            return ys, grads[0] if grads else [], [sum(of_ranks) for of_ranks in grads[1:]]

        with strategy.scope():
            layers = [loaded(self.make, case, **self.options) for _ in case.groups]
        return answer(case, layers, case.groups, of_part)
