"""The cure: for a chosen set of changes, what makes their violations vanish and adds none, and what
it costs.

    found = CureSearch(document=document, asked=asked, report=report).found()

What is changed: beliefs (lifetimes, single pairs, pins, sizes), slots, addresses, waits, uploads,
and pairs that are unsafe for a kernel (`allocsim.cure.changes`). Of a plan, only the slots move
that have to: of two buffers that meet either may give way, and what needs the fewest bytes, then
the fewest changes, is taken (`allocsim.cure.settling`). A moved slot goes where every belief and
every access of the program holds (`allocsim.cure.room`).

Verified twice. The mended document is judged again: the violations of the chosen changes are gone,
but for those that a change not chosen explains as well, and no violation is there that was not
before, whatever else is wrong. Where a planner of this project makes the very plan of its problem,
the mended problem is planned anew, and that plan is judged likewise (`planned_anew`). The price is
that of moving slots, or of the new plan where the caller names a planner. A set of changes that the
judge does not confirm is no cure: None is returned.

Price: how much the peaks grow, summed over the plans; where they do, never more than with
everything apart. A wait costs no bytes but overlap: the pairs of ops that can no longer run at
once. A race over reuse can also be cured by placing apart: that is the cure's `alternative`.

`minimal` says that each change was left out once and a violation came back.

Complexity: O(moved slots x buffers), and a few checks of the document.

What this module does not see: classes and parties, kernels and numbers (`repro.detectors`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, TypeVar

import numpy as np

from allocsim.allocators.planner import Allocator
from allocsim.cure.apart import all_apart
from allocsim.cure.changes import MADE, UNSAFE_PAIR, Change, Charges
from allocsim.cure.cured import Cure, words_of
from allocsim.cure.defects import Key, RuledJudge, key_of, keys_of, listed
from allocsim.cure.drafting import Draft, built, over_operands, peak_of, place_of, replan, waited_for
from allocsim.cure.effort import Effort, SpentError, steps_of_a_move
from allocsim.cure.few import FEW, SlotMove, bodies_of, double_moves_of, drafted, give_full_sizes, moved_off, moves_of
from allocsim.cure.mending import with_beliefs, with_more_waits, with_uploads
from allocsim.cure.pairs import without_positions
from allocsim.cure.pricing import grown, moves, overlap_lost, planner_of
from allocsim.cure.room import Rigour
from allocsim.cure.settling import settle
from allocsim.errors import AllocsimError
from allocsim.judge.violations import Report
from allocsim.model import Document, Plan

Part = TypeVar("Part")

CURABLE: Final = (frozenset(MADE) | {"size", "slot", "state", "promise"}) - {"place", "apart"}
"""Kinds proposed that a cure can make; others are for the program, kernel or planner's maker."""

BY_SLOT: Final = frozenset({"slot", "stale", "address", "state"})
"""Kinds of change that no belief planned anew would make."""

LEAVE_OUT: Final = 6
"""Most changes of which each is left out once, to show that none is for nothing."""

IN_TURN: Final = 6
"""Changes that are made one after another where they are not cured together."""

STEPS: Final = 100_000
"""Steps of one search, where its caller sets no others."""

WORK: Final = 20_000
"""Ops judged and violations listed for moves of one slot, and as many for moves of two."""

LEAST, MOST = 4, 12
"""Moves that are judged at least and at most, whatever that work."""


@dataclass(kw_only=True)
class CureSearch:
    """A search for the cheapest cure of what is asked for: what it is made from, and how far it
    came.
    """

    document: Document
    """What is wrong."""
    asked: Charges
    """Changes to be made, each with what is to vanish."""
    report: Report
    """What the judge says of `document`."""
    others: Charges = field(default_factory=dict)
    """Changes not to be made; what they explain as well may stay."""
    planner: Allocator | None = None
    """Who plans anew, whoever made the plans; None: whoever did, where that is one of ours."""
    anew: bool = True
    """Whether the mended beliefs are planned anew at all."""
    judge: RuledJudge = listed
    """The judge, with the rules by which `report` was made."""
    effort: Effort = field(default_factory=partial(Effort, STEPS))
    """The steps that may be taken; once they are spent the best cure so far is it, and is `cut`."""
    by_wait: bool = True
    """Whether waits cure races over reuse."""
    trials: int = field(default=0, init=False)
    """Documents judged."""
    best: Cure | None = field(default=None, init=False)
    """The cheapest cure so far."""

    def found(self) -> Cure | None:
        """Return the cure; None where a change cannot be made here, or none was found that the
        judge bears out.
        """
        if not self.asked or any(change.kind not in CURABLE for change in self.asked):
            return None
        if self.report.count > len(self.report.violations):
            return None  # what is not listed could not be told from what is new
        try:
            found = self._cheapest()
        except SpentError:
            found = None if self.best is None else replace(self.best, trials=self.trials, cut=True)
        by_wait = self.by_wait and any(change.kind == "wait" and change.plan is not None for change in self.asked)
        if found is None or not by_wait:
            return found
        return replace(found, alternative=replace(self, by_wait=False).found())

    @cached_property
    def gone(self) -> frozenset[Key]:
        """What is to vanish."""
        asked, kept = (keys_of(v for rows in charges.values() for v in rows) for charges in (self.asked, self.others))
        return asked - kept

    @cached_property
    def before(self) -> frozenset[Key]:
        """What was wrong before."""
        return keys_of(self.report.violations)

    @cached_property
    def tried(self) -> int:
        """How many moves are judged at most."""
        work = sum(len(run.program.ops) for run in self.document.runs) + len(self.report.violations)
        return min(max(WORK // max(work, 1), LEAST), MOST)

    def judged(self, document: Document) -> Report:
        """Judge a mended document, and count it; SpentError where no step is left."""
        report = self.effort.judged(self.judge, document)
        self.trials += 1
        return report

    def holds(self, document: Document) -> bool:
        """Whether the violations are gone in a mended document, and none is new."""
        report = self.judged(document)
        now = keys_of(report.violations)
        return report.count <= len(report.violations) and not now & self.gone and now <= self.before

    def lacks(self, document: Document, gone: frozenset[Key]) -> bool:
        """Whether violations are gone in a mended document, whatever else is there."""
        report = self.judged(document)
        return report.count == len(report.violations) and not keys_of(report.violations) & gone

    def _cheapest(self) -> Cure | None:
        """Return the cheapest cure; `best` is one at any time, where any is known."""
        self.best = self._amended()
        self._by_few()
        anew = self._anew()
        if self.best is None:
            self.best = self._with_all_apart()
        elif self._pin_all is not None and self.best.nbytes > self._pin_all:
            apart = self._with_all_apart()
            cheaper = self.best if apart is None or self.best.nbytes <= apart.nbytes else apart
            self.best = replace(cheaper, pin_all_bytes=None if apart is None else apart.pin_all_bytes)
        found = self.best
        if anew is not None:
            draft, mended, right = anew
            if right and self.planner is not None:
                found = self._cure(draft, mended, self.planner.name)
            found = None if found is None else replace(found, planned_anew=right)
        return None if found is None else replace(found, minimal=self._minimal(found), trials=self.trials)

    def _amended(self) -> Cure | None:
        """Return the cure that moves what has to move, if the judge bears it out."""
        for rigour in Rigour:
            draft = self._draft(self.asked, rigour)
            if draft is None or not draft.changes:
                continue
            found = self._borne_out(draft)
            if found is None and rigour is Rigour.LIVING:
                new = [v for v in self.judged(built(draft)).violations if key_of(v) not in self.before]
                if moved_off(draft, new, rigour) or waited_for(draft, new):
                    found = self._borne_out(draft)
            if found is not None:
                return found
        return None

    def _by_few(self) -> None:
        """Look for a cure that moves one slot or two and costs less than the best: fewer bytes, or
        as many and fewer slots moved.
        """
        known = all(change.kind in FEW and violations for change, violations in self.asked.items())
        least = self.best is not None and self.best.nbytes <= 0 and len(self.best.moved) <= 1
        base = self._draft(self.asked) if known and not least else None
        if base is None:
            return
        give_full_sizes(base, self.asked)
        bodies, rigours = bodies_of(base.document, self.asked), self._rigours(self.asked)
        self._first(base, moves_of(base.document, base.rooms, bodies, rigours))
        if self._may_cost_less():
            self._first(base, double_moves_of(base.document, base.rooms, bodies, rigours[0]))
        if self._may_cost_less() and 1 < len(self.asked) <= IN_TURN:
            turned = self._in_turn(base)
            if turned is not None and (self.best is None or turned.nbytes < self.best.nbytes):
                self.best = turned

    def _may_cost_less(self) -> bool:
        return self.best is None or self.best.nbytes > 0

    def _rigours(self, asked: Iterable[Change]) -> tuple[Rigour, ...]:
        """Return whom a slot avoids: everybody where streams have no common time."""
        ordered = not self.by_wait and any(change.kind == "wait" for change in asked)
        return (Rigour.EVERYBODY,) if ordered else (Rigour.LIVING, Rigour.EVERYBODY)

    def _first(self, base: Draft, moves: Sequence[SlotMove]) -> None:
        """Take the first move that cures and costs less than the best, of as many as are tried."""
        peak, price, tried = sum(plan.peak_bytes for plan in self.document.plans), steps_of_a_move(self.document), 0
        for move in moves:
            self.effort.begin()
            self.effort.take(price)
            draft = drafted(base, move, self.asked)
            costs = peak_of(draft) - peak, len(move.moved)
            if self.best is not None and costs >= (self.best.nbytes, len(self.best.moved)):
                continue
            if tried == self.tried:
                return
            tried += 1
            found = self._borne_out(draft)
            if found is not None:
                self.best = found
                return

    def _in_turn(self, base: Draft) -> Cure | None:
        """Return a cure that makes the changes one after another, each by the cheapest move of one
        slot, or of two where one costs bytes.
        """
        draft, gone = base, frozenset[Key]()
        for change, violations in self.asked.items():
            gone |= keys_of(violations) & self.gone
            if self.lacks(built(draft), gone):
                continue
            bodies, rigours = bodies_of(draft.document, {change: violations}), self._rigours([change])
            moves = moves_of(draft.document, draft.rooms, bodies, rigours)
            if not moves or moves[0].growth > 0:
                moves += double_moves_of(draft.document, draft.rooms, bodies, rigours[0])
            moves = sorted(moves, key=lambda move: (move.growth, len(move.moved)))[: self.tried]
            drafts = (drafted(draft, move, [change]) for move in moves)
            made = next((one for one in drafts if self.lacks(built(one), gone)), None)
            if made is None:
                return None
            draft = made
        return self._borne_out(draft) if draft.changes else None

    def _minimal(self, found: Cure) -> bool:
        """Whether leaving out any change brings a violation back."""
        if len(found.changes) != len(self.asked) or len(self.asked) > LEAVE_OUT:
            return False
        if len(self.asked) == 1:
            return bool(self.gone) or not UNSAFE_PAIR.isdisjoint(change.kind for change in self.asked)
        for left_out in self.asked:
            fewer = {change: violations for change, violations in self.asked.items() if change is not left_out}
            draft = self._draft(fewer, Rigour.LIVING)
            if draft is not None and self.holds(built(draft)):
                return False
        return True

    def _draft(self, asked: Charges, rigour: Rigour | None = None) -> Draft | None:
        """Return the document with every change made, in the order: order, host, beliefs, slots;
        no slot moves where no rigour is given. None where there is no room.
        """
        waits = [
            replace(change, plan=None)
            for change in asked
            if change.kind == "wait" and (self.by_wait or change.plan is None)
        ]
        uploads = [change for change in asked if change.kind == "upload"]
        document, beliefs = with_beliefs(with_uploads(with_more_waits(self.document, waits), uploads), asked)
        draft = Draft.of(document)
        draft.changes |= dict.fromkeys((*waits, *uploads, *beliefs))
        if rigour is not None and not all(
            settle(draft, change, violations, rigour, by_wait=self.by_wait) for change, violations in asked.items()
        ):
            return None
        for index, buffer, change in draft.told:
            draft.changes[place_of(draft, index, buffer, keeps=change.kind == "state")] = None
        return draft

    def _borne_out(self, draft: Draft, placement: str = "amended") -> Cure | None:
        """Return the cure that a draft is, if the judge bears it out."""
        mended = built(draft)
        return self._cure(draft, mended, placement) if self.holds(mended) else None

    def _cure(self, draft: Draft, mended: Document, placement: str) -> Cure:
        """Return the cure that a draft is, with its price."""
        changes = tuple(sorted(draft.changes, key=lambda change: change.order))
        return Cure(
            changes=changes,
            words=words_of(changes, mended),
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

    def _with_all_apart(self) -> Cure | None:
        """Return the same changes with every buffer apart, if the judge bears it out."""
        draft = self._draft(self.asked)
        plans = None if draft is None else all_apart(draft.document)
        if draft is None or plans is None:
            return None
        for index, plan in enumerate(plans):
            room = draft.rooms[index]
            room.arena, room.offset, room.nbytes = plan.arena.astype(np.int64), plan.offset, plan.nbytes
            draft.moved[index] = draft.resized[index] = set(range(len(plan.arena)))
            draft.changes[Change(kind="apart", plan=index)] = None
        if not all(replan(draft, change) for change in self.asked if change.kind == "stale"):
            return None
        draft.changes |= dict.fromkeys(self._spared())
        made = self._borne_out(draft, "apart")
        return None if made is None else replace(made, pin_all_bytes=max(made.nbytes, 0))

    def _spared(self) -> list[Change]:
        """Return the pairs of positions that are forbidden to kinds of op."""
        return [replace(change, kind="kernel") for change in self.asked if change.kind in UNSAFE_PAIR]

    def _anew(self) -> tuple[Draft, Document, bool] | None:
        """Plan the mended beliefs anew, where a planner of this project made the plans."""
        if not self.anew or any(change.kind in BY_SLOT for change in self.asked):
            return None
        planners = [planner_of(plan) if self.planner is None else self.planner for plan in self.document.plans]
        draft = self._draft(self.asked) if any(planners) else None
        if draft is None:
            return None
        spared = self._spared()
        draft.changes |= dict.fromkeys(spared)
        denied = {(one.op_kind or "", one.operand or 0, one.result or 0) for one in spared}

        def planned(planner: Allocator | None, plan: Plan) -> Plan:
            if planner is None or plan.problem is None:
                return plan
            return replace(planner.place(without_positions(plan.problem, denied)), problem=plan.problem)

        try:
            plans = [planned(*row) for row in zip(planners, draft.document.plans, strict=True)]
        except AllocsimError:
            return None
        mended = draft.document.with_parts(plans=plans)
        return (
            draft,
            mended,
            self.holds(mended) and not any(over_operands(plan, one) for plan in plans for one in spared),
        )


def minimise(elements: Sequence[Part], cures: Callable[[tuple[Part, ...]], bool]) -> tuple[Part, ...]:
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


__all__ = ["CURABLE", "STEPS", "Cure", "CureSearch", "minimise"]
