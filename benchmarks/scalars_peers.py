"""The chain of `scalars.py` in one of its peers, by an interpreter that has it: seconds of CPU time a node, and the derivative by x.

Needs that peer and numpy, nothing of this project. Forward and backward together, after a short chain that loads what it needs.
"""

import time
from collections.abc import Callable
from typing import Any


def chain(x: Any, w: Any, nodes: int, tanh: Callable[[Any], Any]) -> Any:
    """Return the end of a chain of `nodes` ops."""
    y = x
    for _ in range(nodes // 4):
        y = tanh(y * w + x) * 0.5
    return y


def autograd(nodes: int) -> float:
    """HIPS autograd."""
    import autograd.numpy as anp
    from autograd import grad

    return float(grad(lambda x, w: chain(x, w, nodes, anp.tanh), argnum=(0, 1))(0.5, 0.999)[0])


def micrograd(nodes: int) -> float:
    """A micrograd `Value`, with the tanh of its lecture; it recurses."""
    import math

    from micrograd.engine import Value

    def tanh(value: Any) -> Any:
        t = math.tanh(value.data)
        out = Value(t, (value,), "tanh")

        def back() -> None:
            value.grad += (1 - t * t) * out.grad

        out._backward = back  # noqa: SLF001 - as its own ops do
        return out

    x, w = Value(0.5), Value(0.999)
    chain(x, w, nodes, tanh).backward()
    return float(x.grad)


def torch(nodes: int) -> float:
    """PyTorch, eager, float64."""
    import torch as pytorch

    pytorch.set_num_threads(1)
    x, w = (pytorch.tensor(v, dtype=pytorch.float64, requires_grad=True) for v in (0.5, 0.999))
    chain(x, w, nodes, pytorch.tanh).backward()
    return float(x.grad)


def measured(name: str, nodes: int) -> tuple[float, float]:
    """Measure once."""
    peer = {"autograd": autograd, "micrograd": micrograd, "torch": torch}[name]
    peer(40)
    start = time.process_time()
    derivative = peer(nodes)
    return (time.process_time() - start) / nodes, derivative
