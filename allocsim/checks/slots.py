"""Whether each slot is a slot for its buffer: `OutOfBounds`, `Undersized`, `Misaligned`, `WrongArena`, `Unplaced`.

Judged for every plan that some run uses, against the buffers of the program run, once for each (plan, program run, buffer). Where the
program has no ops, the believed sizes and lifetimes of its problem stand in: a buffer is used if it is believed to live.

    OutOfBounds   the slot's offset is negative, or its end beyond the arena's capacity; or a value reaches outside the buffer
    Undersized    the slot's nbytes below the buffer's
    Misaligned    the offset no multiple of the buffer's alignment
    WrongArena    the slot in another arena than the buffer's
    Unplaced      no slot (`null`) for a buffer that some op of a run reads or writes

The first four are about slots in an arena (but for values that reach out, wherever the buffer is). Of `OutOfBounds`, `bytes` are all
those outside, as positions within the buffer (of a value that reaches out they are negative or beyond its end; of a layout with
holes the whole stretch is given); `value` is the first value that reaches out, none if only the slot does. Of `Undersized`, `bytes` are those without room.

Complexity: O(buffers + values) for each (plan, program), vectorised.

What this module does not see: other slots (`placement`).
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from allocsim.checks.case import Case, Findings, Trial, buffer_words, bytes_words, slot_words, value_words
from allocsim.checks.segments import Range, merged
from allocsim.checks.violations import Violation
from allocsim.layout import Int64s
from allocsim.model import UNPLACED, Bools


def check_slots(case: Case, findings: Findings) -> None:
    """Report every slot that does not fit its buffer or its arena."""
    together: dict[tuple[int, int], list[Trial]] = {}
    for trial in case.trials:
        together.setdefault((trial.plan_index, trial.program_index), []).append(trial)
    for _, trials in sorted(together.items()):
        for kind, bad, make in _defects(trials):
            for buffer in np.flatnonzero(bad).tolist():
                findings.report(kind, partial(make, trials[0], buffer))


def _defects(trials: list[Trial]) -> list[tuple[str, Bools, Callable[[Trial, int], Violation]]]:
    """Return, for each kind, which buffers have it, and what makes the record of one."""
    trial = trials[0]
    plan, buffers, placed = trial.plan, trial.program.buffers, trial.plan.placed
    beyond = plan.offset > _capacity(trial) - plan.nbytes
    reaching = np.zeros(len(buffers), dtype=np.bool_)
    reaching[trial.accesses.extents.buffer[_reaches_out(trial)]] = True
    used = np.logical_or.reduce([_used(trial) for trial in trials])
    return [
        ("OutOfBounds", (placed & ((plan.offset < 0) | beyond)) | reaching, _out_of_bounds),
        ("Undersized", placed & (plan.nbytes < _sizes(trial)), _undersized),
        ("Misaligned", placed & (plan.offset % buffers.alignment != 0), _misaligned),
        ("WrongArena", placed & (plan.arena != buffers.arena), _wrong_arena),
        ("Unplaced", (plan.arena == UNPLACED) & used, _unplaced),
    ]


def _capacity(trial: Trial) -> Int64s:
    """Return the capacity of each buffer's arena; unbounded is the most that any offset and size add up to."""
    limits = [(1 << 63) - 1 if arena.capacity is None else arena.capacity for arena in trial.program.arenas]
    return np.array(limits, dtype=np.int64)[np.maximum(trial.plan.arena, 0)]


def _reaches_out(trial: Trial) -> Bools:
    """Return which values have bytes outside their buffer."""
    hulls = trial.program.values.hulls
    nbytes = trial.program.buffers.nbytes[trial.accesses.extents.buffer]
    mask: Bools = (hulls[:, 0] < hulls[:, 1]) & ((hulls[:, 0] < 0) | (hulls[:, 1] > nbytes))
    return mask


def _sizes(trial: Trial) -> Int64s:
    return trial.program.buffers.nbytes if trial.problem is None else trial.problem.nbytes


def _used(trial: Trial) -> Bools:
    return trial.accesses.touched if trial.problem is None else trial.problem.start < trial.problem.stop


def _slot(
    trial: Trial, kind: str, buffer: int, message: str, *, value: int | None = None, ranges: tuple[Range, ...] = ()
) -> Violation:
    """Return the record of a slot: it is about a plan, not about a run."""
    return trial.record(kind, op=None, value=value, buffer=buffer, bytes=ranges, message=message, run=None)


def _out_of_bounds(trial: Trial, buffer: int) -> Violation:
    plan, program = trial.plan, trial.program
    outside: list[Range] = []
    reasons = []
    if plan.placed[buffer]:
        offset, nbytes = int(plan.offset[buffer]), int(plan.nbytes[buffer])
        arena = program.arenas[plan.arena[buffer]]
        if offset < 0:
            outside.append((0, min(nbytes, -offset)))
            reasons.append(f"its slot begins {-offset} bytes before {arena.name}")
        if arena.capacity is not None and offset + nbytes > arena.capacity:
            outside.append((max(arena.capacity - offset, 0), nbytes))
            reasons.append(f"its slot ends at {offset + nbytes}, {arena.name} at {arena.capacity}")
    values = np.flatnonzero(_reaches_out(trial) & (trial.accesses.extents.buffer == buffer)).tolist()
    size = int(program.buffers.nbytes[buffer])
    for value in values:
        low, high = program.values.hulls[value].tolist()
        outside += [(low, min(high, 0)), (max(low, size), high)]
    if values:
        reasons.append(f"{value_words(program, values[0])} reaches outside its {size} bytes")
    message = f"{buffer_words(program, buffer)}: {'; '.join(reasons)}"
    ranges = merged(sorted(outside))
    return _slot(trial, "OutOfBounds", buffer, message, value=values[0] if values else None, ranges=ranges)


def _undersized(trial: Trial, buffer: int) -> Violation:
    room, size = int(trial.plan.nbytes[buffer]), int(_sizes(trial)[buffer])
    message = f"{buffer_words(trial.program, buffer)} needs {size} bytes; its slot has {room}: no room for {bytes_words([(room, size)])}"
    return _slot(trial, "Undersized", buffer, message, ranges=((room, size),))


def _misaligned(trial: Trial, buffer: int) -> Violation:
    alignment = int(trial.program.buffers.alignment[buffer])
    place = slot_words(trial.program, trial.plan, buffer)
    message = f"{buffer_words(trial.program, buffer)} in {place} does not begin at a multiple of {alignment}"
    return _slot(trial, "Misaligned", buffer, message)


def _wrong_arena(trial: Trial, buffer: int) -> Violation:
    arenas, program = trial.program.arenas, trial.program
    wanted, found = arenas[program.buffers.arena[buffer]].name, arenas[trial.plan.arena[buffer]].name
    return _slot(trial, "WrongArena", buffer, f"{buffer_words(program, buffer)} belongs in {wanted}; its slot is in {found}")


def _unplaced(trial: Trial, buffer: int) -> Violation:
    return _slot(trial, "Unplaced", buffer, f"{buffer_words(trial.program, buffer)} is used and has no slot")
