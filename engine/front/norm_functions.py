"""Norms over channels, and the convolution turned round, with PyTorch's names and formulas.

Channels are axis 1. Statistics are those of what is given, or numbers that are; running ones are
states of whoever calls (`engine.front.states`).

What this module does not see: nodes' history, plans, kernels.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.front.axis_functions import var
from engine.front.core_functions import concat, op, split
from engine.front.elementwise_functions import clone, lerp, rsqrt
from engine.front.randomness import training
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, no_grad, operand
from engine.ops.shapes import real, whole


def _scaled(x: EagerTensor, gain: Any, bias: Any) -> EagerTensor:
    """Return x times a number a channel, plus one."""
    x = x if gain is None else x * _of_channels(gain, x)
    return x if bias is None else x + _of_channels(bias, x)


def _of_channels(given: Any, x: EagerTensor) -> EagerTensor:
    """Return numbers [C] as they stand beside x[N, C, ..]."""
    found = operand(given, x)
    if found.shape != x.shape[1:2]:
        raise EngineError(f"a channel of {x.shape} has one number each; shape {found.shape} is given")
    return found.reshape(1, -1, *(1,) * (x.ndim - 2))


@in_float32
def batch_norm(
    x: EagerTensor,
    gain: Any = None,
    bias: Any = None,
    *,
    mean: Any = None,
    variance: Any = None,
    momentum: float | None = None,
    eps: float = 1e-5,
) -> EagerTensor:
    """Return x[N, C, ..] less its mean over all axes but C, over the root of the variance there.

    With `mean` and `variance` [C] given, by these, as in evaluation. With a `momentum` they are
    running ones: tensors that a model which is trained moves by that share towards what it found
    (the variance unbiased), and reads in evaluation. Times `gain`, plus `bias` [C].
    """
    if x.ndim < 2 or (mean is None) != (variance is None):
        raise EngineError(f"batch_norm of shape {x.shape}: [N, C, ..] is needed, and both statistics or none")
    axes = (0, *range(2, x.ndim))
    moving = momentum is not None and training()
    if mean is None or moving:
        middle, spread = x.mean(axes, keepdims=True), var(x, axes, correction=0, keepdims=True)
        if mean is not None:
            if not isinstance(mean, EagerTensor) or not isinstance(variance, EagerTensor):
                raise EngineError("batch_norm: running statistics are moved in place; give tensors, or no momentum")
            _move(mean, variance, (middle, spread), real("momentum", momentum), x.size // max(1, x.shape[1]))
    else:
        middle, spread = (_of_channels(given, x) for given in (mean, variance))
    return _scaled((x - middle) * rsqrt(spread + real("batch_norm", eps)), gain, bias)


def _move(
    mean: EagerTensor, variance: EagerTensor, found: tuple[EagerTensor, EagerTensor], share: float, count: int
) -> None:
    """Move running statistics [C] by a share to mean and biased variance of `count` numbers."""
    if count < 2 or not 0 <= share <= 1:
        raise EngineError(
            f"batch_norm: {count} number a channel and momentum {share}; a variance takes two, a share is 0 to 1"
        )
    with no_grad():
        for running, new in ((mean, found[0]), (variance, found[1] * (count / (count - 1)))):
            running.copy_(lerp(running, new.reshape(*running.shape), share))


@in_float32
def group_norm(x: EagerTensor, groups: int, gain: Any = None, bias: Any = None, *, eps: float = 1e-5) -> EagerTensor:
    """Return x[N, C, ..] normed over each of `groups` runs of channels, times gain, plus bias."""
    groups = whole("group_norm", groups)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise EngineError(f"group_norm of shape {x.shape}: {groups} groups do not divide the channels")
    rows = op("norm", x.reshape(x.shape[0], groups, -1), eps=real("group_norm", eps))
    return _scaled(rows.reshape(x.shape), gain, bias)


@in_float32
def instance_norm(x: EagerTensor, gain: Any = None, bias: Any = None, *, eps: float = 1e-5) -> EagerTensor:
    """Return x[N, C, ..] normed over each channel of each of the N alone."""
    return group_norm(x, x.shape[1] if x.ndim > 1 else 0, gain, bias, eps=eps)


@in_float32
def conv_transpose2d(
    x: EagerTensor,
    weight: EagerTensor,
    bias: Any = None,
    *,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: int = 1,
) -> EagerTensor:
    """Return the gradient of `conv2d` by its input: x[N, F, H, W], weight [F, C / groups, KH, KW]
    -> [N, C, (H - 1) stride - 2 padding + dilation (KH - 1) + 1 + output_padding, ..], plus `bias`
    [C].
    """
    if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[0]:
        raise EngineError(
            f"conv_transpose2d of {x.shape} by {weight.shape}: [N, F, H, W] and [F, C, KH, KW] are needed"
        )
    sizes = [
        (n - 1) * stride - 2 * padding + dilation * (k - 1) + 1 + output_padding
        for n, k in zip(x.shape[2:], weight.shape[2:], strict=True)
    ]
    if min(sizes) < 1:
        raise EngineError(f"conv_transpose2d of {x.shape} by {weight.shape}: nothing is left, {sizes}")
    how = {name: (value, value) for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation))}
    shape = (x.shape[0], weight.shape[1], *sizes)
    parts = zip(split(x, groups, 1), split(weight, groups, 0), strict=True)
    made = [op("conv_2d_back_x", clone(one), part, shape=shape, **how) for one, part in parts]
    return _scaled(concat(made, 1) if groups > 1 else made[0], None, bias)


__all__ = ["batch_norm", "conv_transpose2d", "group_norm", "instance_norm"]
