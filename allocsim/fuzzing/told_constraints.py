"""What a planner is told of a program, beyond what follows from the program itself.

    cases = telling(program)          # partial pins, memory of its own told and not told, decided offsets

Everything told can be obeyed: what is decided lies side by side, at multiples of the alignments and
with room between, in arenas without an end; what the host reads stays pinned. What is told is drawn
from a number that the program itself gives, so that the same program is told the same.

What this module does not see: planners.
"""

from typing import Final
from zlib import crc32

import numpy as np

from allocsim.allocators import pin_all, pin_reads
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.model import VIEW, Bools, Program
from allocsim.model.layout import LIMIT

PINNED: Final = 0.4
"""Share of the buffers that an op writes that are told to be pinned."""

APART: Final = 0.2
"""Share of the buffers that an op touches, and are no parameters or states, told to lie in memory
of their own.
"""

BACK: Final = 0.4
"""Share of the parameters and states that are told to lie in their arena."""

DECIDED: Final = 0.2
"""Share of the buffers with a place in an arena without an end whose offset is told."""


def telling(program: Program) -> FuzzCase:
    """Return the program as a case that is told something. O(buffers)."""
    buffers = program.buffers
    count = len(buffers)
    rng = np.random.default_rng(number_of(program))
    chance = rng.random((4, count))
    touched = accessed(program)
    pinned = (pin_all(program) & (chance[0] < PINNED)) | pin_reads(program)
    own = np.where(buffers.persistent, chance[1] >= BACK, touched & (chance[1] < APART))
    endless = np.array([arena.capacity is None for arena in program.arenas], dtype=np.bool_)[buffers.arena]
    decided = touched & ~own & endless & (chance[2] < DECIDED)
    ends: dict[int, int] = {}
    fixed: dict[int, int] = {}
    for buffer in np.flatnonzero(decided).tolist():
        arena, step = int(buffers.arena[buffer]), int(buffers.alignment[buffer])
        at = -(-ends.get(arena, 0) // step) * step + int(3 * chance[3, buffer]) * step
        nbytes = int(buffers.nbytes[buffer])
        if at + nbytes > LIMIT // 4:
            continue
        fixed[buffer], ends[arena] = at, at + nbytes
    return FuzzCase(program=program, pinned=pinned, own=own, fixed=fixed)


def number_of(program: Program) -> int:
    """Return a number that is the same for the same program. O(columns)."""
    found = crc32(program.buffers.nbytes.tobytes())
    for column in (program.ops.operands, program.ops.results, program.ops.kind):
        found = crc32(np.ascontiguousarray(column).tobytes(), found)
    return found


def accessed(program: Program) -> Bools:
    """Return which buffers an op other than a view has an operand or a result in."""
    ops = program.ops
    acts = ~ops.is_kind(VIEW)
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    for values, starts in ((ops.operands, ops.operand_starts), (ops.results, ops.result_starts)):
        mask[program.values.buffer[values[np.repeat(acts, np.diff(starts))]]] = True
    return mask
