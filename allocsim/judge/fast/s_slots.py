"""Compare each slot with its buffer and its arena: `OutOfBounds`, `Undersized`, `Misaligned`,
`WrongArena`, `Unplaced`.

Every plan that some run uses is judged against the buffers of the executed program. There is one
record for each (plan, buffer) and kind, for the first program with the defect. For a program
without ops, the problem's sizes and lifetimes are used, and a buffer counts as used if it is
believed to live.

    OutOfBounds   the slot's offset is negative, its end is beyond the arena's capacity, or a value reaches outside the buffer
    Undersized    the slot's nbytes are below the buffer's nbytes
    Misaligned    the offset is not a multiple of the buffer's alignment
    WrongArena    the slot is in another arena than the buffer's arena
    Unplaced      a buffer that some op of a run reads or writes has no slot (`null`)

The first four kinds apply to slots in an arena. As an exception, a value that reaches outside its
buffer is reported wherever the buffer is. For `OutOfBounds`, `value` is the first value that
reaches outside, or None if the slot is faulty. `bytes` are empty, because they are ranges within a
buffer, and the faulty bytes are outside the buffer.

Complexity: O(buffers + values) for each (plan, program), vectorised.

This module does not examine other slots (`s_overlap`).
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from allocsim.judge.fast.trial import Findings, Trial, TrialDocument
from allocsim.judge.violations import Particulars, Violation
from allocsim.model import UNPLACED, Bools
from allocsim.model.layout import Int64s


def check_slots(case: TrialDocument, findings: Findings) -> None:
    """Report every slot that does not fit its buffer or its arena, and every missing slot."""
    together: dict[tuple[int, int], list[Trial]] = {}
    for trial in case.trials:
        together.setdefault((trial.plan_index, trial.program_index), []).append(trial)
    said: set[tuple[str, int, int]] = set()
    for (plan, _), trials in sorted(together.items(), key=lambda item: item[0][0]):
        for kind, bad, make in _defects(trials):
            for buffer in np.flatnonzero(bad).tolist():
                if (kind, plan, buffer) in said:
                    continue
                said.add((kind, plan, buffer))
                findings.report(kind, partial(make, trials[0], buffer))


def _defects(trials: list[Trial]) -> list[tuple[str, Bools, Callable[[Trial, int], Violation]]]:
    """Return (kind, mask of the faulty buffers, function that makes the record of a buffer)."""
    trial = trials[0]
    plan, buffers, placed = trial.plan, trial.program.buffers, trial.plan.placed
    beyond, reaching = placed & ((plan.offset < 0) | _beyond(trial)), _reaching_out(trial)
    used = np.logical_or.reduce([_used(trial) for trial in trials])
    return [
        ("OutOfBounds", beyond | (reaching >= 0), partial(_out_of_bounds, beyond, reaching)),
        ("Undersized", placed & (plan.nbytes < _sizes(trial)), partial(_slot, "Undersized")),
        ("Misaligned", placed & (plan.offset % buffers.alignment != 0), partial(_slot, "Misaligned")),
        ("WrongArena", placed & (plan.arena != buffers.arena), partial(_slot, "WrongArena")),
        ("Unplaced", (plan.arena == UNPLACED) & used, partial(_slot, "Unplaced")),
    ]


def _beyond(trial: Trial) -> Bools:
    """Return which slots end beyond their arena's capacity, computed without sums that may wrap."""
    limits = np.array(
        [-1 if arena.capacity is None else arena.capacity for arena in trial.program.arenas], dtype=np.int64
    )
    capacity = limits[np.maximum(trial.plan.arena, 0)]
    mask: Bools = (capacity >= 0) & (trial.plan.offset > capacity - trial.plan.nbytes)
    return mask


def _reaching_out(trial: Trial) -> Int64s:
    """Return each buffer's first value with bytes outside the buffer, or -1 if there is none."""
    hulls, home = trial.program.values.hulls, trial.accesses.extents.buffer
    nbytes = trial.program.buffers.nbytes
    values = np.flatnonzero((hulls[:, 0] < hulls[:, 1]) & ((hulls[:, 0] < 0) | (hulls[:, 1] > nbytes[home])))
    first = np.full(len(nbytes), -1, dtype=np.int64)
    first[home[values[::-1]]] = values[::-1]
    return first


def _sizes(trial: Trial) -> Int64s:
    return trial.program.buffers.nbytes if trial.problem is None else trial.problem.nbytes


def _used(trial: Trial) -> Bools:
    return trial.accesses.touched if trial.problem is None else trial.problem.start < trial.problem.stop


def _slot(kind: str, trial: Trial, buffer: int) -> Violation:
    """Return the record of a slot; `run` is None, because the defect belongs to the plan."""
    return trial.record(kind, op=None, buffer=buffer, run=None)


def _out_of_bounds(beyond: Bools, reaching: Int64s, trial: Trial, buffer: int) -> Violation:
    """Return the record of a slot outside its arena, or of a value outside its buffer."""
    value = int(reaching[buffer]) if reaching[buffer] >= 0 else None
    mine = None if beyond[buffer] else value
    more = Particulars(other_value=value)
    return trial.record("OutOfBounds", op=None, value=mine, buffer=buffer, run=None, more=more)
