"""Mutants of placements: each wraps the sound placement that it is planted into.

What this module does not see: beliefs.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from allocsim.errors import CapacityError
from allocsim.fuzzing.scaling import of_arenas
from allocsim.model import Buffers, Plan, Problem

Place = Callable[[Problem], Plan]

KEPT: dict[tuple[int, ...], list[int]] = {}
"""Sizes of the buffers of a program -> offsets that were found for one such program."""

ASKED: list[int] = [0]
"""How many plans were asked of `moody`."""


def stale(place: Place, problem: Problem) -> Plan:
    """Where the sizes are those of an earlier program, its offsets are taken."""
    plan = place(problem)
    key = (*plan.nbytes.tolist(), -1, *plan.arena.tolist(), -1, *problem.program.buffers.alignment.tolist())
    return replace(plan, offset=np.array(KEPT.setdefault(key, plan.offset.tolist()), dtype=np.int64))


def moody(place: Place, problem: Problem) -> Plan:
    """Every second plan leaves eight bytes free at the bottom of an unbounded arena."""
    ASKED[0] += 1
    plan = place(problem)
    unbounded = np.array([arena.capacity is None for arena in problem.program.arenas], dtype=np.bool_)
    lifted = plan.placed & unbounded[problem.program.buffers.arena] & (ASKED[0] % 2 == 0)
    return replace(
        plan, offset=np.where(lifted, plan.offset + np.lcm.reduce(problem.program.buffers.alignment), plan.offset)
    )


def gap_is_the_end(place: Place, problem: Problem) -> Plan:
    """A life ends with its first gap."""
    stop = problem.stop.copy()
    for buffer, gaps in problem.gaps.items():
        stop[buffer] = min(low for low, _ in gaps)
    return _back(place(replace(problem, stop=stop, gaps={})), problem)


def arenas_mixed(place: Place, problem: Problem) -> Plan:
    """Everything is placed in the first arena."""
    arena = np.zeros_like(problem.program.buffers.arena)
    return _back(place(_of(problem, arena=arena)), problem)


def alignment_dropped(place: Place, problem: Problem) -> Plan:
    """Everything is placed as if its alignment were one."""
    return _back(place(_of(problem, alignment=np.ones_like(problem.program.buffers.alignment))), problem)


def own_alignment_ignored(place: Place, problem: Problem) -> Plan:
    """Everything is placed with the alignment of its arena."""
    return _back(place(_of(problem, alignment=of_arenas(problem.program))), problem)


def alignment_of_a_mask(place: Place, problem: Problem) -> Plan:
    """Offsets are rounded up by a mask of bits, as if every alignment were a power of two."""
    alignment = problem.program.buffers.alignment
    return _back(place(_of(problem, alignment=alignment & -alignment)), problem)


def alignment_at_most_64(place: Place, problem: Problem) -> Plan:
    """No alignment is above a line of a cache."""
    return _back(place(_of(problem, alignment=np.minimum(problem.program.buffers.alignment, 64))), problem)


def offsets_of_32_bits(place: Place, problem: Problem) -> Plan:
    """Offsets are kept in 32 bits."""
    plan = place(problem)
    return replace(plan, offset=plan.offset % (1 << 32))


def table_of_64(place: Place, problem: Problem) -> Plan:
    """A table of blocks has 64 entries; what comes after lies where the first one does."""
    plan = place(problem)
    late = plan.placed & (np.arange(len(plan.offset)) >= 64)
    return replace(plan, offset=np.where(late, 0, plan.offset))


def capacity_without_offset(place: Place, problem: Problem) -> Plan:
    """A buffer fits if it is no larger than its arena."""
    program = problem.program
    for buffer, (nbytes, arena) in enumerate(zip(problem.nbytes.tolist(), program.buffers.arena.tolist(), strict=True)):
        capacity = program.arenas[arena].capacity
        if capacity is not None and nbytes > capacity and not problem.own[buffer]:
            raise CapacityError(f"buffer {buffer} of {nbytes} bytes does not fit into {capacity}")
    arenas = tuple(replace(arena, capacity=None) for arena in program.arenas)
    return _back(place(replace(problem, program=replace(program, arenas=arenas))), problem)


def empty_takes_its_twin_along(place: Place, problem: Problem) -> Plan:
    """When an empty buffer dies, so does what was born with it, for they may have one address."""
    stop = problem.stop.copy()
    for empty in np.flatnonzero((problem.nbytes == 0) & (problem.stop > problem.start)).tolist():
        twins = (problem.start <= problem.start[empty]) & (problem.stop > problem.stop[empty]) & ~problem.own
        stop[twins] = problem.stop[empty]
    pinned = problem.pinned & (stop == problem.stop)
    return _back(place(replace(problem, stop=stop, pinned=pinned)), problem)


def donor_freed(place: Place, problem: Problem) -> Plan:
    """The whole of a donor is freed when it dies, recipient or not."""
    plan = place(problem)
    donor, recipient = problem.may_share[:, 0], problem.may_share[:, 1]
    taken = plan.placed[donor] & (plan.offset[donor] == plan.offset[recipient]) & ~problem.pinned[recipient]
    taken &= problem.stop[donor] == problem.start[recipient] + 1
    stop = problem.stop.copy()
    stop[recipient[taken]] = problem.start[recipient[taken]] + 1
    return _back(place(replace(problem, stop=stop)), problem)


def _of(problem: Problem, **columns: object) -> Problem:
    """Return the problem of a program whose buffers have other columns."""
    program = problem.program
    buffers: Buffers = replace(program.buffers, **columns)  # type: ignore[arg-type]
    return replace(problem, program=replace(program, buffers=buffers))


def _back(plan: Plan, problem: Problem) -> Plan:
    """Return the plan as one of the problem that was asked."""
    return replace(plan, program=problem.program, problem=problem)
