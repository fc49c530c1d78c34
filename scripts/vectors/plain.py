"""Batch normalisation in plain NumPy, as a second opinion on the expected numbers; and, to show that the cases catch what
they say, the same with one of the mistakes that implementations have made (`judge.py vectors plain_fault:NAME`)."""

import numpy

FAULTS = ("e_x2", "biased", "mean_of_ranks", "variance_of_ranks", "eps_outside", "no_exchange", "all_ranks", "momentum_swapped",
          "momentum_fixed", "counts_samples", "rank_count", "half_sums", "half_counts", "first_32_channels", "kept_in_layer",
          "empty_is_nan", "layout_ignored", "eval_by_batch", "nan_hidden", "wrong_eps", "half_squares", "stopped_gradient",
          "normalises_unbiased")
NARROW = {"float16": (numpy.float16, 11), "bfloat16": (None, 8), "float32": (numpy.float32, 24), "float64": (numpy.float64, 53)}


def rounded(values, dtype):
    """As a number of this precision has it, in float64; float16 overflows."""
    if dtype == "bfloat16":
        mantissa, exponent = numpy.frexp(values)
        return numpy.ldexp(numpy.round(numpy.ldexp(mantissa, 8)), exponent - 8)
    return numpy.asarray(values).astype(NARROW[dtype][0]).astype(numpy.float64)


def channels_first(parts):
    """[channels, values] of all parts together."""
    return numpy.concatenate([numpy.moveaxis(x, 1, 0).reshape(x.shape[1], -1) for x in parts], axis=1)


def along(vector, x):
    return numpy.asarray(vector).reshape([-1 if axis == 1 else 1 for axis in range(x.ndim)])


class Layer:
    """The layer of one group of ranks."""

    def __init__(self, case, fault):
        self.case, self.fault, self.updates = case, fault, 0
        self.running_mean, self.running_var = case.tensors["running_mean"], case.tensors["running_var"]
        self.eps = 1e-5 if fault == "wrong_eps" else case.eps

    def moments(self, xs):
        """count, mean and biased variance of all values; a fault may spoil them."""
        fault, dtype = self.fault, self.case.dtype
        held = "float64" if dtype == "float64" else "float32"
        values = channels_first(xs)
        count = values.shape[1]
        own = [(v.shape[1], v.mean(axis=1), v.var(axis=1)) for v in (channels_first([x]) for x in xs) if v.size]
        mean, var = values.mean(axis=1), values.var(axis=1)
        if fault == "e_x2":
            exact = numpy.float64 if held == "float64" else numpy.float32
            v = values.astype(exact)
            var = ((v * v).mean(axis=1, dtype=exact) - v.mean(axis=1, dtype=exact) ** 2).astype(numpy.float64)
        elif fault == "mean_of_ranks":
            mean = numpy.mean([m for _, m, _ in own], axis=0)
            var = numpy.mean([v + m * m for _, m, v in own], axis=0) - mean * mean
        elif fault == "variance_of_ranks":
            var = sum(n * v for n, _, v in own) / count
        elif fault == "half_sums":
            mean = rounded(rounded(values.sum(axis=1), dtype) / count, dtype)
        elif fault == "half_squares":
            var = rounded(var, dtype)
        elif fault in ("half_counts", "counts_samples"):
            weights = [float(rounded(float(n), dtype)) for n, _, _ in own]
            if fault == "counts_samples":
                weights = [float(x.shape[0]) for x in xs if x.size]
            mean = sum(w * m for w, (_, m, _) in zip(weights, own)) / sum(weights)
            var = sum(w * (v + (m - mean) ** 2) for w, (_, m, v) in zip(weights, own)) / sum(weights)
        elif fault == "empty_is_nan" and any(x.size == 0 for x in xs):
            mean = mean * numpy.nan
        return count, mean, var

    def forward(self, xs, mode):
        """The outputs; and what the backward pass needs."""
        if self.fault == "layout_ignored" and self.case.memory_format == "channels_last":
            xs = [numpy.moveaxis(x, 1, -1).reshape(x.shape) for x in xs]
        if mode == "train":
            values = channels_first(xs)
            if values.shape[1] == 0:
                return [x.copy() for x in xs], None
            count, mean, var = self.moments(xs)
            if not self.fault == "eval_by_batch":
                self.remember(count, mean, var, xs)
            if self.fault == "normalises_unbiased":
                var = var * count / max(1, count - 1)
        else:
            count, mean, var = 0, self.running_mean, self.running_var
            if self.fault == "eval_by_batch":
                count, mean, var = self.moments(xs)
        scale = 1 / (numpy.sqrt(var) + self.eps) if self.fault == "eps_outside" else 1 / numpy.sqrt(var + self.eps)
        ys = [(x - along(mean, x)) * along(scale * self.case.weight(), x) + along(self.case.bias(), x) for x in xs]
        if self.fault == "nan_hidden":
            ys = [numpy.where(numpy.isfinite(x).all(), y, numpy.nan) if not numpy.isfinite(x).all() else
                  numpy.nan_to_num(y) for x, y in zip(xs, ys)]
        if self.fault == "first_32_channels":
            for y in ys:
                y[:, 32:] = 0
        self.kept = (xs, count, mean, scale)
        return ys, self.kept

    def remember(self, count, mean, var, xs):
        case, divisor = self.case, count - 1
        if self.fault == "biased":
            divisor = count
        elif self.fault == "rank_count":
            divisor = count * (1 - 1 / max(1, xs[0].size // case.channels)) or numpy.inf
        self.updates += 1
        weight = case.momentum if case.momentum is not None else 1 / self.updates
        if self.fault == "momentum_swapped" and case.momentum is not None:
            weight = 1 - weight
        if self.fault == "momentum_fixed":
            weight = 0.1
        self.running_mean = (1 - weight) * self.running_mean + weight * mean
        self.running_var = (1 - weight) * self.running_var + weight * var * count / divisor

    def backward(self, dys, kept, count_statistics):
        """Gradients of inputs, weight and bias."""
        if kept is None:
            return [numpy.zeros_like(dy) for dy in dys], 0, 0
        xs, count, mean, scale = self.kept if self.fault == "kept_in_layer" else kept
        dy, x = channels_first(dys), channels_first(xs)
        normalised = (x - mean[:, None]) * scale[:, None]
        dbias, dweight = dy.sum(axis=1), (dy * normalised).sum(axis=1)
        gain, dxs = scale * self.case.weight(), []
        for one, given in zip(xs, dys):
            dx = given * along(gain, one)
            if count_statistics and self.fault != "stopped_gradient":
                own = (one - along(mean, one)) * along(scale, one)
                dx = dx - along(gain / count * dbias, one) - own * along(gain / count * dweight, one)
            dxs.append(dx)
        return dxs, dweight, dbias


class plain:
    """All of it in float64, whatever the case's precision, but for what a fault narrows and for the last rounding."""

    def __init__(self, fault=""):
        self.fault, self.text = fault, f"NumPy {numpy.__version__}, formulas in float64" + (f", {fault}" if fault else "")

    def __call__(self, case):
        groups = case.groups
        if self.fault == "no_exchange":
            groups = [[rank] for rank in range(case.ranks)]
        elif self.fault == "all_ranks":
            groups = [list(range(case.ranks))]
        layers = [Layer(case, self.fault) for _ in groups]
        answers, kept = {}, {}
        for number, one_pass in enumerate(case.passes):
            for group, ranks in enumerate(groups):
                ys, kept[number, group] = layers[group].forward([case.inputs(number)[r] for r in ranks], one_pass["mode"])
                answers.update({f"{number}/{rank}/output": rounded(y, case.dtype) for rank, y in zip(ranks, ys)})
            of_groups = [next(i for i, group in enumerate(groups) if ranks[0] in group) for ranks in case.groups]
            answers[f"{number}/running_mean"] = numpy.stack([layers[i].running_mean for i in of_groups])
            answers[f"{number}/running_var"] = numpy.stack([layers[i].running_var for i in of_groups])
            if case.backward == "after_each":
                self.go_back(case, [number], groups, layers, kept, answers)
        if case.backward == "after_all":
            self.go_back(case, range(len(case.passes)), groups, layers, kept, answers)
        return answers

    def go_back(self, case, numbers, groups, layers, kept, answers):
        dweight, dbias = 0, 0
        for number in (n for n in numbers if case.passes[n]["backward"]):
            for group, ranks in enumerate(groups):
                dxs, dw, db = layers[group].backward([case.grad_outputs(number)[r] for r in ranks], kept[number, group],
                                                     case.passes[number]["mode"] == "train")
                answers.update({f"{number}/{rank}/grad_input": rounded(dx, case.dtype) for rank, dx in zip(ranks, dxs)})
                dweight, dbias = dweight + dw, dbias + db
            answers[f"{numbers[-1]}/grad_weight"] = dweight + numpy.zeros(case.channels)
            answers[f"{numbers[-1]}/grad_bias"] = dbias + numpy.zeros(case.channels)


plain_fault = plain
