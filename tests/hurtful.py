"""Documents made to hurt: contradicting, absurd and adversarial, well-formed all of them, of any size.

Each builder takes how many ops, buffers or values there are to be and returns a document; `CASES` says what must be found in it, kind by kind:
None for any number, else how many of `n`. Columns are built at once, so a million rows take a moment.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from allocsim.model import Arena, Buffers, Document, Ops, Plan, Problem, Program, Run, Values

FAR = 1 << 62
SIZE = 64


def starts_of(counts: Any) -> Any:
    """Return CSR starts of rows of so many entries."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def program(
    nbytes: Any,
    buffer: Any,
    reads: tuple[Any, Any],
    writes: tuple[Any, Any],
    *,
    offset: Any = 0,
    count: Any = SIZE,
    stride: Any = 1,
    kinds: tuple[str, ...] = ("f",),
    kind: Any = 0,
    in_place: bool = False,
    streams: int = 1,
    stream: Any = None,
    after: tuple[Any, Any] | None = None,
    alignment: int = 1,
    capacity: int | None = None,
) -> Program:
    """Return a program of one-dimensional byte values; `reads`, `writes` and `after` are (entries for each op, values or ops)."""
    buffers, values, ops = len(nbytes), len(buffer), len(reads[0])
    waits, awaited = after or nothing(ops)
    pairs = np.asarray(reads[0] > 0) & (writes[0] > 0) if in_place else np.zeros(ops, dtype=bool)
    return Program(
        name="hurtful",
        arenas=(Arena(name="cpu", alignment=alignment, capacity=capacity),),
        streams=tuple(f"s{n}" for n in range(streams)),
        buffers=Buffers(
            names=("b",) * buffers,
            nbytes=np.asarray(nbytes, dtype=np.int64),
            alignment=np.full(buffers, alignment, dtype=np.int64),
            arena=np.zeros(buffers, dtype=np.int32),
            role=np.zeros(buffers, dtype=np.int8),
            read_only=np.zeros(buffers, dtype=bool),
        ),
        values=Values(
            names=("v",) * values,
            buffer=np.asarray(buffer, dtype=np.int32),
            dtype=np.full(values, 11, dtype=np.int8),
            offset=np.broadcast_to(np.asarray(offset, dtype=np.int64), values).copy(),
            dim_starts=np.arange(values + 1, dtype=np.int64),
            shape=np.broadcast_to(np.asarray(count, dtype=np.int64), values).copy(),
            strides=np.broadcast_to(np.asarray(stride, dtype=np.int64), values).copy(),
        ),
        ops=Ops(
            names=("op",) * ops,
            kinds=kinds,
            kind=np.broadcast_to(np.asarray(kind, dtype=np.int32), ops).copy(),
            operand_starts=starts_of(reads[0]),
            operands=np.asarray(reads[1], dtype=np.int32),
            result_starts=starts_of(writes[0]),
            results=np.asarray(writes[1], dtype=np.int32),
            in_place_starts=starts_of(pairs),
            in_place=np.zeros((int(pairs.sum()), 2), dtype=np.int32),
            in_place_known=np.ones(ops, dtype=bool),
            stream=np.asarray(np.arange(ops) % streams if stream is None else stream, dtype=np.int32),
            after_starts=starts_of(waits),
            after=np.asarray(awaited, dtype=np.int32),
        ),
    )


def plan(made: Program, offset: Any, **keywords: Any) -> Plan:
    """Return a plan with every buffer in the one arena."""
    count = len(made.buffers)
    where = np.broadcast_to(np.asarray(offset, dtype=np.int64), count).copy()
    return Plan(
        program=made, arena=np.zeros(count, dtype=np.int32), offset=where, nbytes=made.buffers.nbytes, **keywords
    )


def document(made: Program, offset: Any, **keywords: Any) -> Document:
    """Return one run of a plan with every buffer in the one arena."""
    return Document.of(plan(made, offset, **keywords))


def nothing(n: int) -> tuple[Any, Any]:
    """No entries for each of n ops."""
    return np.zeros(n, dtype=np.int64), np.empty(0, dtype=np.int64)


def one_each(column: Any) -> tuple[Any, Any]:
    """One entry for each op."""
    return np.ones(len(column), dtype=np.int64), np.asarray(column)


def last_one(n: int) -> tuple[Any, Any]:
    """Op i reads value i - 1, op 0 nothing."""
    return np.minimum(np.arange(n), 1), np.arange(n - 1)


def chain(n: int, **keywords: Any) -> Program:
    """Op i reads buffer i - 1 and writes buffer i."""
    return program(np.full(n, SIZE), np.arange(n), last_one(n), one_each(np.arange(n)), **keywords)


def far_away(n: int) -> Document:
    """Three slots at the highest offset there is."""
    return document(chain(n), FAR - SIZE * (np.arange(n) % 3))


def huge_and_far(n: int) -> Document:
    """Buffers of 2^62 bytes at offset 2^62, that end at 2^63: each op reads what it writes over."""
    made = program(np.full(n, FAR), np.arange(n), last_one(n), one_each(np.arange(n)), offset=FAR - SIZE)
    return document(made, FAR)


def aliases(n: int) -> Document:
    """One buffer, changed in place by every op."""
    return document(program([SIZE], np.zeros(n), last_one(n), one_each(np.arange(n)), in_place=True), 0)


def views(n: int) -> Document:
    """One buffer, a view of a view of a view, the last one read."""
    kind = np.array([0] + [1] * (n - 2) + [0])
    writes = np.minimum(np.arange(n, 0, -1) - 1, 1), np.arange(n - 1)
    return document(program([SIZE], np.zeros(n - 1), last_one(n), writes, kinds=("f", "view"), kind=kind), 0)


def empty_buffers(n: int) -> Document:
    """Buffers of no bytes, all at one address and all alive."""
    made = program(
        np.zeros(n), np.arange(n), (np.append(np.zeros(n), n).astype(int), np.arange(n)), one_each_then_none(n), count=0
    )
    return document(made, 0)


def one_each_then_none(n: int) -> tuple[Any, Any]:
    """One result for each of n ops, none for the last."""
    return np.append(np.ones(n), 0).astype(int), np.arange(n)


def one_address(n: int) -> Document:
    """Buffers all at offset 0 and all alive: every pair meets, every one but the last is lost."""
    made = program(
        np.full(n, SIZE), np.arange(n), (np.append(np.zeros(n), n).astype(int), np.arange(n)), one_each_then_none(n)
    )
    return document(made, 0)


def one_value(n: int) -> Document:
    """One value, read by every op."""
    writes = np.append(1, np.zeros(n - 1)).astype(int), np.zeros(1)
    return document(program([SIZE], [0], (np.minimum(np.arange(n), 1), np.zeros(n - 1)), writes), 0)


def idle(n: int) -> Document:
    """Ops that read and write nothing."""
    return document(program([SIZE], [0], nothing(n), nothing(n)), 0)


def combs(n: int) -> Document:
    """Values that are every k-th byte of one buffer, k of them, written one after the other and read as one."""
    side = max(int(n**0.5), 2)
    offset, count, stride = np.arange(side + 1) % side, np.full(side + 1, side), np.full(side + 1, side)
    count[side], stride[side] = side * side, 1
    reads = np.append(np.zeros(side), np.ones(side)).astype(int), np.full(side, side)
    writes = np.append(np.ones(side), np.zeros(side)).astype(int), np.arange(side)
    return document(
        program([side * side], np.zeros(side + 1), reads, writes, offset=offset, count=count, stride=stride), 0
    )


def fragments(n: int, *, lost: bool = False) -> Document:
    """Half the ops write a byte each, the others read all of them; where `lost`, other buffers lie over every second byte."""
    half = n // 2
    others = half // 2 if lost else 0
    reads = np.append(np.zeros(half + others), np.ones(half)).astype(int), np.full(half, half)
    makes = np.append(np.arange(half), half + 1 + np.arange(others))
    writes = np.append(np.ones(half + others), np.zeros(half)).astype(int), makes
    buffer = np.append(np.zeros(half + 1), 1 + np.arange(others))
    offset = np.append(np.append(np.arange(half), 0), np.zeros(others))
    count = np.append(np.append(np.ones(half), half), np.ones(others))
    made = program(np.append(half, np.ones(others)), buffer, reads, writes, offset=offset, count=count)
    return document(made, np.append(0, 2 * np.arange(others)))


def lost_fragments(n: int) -> Document:
    """As `fragments`, and every reader finds half of its pieces written over: what is wrong is n^2 / 8 pieces."""
    return fragments(n, lost=True)


def crooked(n: int) -> Document:
    """Nothing is aligned and everything is beyond the capacity."""
    return document(chain(n, alignment=64, capacity=8), SIZE * (np.arange(n) % 3) + 1)


def one_op(n: int) -> Document:
    """One op with n operands and n results, all at one address."""
    reads = np.array([0, n]), np.arange(n)
    writes = np.array([n, n]), np.arange(2 * n)
    return document(program(np.full(2 * n, SIZE), np.arange(2 * n), reads, writes), 0)


def wrong_beliefs(n: int) -> Document:
    """Lifetimes that end at once, sizes of nothing, and pairs of buffers that never meet."""
    made = chain(n)
    pairs = np.stack([np.arange(n - 2), np.arange(2, n)], axis=1).astype(np.int32)
    steps = np.arange(n, dtype=np.int64)
    problem = Problem.of(made, start=steps, stop=steps + 1, nbytes=np.zeros(n, dtype=np.int64), may_share=pairs)
    return document(made, SIZE * (np.arange(n) % 3), problem=problem)


def wild_events(n: int) -> Document:
    """A planner that allocates everything at one address and frees it twice."""
    buffer = np.arange(n)
    events = np.concatenate([np.stack([0 * buffer, 0 * buffer + event, buffer], axis=1) for event in (0, 1, 1)])
    return document(chain(n), SIZE * (np.arange(n) % 3), events=events.astype(np.int64))


def all_at_once(n: int) -> Document:
    """A stream for each op, no waits, and all write one slot."""
    made = program(np.full(n, SIZE), np.arange(n), nothing(n), one_each(np.arange(n)), streams=n)
    return document(made, 0)


def many_runs(n: int) -> Document:
    """A small program, run again and again."""
    made = plan(chain(4), SIZE * (np.arange(4) % 3))
    return Document(programs=(made.program,), plans=(made,), session=(Run.of(made),) * (n // 4))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A document to build, and what must be said of it."""

    build: Callable[[int], Document]
    kinds: dict[str, Callable[[int], int] | None] = field(default_factory=dict)
    """Kinds that must be found, and how many of them; no other may be."""


CASES: dict[str, Case] = {
    "far away": Case(build=far_away),
    "huge and far": Case(build=huge_and_far, kinds={"UnsafeInPlace": lambda n: n - 1, "Overlap": lambda n: n - 1}),
    "aliases": Case(build=aliases),
    "views": Case(build=views),
    "empty buffers": Case(build=empty_buffers),
    "one address": Case(build=one_address, kinds={"StaleRead": lambda n: n - 1, "Overlap": lambda n: n * (n - 1) // 2}),
    "one value": Case(build=one_value),
    "idle": Case(build=idle),
    "combs": Case(build=combs),
    "fragments": Case(build=fragments),
    "lost fragments": Case(
        build=lost_fragments, kinds={"StaleRead": lambda n: n // 2, "Overlap": lambda n: n // 2 // 2}
    ),
    "crooked": Case(build=crooked, kinds={"Misaligned": lambda n: n, "OutOfBounds": lambda n: n}),
    "one op": Case(build=one_op, kinds=dict.fromkeys(("UnsafeInPlace", "ResultsOverlap", "Overlap", "StaleRead"))),
    "wrong beliefs": Case(
        build=wrong_beliefs,
        kinds={"LifetimeTooShort": lambda n: n - 1, "BadSize": lambda n: n, "BadShare": lambda n: n - 2},
    ),
    "wild events": Case(build=wild_events, kinds={"DoubleFree": lambda n: n, "AllocOverLive": None}),
    "many runs": Case(build=many_runs),
}
"""Documents that get a verdict at any size."""
