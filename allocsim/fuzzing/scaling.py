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

from allocsim.fuzzing.batch import join, starts
from allocsim.model import HOST_READ, VIEW, Bools, Program
from allocsim.model.layout import Int64s
from allocsim.programs.builder import read_at_end

BUFFERS: Final = 2000
"""Buffers of a program at most."""

STRETCHES: Final = (3, 9, 64, 250, 1000, 4096, 12_345, 1 << 16, 1_000_003, 1 << 24, 268_435_399, 1 << 29, 1 << 30)
"""Factors by which bytes grow, about even on a log scale: a small program has some dozen bytes."""

TIGHT: Final = 0.3
"""Share of grown programs whose capacities are as small as they may be without any reuse."""

FAR_READER: Final = "send"
"""The kind of an op that reads what was made long before, as what sends results to others does."""

ALIGNMENTS: Final = (1, 4, 8, 12, 16, 20, 32, 48, 64, 128, 256, 512, 1024, 4096)
"""Alignments of arenas and of buffers, odd granules among them."""


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
        most = max(min(BUFFERS // len(program.buffers), BUFFERS // max(len(program.ops), 1)), 1)
        copies = int(2 ** (rng.random() * np.log2(most)))
        program = repeated(program, copies=max(copies, 1), shift=int(rng.integers(1, len(program.ops) + 2)))
    return tight(program) if rng.random() < TIGHT else program


def tight(program: Program) -> Program:
    """Return the program with arenas that end where its buffers do, side by side: no reuse is
    needed, and no byte is left.
    """
    buffers = program.buffers
    padded = np.where(buffers.persistent, 0, -(-buffers.nbytes // buffers.alignment) * buffers.alignment)
    needed = np.zeros(len(program.arenas), dtype=np.int64)
    np.add.at(needed, buffers.arena, padded)
    arenas = [replace(arena, capacity=end) for arena, end in zip(program.arenas, needed.tolist(), strict=True)]
    return replace(program, arenas=tuple(arenas))


def factors(rng: np.random.Generator, program: Program) -> Int64s:
    """Return a factor for each buffer: one for all, or three for all in turn as they come."""
    few = rng.choice(STRETCHES, 3)
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
            dim_starts=starts((ranks + (factor > 1)).tolist()),
            shape=shape,
            strides=strides,
        ),
    )


def aligned(program: Program, spaces: list[int], own: Int64s) -> Program:
    """Return the program with these alignments of arenas; those of buffers are `own`, where that is
    not 0 their arena's.
    """
    arenas = tuple(replace(arena, alignment=step) for arena, step in zip(program.arenas, spaces, strict=True))
    of_arena = np.array(spaces, dtype=np.int64)[program.buffers.arena]
    alignment = np.where(own > 0, own, of_arena).astype(np.int64)
    return replace(program, arenas=arenas, buffers=replace(program.buffers, alignment=alignment))


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
    """Return the program with its ops in another order.

    On several streams each waits for the one before it.
    """
    ops = program.ops
    columns: dict[str, Any] = {}
    for rows, name in (("operands", "operand"), ("results", "result"), ("in_place", "in_place")):
        at = getattr(ops, f"{name}_starts")
        counts = np.diff(at)[order]
        ends = np.cumsum(counts)
        picked = np.repeat(at[:-1][order] - (ends - counts), counts) + np.arange(int(counts.sum()))
        columns[rows] = getattr(ops, rows)[picked]
        columns[f"{name}_starts"] = starts(counts.tolist())
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
    """Return the program with every op waiting for the one before it, where that is on another
    stream.
    """
    stream = program.ops.stream
    waits = np.flatnonzero(stream[1:] != stream[:-1]).astype(np.int32)
    counts = np.zeros(len(stream), dtype=np.int64)
    counts[waits + 1] = 1
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return replace(program, ops=replace(program.ops, after_starts=starts, after=waits))


def lasting_value(program: Program) -> int | None:
    """Return a value that one op makes and no other op writes into, None where there is none."""
    ops, home = program.ops, program.values.buffer
    step = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    acts: Bools = ~ops.is_kind(VIEW)[step]
    made = ops.results[acts]
    writes = np.bincount(home[made], minlength=len(program.buffers))
    found = made[writes[home[made]] == 1]
    return int(found[0]) if len(found) else None


__all__ = ["ALIGNMENTS", "BUFFERS", "aligned", "grown", "in_list_order", "repeated", "stretched"]
