"""A reverse-mode autodiff and training engine whose memory is planned from outside.

    graph   = engine.Graph("step")                           # tensors and ops, shapes inferred
    loss    = graph.op(...)
    grads   = engine.backward(graph, loss)                   # ordinary nodes, appended
    lowered = lower(graph, [loss])                           # engine.graph.lowering: an allocsim.model.Program, and the way back
    plan    = allocsim.allocators.find("ggml").plan(lowered.program)
    with engine.Runtime(lowered, plan, parameters=weights) as runtime:
        runtime.run(inputs)["loss"]

or, typed at a prompt (`engine.front`; what is no method is in `engine.front.functions`):

    y = (engine.tensor(2.0, requires_grad=True) * 3 + 1) ** 2
    y.backward()

Names are imported when they are first used: importing the package loads neither numpy nor numba. A
new op is a row of `engine.ops.OPS` and a kernel of `engine.kernels.KERNELS`; models are in
`engine.models`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from engine.autodiff import backward
    from engine.front import (
        clear,
        detect_anomaly,
        gradcheck,
        hessian,
        jacobian,
        jvp,
        kept_bytes,
        model,
        no_grad,
        scope,
        tensor,
        vmap,
    )
    from engine.front.custom_ops import custom_op
    from engine.graph import Graph, Tensor
    from engine.graph.lowering import Lowered
    from engine.kernels import KERNELS, Kernel
    from engine.ops import OPS, Rule
    from engine.runtime import Runtime

_HOMES: Final = {
    "Graph": "engine.graph",
    "KERNELS": "engine.kernels",
    "Kernel": "engine.kernels",
    "Lowered": "engine.graph.lowering",
    "OPS": "engine.ops",
    "Rule": "engine.ops",
    "Runtime": "engine.runtime",
    "Tensor": "engine.graph",
    "backward": "engine.autodiff",
    "clear": "engine.front",
    "custom_op": "engine.front.custom_ops",
    "detect_anomaly": "engine.front",
    "gradcheck": "engine.front",
    "hessian": "engine.front",
    "jacobian": "engine.front",
    "jvp": "engine.front",
    "kept_bytes": "engine.front",
    "model": "engine.front",
    "no_grad": "engine.front",
    "scope": "engine.front",
    "tensor": "engine.front",
    "vmap": "engine.front",
}
"""Where each public name lives."""

__all__ = [
    "KERNELS",
    "OPS",
    "Graph",
    "Kernel",
    "Lowered",
    "Rule",
    "Runtime",
    "Tensor",
    "backward",
    "clear",
    "custom_op",
    "detect_anomaly",
    "gradcheck",
    "hessian",
    "jacobian",
    "jvp",
    "kept_bytes",
    "model",
    "no_grad",
    "scope",
    "tensor",
    "vmap",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
