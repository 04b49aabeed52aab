"""Compare a plan's slots with arenas and buffers, and the planner's events with each other.

Slots are judged for every plan that some run uses, against the programs run with the plan:
`OutOfBounds`, `Undersized`, `Misaligned`, `WrongArena`, `Unplaced`. There is one record for each
(plan, buffer) and kind, about the first program with the defect. A value outside its buffer is
`OutOfBounds` wherever the buffer is. For a program without ops, the problem states the sizes, and a
buffer is used if it is believed to live.

Events are judged in list order. Each faulty event, and each buffer allocated over, has a record.

    DoubleFree          an event frees a buffer that was freed after its last allocation
    FreeOfUnallocated   an event frees a buffer that was never allocated
    AllocOverLive       an event allocates a buffer that is still allocated, or a buffer with a slot that shares a byte with another allocated buffer's slot

If donor and recipient may share bytes under the plan, allocating the recipient over the donor is
not a defect. From then on the recipient owns the bytes, and the donor may be freed once.

This module does not decide whether a plan keeps its problem's promises.
"""

from collections.abc import Iterator
from dataclasses import replace

from allocsim.judge.plain.alias_rule import permitted
from allocsim.judge.plain.document_records import UNPLACED, Pair, PlanRecord, RunRecord
from allocsim.judge.plain.on_trial import OnTrial, RunOnTrial
from allocsim.judge.plain.overlap import shared
from allocsim.judge.violations import Violation


def check_slots(trial: OnTrial) -> Iterator[Violation]:
    """Yield the defects of each slot, one for each kind."""
    together: dict[tuple[int, int], list[RunOnTrial]] = {}
    for run in trial.runs:
        together.setdefault((run.run.plan, run.run.program), []).append(run)
    told: set[tuple[int, str, int]] = set()
    for (plan, program), runs in sorted(together.items(), key=lambda item: item[0][0]):
        for wrong, kind, buffer, value in _rules(runs):
            if wrong and (plan, kind, buffer) not in told:
                told.add((plan, kind, buffer))
                yield Violation(kind=kind, program=program, plan=plan, buffer=buffer, value=value)


def _rules(runs: list[RunOnTrial]) -> Iterator[tuple[bool, str, int, int | None]]:
    """Yield whether a rule is broken, its kind, the buffer, and the value outside the buffer."""
    document, plan, program, sizes = runs[0].document, runs[0].plan, runs[0].program, runs[0].sizes
    reaching: dict[int, int] = {}
    for number, value in enumerate(program.values):
        bits = value.bits()
        if bits and (bits[0][0] < 0 or bits[-1][1] > 8 * sizes[value.buffer]):
            reaching.setdefault(value.buffer, number)
    for buffer, (slot, wanted) in enumerate(zip(plan.slots, program.buffers, strict=True)):
        used = any(run.life[buffer] if run.problem else run.live.touched[buffer] for run in runs)
        yield slot.arena == UNPLACED and used, "Unplaced", buffer, None
        placed = slot.arena >= 0
        capacity = document.arenas[slot.arena].capacity if placed else None
        outside = placed and (slot.offset < 0 or (capacity is not None and slot.offset + slot.nbytes > capacity))
        yield outside or buffer in reaching, "OutOfBounds", buffer, None if outside else reaching.get(buffer)
        yield placed and slot.nbytes < sizes[buffer], "Undersized", buffer, None
        yield placed and slot.offset % wanted.alignment != 0, "Misaligned", buffer, None
        yield placed and slot.arena != wanted.arena, "WrongArena", buffer, None


def check_events(trial: OnTrial) -> Iterator[Violation]:
    """Yield the violations of each plan's events against earlier events."""
    for index in [index for index in trial.plans_in_use if trial.document.plans[index].events]:
        plan = trial.document.plans[index]
        own = replace(trial.document, runs=(RunRecord(plan=index, program=plan.program),))
        run = RunOnTrial(own, 0, trial.liveness(plan.program, ()))
        pairs = {pair for step, pairs in run.handovers.items() for pair in pairs if permitted(run, step, pair)}
        for step, kind, buffer, other in _wrong(plan, pairs):
            yield Violation(kind=kind, program=plan.program, plan=index, step=step, buffer=buffer, other_buffer=other)


def _wrong(plan: PlanRecord, pairs: set[Pair]) -> Iterator[tuple[int, str, int, int | None]]:
    """Yield (step, kind, buffer, other buffer) of wrong events; `pairs` are legal hand-overs."""
    sizes = [slot.nbytes for slot in plan.slots]
    state: dict[int, str] = {}
    for step, done, buffer in plan.events:
        if done == "free":
            wrong = {None: "FreeOfUnallocated", "free": "DoubleFree"}.get(state.get(buffer))
            if wrong is not None:
                yield step, wrong, buffer, None
            if buffer in state:
                state[buffer] = "free"
            continue
        for other in sorted(state, key=lambda known: known != buffer):  # then in order of allocation
            if state[other] != "held" or (other != buffer and not shared(plan, sizes, (buffer, other))):
                continue
            if (other, buffer) in pairs:
                state[other] = "handed on"
            else:
                yield step, "AllocOverLive", buffer, other
        state.pop(buffer, None)
        state[buffer] = "held"
