"""Which choices met: how often each way of one choice was drawn together with each way of another.

    counts = met(batch, case)               # by place of two levels, to be added up
    table = cells(counts)                   # {("operands: one", "declared: unknown"): 228, ...}
    empty(counts)                           # those of nought, each with its reason, "" where there is none

A *factor* is a choice (how many operands an op has), a *level* is a way of it (one). Levels of ops
are counted in one and the same op, so that two choices that always go together are seen: an op with
one operand and an op that declares nothing, side by side in one program, are no such op. Levels of
programs, and of what is told of them, are counted with those of each of its ops, and among
themselves once for each program.

One table for every source. O(ops x levels + distinct ops x levels^2). What this module does not
see: plans, and how levels are drawn.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from allocsim.allocators import pin_all, pin_reads
from allocsim.fuzzing.batch import Batch, alone
from allocsim.fuzzing.features import capacities, of_strength, view_depth
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.fuzzing.scaling import side_by_side, uniform
from allocsim.fuzzing.told_constraints import EMPTY
from allocsim.model import BYTES, EXACT, HOST_READ, HOST_WRITE, VIEW, WHOLE, Bools, Program
from allocsim.model.layout import LIMIT, Int64s


def _of_ops(program: Program) -> dict[str, dict[str, Bools]]:
    ops = program.ops
    reads, makes, pairs = (np.diff(getattr(ops, f"{rows}_starts")) for rows in ("operand", "result", "in_place"))
    acts = ~(ops.is_kind(VIEW) | ops.is_kind(HOST_READ) | ops.is_kind(HOST_WRITE))
    known = ops.in_place_known
    depth = np.zeros(len(ops), dtype=np.int64)
    np.maximum.at(depth, np.repeat(np.arange(len(ops)), reads), view_depth(program)[ops.operands])
    return {
        "operands": {
            "none": acts & (reads == 0),
            "one": acts & (reads == 1),
            "two": acts & (reads == 2),
            "more": acts & (reads > 2),
        },
        "results": {"one": acts & (makes == 1), "two": acts & (makes == 2), "more": acts & (makes > 2)},
        "declared": {
            "unknown": acts & ~known,
            "no pair": acts & known & (pairs == 0),
            "a pair": acts & (pairs == 1),
            "pairs": acts & (pairs > 1),
        },
        "strength": {
            name: acts & of_strength(program, code)
            for name, code in (("exact", EXACT), ("bytes", BYTES), ("whole", WHOLE))
        },
        "reads": {
            "no view": acts & (depth == 0),
            "a view": acts & ((depth == 1) | (depth == 2)),
            "three views deep": acts & (depth > 2),
        },
    }


def _most(values: Int64s, batch: Batch) -> Int64s:
    """Return the largest of each program's buffers, 0 where it has none."""
    found = np.zeros(len(batch), dtype=np.int64)
    np.maximum.at(found, batch.owner, values)
    return found


def _of_programs(batch: Batch, case: FuzzCase) -> dict[str, dict[str, Bools]]:
    program, count = batch.program, len(batch)
    buffers = program.buffers
    every = np.ones(count, dtype=np.bool_)

    def some(rows: Bools) -> Bools:
        return _most(rows.astype(np.int64), batch) > 0

    alignment = _most(buffers.alignment, batch)
    nbytes = np.zeros(count, dtype=np.int64)
    np.add.at(nbytes, batch.owner, buffers.nbytes)
    other = some(~uniform(program))
    capacity = capacities(program)
    ends: Bools = np.any((capacity < LIMIT).reshape(count, -1), axis=1)
    needed = side_by_side(program, ~buffers.persistent)
    squeezed: Bools = np.any((capacity < needed).reshape(count, -1), axis=1)
    many = np.diff(batch.buffer_starts)
    owner = np.repeat(np.arange(count), np.diff(batch.op_starts))
    streams = np.zeros(count, dtype=np.int64)
    np.maximum.at(streams, owner, program.ops.stream.astype(np.int64))
    told = _told(case)
    arenas = np.array([many for many, _ in batch.own] or [batch.arenas] * count)
    return {
        "told": {"nothing": every & (case.kind in {"plain", "free"})}
        | {name: some(rows) for name, rows in told.items()},
        "buffers": {"to 16": many <= 16, "to 2,000": (many > 16) & (many <= 2000), "above 2,000": many > 2000},
        "bytes": {
            "to 1 MiB": nbytes <= 1 << 20,
            "to 4 GiB": (nbytes > 1 << 20) & (nbytes <= 1 << 32),
            "to 2^53": (nbytes > 1 << 32) & (nbytes <= 1 << 53),
            "above 2^53": nbytes > 1 << 53,
        },
        "alignment": {
            "the arena's": ~other,
            "its own": other,
            "no power of two": some(buffers.alignment & (buffers.alignment - 1) > 0),
            "above 4,096": alignment > 4096,
        },
        "arenas": {str(number): arenas == number for number in (1, 2, 3)},
        "end": {"none": ~ends, "some": ends & ~squeezed, "by reuse alone": squeezed},
        "streams": {str(number): streams == number - 1 for number in (1, 2, 3)},
        "waits": {"for the op before": every & (not case.free), "as values need": every & case.free},
    }


def _told(case: FuzzCase) -> dict[str, Bools]:
    """Return of each thing that may be told the buffers of which it is told."""
    program = case.program
    count = len(program.buffers)
    nothing = np.zeros(count, dtype=np.bool_)
    if case.kind in {"plain", "free"}:
        return dict.fromkeys(TOLD, nothing)
    constraints, believed = case.constraints, case.believed
    fixed, gaps, pairs = nothing.copy(), nothing.copy(), nothing.copy()
    fixed[list(constraints.fixed)] = True
    gaps[list(() if believed is None else believed.gaps)] = True
    pairs[[] if believed is None else believed.may_share[:, 0]] = True
    pinned = constraints.pinned & ~pin_reads(program)
    whole = case.kind == "pinned" and bool((constraints.pinned >= pin_all(program)).all())
    apart = constraints.own & ~program.buffers.persistent
    crossing = _crossing(program, constraints.fixed)
    rows = (pinned if whole else nothing, nothing if whole else pinned, apart, fixed, crossing, gaps, pairs)
    return dict(zip(TOLD, rows, strict=True))


def _crossing(program: Program, fixed: Mapping[int, int]) -> Bools:
    """Return which buffers have an offset told at which another one ends later."""
    mask, ends = np.zeros(len(program.buffers), dtype=np.bool_), dict[int, int]()
    for buffer, at in sorted(fixed.items(), key=lambda row: row[1]):
        arena, nbytes = int(program.buffers.arena[buffer]), int(program.buffers.nbytes[buffer])
        mask[buffer] = nbytes > 0 and at < ends.get(arena, 0)
        ends[arena] = max(ends.get(arena, 0), at + nbytes)
    return mask


def _names(factors: Mapping[str, Mapping[str, Bools]]) -> dict[str, tuple[str, ...]]:
    return {factor: tuple(levels) for factor, levels in factors.items()}


TOLD: Final = ("all pinned", "some pinned", "own memory", "offsets", "offsets in turn", "gaps", "pairs")

OF_OPS: Final = _names(_of_ops(EMPTY))
OF_PROGRAMS: Final = _names(_of_programs(alone(EMPTY), FuzzCase(program=EMPTY)))
FACTORS: Final[Mapping[str, tuple[str, ...]]] = {**OF_OPS, **OF_PROGRAMS}
"""Every factor with its levels."""

LEVELS: Final = tuple(f"{factor}: {level}" for factor, levels in FACTORS.items() for level in levels)
"""Every level by its place in counts."""

FEW: Final = sum(map(len, OF_OPS.values()))
"""Levels of ops; the others are those of programs."""

Rule = Callable[[str, str], bool]

REASONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "what is told is not nothing": (("told: nothing", "told:"),),
    "where all is pinned, pins are all that is told": (("told: all pinned", "told:"),),
    "pairs are told where lives are": tuple(
        ("told: pairs", f"told: {other}") for other in ("all pinned", "own memory")
    ),
    "lives are told without memory of their own": (("told: gaps", "told: own memory"),),
    "of free streams nothing is told": tuple(("waits: as values need", f"told: {other}") for other in TOLD),
    "of no operand no view is read": tuple(
        ("operands: none", f"reads: {other}") for other in ("a view", "three views")
    ),
    "of no operand no pair is declared": tuple(
        ("operands: none", other) for other in ("declared: a pair", "declared: pairs", "strength:")
    ),
    "an op that declares no pair has none of a strength": tuple(
        (f"declared: {one}", "strength:") for one in ("unknown", "no pair")
    ),
    "lives with gaps are told of programs without ops": tuple(
        (told, other)
        for told in ("told: gaps", "told: pairs")
        for other in (*(f"{factor}:" for factor in OF_OPS), "streams: 2", "streams: 3")
    ),
}
"""Why two levels need not meet, by how their names begin."""


LEFT_OUT: Final[Mapping[str, frozenset[str]]] = {
    "bulk": frozenset({"strength: bytes", "strength: whole", "results: more", "buffers: above 2,000"}),
    "exhaustive": frozenset(
        {
            *("operands: none", "operands: more", "results: two", "results: more", "declared: unknown"),
            *("strength: bytes", "strength: whole", "buffers: to 2,000", "buffers: above 2,000"),
            *("bytes: to 4 GiB", "bytes: to 2^53", "bytes: above 2^53", "alignment: its own"),
            *("alignment: no power of two", "alignment: above 4,096", "arenas: 2", "arenas: 3"),
            *("end: some", "end: by reuse alone"),
        }
    ),
}
"""Levels that a source never draws."""

FREE: Final = "waits: as values need"
PROMISED: Final = "it is asked of a planner that promises `streams`"

FREE_ALONE: Final[Mapping[str, tuple[str, ...]]] = {"exhaustive": ("streams: 2", "streams: 3")}
"""Levels that a source draws where ops wait as values need, and nowhere else."""


def met(batch: Batch, case: FuzzCase) -> dict[int, int]:
    """Return how often each two levels met in the programs of a batch, asked as one case.

    By place: that of the first level times `len(LEVELS)`, plus that of the second, which is later.
    Places of no count are left out.
    """
    owner = np.repeat(np.arange(len(batch)), np.diff(batch.op_starts))
    programs = _codes(_of_programs(batch, case), len(batch)) << FEW
    ops = _codes(_of_ops(batch.program), len(batch.program.ops))
    table = _together(ops | programs[owner])
    table[FEW:, FEW:] = _together(programs)[FEW:, FEW:]
    places = np.flatnonzero(np.triu(table, 1))
    return dict(zip(places.tolist(), table.ravel()[places].tolist(), strict=True))


def _codes(factors: Mapping[str, Mapping[str, Bools]], rows: int) -> Int64s:
    """Return the levels of each row as a number, a bit for each."""
    codes = np.zeros(rows, dtype=np.int64)
    for place, column in enumerate(column for levels in factors.values() for column in levels.values()):
        codes |= column.astype(np.int64) << place
    return codes


def _together(codes: Int64s) -> Int64s:
    """Return for each two levels in how many rows both are.

    Rows are equal but for a few, so that each distinct one is counted for all. Products of integers
    are not BLAS's, whose threads take more time to meet than tables of this size do.
    """
    distinct, many = np.unique(codes, return_counts=True)
    bits = distinct[:, None] >> np.arange(len(LEVELS)) & 1
    together: Int64s = (bits * many[:, None]).T @ bits
    return together


def cells(counts: Mapping[int, int]) -> dict[tuple[str, str], int]:
    """Return the table: how often two levels of different factors met, and two things told."""
    many = len(LEVELS)
    return {
        (LEVELS[one], LEVELS[other]): counts.get(one * many + other, 0)
        for one in range(many)
        for other in range(one + 1, many)
        if _factor(one) != _factor(other) or _factor(one) == "told"
    }


def _factor(place: int) -> str:
    return LEVELS[place].partition(":")[0]


def in_words(counts: Mapping[int, int], source: str = "") -> str:
    """Return in one line how many pairs met, and which never did though they can."""
    there_are, never = cells(counts), empty(counts, source)
    missed = [pair for pair, why in never.items() if not why]
    drawn = {level for pair, count in there_are.items() if count for level in pair}
    alone = [level for level in LEVELS if level not in drawn]
    apart = [f"{one} + {other}" for one, other in missed if one in drawn and other in drawn]
    shown = "".join(
        f"; {what}: {', '.join(names[:MOST])}{f' and {len(names) - MOST} others' if len(names) > MOST else ''}"
        for what, names in (("never drawn", alone), ("never together", apart))
        if names
    )
    can = len(there_are) - len(never) + len(missed)
    return f"pairs of choices: {can - len(missed)} of {can} that can meet{shown}"


MOST: Final = 6
"""Names that a line has of each list."""


def empty(counts: Mapping[int, int], source: str = "") -> dict[tuple[str, str], str]:
    """Return levels that never met in a source's programs, with the reason; "": they might have."""
    there_are = cells(counts)
    free = any(count and FREE in pair for pair, count in there_are.items())
    promised = frozenset() if free else frozenset({FREE, *FREE_ALONE.get(source, ())})
    return {
        pair: reason(*pair, source=source) or (PROMISED if promised & set(pair) else "")
        for pair, count in there_are.items()
        if not count
    }


def reason(one: str, other: str, *, source: str = "") -> str:
    """Return why two levels cannot meet, "" where they can."""
    if {one, other} & LEFT_OUT.get(source, frozenset()):
        return f"the source {source} does not draw it"
    other_waits = any(level.startswith("told: ") and level != "told: nothing" for level in (one, other))
    if {one, other} & {*FREE_ALONE.get(source, ())} and (other_waits or "waits: for the op before" in {one, other}):
        return f"the source {source} draws it where ops wait as values need, and nothing is told of these"
    for words, pairs in REASONS.items():
        for begin, end in pairs:
            if (one.startswith(begin) and other.startswith(end)) or (other.startswith(begin) and one.startswith(end)):
                return words
    return ""
