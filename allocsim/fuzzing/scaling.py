"""Programs of real sizes from small ones: more bytes, other alignments, more ops and buffers.

    grown(program, number)                      # what a number chooses, 0 as it is
    stretched(program, factors)                 # every byte of buffer b becomes factors[b] bytes
    repeated(program, copies=100, shift=3)      # a hundred layers, each begun three ops after the one before it
    aligned(program, alignments)

Each keeps a program without defects of its own as it is in that: a stretch turns every element into
a run of elements, so what shared bytes shares them still, and what had equal layout in buffers of
equal factors has it still; copies share no buffer, and each keeps the order of its ops.

O(columns). What this module does not see: how small programs are made (`program_recipes`, `bulk`).
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from allocsim.allocators import pin_reads
from allocsim.fuzzing.batch import changed, join, starts
from allocsim.model import HOST_READ, VIEW, Bools, Program
from allocsim.model.layout import Int64s
from allocsim.programs.access_steps import first_and_last
from allocsim.programs.builder import read_at_end

BUFFERS: Final = 2000
"""Buffers of most programs at most."""

CROWD: Final = 0.04
"""Share of programs of many copies with a tenth to twice more buffers than `BUFFERS`."""

STRETCHES: Final = (
    3, 9, 64, 250, 1000, 4096, 12_345, 1 << 16, 1_000_003, 1 << 24, 268_435_399, 1 << 29, 1 << 30, (1 << 45) + 9, (1 << 51) + 5, (1 << 52) + 7,
)  # fmt: skip
"""Factors by which bytes grow: a small program has some dozen bytes.

The largest are odd, so that offsets beyond 2^53 are not all multiples of what a float has there.
"""

FARTHEST: Final = 1 << 57
"""Bytes of a program at most: beyond 2^53 a float has not every offset."""

TIGHT: Final = 0.3
"""Share of grown programs whose capacities are as small as they may be without any reuse."""

SQUEEZED: Final = 0.2
"""Share of grown programs whose capacities are below that: what lives at once fits, with a quarter
more at most.
"""

TOGETHER: Final = 3
"""How much more often than one number of ops later copies begin at once."""

FAR_READER: Final = "send"
"""The kind of the op that reads at the end what was made long before, as a send of results does."""

ALIGNMENTS: Final = (1, 3, 4, 8, 12, 16, 20, 32, 48, 64, 100, 128, 256, 512, 1024, 4096, 5000, 1 << 16, 1 << 21)
"""Alignments of arenas and of buffers, odd granules and huge pages among them."""


def grown(program: Program, number: int) -> Program:
    """Return the program that a number chooses: the program itself for 0, else one with more bytes,
    other alignments, more copies of it, smaller capacities, or several of these.
    """
    if not number:
        return program
    rng = np.random.default_rng(number)
    ways = rng.random(3) < (0.6, 0.6, 0.3)
    if ways[0] or not ways.any():
        program = stretched(program, factors(rng, program))
    if ways[1]:
        spaces = rng.choice(ALIGNMENTS, len(program.arenas)).tolist()
        own = np.where(rng.random(len(program.buffers)) < 0.3, rng.choice(ALIGNMENTS, len(program.buffers)), 0)
        program = aligned(program, spaces, own)
    if ways[2] and len(program.buffers):
        copies = how_many(rng, program)
        crowd = copies * len(program.buffers) > BUFFERS  # all alive at once, these would take too long
        program = repeated(program, copies=copies, shift=max(shift_of(rng, program), int(crowd)))
    end = rng.random()
    if end < TIGHT:
        return ended(program, side_by_side(program, ~program.buffers.persistent))
    return ended(program, squeezed(rng, program)) if end < TIGHT + SQUEEZED else program


def how_many(rng: np.random.Generator, program: Program) -> int:
    """Return of how many copies a program is to be, so that their bytes are at most `FARTHEST`."""
    most = max(min(BUFFERS // len(program.buffers), BUFFERS // max(len(program.ops), 1)), 1)
    copies = int(2 ** (rng.random() * np.log2(most)))
    if rng.random() < CROWD:
        copies = int(BUFFERS * rng.uniform(1.1, 2)) // len(program.buffers)
    return max(min(copies, FARTHEST // max(int(program.buffers.nbytes.sum()), 1)), 1)


def shift_of(rng: np.random.Generator, program: Program) -> int:
    """Return how many ops after the copy before it one begins: in a fifth of small programs none,
    so that lives are as long as there are copies, and end where others begin.
    """
    return max(int(rng.integers(-TOGETHER, len(program.ops) + 2)), 0)


def ended(program: Program, capacities: Int64s) -> Program:
    """Return the program with arenas that end there."""
    arenas = [replace(arena, capacity=end) for arena, end in zip(program.arenas, capacities.tolist(), strict=True)]
    return replace(program, arenas=tuple(arenas))


def side_by_side(program: Program, placed: Bools) -> Int64s:
    """Return for each arena the bytes of the buffers placed there, each rounded up to its
    alignment: what they need without reuse.
    """
    buffers = program.buffers
    total = np.zeros(len(program.arenas), dtype=np.int64)
    np.add.at(total, buffers.arena[placed], rounded_up(buffers.nbytes, buffers.alignment)[placed])
    return total


def of_arenas(program: Program) -> Int64s:
    """Return for each buffer the alignment of its arena."""
    return np.array([arena.alignment for arena in program.arenas], dtype=np.int64)[program.buffers.arena]


def uniform(program: Program) -> Bools:
    """Return which buffers have the alignment of their arena."""
    mask: Bools = program.buffers.alignment == of_arenas(program)
    return mask


def in_common_units(program: Program) -> Program:
    """Return the program with buffers aligned to the least common multiple in their arena."""
    buffers = program.buffers
    step = np.array([arena.alignment for arena in program.arenas], dtype=np.int64)
    np.lcm.at(step, buffers.arena, buffers.alignment)
    return replace(program, buffers=replace(buffers, alignment=step[buffers.arena]))


def rounded_up(nbytes: Int64s, alignment: Int64s) -> Int64s:
    """Return each number up to a multiple of its alignment."""
    rounded: Int64s = -(-nbytes // alignment) * alignment
    return rounded


def squeezed(rng: np.random.Generator, program: Program) -> Int64s:
    """Return for each arena the most bytes that live at one step, and up to a quarter more: what
    fits in them, fits by reuse alone.
    """
    buffers = program.buffers
    first, last = first_and_last(program)
    rows = np.flatnonzero((last >= 0) & ~buffers.persistent)
    change = np.zeros((len(program.ops) + 1, len(program.arenas)), dtype=np.int64)
    arena, nbytes = buffers.arena[rows], rounded_up(buffers.nbytes, buffers.alignment)[rows]
    np.add.at(change, (first[rows], arena), nbytes)
    np.add.at(change, (np.where(pin_reads(program)[rows], len(program.ops), last[rows] + 1), arena), -nbytes)
    most = np.cumsum(change, axis=0).max(axis=0)
    found: Int64s = most + (most * rng.choice((0, 0.05, 0.25))).astype(np.int64)
    return found


def factors(rng: np.random.Generator, program: Program) -> Int64s:
    """Return a factor for each buffer: one for all, or three for all in turn as they come.

    Afterwards bytes are at most `FARTHEST`, of a batch all together.
    """
    few = np.minimum(rng.choice(STRETCHES, 3), FARTHEST // max(int(program.buffers.nbytes.sum()), 1))
    if rng.random() < 0.5:
        few[:] = few[0]
    found: Int64s = few[rng.integers(0, 3, len(program.buffers))].astype(np.int64)
    return found


def stretched(program: Program, by: Int64s) -> Program:
    """Return the program with every byte of each buffer as many bytes as its factor says; what a
    `same` makes grows as what it hands on.

    Capacities grow by the largest factor of their arena.
    """
    buffers, values, by = program.buffers, program.values, by.copy()
    for step in np.flatnonzero(program.same_ops).tolist():
        op = program.ops[step]
        by[values.buffer[list(op.results)]] = by[values.buffer[list(op.operands)]]
    factor = by[values.buffer]
    more = np.flatnonzero(factor > 1)
    ranks = np.diff(values.dim_starts)
    runs = np.where(values.counts > 0, factor, 1)  # of no elements none is made
    shape = np.insert(values.shape, values.dim_starts[1:][more], runs[more])
    strides = np.insert(values.strides * np.repeat(factor, ranks), values.dim_starts[1:][more], values.itemsize[more])
    largest = np.ones(len(program.arenas), dtype=np.int64)
    np.maximum.at(largest, buffers.arena, by)
    arenas = tuple(
        arena if arena.capacity is None else replace(arena, capacity=arena.capacity * times)
        for arena, times in zip(program.arenas, largest.tolist(), strict=True)
    )
    return replace(
        program,
        arenas=arenas,
        buffers=replace(buffers, nbytes=buffers.nbytes * by),
        values=replace(
            values,
            offset=values.offset * factor,
            dim_starts=starts(ranks + (factor > 1)),
            shape=shape,
            strides=strides,
        ),
    )


def aligned(program: Program, spaces: list[int], own: Int64s) -> Program:
    """Return the program with these alignments of arenas; those of buffers are `own`, where that is
    not 0 their arena's.
    """
    arenas = tuple(replace(arena, alignment=step) for arena, step in zip(program.arenas, spaces, strict=True))
    program = replace(program, arenas=arenas)
    alignment = np.where(own > 0, own, of_arenas(program)).astype(np.int64)
    return replace(program, buffers=replace(program.buffers, alignment=alignment))


def repeated(program: Program, *, copies: int, shift: int) -> Program:
    """Return `copies` of the program in its own arenas, each begun `shift` ops after the one before
    it, with their ops in turn; at the end the host reads what eight of them made, or, for an odd
    number of copies, an op does: a reader far from the writer that is no host.

    The more copies, the more capacity there is. Ops on several streams wait for the one before.
    """
    if copies < 2:
        return program
    batch = join([program] * copies)
    whole, many = batch.program, len(program.arenas)
    arenas = tuple(
        arena if arena.capacity is None else replace(arena, capacity=arena.capacity * copies // 2)
        for arena in program.arenas
    )
    buffers = whole.buffers
    whole = replace(
        whole,
        name=program.name,
        arenas=arenas,
        buffers=replace(buffers, names=tuple(f"b{n}" for n in range(len(buffers))), arena=buffers.arena % many),
        values=replace(whole.values, names=tuple(f"v{n}" for n in range(len(whole.values)))),
    )
    copy, place = np.divmod(np.arange(len(whole.ops)), len(program.ops))
    whole = reordered(whole, np.lexsort((copy, place + copy * shift)))
    chosen = np.linspace(0, copies - 1, min(copies, 8)).astype(np.int64)
    value = lasting_value(program)
    if value is None:
        return whole
    read = [value + int(k) * len(program.values) for k in chosen]
    return read_at_end(whole, read, kind=FAR_READER if copies % 2 else HOST_READ)


def reordered(program: Program, order: Int64s) -> Program:
    """Return the program with ops reordered; on several streams each waits for the one before."""
    ops = program.ops
    columns: dict[str, Any] = {}
    for rows, name in (("operands", "operand"), ("results", "result"), ("in_place", "in_place")):
        at = getattr(ops, f"{name}_starts")
        counts = np.diff(at)[order]
        ends = np.cumsum(counts)
        picked = np.repeat(at[:-1][order] - (ends - counts), counts) + np.arange(int(counts.sum()))
        columns[rows] = getattr(ops, rows)[picked]
        columns[f"{name}_starts"] = starts(counts)
        if name == "in_place":
            columns["in_place_strength"] = ops.in_place_strength[picked]
    moved = replace(
        ops,
        names=tuple(f"o{n}" for n in range(len(ops))),
        kind=ops.kind[order],
        in_place_known=ops.in_place_known[order],
        stream=ops.stream[order],
        after_starts=np.zeros(len(ops) + 1, dtype=np.int64),
        after=np.empty(0, dtype=np.int32),
        meta={},
        **columns,
    )
    return in_list_order(replace(program, ops=moved))


def in_list_order(program: Program) -> Program:
    """Return the program with ops waiting for the one before, where on another stream."""
    stream = program.ops.stream
    waits = np.flatnonzero(stream[1:] != stream[:-1]).astype(np.int32)
    counts = np.zeros(len(stream), dtype=np.int64)
    counts[waits + 1] = 1
    return changed(program, ops=changed(program.ops, after_starts=starts(counts), after=waits))


def lasting_value(program: Program) -> int | None:
    """Return a value that one op makes and no other op writes into, None where there is none."""
    ops, home = program.ops, program.values.buffer
    step = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    acts: Bools = ~ops.is_kind(VIEW)[step]
    made = ops.results[acts]
    writes = np.bincount(home[made], minlength=len(program.buffers))
    found = made[writes[home[made]] == 1]
    return int(found[0]) if len(found) else None
