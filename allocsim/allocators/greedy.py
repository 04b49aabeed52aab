"""Greedy by size: the largest buffer first, each into the smallest gap left by those that live at the same time.

A plain baseline with exact lifetimes and no sharing in place: a pair of `may_share` is two buffers that live at the same step, and so
they lie apart. Buffers go by size, then start, then index. For each, the buffers already placed in its arena that live while it
lives are laid out by offset; it takes the smallest gap between them that is large enough (the lowest of equal ones), or the place
behind them all. Offsets are multiples of the buffer's alignment. `fixed` buffers come first, where they are told to lie; pinned ones
live for ever; a buffer with no lifetime that no op touches is not placed. `gaps` are not used.

O(n^2) in columns. Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", arXiv:2001.03288 (greedy by
size, offset calculation); TFLite's arena planner does the same.
"""

import numpy as np

from allocsim.allocators.reference import check_fits, idle
from allocsim.layout import LIMIT, Int64s
from allocsim.model import OWN, UNPLACED, Plan, Problem

NAME = "greedy_by_size"


def place(problem: Problem) -> Plan:
    """Place the largest buffers first. Raises CapacityError where a buffer finds no room in its arena."""
    program, buffers, nbytes = problem.program, problem.program.buffers, problem.nbytes
    start = problem.start
    stop = np.where(problem.pinned, LIMIT, problem.stop)
    offset = np.zeros(len(buffers), dtype=np.int64)
    skipped = problem.own | idle(problem)
    for arena in range(len(program.arenas)):
        here = np.flatnonzero((buffers.arena == arena) & ~skipped)
        first = np.array([buffer in problem.fixed for buffer in here.tolist()], dtype=np.bool_)
        order = here[np.lexsort((here, start[here], -nbytes[here], ~first))]
        for count, buffer in enumerate(order.tolist()):
            placed = order[:count]
            if buffer in problem.fixed:
                offset[buffer] = problem.fixed[buffer]
            else:
                together = placed[(start[placed] < stop[buffer]) & (stop[placed] > start[buffer]) & (nbytes[placed] > 0)]
                low, high = offset[together], offset[together] + nbytes[together]
                offset[buffer] = _gap(low, high, int(nbytes[buffer]), int(buffers.alignment[buffer]))
            check_fits(problem, NAME, buffer, int(offset[buffer]))
    where = np.where(problem.own, OWN, np.where(skipped, UNPLACED, buffers.arena)).astype(np.int32)
    return Plan(
        program=program,
        problem=problem,
        source=NAME,
        arena=where,
        offset=offset,
        nbytes=np.where(where >= 0, nbytes, 0),
    )


def _gap(low: Int64s, high: Int64s, nbytes: int, alignment: int) -> int:
    """Return the aligned start of the smallest gap of `nbytes` between the ranges `[low, high)`, or of the room behind them."""
    by_place = np.argsort(low, kind="stable")
    floors = np.concatenate([[0], np.maximum.accumulate(np.maximum(high[by_place], 0))])
    floors = -(-floors // alignment) * alignment
    rooms = low[by_place] - floors[:-1]
    fitting = np.flatnonzero(rooms >= nbytes)
    return int(floors[fitting[np.argmin(rooms[fitting])]] if fitting.size else floors[-1])
