"""Losses, with PyTorch's names, formulas and reductions: `mean` (of all elements), `sum`, `none`.

Predictions come first, targets broadcast to them, never they to targets, and have a gradient where
they want one. Class numbers are whole; `ignore_index` is a class number that counts as no row.

What this module does not see: nodes' history, plans, kernels.
"""

from math import exp, log, pi
from math import prod as product
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front import core_functions
from engine.front.axis_functions import cosine_similarity, logsumexp
from engine.front.core_functions import aimed, concat, embedding, gather, maximum, one_hot, pad, stack, where
from engine.front.elementwise_functions import log_sigmoid
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, operand, tensor, within
from engine.ops.shapes import real, whole

REDUCTIONS = ("mean", "sum", "none")


def _reduced(loss: EagerTensor, reduction: str, count: Any = None) -> EagerTensor:
    """Return a loss as its reduction wants it; `count` is what a mean divides by, if not all."""
    if reduction not in REDUCTIONS:
        raise EngineError(f"reduction {reduction!r} is none of {', '.join(REDUCTIONS)}")
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if count is None else loss.sum() / count


@in_float32
def l1_loss(prediction: EagerTensor, target: Any, *, reduction: str = "mean") -> EagerTensor:
    """Return |prediction - target|."""
    return _reduced((prediction - aimed("l1_loss", prediction, target)).abs(), reduction)


@in_float32
def huber_loss(prediction: EagerTensor, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> EagerTensor:
    """Return d^2 / 2 where |d| is at most `delta`, delta (|d| - delta / 2) beyond (Huber 1964)."""
    apart, delta = prediction - aimed("huber_loss", prediction, target), real("huber_loss", delta)
    if delta <= 0:
        raise EngineError(f"huber_loss: a distance of {delta} from which on the loss is straight; above 0")
    near = apart.clamp(-delta, delta)
    return _reduced(near * (apart - near * 0.5), reduction)


@in_float32
def smooth_l1_loss(prediction: EagerTensor, target: Any, *, beta: float = 1.0, reduction: str = "mean") -> EagerTensor:
    """Return the Huber loss over `beta`; with beta 0 it is the l1 loss."""
    if not beta:
        return l1_loss(prediction, target, reduction=reduction)
    return huber_loss(prediction, target, delta=beta, reduction=reduction) * (1 / beta)


@in_float32
def binary_cross_entropy(
    probability: EagerTensor, target: Any, *, weight: Any = None, reduction: str = "mean"
) -> EagerTensor:
    """Return -(t log p + (1 - t) log(1 - p)), each logarithm -100 at least, with a slope of 10^12
    from there on. PyTorch's has none above that: it bounds 1 / p too.
    """
    goal = within("binary_cross_entropy", target, probability)
    yes, no = (_logarithm(p) for p in (probability, 1.0 - probability))
    loss = -(goal * yes + (1.0 - goal) * no)
    return _reduced(_weighted("binary_cross_entropy", loss, weight), reduction)


def _weighted(what: str, loss: EagerTensor, weight: Any) -> EagerTensor:
    return loss if weight is None else loss * within(what, weight, loss)


def _logarithm(p: EagerTensor) -> EagerTensor:
    none = p.abs() <= exp(-100)
    return where(none, p * 1e12 - 100.0, where(none, 1.0, p).log())


@in_float32
def binary_cross_entropy_with_logits(
    logits: EagerTensor, target: Any, *, weight: Any = None, pos_weight: Any = 1.0, reduction: str = "mean"
) -> EagerTensor:
    """Return the binary cross entropy of sigmoid(logits) without overflow."""
    what = "binary_cross_entropy_with_logits"
    goal, more = within(what, target, logits), within(what, pos_weight, logits)
    loss = -(goal * log_sigmoid(logits) * more + (1.0 - goal) * log_sigmoid(-logits))
    return _reduced(_weighted(what, loss, weight), reduction)


@in_float32
def kl_div(
    log_probability: EagerTensor, target: Any, *, reduction: str = "mean", log_target: bool = False
) -> EagerTensor:
    """Return target * (log target - log_probability), 0 where the target is 0; `batchmean` divides
    by the length of the first axis, as the divergence is defined.
    """
    goal = within("kl_div", target, log_probability)
    if log_target:
        loss = goal.exp() * (goal - log_probability)
    else:
        none = goal == 0.0
        loss = where(none, 0.0, goal * (where(none, 1.0, goal).log() - log_probability))
    if reduction == "batchmean" and loss.ndim:
        return loss.sum() / float(loss.shape[0])
    return _reduced(loss, reduction)


@in_float32
def hinge_embedding_loss(x: EagerTensor, target: Any, *, margin: float = 1.0, reduction: str = "mean") -> EagerTensor:
    """Return x where the target is 1, max(0, margin - x) where it is -1, and both elsewhere."""
    goal = within("hinge_embedding_loss", target, x)
    near, apart = where(goal == -1.0, 0.0, x), where(goal == 1.0, 0.0, (real("margin", margin) - x).relu())
    return _reduced(near + apart, reduction)


@in_float32
def margin_ranking_loss(
    one: EagerTensor, other: EagerTensor, target: Any, *, margin: float = 0.0, reduction: str = "mean"
) -> EagerTensor:
    """Return max(0, margin - target * (one - other)); the target is 1 or -1."""
    apart = one - other
    return _reduced((real("margin", margin) - within("margin_ranking_loss", target, apart) * apart).relu(), reduction)


@in_float32
def cosine_embedding_loss(
    one: EagerTensor, other: EagerTensor, target: Any, *, margin: float = 0.0, reduction: str = "mean"
) -> EagerTensor:
    """Return 1 - cos of rows where the target is 1, max(0, cos - margin) where it is -1."""
    near = cosine_similarity(one, other)
    like = (within("cosine_embedding_loss", target, near) + 1.0) * 0.5
    return _reduced((1.0 - near) * like + (near - real("margin", margin)).relu() * (1.0 - like), reduction)


@in_float32
def triplet_margin_loss(
    anchor: EagerTensor, near: EagerTensor, far: EagerTensor, *, margin: float = 1.0, reduction: str = "mean"
) -> EagerTensor:
    """Return max(0, |anchor - near| - |anchor - far| + margin) over the last axis, with 1e-6 added
    to each difference, as PyTorch's.
    """
    from engine.front.axis_functions import norm  # noqa: PLC0415 - axis functions and losses are beside each other

    close, away = (norm(anchor - other + 1e-6, 2, -1) for other in (near, far))
    return _reduced((close - away + real("margin", margin)).relu(), reduction)


@in_float32
def poisson_nll_loss(
    x: EagerTensor, target: Any, *, log_input: bool = True, eps: float = 1e-8, reduction: str = "mean"
) -> EagerTensor:
    """Return exp(x) - target * x, or x - target * log(x + eps) of rates, without the constant."""
    goal = within("poisson_nll_loss", target, x)
    return _reduced(x.exp() - goal * x if log_input else x - goal * (x + eps).log(), reduction)


@in_float32
def gaussian_nll_loss(
    x: EagerTensor, target: Any, variance: Any, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> EagerTensor:
    """Return (log v + (x - target)^2 / v) / 2, v the variance and eps at least: of each element, of
    each row (without the last axis, or 1 long there), or of all.
    """
    apart, spread = x - aimed("gaussian_nll_loss", x, target), operand(variance, x).clamp(real("eps", eps))
    if x.ndim and spread.shape == x.shape[:-1]:
        spread = spread.reshape(*spread.shape, 1)
    if spread.shape not in {(), x.shape, (*x.shape[:-1], 1)}:
        raise EngineError(
            f"gaussian_nll_loss of shape {x.shape}: variances of shape {spread.shape} are none of its rows"
        )
    loss = (spread.log() + apart * apart / spread) * 0.5
    return _reduced(loss + 0.5 * log(2 * pi) if full else loss, reduction)


@in_float32
def nll_loss(
    log_probabilities: EagerTensor, classes: Any, *, ignore_index: int = -100, reduction: str = "mean"
) -> EagerTensor:
    """Return -log_probabilities at the class numbers of its rows [.., C]; those of `ignore_index`
    are 0, and no row of a mean.
    """
    chosen = _chosen("nll_loss", log_probabilities, classes, ignore_index)
    return _reduced(-_weighed(log_probabilities, chosen), reduction, chosen.sum())


@in_float32
def cross_entropy(
    logits: EagerTensor, labels: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> EagerTensor:
    """Return the mean over rows of -sum(labels * log_softmax(logits)).

    Labels are distributions like logits [.., C], or class numbers for each row. Without a number to
    be ignored, smoothing or another reduction it is one op. `label_smoothing` takes that share of
    each label and gives it to all classes alike, as of one that sums to 1.
    """
    smooth = real("label_smoothing", label_smoothing)
    if not 0 <= smooth <= 1:
        raise EngineError(f"label_smoothing is {smooth}; it is a share, from 0 to 1")
    if not smooth and reduction == "mean" and not _ignores(labels, ignore_index):
        return core_functions.cross_entropy(logits, labels)
    surprise = logits.log_softmax()
    share: Any = smooth / max(surprise.shape[-1], 1)
    if _is_floating(labels):
        goal = within("cross_entropy", labels, logits)
        count = tensor(float(product(logits.shape[:-1])), dtype=logits.dtype)
    else:
        goal = _chosen("cross_entropy", logits, labels, ignore_index)
        count, share = goal.sum(), goal.sum(-1, keepdims=True) * share
    weights = goal * (1 - smooth) + share
    chosen = (surprise * weights).sum(-1) if _is_floating(labels) else _weighed(surprise, weights)
    return _reduced(-chosen, reduction, count)


def _weighed(logarithms: EagerTensor, weights: EagerTensor) -> EagerTensor:
    """Return the sums of rows, weighed; what has no weight counts as 0, infinite or not."""
    return where(weights == 0.0, 0.0, logarithms * weights).sum(-1)


def _is_floating(labels: Any) -> bool:
    found = labels if isinstance(labels, EagerTensor) else np.asarray(labels)
    return found.dtype.kind == "f"


def _ignores(labels: Any, ignore_index: int) -> bool:
    """Whether class numbers hold the one to be ignored; of those that a program is given in each
    run nobody knows, and they are taken to where the number is no class that could be meant.
    """
    if _is_floating(labels):
        return False
    if core_functions.follows(labels):
        return ignore_index >= 0
    found = labels.data if isinstance(labels, EagerTensor) else np.asarray(labels)
    return bool((found == ignore_index).any())


def _chosen(what: str, rows: EagerTensor, classes: Any, ignore_index: int) -> EagerTensor:
    """Return 1 at the class of each row [.., C], 0 elsewhere and in rows that are ignored."""
    ignore, count = whole(what, ignore_index), rows.shape[-1]
    if core_functions.follows(classes):  # a number that is no class gives NaN, the ignored one zeros
        table = np.eye(count)
        if 0 <= ignore < count:
            table[ignore] = 0
        return embedding(tensor(table, dtype=rows.dtype), classes)
    ids = core_functions.numbers(what, classes)
    if ids.shape != rows.shape[:-1]:
        raise EngineError(f"{what}: rows of shape {rows.shape[:-1]}, class numbers {ids.shape}")
    kept = ids != ignore
    safe = np.where(kept, ids, 0)
    return one_hot(safe, count, dtype=rows.dtype) * tensor(kept[..., None], dtype=rows.dtype)


@in_float32
def ctc_loss(
    log_probabilities: EagerTensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> EagerTensor:
    """Return -log of the chance of all ways to say targets[N, S] in log_probabilities[T, N, C]
    (Graves et al. 2006); `mean` divides each by its target's length first.

    Lengths are whole numbers [N]; what a row of targets holds beyond its length is not read. A
    target that does not fit is infinite, or 0 and without a gradient (`zero_infinity`). Targets one
    after the other in one dimension, and the blank as a label, are not taken.
    """
    labels, given, wanted = (core_functions.numbers("ctc_loss", x) for x in (targets, input_lengths, target_lengths))
    if log_probabilities.ndim != 3 or labels.ndim != 2 or not labels.shape[:1] == given.shape == wanted.shape:
        raise EngineError(
            f"ctc_loss of {log_probabilities.shape} for {labels.shape}: [T, N, C] and [N, S], lengths [N]"
        )
    steps, count, _ = log_probabilities.shape
    if (
        count != len(labels)
        or not ((given >= 1) & (given <= steps) & (wanted >= 0) & (wanted <= labels.shape[1])).all()
    ):
        raise EngineError(
            f"ctc_loss: lengths {given.tolist()} of {steps} steps, {wanted.tolist()} of {labels.shape[1]}"
        )
    within = np.arange(labels.shape[1]) < wanted[:, None]
    if (within & (labels == whole("ctc_loss", blank))).any():
        raise EngineError(f"ctc_loss: {blank} is the blank, and stands among the labels {labels.tolist()}")
    states = np.full((count, 2 * labels.shape[1] + 1), blank, np.int32)
    states[:, 1::2] = np.where(within, labels, blank)
    said = gather(log_probabilities, np.broadcast_to(states, (steps, *states.shape)), -1)
    skips = np.pad(states[:, 2:] != states[:, :-2], ((0, 0), (2, 0)))[:, : states.shape[1]]  # never over a blank
    begun = np.arange(states.shape[1]) < 2
    reached = where(np.broadcast_to(begun, states.shape), said[0], _NEVER)
    for step in range(1, steps):
        moved = [reached, *(pad(reached, (0, by), (0, 0), _NEVER)[:, : states.shape[1]] for by in (1, 2))]
        ways = stack([*moved[:2], where(skips, moved[2], _NEVER)])
        going = np.broadcast_to((step < given)[:, None], states.shape)
        reached = where(going, logsumexp(ways, 0) + said[step], reached)
    ends = [np.maximum(2 * wanted - by, 0)[:, None] for by in (0, 1)]
    last = [gather(reached, at, -1) for at in ends]
    last[1] = where((wanted > 0)[:, None], last[1], _NEVER)
    loss = -logsumexp(concat(last, 1), 1)
    loss = where(loss > -_NEVER / 2, 0.0 if zero_infinity else float("inf"), loss)
    return _reduced(loss / np.maximum(wanted, 1).astype(loss.dtype) if reduction == "mean" else loss, reduction)


_NEVER = -1e30
"""The logarithm of the chance of what cannot be: finite, so that no gradient is NaN."""


@in_float32
def focal_loss(
    logits: EagerTensor, target: Any, *, gamma: float = 2.0, alpha: float = -1.0, reduction: str = "mean"
) -> EagerTensor:
    """Return the binary cross entropy times (1 - p_t) ** gamma (Lin et al. 2017); an alpha of 0 to
    1 weighs positives by it.
    """
    goal, p = within("focal_loss", target, logits), logits.sigmoid()
    loss = binary_cross_entropy_with_logits(logits, goal, reduction="none")
    missed = maximum(1.0 - (p * goal + (1.0 - p) * (1.0 - goal)), 0.0)
    weight = 1.0 if alpha < 0 else goal * alpha + (1.0 - goal) * (1.0 - alpha)
    return _reduced(loss * missed ** real("focal_loss", gamma) * weight, reduction)


__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy",
    "ctc_loss", "focal_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "triplet_margin_loss",
]  # fmt: skip
