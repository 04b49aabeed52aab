"""What a planner is told of a program, beyond what follows from the program itself.

    case = telling(program)           # partial pins, memory of its own told and not told, decided offsets
    case = gapped(program)            # the lives of its buffers, with gaps, as a belief of a program without ops

Everything told can be obeyed: what is decided lies side by side, at multiples of the alignments and
with room between, in arenas without an end; what the host reads stays pinned. What is told is drawn
from a number that the program itself gives, so that the same program is told the same.

A belief with gaps is of a program without ops, since only there nothing but what is stated says
when bytes are needed: any gap within a life is right.

What this module does not see: planners.
"""

from collections import Counter
from dataclasses import replace
from typing import Final
from zlib import crc32

import numpy as np

from allocsim.allocators import pin_all, pin_reads
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.model import VIEW, Bools, Problem, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.access_steps import first_and_last
from allocsim.programs.builder import ProgramBuilder

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


GAPPED: Final = 0.6
"""Share of the lives of three steps or more that have a gap."""

TWICE: Final = 0.5
"""Share of these that have a second one, where there is room."""

TOLD: Final = ("some pinned", "own told", "offset decided", "gap in a life")
"""What a case may be told, as features of the coverage table."""


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


def gapped(program: Program, origin: "Int64s | int" = 0) -> FuzzCase:
    """Return the lives of a program's buffers as a case of its own: what is believed of a program
    without ops, with gaps.

    `origin` is the step from which the life of each buffer is counted. O(columns).
    """
    count = len(program.buffers)
    rng = np.random.default_rng(number_of(program))
    chance = rng.random((6, count))
    first, last = first_and_last(program)
    lives = (last >= 0) & ~program.buffers.persistent
    start = np.where(lives, first - origin, 0)
    stop = np.where(lives, last + 1 - origin, 0)
    low = start + 1 + (chance[1] * (stop - start - 2)).astype(np.int64)
    high = low + 1 + (chance[2] * (stop - 1 - low)).astype(np.int64)
    has = (stop - start > 2) & (chance[0] < GAPPED)
    again = high + 1 + (chance[4] * (stop - high - 2)).astype(np.int64)
    until = again + 1 + (chance[5] * (stop - 1 - again)).astype(np.int64)
    twice = has & (stop - high > 2) & (chance[3] < TWICE)
    gaps = {
        buffer: ((int(low[buffer]), int(high[buffer])),)
        + (((int(again[buffer]), int(until[buffer])),) if twice[buffer] else ())
        for buffer in np.flatnonzero(has).tolist()
    }
    empty = ProgramBuilder("empty").build()
    bare = replace(program, ops=empty.ops, values=empty.values)
    return FuzzCase(program=bare, believed=Problem.of(bare, start=start, stop=stop, gaps=gaps))


def told_in(case: FuzzCase, starts: Int64s) -> Counter[str]:
    """Return how many programs of a batch, told as one case, are told each thing of `TOLD`.

    `starts` says where the buffers of each begin. O(buffers).
    """
    program, told = case.program, case.constraints
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    some = (told.pinned & ~pin_reads(program)) if case.kind == "told" else np.zeros(len(owner), dtype=np.bool_)
    gaps = () if case.believed is None else case.believed.gaps
    of_buffers = (
        np.flatnonzero(some),
        np.flatnonzero(told.own & ~program.buffers.persistent),
        list(told.fixed),
        list(gaps),
    )
    counts = {
        name: len(np.unique(owner[np.asarray(buffers, dtype=np.int64)]))
        for name, buffers in zip(TOLD, of_buffers, strict=True)
    }
    return Counter({name: number for name, number in counts.items() if number})


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
