"""What a planner is told of a program, beyond what follows from the program itself.

    case = telling(program)           # partial pins, memory of its own told and not told, decided offsets
    case = gapped(program)            # the lives of its buffers, with gaps, as a belief of a program without ops
    case = freed(program)             # its ops on several streams, which wait for what their values need alone

Everything told can be obeyed: what is decided lies side by side, at multiples of the alignments and
with room between, or over what was decided of buffers that are dead by then, and before the end of
its arena; what the host reads stays pinned. What is told is drawn from a number that the program
itself gives, so that the same program is told the same.

A belief with gaps is of a program without ops, since only there nothing but what is stated says
when bytes are needed: any gap within a life is right, and so is a pair of which one ends in the
step in which the other begins.

What this module does not see: planners.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from allocsim.allocators import pin_all, pin_reads
from allocsim.fuzzing.batch import changed
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.model import Bools, Problem, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.access_steps import NEVER, first_and_last
from allocsim.programs.builder import ProgramBuilder

PINNED: Final = 0.4
"""Share of the buffers that an op writes that are told to be pinned."""

APART: Final = 0.2
"""Share of touched buffers, but parameters and states, told to lie in memory of their own."""

EMPTY: Final = ProgramBuilder("empty").build()

BACK: Final = 0.4
"""Share of the parameters and states that are told to lie in their arena."""

DECIDED: Final = 0.25
"""Share of the buffers with a place in an arena whose offset is told."""

CROSSING: Final = 0.7
"""Share of these that lie as low as what lives at the same time lets them, others side by side."""

HELD: Final = 0.15
"""Share of the lives with gaps stated that are pinned."""

GAPPED: Final = 0.6
"""Share of the lives of three steps or more that have a gap."""

GAPS: Final = np.array([1, 1, 1, 2, 2, 3, 4, 4])
"""How many of them these have, as drawn evenly; fewer where there is no room for as many."""

PAIRED: Final = 0.5
"""Share of the donors that have a recipient stated, where lives with gaps are."""

TOLD: Final = ("some pinned", "own told", "offset decided", "gap in a life")
"""What a case may be told, as features of the coverage table."""


def telling(program: Program) -> FuzzCase:
    """Return the program as a case that is told something. O(buffers + decided^2 in an arena)."""
    buffers = program.buffers
    count = len(buffers)
    rng = np.random.default_rng(number_of(program))
    chance = rng.random((5, count))
    first, last = first_and_last(program)
    touched = last != NEVER
    pinned = (pin_all(program) & (chance[0] < PINNED)) | pin_reads(program)
    own = np.where(buffers.persistent, chance[1] >= BACK, touched & (chance[1] < APART))
    lives = np.where(buffers.persistent, 0, first), np.where(pinned | buffers.persistent, LIMIT, last + 1)
    fixed = _decided(program, touched & ~own & (chance[2] < DECIDED), lives, chance[3], chance[4] < CROSSING)
    return FuzzCase(program=program, pinned=pinned, own=own, fixed=fixed)


def _decided(
    program: Program, which: Bools, lives: tuple[Int64s, Int64s], room: NDArray[np.float64], crosses: Bools
) -> dict[int, int]:
    """Return offsets of some buffers, no two of which share a byte while both live.

    What finds no room before the end of its arena is not decided.
    """
    buffers, (start, stop) = program.buffers, lives
    ends, fixed = Counter[int](), dict[int, int]()
    there: dict[int, list[int]] = {}
    for buffer in np.flatnonzero(which).tolist():
        arena, unit, nbytes = (int(column[buffer]) for column in (buffers.arena, buffers.alignment, buffers.nbytes))
        at = -(-ends[arena] // unit) * unit + int(3 * room[buffer]) * unit
        if crosses[buffer]:
            met = [b for b in there.get(arena, ()) if start[b] < stop[buffer] and start[buffer] < stop[b]]
            at = _lowest(sorted((fixed[b], fixed[b] + int(buffers.nbytes[b])) for b in met), nbytes, unit)
        capacity = program.arenas[arena].capacity
        if at + nbytes > (LIMIT // 4 if capacity is None else capacity):
            continue
        fixed[buffer], ends[arena] = at, max(ends[arena], at + nbytes)
        there.setdefault(arena, []).append(buffer)
    return fixed


def _lowest(taken: Sequence[tuple[int, int]], nbytes: int, unit: int) -> int:
    """Return the lowest multiple of a unit at which so many bytes are free."""
    at = 0
    for low, high in taken:
        if at + nbytes <= low:
            break
        at = max(at, -(-high // unit) * unit)
    return at


def gapped(program: Program, origin: "Int64s | int" = 0) -> FuzzCase:
    """Return the lives of a program's buffers as a case of its own: what is believed of a program
    without ops, with gaps, and with pins, offsets and pairs of some.

    `origin` is the step from which the life of each buffer is counted. O(columns), and as
    `telling`.
    """
    count = len(program.buffers)
    rng = np.random.default_rng(number_of(program))
    chance = rng.random((7, count))
    first, last = first_and_last(program)
    lives = (last >= 0) & ~program.buffers.persistent
    start = np.where(lives, first - origin, 0)
    stop = np.where(lives, last + 1 - origin, 0)
    gaps = _gaps(rng, start, stop, (stop - start > 2) & (chance[0] < GAPPED))
    pinned = lives & (chance[2] < HELD)
    fixed = _decided(
        program, lives & (chance[3] < DECIDED), (start, np.where(pinned, LIMIT, stop)), chance[4], chance[5] < CROSSING
    )
    pairs = _meeting(program, start, stop, lives & ~pinned & (chance[6] < PAIRED))
    bare = changed(program, ops=EMPTY.ops, values=EMPTY.values)
    believed = Problem.of(bare, start=start, stop=stop, gaps=gaps, pinned=pinned, fixed=fixed, may_share=pairs)
    return FuzzCase(program=bare, believed=believed)


def _gaps(rng: np.random.Generator, start: Int64s, stop: Int64s, has: Bools) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return one to four gaps of each life that is to have some, in steps of which the first and
    the last are in no gap.

    What lies between first and last step is cut into as many stretches of equal length as there are
    gaps, which end a step before the next one begins; in each a gap is drawn.
    """
    buffers = np.flatnonzero(has)
    start, inner = start[buffers], stop[buffers] - start[buffers] - 1
    many = np.minimum(rng.choice(GAPS, len(buffers)), inner // 2)
    place = np.arange(GAPS.max())[:, None]
    begin, end = (start + 1 + np.minimum(turn, many) * inner // many for turn in (place, place + 1))
    chance = rng.random((2, len(place), len(buffers)))
    low = begin + (chance[0] * (end - 1 - begin)).astype(np.int64)
    high = low + 1 + (chance[1] * (end - 1 - low)).astype(np.int64)
    rows = np.stack([low, high], axis=-1).swapaxes(0, 1).tolist()
    return {
        buffer: tuple(map(tuple, found[:gaps]))
        for buffer, found, gaps in zip(buffers.tolist(), rows, many.tolist(), strict=True)
    }


def _meeting(program: Program, start: Int64s, stop: Int64s, gives: Bools) -> list[tuple[int, int]]:
    """Return pairs of buffers of one arena, each in one at most: a donor that ends in the step in
    which a recipient begins, which has no more bytes and does not end there.
    """
    buffers = program.buffers
    born: dict[tuple[int, int], list[int]] = {}
    for buffer in np.flatnonzero(stop - start > 1).tolist():
        born.setdefault((int(buffers.arena[buffer]), int(start[buffer])), []).append(buffer)
    pairs, taken = [], set[int]()
    for donor in np.flatnonzero(gives & (stop - start > 1)).tolist():
        others = born.get((int(buffers.arena[donor]), int(stop[donor]) - 1), ())
        to = next((b for b in others if b not in taken and buffers.nbytes[b] <= buffers.nbytes[donor]), None)
        if to is not None and donor not in taken:
            pairs.append((donor, to))
            taken |= {donor, to}
    return pairs


def freed(program: Program) -> FuzzCase:
    """Return the program with its ops on several streams, where each waits for what its values need
    and for nothing else: right with every buffer apart, and no plan may take the order of the list
    for a wait.

    O(ops x streams + accesses).
    """
    from allocsim.programs.streams import branches, on_streams  # noqa: PLC0415 - rarely asked for

    streams = program.ops.stream.tolist()
    if not any(streams):
        streams = branches(program, 2 + number_of(program) % 2)
    return FuzzCase(program=on_streams(program, streams), free=True)


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
    mask: Bools = first_and_last(program)[1] != NEVER
    return mask
