"""The placement without reuse: every buffer in bytes of its own, one after another.

Each buffer that is not `own` takes the next multiple of its alignment at or after the end of the
one before it, in index order, each arena for itself. Offsets that are already decided (`fixed`) are
kept, and stepped over by the others. Whatever a belief says of lifetimes and pairs is ignored, so
the plan is sound under every belief; its peak is what all other planners are measured by.

O(n + f log f) for n buffers of which f are fixed.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from allocsim.errors import CapacityError
from allocsim.model import OWN, Bools, Plan, Problem
from allocsim.model.layout import LIMIT

NAME = "reference"


def place(problem: Problem) -> Plan:
    """Place every buffer apart. Raises CapacityError where an arena cannot hold its buffers."""
    program, buffers = problem.program, problem.program.buffers
    own = problem.own.tolist()
    sizes, alignments, arenas = problem.nbytes.tolist(), buffers.alignment.tolist(), buffers.arena.tolist()
    offsets = [0] * len(own)
    by_arena: list[list[int]] = [[] for _ in program.arenas]
    for b, arena in enumerate(arenas):
        if not own[b]:
            by_arena[arena].append(b)
    for here in by_arena:
        taken = _ranges((problem.fixed[b], problem.fixed[b] + sizes[b]) for b in here if b in problem.fixed)
        ahead = next(taken, None)
        top = 0
        for b in here:
            if b in problem.fixed:
                offsets[b] = problem.fixed[b]
                continue
            at = -(-top // alignments[b]) * alignments[b]
            while ahead is not None and ahead[0] < at + sizes[b]:
                at = max(at, -(-ahead[1] // alignments[b]) * alignments[b])
                ahead = next(taken, None)
            offsets[b] = at
            top = at + sizes[b]
        for b in here:
            check_fits(problem, NAME, b, offsets[b])
    apart = np.array(own, dtype=np.bool_)
    return Plan(
        program=program,
        problem=problem,
        source=NAME,
        arena=np.where(apart, OWN, buffers.arena).astype(np.int32),
        offset=np.array(offsets, dtype=np.int64),
        nbytes=np.where(apart, 0, problem.nbytes).astype(np.int64),
    )


def check_fits(problem: Problem, planner: str, buffer: int, offset: int) -> None:
    """Raise CapacityError, in the name of `planner`, unless `buffer` fits into its arena at
    `offset`.
    """
    nbytes = int(problem.nbytes[buffer])
    arena = problem.program.arenas[int(problem.program.buffers.arena[buffer])]
    limit = LIMIT if arena.capacity is None else arena.capacity
    if offset >= 0 and offset + nbytes <= limit:
        return
    name = problem.program.buffers.names[buffer]
    where = f"at offset {offset} does not fit into arena {arena.name!r} of {limit} bytes"
    raise CapacityError(f"allocator {planner!r}: buffer {buffer} ({name!r}, {nbytes} bytes) {where}")


def idle(problem: Problem) -> Bools:
    """Mask of the buffers whose believed lifetime is empty and in which no op has an operand or a
    result, views included.
    """
    ops, of_value = problem.program.ops, problem.program.values.buffer
    mask: Bools = problem.start == problem.stop
    mask[of_value[ops.operands]] = False
    mask[of_value[ops.results]] = False
    return mask


def _ranges(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield non-empty ranges by start, each cut off at the furthest end so far, so that ends never
    fall.
    """
    end = 0
    for low, high in sorted(ranges):
        if high > low:
            end = max(end, high)
            yield low, end
