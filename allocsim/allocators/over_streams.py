"""Lifetimes over several streams: a buffer lives until all that takes its place waits for it.

    problem = over_streams(find("best_fit").believe(program))
    plan = find("best_fit").place(problem)        # no two buffers race, whoever places

In the order of the list a buffer dies with its last access. Where ops run on several streams, an op
that stands later may run earlier. So the life of a buffer goes on up to the last op, of any stream,
that begins another buffer and is not ordered behind every access of this one. Two buffers whose
lives do not meet are then ordered, access by access. This is what a caching allocator does with an
event that holds a block, told to a planner as a number.

A pair (donor, recipient) is kept where the donor's life still ends at the recipient's first op, and
that op is ordered behind every other access of the donor.
Gaps are dropped: bytes in a gap could be taken by another stream. Programs of one stream keep the
problem that they have.

O(ops x streams + buffers x streams x log ops). What this module does not see: bytes.
"""

from dataclasses import replace

import numpy as np

from allocsim.model import VIEW, Bools, Problem, Program
from allocsim.model.layout import Int64s
from allocsim.programs.access_steps import NEVER, first_and_last

__all__ = ["happens_before", "over_streams"]


def over_streams(problem: Problem) -> Problem:
    """Return the problem with lives that hold in every legal order."""
    program = problem.program
    if len(program.streams) < 2 or not len(program.ops):
        return problem
    clock = happens_before(program)
    first, _ = first_and_last(program)
    begins = np.zeros(len(program.ops), np.bool_)
    begins[first[first != NEVER]] = True
    stop = np.maximum(problem.stop, _last_not_behind(program, clock, begins) + 1)
    stop = np.where(first == NEVER, problem.stop, stop)
    donors, recipients = problem.may_share.T if len(problem.may_share) else (np.empty(0, np.int64),) * 2
    kept = (stop[donors] == first[recipients] + 1) & (first[recipients] != NEVER)
    at, last_access = first[recipients[kept]], _last_by_stream(program)
    kept[kept] = (clock[at] >= last_access[donors[kept]]).all(axis=1)
    return replace(problem, stop=stop, may_share=problem.may_share[kept], gaps={})


def happens_before(program: Program) -> Int64s:
    """Return (ops, streams): the last op of each stream that is ordered before an op or is it; -1
    where none is.
    """
    ops = program.ops
    clock = np.full((len(ops), len(program.streams)), -1, np.int64)
    last = [-1] * len(program.streams)
    starts, after = ops.after_starts.tolist(), ops.after.tolist()
    for step, stream in enumerate(ops.stream.tolist()):
        row = clock[step]
        for earlier in (last[stream], *after[starts[step] : starts[step + 1]]):
            if earlier >= 0:
                np.maximum(row, clock[earlier], out=row)
        row[stream] = last[stream] = step
    return clock


def _last_not_behind(program: Program, clock: Int64s, begins: Bools) -> Int64s:
    """Return for each buffer the last op that begins a buffer and is not ordered behind all its
    accesses; -1 where there is none.

    Along a stream what is behind an access stays behind it, so one search answers for a stream.
    """
    last_access = _last_by_stream(program)
    found = np.full(len(program.buffers), -1, np.int64)
    for stream in range(len(program.streams)):
        here = np.flatnonzero((program.ops.stream == stream) & begins)
        for other in range(len(program.streams)) if len(here) else ():
            behind = np.searchsorted(clock[here, other], last_access[:, other], side="left")
            late = np.where(behind > 0, here[np.maximum(behind - 1, 0)], -1)
            found = np.maximum(found, np.where(last_access[:, other] >= 0, late, -1))
    return found


def _last_by_stream(program: Program) -> Int64s:
    """Return (buffers, streams): the last op of each stream that touches a buffer, -1 for none."""
    ops, of_value = program.ops, program.values.buffer
    found = np.full((len(program.buffers), len(program.streams)), -1, np.int64)
    touches = ~ops.is_kind(VIEW)
    for starts, values in ((ops.operand_starts, ops.operands), (ops.result_starts, ops.results)):
        step = np.repeat(np.arange(len(ops)), np.diff(starts))
        kept = touches[step]
        np.maximum.at(found, (of_value[values[kept]], ops.stream[step[kept]]), step[kept])
    return found
