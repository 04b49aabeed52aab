"""The cure: for a chosen set of mends, the changes that make their violations vanish and add none, and what they cost.

    found = cure_of(document, demands, report)        # demands: mends, each with the violations it explains

What is changed: beliefs (lifetimes, single pairs, pins, sizes), slots, addresses, waits, uploads, and pairs that a kernel does not bear (`allocsim.cure.elements`). Of a
plan, only the slots move that have to: of two buffers that meet either may give way, and what needs the fewest bytes, then the fewest changes, is taken
(`allocsim.cure.room`). A moved slot goes where every belief and every access of the program holds.

Verified twice. The mended document is judged again: the violations of the chosen mends are gone, but for those that a mend not chosen explains as well, and no
violation is there that was not before, whatever else is wrong. Where the plan is one that a planner of this project makes of its problem, the mended problem is planned anew, and that
plan is judged likewise (`planned_anew`); the price is that of the slots moved, whoever planned, but where the caller names a planner. A set for which the judge does not say so is no
cure, and None is returned.

Price: how much the peaks grow, summed over the plans; where they do, never more than with everything apart. A wait costs no bytes but overlap: the pairs of ops that can no longer run at once.
A race over reuse can also be cured by placing apart: that is the cure's `alternative`.

`minimal` says that each element was left out once and a violation came back.

Complexity: O(moved slots x buffers), and a few checks of the document.

What this module does not see: classes and parties, kernels and numbers (`repro.detectors`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np

from allocsim.allocators import ALLOCATORS
from allocsim.allocators.planner import Allocator
from allocsim.allocators.reference import place as place_apart
from allocsim.checks import check
from allocsim.checks.violations import Report, Violation
from allocsim.cure.defects import Key, keys_of
from allocsim.cure.elements import (
    Address,
    Element,
    Kernel,
    Lifetime,
    Pair,
    Pin,
    Place,
    Replan,
    Upload,
    Wait,
    as_json,
    order_of,
)
from allocsim.cure.mends import Mend
from allocsim.cure.pairs import Position, used_pairs, without_positions
from allocsim.cure.room import Rigour, Room
from allocsim.cure.waits import Ordered
from allocsim.errors import AllocsimError
from allocsim.liveness import lifetimes
from allocsim.model import OWN, Document, Plan, Problem, Program
from allocsim.programs.streams import with_waits

Change = TypeVar("Change")

CURABLE: Final = frozenset(
    {"lifetime", "pair", "pin", "size", "slot", "address", "stale", "upload", "state", "wait", "kernel", "promise"}
)
"""Kinds of mend that a change here can make; the others are for whoever writes the program, the kernel or the planner."""

FEW_WAITS: Final = 4
"""Waits that are named one by one."""

LEAVE_OUT: Final = 6
"""Elements of which each is left out once, to show that none is for nothing; of more, that is not claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A mend that is to be made, and what must vanish."""

    mend: Mend
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A slot of the cured plan that is not where it was."""

    plan: int
    buffer: int
    arena: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """Changes that cure, and what they cost."""

    elements: tuple[Element, ...]
    words: tuple[str, ...]
    """The elements in words."""
    nbytes: int
    """Growth of the peaks, summed over plans; negative where they shrink."""
    pin_all_bytes: int | None
    """The same with every buffer apart; None where that does not fit."""
    overlap: int
    """Pairs of ops that can no longer run at once."""
    verified: bool
    """Whether the judge said of the mended document that the violations are gone and none is new."""
    planned_anew: bool | None
    """The same of planning the mended beliefs anew; None where no planner is at hand."""
    placement: str
    """Who placed: `amended`, where only slots moved that had to; `apart`; or the planner."""
    minimal: bool
    trials: int
    """Documents judged."""
    moved: tuple[Moved, ...]
    document: Document = field(repr=False)
    """The document mended."""
    alternative: "Cure | None" = None
    """Of a race over reuse: the same by placing apart."""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        made = {
            "elements": [as_json(element, self.document) for element in self.elements],
            "nbytes": self.nbytes,
            "verified": self.verified,
            "pin_all_bytes": self.pin_all_bytes,
            "overlap": self.overlap,
            "planned_anew": self.planned_anew,
            "placement": self.placement,
            "minimal": self.minimal,
            "moved": [{name: getattr(slot, name) for name in slot.__slots__} for slot in self.moved],
        }
        return made if self.alternative is None else {**made, "alternative": self.alternative.as_json()}


def cure_of(
    document: Document,
    demands: Sequence[Demand],
    report: Report,
    *,
    others: Sequence[Demand] = (),
    planner: Allocator | None = None,
    anew: bool = True,
) -> Cure | None:
    """Return a cure of the mends demanded, None where one of them cannot be made here or none was found that the judge bears out.

    Args:
        document: what is wrong.
        demands: mends to be made; all of a kind in `CURABLE`.
        report: what the judge says of `document`.
        others: mends not to be made; what they explain as well may stay.
        planner: who plans anew, whoever made the plans; by default whoever did, where that is one of ours.
        anew: whether the mended beliefs are planned anew at all.
    """
    if not demands or any(demand.mend.kind not in CURABLE for demand in demands):
        return None
    if report.count > len(report.violations):
        return None  # what is not listed could not be told from what is new
    task = _Task(document, demands, report, others, planner, anew=anew)
    found = task.solve(by_wait=True)
    if found is None or not any(demand.mend.kind == "wait" and demand.mend.plan is not None for demand in demands):
        return found
    return replace(found, alternative=task.solve(by_wait=False))


# the search ---------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A document being mended."""

    document: Document
    rooms: dict[int, Room]
    elements: dict[Element, None]
    moved: dict[int, set[int]]
    resized: dict[int, set[int]]
    replanned: dict[tuple[int, int], Plan] = field(default_factory=dict)
    wheres: list[tuple[int, int, Mend]] = field(default_factory=list)
    """(plan, buffer, mend) of slots that are elements of their own."""


class _Task:
    """What is to be cured, and what the judge said of it."""

    def __init__(
        self,
        document: Document,
        demands: Sequence[Demand],
        report: Report,
        others: Sequence[Demand],
        planner: Allocator | None,
        *,
        anew: bool,
    ) -> None:
        self.document, self.demands = document, tuple(demands)
        self.before = keys_of(report.violations)
        kept = keys_of(v for other in others for v in other.violations)
        self.gone = keys_of(v for demand in demands for v in demand.violations) - kept
        self.trials = 0
        self.planner, self.anew = planner, anew
        self._all_apart: tuple[int | None, tuple[Plan | None, ...]] | None = None

    def holds(self, document: Document, gone: frozenset[Key] | None = None) -> bool:
        """Whether the violations are gone in a mended document, and none is new."""
        self.trials += 1
        report = check(document, of_each_kind=True)
        if report.count > len(report.violations):
            return False
        now = keys_of(report.violations)
        return not now & (self.gone if gone is None else gone) and now <= self.before

    def solve(self, *, by_wait: bool) -> Cure | None:
        """Return the cheapest cure found, races over reuse cured by waits or by placing apart."""
        found: Cure | None = None
        for rigour in Rigour:
            draft = self._draft(self.demands, rigour, by_wait=by_wait)
            if draft is None:
                continue
            mended = _built(draft)
            if self.holds(mended):
                found = self._cure(draft, mended, "amended")
                break
        anew = self._anew(by_wait=by_wait)
        limit, _ = self._apart()
        if found is not None and limit is not None and found.nbytes > max(limit, 0):
            found = self._not_dearer(found, by_wait=by_wait)
        if anew is not None:
            draft, mended, right = anew
            found = None if found is None else replace(found, planned_anew=right)
            if right and self.planner is not None:
                found = replace(self._cure(draft, mended, self.planner.name), planned_anew=True)
        if found is None:
            return None
        return replace(found, minimal=self._minimal(found, by_wait=by_wait), trials=self.trials)

    def _minimal(self, found: Cure, *, by_wait: bool) -> bool:
        """Whether leaving out any element brings a violation back."""
        if len(found.elements) != len(self.demands) or len(self.demands) > LEAVE_OUT:
            return False
        if len(self.demands) == 1:
            return bool(self.gone) or self.demands[0].mend.kind in {"kernel", "promise"}
        for left_out in self.demands:
            fewer = [demand for demand in self.demands if demand is not left_out]
            draft = self._draft(fewer, Rigour.LIVING, by_wait=by_wait)
            if draft is not None and self.holds(_built(draft)):
                return False
        return True

    # drafts -----------------------------------------------------------------------------------------------------------------

    def _draft(self, demands: Sequence[Demand], rigour: Rigour, *, by_wait: bool, place: bool = True) -> _Draft | None:
        """Return the document with every mend made, in the order: order, host, beliefs, slots."""
        draft = _Draft(document=self.document, rooms={}, elements={}, moved=defaultdict(set), resized=defaultdict(set))
        waits = [d.mend for d in demands if d.mend.kind == "wait" and (by_wait or d.mend.plan is None)]
        draft.document = _with_uploads(_with_waits(draft.document, waits), [d.mend for d in demands if d.mend.kind == "upload"])
        for mend in waits:
            draft.elements[Wait(program=mend.program or 0, op=mend.op or 0, after=mend.after or 0)] = None
        for demand in demands:
            if demand.mend.kind == "upload":
                draft.elements[Upload(program=demand.mend.program or 0, op=demand.mend.op or 0)] = None
        draft.document, elements = _with_beliefs(draft.document, demands)
        draft.elements |= dict.fromkeys(elements)
        for index, plan in enumerate(draft.document.plans):
            draft.rooms[index] = Room.of(draft.document, plan)
        for demand in demands if place else ():
            if not self._settle(draft, demand, rigour, by_wait=by_wait):
                return None
        for index, buffer, mend in draft.wheres:
            draft.elements[_place_of(draft, index, buffer, mend)] = None
        return draft

    def _settle(self, draft: _Draft, demand: Demand, rigour: Rigour, *, by_wait: bool) -> bool:
        """Move the slots that a mend takes; False where there is no room."""
        mend = demand.mend
        if mend.kind == "upload" or (mend.kind == "wait" and (by_wait or mend.plan is None)):
            return True
        if mend.kind == "stale":
            return _replan(draft, mend)
        if mend.kind in {"kernel", "promise"}:
            draft.elements[Kernel(op_kind=mend.op_kind or "", operand=mend.operand or 0, result=mend.result or 0)] = None
            return self._denied(draft, mend, rigour)
        if mend.kind == "address":
            return self._readdressed(draft, mend, rigour)
        edges = _edges(self.document, demand)
        if mend.kind in {"slot", "state"} and mend.plan is None:
            edges |= {index: set() for index in _plans_of(self.document, mend)}
        if mend.kind in {"slot", "size", "state"}:
            for index in _plans_of(self.document, mend):
                edges.setdefault(index, set())
        for index, pairs in edges.items():
            plan_rigour = rigour
            if mend.kind == "state":
                plan_rigour = max(rigour, Rigour.EVERYBODY)
            if mend.kind == "wait":
                plan_rigour = max(rigour, Rigour.EVERYBODY)
            if not self._parted(draft, index, pairs, demand, plan_rigour):
                return False
        return True

    def _parted(self, draft: _Draft, index: int, pairs: set[tuple[int, int]], demand: Demand, rigour: Rigour) -> bool:
        """Part the pairs of a plan: the buffer of the mend gives way, or all it meets."""
        mend, plan = demand.mend, draft.document.plans[index]
        focus = mend.buffer
        own_faults = any(v.other_buffer is None and v.plan == index and v.buffer == focus for v in demand.violations)
        if mend.kind == "size" or (mend.kind == "slot" and own_faults):
            draft.resized[index].add(focus or 0)
        problem = plan.problem
        told_own = problem is not None and focus is not None and bool(problem.own[focus])
        lasting = focus is not None and _in_other_plans(draft.document, index, focus)
        if mend.kind == "slot" and focus is not None and told_own and not lasting and not _is_own(draft, index, focus):
            draft.rooms[index].arena[focus] = OWN
            draft.moved[index].add(focus)
            draft.wheres.append((index, focus, mend))
            return True
        left = {pair for pair in pairs if not _apart_already(draft.rooms[index], pair)}
        if not left and mend.kind in {"lifetime", "pin", "pair"}:
            return True
        options: list[tuple[set[int], bool]] = []
        if focus is not None:
            touched = {pair for pair in left if focus in pair}
            rest = {buffer for pair in left - touched for buffer in pair[1:]}
            stay = mend.kind in {"size", "slot"} and own_faults
            if not lasting:
                options.append(({focus} | rest, stay))
            partners = {one if other == focus else other for one, other in touched}
            if partners and not own_faults:
                options.append((partners | rest, False))
            if mend.kind == "pair" and mend.other is not None:
                options.append(({mend.other} | rest, False))
        else:
            room = draft.rooms[index]
            in_time = [sorted(pair, key=lambda b: (int(room.start[b]), int(room.stop[b]), int(room.offset[b]))) for pair in left]
            options += [({later for _, later in in_time}, False), ({earlier for earlier, _ in in_time}, False)]
        best: tuple[tuple[int, int, int], Room, set[int]] | None = None
        fixed = problem.fixed if problem is not None else {}
        for number, (asked, stay) in enumerate(options):
            chosen = set(asked)
            movable = {buffer for buffer in chosen if buffer not in fixed or mend.kind == "slot"}
            if not chosen or len(movable) < len(chosen):
                continue
            room = draft.rooms[index].copy()
            told = [b for b in chosen if b in fixed and b == focus]
            if told:
                room.arena[told[0]] = int(plan.program.buffers.arena[told[0]])
                room.offset[told[0]] = fixed[told[0]]
                chosen = {b for b in partners_at(room, told[0]) if b not in fixed} | (chosen - set(told))
            if chosen and not room.move(chosen, rigour, stay=stay):
                continue
            price = (room.peak(), len(chosen), number)
            if best is None or price < best[0]:
                best = price, room, set(chosen) | set(told)
        if best is None:
            return not options
        draft.rooms[index] = best[1]
        draft.moved[index] |= best[2]
        if mend.kind in {"slot", "size", "state", "wait"}:
            draft.wheres += [(index, buffer, mend) for buffer in sorted(best[2])]
        return True

    def _readdressed(self, draft: _Draft, mend: Mend, rigour: Rigour) -> bool:
        """Give a buffer that lasts the address it has where it is first, in every plan; who is in the way gives way."""
        index, buffer = mend.plan or 0, mend.buffer or 0
        name = draft.document.plans[index].program.buffers.names[buffer]
        home: tuple[int, int] | None = None
        for run in draft.document.runs:
            at = _index_of(draft.document.plans, run.plan)
            names = run.plan.program.buffers.names
            mine = [b for b, one in enumerate(names) if one == name and run.plan.program.buffers.persistent[b]]
            if not mine:
                continue
            room = draft.rooms[at]
            if home is None:
                home = int(room.arena[mine[0]]), int(room.offset[mine[0]])
            if (int(room.arena[mine[0]]), int(room.offset[mine[0]])) == home and at != index:
                continue
            room.arena[mine[0]], room.offset[mine[0]] = home
            draft.moved[at].add(mine[0])
            away = partners_at(room, mine[0])
            if away and not room.move(away, rigour):
                return False
            draft.moved[at] |= away
            draft.elements[Address(plan=at, buffer=mine[0], arena=home[0], offset=home[1])] = None
        return True

    def _denied(self, draft: _Draft, mend: Mend, rigour: Rigour) -> bool:
        """Part every operand and result of a kind of op that lie at one address by plan."""
        for index, plan in enumerate(draft.document.plans):
            recipients = {result for operand, result in _meeting_in_place(plan, mend) if operand != result}
            if not recipients:
                continue
            room = draft.rooms[index]
            if not room.move(recipients, rigour):
                return False
            draft.moved[index] |= recipients
        return True

    # prices -----------------------------------------------------------------------------------------------------------------

    def _cure(self, draft: _Draft, mended: Document, placement: str) -> Cure:
        elements = tuple(sorted(draft.elements, key=order_of))
        limit, _ = self._apart()
        return Cure(
            elements=elements,
            words=words_of(elements, mended),
            nbytes=_grown(self.document, mended),
            pin_all_bytes=limit,
            overlap=_overlap_lost(self.document, mended),
            verified=True,
            planned_anew=None,
            placement=placement,
            minimal=False,
            trials=self.trials,
            moved=tuple(_moves(self.document, mended)),
            document=mended,
        )

    def _apart(self) -> tuple[int | None, tuple[Plan | None, ...]]:
        """Return how much the peaks grow with every buffer apart, and the plans."""
        if self._all_apart is None:
            plans = tuple(_all_apart(plan) for plan in self.document.plans)
            known = [plan for plan in plans if plan is not None]
            grown = sum(plan.peak_bytes for plan in known) - sum(plan.peak_bytes for plan in self.document.plans)
            self._all_apart = (grown if len(known) == len(plans) else None), plans
        return self._all_apart

    def _not_dearer(self, found: Cure, *, by_wait: bool) -> Cure:
        """Return the same mends with every buffer apart, if the judge bears it out."""
        draft = self._draft(self.demands, Rigour.LIVING, by_wait=by_wait, place=False)
        _, plans = self._apart()
        if draft is None:
            return found
        placed = [
            None if plan is None else replace(plan, program=old.program, problem=old.problem, source=old.source)
            for plan, old in zip(plans, draft.document.plans, strict=True)
        ]
        mended = _rebuilt(
            draft.document, plans=[old if new is None else new for new, old in zip(placed, draft.document.plans, strict=True)]
        )
        if not self.holds(mended):
            return found
        made = self._cure(draft, mended, "apart")
        kept = [element for element in found.elements if not isinstance(element, Place)]
        slots = [
            replace(element, offset=int(mended.plans[element.plan].offset[element.buffer]))
            for element in found.elements
            if isinstance(element, Place) and element.plan is not None and element.offset is not None
        ]
        elements = tuple(sorted({*kept, *slots}, key=order_of))
        return replace(made, elements=elements, words=words_of(elements, mended))

    def _anew(self, *, by_wait: bool) -> tuple[_Draft, Document, bool] | None:
        """Plan the mended beliefs anew, where a planner of this project made the plans of theirs."""
        if not self.anew or any(d.mend.kind in {"slot", "stale", "address", "state"} for d in self.demands):
            return None
        planners = [_planner_of(plan) if self.planner is None else self.planner for plan in self.document.plans]
        if not any(planners):
            return None
        draft = self._draft(self.demands, Rigour.LIVING, by_wait=by_wait, place=False)
        if draft is None:
            return None
        for demand in self.demands:
            if demand.mend.kind in {"kernel", "promise"}:
                mend = demand.mend
                draft.elements[Kernel(op_kind=mend.op_kind or "", operand=mend.operand or 0, result=mend.result or 0)] = None
        plans = []
        for planner, plan in zip(planners, draft.document.plans, strict=True):
            if planner is None or plan.problem is None:
                plans.append(plan)
                continue
            try:
                plans.append(
                    replace(planner.place(without_positions(plan.problem, _denials(self.demands))), problem=plan.problem)
                )
            except AllocsimError:
                return None
        mended = _rebuilt(draft.document, plans=plans)
        right = self.holds(mended) and not any(
            operand != result
            for plan in mended.plans
            for demand in self.demands
            if demand.mend.kind in {"kernel", "promise"}
            for operand, result in _meeting_in_place(plan, demand.mend)
        )
        return draft, mended, right


# the parts of a document mended --------------------------------------------------------------------------------------------------


def _with_waits(document: Document, mends: Sequence[Mend]) -> Document:
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for mend in mends:
        rows[mend.program or 0].append((mend.op or 0, mend.after or 0))
    if not rows:
        return document
    programs = [with_waits(program, rows[n]) if n in rows else program for n, program in enumerate(document.programs)]
    return _rebuilt(document, programs=programs)


def _with_uploads(document: Document, mends: Sequence[Mend]) -> Document:
    done = {(mend.program, mend.op) for mend in mends}
    if not done or document.session is None:
        return document
    place = {id(program): index for index, program in enumerate(document.programs)}
    session = tuple(
        replace(run, skip=tuple(step for step in run.skip if (place[id(run.program)], step) not in done))
        for run in document.session
    )
    return replace(document, session=session)


def _with_beliefs(document: Document, demands: Sequence[Demand]) -> tuple[Document, list[Element]]:
    """Return the document with its beliefs mended, and the elements."""
    elements: list[Element] = []
    problems = list(document.problems)
    for demand in demands:
        mend = demand.mend
        if mend.kind in {"lifetime", "pair", "pin"} and mend.problem is None and mend.buffer is not None:
            elements.append(_unstated(document, mend))
        if mend.problem is None or mend.buffer is None:
            continue
        problem = problems[mend.problem]
        changed, more = _believing(problem, demand)
        problems[mend.problem] = changed
        elements += more
    if all(a is b for a, b in zip(problems, document.problems, strict=True)):
        return document, elements
    return _rebuilt(document, problems=problems), elements


def _unstated(document: Document, mend: Mend) -> Element:
    """Return the element of a belief that a plan does not state."""
    plan, buffer = document.plans[mend.plan or 0], mend.buffer or 0
    if mend.kind == "pair":
        return Pair(problem=None, plan=mend.plan, donor=buffer, recipient=mend.other or 0)
    start, stop = (int(step) for step in lifetimes(plan.program)[buffer])
    return Lifetime(problem=None, plan=mend.plan, buffer=buffer, start=start, stop=stop)


def _believing(problem: Problem, demand: Demand) -> tuple[Problem, list[Element]]:
    """Return a problem with one mend made, and its elements."""
    mend = demand.mend
    buffer = mend.buffer or 0
    elements: list[Element] = []
    span = lifetimes(problem.program)
    pairs = {(v.buffer, v.other_buffer) for v in demand.violations if v.kind == "BadShare" and v.problem == mend.problem}
    start, stop, nbytes = (column.copy() for column in (problem.start, problem.stop, problem.nbytes))
    pinned = problem.pinned.copy()
    gaps = dict(problem.gaps)
    if mend.kind in {"lifetime", "pin"}:
        begins, ends = bool(start[buffer] > span[buffer, 0]), bool(stop[buffer] < span[buffer, 1])
        start[buffer], stop[buffer] = min(start[buffer], span[buffer, 0]), max(stop[buffer], span[buffer, 1])
        gaps.pop(buffer, None)
        if mend.kind == "pin":
            pinned[buffer] = True
            elements.append(Pin(problem=mend.problem, plan=None, buffer=buffer))
        else:
            elements.append(
                Lifetime(
                    problem=mend.problem,
                    plan=None,
                    buffer=buffer,
                    start=int(start[buffer]),
                    stop=int(stop[buffer]),
                    begins=begins,
                    ends=ends or not begins,
                )
            )
    elif mend.kind == "pair":
        pairs.add((mend.buffer, mend.other))
    elif mend.kind == "size":
        nbytes[buffer] = problem.program.buffers.nbytes[buffer]
        elements.append(Place(problem=mend.problem, buffer=buffer, nbytes=int(nbytes[buffer])))
    keep = np.array([(d, r) not in pairs for d, r in problem.may_share.tolist()], dtype=np.bool_)
    elements += [
        Pair(problem=mend.problem, plan=None, donor=d, recipient=r)
        for d, r in sorted((int(d or 0), int(r or 0)) for d, r in pairs)
    ]
    changed = replace(
        problem,
        start=start,
        stop=stop,
        pinned=pinned,
        nbytes=nbytes,
        gaps=gaps,
        may_share=problem.may_share[keep] if len(keep) else problem.may_share,
    )
    return changed, elements


def _rebuilt(
    document: Document,
    *,
    programs: Sequence[Program] | None = None,
    problems: Sequence[Problem] | None = None,
    plans: Sequence[Plan] | None = None,
) -> Document:
    """Return the document with parts replaced, every reference between them kept right."""
    new_programs = list(document.programs if programs is None else programs)
    program_of = {id(old): new for old, new in zip(document.programs, new_programs, strict=True)}
    new_problems = [
        replace(new, program=program_of[id(old.program)])
        for old, new in zip(document.problems, document.problems if problems is None else problems, strict=True)
    ]
    problem_of = {id(old): new for old, new in zip(document.problems, new_problems, strict=True)}
    new_plans = [
        replace(new, program=program_of[id(old.program)], problem=None if old.problem is None else problem_of[id(old.problem)])
        for old, new in zip(document.plans, document.plans if plans is None else plans, strict=True)
    ]
    plan_of = {id(old): new for old, new in zip(document.plans, new_plans, strict=True)}
    session = document.session
    if session is not None:
        session = tuple(replace(run, plan=plan_of[id(run.plan)], program=program_of[id(run.program)]) for run in session)
    return replace(document, programs=tuple(new_programs), problems=tuple(new_problems), plans=tuple(new_plans), session=session)


def _built(draft: _Draft) -> Document:
    """Return the document of a draft with its slots where the rooms have them."""
    plans = []
    for index, plan in enumerate(draft.document.plans):
        room, moved, resized = draft.rooms[index], draft.moved[index], draft.resized[index]
        if not moved and not resized:
            plans.append(plan)
            continue
        rows = sorted(moved | resized)
        nbytes = plan.nbytes.copy()
        nbytes[rows] = np.where(room.arena[rows] >= 0, np.maximum(nbytes[rows], plan.program.buffers.nbytes[rows]), 0)
        grown = sorted(resized)
        nbytes[grown] = np.where(room.arena[grown] >= 0, room.nbytes[grown], 0)
        plans.append(replace(plan, arena=room.arena.astype(np.int32), offset=room.offset, nbytes=nbytes))
    made = _rebuilt(draft.document, plans=plans)
    if not draft.replanned or made.session is None:
        return made
    place = {id(plan): index for index, plan in enumerate(made.plans)}
    programs = {id(program): index for index, program in enumerate(made.programs)}
    session = tuple(
        replace(run, plan=draft.replanned.get((place[id(run.plan)], programs[id(run.program)]), run.plan)) for run in made.session
    )
    return replace(made, plans=(*made.plans, *draft.replanned.values()), session=session)


def _replan(draft: _Draft, mend: Mend) -> bool:
    """Make a plan for the program that runs: apart, but what lasts where it lies."""
    document = draft.document
    program, old = document.programs[mend.program or 0], document.plans[mend.plan or 0]
    told = old.problem
    own = np.where(old.arena == OWN, True, program.buffers.persistent & (old.arena < 0))
    span = lifetimes(program)
    fixed = {int(b): int(old.offset[b]) for b in np.flatnonzero(program.buffers.persistent & old.placed)}
    pinned = told.pinned if told is not None else np.zeros(len(own), dtype=np.bool_)
    problem = Problem.of(program, start=span[:, 0], stop=span[:, 1], own=own, fixed=fixed, pinned=pinned)
    try:
        best = min(
            (ALLOCATORS[name].place(problem) for name in ("greedy_by_size", "reference")), key=lambda plan: plan.peak_bytes
        )
    except AllocsimError:
        return False
    draft.replanned[mend.plan or 0, mend.program or 0] = replace(best, problem=None, source=old.source)
    draft.elements[Replan(plan=mend.plan or 0, program=mend.program or 0)] = None
    return True


def _edges(document: Document, demand: Demand) -> dict[int, set[tuple[int, int]]]:
    """Return the pairs of buffers of each plan that the violations of a mend are about."""
    runs = document.runs
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for v in demand.violations:
        if v.plan is None or v.buffer is None or v.other_buffer is None or v.other_buffer == v.buffer:
            continue
        if v.run is not None and v.other_run is not None and runs[v.other_run].program is not runs[v.run].program:
            continue
        found[v.plan].add((min(v.buffer, v.other_buffer), max(v.buffer, v.other_buffer)))
    return found


def _plans_of(document: Document, mend: Mend) -> tuple[int, ...]:
    """Return the plans that a mend is about."""
    if mend.plan is not None:
        return (mend.plan,)
    if mend.problem is not None:
        problem = document.problems[mend.problem]
        return tuple(index for index, plan in enumerate(document.plans) if plan.problem is problem)
    program = document.programs[mend.program or 0]
    return tuple(index for index, plan in enumerate(document.plans) if plan.program is program)


def _meeting_in_place(plan: Plan, mend: Mend) -> Iterator[tuple[int, int]]:
    """Yield (operand's buffer, result's buffer) of every op of a kind whose operand and result begin at one address."""
    program = plan.program
    ops, values = program.ops, program.values
    if mend.op_kind not in ops.kinds:
        return
    for step in np.flatnonzero(ops.is_kind(mend.op_kind or "")).tolist():
        op = ops[step]
        if mend.operand is None or mend.result is None or mend.operand >= len(op.operands) or mend.result >= len(op.results):
            continue
        operand, result = op.operands[mend.operand], op.results[mend.result]
        one, other = int(values.buffer[operand]), int(values.buffer[result])
        if one == other:
            yield one, other
            continue
        same = plan.placed[one] and plan.placed[other] and plan.arena[one] == plan.arena[other]
        if same and plan.offset[one] + values.offset[operand] == plan.offset[other] + values.offset[result]:
            yield one, other


def _denials(demands: Sequence[Demand]) -> frozenset[Position]:
    """Return the pairs of positions that a kernel does not bear."""
    return frozenset(
        (demand.mend.op_kind or "", demand.mend.operand or 0, demand.mend.result or 0)
        for demand in demands
        if demand.mend.kind in {"kernel", "promise"}
    )


def _place_of(draft: _Draft, index: int, buffer: int, mend: Mend) -> Place:
    room = draft.rooms[index]
    placed = int(room.arena[buffer]) >= 0
    return Place(
        plan=index,
        buffer=buffer,
        offset=int(room.offset[buffer]) if placed else None,
        keeps=mend.kind == "state",
    )


def partners_at(room: Room, buffer: int) -> set[int]:
    """Return the buffers that lie over one while both live, where it now is."""
    low, high = int(room.offset[buffer]), int(room.offset[buffer]) + int(room.nbytes[buffer])
    meets = (room.arena == room.arena[buffer]) & (room.offset < high) & (low < room.offset + room.nbytes) & (room.nbytes > 0)
    meets &= (room.start < room.stop[buffer]) & (room.start[buffer] < room.stop)
    meets[buffer] = False
    return set(np.flatnonzero(meets).tolist())


def _apart_already(room: Room, pair: tuple[int, int]) -> bool:
    one, other = pair
    if room.arena[one] != room.arena[other] or room.arena[one] < 0:
        return True
    low, high = sorted(pair, key=lambda buffer: int(room.offset[buffer]))
    return int(room.offset[low]) + int(room.nbytes[low]) <= int(room.offset[high])


def _in_other_plans(document: Document, index: int, buffer: int) -> bool:
    """Whether a buffer lasts and other plans have it too: then it cannot move in one of them alone."""
    plan = document.plans[index]
    if not plan.program.buffers.persistent[buffer] or document.session is None:
        return False
    name = plan.program.buffers.names[buffer]
    return any(
        one == name and bool(other.program.buffers.persistent[b])
        for other in document.plans
        if other is not plan
        for b, one in enumerate(other.program.buffers.names)
    )


def _is_own(draft: _Draft, index: int, buffer: int) -> bool:
    return int(draft.rooms[index].arena[buffer]) == OWN


def _index_of(parts: Sequence[Any], part: object) -> int:
    return next(index for index, one in enumerate(parts) if one is part)


def words_of(elements: Sequence[Element], document: Document) -> tuple[str, ...]:
    """Return elements in words; of many waits, one line for each pair of kinds of op."""
    waits = [element for element in elements if isinstance(element, Wait)]
    if len(waits) <= FEW_WAITS:
        return tuple(element.describe(document) for element in elements)
    said = [element.describe(document) for element in elements if not isinstance(element, Wait)]
    kinds: dict[tuple[str, str], int] = defaultdict(int)
    for wait in waits:
        ops = document.programs[wait.program].ops
        kinds[ops.kinds[ops.kind[wait.op]], ops.kinds[ops.kind[wait.after]]] += 1
    lines = [f"let {op} wait for {other} ({count} wait{'s'[: count != 1]})" for (op, other), count in sorted(kinds.items())]
    return (*said, *lines)


# prices -------------------------------------------------------------------------------------------------------------------------


def _grown(before: Document, after: Document) -> int:
    """Return how much the peaks grow; a plan made in place of another is compared with that."""
    total = sum(new.peak_bytes - old.peak_bytes for old, new in zip(before.plans, after.plans, strict=False))
    for old_run, run in zip(before.runs, after.runs, strict=False):
        at = _index_of(after.plans, run.plan)
        if at >= len(before.plans):
            total += run.plan.peak_bytes - old_run.plan.peak_bytes
            break
    return total


def _overlap_lost(before: Document, after: Document) -> int:
    lost = 0
    for old, new in zip(before.programs, after.programs, strict=True):
        if len(old.ops.after) != len(new.ops.after):
            lost += Ordered.of(old).overlapping() - Ordered.of(new).overlapping()
    return lost


def _moves(before: Document, after: Document) -> Iterator[Moved]:
    for index, (old, new) in enumerate(zip(before.plans, after.plans, strict=False)):
        changed = (old.arena != new.arena) | (old.offset != new.offset) | (old.nbytes != new.nbytes)
        for buffer in np.flatnonzero(changed).tolist():
            yield Moved(
                plan=index,
                buffer=buffer,
                arena=int(new.arena[buffer]),
                offset=int(new.offset[buffer]),
                nbytes=int(new.nbytes[buffer]),
            )


def _all_apart(plan: Plan) -> Plan | None:
    """Return the plan with every buffer of an arena in bytes of its own; None where that does not fit."""
    program = plan.program
    nbytes = np.maximum(program.buffers.nbytes, 0 if plan.problem is None else plan.problem.nbytes)
    fixed = plan.problem.fixed if plan.problem is not None else {}
    try:
        return place_apart(Problem.of(program, nbytes=nbytes, own=plan.arena == OWN, fixed=dict(fixed)))
    except AllocsimError:
        return None


def _planner_of(plan: Plan) -> Allocator | None:
    """Return the planner of this project that makes this very plan of its problem; a name in a document runs no other code."""
    planner = ALLOCATORS.get(plan.source)
    if planner is None or plan.problem is None:
        return None
    try:
        again = planner.place(plan.problem)
    except AllocsimError:
        return None
    same = np.array_equal(again.offset, plan.offset) and np.array_equal(again.arena, plan.arena)
    return planner if same else None


def minimise(elements: Sequence[Change], cures: Callable[[tuple[Change, ...]], bool]) -> tuple[Change, ...]:
    """Return a 1-minimal subset of `elements` for which `cures` holds, given that it holds for all of them.

    Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002, ddmin). Deterministic; at most O(n^2) calls, O(k log n)
    where few (k) elements matter.
    """
    current = tuple(elements)
    parts = 2
    while len(current) >= 2:
        size = -(-len(current) // parts)
        chunks = [current[i : i + size] for i in range(0, len(current), size)]
        complements = [tuple(e for e in current if e not in chunk) for chunk in chunks] if len(chunks) > 2 else []
        smaller = next((c for c in (*chunks, *complements) if c and cures(c)), None)
        if smaller is not None:
            parts = 2 if len(smaller) <= size else max(parts - 1, 2)
            current = smaller
        elif parts >= len(current):
            break
        else:
            parts = min(2 * parts, len(current))
    return current


__all__ = ["CURABLE", "Cure", "Demand", "Moved", "cure_of", "minimise", "used_pairs"]
