"""The words in which the judge names what a violation points at.

    op(program, step), value(program, index), buffer(program, index)   `op 17 'mul_1'` and the like
    slot(program, plan, index)                                         `cpu[128, 384)`
    ranges(found)                                                      `bytes [0, 4), [8, 12)`
    named(record, program)                                             the record with the names of all it points at

What this module does not see: what is a defect.
"""

from collections.abc import Sequence
from dataclasses import replace

from allocsim.judge.fast.owners import Range
from allocsim.judge.violations import Violation
from allocsim.model import OWN, Plan, Program


def named(
    record: Violation, program: Program, *, other: Program | None = None, wanted: Program | None = None
) -> Violation:
    """Return the record with names: its own from `program`, those of `other_*` from `other`, those
    of `want_*` from `wanted`.
    """
    other, wanted = other or program, wanted or program
    rows = (
        ("op_name", record.op, program.ops.names),
        ("value_name", record.value, program.values.names),
        ("buffer_name", record.buffer, program.buffers.names),
        ("other_op_name", record.other_op, other.ops.names),
        ("other_buffer_name", record.other_buffer, other.buffers.names),
        ("want_op_name", record.want_op, wanted.ops.names),
    )
    return replace(record, names={key: names[index] for key, index, names in rows if index is not None})


def op(program: Program, step: int) -> str:
    """Return `op 17 'mul_1'`."""
    return f"op {step} {program.ops.names[step]!r}"


def value(program: Program, index: int) -> str:
    """Return `value 4 'x'`."""
    return f"value {index} {program.values.names[index]!r}"


def buffer(program: Program, index: int) -> str:
    """Return `buffer 2 'x'`."""
    return f"buffer {index} {program.buffers.names[index]!r}"


def slot(program: Program, plan: Plan, index: int) -> str:
    """Return `cpu[128, 384)`, the addresses of the buffer's bytes, or where else it is."""
    arena = int(plan.arena[index])
    if arena < 0:
        return "memory of its own" if arena == OWN else "no slot"
    low = int(plan.offset[index])
    return f"{program.arenas[arena].name}[{low}, {low + int(program.buffers.nbytes[index])})"


def ranges(found: Sequence[Range]) -> str:
    """Return `bytes [0, 4), [8, 12)`, at most three ranges and how many more."""
    shown = ", ".join(f"[{low}, {high})" for low, high in found[:3])
    more = f" and {len(found) - 3} more ranges" if len(found) > 3 else ""
    return f"bytes {shown}{more}" if found else "no bytes"
