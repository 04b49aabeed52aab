"""Planners written without a look at the sources of programs: each with one bug, and sound ones that look odd.

    python benchmarks/planted.py --within --seeds 1 NAME...     # those of `UNSEEN` and `UNSEEN_SOUND` are among its names

As in `broken_planners.py`, each is the shelf's `greedy_by_size` but for its bug. `UNSEEN` names them by what the bug is about.
"""

import gc
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tests"))

from broken_planners import KEPT, _cached, _first_fit, _gaps_otherwise, _missing, _of_buffers, _over, _placed
from planted_planners import SHELF, _lifted, moved

from allocsim.allocators import ALLOCATORS, Constraints, exact, pin_reads
from allocsim.errors import CapacityError
from allocsim.model import VIEW, Plan, Problem, Program, Role
from allocsim.model.layout import Int64s

CALLS: Final = [0]

# lives ---------------------------------------------------------------------------------------------------------------------------


def last_of_many_missed(program: Program, constraints: Constraints) -> Plan:
    """Of an op with four operands or more, the last is not seen."""
    arity = np.diff(program.ops.operand_starts)
    return _missing(program, constraints, lambda step, place, _: (arity[step] > 3) & (place == arity[step] - 1))


def read_twice_missed(program: Program, constraints: Constraints) -> Plan:
    """What one op reads twice is crossed out by the second read."""

    def twice(step: Int64s, _: Int64s, buffer: Int64s) -> Any:
        pairs, inverse = np.unique(np.stack([step, buffer]), axis=1, return_inverse=True)
        return np.bincount(inverse.ravel(), minlength=pairs.shape[1])[inverse.ravel()] > 1

    return _missing(program, constraints, twice)


def lives_of_seven_bits(program: Program, constraints: Constraints) -> Plan:
    """No life is longer than 127 steps."""
    problem = exact.believe(program, constraints)
    free = ~(constraints.pinned | program.buffers.persistent)
    short = np.minimum(problem.stop, problem.start + 127)
    return _placed(problem, constraints, stop=np.where(free, short, problem.stop))


def first_buffer_forgotten(program: Program, constraints: Constraints) -> Plan:
    """Buffer 0 counts as none: its life is over as it begins."""
    problem = exact.believe(program, constraints)
    stop = problem.stop.copy()
    if len(stop) and not (constraints.pinned[0] or program.buffers.persistent[0]):
        stop[0] = min(problem.start[0] + 1, problem.stop[0])
    return _placed(problem, constraints, stop=stop)


def _through(program: Program, constraints: Constraints, odd: Callable[[Any], bool]) -> Plan:
    """Plan as if reads through values that are odd were not there."""
    ops = program.ops
    real = ~ops.is_kind(VIEW)[np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))]
    mask = np.array([odd(program.values[int(value)]) for value in ops.operands[real]], dtype=np.bool_)
    return _missing(program, constraints, lambda *_: mask)


def late_starts_missed(program: Program, constraints: Constraints) -> Plan:
    """A read that begins behind the buffer's first byte is not seen."""
    return _through(program, constraints, lambda value: value.offset > 0)


def flips_missed(program: Program, constraints: Constraints) -> Plan:
    """A read backwards is not seen."""
    return _through(program, constraints, lambda value: min(value.strides, default=0) < 0)


def broadcasts_missed(program: Program, constraints: Constraints) -> Plan:
    """A read with a stride of zero is not seen."""
    return _through(program, constraints, lambda value: 0 in value.strides)


def twins_are_one(program: Program, constraints: Constraints) -> Plan:
    """Two buffers of one size, one birth and one end are taken for one."""
    plan = SHELF.plan(program, constraints)
    problem = exact.believe(program, constraints)
    offset, seen = plan.offset.copy(), dict[Any, int]()
    for b in np.flatnonzero((plan.arena >= 0) & (plan.nbytes > 0)).tolist():
        key = (plan.arena[b], plan.nbytes[b], problem.start[b], problem.stop[b], program.buffers.alignment[b])
        offset[b] = offset[b] if b in constraints.fixed else offset[seen.setdefault(key, b)]
    return moved(plan, offset)


# bytes ---------------------------------------------------------------------------------------------------------------------------


def small_need_no_alignment(program: Program, constraints: Constraints) -> Plan:
    """What is smaller than its alignment lies anywhere."""
    buffers = program.buffers
    return _of_buffers(
        program, constraints, alignment=np.where(buffers.nbytes < buffers.alignment, 1, buffers.alignment)
    )


def odd_byte_lost(program: Program, constraints: Constraints) -> Plan:
    """Sizes are even."""
    return _of_buffers(program, constraints, nbytes=program.buffers.nbytes & ~1)


def sizes_of_16_bits(program: Program, constraints: Constraints) -> Plan:
    """Sizes have 16 bits."""
    return _of_buffers(program, constraints, nbytes=program.buffers.nbytes % (1 << 16))


def offsets_of_40_bits(program: Program, constraints: Constraints) -> Plan:
    """Offsets have 40 bits."""
    plan = SHELF.plan(program, constraints)
    return moved(plan, plan.offset % (1 << 40))


def aligned_in_the_first_arena(program: Program, constraints: Constraints) -> Plan:
    """Only the first arena has alignments."""
    buffers = program.buffers
    return _of_buffers(program, constraints, alignment=np.where(buffers.arena > 0, 1, buffers.alignment))


def empty_above_the_end(program: Program, constraints: Constraints) -> Plan:
    """An empty buffer lies a byte behind all that its arena has."""
    plan = SHELF.plan(program, constraints)
    offset = plan.offset.copy()
    for b in np.flatnonzero((program.buffers.nbytes == 0) & (plan.arena >= 0)).tolist():
        capacity = program.arenas[int(plan.arena[b])].capacity
        offset[b] = offset[b] if capacity is None or b in constraints.fixed else capacity + 1
    return moved(plan, offset)


# arenas --------------------------------------------------------------------------------------------------------------------------


def two_arenas_at_most(program: Program, constraints: Constraints) -> Plan:
    """A third arena is taken for the second."""
    plan = SHELF.plan(program, constraints)
    arena = np.minimum(plan.arena, 1)
    return Plan(program=program, arena=arena, offset=plan.offset, nbytes=plan.nbytes, source="planted")


def later_ends_ignored(program: Program, constraints: Constraints) -> Plan:
    """Only the first arena has an end."""
    arenas = tuple(a if not n else replace(a, capacity=None) for n, a in enumerate(program.arenas))
    made = SHELF.plan(replace(program, arenas=arenas), constraints)
    return Plan(program=program, arena=made.arena, offset=made.offset, nbytes=made.nbytes, source="planted")


def refuses_a_full_arena(program: Program, constraints: Constraints) -> Plan:
    """An arena of which more than nine tenths would be taken is refused."""
    plan = SHELF.plan(program, constraints)
    for number, arena in enumerate(program.arenas):
        top = int((plan.offset + plan.nbytes)[plan.arena == number].max(initial=0))
        if arena.capacity is not None and top * 10 > arena.capacity * 9:
            raise CapacityError("nearly full")
    return plan


# what is told ----------------------------------------------------------------------------------------------------------------------


def states_are_scratch(program: Program, constraints: Constraints) -> Plan:
    """A state that is told to lie apart lies in its arena."""
    return SHELF.plan(program, replace(constraints, own=constraints.own & (program.buffers.role != Role.STATE)))


def even_pins_kept(program: Program, constraints: Constraints) -> Plan:
    """What is pinned beyond the host's reads is kept where its number is even."""
    even = np.arange(len(constraints.pinned)) % 2 == 0
    plan = SHELF.plan(program, replace(constraints, pinned=constraints.pinned & (even | pin_reads(program))))
    return moved(plan, plan.offset)


def pins_of_the_unread_dropped(program: Program, constraints: Constraints) -> Plan:
    """A pin on what no op reads is for nothing."""
    read = np.zeros(len(program.buffers), dtype=np.bool_)
    read[program.values.buffer[program.ops.operands]] = True
    plan = SHELF.plan(program, replace(constraints, pinned=constraints.pinned & read))
    return moved(plan, plan.offset)


def fixed_at_zero_is_none(program: Program, constraints: Constraints) -> Plan:
    """An offset of 0 that is decided counts as none."""
    return SHELF.plan(program, replace(constraints, fixed={b: at for b, at in constraints.fixed.items() if at}))


def fixed_of_the_largest_ignored(program: Program, constraints: Constraints) -> Plan:
    """Of two decided offsets or more, that of the largest buffer is not looked at."""
    left = sorted(constraints.fixed, key=lambda b: int(program.buffers.nbytes[b]))
    kept = left[:-1] if len(left) > 1 else left
    return SHELF.plan(program, replace(constraints, fixed={b: constraints.fixed[b] for b in kept}))


def own_of_the_first_ignored(program: Program, constraints: Constraints) -> Plan:
    """Memory of its own for buffer 0 counts as none."""
    own = constraints.own.copy()
    own[:1] = False
    return SHELF.plan(program, replace(constraints, own=own))


# in place ----------------------------------------------------------------------------------------------------------------------------


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


def in_place_while_viewed(program: Program, constraints: Constraints) -> Plan:
    """A pair is taken two steps before its donor is dead."""
    return _over(program, constraints, lambda problem, op, _, __, donor, ___: problem.stop[donor] == op.step + 3)


# gaps ------------------------------------------------------------------------------------------------------------------------------


def gap_a_step_early(problem: Problem) -> Plan:
    """A gap begins a step before it is stated."""
    whole = np.ones(len(problem.start), dtype=np.bool_)
    return _gaps_otherwise(problem, whole, lambda _, gaps: tuple((low - 1, high) for low, high in gaps))


def last_gap_to_the_end(problem: Problem) -> Plan:
    """The last of two gaps or more does not end."""
    many = np.array([len(problem.gaps.get(b, ())) > 1 for b in range(len(problem.start))], dtype=np.bool_)
    return _gaps_otherwise(problem, many, lambda b, gaps: (*gaps[:-1], (gaps[-1][0], int(problem.stop[b]))))


# what the answer depends on ------------------------------------------------------------------------------------------------------


def by_parity_of_calls(program: Program, constraints: Constraints) -> Plan:
    """Every second answer lies a unit higher."""
    CALLS[0] += 1
    return _lifted(program, constraints, CALLS[0] % 2)


def by_collections(program: Program, constraints: Constraints) -> Plan:
    """Another place after each collection of garbage."""
    return _lifted(program, constraints, gc.get_stats()[0]["collections"] % 7)


def kept_by_names(program: Program, constraints: Constraints) -> Plan:
    """A plan is kept for the next program with the same names."""
    return _cached((program.name, program.buffers.names), program, constraints)


def told_once(program: Program, constraints: Constraints) -> Plan:
    """Pins are kept from the first program with as many buffers."""
    pinned = KEPT.setdefault(("pinned", len(program.buffers)), constraints.pinned)
    return moved(plan := SHELF.plan(program, replace(constraints, pinned=pinned | pin_reads(program))), plan.offset)


def raises_at_three_arenas(program: Program, constraints: Constraints) -> Plan:
    """Has two lists of blocks, one for each arena."""
    _ = [(0, 1)[arena] for arena in range(len(program.arenas))]
    return SHELF.plan(program, constraints)


# sound, and odd ------------------------------------------------------------------------------------------------------------------


def asked_twice(program: Program, constraints: Constraints) -> Plan:
    """Sound; plans twice and gives the second answer."""
    SHELF.plan(program, constraints)
    return SHELF.plan(program, constraints)


def last_number_first(problem: Problem) -> Plan:
    """Sound; first fit from the last buffer to the first."""
    return _first_fit(replace(problem, order=problem.order[::-1].copy()), {})


def seeds_the_generator(program: Program, constraints: Constraints) -> Plan:
    """Sound; seeds the generator that everybody uses, and draws who plans."""
    random.seed(len(program.buffers))
    return ALLOCATORS[random.choice(("best_fit", "greedy_by_breadth"))].plan(program, constraints)  # noqa: S311


def deepens(program: Program, constraints: Constraints) -> Plan:
    """Sound; sets another limit of recursion, each time."""
    sys.setrecursionlimit(5000 + len(program.ops))
    return SHELF.plan(program, constraints)


def starts_a_thread(program: Program, constraints: Constraints) -> Plan:
    """Sound; leaves a thread that waits beside every answer."""
    if threading.active_count() < 8:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return SHELF.plan(program, constraints)


def answers_in_a_list(program: Program, constraints: Constraints) -> list[int | None]:
    """Sound; answers with a list of Python's integers, and None for what lies apart."""
    plan = SHELF.plan(program, constraints)
    return [int(at) if arena >= 0 else None for at, arena in zip(plan.offset, plan.arena, strict=True)]


def by_contents(program: Program, constraints: Constraints) -> Plan:
    """Sound; one of two planners, by the bytes of the program."""
    name = ("linear_scan", "xla_best_fit")[int(program.buffers.nbytes.sum() % 2)]
    return ALLOCATORS[name].plan(program, constraints)


def searches(program: Program, constraints: Constraints) -> Plan:
    """Sound; the best of several and a search."""
    return ALLOCATORS["best"].plan(program, constraints)


for _function in (last_number_first, gap_a_step_early, last_gap_to_the_end):
    _function.guarantees = ("sound", "deterministic")  # type: ignore[attr-defined]

UNSEEN: Final[dict[str, tuple[str, ...]]] = {
    "arity": ("last_of_many_missed", "read_twice_missed"),
    "lives": ("lives_of_seven_bits", "first_buffer_forgotten", "late_starts_missed", "flips_missed", "broadcasts_missed", "twins_are_one"),
    "alignment": ("small_need_no_alignment", "aligned_in_the_first_arena"),
    "bytes": ("odd_byte_lost", "sizes_of_16_bits", "offsets_of_40_bits", "empty_above_the_end"),
    "arenas": ("two_arenas_at_most", "later_ends_ignored", "refuses_a_full_arena", "raises_at_three_arenas"),
    "own": ("states_are_scratch", "own_of_the_first_ignored"),
    "pins": ("even_pins_kept", "pins_of_the_unread_dropped"),
    "fixed": ("fixed_at_zero_is_none", "fixed_of_the_largest_ignored"),
    "in place": ("in_place_by_size", "in_place_while_viewed"),
    "gaps": ("gap_a_step_early", "last_gap_to_the_end"),
    "history": ("by_parity_of_calls", "by_collections", "kept_by_names", "told_once"),
}  # fmt: skip
"""What the bug is about -> planners."""

UNSEEN_SOUND: Final = (
    "asked_twice", "last_number_first", "seeds_the_generator", "deepens", "starts_a_thread", "answers_in_a_list", "by_contents", "searches",
)  # fmt: skip
"""Planners in which nothing may be found."""
