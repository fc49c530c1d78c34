"""What stands at the sites of a network under each strategy, in its form for evaluation."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Dict, Mapping, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import nn

# Strategies that evaluate as batch norm with the running statistics that they have saved, with their options. Here and below
# options that count in training alone are among them, since specs have them.
_OF_BATCH_NORM = ("eps", "momentum", "running_variance", "running", "affine")
_BATCH_NORMS = {name: (*more, *_OF_BATCH_NORM) for name, more in {
    "per_tower": ("saved_tower",), "single_tower": ("tower",), "last_tower": (), "every_tower": (), "averaged": ("merge",),
    "sync": ("group_size", "route", "gradient", "variance", "moments", "weights", "normalise"), "ghost": ("virtual_batch",),
    "batch_renorm": ("r_max", "d_max", "schedule", "scope"), "norm_batch": ("samples",), "shuffle": ("saved_tower",),
    "cmbn": ("saved_tower",)}.items()}
# Strategies that evaluate as their base.
_WRAPPERS = {"frozen": ("from_step", "from_fraction", "train_affine", "base"), "precise": ("batches", "base")}
# All strategies that are known here.
OPTIONS = {
    **_BATCH_NORMS, **_WRAPPERS, "none": (), "group_norm": ("groups", "channels_per_group", "eps", "affine"),
    "layer_norm": ("eps", "affine"), "instance_norm": ("eps", "affine"), "dynamic_tanh": ("alpha", "affine"),
    "filter_response_norm": ("threshold", "eps", "affine"), "weight_standardisation": ("form", "eps", "base"),
    "weight_norm": ("init", "init_scale", "mean_only_bn", "scope", "momentum"),
    "mabn": ("window", "warmup_steps", "renorm_from_step", "r_max", "centred_weights", "eps", "momentum", "affine")}


def named(component: Union[str, Mapping[str, Any]]) -> Tuple[str, Dict[str, Any]]:
    """(name, parameters) of what a spec says."""
    options = {"name": component} if isinstance(component, str) else dict(component)
    return options.pop("name"), options


def activated(norm: nn.Module, y: torch.Tensor) -> torch.Tensor:
    """The ReLU behind a norm, or what the norm has in its place."""
    threshold = getattr(norm, "threshold", None)
    return y.relu() if threshold is None else torch.maximum(y, threshold.view(-1, 1, 1))


class Activation(nn.Module):
    """The same as a module; the norm stays where it is."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self._norm = (norm,)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return activated(self._norm[0], y)


class Layers:
    """Makes the layers of a network: plain convolutions, and no norm at all. `relu`: whether one follows a norm."""

    always_biased = True  # a norm that a convolution has no use for a bias before is not there

    def conv(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, padding: int = 1, dilation: int = 1,
             norm_follows: bool = True, bias: bool = False) -> nn.Module:
        return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation,
                         bias=bias or not norm_follows or self.always_biased)

    def norm(self, channels: int, relu: bool = True) -> nn.Module:
        return nn.Identity()


class BatchNorms(Layers):
    always_biased = False

    def __init__(self, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True, **_: Any):
        self._eps, self._momentum, self._affine = eps, momentum, affine

    def norm(self, channels: int, relu: bool = True) -> nn.Module:
        return nn.BatchNorm2d(channels, self._eps, self._momentum, self._affine)


class GroupNorms(Layers):
    always_biased = False

    def __init__(self, groups: Optional[int] = 8, channels_per_group: Optional[int] = None, eps: float = 1e-5,
                 affine: bool = True):
        self._groups, self._each, self._eps, self._affine = groups, channels_per_group, eps, affine

    def norm(self, channels: int, relu: bool = True) -> nn.Module:
        return nn.GroupNorm(channels // self._each if self._each else self._groups, channels, self._eps, self._affine)


class WeightNorms(Layers):
    """Salimans and Kingma 2016; with mean_only_bn the running mean is subtracted behind the convolution."""

    def __init__(self, mean_only_bn: bool = False, momentum: Optional[float] = 0.1, **_: Any):
        self._mean_only_bn, self._momentum = mean_only_bn, momentum

    def conv(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, padding: int = 1, dilation: int = 1,
             norm_follows: bool = True, bias: bool = False) -> nn.Module:
        plain = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation)
        return WeightNormConv2d(plain, self._momentum if self._mean_only_bn else None, self._mean_only_bn)


class WeightNormConv2d(nn.Module):
    """w = gain v / norm(v) per output channel."""

    def __init__(self, like: nn.Conv2d, momentum: Optional[float], mean_only_bn: bool):
        super().__init__()
        self._how = dict(stride=like.stride, padding=like.padding, dilation=like.dilation)
        self.v = nn.Parameter(like.weight.detach().clone())
        self.gain = nn.Parameter(self.v.detach().flatten(1).norm(dim=1))
        self.bias = nn.Parameter(torch.zeros_like(self.gain))
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros_like(self.gain) if mean_only_bn else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = self.v.flatten(1).norm(dim=1)
        y = F.conv2d(x, self.v * (self.gain / norm).view(-1, 1, 1, 1), **self._how)
        if self.running_mean is None:
            return y + self.bias.view(-1, 1, 1)
        mean = self.running_mean
        if self.training:
            mean = y.mean((0, 2, 3))
            if self.momentum is not None:
                self.running_mean.lerp_(mean.detach(), self.momentum)
        return y - mean.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class StandardisedWeights(Layers):
    """Qiao et al. 2019: a convolution that a norm follows has a standardised weight; the norms are those of `base`."""

    def __init__(self, base: Layers, form: str, eps: float):
        self._base, self._form, self._eps = base, form, eps

    def conv(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, padding: int = 1, dilation: int = 1,
             norm_follows: bool = True, bias: bool = False) -> nn.Module:
        plain = self._base.conv(inputs, outputs, kernel, stride, padding, dilation, norm_follows, bias)
        return StandardisedConv2d(plain, self._form, self._eps) if norm_follows else plain

    def norm(self, channels: int, relu: bool = True) -> nn.Module:
        return self._base.norm(channels, relu)


class StandardisedConv2d(nn.Module):
    """The weight less its mean, over the root of variance + eps, or (form "code") the unbiased deviation + eps; or (form
    "centred") over 1."""

    def __init__(self, like: nn.Conv2d, form: str, eps: float):
        super().__init__()
        self._how = dict(stride=like.stride, padding=like.padding, dilation=like.dilation)
        self._form, self._eps = form, eps
        self.weight, self.bias = like.weight, like.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        of_filter = dict(dim=(1, 2, 3), keepdim=True)
        if self._form == "centred":
            return F.conv2d(x, self.weight - self.weight.mean(**of_filter), self.bias, **self._how)
        variance = self.weight.var(unbiased=self._form == "code", **of_filter)
        scale = variance.sqrt() + self._eps if self._form == "code" else (variance + self._eps).sqrt()
        return F.conv2d(x, (self.weight - self.weight.mean(**of_filter)) / scale, self.bias, **self._how)


class DynamicTanhs(Layers):
    always_biased = False

    def __init__(self, alpha: float = 0.5, affine: bool = True):
        self._alpha, self._affine = alpha, affine

    def norm(self, channels: int, relu: bool = True) -> nn.Module:
        return DynamicTanh(channels, self._alpha, self._affine)


class DynamicTanh(nn.Module):
    """y = weight tanh(alpha x) + bias (Zhu et al. 2025)."""

    def __init__(self, channels: int, alpha: float, affine: bool):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), alpha))
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.alpha * x)
        return y if self.weight is None else y * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class FilterResponseNorms(Layers):
    always_biased = False

    def __init__(self, threshold: bool = True, eps: float = 1e-6, affine: bool = True):
        self._threshold, self._eps, self._affine = threshold, eps, affine

    def norm(self, channels: int, relu: bool = True) -> nn.Module:
        return FilterResponseNorm(channels, self._eps, self._affine, self._threshold and relu)


class FilterResponseNorm(nn.Module):
    """y = weight x / sqrt(mean of x^2 + eps) + bias, of each channel of each sample; max(y, threshold) in place of the ReLU
    behind it (Singh and Krishnan 2020)."""

    def __init__(self, channels: int, eps: float, affine: bool, threshold: bool):
        super().__init__()
        self._eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None
        self.threshold = nn.Parameter(torch.zeros(channels)) if threshold else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * (x.square().mean((2, 3), keepdim=True) + self._eps).rsqrt()
        return y if self.weight is None else y * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


def layers_of(strategy: Union[str, Mapping[str, Any]]) -> Layers:
    """What makes the layers under a strategy; ValueError where its form for evaluation, or one of its options, is not known
    here."""
    name, options = named(strategy)
    if name not in OPTIONS:
        near = get_close_matches(name, OPTIONS, 1)
        raise ValueError(f"strategy: what {name} does in evaluation is not written in PyTorch yet; " + (
            f"did you mean {near[0]}?" if near else "scripts/python/bnlab/networks/norms.py is the place"))
    unknown = [key for key in options if key not in OPTIONS[name]]
    if unknown:
        known = f"there are {', '.join(sorted(OPTIONS[name]))}" if OPTIONS[name] else "it has none"
        raise ValueError(f"strategy {name}: unknown option {', '.join(unknown)}; {known}")
    if name in _WRAPPERS:
        return layers_of(options.get("base", "sync"))
    if name in _BATCH_NORMS:
        return BatchNorms(**options)
    if name == "mabn":  # whose running mean is 0
        norms = BatchNorms(**options)
        return StandardisedWeights(norms, "centred", 0.0) if options.get("centred_weights", True) else norms
    if name == "group_norm":
        return GroupNorms(**options)
    if name == "layer_norm":
        return GroupNorms(groups=1, **options)
    if name == "instance_norm":
        return GroupNorms(channels_per_group=1, **options)
    if name == "weight_norm":
        return WeightNorms(**options)
    if name == "weight_standardisation":
        base = layers_of(options.get("base", "group_norm"))
        return StandardisedWeights(base, options.get("form", "paper"), options.get("eps", 1e-5))
    if name == "dynamic_tanh":
        return DynamicTanhs(**options)
    if name == "filter_response_norm":
        return FilterResponseNorms(**options)
    assert name == "none"
    return Layers()
