"""flax's BatchNorm with axis_name: each rank a CPU device of JAX under pmap. Ranks that hold different numbers of values are
padded and masked, the only way that SPMD programs have; gradients are taken inside pmap, of the sum over all ranks."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import flax.linen  # pylint: disable=wrong-import-position
import jax  # pylint: disable=wrong-import-position
import jax.numpy as jnp  # pylint: disable=wrong-import-position
import numpy  # pylint: disable=wrong-import-position

from judge import Unsupported  # pylint: disable=wrong-import-position

jax.config.update("jax_enable_x64", True)


def padded(arrays):
    """[ranks, ...] with zeros behind the shorter ones, and whether a value is there."""
    shape = numpy.max([x.shape for x in arrays], axis=0)
    whole, there = numpy.zeros((len(arrays), *shape)), numpy.zeros((len(arrays), *shape), bool)
    for rank, x in enumerate(arrays):
        at = (rank, *map(slice, x.shape))
        whole[at], there[at] = x, True
    return whole, there


class flax_batch_norm:
    """`flax_batch_norm:slow` for use_fast_variance=False."""

    def __init__(self, variance="fast"):
        self.fast = variance == "fast"
        self.text = (f"flax {flax.__version__}, linen.BatchNorm(axis_name, use_fast_variance={self.fast}) under pmap, "
                     f"jax {jax.__version__}, CPU")

    def __call__(self, case):
        if case.momentum is None:
            raise Unsupported("it has no cumulative average")
        if case.ranks > len(jax.devices()):
            raise Unsupported(f"{case.ranks} ranks")
        last = case.memory_format == "channels_last"  # JAX's arrays have no strides: the axis stands there
        dtype = jnp.dtype(case.dtype)
        kept = jnp.float64 if case.dtype == "float64" else jnp.float32
        layer = flax.linen.BatchNorm(
            momentum=1 - case.momentum, epsilon=case.eps, dtype=dtype, param_dtype=kept, use_bias=case.affine,
            use_scale=case.affine, axis=-1 if last else 1, axis_name="ranks", use_fast_variance=self.fast,
            axis_index_groups=case.groups if len(case.groups) > 1 else None)

        def step(params, stats, x, dy, mask, train):
            def forward(params, x):
                return layer.apply({"params": params, "batch_stats": stats}, x, use_running_average=not train, mask=mask,
                                   mutable=["batch_stats"])

            (y, kept_stats), pull = jax.vjp(forward, params, x)
            return (y, kept_stats["batch_stats"] if train else stats,
                    *pull((dy, jax.tree.map(jnp.zeros_like, kept_stats))))

        steps = {train: jax.pmap(lambda *a, train=train: step(*a, train), "ranks", devices=jax.devices()[: case.ranks])
                 for train in (True, False)}

        def on_all(name):
            return jnp.asarray(numpy.tile(case.tensors[name], (case.ranks, 1)), kept)

        params = {"scale": on_all("weight"), "bias": on_all("bias")} if case.affine else {}
        stats = {"mean": on_all("running_mean"), "var": on_all("running_var")}
        answers, grads = {}, []
        for number, one_pass in enumerate(case.passes):
            x, there = padded(case.inputs(number))
            dy = padded(case.grad_outputs(number))[0] if one_pass["backward"] else numpy.zeros_like(x)
            mask = None if there.all() else there
            if last:
                x, dy = numpy.moveaxis(x, 2, -1), numpy.moveaxis(dy, 2, -1)
                mask = mask if mask is None else numpy.moveaxis(mask, 2, -1)
            y, stats, dparams, dx = steps[one_pass["mode"] == "train"](
                params, stats, jnp.asarray(x, dtype), jnp.asarray(dy, dtype), mask)

            def of_ranks(values, number=number):
                values = numpy.asarray(values, numpy.float64)
                values = numpy.moveaxis(values, -1, 2) if last else values
                return [v[tuple(map(slice, given.shape))] for v, given in zip(values, case.inputs(number))]

            answers.update({f"{number}/{rank}/output": v for rank, v in enumerate(of_ranks(y))})
            for name, key in (("running_mean", "mean"), ("running_var", "var")):
                answers[f"{number}/{name}"] = numpy.asarray(stats[key], numpy.float64)[[group[0] for group in case.groups]]
            if one_pass["backward"]:
                answers.update({f"{number}/{rank}/grad_input": v for rank, v in enumerate(of_ranks(dx))})
                grads.append(dparams)
                if case.affine and (case.backward == "after_each" or number + 1 == len(case.passes)):
                    for name, key in (("weight", "scale"), ("bias", "bias")):
                        answers[f"{number}/grad_{name}"] = sum(numpy.asarray(g[key], numpy.float64).sum(0) for g in grads)
                    grads = []
        return answers
