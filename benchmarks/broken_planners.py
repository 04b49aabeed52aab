"""Planners with one realistic bug each, and sound ones that look odd: targets for the fuzzer beside its own mutants.

    allocsim fuzz broken_planners:fourth_operand_freed        # from this folder

Each is the shelf's `greedy_by_size` but for its bug, and is right wherever the bug does not show. `BROKEN` names them by what
the bug is about, `SOUND` those in which nothing may be found. None is a mutant of `allocsim.fuzzing.mutants`, so that what the
fuzzer finds here is not what its own mutants were made for. No belief comes with most answers: a stranger has none to show.
"""

import contextlib
import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from planted_planners import (
    SHELF,
    _apart,
    _lifted,
    by_hour,
    by_hour_of_utc,
    by_thread,
    forks_once,
    in_a_thread,
    large_gaps,
    moved,
    pages,
)

from allocsim.allocators import ALLOCATORS, Constraints, exact, pin_all, pin_reads
from allocsim.errors import CapacityError
from allocsim.fuzzing.features import view_depth
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Plan, Problem, Program, Role
from allocsim.model.layout import Int64s
from allocsim.programs.builder import plan_of

ASKED: Final = [0]
KEPT: Final[dict[Any, Int64s]] = {}
MADE: Final[dict[Any, Plan]] = {}


# lives that end early ---------------------------------------------------------------------------------------------------------


def _placed(problem: Problem, constraints: Constraints, **columns: Any) -> Plan:
    """Place a belief with other columns, without its pairs; what is pinned stays to the end."""
    made = replace(problem, may_share=np.empty((0, 2), np.int32), **columns)
    plan = SHELF.place(replace(made, stop=np.where(constraints.pinned, made.stop.max(initial=0), made.stop)))
    return moved(plan, plan.offset)


def _reads(program: Program) -> tuple[Int64s, Int64s, Int64s]:
    """Return step, place among the operands and buffer of each read but those of views."""
    ops = program.ops
    step = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
    place = np.arange(len(ops.operands)) - ops.operand_starts[step]
    real = ~ops.is_kind(VIEW)[step]
    return step[real], place[real], program.values.buffer[ops.operands[real]].astype(np.int64)


def _missing(program: Program, constraints: Constraints, missed: Callable[[Int64s, Int64s, Int64s], Any]) -> Plan:
    """Plan as if some reads were not there; each buffer lives to the last access that is seen."""
    problem = exact.believe(program, constraints)
    step, place, buffer = _reads(program)
    mask = np.asarray(missed(step, place, buffer)) & ~program.ops.is_kind(HOST_READ)[step]
    ops = program.ops
    writer = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    acts = ~ops.is_kind(VIEW)[writer]
    stop = problem.start.copy()
    np.maximum.at(stop, program.values.buffer[ops.results[acts]], writer[acts] + 1)
    np.maximum.at(stop, buffer[~mask], step[~mask] + 1)
    touched = np.zeros(len(stop), dtype=np.bool_)
    touched[buffer[mask]] = True
    free = touched & ~constraints.pinned & ~program.buffers.persistent
    return _placed(problem, constraints, stop=np.where(free, np.minimum(stop, problem.stop), problem.stop))


def fourth_operand_freed(program: Program, constraints: Constraints) -> Plan:
    """An op has room for three operands; what it reads as its fourth or a later one is not kept."""
    return _missing(program, constraints, lambda _, place, __: place > 2)


def sixth_operand_freed(program: Program, constraints: Constraints) -> Plan:
    """As above, for five."""
    return _missing(program, constraints, lambda _, place, __: place > 4)


def second_of_three_missed(program: Program, constraints: Constraints) -> Plan:
    """Of an op with three operands or more, the second is not seen."""
    arity = np.diff(program.ops.operand_starts)
    return _missing(program, constraints, lambda step, place, _: (place == 1) & (arity[step] > 2))


def third_result_has_no_life(program: Program, constraints: Constraints) -> Plan:
    """The third result of an op and those after it are dead once they are written."""
    ops = program.ops
    step = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    place = np.arange(len(ops.results)) - ops.result_starts[step]
    late = program.values.buffer[ops.results[(place > 1) & ~ops.is_kind(VIEW)[step]]]
    problem = exact.believe(program, constraints)
    stop = problem.stop.copy()
    kept = constraints.pinned[late] | program.buffers.persistent[late] | pin_reads(program)[late]
    stop[late[~kept]] = np.minimum(stop, problem.start + 1)[late[~kept]]
    return _placed(problem, constraints, stop=stop)


def reads_of_two_results_missed(program: Program, constraints: Constraints) -> Plan:
    """What an op with two results or more reads is free before it."""
    many = np.diff(program.ops.result_starts) > 1
    return _missing(program, constraints, lambda step, _, __: many[step])


def second_reader_on_one_step_missed(program: Program, constraints: Constraints) -> Plan:
    """A buffer has room for eight readers; later ones are not seen."""

    def late(_: Int64s, __: Int64s, buffer: Int64s) -> Any:
        seen: dict[int, int] = {}
        ranks = []
        for one in buffer.tolist():
            seen[one] = seen.get(one, 0) + 1
            ranks.append(seen[one])
        return np.array(ranks, dtype=np.int64) > 8

    return _missing(program, constraints, late)


def far_readers_missed(program: Program, constraints: Constraints) -> Plan:
    """A reader more than 64 steps after the birth of what it reads is not seen."""
    start = exact.believe(program, constraints).start
    return _missing(program, constraints, lambda step, _, buffer: step > start[buffer] + 64)


def third_view_forgotten(program: Program, constraints: Constraints) -> Plan:
    """A view of a view of a view is followed no further."""
    ops = program.ops
    real = ~ops.is_kind(VIEW)[np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))]
    deep = view_depth(program)[ops.operands[real]] > 2
    return _missing(program, constraints, lambda *_: deep)


def inputs_die_first(program: Program, constraints: Constraints) -> Plan:
    """What the host writes is free after its first reader."""
    wrote = np.zeros(len(program.buffers), dtype=np.bool_)
    for op in program.ops:
        if op.kind == HOST_WRITE:
            wrote[[program.values.buffer[result] for result in op.results]] = True

    def later(step: Int64s, _: Int64s, buffer: Int64s) -> Any:
        first = np.full(len(wrote), 1 << 40, dtype=np.int64)
        np.minimum.at(first, buffer, step)
        return wrote[buffer] & (step > first[buffer])

    return _missing(program, constraints, later)


# tables that end ---------------------------------------------------------------------------------------------------------------


def _above(count: int, what: str) -> Callable[[Program, Constraints], Plan]:
    """Return a planner for which what comes after `count` of a program's buffers or ops dies as it is born."""

    def plan(program: Program, constraints: Constraints) -> Plan:
        problem = exact.believe(program, constraints)
        late = np.arange(len(problem.start)) >= count if what == "buffers" else problem.start > count
        late = late & ~constraints.pinned & ~program.buffers.persistent
        if not late.any():
            return SHELF.plan(program, constraints)
        return _placed(
            problem, constraints, stop=np.where(late, np.minimum(problem.start + 1, problem.stop), problem.stop)
        )

    plan.__doc__ = f"A table has {count} {what}; what comes after them is dead as it is born."
    return plan


buffers_above_16, buffers_above_64 = _above(16, "buffers"), _above(64, "buffers")
buffers_above_256, buffers_above_1000 = _above(256, "buffers"), _above(1000, "buffers")
buffers_above_2000 = _above(2000, "buffers")
steps_above_200, steps_above_400 = _above(200, "ops"), _above(400, "ops")


def buffers_of_eight_bits(program: Program, constraints: Constraints) -> Plan:
    """Buffers are numbered by one byte: the 257th lies where the first does."""
    plan = SHELF.plan(program, constraints)
    number = np.arange(len(plan.offset)) % 256
    return plan if len(number) <= 256 else moved(plan, plan.offset[number])


def deep_recursion(program: Program, constraints: Constraints) -> Plan:
    """Walks from op to op by calling itself."""

    def walk(step: int) -> int:
        return step if step >= len(program.ops) else walk(step + 1)

    walk(0)
    return SHELF.plan(program, constraints)


# bytes ---------------------------------------------------------------------------------------------------------------------------


def _of_buffers(program: Program, constraints: Constraints, **columns: Any) -> Plan:
    """Plan the program as if its buffers had other columns."""
    problem = exact.believe(program, constraints)
    buffers = replace(program.buffers, **{k: v for k, v in columns.items() if k != "nbytes"})
    nbytes = columns.get("nbytes", problem.nbytes)
    made = SHELF.place(replace(problem, program=replace(program, buffers=buffers), nbytes=nbytes))
    slots = np.where(made.arena >= 0, program.buffers.nbytes, 0)
    return Plan(program=program, arena=made.arena, offset=made.offset, nbytes=slots, source="planted")


def alignment_at_most_32(program: Program, constraints: Constraints) -> Plan:
    """No alignment is above 32."""
    return _of_buffers(program, constraints, alignment=np.minimum(program.buffers.alignment, 32))


def alignment_at_most_512(program: Program, constraints: Constraints) -> Plan:
    """No alignment is above 512."""
    return _of_buffers(program, constraints, alignment=np.minimum(program.buffers.alignment, 512))


def alignment_at_most_a_page(program: Program, constraints: Constraints) -> Plan:
    """No alignment is above 4,096: huge pages are not known."""
    return _of_buffers(program, constraints, alignment=np.minimum(program.buffers.alignment, 4096))


def alignment_of_the_first(program: Program, constraints: Constraints) -> Plan:
    """All buffers have the alignment of the first."""
    alignment = program.buffers.alignment
    return _of_buffers(program, constraints, alignment=np.full_like(alignment, alignment[0] if len(alignment) else 1))


def granule_rounded_down(program: Program, constraints: Constraints) -> Plan:
    """An odd granule is rounded down to a power of two."""
    alignment = program.buffers.alignment
    return _of_buffers(program, constraints, alignment=1 << np.floor(np.log2(alignment)).astype(np.int64))


def alignment_in_kibibytes(program: Program, constraints: Constraints) -> Plan:
    """Above a kibibyte, alignments are multiples of 1,024 and of nothing else."""
    alignment = program.buffers.alignment
    return _of_buffers(program, constraints, alignment=np.where(alignment > 1024, 1024, alignment))


def sizes_of_32_bits(program: Program, constraints: Constraints) -> Plan:
    """Sizes have 32 bits."""
    return _of_buffers(program, constraints, nbytes=program.buffers.nbytes % (1 << 32))


def sizes_of_31_bits(program: Program, constraints: Constraints) -> Plan:
    """Sizes have 31 bits and a sign; what is negative counts as nothing."""
    signed = program.buffers.nbytes.astype(np.int32).astype(np.int64)
    return _of_buffers(program, constraints, nbytes=np.maximum(signed, 0))


def sizes_in_kibibytes(program: Program, constraints: Constraints) -> Plan:
    """Above a mebibyte sizes count in whole kibibytes, rounded down."""
    nbytes = program.buffers.nbytes
    return _of_buffers(program, constraints, nbytes=np.where(nbytes > 1 << 20, nbytes // 1024 * 1024, nbytes))


def sizes_of_floats(program: Program, constraints: Constraints) -> Plan:
    """Sizes are floats of 24 bits, the tail is rounded away."""
    nbytes = program.buffers.nbytes
    return _of_buffers(program, constraints, nbytes=np.minimum(nbytes.astype(np.float32).astype(np.int64), nbytes))


def size_less_one(program: Program, constraints: Constraints) -> Plan:
    """Two slots may meet in one byte: a comparison has `<` where `<=` is due."""
    return _of_buffers(program, constraints, nbytes=np.maximum(program.buffers.nbytes - 1, 0))


def offsets_wrapped(program: Program, constraints: Constraints) -> Plan:
    """Offsets have 32 bits."""
    plan = SHELF.plan(program, constraints)
    return moved(plan, plan.offset % (1 << 32))


def offsets_of_floats(program: Program, constraints: Constraints) -> Plan:
    """Offsets are floats of 24 bits."""
    plan = SHELF.plan(program, constraints)
    return moved(plan, plan.offset.astype(np.float32).astype(np.int64))


def offsets_of_doubles(program: Program, constraints: Constraints) -> Plan:
    """Offsets are floats of 53 bits."""
    plan = SHELF.plan(program, constraints)
    return moved(plan, plan.offset.astype(np.float64).astype(np.int64))


def empty_divides(program: Program, constraints: Constraints) -> Plan:
    """Weighs bytes against life, and divides by the bytes."""
    for nbytes in program.buffers.nbytes.tolist():
        _ = 1 / nbytes
    return SHELF.plan(program, constraints)


def empty_takes_its_place(program: Program, constraints: Constraints) -> Plan:
    """An empty buffer lies at -1."""
    plan = SHELF.plan(program, constraints)
    return moved(plan, np.where((program.buffers.nbytes == 0) & (plan.arena >= 0), -1, plan.offset))


# arenas and capacities -----------------------------------------------------------------------------------------------------------


def _with_capacities(program: Program, constraints: Constraints, capacities: list[int | None]) -> Plan:
    arenas = tuple(replace(arena, capacity=end) for arena, end in zip(program.arenas, capacities, strict=True))
    made = SHELF.plan(replace(program, arenas=arenas), constraints)
    return Plan(program=program, arena=made.arena, offset=made.offset, nbytes=made.nbytes, source="planted")


def capacity_ignored(program: Program, constraints: Constraints) -> Plan:
    """No arena has an end."""
    return _with_capacities(program, constraints, [None] * len(program.arenas))


def capacity_of_the_first(program: Program, constraints: Constraints) -> Plan:
    """All arenas end where the first does."""
    return _with_capacities(program, constraints, [program.arenas[0].capacity] * len(program.arenas))


def capacity_rounded_up(program: Program, constraints: Constraints) -> Plan:
    """A capacity is rounded up to whole units of the arena."""
    rounded = [
        None if arena.capacity is None else -(-(arena.capacity + 1) // arena.alignment) * arena.alignment
        for arena in program.arenas
    ]
    return _with_capacities(program, constraints, rounded)


def refuses_what_fits(program: Program, constraints: Constraints) -> Plan:
    """What fills an arena to its last byte does not fit."""
    less = [None if arena.capacity is None else max(arena.capacity - 1, 0) for arena in program.arenas]
    return _with_capacities(program, constraints, less)


def refuses_by_the_sum(program: Program, constraints: Constraints) -> Plan:
    """Two arenas are given one capacity between them."""
    for arena in program.arenas:
        if arena.capacity is not None and len(program.arenas) > 1 and program.buffers.nbytes.sum() > arena.capacity:
            raise CapacityError("no room")
    return SHELF.plan(program, constraints)


def squeezed_by_a_step(program: Program, constraints: Constraints) -> Plan:
    """Where nothing else fits, lives end a step earlier."""
    try:
        return SHELF.plan(program, constraints)
    except CapacityError:
        problem = exact.believe(program, constraints)
        shorter = np.where(constraints.pinned, problem.stop, np.maximum(problem.stop - 1, problem.start))
        return _placed(problem, constraints, stop=shorter)


def last_arena_for_all(program: Program, constraints: Constraints) -> Plan:
    """Whatever is put down, it is put into the last arena."""
    plan = SHELF.plan(program, constraints)
    arena = np.where(plan.arena >= 0, len(program.arenas) - 1, plan.arena).astype(np.int32)
    return Plan(program=program, arena=arena, offset=plan.offset, nbytes=plan.nbytes, source="planted")


# what is told ----------------------------------------------------------------------------------------------------------------------


def own_for_all(program: Program, constraints: Constraints) -> Plan:
    """Everything is answered with memory of its own, of which no peak tells."""
    plan = SHELF.plan(program, replace(constraints, own=np.ones(len(program.buffers), dtype=np.bool_), fixed={}))
    return moved(plan, plan.offset)


def own_for_the_large(program: Program, constraints: Constraints) -> Plan:
    """What is larger than a mebibyte gets memory of its own."""
    large = (program.buffers.nbytes > 1 << 20) & np.array(
        [b not in constraints.fixed for b in range(len(program.buffers))], dtype=np.bool_
    )
    return SHELF.plan(program, replace(constraints, own=constraints.own | large))


def own_for_the_pinned(program: Program, constraints: Constraints) -> Plan:
    """What is pinned gets memory of its own."""
    decided = np.zeros(len(program.buffers), dtype=np.bool_)
    decided[list(constraints.fixed)] = True
    return SHELF.plan(program, replace(constraints, own=constraints.own | (constraints.pinned & ~decided)))


def own_ignored(program: Program, constraints: Constraints) -> Plan:
    """Memory of its own is for parameters and states, whatever is told."""
    return SHELF.plan(program, replace(constraints, own=program.buffers.persistent))


def own_of_parameters_alone(program: Program, constraints: Constraints) -> Plan:
    """What is told to lie apart and is no parameter lies in its arena."""
    return SHELF.plan(program, replace(constraints, own=constraints.own & program.buffers.persistent))


def partial_pins_ignored(program: Program, constraints: Constraints) -> Plan:
    """Pins of all buffers are kept, those of some are not."""
    everything = np.array_equal(constraints.pinned, pin_all(program))
    pinned = constraints.pinned if everything else pin_reads(program)
    plan = SHELF.plan(program, replace(constraints, pinned=pinned))
    return moved(plan, plan.offset)


def first_pin_alone(program: Program, constraints: Constraints) -> Plan:
    """Of what is pinned beyond the host's reads, the first buffer is kept."""
    more = np.flatnonzero(constraints.pinned & ~pin_reads(program))
    pinned = constraints.pinned.copy()
    pinned[more[1:]] = False
    plan = SHELF.plan(program, replace(constraints, pinned=pinned))
    return moved(plan, plan.offset)


def pins_of_inputs_ignored(program: Program, constraints: Constraints) -> Plan:
    """An input cannot be pinned."""
    pinned = constraints.pinned & ~(program.buffers.role == Role.INPUT)
    pinned |= pin_reads(program)
    plan = SHELF.plan(program, replace(constraints, pinned=pinned))
    return moved(plan, plan.offset)


def pins_until_the_last_op(program: Program, constraints: Constraints) -> Plan:
    """What is pinned is kept until the last op, and not through it."""
    problem = exact.believe(program, constraints)
    held = constraints.pinned & (problem.stop == len(program.ops)) & ~pin_reads(program)
    start = np.minimum(problem.start, problem.stop)
    stop = np.where(held & (start < problem.stop - 1), problem.stop - 1, problem.stop)
    made = replace(problem, stop=stop, pinned=problem.pinned & ~held, may_share=np.empty((0, 2), np.int32))
    plan = SHELF.place(made)
    return moved(plan, plan.offset)


def fixed_ignored(program: Program, constraints: Constraints) -> Plan:
    """What offsets are decided is not looked at."""
    plan = SHELF.plan(program, replace(constraints, fixed={}))
    return moved(plan, plan.offset)


def one_fixed_heeded(program: Program, constraints: Constraints) -> Plan:
    """Of the offsets that are decided, the first is heeded."""
    plan = SHELF.plan(program, replace(constraints, fixed=dict(list(constraints.fixed.items())[:1])))
    return moved(plan, plan.offset)


def laid_over_the_fixed(program: Program, constraints: Constraints) -> Plan:
    """What is decided is put there last, whatever lies there."""
    plan = SHELF.plan(program, replace(constraints, fixed={}))
    offset = plan.offset.copy()
    for buffer, at in constraints.fixed.items():
        if plan.arena[buffer] >= 0:
            offset[buffer] = at
    return moved(plan, offset)


def fixed_in_units_of_64(program: Program, constraints: Constraints) -> Plan:
    """An offset that is decided is rounded down to 64."""
    plan = SHELF.plan(program, constraints)
    offset = plan.offset.copy()
    for buffer in constraints.fixed:
        if plan.arena[buffer] >= 0:
            offset[buffer] = offset[buffer] // 64 * 64
    return moved(plan, offset)


def fixed_where_it_ends_ignored(program: Program, constraints: Constraints) -> Plan:
    """In an arena with an end no decided offset is looked at."""
    ends = [program.arenas[int(arena)].capacity is not None for arena in program.buffers.arena]
    return SHELF.plan(
        program, replace(constraints, fixed={b: at for b, at in constraints.fixed.items() if not ends[b]})
    )


def fixed_in_turn_moved(program: Program, constraints: Constraints) -> Plan:
    """What is decided onto bytes that are decided for another buffer, is laid behind all others."""
    plan = SHELF.plan(program, constraints)
    offset, ends = plan.offset.copy(), dict[int, int]()
    for buffer in sorted((b for b in constraints.fixed if plan.arena[b] >= 0), key=lambda b: (plan.offset[b], b)):
        arena, at, size = int(plan.arena[buffer]), int(plan.offset[buffer]), int(plan.nbytes[buffer])
        if size and at < ends.get(arena, 0):
            unit, high = int(program.buffers.alignment[buffer]), int((plan.offset + plan.nbytes).max())
            offset[buffer] = -(-high // unit) * unit
        ends[arena] = max(ends.get(arena, 0), at + size)
    return moved(plan, offset)


# streams -------------------------------------------------------------------------------------------------------------------------


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
    writer = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    step, _, buffer = _reads(program)
    acts = ~ops.is_kind(VIEW)[writer]
    where = np.concatenate([buffer, program.values.buffer[ops.results[acts]]])
    for at, of in zip(np.concatenate([step, writer[acts]]).tolist(), where.tolist(), strict=True):
        loose = np.flatnonzero(~before[at:, at])  # itself, and what may run before it
        stop[of] = max(stop[of], at + int(loose[-1]) + 1)
    return _placed(problem, constraints, stop=np.where(problem.start < problem.stop, stop, problem.stop))


def heeds_streams(program: Program, constraints: Constraints) -> Plan:
    """Sound; bytes are handed on where all that used them is waited for."""
    return _until_waited_for(program, constraints)


def streams_by_the_list(program: Program, constraints: Constraints) -> Plan:
    """Promises to heed streams, and takes the order of the list for a wait."""
    plan = SHELF.plan(program, constraints)
    return moved(plan, plan.offset)


# what the answer depends on ------------------------------------------------------------------------------------------------------


def by_hash_seed(program: Program, constraints: Constraints) -> Plan:
    """Another place for each seed of hashes."""
    return _lifted(program, constraints, hash("where") % 7)


def by_order_of_a_set(program: Program, constraints: Constraints) -> Plan:
    """Places buffers in the order in which a set of their names comes."""
    problem = exact.believe(program, constraints)
    number = {name: buffer for buffer, name in enumerate(program.buffers.names)}
    order = np.array([number[name] for name in set(program.buffers.names)], dtype=np.int32)
    return (
        ALLOCATORS["linear_scan"].place(replace(problem, order=order))
        if len(order) == len(problem.order)
        else SHELF.place(problem)
    )


def by_time(program: Program, constraints: Constraints) -> Plan:
    """Another place in each second."""
    return _lifted(program, constraints, int(time.time()) % 5)


def by_chance(program: Program, constraints: Constraints) -> Plan:
    """Another place in one call of twenty."""
    return _lifted(program, constraints, int(random.random() < 0.05))  # noqa: S311 - a planted bug


def by_process(program: Program, constraints: Constraints) -> Plan:
    """Another place in each process."""
    return _lifted(program, constraints, os.getpid() % 16)


def by_address(program: Program, constraints: Constraints) -> Plan:
    """Another place for each address of the program."""
    return _lifted(program, constraints, id(program) // 64 % 5)


def by_history(program: Program, constraints: Constraints) -> Plan:
    """Another place once a hundred were asked for."""
    ASKED[0] += 1
    return _lifted(program, constraints, ASKED[0] > 100)


def _cached(key: Any, program: Program, constraints: Constraints) -> Plan:
    made = SHELF.plan(program, constraints)
    kept = KEPT.setdefault(key, made.offset)
    return made if kept is made.offset or len(kept) != len(made.offset) else moved(made, kept)


def kept_by_count(program: Program, constraints: Constraints) -> Plan:
    """A plan is kept for the next program with as many ops and buffers."""
    return _cached((len(program.ops), len(program.buffers)), program, constraints)


def kept_by_total(program: Program, constraints: Constraints) -> Plan:
    """A plan is kept for the next program with as many bytes in as many buffers."""
    return _cached((int(program.buffers.nbytes.sum()), len(program.buffers)), program, constraints)


def kept_without_constraints(program: Program, constraints: Constraints) -> Plan:
    """A plan is kept for the same program, whatever is told."""
    return _cached(
        (program.ops.operands.tobytes(), program.ops.results.tobytes(), program.buffers.nbytes.tobytes()),
        program,
        constraints,
    )


def never_reset(program: Program, constraints: Constraints) -> Plan:
    """The plan begins where the one before it ended, up to a kibibyte."""
    plan = _lifted(program, constraints, ASKED[0] % 16)
    ASKED[0] += len(program.buffers)
    return plan


# gaps ------------------------------------------------------------------------------------------------------------------------------


def _first_fit(problem: Problem, gaps: dict[int, tuple[tuple[int, int], ...]]) -> Plan:
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


def gap_a_step_long(problem: Problem) -> Plan:
    """A gap is read as inclusive: it is a step longer than is stated."""
    return _first_fit(problem, {b: tuple((low, high + 1) for low, high in gaps) for b, gaps in problem.gaps.items()})


def gaps_are_one(problem: Problem) -> Plan:
    """What lies between two gaps of a life counts as a gap."""
    return _first_fit(
        problem, {b: ((min(low for low, _ in g), max(high for _, high in g)),) for b, g in problem.gaps.items() if g}
    )


def gap_of_another(problem: Problem) -> Plan:
    """Gaps are kept by their place in a list, not by their buffer."""
    return _first_fit(problem, {b + 1: gaps for b, gaps in problem.gaps.items() if b + 1 < len(problem.start)})


def _gaps_otherwise(problem: Problem, which: Any, changed: Callable[[int, Any], Any]) -> Plan:
    """Place with the gaps of some buffers changed."""
    gaps = {b: changed(b, gaps) if which[b] else gaps for b, gaps in problem.gaps.items()}
    return _first_fit(problem, {b: kept for b, kept in gaps.items() if kept})


def gap_of_the_pinned_to_the_end(problem: Problem) -> Plan:
    """What is pinned and has a gap is not kept behind it."""
    return _gaps_otherwise(problem, problem.pinned, lambda _, gaps: ((min(low for low, _ in gaps), 1 << 40),))


def gap_of_the_fixed_to_the_end(problem: Problem) -> Plan:
    """What lies at a decided offset and has a gap is free from there on."""
    fixed = np.zeros(len(problem.start), dtype=np.bool_)
    fixed[list(problem.fixed)] = True
    return _gaps_otherwise(problem, fixed, lambda _, gaps: ((min(low for low, _ in gaps), 1 << 40),))


def gap_of_a_donor_to_the_end(problem: Problem) -> Plan:
    """A donor that has a gap is its recipient's from there on."""
    donor = np.zeros(len(problem.start), dtype=np.bool_)
    donor[problem.may_share[:, 0]] = True
    return _gaps_otherwise(problem, donor, lambda _, gaps: ((min(low for low, _ in gaps), 1 << 40),))


def heeds_gaps(problem: Problem) -> Plan:
    """Sound; the bytes of a buffer serve others in its gaps."""
    return _first_fit(problem, dict(problem.gaps))


# in place --------------------------------------------------------------------------------------------------------------------------


def _over(program: Program, constraints: Constraints, fits: Callable[[Problem, Any, int, int, int, int], bool]) -> Plan:
    """Plan, and lay the result of each pair that `fits` over its operand, whatever else lies there."""
    problem = exact.believe(program, constraints)
    plan = SHELF.place(problem)
    offset, home = plan.offset.copy(), program.values.buffer
    for op in program.ops:
        for o, r in op.in_place or ():
            donor, recipient = int(home[op.operands[o]]), int(home[op.results[r]])
            inside = plan.arena[donor] == plan.arena[recipient] >= 0 and recipient not in constraints.fixed
            if (
                donor != recipient
                and inside
                and problem.start[recipient] == op.step
                and fits(problem, op, o, r, donor, recipient)
            ):
                offset[recipient] = offset[donor]
    return moved(plan, offset)


def in_place_over_the_pinned(program: Program, constraints: Constraints) -> Plan:
    """A pair is taken although the donor is pinned."""
    return _over(program, constraints, lambda problem, _, __, ___, donor, ____: bool(problem.pinned[donor]))


def in_place_over_the_living(program: Program, constraints: Constraints) -> Plan:
    """A pair is taken although the donor is read once more."""
    return _over(program, constraints, lambda problem, op, _, __, donor, ___: problem.stop[donor] == op.step + 2)


def in_place_twice(program: Program, constraints: Constraints) -> Plan:
    """A donor is given to each result that may have it."""

    def second(problem: Problem, op: Any, o: int, _: int, donor: int, __: int) -> bool:
        return sum(pair[0] == o for pair in op.in_place) > 1 and problem.stop[donor] == op.step + 1

    return _over(program, constraints, second)


def in_place_beyond_the_end(program: Program, constraints: Constraints) -> Plan:
    """A pair is taken although the result is larger than its donor."""
    return _over(
        program,
        constraints,
        lambda problem, op, _, __, donor, to: (
            problem.nbytes[to] > problem.nbytes[donor] and problem.stop[donor] == op.step + 1
        ),
    )


# what it does to its process -----------------------------------------------------------------------------------------------------


def sleeps_when_large(program: Program, constraints: Constraints) -> Plan:
    """Never answers for more than 64 buffers, and takes no CPU time."""
    if len(program.buffers) > 64:
        threading.Event().wait()
    return SHELF.plan(program, constraints)


def exits_at_three_results(program: Program, constraints: Constraints) -> Plan:
    """Ends its process at an op with three results."""
    if (np.diff(program.ops.result_starts) > 2).any():
        os._exit(0)
    return SHELF.plan(program, constraints)


def sorts_what_it_is_given(program: Program, constraints: Constraints) -> Plan:
    """Sorts the columns it is given in place."""
    program.buffers.nbytes.sort()
    return SHELF.plan(program, constraints)


HELD: Final[list[int]] = []


def looks_at_all_before(program: Program, constraints: Constraints) -> Plan:
    """Sound; every call looks at all calls before it."""
    HELD.extend(range(1000))
    sum(HELD)
    return SHELF.plan(program, constraints)


def keeps_a_megabyte(program: Program, constraints: Constraints) -> Plan:
    """Sound; every call keeps a megabyte for ever."""
    KEPT[len(KEPT)] = np.ones(1 << 17, dtype=np.int64)
    return SHELF.plan(program, constraints)


# sound, and odd ------------------------------------------------------------------------------------------------------------------


def prints(program: Program, constraints: Constraints) -> Plan:
    """Sound; prints a line for each plan."""
    print("planned", len(program.buffers), flush=True)
    return SHELF.plan(program, constraints)


def slow(program: Program, constraints: Constraints) -> Plan:
    """Sound; computes for a twentieth of a second more."""
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    return SHELF.plan(program, constraints)


def from_the_top(program: Program, constraints: Constraints) -> Plan:
    """Sound; everything 64 KiB further up, for a header that the runtime puts there."""
    return _apart(program, constraints, 1 << 16, 1)


def changes_folder(program: Program, constraints: Constraints) -> Plan:
    """Sound; works in a folder of its own."""
    with contextlib.suppress(OSError):
        os.chdir("/")
    return SHELF.plan(program, constraints)


def lower_first(program: Program, constraints: Constraints) -> Plan:
    """Sound; another algorithm, without a belief to show."""
    plan = ALLOCATORS["linear_scan"].plan(program, constraints)
    return moved(plan, plan.offset)


def answers_in_a_dict(program: Program, constraints: Constraints) -> dict[int, int]:
    """Sound; answers with offsets by buffer, of numpy's integers, the last buffer first."""
    plan = SHELF.plan(program, constraints)
    return {buffer: plan.offset[buffer] for buffer in np.flatnonzero(plan.arena >= 0)[::-1].tolist()}


def in_drawn_order(problem: Problem) -> Plan:
    """Sound; fits in an order that is drawn from the problem itself."""
    rng = np.random.default_rng(crc32(problem.nbytes.tobytes() + problem.start.tobytes() + problem.stop.tobytes()))
    return _first_fit(replace(problem, order=problem.order[rng.permutation(len(problem.order))]), dict(problem.gaps))


def lower_of_two(program: Program, constraints: Constraints) -> Plan:
    """Sound; the lower of two plans, which may be one of either."""
    made = [ALLOCATORS[name].plan(program, constraints) for name in ("best_fit", "skyline_by_area")]
    return min(made, key=lambda plan: plan.peak_bytes)


def kept_by_all_of_it(program: Program, constraints: Constraints) -> Plan:
    """Sound; keeps the last four problems with their plans, and compares all that a placement reads."""
    problem = exact.believe(program, constraints)
    columns = ("start", "stop", "nbytes", "order", "own", "pinned", "may_share")
    read = [*(getattr(problem, column) for column in columns), program.buffers.arena, program.buffers.alignment]
    key = (*(column.tobytes() for column in read), str((problem.fixed, program.arenas)))
    if key not in MADE:
        if len(MADE) == 4:
            MADE.pop(next(iter(MADE)))
        MADE[key] = SHELF.place(problem)
    return replace(MADE[key], program=program, problem=None)


def without_any_reuse(program: Program, constraints: Constraints) -> Plan:
    """Sound; every buffer has bytes of its own."""
    return ALLOCATORS["reference"].plan(program, constraints)


def collects_garbage(program: Program, constraints: Constraints) -> Plan:
    """Sound; makes a circle of objects and collects it, each time."""
    circle: list[Any] = []
    circle.append(circle)
    gc.collect()
    return SHELF.plan(program, constraints)


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


for _function in (
    from_the_top, in_drawn_order, without_any_reuse, gap_a_step_long, gaps_are_one, gap_of_another, heeds_gaps,
    gap_of_the_pinned_to_the_end, gap_of_the_fixed_to_the_end, gap_of_a_donor_to_the_end,
):  # fmt: skip
    _function.guarantees = ("sound", "deterministic")  # type: ignore[attr-defined]
for _function in (heeds_streams, streams_by_the_list):
    _function.guarantees = ("sound", "deterministic", "streams")  # type: ignore[attr-defined]

BROKEN: Final[dict[str, tuple[str, ...]]] = {
    "arity": ("fourth_operand_freed", "sixth_operand_freed", "second_of_three_missed", "third_result_has_no_life", "reads_of_two_results_missed"),
    "lives": ("second_reader_on_one_step_missed", "far_readers_missed", "inputs_die_first", "third_view_forgotten"),
    "scale": ("buffers_above_16", "buffers_above_64", "buffers_above_256", "buffers_above_1000", "buffers_above_2000", "buffers_of_eight_bits", "steps_above_200", "steps_above_400", "deep_recursion"),
    "alignment": ("alignment_at_most_32", "alignment_at_most_512", "alignment_at_most_a_page", "alignment_of_the_first", "alignment_in_kibibytes", "granule_rounded_down"),
    "bytes": ("sizes_of_32_bits", "sizes_of_31_bits", "sizes_in_kibibytes", "sizes_of_floats", "size_less_one", "offsets_wrapped", "offsets_of_floats", "offsets_of_doubles", "empty_divides", "empty_takes_its_place"),
    "arenas": ("capacity_ignored", "capacity_of_the_first", "capacity_rounded_up", "refuses_what_fits", "refuses_by_the_sum", "squeezed_by_a_step", "last_arena_for_all"),
    "own": ("own_for_all", "own_for_the_large", "own_for_the_pinned", "own_ignored", "own_of_parameters_alone"),
    "pins": ("partial_pins_ignored", "first_pin_alone", "pins_of_inputs_ignored", "pins_until_the_last_op"),
    "fixed": ("fixed_ignored", "one_fixed_heeded", "laid_over_the_fixed", "fixed_in_units_of_64", "fixed_where_it_ends_ignored", "fixed_in_turn_moved"),
    "streams": ("streams_by_the_list",),
    "chance": ("by_hash_seed", "by_order_of_a_set", "by_time", "by_chance", "by_process", "by_address", "by_hour", "by_hour_of_utc", "by_thread"),
    "history": ("by_history", "kept_by_count", "kept_by_total", "kept_without_constraints", "never_reset"),
    "gaps": ("gap_a_step_long", "gaps_are_one", "gap_of_another", "gap_of_the_pinned_to_the_end", "gap_of_the_fixed_to_the_end", "gap_of_a_donor_to_the_end"),
    "in place": ("in_place_over_the_pinned", "in_place_over_the_living", "in_place_twice", "in_place_beyond_the_end"),
    "process": ("sleeps_when_large", "exits_at_three_results", "sorts_what_it_is_given"),
}  # fmt: skip
"""What the bug is about -> planners."""

NOTED: Final = {
    "looks_at_all_before": "takes longer with every call",
    "keeps_a_megabyte": "keeps more memory after every call",
}
"""Sound planners whose plans cost more and more, and what is noted of them."""

SOUND: Final = (
    "large_gaps", "pages", "forks_once", "in_a_thread", "prints", "slow", "from_the_top", "changes_folder", "lower_first", "heeds_gaps", "heeds_streams",
    "answers_in_a_dict", "in_drawn_order", "lower_of_two", "kept_by_all_of_it", "without_any_reuse", "collects_garbage", "raises_within",
)  # fmt: skip
"""Planners in which nothing may be found."""

__all__ = [
    "BROKEN",
    "NOTED",
    "SOUND",
    "by_hour",
    "by_hour_of_utc",
    "by_thread",
    "forks_once",
    "in_a_thread",
    "large_gaps",
    "pages",
]
