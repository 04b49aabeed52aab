"""Charge each violation to the change that makes the violation vanish.

Violations are charged in this order:

1. The program by itself. Violations that exist with every buffer apart are charged to the program,
   or to the host if they vanish once the host leaves out no upload.
2. The plan. For each pair of buffers that share bytes, the placement is compared with its problem,
   then the problem with the program (`allocsim.verdict.meetings`). Then come violations of single
   slots, and of the planner's alloc and free events (its *book*).
3. The beliefs. Every wrong belief is charged, even if no run went wrong because of it.
4. The order. A race that exists with every buffer apart is charged to a wait that the program
   lacks. A race that only reuse causes is charged to the plan (`allocsim.verdict.waiting`).

If a slot breaks a promise or does not fit, violations that vanish with this slot apart are charged
to the slot alone. If several changes explain one violation, all of them list the violation.

Complexity: the judge's checks once, O(violations), and one more check for each such slot and for
each trial of `allocsim.verdict.meetings`, at most `QUESTIONS` of each.

This module does not examine classes and parties (`allocsim.verdict.naming`) or kernels
(`allocsim.verdict.measured`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from allocsim.cure.changes import Change, Charges
from allocsim.cure.defects import OPS, key_of
from allocsim.cure.effort import SpentError
from allocsim.cure.mending import index_of_part
from allocsim.judge.fast import Violation
from allocsim.model import Event
from allocsim.verdict.blame import IN_PLACE, life_mend, pair_mend
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.meetings import (
    EVENTS,
    PAIRED,
    QUESTIONS,
    as_small_as_believed,
    charge_meetings,
    is_uploaded,
    upload_for,
)
from allocsim.verdict.waiting import Found, charge_order

OWN_KINDS: Final[dict[str, str]] = {
    "UninitialisedRead": "unwritten",
    "OverwrittenRead": "mutation",
    **dict.fromkeys(sorted(IN_PLACE), "in place"),
    "ResultsOverlap": "results",
    "WriteToReadOnly": "read only",
    "OutOfBounds": "bounds",
}
"""For each kind of violation that can exist with every buffer apart: the kind of its mend."""

BROKEN: Final = frozenset(
    {
        "PinIgnored", "LifetimeIgnored", "FixedIgnored", "OwnIgnored", "OwnUntold", "SizeIgnored",
        "Misaligned", "OutOfBounds", "WrongArena", "Undersized",
    }
)  # fmt: skip
"""Kinds of violation that show that a slot breaks a promise or does not fit its buffer."""
AFTER_SLOTS: Final = frozenset({"upload", "state", "late", "wait", "lifetime", "pair"})
"""Kinds of mend with violations that may be recharged to a slot with a violation of `BROKEN`, if
the mend names no problem."""


def charges_of(dossier: Dossier) -> Charges:
    """Return the mends for all violations that S, H and L found, each with the violations that the
    mend explains, in the report's order.
    """
    found: Found = defaultdict(list)
    left = list(_own(dossier, found))
    left = list(charge_meetings(dossier, found, left))
    left = list(_slots(dossier, found, left))
    _beliefs(dossier, found)
    charge_order(dossier, found, [v for v in left if v.kind == "Race"])
    _charge_once(dossier, found)
    _history(dossier, found)
    position = {id(v): number for number, v in enumerate((*dossier.report.violations, *dossier.report.warnings))}
    return {
        mend: sorted({id(v): v for v in violations}.values(), key=lambda v: position[id(v)])
        for mend, violations in found.items()
        if violations
    }


# the program and the host -------------------------------------------------------------------------


def _own(dossier: Dossier, found: Found) -> Iterator[Violation]:
    """Charge the violations that exist with every buffer apart; yield the others."""
    for v in dossier.static:
        own = _is_own(dossier, v)
        if own:
            found[_own_mend(dossier, v)].append(v)
        if not own or (v.buffer != v.other_buffer and v.other_buffer is not None and v.kind in PAIRED):
            yield v


def _is_own(dossier: Dossier, v: Violation) -> bool:
    if v.kind in {"UninitialisedRead", "OverwrittenRead", "WriteToReadOnly"}:
        return True
    if v.kind == "OutOfBounds":
        return v.value is not None
    if v.kind not in OPS:
        return False
    of_one = v.other_buffer is None or v.buffer == v.other_buffer
    return of_one or (v.kind != "AssumedInPlace" and key_of(v) in dossier.apart)


def _own_mend(dossier: Dossier, v: Violation) -> Change:
    kind = OWN_KINDS[v.kind]
    if kind in {"unwritten", "mutation"} and is_uploaded(dossier, v):
        return upload_for(dossier, v)
    if kind in {"in place", "results"}:
        return Change(kind=kind, program=v.program, op=v.op)
    return Change(kind=kind, program=v.program, buffer=v.buffer, op=v.other_op if kind == "mutation" else None)


def _charge_once(dossier: Dossier, found: Found) -> None:
    """Charge violations to a slot that breaks a promise or does not fit, if these violations vanish
    with the slot apart. Only violations charged to a mend of `AFTER_SLOTS` are tried.
    """
    slots = [
        mend
        for mend, rows in found.items()
        if mend.kind == "slot" and any(v.kind in BROKEN and v.plan == mend.plan for v in rows)
    ]
    slots.sort(key=lambda slot: (-1, -1) if slot.buffer is None else dossier.rank(slot.plan or 0, slot.buffer))
    for slot in slots[:QUESTIONS]:
        later = [m for m, rows in found.items() if m.kind in AFTER_SLOTS and m.problem is None and rows]
        if not later:
            return
        try:
            left = dossier.without_slot(slot.plan or 0, slot.buffer or 0)
        except SpentError:
            return
        for mend in later:
            gone = [v for v in found[mend] if key_of(v) not in left]
            found[slot] += gone
            found[mend] = [v for v in found[mend] if key_of(v) in left]


def _history(dossier: Dossier, found: Found) -> None:
    """Add each `HistoryRead` warning to the cause of its buffer; drop warnings without a cause."""
    for v in dossier.history:
        for kind in ("unwritten", "state"):
            mend = Change(kind=kind, program=v.program, buffer=v.buffer)
            if mend in found:
                found[mend].append(v)


# single slots, the planner's book, beliefs -------------------------------------------------------


def _slots(dossier: Dossier, found: Found, violations: Iterable[Violation]) -> Iterator[Violation]:
    """Charge violations of one slot or of the planner's alloc and free events; yield the races."""
    for v in sorted(violations, key=lambda v: v.kind == "AllocOverLive"):
        if v.kind == "Race":
            yield v
        elif v.kind in EVENTS:
            found[_book_mend(dossier, found, v)].append(v)
        elif v.plan is not None:
            found[_slot_mend(dossier, found, v, v.plan)].append(v)


def _book_mend(dossier: Dossier, found: Found, v: Violation) -> Change:
    """Return the mend for a violation about the planner's events. A free at the end of a wrong
    lifetime is charged to that lifetime. An `AllocOverLive` is charged to an earlier mend of the
    same plan's events, if there is one.
    """
    if v.kind == "EventOutsideLifetime" and _as_believed(dossier, v):
        return life_mend(dossier, v.problem or 0, v.buffer or 0)
    if v.kind == "AllocOverLive":
        for mend in found:
            if mend.kind == "events" and mend.plan == v.plan:
                return mend
    return Change(kind="events", plan=v.plan, buffer=v.buffer)


def _as_believed(dossier: Dossier, v: Violation) -> bool:
    """Whether an event frees a buffer at or after the end of its believed life, and this life
    leaves out an access. A pinned buffer is believed to live until the run ends.
    """
    if (v.problem, v.buffer) not in dossier.short:
        return False
    stop = int(dossier.document.problems[v.problem or 0].stop[v.buffer or 0])
    events = dossier.document.plans[v.plan or 0].events
    assert v.step is not None
    return v.step >= stop - 1 and [v.step, Event.FREE, v.buffer] in events.tolist()


def _slot_mend(dossier: Dossier, found: Found, v: Violation, index: int) -> Change:
    plan = dossier.document.plans[index]
    strange = v.program is not None and dossier.strange(index, v.program)
    if strange and (v.kind, v.buffer) not in dossier.on_own_program(index):
        return Change(kind="stale", plan=v.plan, program=v.program)
    if plan.problem is not None and as_small_as_believed(dossier, v):
        problem = index_of_part(dossier.document.problems, plan.problem)
        return Change(kind="size", problem=problem, buffer=v.buffer)
    mends = [
        Change(kind="slot", plan=v.plan, buffer=buffer) for buffer in (v.buffer, v.other_buffer) if buffer is not None
    ]
    return next((mend for mend in mends if mend in found), mends[0] if mends else Change(kind="slot", plan=v.plan))


def _beliefs(dossier: Dossier, found: Found) -> None:
    """Charge every wrong belief, even if no run of the plan went wrong because of it."""
    for v in dossier.beliefs:
        if v.problem is None or v.buffer is None or v.severity != "violation":
            continue
        if v.kind == "BadSize":
            mend = Change(kind="size", problem=v.problem, buffer=v.buffer)
        elif v.kind == "BadShare":
            mend = pair_mend(dossier, v.problem, v.buffer, v.other_buffer or 0)
        else:
            mend = life_mend(dossier, v.problem, v.buffer)
        found[mend].append(v)
