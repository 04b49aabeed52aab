"""Search for a cure: a mended document without the violations of the chosen changes and without new
violations, and its price.

    found = CureSearch(document=document, asked=asked, report=report).found()

A cure changes beliefs (lifetimes, single pairs, pins, sizes), slots, addresses, waits, uploads, and
pairs that are unsafe for a kernel (`allocsim.cure.changes`). Only slots that must move are moved.
If two buffers share bytes wrongly, either buffer may move. The choice with the lowest peak is
taken, then the choice with the fewest moved slots (`allocsim.cure.settling`). A moved slot gets
bytes that are free under every belief and every access of the program (`allocsim.cure.room`).

A cure is verified twice. The mended document is judged again: the violations of the chosen changes
must be gone, except violations that another cause also explains, and no violation may be new. If a
planner of this project makes exactly the given plan from its problem, that planner also plans the
mended problem anew, and the judge checks the new plan too (`planned_anew`). The price is the price
of the moved slots, or of the new plan if the caller names a planner. If the judge confirms no set
of changes, the result is None.

The price is the growth of the peaks, summed over the plans. If placing every buffer apart is a cure
as well, no cure costs more than that. A wait costs no bytes, but overlap: the number of pairs of
ops that can no longer run at once. A race caused by reuse can also be cured by placing its buffers
apart; the field `alternative` of the first cure has this second cure.

`minimal` is True if each change was left out once, and a violation came back each time.

Complexity: O(moved slots x buffers), plus a few checks of the document.

This module does not examine classes and parties, kernels and numbers (`repro.detectors`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

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

CURABLE: Final = (frozenset(MADE) | {"size", "slot", "state", "promise"}) - {"place", "apart"}
"""Kinds of proposed change that a cure can make; causes of other kinds have no cure."""

BY_SLOT: Final = frozenset({"slot", "stale", "address", "state"})
"""Kinds of change that planning with mended beliefs cannot make."""

LEAVE_OUT: Final = 6
"""The largest number of changes for which `minimal` is tried, by leaving out each change once."""

IN_TURN: Final = 6
"""The largest number of changes made one by one, each by its cheapest move (`_in_turn`)."""

STEPS: Final = 100_000
"""The default number of steps of one search (`allocsim.cure.effort`)."""

WORK: Final = 20_000
"""The work limit for judging moves of one slot, and for moves of two; a move costs ops +
violations."""

LEAST, MOST = 4, 12
"""The smallest and the largest number of moves that are judged, whatever `WORK` allows."""


@dataclass(kw_only=True)
class CureSearch:
    """A search for the cheapest cure of some changes, with its input and the best cure found so
    far.
    """

    document: Document
    """The document to cure."""
    asked: Charges
    """The changes to make, each with the violations that must vanish."""
    report: Report
    """The judge's report on `document`."""
    others: Charges = field(default_factory=dict)
    """Changes that are not made; violations that these changes also explain may stay."""
    planner: Allocator | None = None
    """The planner that plans anew. None: the planner that made the plan, if this project has it."""
    anew: bool = True
    """Whether the mended beliefs are planned anew."""
    judge: RuledJudge = listed
    """The judge, with the rules by which `report` was made."""
    effort: Effort = field(default_factory=partial(Effort, STEPS))
    """The steps that the search may take; after these, the best cure so far is returned, marked
    `cut`."""
    by_wait: bool = True
    """Whether races caused by reuse are cured by waits, or else by placing their buffers apart."""
    trials: int = field(default=0, init=False)
    """The number of documents judged."""
    best: Cure | None = field(default=None, init=False)
    """The cheapest cure found so far."""

    def found(self) -> Cure | None:
        """Return the cheapest cure found. Return None if a change is not in `CURABLE`, if the
        report omits violations, or if no cure was confirmed.
        """
        if not self.asked or any(change.kind not in CURABLE for change in self.asked):
            return None
        if self.report.count > len(self.report.violations):
            return None  # an unlisted violation would be mistaken for a new violation
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
        """Keys of the violations that must vanish."""
        asked, kept = (keys_of(v for rows in charges.values() for v in rows) for charges in (self.asked, self.others))
        return asked - kept

    @cached_property
    def before(self) -> frozenset[Key]:
        """Keys of the violations of `document`."""
        return keys_of(self.report.violations)

    @cached_property
    def tried(self) -> int:
        """The largest number of moves of one slot, and of moves of two slots, that are judged."""
        work = sum(len(run.program.ops) for run in self.document.runs) + len(self.report.violations)
        return min(max(WORK // max(work, 1), LEAST), MOST)

    def judged(self, document: Document) -> Report:
        """Judge a mended document and count it in `trials`. Raise SpentError without steps left."""
        report = self.effort.judged(self.judge, document)
        self.trials += 1
        return report

    def holds(self, document: Document) -> bool:
        """Whether a mended document has no violation of `gone` and no new violation."""
        report = self.judged(document)
        now = keys_of(report.violations)
        return report.count <= len(report.violations) and not now & self.gone and now <= self.before

    def lacks(self, document: Document, gone: frozenset[Key]) -> bool:
        """Whether a mended document has no violation of `gone`; new violations are allowed."""
        report = self.judged(document)
        return report.count == len(report.violations) and not keys_of(report.violations) & gone

    def _cheapest(self) -> Cure | None:
        """Return the cheapest cure; meanwhile `best` is the cheapest cure found so far."""
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
        """Return a confirmed cure that moves only the slots that its changes require, or None."""
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
        """Search for a cure that moves one or two slots and costs less than `best`: fewer bytes, or
        equally many bytes and fewer moved slots.
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
        """Return the values of `Rigour` to try: only `EVERYBODY` if no wait is added."""
        ordered = not self.by_wait and any(change.kind == "wait" for change in asked)
        return (Rigour.EVERYBODY,) if ordered else (Rigour.LIVING, Rigour.EVERYBODY)

    def _first(self, base: Draft, moves: Sequence[SlotMove]) -> None:
        """Try at most `tried` moves; set `best` to the first one that cures and costs less than
        `best`.
        """
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
        """Return a cure that makes the changes one after another, or None. Each change is made by
        the cheapest move of one slot, or of two slots if moving one slot costs bytes.
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
        """Whether a violation came back each time that one change was left out."""
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
        """Return a draft in which every change is made: waits, uploads, beliefs, then slots. No
        slot moves if `rigour` is None. Return None if there is no room for a slot.
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
        """Return a draft as a cure if the judge confirms it, else None."""
        mended = built(draft)
        return self._cure(draft, mended, placement) if self.holds(mended) else None

    def _cure(self, draft: Draft, mended: Document, placement: str) -> Cure:
        """Return a draft and its mended document as a cure with its price."""
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
        """Growth of the peaks with every buffer apart, in bytes, at least 0; None if this does not
        fit.
        """
        plans = all_apart(self.document)
        if plans is None:
            return None
        return max(sum(new.peak_bytes - old.peak_bytes for new, old in zip(plans, self.document.plans, strict=True)), 0)

    def _with_all_apart(self) -> Cure | None:
        """Return a confirmed cure that makes the changes and places every buffer apart, or None."""
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
        """Return a `kernel` change for each in-place pair that must be forbidden."""
        return [replace(change, kind="kernel") for change in self.asked if change.kind in UNSAFE_PAIR]

    def _anew(self) -> tuple[Draft, Document, bool] | None:
        """Return the newly planned draft, its document, and whether it cures; or None."""
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


__all__ = ["CURABLE", "STEPS", "Cure", "CureSearch"]
