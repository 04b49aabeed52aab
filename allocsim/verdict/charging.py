"""From violations to mends: what each violation would vanish with.

The order of charge:

1. The program against itself, every buffer apart: what the judge finds there is the program's, or
   the host's where an upload brings it right.
2. The placement against its problem, then the problem against the program
   (`allocsim.verdict.blame`), for each pair of buffers that meet.
3. The host against what the program counts on from run to run: an upload left out, or a buffer
   nobody keeps.
4. The order: waits, of the program where the race exists apart, of the plan where reuse made it
   (`allocsim.verdict.waiting`).

What vanishes once a slot is moved that breaks a promise, or does not fit, is charged to that slot
alone. A violation may stand under several mends: each of them alone would bring it about. Which of
several pairs do is asked of the judge: the run by itself, all buffers apart but the victim and
those who took its place for that one reason.

Slots that only the placement can have put where they are share mends: as few slots as meet every
other, those that do not fit or keep no promise first. Where no problem is stated, one slot that
explains what would take several beliefs is charged instead of them, and so is one slot for what a
loop loses as its carries are moved one after the other (`allocsim.verdict.moves`). What a `same`
carries on is charged as the read that the `same` did.

Complexity: the checks once, O(violations), and one more check of one run for each victim whose
bytes were taken for several reasons, `QUESTIONS` at most.

What this module does not see: classes and parties (`allocsim.verdict.naming`), kernels
(`allocsim.verdict.measured`).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from allocsim.cure.changes import Change
from allocsim.cure.defects import OPS, key_of
from allocsim.judge.fast import Violation
from allocsim.model import HOST_WRITE, VIEW
from allocsim.verdict.blame import IN_PLACE, Meeting, allowed_by
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.mislaid import EVENTS, as_small_as_believed, charge_beliefs, charge_slots
from allocsim.verdict.moves import loops_of, lost_to
from allocsim.verdict.waiting import Charges, charge_order, in_one_run

QUESTIONS: Final = 64
"""Runs judged with few buffers together, to tell several reasons apart.

Beyond that the writer found is believed.
"""

OWN_KINDS: Final[dict[str, str]] = {
    "UninitialisedRead": "unwritten",
    "OverwrittenRead": "mutation",
    **dict.fromkeys(sorted(IN_PLACE), "in place"),
    "ResultsOverlap": "results",
    "WriteToReadOnly": "read only",
    "OutOfBounds": "bounds",
}
"""Kind of violation that a program can have by itself -> kind of mend."""

PAIRED: Final = IN_PLACE | {"Overlap", "StaleRead", "ResultsOverlap", "LifetimeIgnored", "PinIgnored"}
"""Kinds that are about two buffers a plan lays over each other."""
ALONG: Final = frozenset({"Race", "AllocOverLive"})
"""Kinds that go with what lays two buffers over each other, where anything of `PAIRED` says that it
does.
"""


BROKEN: Final = frozenset(
    {
        "PinIgnored", "LifetimeIgnored", "FixedIgnored", "OwnIgnored", "OwnUntold", "SizeIgnored",
        "Misaligned", "OutOfBounds", "WrongArena", "Undersized",
    }
)  # fmt: skip
"""Kinds that say of a slot that it keeps no promise, or does not fit."""
AFTER_SLOTS: Final = frozenset({"upload", "state", "late", "wait", "lifetime", "pair"})
"""Kinds of mend that are charged after the placement, where no problem states otherwise."""


def charges_of(dossier: Dossier) -> Charges:
    """Return the mends of everything that S, H and L found, each with the violations it explains,
    in the report's order.
    """
    found: Charges = defaultdict(list)
    left = list(_own(dossier, found))
    left = list(_meetings(dossier, found, left))
    left = list(charge_slots(dossier, found, left))
    charge_beliefs(dossier, found)
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


def _own(dossier: Dossier, found: Charges) -> Iterator[Violation]:
    """Charge what exists with every buffer apart; yield the rest."""
    mixed = any(v.kind in {"UnsafeInPlace", "ResultsOverlap"} for v in dossier.static)
    for v in dossier.static:
        own = _is_own(dossier, v, mixed=mixed)
        if own:
            found[_own_mend(dossier, v)].append(v)
        if not own or (v.buffer != v.other_buffer and v.other_buffer is not None and v.kind in PAIRED):
            yield v


def _is_own(dossier: Dossier, v: Violation, *, mixed: bool) -> bool:
    if v.kind in {"UninitialisedRead", "OverwrittenRead", "WriteToReadOnly"}:
        return True
    if v.kind == "OutOfBounds":
        return v.value is not None
    if v.kind in OPS:
        return v.other_buffer is None or v.buffer == v.other_buffer or (mixed and _op_of(v) in _ops_apart(dossier))
    return False


def _op_of(v: Violation) -> tuple[object, ...]:
    return v.kind, v.run, v.op


def _ops_apart(dossier: Dossier) -> frozenset[tuple[object, ...]]:
    return frozenset((key[0], key[1], key[3]) for key in dossier.apart if key[0] in {"UnsafeInPlace", "ResultsOverlap"})


def _own_mend(dossier: Dossier, v: Violation) -> Change:
    kind = OWN_KINDS[v.kind]
    if kind in {"unwritten", "mutation"} and v.run is not None and _is_uploaded(dossier, v):
        return _upload(dossier, v)
    if kind == "unwritten":
        return Change(kind=kind, program=v.program, buffer=v.buffer)
    if kind == "mutation":
        return Change(kind=kind, program=v.program, buffer=v.buffer, op=v.other_op)
    if kind in {"in place", "results"}:
        return Change(kind=kind, program=v.program, op=v.op)
    return Change(kind=kind, program=v.program, buffer=v.buffer)


def _is_uploaded(dossier: Dossier, v: Violation) -> bool:
    """Whether a violation vanishes if the host leaves out no upload, of those into this buffer or
    any.
    """
    if v.run is None or v.buffer not in dossier.left_out[v.run]:
        return False
    return key_of(v) not in dossier.uploaded


def _upload(dossier: Dossier, v: Violation) -> Change:
    run = dossier.runs[v.run or 0]
    home = run.program.values.buffer
    into = [step for step in run.skip if v.buffer in home[list(run.program.ops[step].results)].tolist()]
    before = [step for step in into if v.op is None or step < v.op]
    return Change(kind="upload", program=v.program, op=max(before, default=min(into)))


def _charge_once(dossier: Dossier, found: Charges) -> None:
    """Charge to a slot that breaks a promise of its own, or does not fit, all that vanishes once it
    lies elsewhere: what was charged for want of a stated belief, to the host, or to the order.
    """
    slots = [
        mend
        for mend, rows in found.items()
        if mend.kind == "slot" and any(v.kind in BROKEN and v.plan == mend.plan for v in rows)
    ]
    for slot in slots[:QUESTIONS]:
        later = [m for m, rows in found.items() if m.kind in AFTER_SLOTS and m.problem is None and rows]
        if not later:
            return
        left = dossier.without_slot(slot.plan or 0, slot.buffer or 0)
        for mend in later:
            gone = [v for v in found[mend] if key_of(v) not in left]
            found[slot] += gone
            found[mend] = [v for v in found[mend] if key_of(v) in left]


def _history(dossier: Dossier, found: Charges) -> None:
    """A warning that old bytes are read goes with what is wrong with these bytes.

    By itself it is none.
    """
    for v in dossier.history:
        for kind in ("unwritten", "state"):
            mend = Change(kind=kind, program=v.program, buffer=v.buffer)
            if mend in found:
                found[mend].append(v)


# pairs of buffers ---------------------------------------------------------------------------------

Place = tuple[int, int, int, int]
"""Plan, program, and two buffers, the lower first."""


def _meetings(dossier: Dossier, found: Charges, violations: Sequence[Violation]) -> Iterator[Violation]:
    """Charge what is between two buffers of one run; yield the rest."""
    places: dict[Place, list[Violation]] = defaultdict(list)
    late = [v for v in violations if v.kind == "StaleRead"]
    roots = _roots(dossier, late)
    for v in violations:
        place = _place(dossier, v)
        if place is not None and v.kind in PAIRED | ALONG and roots.get(id(v), v) is v and _within_run(dossier, v):
            places[place].append(v)
    paired = {place: rows for place, rows in places.items() if any(v.kind in PAIRED for v in rows)}
    victims: dict[Place, set[int]] = defaultdict(set)
    takers: dict[int, list[Place]] = {}
    for v in (v for v in late if roots[id(v)] is v):
        takers[id(v)] = [place for place in _takers(dossier, v) if place in paired]
        for place in takers[id(v)]:
            victims[place].add(v.buffer or 0)
    innocent, accomplices = _innocent(dossier, paired)
    answers: dict[Place, tuple[Change, ...]] = {}
    edges: list[Place] = []
    for place, rows in paired.items():
        if place in innocent:
            continue
        meeting = Meeting(
            plan=place[0],
            program=place[1],
            buffer=place[2],
            other=place[3],
            late=frozenset(victims[place]),
            kinds=frozenset(v.kind for v in rows),
        )
        answer = allowed_by(dossier, meeting)
        if answer is None:
            edges.append(place)
        else:
            answers[place] = answer
    moved = _moved_at_once(dossier, answers, edges)
    answers |= _covered(dossier, [*edges, *moved], violations)
    answers |= _moves_in_turn(dossier, answers, [v for v in late if roots[id(v)] is v])
    for place, guilty in innocent.items():
        answers[place] = answers.get(guilty, ())
    for place, rows in paired.items():
        for v in rows:
            if v.kind != "StaleRead":
                for mend in answers[place]:
                    found[mend].append(v)
            for other in accomplices.get(place, ()) if v.kind == "UnsafeInPlace" else ():
                for mend in answers[other]:
                    found[mend].append(v)
    for v in late:
        root = roots[id(v)]
        for mend in _why_late(dossier, root, takers[id(root)], answers):
            found[mend].append(v)
    return (
        v
        for v in violations
        if v.kind != "StaleRead" and (_place(dossier, v) not in paired or v.kind not in PAIRED | ALONG)
    )


def _within_run(dossier: Dossier, v: Violation) -> bool:
    """Whether what is said of two buffers is of one run: what a run misses of an earlier one, or
    finds of it, says nothing of whether the two may lie over each other.

    Nor do bytes that a `same` has carried over the victim: then who lies there is charged.
    """
    if v.kind != "StaleRead":
        return True
    if not in_one_run(v) or not (v.want_run in {v.run, None} or _lasts(dossier, v)):
        return False
    return dossier.share_bytes(v) or not _met(dossier, v)


def _roots(dossier: Dossier, late: Sequence[Violation]) -> dict[int, Violation]:
    """Return for each late read the first of those by which a `same` carried the bytes of one to
    where it found them; the read itself where none did.
    """
    read = {(v.run, v.op, v.value): v for v in late}
    found = {}
    for v in late:
        root, seen = v, {id(v)}
        while (before := _carried_from(dossier, root, read)) is not None and id(before) not in seen:
            seen.add(id(before))
            root = before
        found[id(v)] = root
    return found


def _carried_from(
    dossier: Dossier, v: Violation, read: Mapping[tuple[int | None, int | None, int | None], Violation]
) -> Violation | None:
    """Return the late read of a `same` that made what another finds: what is there was written
    before the `same` moved it, or by one that never lay there.
    """
    step, value = _carrier(dossier, v)
    if step is None or (dossier.share_bytes(v) and not (v.other_run == v.run and (v.other_op or 0) < step)):
        return None
    return read.get((v.run, step, value))


def _carrier(dossier: Dossier, v: Violation) -> tuple[int | None, int | None]:
    """Return the `same` that last wrote the buffer of a late read, and the operand that it carried
    there; None twice if another op did.
    """
    program = dossier.program(v)
    home, ops = program.values.buffer, program.ops
    results = np.flatnonzero(home[ops.results[: ops.result_starts[v.op or 0]]] == v.buffer)
    steps = np.searchsorted(ops.result_starts, results, side="right") - 1
    writing = ~ops.is_kind(VIEW)[steps]
    if not writing.any():
        return None, None
    place, step = int(results[writing][-1]), int(steps[writing][-1])
    if not program.same_ops[step]:
        return None, None
    return step, ops[step].operands[place - int(ops.result_starts[step])]


def _moved_at_once(
    dossier: Dossier, answers: Mapping[Place, tuple[Change, ...]], edges: Sequence[Place]
) -> list[Place]:
    """Return the places of plans without a problem that one slot explains where it would take
    several beliefs, or one beside a slot that lies wrong anyway: the smallest mend moves that slot.
    """
    told = {place: mends for place, mends in answers.items() if dossier.document.plans[place[0]].problem is None}
    places: dict[Change, set[Place]] = defaultdict(set)
    for place, mends in told.items():
        for mend in mends:
            places[mend].add(place)
    explained: dict[tuple[int, int], set[Change]] = defaultdict(set)
    for mend, where in places.items():
        if mend.kind in {"lifetime", "pair"} and all(len(told[place]) == 1 for place in where):
            common = set.intersection(*(set(place[2:]) for place in where))
            for buffer in common - ({mend.buffer} if mend.kind == "lifetime" else set()):
                explained[mend.plan or 0, buffer].add(mend)
    astray = {(place[0], buffer) for place in edges for buffer in place[2:]}
    chosen: set[Change] = set()
    for slot, mine in sorted(explained.items(), key=lambda row: (-len(row[1]), _rank(dossier, row[0]))):
        fresh = mine - chosen
        chosen |= fresh if len(fresh) + (slot in astray) > 1 else set()
    return [place for mend in chosen for place in sorted(places[mend])]


def _moves_in_turn(
    dossier: Dossier, answers: Mapping[Place, tuple[Change, ...]], late: Sequence[Violation]
) -> dict[Place, tuple[Change, ...]]:
    """Return one slot for all that the moves of a loop lose, turn for turn, where no belief is
    stated: that of the buffer in most of these pairs.
    """
    lost: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for v in late:
        for taker in lost_to(dossier, v):
            assert v.plan is not None
            assert v.program is not None
            assert v.buffer is not None
            if dossier.document.plans[v.plan].problem is None:
                lost[v.plan, v.program].add((min(v.buffer, taker), max(v.buffer, taker)))
    found: dict[Place, tuple[Change, ...]] = {}
    for (plan, program), pairs in lost.items():
        for group in loops_of(dossier.document.programs[program], pairs).values():
            named = {mend for pair in group for mend in answers.get((plan, program, *pair), ())}
            if len(named) < 2:
                continue
            met = Counter(buffer for pair in group for buffer in pair)
            chosen = min(met, key=lambda buffer: (-met[buffer], _rank(dossier, (plan, buffer))))
            slot = (Change(kind="slot", plan=plan, buffer=chosen),)
            found |= {(plan, program, *pair): slot for pair in group if (plan, program, *pair) in answers}
    return found


def _rank(dossier: Dossier, slot: tuple[int, int]) -> tuple[int, int]:
    plan, buffer = slot
    return plan, int(dossier.ranks(plan)[buffer])


def _met(dossier: Dossier, v: Violation) -> frozenset[int]:
    """Return the buffers that the judge lists over the buffer of a violation."""
    if v.plan is None or v.program is None or v.buffer is None:
        return frozenset()
    return dossier.meetings.get((v.plan, v.program), {}).get(v.buffer, frozenset())


def _place(dossier: Dossier, v: Violation) -> Place | None:
    other = dossier.other_buffer(v)
    if v.plan is None or v.program is None or v.buffer is None or other is None or other == v.buffer:
        return None
    return v.plan, v.program, min(v.buffer, other), max(v.buffer, other)


def _takers(dossier: Dossier, v: Violation) -> list[Place]:
    """Return the pairs that a late read may come of: those the judge lists for the victim, and the
    writer it found.
    """
    if v.plan is None or v.program is None or v.buffer is None:
        return []
    others = set(_met(dossier, v))
    place = _place(dossier, v)
    if place is not None and _within_run(dossier, v):
        others.add(place[2] + place[3] - v.buffer)
    return [(v.plan, v.program, min(v.buffer, other), max(v.buffer, other)) for other in sorted(others)]


def _innocent(
    dossier: Dossier, paired: dict[Place, list[Violation]]
) -> tuple[dict[Place, Place], dict[Place, list[Place]]]:
    """Return the pairs that break no rule by themselves, each with one of the same op that does,
    for an op is unsafe as a whole; and who else is guilty.

    The latter: for the pair that an unsafe op is filed under, the other pairs that make it unsafe
    by themselves.
    """
    ops: dict[tuple[int, int, int | None], list[Place]] = defaultdict(list)
    unsafe: dict[tuple[int, int, int | None], Violation] = {}
    for place, rows in paired.items():
        for v in rows:
            if v.kind in {"Overlap", "UnsafeInPlace"} and v.op is not None:
                ops[place[0], place[1], v.op].append(place)
            if v.kind == "UnsafeInPlace":
                unsafe[place[0], place[1], v.op] = v
    found: dict[Place, Place] = {}
    accomplices: dict[Place, list[Place]] = {}
    for at, v in unsafe.items():
        program = dossier.document.programs[at[1]]
        read, written = dossier.doings(program).buffers(at[2] or 0)
        here = [p for p in dict.fromkeys(ops[at]) if {p[2], p[3]} <= read | written and not {p[2], p[3]} <= written]
        if len(here) < 2 or v.run is None:
            continue
        own = dossier.alone(v.run, ())
        alone = {p: {(kind, op) for kind, op, _, _ in dossier.alone(v.run, p[2:]) - own} for p in here[:QUESTIONS]}
        guilty = [p for p, kinds in alone.items() if any(kind in PAIRED for kind, _ in kinds)]
        if guilty:
            found |= {p: guilty[0] for p, kinds in alone.items() if p not in guilty}
        filed = _place(dossier, v)
        if filed is not None:
            unsafe_too = [p for p, kinds in alone.items() if p != filed and ("UnsafeInPlace", at[2]) in kinds]
            accomplices.setdefault(filed, []).extend(unsafe_too)
    return found, accomplices


def _covered(
    dossier: Dossier, edges: Sequence[Place], violations: Sequence[Violation]
) -> dict[Place, tuple[Change, ...]]:
    """Return for each pair the slot to be moved: as few slots as meet all pairs, those that do not
    fit first.

    Of slots that meet equally many: one that breaks a promise of its own, one that lasts, the later
    written, the smaller. O(n log n) for n pairs.
    """
    misfits = {
        (v.plan, v.buffer)
        for v in violations
        if v.kind not in PAIRED | ALONG | EVENTS and v.buffer is not None and not as_small_as_believed(dossier, v)
    }
    open_: dict[int, set[Place]] = defaultdict(set)
    for place in edges:
        open_[place[0]].add(place)
    answers: dict[Place, tuple[Change, ...]] = {}
    for index, places in open_.items():
        answers |= _covered_of(dossier, index, places, misfits)
    return answers


def _covered_of(
    dossier: Dossier, index: int, places: set[Place], misfits: Collection[tuple[int | None, int]]
) -> dict[Place, tuple[Change, ...]]:
    """Return that of one plan."""
    plan = dossier.document.plans[index]
    whole, _ = dossier.lives(plan.program)
    persistent, nbytes = plan.program.buffers.persistent, plan.program.buffers.nbytes
    first = dossier.ranks(index)
    misled = {buffer: _breaks_promise(dossier, index, buffer) for place in places for buffer in place[2:]}
    meets: dict[int, set[Place]] = defaultdict(set)
    for place in places:
        for buffer in place[2:]:
            meets[buffer].add(place)
    turn = {buffer: number for number, buffer in enumerate(meets)}

    def weight(buffer: int) -> tuple[int, ...]:
        """Return what orders slots, least first."""
        return (
            -misled[buffer],
            -((index, buffer) in misfits),
            -len(meets[buffer]),
            -bool(persistent[buffer]),
            -int(whole[buffer, 0]),
            int(nbytes[buffer]),
            -int(whole[buffer, 1]),
            -int(plan.offset[buffer]),
            -int(first[buffer]),
            turn[buffer],
        )

    answers: dict[Place, tuple[Change, ...]] = {}
    heap = [(weight(buffer), buffer) for buffer in meets]
    heapify(heap)
    while heap:
        known, chosen = heappop(heap)
        if not meets[chosen]:
            continue
        now = weight(chosen)  # a slot only comes to meet fewer: it never comes earlier than it was
        if now != known:
            heappush(heap, (now, chosen))
            continue
        for place in tuple(meets[chosen]):
            answers[place] = (Change(kind="slot", plan=index, buffer=chosen),)
            for buffer in place[2:]:
                meets[buffer].discard(place)
    return answers


def _breaks_promise(dossier: Dossier, index: int, buffer: int) -> bool:
    """Whether a slot is not where it was told to be: in memory of its own, or at an offset already
    decided.
    """
    plan = dossier.document.plans[index]
    if plan.problem is None:
        return False
    own = "own" in plan.problem.stated and bool(plan.problem.own[buffer]) and bool(plan.placed[buffer])
    return own or plan.problem.fixed.get(buffer, int(plan.offset[buffer])) != int(plan.offset[buffer])


def _why_late(
    dossier: Dossier, v: Violation, takers: Sequence[Place], answers: dict[Place, tuple[Change, ...]]
) -> Iterable[Change]:
    """Return the mends of a late read."""
    if dossier.looked_late(v):
        return (Change(kind="late", program=v.program, buffer=v.buffer),)
    if v.run is not None and v.want_run is not None and v.want_run < v.run and not _lasts(dossier, v):
        if _is_uploaded(dossier, v):
            by_host = dossier.kind(v.want_run, v.want_op) == HOST_WRITE
            return (_upload(dossier, v) if by_host else Change(kind="state", program=v.program, buffer=v.buffer),)
        if not takers:
            return (Change(kind="state", program=v.program, buffer=v.buffer),)
    reasons: dict[Change, list[Place]] = defaultdict(list)
    for place in takers:
        for mend in answers.get(place, ()):
            reasons[mend].append(place)
    if not reasons:
        return (_elsewhere(dossier, v),)
    if len(reasons) == 1:
        return reasons
    found = _place(dossier, v)
    if v.run is None or len(dossier.asked) >= QUESTIONS:
        return answers.get(found, reasons) if found is not None else reasons
    enough = []
    for mend, places in reasons.items():
        buffers = {buffer for one in places for buffer in one[2:]}
        question = v.run, tuple(sorted(buffers))
        dossier.asked.add(question)
        if ("StaleRead", v.op, v.value, v.buffer) in dossier.alone(v.run, buffers):
            enough.append(mend)
    return enough or reasons


def _lasts(dossier: Dossier, v: Violation) -> bool:
    return v.buffer is not None and bool(dossier.program(v).buffers.persistent[v.buffer])


def _elsewhere(dossier: Dossier, v: Violation) -> Change:
    """A late read that no meeting within its run explains: by a plan for another program, or a
    buffer that lasts and was not kept.
    """
    if v.plan is not None and v.program is not None and dossier.strange(v.plan, v.program):
        return Change(kind="stale", plan=v.plan, program=v.program)
    if _lasts(dossier, v):
        return Change(kind="address", plan=v.plan, buffer=v.buffer)
    return Change(kind="slot", plan=v.plan, buffer=v.buffer)


__all__ = ["Charges", "charges_of"]
