"""The cure: for a chosen set of mends, the changes that make their violations vanish and add none,
and what they cost.

    found = cure_of(document, demands, report)        # demands: mends, each with the violations it explains

What is changed: beliefs (lifetimes, single pairs, pins, sizes), slots, addresses, waits, uploads,
and pairs that are unsafe for a kernel (`allocsim.cure.elements`). Of a plan, only the slots move
that have to: of two buffers that meet either may give way, and what needs the fewest bytes, then
the fewest changes, is taken (`allocsim.cure.room`). A moved slot goes where every belief and every
access of the program holds.

Verified twice. The mended document is judged again: the violations of the chosen mends are gone,
but for those that a mend not chosen explains as well, and no violation is there that was not
before, whatever else is wrong. Where the plan is one that a planner of this project makes of its
problem, the mended problem is planned anew, and that plan is judged likewise (`planned_anew`); the
price is that of the slots moved, whoever planned, but where the caller names a planner. A set for
which the judge does not say so is no cure, and None is returned.

Price: how much the peaks grow, summed over the plans; where they do, never more than with
everything apart. A wait costs no bytes but overlap: the pairs of ops that can no longer run at
once. A race over reuse can also be cured by placing apart: that is the cure's `alternative`.

`minimal` says that each element was left out once and a violation came back.

Complexity: O(moved slots x buffers), and a few checks of the document.

What this module does not see: classes and parties, kernels and numbers (`repro.detectors`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from allocsim.allocators.planner import Allocator
from allocsim.cure.apart import all_apart
from allocsim.cure.cured import Cure, Demand, Moved, words_of
from allocsim.cure.defects import Judged, Key, key_of, keys_of, listed
from allocsim.cure.drafting import (
    Draft,
    apart_already,
    built,
    denials_of,
    in_other_plans,
    is_own,
    meeting_in_place,
    partners_at,
    place_of,
    replan,
    spared,
    wait_of,
    waited_for,
)
from allocsim.cure.elements import Address, AllApart, Upload, order_of
from allocsim.cure.few import FEW, SlotMove, bodies_of, double_moves_of, drafted, give_full_sizes, moved_off, moves_of
from allocsim.cure.mending import (
    edges_of,
    index_of_part,
    plans_of,
    with_beliefs,
    with_more_waits,
    with_parts,
    with_uploads,
)
from allocsim.cure.mends import Mend
from allocsim.cure.pairs import used_pairs, without_positions
from allocsim.cure.pricing import grown, moves, overlap_lost, planner_of
from allocsim.cure.room import Rigour, Room
from allocsim.errors import AllocsimError
from allocsim.judge.violations import Report, Violation
from allocsim.model import OWN, Document

Change = TypeVar("Change")

CURABLE: Final = frozenset(
    {"lifetime", "pair", "pin", "size", "slot", "address", "stale", "upload", "state", "wait", "kernel", "promise"}
)
"""Kinds of mend that a change here can make.

The others are for whoever writes the program, the kernel or the planner.
"""

LEAVE_OUT: Final = 6
"""Elements of which each is left out once, to show that none is for nothing.

Of more, that is not claimed.
"""

IN_TURN: Final = 6
"""Mends that are made one after another where they are not cured together."""

WORK: Final = 20_000
"""Ops judged and violations listed for moves of one slot, and as many for moves of two."""

LEAST, MOST = 4, 12
"""Moves that are judged at least and at most, whatever that work."""


def cure_of(
    document: Document,
    demands: Sequence[Demand],
    report: Report,
    *,
    others: Sequence[Demand] = (),
    planner: Allocator | None = None,
    anew: bool = True,
    judged: Judged = listed,
) -> Cure | None:
    """Return a cure of the mends demanded, None where one of them cannot be made here or none was
    found that the judge bears out.

    Args:
        document: what is wrong.
        demands: mends to be made; all of a kind in `CURABLE`.
        report: what the judge says of `document`.
        others: mends not to be made; what they explain as well may stay.
        planner: who plans anew, whoever made the plans; by default whoever did, where that is one
            of ours.
        anew: whether the mended beliefs are planned anew at all.
        judged: the judge, with the rules by which `report` was made.
    """
    if not demands or any(demand.mend.kind not in CURABLE for demand in demands):
        return None
    if report.count > len(report.violations):
        return None  # what is not listed could not be told from what is new
    task = _Task(document, demands, report, others, planner, anew=anew, judged=judged)
    found = task.solve(by_wait=True)
    if found is None or not any(demand.mend.kind == "wait" and demand.mend.plan is not None for demand in demands):
        return found
    return replace(found, alternative=task.solve(by_wait=False))


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
        judged: Judged = listed,
    ) -> None:
        self.document, self.demands = document, tuple(demands)
        self.before = keys_of(report.violations)
        kept = keys_of(v for other in others for v in other.violations)
        self.gone = keys_of(v for demand in demands for v in demand.violations) - kept
        self.trials = 0
        self.planner, self.anew, self.judged = planner, anew, judged
        work = sum(len(run.program.ops) for run in document.runs) + len(report.violations)
        self.tried = min(max(WORK // max(work, 1), LEAST), MOST)

    def holds(self, document: Document, gone: frozenset[Key] | None = None) -> bool:
        """Whether the violations are gone in a mended document, and none is new."""
        self.trials += 1
        report = self.judged(document)
        if report.count > len(report.violations):
            return False
        now = keys_of(report.violations)
        return not now & (self.gone if gone is None else gone) and now <= self.before

    def new(self, document: Document) -> tuple[Violation, ...]:
        """Return what is wrong with a mended document and was not before."""
        self.trials += 1
        return tuple(v for v in self.judged(document).violations if key_of(v) not in self.before)

    def lacks(self, document: Document, gone: frozenset[Key]) -> bool:
        """Whether violations are gone in a mended document, whatever else is there."""
        self.trials += 1
        report = self.judged(document)
        return report.count == len(report.violations) and not keys_of(report.violations) & gone

    def solve(self, *, by_wait: bool) -> Cure | None:
        """Return the cheapest cure found, races over reuse cured by waits or by placing apart."""
        found = self._amended(by_wait=by_wait)
        found = self._by_few(found, by_wait=by_wait) or found
        anew = self._anew(by_wait=by_wait)
        if found is None:
            found = self._with_all_apart(by_wait=by_wait)
        elif self._pin_all is not None and found.nbytes > self._pin_all:
            apart = self._with_all_apart(by_wait=by_wait)
            best = found if apart is None or found.nbytes <= apart.nbytes else apart
            found = replace(best, pin_all_bytes=None if apart is None else apart.pin_all_bytes)
        if anew is not None:
            draft, mended, right = anew
            found = None if found is None else replace(found, planned_anew=right)
            if right and self.planner is not None:
                found = replace(self._cure(draft, mended, self.planner.name), planned_anew=True)
        if found is None:
            return None
        return replace(found, minimal=self._minimal(found, by_wait=by_wait), trials=self.trials)

    def _amended(self, *, by_wait: bool) -> Cure | None:
        """Return the cure that moves what has to move for each mend, if the judge bears it out."""
        for rigour in Rigour:
            draft = self._draft(self.demands, rigour, by_wait=by_wait)
            if draft is None or not draft.elements:
                continue
            mended = built(draft)
            if self.holds(mended):
                return self._cure(draft, mended, "amended")
            if rigour is Rigour.LIVING:
                new = self.new(mended)
                if moved_off(draft, new, rigour) or waited_for(draft, new):
                    mended = built(draft)
                    if self.holds(mended):
                        return self._cure(draft, mended, "amended")
        return None

    def _by_few(self, found: Cure | None, *, by_wait: bool) -> Cure | None:
        """Return a cure that moves one slot or two and costs less than the one found.

        Less is fewer bytes, or as many and fewer slots moved. None where no such cure was found.
        """
        known = all(demand.mend.kind in FEW and demand.violations for demand in self.demands)
        if not known or (found is not None and found.nbytes <= 0 and len(found.moved) <= 1):
            return None
        base = self._draft(self.demands, Rigour.LIVING, by_wait=by_wait, place=False)
        if base is None:
            return None
        give_full_sizes(base, self.demands)
        bodies, rigours = bodies_of(base.document, self.demands), self._rigours(self.demands, by_wait=by_wait)
        best = self._first(base, moves_of(base.document, base.rooms, bodies, rigours), found)
        less = best or found
        if less is None or less.nbytes > 0:
            best = self._first(base, double_moves_of(base.document, base.rooms, bodies, rigours[0]), less) or best
        less = best or found
        if (less is None or less.nbytes > 0) and 1 < len(self.demands) <= IN_TURN:
            turned = self._in_turn(base, by_wait=by_wait)
            if turned is not None and (less is None or turned.nbytes < less.nbytes):
                return turned
        return best

    def _rigours(self, demands: Sequence[Demand], *, by_wait: bool) -> tuple[Rigour, ...]:
        """Return whom a slot avoids: everybody where streams have no common time."""
        ordered = any(demand.mend.kind == "wait" for demand in demands) and not by_wait
        return (Rigour.EVERYBODY,) if ordered else (Rigour.LIVING, Rigour.EVERYBODY)

    def _first(self, base: Draft, moves: Sequence[SlotMove], than: Cure | None) -> Cure | None:
        """Return the first of the moves that cures and costs less than a cure, of as many
        as are tried.
        """
        limit = None if than is None else (than.nbytes, len(than.moved))
        tried = 0
        for move in moves:
            draft = drafted(base, move, self.demands)
            mended = built(draft)
            if limit is not None and (grown(self.document, mended), len(move.moved)) >= limit:
                continue
            if tried >= self.tried:
                return None
            tried += 1
            if self.holds(mended):
                return self._cure(draft, mended, "amended")
        return None

    def _in_turn(self, base: Draft, *, by_wait: bool) -> Cure | None:
        """Return a cure that makes the mends one after another, each by the cheapest move of one
        slot, or of two where one costs bytes.
        """
        draft, gone = base, frozenset[Key]()
        for demand in self.demands:
            gone |= keys_of(demand.violations) & self.gone
            if self.lacks(built(draft), gone):
                continue
            bodies, rigours = bodies_of(draft.document, [demand]), self._rigours([demand], by_wait=by_wait)
            moves = moves_of(draft.document, draft.rooms, bodies, rigours)
            if not moves or moves[0].growth > 0:
                moves += double_moves_of(draft.document, draft.rooms, bodies, rigours[0])
            moves = sorted(moves, key=lambda move: (move.growth, len(move.moved)))[: self.tried]
            drafts = (drafted(draft, move, [demand]) for move in moves)
            made = next((one for one in drafts if self.lacks(built(one), gone)), None)
            if made is None:
                return None
            draft = made
        mended = built(draft)
        return self._cure(draft, mended, "amended") if draft.elements and self.holds(mended) else None

    def _minimal(self, found: Cure, *, by_wait: bool) -> bool:
        """Whether leaving out any element brings a violation back."""
        if len(found.elements) != len(self.demands) or len(self.demands) > LEAVE_OUT:
            return False
        if len(self.demands) == 1:
            return bool(self.gone) or self.demands[0].mend.kind in {"kernel", "promise"}
        for left_out in self.demands:
            fewer = [demand for demand in self.demands if demand is not left_out]
            draft = self._draft(fewer, Rigour.LIVING, by_wait=by_wait)
            if draft is not None and self.holds(built(draft)):
                return False
        return True

    # drafts ---------------------------------------------------------------------------------------

    def _draft(self, demands: Sequence[Demand], rigour: Rigour, *, by_wait: bool, place: bool = True) -> Draft | None:
        """Return the document with every mend made, in the order: order, host, beliefs, slots."""
        draft = Draft(document=self.document, rooms={}, elements={}, moved=defaultdict(set), resized=defaultdict(set))
        waits = [wait_of(d.mend) for d in demands if d.mend.kind == "wait" and (by_wait or d.mend.plan is None)]
        draft.document = with_uploads(
            with_more_waits(draft.document, waits), [d.mend for d in demands if d.mend.kind == "upload"]
        )
        draft.elements |= dict.fromkeys(waits)
        for demand in demands:
            if demand.mend.kind == "upload":
                draft.elements[Upload(program=demand.mend.program or 0, op=demand.mend.op or 0)] = None
        draft.document, elements = with_beliefs(draft.document, demands)
        draft.elements |= dict.fromkeys(elements)
        for index, plan in enumerate(draft.document.plans):
            draft.rooms[index] = Room.of(draft.document, plan)
        for demand in demands if place else ():
            if not self._settle(draft, demand, rigour, by_wait=by_wait):
                return None
        for index, buffer, mend in draft.wheres:
            draft.elements[place_of(draft, index, buffer, keeps=mend.kind == "state")] = None
        return draft

    def _settle(self, draft: Draft, demand: Demand, rigour: Rigour, *, by_wait: bool) -> bool:
        """Move the slots that a mend takes; False where there is no room."""
        mend = demand.mend
        if mend.kind == "upload" or (mend.kind == "wait" and (by_wait or mend.plan is None)):
            return True
        if mend.kind == "stale":
            return replan(draft, mend)
        if mend.kind in {"kernel", "promise"}:
            draft.elements[spared(mend)] = None
            return self._denied(draft, mend, rigour)
        if mend.kind == "address":
            return self._readdressed(draft, mend, rigour)
        edges = edges_of(self.document, demand)
        if mend.kind in {"slot", "state"} and mend.plan is None:
            edges |= {index: set() for index in plans_of(self.document, mend)}
        if mend.kind in {"slot", "size", "state"}:
            for index in plans_of(self.document, mend):
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

    def _parted(self, draft: Draft, index: int, pairs: set[tuple[int, int]], demand: Demand, rigour: Rigour) -> bool:
        """Part the pairs of a plan: the buffer of the mend gives way, or all it meets."""
        mend, plan = demand.mend, draft.document.plans[index]
        focus = mend.buffer
        own_faults = any(v.other_buffer is None and v.plan == index and v.buffer == focus for v in demand.violations)
        if mend.kind == "size" or (mend.kind == "slot" and own_faults):
            draft.resized[index].add(focus or 0)
        problem = plan.problem
        told_own = problem is not None and focus is not None and bool(problem.own[focus])
        lasting = focus is not None and in_other_plans(draft.document, index, focus)
        if mend.kind == "slot" and focus is not None and told_own and not lasting and not is_own(draft, index, focus):
            draft.rooms[index].arena[focus] = OWN
            draft.moved[index].add(focus)
            draft.wheres.append((index, focus, mend))
            return True
        left = {pair for pair in pairs if not apart_already(draft.rooms[index], pair)}
        if not left and mend.kind in {"lifetime", "pin", "pair"}:
            return True
        options: list[tuple[set[int], bool]] = []
        room = draft.rooms[index]
        in_time = {
            pair: sorted(
                pair, key=lambda b: (int(room.start[b]), int(room.stop[b]), int(room.first[b]), int(room.nbytes[b]))
            )
            for pair in left
        }
        if focus is not None:
            touched = {pair for pair in left if focus in pair}
            rest = {in_time[pair][1] for pair in left - touched}
            stay = mend.kind in {"size", "slot"} and own_faults
            if not lasting:
                options.append(({focus} | rest, stay))
            partners = {one if other == focus else other for one, other in touched}
            if partners and not own_faults:
                options.append((partners | rest, False))
            if mend.kind == "pair" and mend.other is not None:
                options.append(({mend.other} | rest, False))
        else:
            options += [
                ({pair[1] for pair in in_time.values()}, False),
                ({pair[0] for pair in in_time.values()}, False),
            ]
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

    def _readdressed(self, draft: Draft, mend: Mend, rigour: Rigour) -> bool:
        """Give a buffer that lasts the address it has where it is first, in every plan.

        Who is in the way gives way.
        """
        index, buffer = mend.plan or 0, mend.buffer or 0
        name = draft.document.plans[index].program.buffers.names[buffer]
        home: tuple[int, int] | None = None
        for run in draft.document.runs:
            at = index_of_part(draft.document.plans, run.plan)
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

    def _denied(self, draft: Draft, mend: Mend, rigour: Rigour) -> bool:
        """Part every operand and result of a kind of op that lie at one address by plan."""
        for index, plan in enumerate(draft.document.plans):
            recipients = {result for operand, result in meeting_in_place(plan, mend) if operand != result}
            if not recipients:
                continue
            room = draft.rooms[index]
            if not room.move(recipients, rigour):
                return False
            draft.moved[index] |= recipients
        return True

    # prices ---------------------------------------------------------------------------------------

    def _cure(self, draft: Draft, mended: Document, placement: str) -> Cure:
        elements = tuple(sorted(draft.elements, key=order_of))
        return Cure(
            elements=elements,
            words=words_of(elements, mended),
            nbytes=grown(self.document, mended),
            pin_all_bytes=self._pin_all,
            overlap=overlap_lost(self.document, mended),
            verified=True,
            planned_anew=None,
            placement=placement,
            minimal=False,
            trials=self.trials,
            moved=tuple(moves(self.document, mended)),
            document=mended,
            before=self.document,
        )

    @cached_property
    def _pin_all(self) -> int | None:
        """How much the peaks grow with every buffer apart; nothing where they shrink."""
        plans = all_apart(self.document)
        if plans is None:
            return None
        return max(sum(new.peak_bytes - old.peak_bytes for new, old in zip(plans, self.document.plans, strict=True)), 0)

    def _with_all_apart(self, *, by_wait: bool) -> Cure | None:
        """Return the same mends with every buffer apart, if the judge bears it out."""
        draft = self._draft(self.demands, Rigour.LIVING, by_wait=by_wait, place=False)
        plans = None if draft is None else all_apart(draft.document)
        if draft is None or plans is None:
            return None
        for index, plan in enumerate(plans):
            room = draft.rooms[index]
            room.arena, room.offset, room.nbytes = plan.arena.astype(np.int64), plan.offset, plan.nbytes
            draft.moved[index] = draft.resized[index] = set(range(len(plan.arena)))
            draft.elements[AllApart(plan=index)] = None
        for demand in self.demands:
            if not _also_asked(draft, demand.mend):
                return None
        mended = built(draft)
        if not self.holds(mended):
            return None
        made = self._cure(draft, mended, "apart")
        return replace(made, pin_all_bytes=max(made.nbytes, 0))

    def _anew(self, *, by_wait: bool) -> tuple[Draft, Document, bool] | None:
        """Plan the mended beliefs anew, where a planner of this project made the plans of
        theirs.
        """
        if not self.anew or any(d.mend.kind in {"slot", "stale", "address", "state"} for d in self.demands):
            return None
        planners = [planner_of(plan) if self.planner is None else self.planner for plan in self.document.plans]
        if not any(planners):
            return None
        draft = self._draft(self.demands, Rigour.LIVING, by_wait=by_wait, place=False)
        if draft is None:
            return None
        for demand in self.demands:
            if demand.mend.kind in {"kernel", "promise"}:
                draft.elements[spared(demand.mend)] = None
        plans = []
        for planner, plan in zip(planners, draft.document.plans, strict=True):
            if planner is None or plan.problem is None:
                plans.append(plan)
                continue
            try:
                plans.append(
                    replace(
                        planner.place(without_positions(plan.problem, denials_of(self.demands))), problem=plan.problem
                    )
                )
            except AllocsimError:
                return None
        mended = with_parts(draft.document, plans=plans)
        right = self.holds(mended) and not any(
            operand != result
            for plan in mended.plans
            for demand in self.demands
            if demand.mend.kind in {"kernel", "promise"}
            for operand, result in meeting_in_place(plan, demand.mend)
        )
        return draft, mended, right


def minimise(elements: Sequence[Change], cures: Callable[[tuple[Change, ...]], bool]) -> tuple[Change, ...]:
    """Return a 1-minimal subset of `elements` for which `cures` holds, given that it holds for all
    of them.

    Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
    2002, ddmin). Deterministic; at most O(n^2) calls, O(k log n) where few (k) elements matter.
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


def _also_asked(draft: Draft, mend: Mend) -> bool:
    """Note what a mend asks for beside that every buffer lies apart.

    False where no plan can be made for another program.
    """
    if mend.kind == "stale":
        return replan(draft, mend)
    if mend.kind in {"kernel", "promise"}:
        draft.elements[spared(mend)] = None
    return True


__all__ = ["CURABLE", "Cure", "Demand", "Moved", "cure_of", "minimise", "used_pairs"]
