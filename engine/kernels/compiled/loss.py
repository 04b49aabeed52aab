"""Cross-entropy with labels or classes, forward and backward.

The contract is that of `engine.kernels.compiled`.

Gradients of a loss over classes that are too small for a normal number are 0: with many classes
they are many, and on some processors a product of matrices takes ten times as long where it meets
subnormal numbers.
"""

import math
from typing import Any

import numpy as np

from engine.kernels.compiled.jit import kernel
from engine.kernels.compiled.row_primitives import (
    copy,
    dot_around,
    exp,
    largest,
    least_normal,
    mass_of,
    masses_of,
    settle,
    summed,
)
from engine.kernels.compiled.vectors import BLOCK, stack_block


@kernel
def cross_entropy_loss(logits: Any, labels: Any, out: Any) -> None:
    """Write out[0] = mean over rows of sum(labels) * log(sum(exp(logits))) - sum(labels * logits).

    logits, labels: (T, V).
    """
    rows = logits.shape[0]
    total = 0.0
    for row in range(rows):
        x, y = logits[row], labels[row]
        top = largest(x, x.dtype.type(1))
        mass = mass_of(x, top)
        total += math.log(mass) * summed(y) - dot_around(y, x, float(top))  # float64: differences lose nothing
    out[0] = total / rows


@kernel
def cross_entropy_loss_back(grad: Any, logits: Any, labels: Any, count: Any, out: Any) -> None:
    """Write out = (softmax(logits) * sum(labels) - labels) * grad[0] / count, each row for itself.

    logits, labels, out: (T, V).
    """
    block = stack_block(out)
    rows, n = logits.shape
    factor = grad[0] / logits.dtype.type(count)
    for row in range(rows):
        x, y = logits[row], labels[row]
        top, weight = largest(x, x.dtype.type(1)), summed(y)
        mass = mass_of(x, top)
        share, zero = x.dtype.type(weight / mass), x.dtype.type(0)
        least = least_normal(share * factor)
        for start in range(0, n, BLOCK):
            a, b, o = x[start : start + BLOCK], y[start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                e = exp(a[i] - top)
                block[i] = ((zero if e < least else e) * share - b[i]) * factor
            copy(block, o)


@kernel
def cross_entropy_classes(logits: Any, classes: Any, out: Any) -> None:
    """Write out[0] = mean over rows of log(sum(exp(logits))) - logits[class]. logits: (T, V).

    classes: (T,) int32.
    """
    rows, n = logits.shape
    total = 0.0
    for row in range(rows):
        x, wanted = logits[row], classes[row]
        top = largest(x, x.dtype.type(1))
        mass = mass_of(x, top)
        if 0 <= wanted < n:
            total += math.log(mass) + (top - x[wanted])
        else:
            total = np.nan
    out[0] = total / rows


@kernel
def cross_entropy_classes_back(grad: Any, logits: Any, classes: Any, count: Any, out: Any) -> None:
    """Write out = (softmax(logits) - one_hot(classes)) * grad[0] / count, each row for itself.

    logits, out: (T, V); classes: (T,) int32.
    """
    rows, n = logits.shape
    factor = grad[0] / logits.dtype.type(count)
    for row in range(rows):
        x, o, wanted = logits[row], out[row], classes[row]
        known = 0 <= wanted < n
        mass = masses_of(x, largest(x, x.dtype.type(1)), o)
        share = x.dtype.type((1.0 if known else np.nan) / mass)
        likelihood = o[wanted] * share if known else share
        settle(o, least_normal(share * factor), share, factor)
        if known:
            o[wanted] = (likelihood - x.dtype.type(1)) * factor
