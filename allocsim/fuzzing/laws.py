"""Laws on pairs: a program and the same one changed, of which a planner promises how the answers
compare.

    for pair in LAWS["monotone"].pairs(case):      # two cases, and the change in words
        LAWS["monotone"].broken(pair, answer_to_one, answer_to_other)

| law | the other program | what holds of the two plans |
|---|---|---|
| `rename` | other names of all there is | no slot moves |
| `permute` | buffers and values in another order, other numbers of them | no peak of an arena changes |
| `split_arena` | half of an arena's buffers in a new one; in the other, these twice as large | no slot in the others moves |
| `add_pin` | one buffer more is pinned | no peak drops; what was refused is refused |
| `enlarge` | one buffer has more bytes | as above |
| `monotone` | one life begins a step earlier or ends some later | as above |

The least peak has each of them: what is larger, longer or pinned meets all that it met. Of a
planner they are promises, since most orders and fits turn on sizes and ends.

`enlarge` and `monotone` change a belief of a program without ops, and there a buffer that is in no
pair and has no decided offset: in a program more bytes may permit a pair, and a longer life may
meet what was decided. What is changed is drawn from the program itself, so a pair is made again
from its case.

What this module does not see: planners, and which cases there are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from allocsim.allocators import pin_all, pin_reads
from allocsim.fuzzing.batch import starts
from allocsim.fuzzing.fuzz_case import Answer, FuzzCase, same_plan
from allocsim.fuzzing.scaling import rounded_up, stretched, uniform
from allocsim.fuzzing.told_constraints import number_of
from allocsim.model import Bools, Plan, Program
from allocsim.model.layout import Int64s

MOST: Final = 8
"""Pairs that are made of one case at most."""

Why = tuple[str, str]
"""A cause and a message."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LawPair:
    """Two cases, and what the second has otherwise."""

    words: str
    one: FuzzCase
    other: FuzzCase
    apart: Bools | None = None
    """Buffers of which the law says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """How pairs are made of a case, and what holds of their plans."""

    made: Callable[[FuzzCase], Iterator[LawPair]]
    compared: Callable[[LawPair, Plan, Plan], Why | None]
    refusals: Callable[[LawPair, Answer, Answer], Why | None]
    of_lives: bool = False
    """Whether it speaks of lives that are stated, not of programs."""

    def pairs(self, case: FuzzCase, most: int = MOST) -> Iterator[LawPair]:
        """Yield the pairs of a case it speaks of, the same ones each time."""
        return islice(self.made(case) if (case.believed is not None) is self.of_lives else (), most)

    def broken(self, pair: LawPair, one: Answer, other: Answer) -> Why | None:
        """Return why two answers break the law, None where they do not, or one is a failure."""
        if one.failure is not None or other.failure is not None:
            return None
        if one.plan is None or other.plan is None:
            return self.refusals(pair, one, other)
        return self.compared(pair, one.plan, other.plan)


# what is changed ----------------------------------------------------------------------------------


def renamed(case: FuzzCase) -> Iterator[LawPair]:
    """Yield the case with other names, which sort in another order."""
    program, rng = case.program, np.random.default_rng(number_of(case.program))
    for _ in range(MOST):
        tables: dict[str, Any] = {}
        for table in ("buffers", "values", "ops"):
            rows = getattr(program, table)
            order = rng.permutation(len(rows)).tolist()
            tables[table] = replace(rows, names=tuple(f"{table[0]}{place:x}" for place in order))
        yield LawPair(words="with other names", one=case, other=FuzzCase(program=replace(program, name="q", **tables)))


def permuted(case: FuzzCase) -> Iterator[LawPair]:
    """Yield the case with its buffers and values numbered otherwise; none where alignments differ
    within an arena, since then what lies side by side turns on its order.
    """
    program, rng = case.program, np.random.default_rng(number_of(case.program))
    for _ in range(MOST if uniform(program).all() else 0):
        other = renumbered(program, rng.permutation(len(program.buffers)), rng.permutation(len(program.values)))
        yield LawPair(words="with its buffers numbered otherwise", one=case, other=FuzzCase(program=other))


def renumbered(program: Program, buffers: Int64s, values: Int64s) -> Program:
    """Return the program with its buffers and values in this order of rows. O(columns)."""
    new_buffer, new_value = np.argsort(buffers), np.argsort(values)
    old, held, ops = program.buffers, program.values, program.ops
    columns: dict[str, Any] = {
        name: getattr(old, name)[buffers] for name in ("nbytes", "alignment", "arena", "role", "read_only")
    }
    mapped: dict[str, Any] = {
        name: {int(new_buffer[row]): kept for row, kept in getattr(old, name).items()}
        for name in ("nbytes_range", "meta")
    }
    lengths = np.diff(held.dim_starts)[values]
    dim_starts = starts(lengths)
    rows = np.arange(dim_starts[-1]) + np.repeat(held.dim_starts[values] - dim_starts[:-1], lengths)
    return replace(
        program,
        buffers=replace(old, names=tuple(old.names[row] for row in buffers.tolist()), **columns, **mapped),
        values=replace(
            held,
            names=tuple(held.names[row] for row in values.tolist()),
            buffer=new_buffer[held.buffer[values]].astype(held.buffer.dtype),
            dtype=held.dtype[values],
            offset=held.offset[values],
            dim_starts=dim_starts,
            shape=held.shape[rows],
            strides=held.strides[rows],
            bit_offset=held.bit_offset[values],
            meta={int(new_value[row]): kept for row, kept in held.meta.items()},
        ),
        ops=replace(
            ops,
            operands=new_value[ops.operands].astype(ops.operands.dtype),
            results=new_value[ops.results].astype(ops.results.dtype),
        ),
    )


def split(case: FuzzCase) -> Iterator[LawPair]:
    """Yield the case with an arena split in two, and so with twice the bytes in the new one."""
    program, rng = case.program, np.random.default_rng(number_of(case.program))
    for _ in range(MOST if len(program.buffers) > 1 else 0):
        arena = int(rng.choice(program.buffers.arena))
        moves = (program.buffers.arena == arena) & (rng.random(len(program.buffers)) < 0.5)
        apart = replace(program.arenas[arena], name=f"{program.arenas[arena].name} split")
        where = np.where(moves, len(program.arenas), program.buffers.arena).astype(program.buffers.arena.dtype)
        one = replace(program, arenas=(*program.arenas, apart), buffers=replace(program.buffers, arena=where))
        other = stretched(one, np.where(moves, 2, 1).astype(np.int64))
        changed = other.buffers.nbytes != one.buffers.nbytes
        words = f"with arena {program.arenas[arena].name!r} split, and what moved twice as large"
        if not (changed & ~moves).any():  # a `same` grows with what it hands on, wherever that lies
            yield LawPair(words=words, one=FuzzCase(program=one), other=FuzzCase(program=other), apart=moves)


def pinned(case: FuzzCase) -> Iterator[LawPair]:
    """Yield the case with one buffer more pinned than the host reads."""
    program = case.program
    reads = pin_reads(program)
    for buffer in _drawn(program, pin_all(program) & ~reads & ~program.buffers.persistent):
        more = reads.copy()
        more[buffer] = True
        words = f"with buffer {buffer} {program.buffers.names[buffer]!r} pinned too"
        yield LawPair(words=words, one=FuzzCase(program=program), other=FuzzCase(program=program, pinned=more))


def enlarged(case: FuzzCase) -> Iterator[LawPair]:
    """Yield the lives of the case with one buffer larger by some multiples of its alignment."""
    believed, program = case.believed, case.program
    assert believed is not None
    for buffer in _drawn(program, _loose(case)):
        more = believed.nbytes.copy()
        more[buffer] += (1 + number_of(program) % 5) * int(program.buffers.alignment[buffer])
        larger = replace(program, buffers=replace(program.buffers, nbytes=more))
        other = FuzzCase(program=larger, believed=replace(believed, program=larger, nbytes=more))
        words = f"with {more[buffer]} bytes of buffer {buffer}, not {believed.nbytes[buffer]}"
        yield LawPair(words=words, one=case, other=other)


def lengthened(case: FuzzCase) -> Iterator[LawPair]:
    """Yield the lives of the case with one that begins a step earlier or ends some later."""
    believed = case.believed
    assert believed is not None
    for turn, buffer in enumerate(_drawn(case.program, _loose(case) & ~believed.pinned)):
        start, stop = believed.start.copy(), believed.stop.copy()
        if turn % 3 == 0 and start[buffer] > 0:
            start[buffer] -= 1
        else:
            stop[buffer] += 1 + turn % 2
        lives = "living from step {} to {}, not from {} to {}".format(
            *(int(column[buffer]) for column in (start, stop, believed.start, believed.stop))
        )
        other = FuzzCase(program=case.program, believed=replace(believed, start=start, stop=stop))
        yield LawPair(words=f"with buffer {buffer} {lives}", one=case, other=other)


def _loose(case: FuzzCase) -> Bools:
    """Return which buffers have bytes and a life, are in no pair and have no decided offset."""
    believed = case.believed
    assert believed is not None
    mask: Bools = (believed.stop > believed.start) & (believed.nbytes > 0) & ~believed.own
    mask[believed.may_share] = False
    mask[list(believed.fixed)] = False
    return mask


def _drawn(program: Program, which: Bools) -> list[int]:
    """Return the buffers of a mask in an order that the program itself gives."""
    order: list[int] = np.random.default_rng(number_of(program)).permutation(np.flatnonzero(which)).tolist()
    return order


# what holds ---------------------------------------------------------------------------------------


def tops(plan: Plan, *, rounded: bool = False) -> list[int]:
    """Return where the highest slot of each arena ends, or that `rounded` up to the buffer's
    alignment, as where buffers lie side by side in any order.
    """
    highest = np.zeros(len(plan.program.arenas), dtype=np.int64)
    placed = plan.arena >= 0
    end = plan.offset + plan.nbytes
    end = rounded_up(end, plan.program.buffers.alignment) if rounded else end
    np.maximum.at(highest, plan.arena[placed], end[placed])
    found: list[int] = highest.tolist()
    return found


def unmoved(pair: LawPair, one: Plan, other: Plan) -> Why | None:
    """Return which slot moved, if one did."""
    if pair.apart is None and same_plan(one, other):
        return None
    looked = np.ones(len(one.offset), dtype=np.bool_) if pair.apart is None else ~pair.apart
    moved = looked & ((one.arena != other.arena) | (one.offset != other.offset) | (one.nbytes != other.nbytes))
    if not moved.any() and pair.apart is not None:
        return None
    buffer = int(np.argmax(moved))
    where = f"buffer {buffer} lies at {other.offset[buffer]}, without that at {one.offset[buffer]}"
    return "a slot moves", f"{pair.words}, {where if moved.any() else 'its events are others'}"


def level(pair: LawPair, one: Plan, other: Plan) -> Why | None:
    """Return which arena has another peak, if one has."""
    peaks = (tops(plan, rounded=True) for plan in (one, other))
    return _between(pair, one, *peaks, cause="another peak", wrong=lambda before, now: before != now)


def no_lower(pair: LawPair, one: Plan, other: Plan) -> Why | None:
    """Return which arena has a lower peak, if one has."""
    return _between(pair, one, tops(one), tops(other), cause="a lower peak", wrong=lambda before, now: now < before)


def _between(
    pair: LawPair, plan: Plan, one: list[int], other: list[int], *, cause: str, wrong: Callable[[int, int], bool]
) -> Why | None:
    for arena, before, now in zip(plan.program.arenas, one, other, strict=True):
        if wrong(before, now):
            return cause, f"{pair.words}, its plan ends at byte {now} of arena {arena.name!r}, without that at {before}"
    return None


def refused_alike(pair: LawPair, one: Answer, other: Answer) -> Why | None:
    """Return that one of two is refused and the other is not, if that is so."""
    if (one.plan is None) is (other.plan is None):
        return None
    return "one of two is refused", f"{pair.words}, it is {'planned' if other.plan is not None else 'refused'}"


def refused_still(pair: LawPair, one: Answer, other: Answer) -> Why | None:
    """Return that what asks for more is not refused although the first was, if that is so."""
    if one.refused is None or other.plan is None:
        return None
    return (
        "what asks for more is not refused",
        f"{pair.words}, it is planned; without that it is refused: {one.refused}",
    )


def refused_as_may_be(_: LawPair, __: Answer, ___: Answer) -> Why | None:
    """Say nothing: either arena may be too small."""
    return None


LAWS: Final[dict[str, Law]] = {
    "rename": Law(made=renamed, compared=unmoved, refusals=refused_alike),
    "permute": Law(made=permuted, compared=level, refusals=refused_alike),
    "split_arena": Law(made=split, compared=unmoved, refusals=refused_as_may_be),
    "add_pin": Law(made=pinned, compared=no_lower, refusals=refused_still),
    "enlarge": Law(made=enlarged, compared=no_lower, refusals=refused_still, of_lives=True),
    "monotone": Law(made=lengthened, compared=no_lower, refusals=refused_still, of_lives=True),
}
"""Every law by name, which is that of its property and its guarantee."""
