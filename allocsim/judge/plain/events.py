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

from allocsim.judge.plain.in_place import handed_over, permitted
from allocsim.judge.plain.records import Plan
from allocsim.judge.plain.trial import Trial
from allocsim.judge.violations import Violation

HELD: Final = "held"
HANDED_ON: Final = "handed on"
FREE: Final = "free"


def check_events(trial: Trial) -> Iterator[Violation]:
    """Yield the events of each plan that contradict what was done before."""
    for index, runs in trial.plans_in_use.items():
        plan = trial.document.plans[index]
        if not plan.events:
            continue
        pairs = _handovers(trial, runs[0])
        for step, kind, buffer, other in _wrong(plan, pairs):
            yield Violation(kind=kind, program=plan.program, plan=index, step=step, buffer=buffer, other_buffer=other)


def _wrong(plan: Plan, pairs: set[tuple[int, int]]) -> Iterator[tuple[int, str, int, int | None]]:
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
        for other in sorted(state):
            if state[other] != HELD or (other != buffer and not _meet(plan, buffer, other)):
                continue
            if (other, buffer) in pairs:
                state[other] = HANDED_ON
            else:
                yield step, "AllocOverLive", buffer, other
        state[buffer] = HELD


def _meet(plan: Plan, one: int, other: int) -> bool:
    a, b = plan.slots[one], plan.slots[other]
    return (
        a.arena >= 0 and a.arena == b.arena and max(a.offset, b.offset) < min(a.offset + a.nbytes, b.offset + b.nbytes)
    )


def _handovers(trial: Trial, run: int) -> set[tuple[int, int]]:
    """Return the pairs (donor, recipient) that some op hands over as planned."""
    live, place = trial.live(run), trial.place(run)
    return {
        pair
        for step in live.accesses.steps
        for pair in handed_over(live, step)
        if permitted(trial, live, step, pair, place)
    }
