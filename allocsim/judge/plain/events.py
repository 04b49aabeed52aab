"""What a planner did, held against itself and its slots: `DoubleFree`, `FreeOfUnallocated`,
`AllocOverLive`.

Judged for every plan that some run uses, in list order of its events. One record for each event at
fault; of an allocation over several buffers, one for each of these.

    DoubleFree          a free of a buffer that was freed after its last allocation
    FreeOfUnallocated   a free of a buffer that was never allocated
    AllocOverLive       an allocation of a buffer that is still allocated, or whose slot shares a byte with that of one that is

A donor hands its bytes to a recipient where the plan may lay the pair over each other: allocating
the recipient over it is no defect, the bytes are the recipient's from then on, and the donor may
still be freed, once.

What this module does not see: what the program accesses, but for hand-overs.
"""

from collections.abc import Iterator
from typing import Final

from allocsim.judge.plain.document_records import PlanRecord
from allocsim.judge.plain.donations import handed_over, permitted
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.overlap import believed, believed_handover
from allocsim.judge.violations import Violation

HELD: Final = "held"
HANDED_ON: Final = "handed on"
FREE: Final = "free"


def check_events(trial: OnTrial) -> Iterator[Violation]:
    """Yield the events of each plan that contradict what was done before."""
    for index in trial.plans_in_use:
        plan = trial.document.plans[index]
        if not plan.events:
            continue
        pairs = _handovers(trial, plan)
        for step, kind, buffer, other in _wrong(plan, pairs):
            yield Violation(kind=kind, program=plan.program, plan=index, step=step, buffer=buffer, other_buffer=other)


def _wrong(plan: PlanRecord, pairs: set[tuple[int, int]]) -> Iterator[tuple[int, str, int, int | None]]:
    state: dict[int, str] = {}
    for step, frees, buffer in plan.events:
        if frees:
            if buffer not in state:
                yield step, "FreeOfUnallocated", buffer, None
                continue
            if state[buffer] == FREE:
                yield step, "DoubleFree", buffer, None
            state[buffer] = FREE
            continue
        for other in sorted(state, key=lambda known: (known != buffer, known)):
            if state[other] != HELD or (other != buffer and not _meet(plan, buffer, other)):
                continue
            if (other, buffer) in pairs:
                state[other] = HANDED_ON
            else:
                yield step, "AllocOverLive", buffer, other
        state[buffer] = HELD


def _meet(plan: PlanRecord, one: int, other: int) -> bool:
    a, b = plan.slots[one], plan.slots[other]
    return (
        a.arena >= 0 and a.arena == b.arena and max(a.offset, b.offset) < min(a.offset + a.nbytes, b.offset + b.nbytes)
    )


def _handovers(trial: OnTrial, plan: PlanRecord) -> set[tuple[int, int]]:
    """Return the pairs (donor, recipient) that some op of the plan's own program hands over as
    planned, no upload left out; of a program without ops, those that the problem believes.
    """
    live, slots = trial.liveness(plan.program), plan.slots
    problem = believed(trial, plan, live.program)
    if problem is not None:
        return {pair for pair in problem.may_share if believed_handover(plan, live.program, problem, *pair)}

    def place(buffer: int) -> tuple[int, int]:
        slot = slots[buffer]
        return (slot.arena, 8 * slot.offset) if slot.arena >= 0 else (-1 - buffer, 0)

    return {
        pair
        for step in live.accesses.steps
        for pair in handed_over(live, step)
        if permitted(trial, live, step, pair, place)
    }
