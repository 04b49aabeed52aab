"""Whether each slot is a slot for its buffer: `OutOfBounds`, `Undersized`, `Misaligned`,
`WrongArena`, `Unplaced`.

Judged for every plan that some run uses, against the programs run with it; one record for each
(plan, buffer) and kind, about the first program of which it is true. A value that reaches out of
its buffer is `OutOfBounds` wherever the buffer lies. For a program without ops its problem stands
in: sizes, and a buffer is used if it is believed to live.

What this module does not see: other slots.
"""

from collections.abc import Iterator

from allocsim.judge.plain.document_records import UNPLACED, PlanRecord, ProgramRecord
from allocsim.judge.plain.layouts import runs_of
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed, believed_life
from allocsim.judge.violations import Violation


def check_slots(trial: OnTrial) -> Iterator[Violation]:
    """Yield what is wrong with each slot, kind by kind."""
    for plan_index, runs in trial.plans_in_use.items():
        plan = trial.document.plans[plan_index]
        told: set[tuple[str, int]] = set()
        for index in dict.fromkeys(trial.document.runs[run].program for run in runs):
            program = trial.document.programs[index]
            for kind, buffer, value in _wrong(trial, plan, program, index, runs):
                if (kind, buffer) not in told:
                    told.add((kind, buffer))
                    yield Violation(kind=kind, program=index, plan=plan_index, buffer=buffer, value=value)


def _wrong(
    trial: OnTrial, plan: PlanRecord, program: ProgramRecord, index: int, runs: list[int]
) -> Iterator[tuple[str, int, int | None]]:
    problem = believed(trial, plan, program)
    sizes = problem.nbytes if problem is not None else [buffer.nbytes for buffer in program.buffers]
    if problem is not None:
        used = {buffer for buffer in range(len(sizes)) if believed_life(problem, buffer)}
    else:
        mine = [run for run in runs if trial.document.runs[run].program == index]
        used = {buffer for run in mine for buffer in trial.live(run).accesses.of_buffer}
    reaching: dict[int, int] = {}
    for number, value in enumerate(program.values):
        bits = runs_of(value)
        if bits and (bits[0][0] < 0 or bits[-1][1] > 8 * sizes[value.buffer]):
            reaching.setdefault(value.buffer, number)
    for buffer, slot in enumerate(plan.slots):
        if slot.arena == UNPLACED and buffer in used:
            yield "Unplaced", buffer, None
        capacity = trial.document.arenas[slot.arena].capacity if slot.arena >= 0 else None
        outside = slot.arena >= 0 and (
            slot.offset < 0 or (capacity is not None and slot.offset + slot.nbytes > capacity)
        )
        if outside or buffer in reaching:
            yield "OutOfBounds", buffer, None if outside else reaching[buffer]
        if slot.arena < 0:
            continue
        if slot.nbytes < sizes[buffer]:
            yield "Undersized", buffer, None
        if slot.offset % program.buffers[buffer].alignment:
            yield "Misaligned", buffer, None
        if slot.arena != program.buffers[buffer].arena:
            yield "WrongArena", buffer, None
