"""Whether each slot is a slot for its buffer: `OutOfBounds`, `Undersized`, `Misaligned`,
`WrongArena`, `Unplaced`.

Judged for every plan that some run uses, against the programs run with it; one record for each
(plan, buffer) and kind, about the first program of which it is true. A value that reaches out of
its buffer is `OutOfBounds` wherever the buffer lies. For a program without ops its problem stands
in: sizes, and a buffer is used if it is believed to live.

What this module does not see: other slots.
"""

from collections.abc import Iterator

from allocsim.judge.plain.document_records import UNPLACED, PlanRecord
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed_life
from allocsim.judge.violations import Violation


def check_slots(trial: OnTrial) -> Iterator[Violation]:
    """Yield what is wrong with each slot, kind by kind."""
    for index, runs in trial.plans_in_use.items():
        told: set[tuple[str, int]] = set()
        for program in dict.fromkeys(trial.document.runs[run].program for run in runs):
            mine = [run for run in runs if trial.document.runs[run].program == program]
            for wrong, kind, buffer, value in _rules(trial, trial.document.plans[index], program, mine):
                if wrong and (kind, buffer) not in told:
                    told.add((kind, buffer))
                    yield Violation(kind=kind, program=program, plan=index, buffer=buffer, value=value)


def _rules(
    trial: OnTrial, plan: PlanRecord, index: int, runs: list[int]
) -> Iterator[tuple[bool, str, int, int | None]]:
    """Yield whether a rule is broken, its kind, the buffer, and the value that reaches out."""
    program = trial.document.programs[index]
    problem = trial.believed(plan, program)
    sizes = program.sizes if problem is None else problem.nbytes
    reaching: dict[int, int] = {}
    for number, value in enumerate(program.values):
        bits = value.bits()
        if bits and (bits[0][0] < 0 or bits[-1][1] > 8 * sizes[value.buffer]):
            reaching.setdefault(value.buffer, number)
    for buffer, (slot, wanted) in enumerate(zip(plan.slots, program.buffers, strict=True)):
        used = any(trial.live(run).touched(buffer) for run in runs)
        if problem is not None:
            used = bool(believed_life(problem, buffer))
        yield slot.arena == UNPLACED and used, "Unplaced", buffer, None
        placed = slot.arena >= 0
        capacity = trial.document.arenas[slot.arena].capacity if placed else None
        end = slot.offset + slot.nbytes
        outside = placed and (slot.offset < 0 or (capacity is not None and end > capacity))
        yield outside or buffer in reaching, "OutOfBounds", buffer, None if outside else reaching.get(buffer)
        yield placed and slot.nbytes < sizes[buffer], "Undersized", buffer, None
        yield placed and slot.offset % wanted.alignment != 0, "Misaligned", buffer, None
        yield placed and slot.arena != wanted.arena, "WrongArena", buffer, None
