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

from allocsim.judge.plain.alias_rule import handed_over, permitted
from allocsim.judge.plain.document_records import Pair, PlanRecord
from allocsim.judge.plain.on_trial import OnTrial, places
from allocsim.judge.plain.overlap import believed_handover, shared
from allocsim.judge.violations import Violation


def check_events(trial: OnTrial) -> Iterator[Violation]:
    """Yield the events of each plan that contradict what was done before."""
    for index in trial.plans_in_use:
        plan = trial.document.plans[index]
        pairs = _handovers(trial, plan) if plan.events else set()
        for step, kind, buffer, other in _wrong(plan, pairs):
            yield Violation(kind=kind, program=plan.program, plan=index, step=step, buffer=buffer, other_buffer=other)


def _wrong(plan: PlanRecord, pairs: set[Pair]) -> Iterator[tuple[int, str, int, int | None]]:
    sizes = [slot.nbytes for slot in plan.slots]
    state: dict[int, str] = {}
    for step, done, buffer in plan.events:
        if done == "free":
            if buffer not in state:
                yield step, "FreeOfUnallocated", buffer, None
                continue
            if state[buffer] == "free":
                yield step, "DoubleFree", buffer, None
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


def _handovers(trial: OnTrial, plan: PlanRecord) -> set[Pair]:
    """Return the pairs (donor, recipient) that some op of the plan's own program hands over as
    planned, no upload left out; of a program without ops, those that the problem believes.
    """
    live = trial.liveness(plan.program)
    problem = trial.believed(plan, live.program)
    if problem is not None:
        return {pair for pair in problem.may_share if believed_handover(plan, live.program, problem, *pair)}
    place = places(plan, range(len(plan.slots)))
    pairs = ((step, pair) for step in live.steps for pair in handed_over(live, step))
    return {pair for step, pair in pairs if permitted(trial, live, step, pair, place)}
