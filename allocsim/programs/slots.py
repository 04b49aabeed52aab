"""Source slots: where an engine counts the sources of an op otherwise than a program lists its
operands.

Contract: an op's `meta.slots` lists, operand by operand from the first, the slot that its engine
gives the source. Operands beyond the list are no sources of the op (what its result keeps of what
lay there). Without the list each operand's slot is its position. The list is there where an
optional source is left out or one is not read; it is the only place that says so, and evidence
about kernels names slots.

What this module does not see: what a slot means to the engine.
"""

from typing import Final

from allocsim.model import Ops

SLOTS: Final = "slots"
"""Key in an op's `meta`."""


def slots_of(ops: Ops, step: int) -> list[int | None]:
    """Return the source slot of each of an op's operands; None where one is no source.

    A `meta.slots` of another form is somebody else's.
    """
    said = ops.meta.get(step, {}).get(SLOTS)
    operands = int(ops.operand_starts[step + 1] - ops.operand_starts[step])
    if (
        not isinstance(said, list | tuple)
        or len(said) > operands
        or any(type(slot) is not int or slot < 0 for slot in said)
    ):
        return list(range(operands))
    return [*said, *[None] * (operands - len(said))]


def position_of(ops: Ops, step: int, slot: int) -> int | None:
    """Return the position of the operand in a source slot; None where the op has none there."""
    slots = slots_of(ops, step)
    return slots.index(slot) if slot in slots else None
