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

Names are imported when they are first used: importing the package loads neither numpy nor numba.
`__init__.pyi` beside this file is the one list of them. A new op is a row of `engine.ops.OPS` and a
kernel of `engine.kernels.KERNELS`; models are in `engine.models`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
