"""Source slots: the numbers that an engine gives to the sources of an op, if they differ from the
positions of the operands in the program.

Contract: an op's `meta.slots` lists, operand by operand from the first, the engine's slot of the
source. Operands beyond the list are no sources; they stand for old bytes that the result keeps.
Without the list each operand's slot is its position. An op has the list if an optional source is
left out or a source is not read. Nothing else records that, and evidence about kernels names
slots.

What this module does not see: the meaning of a slot in the engine.
"""

from typing import Final

from allocsim.model import Ops

SLOTS: Final = "slots"
"""Key in an op's `meta`."""


def slots_of(ops: Ops, step: int) -> list[int | None]:
    """Return the source slot of each of an op's operands; None for an operand that is no source.

    A `meta.slots` of another form has another owner and is ignored.
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
    """Return the position of the operand in a source slot; None if the op has none there."""
    slots = slots_of(ops, step)
    return slots.index(slot) if slot in slots else None
