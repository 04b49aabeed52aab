"""D on ggml's kernels: a graph is run node by node under a plan and beside a reference, and every
difference is healed where it arises.

Contract: `lockstep(run, node, planned, reference, ...)` compares the operands of a node on the two
sides. It runs the node on the reference, and on the planned side unless an operand differs. A
difference is returned as a `Departure`, and the reference's result is copied to the planned side. A
departure is of kind `operand` if the operands differ, of kind `result` if equal operands give other
bytes. Sources that a kernel does not read (`NOT_READ`) are not compared.

Both sides run the library's kernels one node at a time, without its one fusion (RMS_NORM and MUL),
which changes no byte. What this module does not see: how the two sides were laid out.
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
    """A place where the planned run leaves the reference by itself."""

    run: int
    node: int
    what: str
    """`operand` or `result`."""
    slot: int
    """Source slot of an operand; 0 of a result."""
    error: float | None


@dataclass(frozen=True, slots=True)
class NodeSide:
    """One node on one side: its sources by slot, its result, and how it is run."""

    operands: Operands
    result: NDArray[Any]
    execute: Callable[[], None]


def lockstep(run: int, node: int, op: str, planned: NodeSide, reference: NodeSide) -> Departure | None:
    """Run one node on both sides as the module says.

    Return where the planned side departs, None if it does not.
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
