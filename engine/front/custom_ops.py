"""Ops of one's own: a function of arrays, its derivative in ops, and what it promises of memory.

    def forward(out, x):
        np.multiply(x, x * x, out=out)

    def backward(op, gradient, x):                      # in ops of the table, one result for each operand
        return (op("mul", gradient, op("scale", op("sqr", x), s=3.0)),)

    cube = custom_op("cube", forward, backward, in_place=(0,))
    cube(tensor([1.0, 2.0], requires_grad=True))        # at the front; graph.op("cube", x) in a graph

The op is a row of the tables like any other: planned, judged, differentiated to any order (its
derivative is made of ops), and, since its row states an alias contract, audited. Before it is
believed it is *tried*, first in a process of its own with guard pages round its arrays (one that
leaves them, crashes, exits or hangs is refused without a call in this process): whether it writes
all of its result and nothing else, its derivative against finite differences, the derivative of
that against them too, and its kernel in place against its kernel apart (detector K). It is tried at
the samples first, and again at each new combination of operand shapes before it is used there: a
kernel may be right in one row and wrong behind its first vector. What fails is refused, with the
entry or the layout; at the samples it is no op then.

What this module does not see: plans.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.front.differences import directioncheck, gradcheck
from engine.front.extension import unlearn_action
from engine.front.functions import op as apply_op
from engine.front.record import tracking, unlearn
from engine.front.tensors import EagerTensor, tensor
from engine.graph import Graph, Tensor
from engine.graph.lowering import lower
from engine.k_audit import AuditCase, audit, contiguous
from engine.k_audit.standing_cases import CASES, CallShapes
from engine.kernels import KERNELS, Kernel, register
from engine.kernels.binding import Array, Arrays, Call, on_dense
from engine.ops import OPS, ResultLayout, Rule
from engine.ops.rule import Shape
from engine.ops.shapes import floating, same_shape
from engine.p_sanitizer import foreign

Forward = Callable[..., object]
"""(out, *operands) -> nothing: writes every element of `out`."""
Backward = Callable[..., Sequence[Tensor | None]]
"""(op, gradient, *operands) -> the gradient of each operand, None for one that has none."""

SAMPLE: Final = (3, 4)


def custom_op(
    kind: str,
    forward: Forward,
    backward: Backward | None = None,
    *,
    shape: Callable[..., Shape] | None = None,
    in_place: Sequence[int] = (),
    samples: Sequence[Any] | None = None,
    arguments: Sequence[str] = ("x",),
) -> Callable[..., EagerTensor]:
    """Add an op to the tables and return it as a function of tensors.

    Args:
        kind: its name, new in the table.
        forward: writes the result, given arrays that lie densely; keeps nothing.
        backward: builds the gradients of its operands by `op(kind, *tensors, **params)`; without
            it no gradient flows.
        shape: shapes of the operands -> shape of the result; by default all have one shape.
        in_place: positions of operands over which the result may lie exactly.
        samples: one array for each operand, where the op is tried; normal numbers [3, 4] by
            default.
        arguments: names of the operands.

    Raises:
        EngineError: the name is taken, a derivative is out of tolerance (first or second order),
            or the kernel is not safe over an operand it declares. The op is not added then.
    """
    if kind in OPS or kind in KERNELS:
        raise EngineError(f"{kind!r} is an op already; an op of one's own has a name of its own")
    names = tuple(arguments)
    if bad := [place for place in in_place if not 0 <= place < len(names)]:
        raise EngineError(f"{kind}: operand {bad[0]} of {len(names)} is declared in place")
    _called(kind, "forward", forward, ("out", *names))
    if backward is not None:
        _called(kind, "backward", backward, ("op", "gradient", *names))
    rng = np.random.default_rng(0)
    tried = (
        [np.asarray(x, np.float64) for x in samples]
        if samples is not None
        else [rng.normal(size=SAMPLE) for _ in names]
    )
    trials = _Trials(kind=kind, forward=forward, samples=tried, differentiable=backward is not None)
    OPS[kind] = _rule(kind, names, backward, shape, trials)
    register(kind, {"own": Kernel(bind=on_dense(_bind(forward)), in_place=tuple((at, 0) for at in in_place))})

    def made(*operands: EagerTensor) -> EagerTensor:
        return apply_op(kind, *operands)

    trials.made = made
    try:
        _in_a_child(kind, tried)
        result = made(*(tensor(x) for x in tried))
        shapes = tuple(x.shape or (1,) for x in tried), result.shape
        _writes_its_result(kind, forward, tried, result.shape)
        CASES[kind] = lambda: (CallShapes(operands=shapes[0], result=shapes[1]),)
        _try(kind, made, tried, shapes, gradcheck if backward is not None else None)
    except BaseException:
        forget(kind)
        raise
    trials.begun = True
    made.__name__ = kind
    return made


def forget(kind: str) -> None:
    """Take an op of one's own out of the tables."""
    row = KERNELS.get(kind)
    if row is not None and "own" not in row:
        raise EngineError(f"{kind!r} is no op of one's own")
    OPS.pop(kind, None)
    CASES.pop(kind, None)
    register(kind, None)
    unlearn(kind)
    unlearn_action(kind)


def _called(kind: str, what: str, function: Callable[..., object], words: tuple[str, ...]) -> None:
    """Raise EngineError unless a function takes the words it will be called with."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a ufunc and the like say nothing of their arguments
        return
    try:
        signature.bind(*words)
    except TypeError:
        raise EngineError(f"{kind}: {what} is called as {what}({', '.join(words)}), and takes {signature}") from None


def _in_a_child(kind: str, tried: list[Array]) -> None:
    """Raise EngineError if a forward leaves its arrays, or does not come back: it is not called in
    this process then.
    """
    if not hasattr(os, "fork"):
        return
    graph = Graph(kind)
    inputs = {f"operand.{n}": x.reshape(x.shape or (1,)).astype(np.float32) for n, x in enumerate(tried)}
    made = graph.op(kind, *(graph.input(name, x.shape) for name, x in inputs.items()))
    graph.expand(made)
    lowered = lower(graph, (made,))
    found = foreign(lowered, find("reference").plan(lowered.program), inputs)
    swapped = any(incident.kind == "OperandWritten" for incident in found)
    harmless = {"OperandWritten", "ResultUnwritten", *(("UndeclaredRead",) if swapped else ())}
    for incident in found:
        if incident.kind not in harmless:  # what is harmless here is refused with better words, by `_writes_its_result`
            raise EngineError(f"{kind}: its kernel is at fault: {incident.message}")


def _writes_its_result(kind: str, forward: Forward, tried: list[Array], shape: Shape) -> None:
    """Raise EngineError if a forward changes an operand, or leaves its result partly unwritten."""
    found = []
    for start in (0.0, 1.0):
        out, operands = np.full(shape, start), [x.reshape(x.shape or (1,)).copy() for x in tried]
        with np.errstate(all="ignore"):
            forward(out, *operands)
        found.append(out)
        if any(x.tobytes() != given.tobytes() for x, given in zip(operands, tried, strict=True)):
            raise EngineError(f"{kind}: forward changes an operand; it writes its first argument, the result, alone")
    if found[0].tobytes() != found[1].tobytes():
        raise EngineError(f"{kind}: forward does not write every element of the result, its first argument")


def _bind(forward: Forward) -> Callable[[Any, Arrays, Arrays], Call]:
    def bind(params: Any, operands: Arrays, results: Arrays) -> Call:
        del params
        return forward, (results[0], *operands)

    return bind


@dataclass(slots=True, kw_only=True)
class _Trials:
    """Where an op was tried, so that each combination of operand shapes is tried once."""

    kind: str
    forward: Forward
    samples: list[Array]
    differentiable: bool
    made: Callable[..., EagerTensor] | None = None
    begun: bool = False
    """Whether the samples are through; until then, and within a trial, calls are part of one."""
    refused: dict[tuple[Shape, ...], str] = field(default_factory=dict)
    """Operand shapes -> why the op is not used there; an empty text is none."""

    def at(self, operands: tuple[Shape, ...], result: Shape) -> None:
        """Try the op at operands of these shapes, unless that was done.

        Raises EngineError where it does not hold what it promises, each time.
        """
        if not self.begun:
            return
        if operands not in self.refused:
            self.begun, self.refused[operands] = False, ""
            try:
                copy_context().run(self._try, operands, result)
            except EngineError as error:
                self.refused[operands] = f"{error} (operands of shapes {', '.join(map(str, operands))})"
                unlearn(self.kind)  # the trial's own calls were remembered as ones that may be made
            finally:
                self.begun = True
        if self.refused[operands]:
            raise EngineError(self.refused[operands])

    def _try(self, operands: tuple[Shape, ...], result: Shape) -> None:
        assert self.made is not None
        tracking.set(True)
        draw = np.random.default_rng(0)
        given = [
            draw.choice(sample.reshape(-1), shape) if sample.size else np.zeros(shape)
            for sample, shape in zip(self.samples, operands, strict=True)
        ]
        _in_a_child(self.kind, given)
        _writes_its_result(self.kind, self.forward, given, result)
        flows = self.differentiable and all(x.size for x in given)
        _try(self.kind, self.made, given, (operands, result), directioncheck if flows else None)


def _rule(
    kind: str, names: tuple[str, ...], backward: Backward | None, shape: Callable[..., Shape] | None, trials: _Trials
) -> Rule:
    def layout(sources: Any, params: dict[str, Any]) -> ResultLayout:
        del params
        for other in sources if shape is None else ():
            same_shape(sources[0], other)
        shapes = tuple(x.shape for x in sources)
        made = shapes[0] if shape is None else tuple(shape(*shapes))
        dtype = floating(*sources)
        trials.at(shapes, made)
        return ResultLayout(shape=made, dtype=dtype)

    def derivative(position: int) -> Callable[[Tensor, Tensor], Tensor]:
        def rule(node: Tensor, gradient: Tensor) -> Tensor:
            assert backward is not None
            found = tuple(backward(node.graph.op, gradient, *node.sources))
            if len(found) != len(names):
                raise EngineError(f"{kind}: backward gives {len(found)} gradients for {len(names)} operands")
            given, source = found[position], node.sources[position]
            return node.graph.op("full", shape=source.shape, dtype=source.dtype) if given is None else given

        return rule

    flowing = names if backward is not None else ()
    return Rule(
        kind=kind,
        arguments=names,
        shape=layout,
        derivatives={name: derivative(position) for position, name in enumerate(flowing)},
        constant=frozenset(names) - frozenset(flowing),
    )


def _try(
    kind: str,
    made: Callable[..., EagerTensor],
    tried: list[Array],
    shapes: tuple[tuple[Shape, ...], Shape],
    check: Callable[..., object] | None,
) -> None:
    """Raise EngineError unless the derivatives are right (`check`) and the alias contract holds."""
    if check is not None:
        _within(kind, "the derivative", lambda: check(made, *tried))
        _within(kind, "the second derivative", lambda: check(_slope(made), *tried))
    operands, result = shapes
    cases = [
        AuditCase(
            kind=kind, operands=tuple(contiguous(dtype, x) for x in operands), results=(contiguous(dtype, result),)
        )
        for dtype in ("f32", "f64")
    ]
    for row in audit(kernels={kind: KERNELS[kind]}, cases=cases):
        if row.broken:
            raise EngineError(
                f"{kind}: declared safe with its result over operand {row.operand}, and is not: {row.words}"
            )


def _within(kind: str, what: str, check: Callable[[], object]) -> None:
    try:
        check()
    except EngineError as error:
        raise EngineError(f"{kind}: {what}: {error}") from None


def _slope(made: Callable[..., EagerTensor]) -> Callable[..., EagerTensor]:
    """Return a weighted sum of the gradients of an op by its operands, as a function of these.

    Its gradient has the op's second derivatives in it. History is kept also where differences are
    taken, since there is a gradient inside.
    """

    def weights(place: int, shape: Shape) -> Array:
        return np.random.default_rng(place).uniform(0.5, 1.5, shape)

    def function(*operands: EagerTensor) -> EagerTensor:
        before = [x.grad for x in operands]
        token = tracking.set(True)
        try:
            probes = [tensor(np.zeros(x.shape), True) for x in operands]
            out = made(*(x + probe for x, probe in zip(operands, probes, strict=True)))
            out.backward(weights(0, out.shape), create_graph=True)
            total = (operands[0] * 0.0).sum()
            for x in operands[1:]:
                total = total + (x * 0.0).sum()
            for place, probe in enumerate(probes, 1):
                if probe.grad is not None:
                    total = total + (probe.grad * tensor(weights(place, probe.shape))).sum()
        finally:
            tracking.reset(token)
        for x, gradient in zip(operands, before, strict=True):
            x.grad = gradient
        return total

    return function
