"""Find the mistake that let two buffers share bytes: the placement, or a false belief.

The mistakes are tried in this order: the plan was made for another program; the placement breaks
the plan's own problem; a false belief allowed the placement. If two lifetimes are false, and
correcting only one of them would keep the buffers apart, that lifetime is charged. If correcting
either lifetime would suffice, the lifetime of the buffer with the stale read is charged. If both
must be corrected, both are charged. A pair that may not share bytes is not charged if the donor's
or the recipient's lifetime is also wrong, because the wrong lifetime made the pair look safe.

If a problem states no `may_share`, a *hand-over* is legal: one believed life ends and the other
begins at one op, and that op declares the pair in place.

If a plan states no problem, default beliefs are assumed. Buffers that the host reads are pinned.
Parameters and states are kept apart. A stale read of any other buffer means that the planner
computed the buffer's last use too early.

This module does not examine classes, parties, and violations that concern a single buffer.
"""

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from allocsim.cure.changes import Change
from allocsim.cure.mending import index_of_part
from allocsim.judge.fast import Violation
from allocsim.model import HOST_READ, Plan, Problem
from allocsim.model.layout import Int64s
from allocsim.verdict.dossier import Dossier

Life = tuple[int, int]
Answer = tuple[Change, ...] | None
"""The changes that would keep two buffers apart; None if one of the two slots must move."""

SLOT: Final = None

IN_PLACE: Final = frozenset({"UnsafeInPlace", "AssumedInPlace"})
"""Kinds of violation for an op that runs in place although no alias contract allows it."""


class Pair(NamedTuple):
    """Two buffers that share bytes under a plan in a program's runs; the lower index is first."""

    plan: int
    program: int
    buffer: int
    other: int

    @property
    def buffers(self) -> tuple[int, int]:
        """The indices of the two buffers."""
        return self.buffer, self.other

    @classmethod
    def of(cls, v: Violation, other: int | None) -> "Pair | None":
        """Return the pair of v's buffer and `other`; None if a part is missing, or if equal."""
        if v.plan is None or v.program is None or v.buffer is None or other is None or other == v.buffer:
            return None
        return cls(v.plan, v.program, min(v.buffer, other), max(v.buffer, other))


def allowed_by(dossier: Dossier, pair: Pair, *, late: Collection[int], kinds: AbstractSet[str]) -> Answer:
    """Return the changes that would have kept the pair apart; None if a slot must move.

    `late`: the buffers of the pair that have a stale read. `kinds`: the kinds of the violations
    between the two buffers.
    """
    plan = dossier.document.plans[pair.plan]
    meeting = (True, frozenset(pair.buffers))
    if dossier.strange(pair.plan, pair.program) and meeting not in dossier.on_own_program(pair.plan):
        return (Change(kind="stale", plan=pair.plan, program=pair.program),)
    if plan.problem is None:
        return _unstated(dossier, pair, plan, late, kinds)
    return _stated(dossier, pair, plan.problem, late, kinds)


def _unstated(dossier: Dossier, pair: Pair, plan: Plan, late: Collection[int], kinds: AbstractSet[str]) -> Answer:
    program = plan.program
    short = _undersized(plan, pair.buffers, plan.nbytes)
    if short is not None:
        return (Change(kind="slot", plan=pair.plan, buffer=short),)
    if program.buffers.persistent[[*pair.buffers]].any():
        return SLOT
    if not kinds.isdisjoint({"ResultsOverlap", "AllocOverLive"}):
        return SLOT  # no lifetime is wrong: one op writes both, or the planner's events kept both alive
    if late:
        return tuple(Change(kind="lifetime", plan=pair.plan, buffer=buffer) for buffer in sorted(late))
    if not kinds.isdisjoint(IN_PLACE) and _at_one_address(dossier, pair, plan):
        whole, _ = dossier.lives(program)
        donor, recipient = sorted(pair.buffers, key=lambda buffer: (int(whole[buffer, 0]), int(whole[buffer, 1])))
        return (Change(kind="pair", plan=pair.plan, buffer=donor, other=recipient),)
    return SLOT


def _stated(dossier: Dossier, pair: Pair, problem: Problem, late: Collection[int], kinds: AbstractSet[str]) -> Answer:
    plan, (one, other) = dossier.document.plans[pair.plan], pair.buffers
    index = index_of_part(dossier.document.problems, problem)
    if not len(plan.program.ops):
        return SLOT
    short = _undersized(plan, (one, other), problem.nbytes)
    if short is not None:
        return (Change(kind="size", problem=index, buffer=short),)
    short = _undersized(plan, (one, other), plan.nbytes)
    if short is not None:
        return (Change(kind="slot", plan=pair.plan, buffer=short),)
    way = dossier.way(plan, one, other)
    if way is not None:
        bad = [step for step in way if kinds <= IN_PLACE or (index, *step) in dossier.bad_pairs]
        if bad:
            return tuple(dict.fromkeys(pair_mend(dossier, index, *step) for step in bad))
    if problem.own[one] or problem.own[other]:
        return SLOT
    if _meet(_believed(problem, one), _believed(problem, other)) and not _handed_over(plan, problem, one, other):
        return SLOT
    return _false_lives(dossier, pair, problem, late)


def _false_lives(dossier: Dossier, pair: Pair, problem: Problem, late: Collection[int]) -> Answer:
    whole, _ = dossier.lives(problem.program)
    real = {buffer: (int(whole[buffer, 0]), int(whole[buffer, 1])) for buffer in pair.buffers}
    partner = dict(zip(pair.buffers, reversed(pair.buffers), strict=True))
    wrong = [buffer for buffer in pair.buffers if not _covers(problem, buffer, real[buffer])]
    chosen = [buffer for buffer in wrong if _meet([real[buffer]], _believed(problem, partner[buffer]))] or wrong
    if len(chosen) > 1 and chosen is not wrong:
        victims = [buffer for buffer in chosen if buffer in late]
        chosen = [victims[0] if victims else min(chosen, key=lambda buffer: real[buffer])]
    index = index_of_part(dossier.document.problems, problem)
    lives = [life_mend(dossier, index, buffer, _believed(problem, partner[buffer])) for buffer in chosen]
    return tuple(lives) or SLOT


def life_mend(dossier: Dossier, problem: int, buffer: int, partner: Collection[Life] = ()) -> Change:
    """Return the mend of a wrong lifetime: a pin or a longer lifetime. The mend is a pin if the
    buffer is not pinned and the lifetime leaves out only reads by the host.

    If the lives of a `partner` are given, a pin is also enough if the other accesses lie outside
    these lives.
    """
    belief = dossier.document.problems[problem]
    whole, unread = dossier.lives(belief.program)
    untold = not belief.pinned[buffer] and whole[buffer, 1] > max(int(unread[buffer, 1]), int(belief.stop[buffer]))
    if untold and belief.program.ops.is_kind(HOST_READ)[whole[buffer, 1] - 1]:
        life = int(whole[buffer, 0]), int(unread[buffer, 1])
        if _covers(belief, buffer, life) or (partner and not _meet([life], partner)):
            return Change(kind="pin", problem=problem, buffer=buffer)
    return Change(kind="lifetime", problem=problem, buffer=buffer)


def pair_mend(dossier: Dossier, problem: int, donor: int, recipient: int) -> Change:
    """Return the mend of a wrong pair, or of the wrong lifetime that made the pair look safe."""
    belief = dossier.document.problems[problem]
    whole, _ = dossier.lives(belief.program)
    if (problem, donor) in dossier.short and int(belief.stop[donor]) < int(whole[donor, 1]):
        return life_mend(dossier, problem, donor)
    if (problem, recipient) in dossier.short and int(belief.start[recipient]) > int(whole[recipient, 0]):
        return life_mend(dossier, problem, recipient)
    return Change(kind="pair", problem=problem, buffer=donor, other=recipient)


def _undersized(plan: Plan, pair: tuple[int, int], nbytes: Int64s) -> int | None:
    """Return the buffer that overlaps the other only by bytes beyond its own `nbytes`, or None."""
    low, high = sorted(pair, key=lambda buffer: int(plan.offset[buffer]))
    if int(plan.offset[low]) == int(plan.offset[high]):
        return next((buffer for buffer in pair if not nbytes[buffer]), None)
    meets = int(plan.offset[low]) + int(nbytes[low]) > int(plan.offset[high])
    return None if meets or int(nbytes[low]) >= int(plan.program.buffers.nbytes[low]) else low


def _at_one_address(dossier: Dossier, pair: Pair, plan: Plan) -> bool:
    """Whether both slots begin at one address, or an operand in one slot and a result of the same
    op in the other slot do.
    """
    if plan.offset[pair.buffer] == plan.offset[pair.other]:
        return True
    return any(
        {int(run.program.values.buffer[value]) for value in (op.operands[o], op.results[r])} == {*pair.buffers}
        for run in dossier.runs
        if run.plan is plan
        for step, o, r in dossier.aliases(plan, run.program)
        for op in [run.program.ops[step]]
    )


def _believed(problem: Problem, buffer: int) -> list[Life]:
    """Return the believed life of a buffer without its gaps, as half-open ranges of steps."""
    start, stop = int(problem.start[buffer]), int(problem.stop[buffer])
    left = []
    for low, high in sorted(gap for gap in problem.gaps.get(buffer, ()) if gap[0] < gap[1]):
        left.append((start, min(low, stop)))
        start = max(start, high)
    return [life for life in (*left, (start, stop)) if life[0] < life[1]]


def _covers(problem: Problem, buffer: int, life: Life) -> bool:
    if life[0] >= life[1]:
        return True
    return any(start <= life[0] and life[1] <= stop for start, stop in _believed(problem, buffer))


def _meet(one: Collection[Life], other: Collection[Life]) -> bool:
    return any(max(a[0], b[0]) < min(a[1], b[1]) for a in one for b in other)


def _handed_over(plan: Plan, problem: Problem, one: int, other: int) -> bool:
    """Whether one buffer is handed over to the other at one address. Their believed lives must
    share exactly one op, that op must declare the pair in place, and the problem must not state
    `may_share`.
    """
    if "may_share" in problem.stated or int(plan.offset[one]) != int(plan.offset[other]):
        return False
    for donor, recipient in ((one, other), (other, one)):
        op = int(problem.start[recipient])
        if int(problem.stop[donor]) - 1 != op or not 0 <= op < len(plan.program.ops):
            continue
        row, home = plan.program.ops[op], plan.program.values.buffer
        for operand, result in row.in_place or ():
            if home[row.operands[operand]] == donor and home[row.results[result]] == recipient:
                return True
    return False
