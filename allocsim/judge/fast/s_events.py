"""Compare the planner's events with each other and with its slots: `DoubleFree`,
`FreeOfUnallocated`, `AllocOverLive`.

Every plan that some run uses and that has events is judged. The events are followed in list order,
whatever their steps are. `buffer` is the allocated or freed buffer, and `step` is the event's step.
There is one record for each faulty event. An allocation over several live buffers has one record
for each of these buffers.

    DoubleFree           an event frees a buffer that was freed after its last allocation
    FreeOfUnallocated    an event frees a buffer that was never allocated
    AllocOverLive        an event allocates a buffer that is still allocated, or a buffer with a slot that shares a byte with the slot of
                         a buffer that is still allocated; `other_buffer` is the still allocated buffer

If a plan may place a donor and a recipient over each other (`s_overlap`) and their slots share a
byte, allocating the recipient over the donor is not a defect. From then on the recipient owns the
bytes; the planner may still free the donor, once.

Complexity: O(events + conflicts + slots log^2 slots).

This module does not examine the program's accesses, except for hand-overs.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial

import numpy as np

from allocsim.judge.fast.intervals import conflicts_by
from allocsim.judge.fast.s_overlap import permitted_pairs
from allocsim.judge.fast.trial import COUNT_LIMIT, Findings, TrialDocument
from allocsim.judge.violations import Particulars, Violation
from allocsim.model import Event, Plan

NEVER, ALLOCATED, HANDED, FREED = range(4)


def check_events(case: TrialDocument, findings: Findings) -> None:
    """Report every event that contradicts other events or the slots, for every plan in use."""
    for index in sorted({trial.plan_index for trial in case.trials}):
        plan = case.document.plans[index]
        if len(plan.events):
            _Book(case, index, plan).judge(findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A range of events during which a buffer is allocated and owns its bytes."""

    buffer: int
    first: int
    stop: int


class _Book:
    """The allocation state of a plan's buffers while its events are followed."""

    def __init__(self, case: TrialDocument, index: int, plan: Plan) -> None:
        self.plan = plan
        self.index = index
        self.selector = case.selector
        self.program_index = case.program_index(plan.program)
        self.donors: dict[int, list[int]] = defaultdict(list)
        count = len(plan.arena)
        for pair in permitted_pairs(case, plan.program, plan).tolist():
            self.donors[pair % count].append(pair // count)

    def judge(self, findings: Findings) -> None:
        """Report the faulty events in list order."""
        events, plan = self.plan.events, self.plan
        since: dict[int, int] = {}
        state = [NEVER] * len(plan.arena)
        held: list[_Held] = []
        faults: list[tuple[int, str, int | None]] = []
        for number, (_, event, buffer) in enumerate(events.tolist()):
            if event == Event.FREE:
                if state[buffer] in (NEVER, FREED):
                    faults.append((number, "DoubleFree" if state[buffer] == FREED else "FreeOfUnallocated", None))
                    continue
                if state[buffer] == ALLOCATED:
                    held.append(_Held(buffer=buffer, first=since[buffer], stop=number))
                state[buffer] = FREED
                continue
            for donor in self.donors.get(buffer, ()):
                if state[donor] == ALLOCATED and self._shared(donor, buffer):
                    held.append(_Held(buffer=donor, first=since[donor], stop=number))
                    state[donor] = HANDED
            if state[buffer] == ALLOCATED:
                held.append(_Held(buffer=buffer, first=since[buffer], stop=number))
                faults.append((number, "AllocOverLive", buffer))
            state[buffer], since[buffer] = ALLOCATED, number
        held += [_Held(buffer=b, first=since[b], stop=len(events)) for b, now in enumerate(state) if now == ALLOCATED]
        overlaid, beyond = self._overlaid(held)
        faults += [(number, "AllocOverLive", other) for number, other in overlaid]
        faults.sort(key=lambda fault: fault[0])
        for number, kind, over in faults:
            findings.report(kind, partial(self._record, kind, number, over))
        if beyond:
            findings.more("AllocOverLive", beyond)

    def _overlaid(self, held: list[_Held]) -> tuple[list[tuple[int, int]], int]:
        """Return (event, live buffer) for each allocation over another buffer's live bytes.

        The second result is the number of unlisted pairs of this kind.
        """
        plan = self.plan
        columns = np.array([(h.buffer, h.first, h.stop) for h in held], dtype=np.int64).reshape(-1, 3)
        buffer, first, stop = columns.T
        nbytes, low = plan.nbytes[buffer], plan.offset[buffer]
        number = np.where(nbytes > 0, plan.arena[buffer], -1)
        pairs = conflicts_by(number, (first, stop), low, nbytes, cap=COUNT_LIMIT + 1, selector=self.selector)
        order = np.lexsort((first[pairs.left], first[pairs.right]))
        left, right = pairs.left[order], pairs.right[order]
        return list(zip(first[right].tolist(), buffer[left].tolist(), strict=True)), pairs.total - len(left)

    def _shared(self, buffer: int, other: int) -> tuple[tuple[int, int], ...]:
        """Return the bytes of `buffer`'s slot that are also in the slot of `other`."""
        plan = self.plan
        if plan.arena[buffer] != plan.arena[other] or not plan.placed[buffer]:
            return ()
        shift = int(plan.offset[other]) - int(plan.offset[buffer])
        low, high = max(shift, 0), min(int(plan.nbytes[buffer]), shift + int(plan.nbytes[other]))
        return ((low, high),) if low < high else ()

    def _record(self, kind: str, number: int, other: int | None) -> Violation:
        step, _, buffer = self.plan.events[number].tolist()
        return Violation(
            kind=kind,
            program=self.program_index,
            plan=self.index,
            step=step,
            buffer=buffer,
            other_buffer=other,
            more=Particulars(event=number),
        )
