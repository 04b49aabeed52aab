"""Planners that are wrong in one way each, and sound ones that look odd: targets for the fuzzer beside its own mutants.

    allocsim fuzz broken_planners:fourth_operand_freed           # from this folder
    python benchmarks/planted.py --within --seeds 1 NAME...      # all of `TARGETS` are among its names

Each is the shelf's `greedy_by_size` but for its bug, and is right wherever the bug does not show. None is a mutant of `allocsim.fuzzing.mutants`, so that
what the fuzzer finds here is not what its own mutants were made for; those of `unseen` were written without a look at the sources of programs, and each
of `corner` is wrong in one hard corner. Most are rows: what is wrong is one way of being wrong (a read that is not seen, a life a step short, another
alignment, another size, a refusal, a planner that is moved by what it should not look at), and the row says where. No belief comes with most answers: a
stranger has none to show.
"""

import contextlib
import gc
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import planted_planners as planted
from planted_planners import SHELF, _apart, _lifted, moved

from allocsim.allocators import ALLOCATORS, Constraints, exact, pin_all, pin_reads
from allocsim.errors import CapacityError
from allocsim.fuzzing.features import view_depth
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Bools, Plan, Problem, Program, Role
from allocsim.model.layout import Int64s
from allocsim.programs.builder import plan_of

Planner = Callable[..., Any]
SEEN: Final[dict[str, Any]] = {}
"""What a process remembers of the calls before."""
HELD: Final[list[Any]] = []
TURNS: Final = ("greedy_by_size", "reference", "linear_scan", "best_fit", "greedy_by_breadth")


def _way(plan: Callable[..., Any]) -> Callable[..., Planner]:
    """Make of a way of being wrong, asked with what a row says of it, what returns the planner of a row."""
    return lambda *says, **named: lambda program, constraints: plan(program, constraints, *says, **named)


# lives that end early ------------------------------------------------------------------------------------------------------------


def _placed(problem: Problem, constraints: Constraints, stop: Any) -> Plan:
    """Place a belief with other ends, without its pairs; what is pinned stays to the end."""
    made = replace(problem, may_share=np.empty((0, 2), np.int32), stop=stop)
    plan = SHELF.place(replace(made, stop=np.where(constraints.pinned, made.stop.max(initial=0), made.stop)))
    return moved(plan, plan.offset)


class _Reads(NamedTuple):
    """All reads of a program but those of views, in columns."""

    p: Program
    problem: Problem
    step: Int64s
    place: Int64s
    """Among the operands."""
    many: Int64s
    """How many operands the op has."""
    value: Int64s
    buffer: Int64s


@_way
def _missing(program: Program, constraints: Constraints, missed: Callable[[_Reads], Any]) -> Plan:
    """Reads are not seen where that holds of them; each buffer lives to the last access that is seen."""
    ops, home, problem = program.ops, program.values.buffer, exact.believe(program, constraints)
    many = np.diff(ops.operand_starts)
    step = np.repeat(np.arange(len(ops)), many)
    place = np.arange(len(ops.operands)) - ops.operand_starts[step]
    real = ~ops.is_kind(VIEW)[step]
    step, place, value = step[real], place[real], ops.operands[real]
    buffer = home[value].astype(np.int64)
    mask = np.asarray(missed(_Reads(program, problem, step, place, many[step], value, buffer)))
    mask = mask & ~ops.is_kind(HOST_READ)[step]
    writer = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    acts = ~ops.is_kind(VIEW)[writer]
    stop = problem.start.copy()
    np.maximum.at(stop, home[ops.results[acts]], writer[acts] + 1)
    np.maximum.at(stop, buffer[~mask], step[~mask] + 1)
    touched = np.zeros(len(stop), dtype=np.bool_)
    touched[buffer[mask]] = True
    free = touched & ~constraints.pinned & ~program.buffers.persistent
    return _placed(problem, constraints, np.where(free, np.minimum(stop, problem.stop), problem.stop))


def _through(odd: Callable[[Any], bool]) -> Planner:
    """Reads through values that are odd are not seen."""
    return _missing(lambda r: np.array([odd(r.p.values[int(value)]) for value in r.value], dtype=np.bool_))


@_way
def _ended(program: Program, constraints: Constraints, ends: Callable[[Program, Problem], Any]) -> Plan:
    """Lives of what is neither pinned nor persistent end otherwise."""
    problem = exact.believe(program, constraints)
    free = ~(constraints.pinned | program.buffers.persistent)
    return _placed(problem, constraints, np.where(free, ends(program, problem), problem.stop))


def _short(where: Callable[[Program, Problem], Any]) -> Planner:
    """Lives end a step early where that holds of the buffers."""
    return _ended(lambda p, b: b.stop - ((b.stop > b.start + 1) & np.asarray(where(p, b))))


def _dead(where: Callable[[Program, Problem], Any]) -> Planner:
    """Buffers are dead as they are born where that holds of them."""
    return _ended(lambda p, b: np.where(where(p, b), np.minimum(b.start + 1, b.stop), b.stop))


@_way
def _above(program: Program, constraints: Constraints, count: int, what: str) -> Plan:
    """A table has so many buffers or ops; what comes after them is dead as it is born."""
    problem = exact.believe(program, constraints)
    late = np.arange(len(problem.start)) >= count if what == "buffers" else problem.start > count
    any_late = (late & ~constraints.pinned & ~program.buffers.persistent).any()
    return (_dead(lambda *_: late) if any_late else SHELF.plan)(program, constraints)


def _read_by(program: Program, ops: Bools) -> Bools:
    """Return which buffers an op of these reads."""
    return _touched(program, program.ops.operands[np.repeat(ops, np.diff(program.ops.operand_starts))])


def _made_by(program: Program, ops: Bools) -> Bools:
    """Return which buffers an op of these writes."""
    return _touched(program, program.ops.results[np.repeat(ops, np.diff(program.ops.result_starts))])


def _touched(program: Program, values: Any) -> Bools:
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[program.values.buffer[values]] = True
    return mask


def _third_and_later_results(program: Program, _: Problem) -> Bools:
    ops = program.ops
    step = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    late = np.arange(len(ops.results)) - ops.result_starts[step] > 1
    return _touched(program, ops.results[late & ~ops.is_kind(VIEW)[step]]) & ~pin_reads(program)


def _ninth_and_later(r: _Reads) -> Any:
    """Which reads of a buffer come after eight others."""
    seen: dict[int, int] = {}
    for one in r.buffer.tolist():
        seen[one] = seen.get(one, 0) + 1
        yield seen[one] > 8


def _after_the_first(r: _Reads) -> Any:
    """Which reads of what the host writes come after its first reader."""
    wrote = _made_by(r.p, r.p.ops.is_kind(HOST_WRITE))
    first = np.full(len(wrote), 1 << 40, dtype=np.int64)
    np.minimum.at(first, r.buffer, r.step)
    return wrote[r.buffer] & (r.step > first[r.buffer])


def _twice(r: _Reads) -> Any:
    """Which reads are one of two by one op."""
    pairs, inverse = np.unique(np.stack([r.step, r.buffer]), axis=1, return_inverse=True)
    return np.bincount(inverse.ravel(), minlength=pairs.shape[1])[inverse.ravel()] > 1


def deep_recursion(program: Program, constraints: Constraints) -> Plan:
    """Walks from op to op by calling itself."""

    def walk(step: int) -> int:
        return step if step >= len(program.ops) else walk(step + 1)

    walk(0)
    return SHELF.plan(program, constraints)


def _until_waited_for(program: Program, constraints: Constraints) -> Plan:
    """Plan with each life as long as there are ops that some access of the buffer does not precede. O(ops^2)."""
    ops, problem = program.ops, exact.believe(program, constraints)
    before = np.zeros((len(ops), len(ops)), dtype=np.bool_)  # [later, earlier]
    last: dict[int, int] = {}
    for op in ops:
        for earlier in {*op.after, *((last[op.stream],) if op.stream in last else ())}:
            before[op.step, earlier] = True
            before[op.step] |= before[earlier]
        last[op.stream] = op.step
    stop = problem.stop.copy()
    for starts, values in ((ops.operand_starts, ops.operands), (ops.result_starts, ops.results)):
        step = np.repeat(np.arange(len(ops)), np.diff(starts))
        acts = ~ops.is_kind(VIEW)[step]
        for at, of in zip(step[acts].tolist(), program.values.buffer[values[acts]].tolist(), strict=True):
            loose = np.flatnonzero(~before[at:, at])  # itself, and what may run before it
            stop[of] = max(stop[of], at + int(loose[-1]) + 1)
    return _placed(problem, constraints, np.where(problem.start < problem.stop, stop, problem.stop))


# bytes and places ------------------------------------------------------------------------------------------------------------------


def _of_buffers(program: Program, constraints: Constraints, **columns: Any) -> Plan:
    """Plan the program as if its buffers had other columns."""
    problem = exact.believe(program, constraints)
    buffers = replace(program.buffers, **{k: v for k, v in columns.items() if k != "nbytes"})
    nbytes = columns.get("nbytes", problem.nbytes)
    made = SHELF.place(replace(problem, program=replace(program, buffers=buffers), nbytes=nbytes))
    slots = np.where(made.arena >= 0, program.buffers.nbytes, 0)
    return Plan(program=program, arena=made.arena, offset=made.offset, nbytes=slots, source="planted")


@_way
def _aligned(program: Program, constraints: Constraints, changed: Callable[[Any, Any], Any]) -> Plan:
    """Buffers have another alignment, of that and of what else they are."""
    return _of_buffers(program, constraints, alignment=changed(program.buffers.alignment, program.buffers))


@_way
def _sized(program: Program, constraints: Constraints, changed: Callable[[Any], Any]) -> Plan:
    """Buffers have other sizes."""
    return _of_buffers(program, constraints, nbytes=changed(program.buffers.nbytes))


@_way
def _moved(program: Program, constraints: Constraints, changed: Callable[[Plan, Constraints], Any]) -> Plan:
    """Buffers lie elsewhere than the shelf says."""
    made = SHELF.plan(program, constraints)
    return moved(made, changed(made, constraints))


def buffers_of_eight_bits(program: Program, constraints: Constraints) -> Plan:
    """Buffers are numbered by one byte: the 257th lies where the first does."""
    plan = SHELF.plan(program, constraints)
    number = np.arange(len(plan.offset)) % 256
    return plan if len(number) <= 256 else moved(plan, plan.offset[number])


def twins_are_one(program: Program, constraints: Constraints) -> Plan:
    """Two buffers of one size, one birth and one end are taken for one."""
    plan = SHELF.plan(program, constraints)
    problem = exact.believe(program, constraints)
    offset, seen = plan.offset.copy(), dict[Any, int]()
    for b in np.flatnonzero((plan.arena >= 0) & (plan.nbytes > 0)).tolist():
        key = (plan.arena[b], plan.nbytes[b], problem.start[b], problem.stop[b], program.buffers.alignment[b])
        offset[b] = offset[b] if b in constraints.fixed else offset[seen.setdefault(key, b)]
    return moved(plan, offset)


def _empty_above_the_end(plan: Plan, constraints: Constraints) -> Any:
    """Empty buffers a byte behind all that their arena has."""
    offset, program = plan.offset.copy(), plan.program
    for b in np.flatnonzero((program.buffers.nbytes == 0) & (plan.arena >= 0)).tolist():
        capacity = program.arenas[int(plan.arena[b])].capacity
        offset[b] = offset[b] if capacity is None or b in constraints.fixed else capacity + 1
    return offset


# arenas and capacities -----------------------------------------------------------------------------------------------------------


def _arena(program: Program, number: int) -> Bools:
    found: Bools = program.buffers.arena == number
    return found


@_way
def _capacities(program: Program, constraints: Constraints, changed: Callable[[int, Any, Any], int | None]) -> Plan:
    """Arenas end elsewhere, by their number, what they are and the first of them."""
    ends = [changed(number, arena, program.arenas[0]) for number, arena in enumerate(program.arenas)]
    arenas = tuple(replace(arena, capacity=end) for arena, end in zip(program.arenas, ends, strict=True))
    made = SHELF.plan(replace(program, arenas=arenas), constraints)
    return Plan(program=program, arena=made.arena, offset=made.offset, nbytes=made.nbytes, source="planted")


def _rounded_up(_: int, arena: Any, __: Any) -> int | None:
    return None if arena.capacity is None else -(-(arena.capacity + 1) // arena.alignment) * arena.alignment


@_way
def _in_arenas(program: Program, constraints: Constraints, changed: Callable[[Plan], Any]) -> Plan:
    """Buffers lie in other arenas than the shelf says."""
    made = SHELF.plan(program, constraints)
    arena = changed(made).astype(np.int32)
    return Plan(program=program, arena=arena, offset=made.offset, nbytes=made.nbytes, source="planted")


@_way
def _refuses(
    program: Program,
    constraints: Constraints,
    where: Callable[[Program, Constraints], Any],
    words: str = "it does not fit",
) -> Plan:
    """What that holds of is refused."""
    if where(program, constraints):
        raise CapacityError(words)
    return SHELF.plan(program, constraints)


def _beyond_the_sum(program: Program, _: Constraints) -> bool:
    """Whether one of several arenas ends before all buffers together do."""
    whole = program.buffers.nbytes.sum()
    return len(program.arenas) > 1 and any(a.capacity is not None and whole > a.capacity for a in program.arenas)


def _nearly_full(program: Program, constraints: Constraints) -> bool:
    """Whether more than nine tenths of an arena would be taken."""
    plan = SHELF.plan(program, constraints)
    tops = [int((plan.offset + plan.nbytes)[plan.arena == n].max(initial=0)) for n in range(len(program.arenas))]
    return any(
        a.capacity is not None and top * 10 > a.capacity * 9 for a, top in zip(program.arenas, tops, strict=True)
    )


def squeezed_by_a_step(program: Program, constraints: Constraints) -> Plan:
    """Where nothing else fits, lives end a step earlier."""
    try:
        return SHELF.plan(program, constraints)
    except CapacityError:
        problem = exact.believe(program, constraints)
        shorter = np.where(constraints.pinned, problem.stop, np.maximum(problem.stop - 1, problem.start))
        return _placed(problem, constraints, shorter)


# what is told ----------------------------------------------------------------------------------------------------------------------


@_way
def _believing(program: Program, constraints: Constraints, **changed: Callable[..., Any]) -> Plan:
    """What is told is read otherwise, and the belief is shown."""
    read = {name: how(program, constraints) for name, how in changed.items()}
    return SHELF.plan(program, replace(constraints, **read))


@_way
def _told(program: Program, constraints: Constraints, **changed: Callable[..., Any]) -> Plan:
    """What is told is read otherwise."""
    return moved(plan := _believing(**changed)(program, constraints), plan.offset)


def _fixed_where(where: Callable[[Program, int, int], Any]) -> dict[str, Any]:
    """Return what reads of the decided offsets those of which that holds, with buffer and offset."""
    return {"fixed": lambda p, c: {b: at for b, at in c.fixed.items() if where(p, b, at)}}


def _decided(program: Program, told: Constraints | Problem) -> Bools:
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[list(told.fixed)] = True
    return mask


def _without_the_largest(program: Program, constraints: Constraints) -> dict[int, int]:
    """Of two decided offsets or more all but that of the largest buffer."""
    left = sorted(constraints.fixed, key=lambda b: int(program.buffers.nbytes[b]))
    return {b: constraints.fixed[b] for b in (left[:-1] if len(left) > 1 else left)}


def _first_pin(program: Program, constraints: Constraints) -> Bools:
    """Of what is pinned beyond the host's reads, the first buffer alone."""
    pinned = constraints.pinned.copy()
    pinned[np.flatnonzero(pinned & ~pin_reads(program))[1:]] = False
    return pinned


def pins_until_the_last_op(program: Program, constraints: Constraints) -> Plan:
    """What is pinned is kept until the last op, and not through it."""
    problem = exact.believe(program, constraints)
    held = constraints.pinned & (problem.stop == len(program.ops)) & ~pin_reads(program)
    start = np.minimum(problem.start, problem.stop)
    stop = np.where(held & (start < problem.stop - 1), problem.stop - 1, problem.stop)
    made = replace(problem, stop=stop, pinned=problem.pinned & ~held, may_share=np.empty((0, 2), np.int32))
    plan = SHELF.place(made)
    return moved(plan, plan.offset)


def laid_over_the_fixed(program: Program, constraints: Constraints) -> Plan:
    """What is decided is put there last, whatever lies there."""
    plan = SHELF.plan(program, replace(constraints, fixed={}))
    offset = plan.offset.copy()
    for buffer, at in constraints.fixed.items():
        if plan.arena[buffer] >= 0:
            offset[buffer] = at
    return moved(plan, offset)


def _moved_behind_the_decided(plan: Plan, constraints: Constraints) -> Any:
    """Behind all others what is decided onto bytes that are decided for another buffer."""
    offset, ends = plan.offset.copy(), dict[int, int]()
    for buffer in sorted((b for b in constraints.fixed if plan.arena[b] >= 0), key=lambda b: (plan.offset[b], b)):
        arena, at, size = int(plan.arena[buffer]), int(plan.offset[buffer]), int(plan.nbytes[buffer])
        if size and at < ends.get(arena, 0):
            unit, high = int(plan.program.buffers.alignment[buffer]), int((plan.offset + plan.nbytes).max())
            offset[buffer] = -(-high // unit) * unit
        ends[arena] = max(ends.get(arena, 0), at + size)
    return offset


# what the answer depends on ------------------------------------------------------------------------------------------------------


@_way
def _lift(program: Program, constraints: Constraints, by: Callable[[Program], Any]) -> Plan:
    """Everything lies as many units higher."""
    return _lifted(program, constraints, by(program))


@_way
def _of_shelf(program: Program, constraints: Constraints, name: Callable[[Program], str]) -> Plan:
    """Another planner of the shelf."""
    return ALLOCATORS[name(program)].plan(program, constraints)


def _by(number: Callable[[Program], int]) -> Planner:
    """Another planner of the shelf for each number: each is sound and no worse, so that nothing else is wrong."""
    return _of_shelf(lambda program: TURNS[number(program) % len(TURNS)])


def _call() -> int:
    """Return the number of a call."""
    SEEN["calls"] = SEEN.get("calls", 0) + 1
    return int(SEEN["calls"])


def _counted(path: Path) -> int:
    """Return how often this was called with this file."""
    count = int(path.read_text() or 0) + 1 if path.exists() else 1
    path.write_text(str(count))
    return count


def _changed(key: str, value: Any) -> bool:
    """Return whether something is otherwise than in the call before."""
    before, SEEN[key] = SEEN.get(key, value), value
    return bool(before != value)


def by_order_of_a_set(program: Program, constraints: Constraints) -> Plan:
    """Places buffers in the order in which a set of their names comes."""
    problem = exact.believe(program, constraints)
    number = {name: buffer for buffer, name in enumerate(program.buffers.names)}
    order = np.array([number[name] for name in set(program.buffers.names)], dtype=np.int32)
    if len(order) != len(problem.order):
        return SHELF.place(problem)
    return ALLOCATORS["linear_scan"].place(replace(problem, order=order))


@_way
def _cached(program: Program, constraints: Constraints, key: Callable[[Program], Any]) -> Plan:
    """A plan is kept for the next program that is alike in that."""
    made = SHELF.plan(program, constraints)
    kept = SEEN.setdefault("plans", {}).setdefault(key(program), made.offset)
    return made if kept is made.offset or len(kept) != len(made.offset) else moved(made, kept)


def never_reset(program: Program, constraints: Constraints) -> Plan:
    """The plan begins where the one before it ended, up to a kibibyte."""
    plan = _lifted(program, constraints, SEEN.get("end", 0) % 16)
    SEEN["end"] = SEEN.get("end", 0) + len(program.buffers)
    return plan


def told_once(program: Program, constraints: Constraints) -> Plan:
    """Pins are kept from the first program with as many buffers."""
    pinned = SEEN.setdefault(f"pins of {len(program.buffers)}", constraints.pinned)
    return moved(plan := SHELF.plan(program, replace(constraints, pinned=pinned | pin_reads(program))), plan.offset)


def after_a_refusal(program: Program, constraints: Constraints) -> Plan:
    """The plan after one that was refused lies higher."""
    lift = SEEN.pop("refused", 0)
    try:
        return _lifted(program, constraints, lift)
    except CapacityError:
        SEEN["refused"] = 3
        raise


def pins_kept_from_before(program: Program, constraints: Constraints) -> Plan:
    """Pins are kept for the next program with as many buffers."""
    before = SEEN.get("pins", constraints.pinned)
    SEEN["pins"] = constraints.pinned
    pinned = before | pin_reads(program) if len(before) == len(constraints.pinned) else constraints.pinned
    return moved(made := SHELF.plan(program, replace(constraints, pinned=pinned)), made.offset)


# gaps ------------------------------------------------------------------------------------------------------------------------------


def _first_fit(problem: Problem, gaps: dict[int, Any]) -> Plan:
    """Place by first fit in order of birth, with the gaps of some lives. O(buffers^2)."""
    program, end = problem.program, 1 << 40
    buffers = program.buffers
    lives: dict[int, list[tuple[int, int]]] = {}
    for buffer in range(len(buffers)):
        stop = end if problem.pinned[buffer] else int(problem.stop[buffer])
        low, lives[buffer] = int(problem.start[buffer]), []
        for gap in sorted(gaps.get(buffer, ())):
            lives[buffer].append((low, gap[0]))
            low = gap[1]
        lives[buffer].append((low, stop))
    offset: list[int | str] = ["own" if apart else 0 for apart in problem.own.tolist()]
    done: list[int] = []
    for buffer in [*problem.fixed, *(b for b in problem.order.tolist() if b not in problem.fixed)]:
        if problem.own[buffer]:
            continue
        unit, size, arena = int(buffers.alignment[buffer]), int(buffers.nbytes[buffer]), int(buffers.arena[buffer])
        met = [
            o
            for o in done
            if buffers.arena[o] == arena
            and buffers.nbytes[o]
            and any(a < d and c < b for a, b in lives[buffer] for c, d in lives[o])
        ]
        at = problem.fixed.get(buffer, 0)
        if buffer not in problem.fixed:
            for low, high in sorted((int(offset[o]), int(offset[o]) + int(buffers.nbytes[o])) for o in met):
                if at + size <= low:
                    break
                at = max(at, -(-high // unit) * unit)
        capacity = program.arenas[arena].capacity
        if capacity is not None and at + size > capacity:
            raise CapacityError(f"buffer {buffer} does not fit into {capacity} bytes")
        offset[buffer] = at
        done.append(buffer)
    return plan_of(program, offset, problem=problem, source="planted")


def _promising(planner: Planner, *more: str) -> Planner:
    """Return a planner that promises to be sound and deterministic."""
    planner.guarantees = ("sound", "deterministic", *more)  # type: ignore[attr-defined]
    return planner


def _gaps(of: Callable[[Problem], Any], changed: Callable[[Any, int], Any]) -> Planner:
    """Gaps, sorted, are read otherwise where that holds of their buffers, by themselves and the end of the life."""

    def plan(problem: Problem) -> Plan:
        which = of(problem)
        gaps = {b: changed(sorted(g), int(problem.stop[b])) if which[b] else g for b, g in problem.gaps.items()}
        return _first_fit(problem, gaps)

    return _promising(plan)


def _many(count: int) -> Callable[[Problem], Any]:
    """Return which lives have so many gaps or more."""
    return lambda problem: [len(problem.gaps.get(b, ())) >= count for b in range(len(problem.start))]


def _donors(problem: Problem) -> Bools:
    mask = np.zeros(len(problem.start), dtype=np.bool_)
    mask[problem.may_share[:, 0]] = True
    return mask


def gap_of_another(problem: Problem) -> Plan:
    """Gaps are kept by their place in a list, not by their buffer."""
    return _first_fit(problem, {b + 1: gaps for b, gaps in problem.gaps.items() if b + 1 < len(problem.start)})


# in place --------------------------------------------------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """A pair that an op declares: its places among operands and results, and their buffers."""

    problem: Problem
    op: Any
    o: int
    r: int
    donor: int
    to: int


@_way
def _over(program: Program, constraints: Constraints, fits: Callable[[_Pair], Any]) -> Plan:
    """The result of each pair that `fits` is laid over its operand, whatever else lies there."""
    problem = exact.believe(program, constraints)
    made, home = SHELF.place(problem), program.values.buffer
    offset = made.offset.copy()
    for op in program.ops:
        for o, r in op.in_place or ():
            donor, to = int(home[op.operands[o]]), int(home[op.results[r]])
            inside = made.arena[donor] == made.arena[to] >= 0 and to not in constraints.fixed
            born = donor != to and inside and problem.start[to] == op.step
            if born and fits(_Pair(problem, op, o, r, donor, to)):
                offset[to] = offset[donor]
    return moved(made, offset)


def _left(pair: _Pair) -> int:
    """Return how many steps after the op the donor lives."""
    return int(pair.problem.stop[pair.donor] - pair.op.step - 1)


def _lent(where: Callable[[_Pair], Any]) -> Planner:
    """A pair is taken where that holds, although its donor is read once more."""
    return _over(lambda pair: _left(pair) > 0 and where(pair))


def in_place_by_size(program: Program, constraints: Constraints) -> Plan:
    """The only result of an op takes the place of an only operand of its size, declared or not."""
    problem, home = exact.believe(program, constraints), program.values.buffer
    plan = SHELF.place(problem)
    offset = plan.offset.copy()
    for op in program.ops:
        if op.kind != VIEW and len(op.operands) == len(op.results) == 1:
            donor, to = int(home[op.operands[0]]), int(home[op.results[0]])
            fits = plan.nbytes[donor] == plan.nbytes[to] and plan.arena[donor] == plan.arena[to] >= 0
            if fits and problem.stop[donor] == op.step + 1 and to not in constraints.fixed:
                offset[to] = offset[donor]
    return moved(plan, offset)


# what it does to its process, and how it ends ------------------------------------------------------------------------------------


@_way
def _does(program: Program, constraints: Constraints, what: Callable[[Program], Any]) -> Plan:
    """Something is done before the answer."""
    what(program)
    return SHELF.plan(program, constraints)


@_way
def _ends(program: Program, constraints: Constraints, where: Callable[[Program], Any], how: Callable[[], Any]) -> Any:
    """Something else than an answer comes of what that holds of."""
    return how() if where(program) else SHELF.plan(program, constraints)


def _wide(program: Program) -> int:
    return int(np.diff(program.ops.operand_starts).max(initial=0))


def _hangs() -> None:
    while True:
        pass


def _raises() -> None:
    raise IndexError("list index out of range")


def _works(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def _collects() -> None:
    """Make a circle of objects and collect it."""
    circle: list[Any] = []
    circle.append(circle)
    gc.collect()


def _leaves_a_thread() -> None:
    """Leave a thread that waits, up to eight."""
    if threading.active_count() < 8:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


def _changes_folder() -> None:
    with contextlib.suppress(OSError):
        os.chdir("/")


# sound, and odd ------------------------------------------------------------------------------------------------------------------


def answers_in_a_dict(program: Program, constraints: Constraints) -> dict[int, int]:
    """Sound; answers with offsets by buffer, of numpy's integers, the last buffer first."""
    plan = SHELF.plan(program, constraints)
    return {buffer: plan.offset[buffer] for buffer in np.flatnonzero(plan.arena >= 0)[::-1].tolist()}


def answers_in_a_list(program: Program, constraints: Constraints) -> list[int | None]:
    """Sound; answers with a list of Python's integers, and None for what lies apart."""
    plan = SHELF.plan(program, constraints)
    return [int(at) if arena >= 0 else None for at, arena in zip(plan.offset, plan.arena, strict=True)]


def in_drawn_order(problem: Problem) -> Plan:
    """Sound; fits in an order that is drawn from the problem itself."""
    rng = np.random.default_rng(crc32(problem.nbytes.tobytes() + problem.start.tobytes() + problem.stop.tobytes()))
    return _first_fit(replace(problem, order=problem.order[rng.permutation(len(problem.order))]), dict(problem.gaps))


def last_number_first(problem: Problem) -> Plan:
    """Sound; first fit from the last buffer to the first."""
    return _first_fit(replace(problem, order=problem.order[::-1].copy()), {})


def lower_of_two(program: Program, constraints: Constraints) -> Plan:
    """Sound; the lower of two plans, which may be one of either."""
    made = [ALLOCATORS[name].plan(program, constraints) for name in ("best_fit", "skyline_by_area")]
    return min(made, key=lambda plan: plan.peak_bytes)


def kept_by_all_of_it(program: Program, constraints: Constraints) -> Plan:
    """Sound; keeps the last four problems with their plans, and compares all that a placement reads."""
    problem, made = exact.believe(program, constraints), SEEN.setdefault("whole", {})
    columns = ("start", "stop", "nbytes", "order", "own", "pinned", "may_share")
    read = [*(getattr(problem, column) for column in columns), program.buffers.arena, program.buffers.alignment]
    key = (*(column.tobytes() for column in read), str((problem.fixed, program.arenas)))
    if key not in made:
        if len(made) == 4:
            made.pop(next(iter(made)))
        made[key] = SHELF.place(problem)
    return replace(made[key], program=program, problem=None)


def raises_within(program: Program, constraints: Constraints) -> Plan:
    """Sound; tries to fit into half of the bytes, and goes on where that is refused."""
    plan = SHELF.plan(program, constraints)
    half = plan.peak_bytes // 2
    halves = tuple(replace(a, capacity=half if a.capacity is None else min(half, a.capacity)) for a in program.arenas)
    try:
        tight = ALLOCATORS["linear_scan"].plan(replace(program, arenas=halves), constraints)
    except CapacityError:
        return plan
    return moved(plan, tight.offset)


def least_common_multiple(program: Program, constraints: Constraints) -> Plan:
    """Sound; each buffer at a multiple of all alignments of its arena."""
    step = np.ones(len(program.arenas), dtype=np.int64)
    np.lcm.at(step, program.buffers.arena, program.buffers.alignment)
    return _of_buffers(program, constraints, alignment=step[program.buffers.arena])


def seeds_the_generator(program: Program, constraints: Constraints) -> Plan:
    """Sound; seeds the generator that everybody uses, and draws who plans."""
    random.seed(len(program.buffers))
    return ALLOCATORS[random.choice(("best_fit", "greedy_by_breadth"))].plan(program, constraints)  # noqa: S311


Rows = dict[str, dict[str, Planner]]

BROKEN: Final[Rows] = {
    "arity": {
        "fourth_operand_freed": _missing(lambda r: r.place > 2),  # what an op reads as its fourth or a later one is not kept
        "sixth_operand_freed": _missing(lambda r: r.place > 4),
        "second_of_three_missed": _missing(lambda r: (r.place == 1) & (r.many > 2)),
        "third_result_has_no_life": _dead(_third_and_later_results),
        "reads_of_two_results_missed": _missing(lambda r: np.diff(r.p.ops.result_starts)[r.step] > 1),  # by an op with two or more
    },
    "lives": {
        "second_reader_on_one_step_missed": _missing(lambda r: np.fromiter(_ninth_and_later(r), np.bool_)),  # a buffer has room for eight readers
        "far_readers_missed": _missing(lambda r: r.step > r.problem.start[r.buffer] + 64),
        "inputs_die_first": _missing(_after_the_first),
        "third_view_forgotten": _missing(lambda r: view_depth(r.p)[r.value] > 2),  # a view of a view of a view
    },
    "scale": {
        **{f"buffers_above_{n}": _above(n, "buffers") for n in (16, 64, 256, 1000, 2000)},
        "buffers_of_eight_bits": buffers_of_eight_bits,
        **{f"steps_above_{n}": _above(n, "ops") for n in (200, 400)},
        "deep_recursion": deep_recursion,
    },
    "alignment": {
        "alignment_at_most_32": _aligned(lambda a, _: np.minimum(a, 32)),
        "alignment_at_most_512": _aligned(lambda a, _: np.minimum(a, 512)),
        "alignment_at_most_a_page": _aligned(lambda a, _: np.minimum(a, 4096)),  # huge pages are not known
        "alignment_of_the_first": _aligned(lambda a, _: np.full_like(a, a[0] if len(a) else 1)),
        "alignment_in_kibibytes": _aligned(lambda a, _: np.where(a > 1024, 1024, a)),
        "granule_rounded_down": _aligned(lambda a, _: 1 << np.floor(np.log2(a)).astype(np.int64)),  # to a power of two
    },
    "bytes": {
        "sizes_of_32_bits": _sized(lambda n: n % (1 << 32)),
        "sizes_of_31_bits": _sized(lambda n: np.maximum(n.astype(np.int32).astype(np.int64), 0)),  # and a sign: what is negative counts as nothing
        "sizes_in_kibibytes": _sized(lambda n: np.where(n > 1 << 20, n // 1024 * 1024, n)),  # above a mebibyte, rounded down
        "sizes_of_floats": _sized(lambda n: np.minimum(n.astype(np.float32).astype(np.int64), n)),  # of 24 bits, the tail is rounded away
        "size_less_one": _sized(lambda n: np.maximum(n - 1, 0)),  # slots may meet in one byte: `<` where `<=` is due
        "offsets_wrapped": _moved(lambda plan, _: plan.offset % (1 << 32)),
        "offsets_of_floats": _moved(lambda plan, _: plan.offset.astype(np.float32).astype(np.int64)),
        "offsets_of_doubles": _moved(lambda plan, _: plan.offset.astype(np.float64).astype(np.int64)),
        "empty_divides": _does(lambda p: [1 / n for n in p.buffers.nbytes.tolist()]),  # weighs bytes against life
        "empty_takes_its_place": _moved(lambda plan, _: np.where((plan.program.buffers.nbytes == 0) & (plan.arena >= 0), -1, plan.offset)),
    },
    "arenas": {
        "capacity_ignored": _capacities(lambda *_: None),
        "capacity_of_the_first": _capacities(lambda _, __, first: first.capacity),
        "capacity_rounded_up": _capacities(_rounded_up),  # to whole units of the arena
        "refuses_what_fits": _capacities(lambda _, a, __: None if a.capacity is None else max(a.capacity - 1, 0)),  # to the last byte
        "refuses_by_the_sum": _refuses(_beyond_the_sum, "no room"),  # two arenas are given one capacity between them
        "squeezed_by_a_step": squeezed_by_a_step,
        "last_arena_for_all": _in_arenas(lambda plan: np.where(plan.arena >= 0, len(plan.program.arenas) - 1, plan.arena)),
    },
    "own": {
        "own_for_all": _told(own=lambda p, _: np.ones(len(p.buffers), dtype=np.bool_), fixed=lambda *_: {}),  # of which no peak tells
        "own_for_the_large": _believing(own=lambda p, c: c.own | (p.buffers.nbytes > 1 << 20) & ~_decided(p, c)),
        "own_for_the_pinned": _believing(own=lambda p, c: c.own | c.pinned & ~_decided(p, c)),
        "own_ignored": _believing(own=lambda p, _: p.buffers.persistent),
        "own_of_parameters_alone": _believing(own=lambda p, c: c.own & p.buffers.persistent),
    },
    "pins": {
        "partial_pins_ignored": _told(pinned=lambda p, c: c.pinned if np.array_equal(c.pinned, pin_all(p)) else pin_reads(p)),
        "first_pin_alone": _told(pinned=_first_pin),
        "pins_of_inputs_ignored": _told(pinned=lambda p, c: c.pinned & (p.buffers.role != Role.INPUT) | pin_reads(p)),
        "pins_until_the_last_op": pins_until_the_last_op,
    },
    "fixed": {
        "fixed_ignored": _told(fixed=lambda *_: {}),
        "one_fixed_heeded": _told(fixed=lambda _, c: dict(list(c.fixed.items())[:1])),
        "laid_over_the_fixed": laid_over_the_fixed,
        "fixed_in_units_of_64": _moved(lambda plan, c: np.where(_decided(plan.program, c) & (plan.arena >= 0), plan.offset // 64 * 64, plan.offset)),
        "fixed_where_it_ends_ignored": _believing(**_fixed_where(lambda p, b, _: p.arenas[int(p.buffers.arena[b])].capacity is None)),
        "fixed_in_turn_moved": _moved(_moved_behind_the_decided),
    },
    "streams": {"streams_by_the_list": _promising(_moved(lambda plan, _: plan.offset), "streams")},  # takes the order of the list for a wait
    "chance": {
        "by_hash_seed": _lift(lambda _: hash("where") % 7),
        "by_order_of_a_set": by_order_of_a_set,
        "by_time": _lift(lambda _: int(time.time()) % 5),
        "by_chance": _lift(lambda _: int(random.random() < 0.05)),  # noqa: S311 - a planted bug
        "by_process": _lift(lambda _: os.getpid() % 16),
        "by_address": _lift(lambda p: id(p) // 64 % 5),
        **{name: getattr(planted, name) for name in ("by_hour", "by_hour_of_utc", "by_thread")},
    },
    "history": {
        "by_history": _lift(lambda _: _call() > 100),
        "kept_by_count": _cached(lambda p: (len(p.ops), len(p.buffers))),
        "kept_by_total": _cached(lambda p: (int(p.buffers.nbytes.sum()), len(p.buffers))),
        "kept_without_constraints": _cached(lambda p: tuple(column.tobytes() for column in (p.ops.operands, p.ops.results, p.buffers.nbytes))),
        "never_reset": never_reset,
    },
    "gaps": {
        "gap_a_step_long": _gaps(_many(1), lambda gaps, _: [(low, high + 1) for low, high in gaps]),  # it is read as inclusive
        "gaps_are_one": _gaps(_many(1), lambda gaps, _: [(gaps[0][0], max(high for _, high in gaps))]),
        "gap_of_another": _promising(gap_of_another),
        "gap_of_the_pinned_to_the_end": _gaps(lambda problem: problem.pinned, lambda gaps, _: [(gaps[0][0], 1 << 40)]),
        "gap_of_the_fixed_to_the_end": _gaps(lambda problem: _decided(problem.program, problem), lambda gaps, _: [(gaps[0][0], 1 << 40)]),
        "gap_of_a_donor_to_the_end": _gaps(_donors, lambda gaps, _: [(gaps[0][0], 1 << 40)]),
    },
    "in place": {
        "in_place_over_the_pinned": _over(lambda pair: pair.problem.pinned[pair.donor]),
        "in_place_over_the_living": _over(lambda pair: _left(pair) == 1),  # it is read once more
        "in_place_twice": _over(lambda pair: sum(o == pair.o for o, _ in pair.op.in_place) > 1 and _left(pair) == 0),  # given to each result that may have it
        "in_place_beyond_the_end": _over(lambda pair: pair.problem.nbytes[pair.to] > pair.problem.nbytes[pair.donor] and _left(pair) == 0),
    },
    "process": {
        "sleeps_when_large": _ends(lambda p: len(p.buffers) > 64, lambda: threading.Event().wait()),  # and takes no CPU time
        "exits_at_three_results": _ends(lambda p: (np.diff(p.ops.result_starts) > 2).any(), lambda: os._exit(0)),
        "sorts_what_it_is_given": _does(lambda p: p.buffers.nbytes.sort()),
    },
}  # fmt: skip
"""What the bug is about -> planners."""

COSTLY: Final[Rows] = {
    "takes longer with every call": {"looks_at_all_before": _does(lambda _: (HELD.extend(range(1000)), sum(HELD)))},
    "keeps more memory after every call": {"keeps_a_megabyte": _does(lambda _: HELD.append(np.ones(1 << 17, np.int64)))},
}  # fmt: skip
"""Sound planners whose plans cost more and more, by what is noted of them."""

SOUND: Final[dict[str, Planner]] = {
    **{name: getattr(planted, name) for name in ("large_gaps", "pages", "forks_once", "in_a_thread")},
    "prints": _does(lambda p: print("planned", len(p.buffers), flush=True)),
    "slow": _does(lambda _: _works(0.05)),
    "from_the_top": _promising(lambda program, constraints: _apart(program, constraints, 1 << 16, 1)),  # below is a header of the runtime
    "changes_folder": _does(lambda _: _changes_folder()),
    "lower_first": lambda program, constraints: moved(plan := ALLOCATORS["linear_scan"].plan(program, constraints), plan.offset),
    "heeds_gaps": _promising(lambda problem: _first_fit(problem, dict(problem.gaps))),
    "heeds_streams": _promising(_until_waited_for, "streams"),  # bytes are handed on where all that used them is waited for
    "answers_in_a_dict": answers_in_a_dict,
    "in_drawn_order": _promising(in_drawn_order),
    "lower_of_two": lower_of_two,
    "kept_by_all_of_it": kept_by_all_of_it,
    "without_any_reuse": _promising(_of_shelf(lambda _: "reference")),
    "collects_garbage": _does(lambda _: _collects()),
    "raises_within": raises_within,
}  # fmt: skip
"""Planners in which nothing may be found, as in those of `UNSEEN_SOUND` and `CORNER_SOUND`."""

UNSEEN: Final[Rows] = {
    "arity": {
        "last_of_many_missed": _missing(lambda r: (r.many > 3) & (r.place == r.many - 1)),
        "read_twice_missed": _missing(_twice),  # by one op
    },
    "lives": {
        "lives_of_seven_bits": _ended(lambda _, problem: np.minimum(problem.stop, problem.start + 127)),
        "first_buffer_forgotten": _dead(lambda _, problem: np.arange(len(problem.start)) == 0),  # its number counts as none
        "late_starts_missed": _through(lambda value: value.offset > 0),
        "flips_missed": _through(lambda value: min(value.strides, default=0) < 0),
        "broadcasts_missed": _through(lambda value: 0 in value.strides),
        "twins_are_one": twins_are_one,
    },
    "alignment": {
        "small_need_no_alignment": _aligned(lambda a, buffers: np.where(buffers.nbytes < a, 1, a)),
        "aligned_in_the_first_arena": _aligned(lambda a, buffers: np.where(buffers.arena > 0, 1, a)),
    },
    "bytes": {
        "odd_byte_lost": _sized(lambda n: n & ~1),
        "sizes_of_16_bits": _sized(lambda n: n % (1 << 16)),
        "offsets_of_40_bits": _moved(lambda plan, _: plan.offset % (1 << 40)),
        "empty_above_the_end": _moved(_empty_above_the_end),
    },
    "arenas": {
        "two_arenas_at_most": _in_arenas(lambda plan: np.minimum(plan.arena, 1)),
        "later_ends_ignored": _capacities(lambda number, arena, _: None if number else arena.capacity),
        "refuses_a_full_arena": _refuses(_nearly_full, "nearly full"),
        "raises_at_three_arenas": _does(lambda p: [(0, 1)[arena] for arena in range(len(p.arenas))]),
    },
    "own": {
        "states_are_scratch": _believing(own=lambda p, c: c.own & (p.buffers.role != Role.STATE)),
        "own_of_the_first_ignored": _believing(own=lambda _, c: c.own & (np.arange(len(c.own)) > 0)),
    },
    "pins": {
        "even_pins_kept": _told(pinned=lambda p, c: c.pinned & ((np.arange(len(c.pinned)) % 2 == 0) | pin_reads(p))),
        "pins_of_the_unread_dropped": _told(pinned=lambda p, c: c.pinned & _touched(p, p.ops.operands)),
    },
    "fixed": {
        "fixed_at_zero_is_none": _believing(**_fixed_where(lambda _, __, at: at)),
        "fixed_of_the_largest_ignored": _believing(fixed=_without_the_largest),
    },
    "in place": {
        "in_place_by_size": in_place_by_size,
        "in_place_while_viewed": _over(lambda pair: _left(pair) == 2),
    },
    "gaps": {
        "gap_a_step_early": _gaps(_many(1), lambda gaps, _: [(low - 1, high) for low, high in gaps]),
        "last_gap_to_the_end": _gaps(_many(2), lambda gaps, stop: [*gaps[:-1], (gaps[-1][0], stop)]),
    },
    "history": {
        "by_parity_of_calls": _lift(lambda _: _call() % 2),
        "by_collections": _lift(lambda _: gc.get_stats()[0]["collections"] % 7),
        "kept_by_names": _cached(lambda p: (p.name, p.buffers.names)),
        "told_once": told_once,
    },
}  # fmt: skip
"""Written without a look at the sources of programs: what the bug is about -> planners."""

UNSEEN_SOUND: Final[dict[str, Planner]] = {
    "asked_twice": lambda program, constraints: (SHELF.plan(program, constraints), SHELF.plan(program, constraints))[1],
    "last_number_first": _promising(last_number_first),
    "seeds_the_generator": seeds_the_generator,
    "deepens": _does(lambda p: sys.setrecursionlimit(5000 + len(p.ops))),
    "starts_a_thread": _does(lambda _: _leaves_a_thread()),
    "answers_in_a_list": answers_in_a_list,
    "by_contents": _of_shelf(lambda p: ("linear_scan", "xla_best_fit")[int(p.buffers.nbytes.sum() % 2)]),
    "searches": _of_shelf(lambda _: "best"),
}  # fmt: skip

CORNERS: Final[Rows] = {
    "arity": {
        **{f"operands_above_{n}_freed": _missing(lambda r, n=n: r.place >= n) for n in (6, 7, 8, 9, 10, 11)},
        **{f"last_of_{n}_missed": _missing(lambda r, n=n: (r.many == n) & (r.place == n - 1)) for n in (3, 5, 7, 8)},
        "seventh_of_nine_or_more_missed": _missing(lambda r: (r.many > 8) & (r.place == 6)),
        "all_of_twelve_missed": _missing(lambda r: r.many > 11),
        "results_of_wide_ops_short": _short(lambda p, _: _made_by(p, np.diff(p.ops.operand_starts) > 8)),
        "fifth_result_short": _short(lambda p, _: _made_by(p, np.diff(p.ops.result_starts) > 4)),
        "made_from_nothing_short": _short(lambda p, _: _made_by(p, (np.diff(p.ops.operand_starts) == 0) & ~p.ops.is_kind(HOST_WRITE))),
    },
    "lives": {
        **{f"lives_above_{n}_short": _short(lambda _, problem, n=n: problem.stop - problem.start > n) for n in (16, 100, 300)},
        **{f"born_after_{n}_short": _short(lambda _, problem, n=n: problem.start > n) for n in (12, 60, 500)},
        "lives_of_two_steps_short": _short(lambda _, problem: problem.stop - problem.start == 2),
        "lives_of_nine_steps_short": _short(lambda _, problem: problem.stop - problem.start == 9),
        "end_at_a_multiple_of_16": _short(lambda _, problem: problem.stop % 16 == 0),
        "born_together_short": _short(lambda _, problem: np.bincount(problem.start, minlength=1)[problem.start] > 2),
        "undeclared_reader_short": _short(lambda p, _: _read_by(p, ~p.ops.in_place_known)),
        "read_on_another_stream_short": _short(lambda p, _: _read_by(p, p.ops.stream > 0)),
        "read_on_the_third_stream_short": _short(lambda p, _: _read_by(p, p.ops.stream > 1)),
        "inner_views_missed": _through(lambda value: len(value.shape) > 2),
        "odd_starts_missed": _through(lambda value: value.offset % 8 == 4),
    },
    "scale": {f"{what}_above_{n}": _above(n, what) for what, n in (("buffers", 24), ("buffers", 500), ("buffers", 2400), ("ops", 100), ("ops", 1000))},
    "alignment": {
        **{f"alignment_{n}_ignored": _aligned(lambda a, _, n=n: np.where(a == n, 1, a)) for n in (3, 12, 20, 32, 48, 64, 100, 256, 1024, 5000, 1 << 16, 1 << 21)},
        "multiples_of_3_rounded": _aligned(lambda a, _: np.where(a % 3 == 0, a // 3, a)),
        "multiples_of_25_rounded": _aligned(lambda a, _: np.where(a % 25 == 0, a // 25 * 20, a)),
        "large_need_no_alignment": _aligned(lambda a, buffers: np.where(buffers.nbytes > 1 << 30, 1, a)),
    },
    "bytes": {
        **{f"sizes_of_{n}_bits": _sized(lambda nbytes, n=n: nbytes % (1 << n)) for n in (8, 12, 20, 24, 33, 40, 46, 52)},
        "one_byte_is_none": _sized(lambda nbytes: np.where(nbytes == 1, 0, nbytes)),
        "multiples_of_7_short": _sized(lambda nbytes: nbytes - (nbytes % 7 == 0) * (nbytes > 0)),
        "pages_a_byte_short": _sized(lambda nbytes: nbytes - (nbytes % 4096 == 0) * (nbytes > 0)),
    },
    "arenas": {
        "third_arena_unaligned": _aligned(lambda a, buffers: np.where(buffers.arena == 2, 1, a)),
        "second_arena_short": _short(lambda p, _: _arena(p, 1)),
        "third_arena_short": _short(lambda p, _: _arena(p, 2)),
        "short_where_it_ends": _short(lambda p, _: np.array([a.capacity is not None for a in p.arenas])[p.buffers.arena]),
        "refuses_three_alignments": _refuses(lambda p, _: len(set(p.buffers.alignment.tolist())) > 2),
        "refuses_mixed_without_an_end": _refuses(lambda p, _: len(set(p.buffers.alignment.tolist())) > 1 and not any(a.capacity for a in p.arenas)),
        "refuses_a_tebibyte": _refuses(lambda p, _: p.buffers.nbytes.sum() > 1 << 40),
        "refuses_twelve_operands": _refuses(lambda p, _: _wide(p) > 11),
        "refuses_three_arenas": _refuses(lambda p, _: len(p.arenas) > 2),
        "refuses_what_is_decided": _refuses(lambda _, c: len(c.fixed) > 1),
    },
    "told": {
        "pins_of_the_second_arena_ignored": _told(pinned=lambda p, c: c.pinned & ~_arena(p, 1) | pin_reads(p)),
        "three_pins_at_most": _told(pinned=lambda p, c: c.pinned & (np.cumsum(c.pinned) < 4) | pin_reads(p)),
        "pins_of_the_large_ignored": _told(pinned=lambda p, c: c.pinned & (p.buffers.nbytes < 1 << 20) | pin_reads(p)),
        "fixed_above_4_gib_ignored": _told(**_fixed_where(lambda _, __, at: at < 1 << 32)),
        "fixed_in_the_second_arena_ignored": _told(**_fixed_where(lambda p, b, _: p.buffers.arena[b] != 1)),
        "four_fixed_at_most": _told(fixed=lambda _, c: dict(list(c.fixed.items())[:4])),
        "own_in_the_second_arena_ignored": _told(own=lambda p, c: c.own & ~_arena(p, 1) | p.buffers.persistent & c.own),
        "pinned_where_something_is_decided": _told(pinned=lambda p, c: pin_reads(p) if c.fixed else c.pinned),
    },
    "in place": {
        "second_operand_lent": _lent(lambda pair: pair.o > 0),
        "third_operand_lent": _lent(lambda pair: pair.o > 1),
        "second_result_takes": _lent(lambda pair: pair.r > 0),
        "large_donor_lent": _lent(lambda pair: pair.problem.nbytes[pair.donor] > 1 << 20),
        "lent_by_wide_ops": _lent(lambda pair: len(pair.op.operands) > 4),
        "lent_on_another_stream": _lent(lambda pair: pair.problem.program.ops.stream[pair.op.step] > 0),
    },
    "gaps": {
        **{f"gap_{n}_to_the_end": _gaps(_many(n), lambda gaps, stop, n=n: (*gaps[: n - 1], (gaps[n - 1][0], stop))) for n in (2, 3, 4)},
        **{f"gaps_after_{n}_joined": _gaps(_many(n + 1), lambda gaps, _, n=n: (*gaps[: n - 1], (gaps[n - 1][0], gaps[-1][1]))) for n in (1, 2, 3)},
        "third_gap_a_step_early": _gaps(_many(3), lambda gaps, _: (*gaps[:2], (gaps[2][0] - 1, gaps[2][1]), *gaps[3:])),
        "fourth_gap_a_step_long": _gaps(_many(4), lambda gaps, _: (*gaps[:3], (gaps[3][0], gaps[3][1] + 1))),
    },
    "chance": {
        "by_minute": _by(lambda _: time.localtime().tm_min),
        "by_month": _by(lambda _: time.localtime().tm_mon),
        "by_year": _by(lambda _: time.localtime().tm_year),
        "by_day": _by(lambda _: time.localtime().tm_mday),
        "by_weekday": _by(lambda _: time.gmtime().tm_wday),
        "by_zone": _by(lambda _: time.timezone // 3600 % 24),
        "by_parent": _by(lambda _: os.getppid()),
        "by_threads_name": _by(lambda _: len(threading.current_thread().name)),
        "by_environment": _by(lambda _: hash(frozenset(os.environ.items()))),
        "by_inode_of_the_folder": _by(lambda _: Path.cwd().stat().st_ino),
        "by_its_own_file": _by(lambda _: _counted(Path(tempfile.gettempdir()) / "by-its-own-file")),
        "by_a_file_in_the_folder": _by(lambda _: _counted(Path("by-a-file"))),
    },
    "history": {
        "kept_by_the_first": _cached(lambda p: (len(p.buffers), int(p.buffers.nbytes[:1].sum()))),
        "after_a_refusal": after_a_refusal,
        "pins_kept_from_before": pins_kept_from_before,
        "by_the_size_before": _by(lambda p: 3 * _changed("buffers", len(p.buffers) > 12)),
        "after_a_wide_op": _by(lambda p: 3 * _changed("wide", _wide(p) > 8)),
        "by_the_largest_so_far": _by(lambda p: SEEN.setdefault("sizes", []).append(len(p.buffers)) or max(SEEN["sizes"])),
    },
    "process": {
        "raises_at_ten_operands": _ends(lambda p: _wide(p) > 9, _raises),
        "hangs_at_twelve_operands": _ends(lambda p: _wide(p) > 11, _hangs),
        "exits_at_three_streams": _ends(lambda p: len(p.streams) > 2, lambda: os._exit(3)),
        "none_for_an_empty_program": _ends(lambda p: not len(p.buffers), lambda: None),
        "raises_above_3000_buffers": _ends(lambda p: len(p.buffers) > 3000, _raises),
    },
}  # fmt: skip
"""Wrong in one hard corner each: what the corner is -> planners."""

CORNER_SOUND: Final[dict[str, Planner]] = {
    "least_common_multiple": _promising(least_common_multiple),
    "counts_in_a_file": _does(lambda _: _counted(Path(tempfile.gettempdir()) / f"counts-in-a-file-{os.getpid()}")),
    "looks_at_the_clock": _does(lambda _: time.strftime("%Y-%m-%d %H:%M:%S")),  # formats it for a log that nobody reads
    "wide_by_another": _promising(_of_shelf(lambda p: "best_fit" if _wide(p) > 8 else "greedy_by_breadth")),
    "four_gaps_whole": _gaps(_many(4), lambda *_: ()),  # of four gaps or more none is used
}  # fmt: skip

TARGETS: Final[dict[str, Rows]] = {
    "planner": BROKEN, "costly": COSTLY, "sound": {"sound": SOUND}, "unseen": UNSEEN, "odd": {"sound": UNSEEN_SOUND},
    "corner": CORNERS, "odd corner": {"sound": CORNER_SOUND},
}  # fmt: skip
"""What planners are -> what they are about -> name -> planner."""

for _rows in TARGETS.values():
    for _named in _rows.values():
        globals().update(_named)
