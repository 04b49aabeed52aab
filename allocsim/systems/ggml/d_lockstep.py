"""Run the detector D on ggml's kernels: a graph is run node by node under a plan and on a
reference. After each difference the reference's result is copied to the planned side.

Contract: `lockstep(run, node, op, planned, reference)` compares the operands of a node on the two
sides. The node is always run on the reference. The node is run on the planned side only if all
operands are equal. A difference is returned as a `Departure`, and the reference's result is copied
to the planned side. The departure has the kind `operand` if operands differ. The departure has the
kind `result` if the operands are equal and the results differ. Sources that a kernel does not read
(`NOT_READ`) are not compared.

Both sides run the library's kernels one node at a time. The library's one fusion (RMS_NORM and
MUL), which changes no byte, therefore does not happen. This module does not know the addresses of
the tensors on the two sides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.array_difference import relative_error, same_bits
from allocsim.systems.ggml.dump_document import NOT_READ

Operands = Sequence[NDArray[Any] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A difference that arises at one node: all earlier differences were undone by copying."""

    run: int
    node: int
    what: str
    """The kind of the departure: `operand` or `result`."""
    slot: int
    """The source slot of a differing operand; 0 if the result differs."""
    error: float | None
    """The relative error of the differing tensor, as `relative_error` returns it."""


@dataclass(frozen=True, slots=True)
class NodeSide:
    """One node on one side: its sources by slot, its result, and the function that runs it."""

    operands: Operands
    result: NDArray[Any]
    execute: Callable[[], None]


def lockstep(run: int, node: int, op: str, planned: NodeSide, reference: NodeSide) -> Departure | None:
    """Run one node on both sides, as the docstring of the module describes.

    Return the departure of the planned side, or None if operands and results are equal.
    """
    unread = NOT_READ.get(op, ())
    pairs = list(zip(planned.operands, reference.operands, strict=True))
    differing = (
        slot
        for slot, (mine, right) in enumerate(pairs)
        if mine is not None and right is not None and slot not in unread and not same_bits(mine, right)
    )
    slot = next(differing, None)
    mine, right = planned.result, reference.result
    if slot is not None:
        one, other = pairs[slot]
        assert one is not None
        assert other is not None
        error = relative_error(one, other)
        reference.execute()
        departure = Departure(run=run, node=node, what="operand", slot=slot, error=error)
    else:
        reference.execute()
        planned.execute()
        if same_bits(mine, right):
            return None
        departure = Departure(run=run, node=node, what="result", slot=0, error=relative_error(mine, right))
    np.copyto(mine, right)
    return departure
