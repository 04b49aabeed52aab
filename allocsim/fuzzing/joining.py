"""Which findings are one defect: those that one mend of the planner's answers explains.

    for defect in joined(result.findings):
        print(defect.smallest.message, len(defect.symptoms), defect.mend)

A finding whose case is answered by a plan is looked at buffer by buffer: what did the answer count
on that is not so? That a buffer is dead though it is read through a view, that an offset need not
be a multiple, that a pin was not told. Each such *mistake* has the mends that would set it right
(`MENDED`): ways to answer, in words that name no buffer and no number. A mend explains a finding if
it sets right all its mistakes, and if the answer is clean once the buffers concerned are kept apart
(so that nothing was overlooked). Findings that one mend explains are one defect; the mend that
explains most is taken first, of equal ones the first of the table.

A planner may have two defects that one mend would explain: they are joined, and tell apart as soon
as one is mended. What no mend explains stands alone.

Looked at are findings of `JUDGED`, of at most `LONGEST` ops. O(ops + pairs of buffers) for each,
and one check. What this module does not see: how findings come about.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from allocsim.allocators import exact, pin_reads
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.fuzzing.properties import with_pins_read
from allocsim.judge.fast import defects
from allocsim.model import HOST_READ, HOST_WRITE, OWN, VIEW, Document, Plan, Program

JUDGED: Final = frozenset({"sound", "pins", "kept", "told"})
"""Properties whose findings are looked at."""

LONGEST: Final = 300

LATER: Final = 1 << 40
"""The step of the end of the run, for what is pinned."""

MENDED: Final[dict[str, str]] = {
    "offset": "offsets are multiples of the buffer's alignment",
    "size": "a slot has all bytes of its buffer and lies in its arena",
    "fixed": "a buffer whose offset is decided lies there",
    "own": "memory of its own is for what was told, and for nothing else",
    "host": "what the host reads is kept until then",
    "pin": "what is pinned is kept to the end of the run",
    "kept": "what is pinned, or read by the host, is kept until then",
    "view": "a read through a view is a use of the buffer it lies in",
    "state": "parameters and states are kept through the whole run",
    "unread": "what nobody reads is kept while it is written",
    "mutation": "a write into a buffer that lives is a use of it",
    "stream": "a use on another stream than the first is one",
    "operand": "an op uses all its operands, not the first alone",
    "third": "an op uses its third operand and those after it",
    "step": "a life ends a step later, after its last use",
    "reader": "a life ends with the last reader, not with an earlier one",
    "input": "an input is kept until its last use",
    "undeclared": "a result takes the place of an operand only where the op declares it",
    "donor": "a donor gives its place to one recipient, and only where nobody needs it any more",
    "slot": "buffers that are believed to live at once lie apart",
}
"""Mends by name, those that say most first.

Of two that explain as many findings the first is taken.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedFindings:
    """Findings that one mend explains, or one finding."""

    mend: str
    """A key of `MENDED`; empty for a finding that stands alone."""
    symptoms: tuple[BrokenProperty, ...]
    """The smallest first."""

    @property
    def smallest(self) -> BrokenProperty:
        """The finding that shows the defect best."""
        return self.symptoms[0]


def joined(findings: Sequence[BrokenProperty]) -> tuple[JoinedFindings, ...]:
    """Return the defects that findings are symptoms of, in the order of the first of each."""
    explained = {finding.key: mends_of(finding) for finding in findings}
    mend_of: dict[str, str] = {}
    left = {key for key, mends in explained.items() if mends}
    while left:
        counts = Counter(mend for key in left for mend in explained[key])
        best = max(MENDED, key=lambda mend: (counts[mend], -list(MENDED).index(mend)))
        if counts[best] < 2:
            break
        taken = {key for key in left if best in explained[key]}
        mend_of |= dict.fromkeys(taken, best)
        left -= taken
    groups: dict[str, list[BrokenProperty]] = defaultdict(list)
    for finding in findings:
        groups[mend_of.get(finding.key, finding.key)].append(finding)
    return tuple(
        JoinedFindings(mend=name if name in MENDED else "", symptoms=tuple(members)) for name, members in groups.items()
    )


def mends_of(finding: BrokenProperty) -> frozenset[str]:
    """Return the mends of which each explains a finding, none where no one does."""
    if finding.breaks not in JUDGED or finding.before or len(finding.case.program.ops) > LONGEST:
        return frozenset()
    if len(finding.document.plans) != 1:
        return frozenset()
    plan = finding.document.plans[0]
    answer = _Answered(finding.case, plan)
    mistakes = dict(answer.mistakes())
    if not mistakes or not answer.clean_apart(list(mistakes)):
        return frozenset()
    return frozenset.intersection(*mistakes.values())


@dataclass(frozen=True, slots=True)
class _Use:
    """A use of a buffer by an op, or by who pinned it."""

    step: int
    writes: bool = False
    by_view: bool = False
    by_host: bool = False
    place: int = 0
    stream: int = 0
    pinned: bool = False


class _Answered:
    """A case with its plan, looked at buffer by buffer."""

    def __init__(self, case: FuzzCase, plan: Plan) -> None:
        self.case, self.plan, self.program = case, plan, plan.program
        self.told = case.constraints
        self.uses = _uses(self.program)
        to_the_end = self.told.pinned & ~(pin_reads(self.program) & (case.kind == "plain"))
        for buffer in np.flatnonzero(to_the_end).tolist():
            if self.uses[buffer]:
                self.uses[buffer].append(_Use(step=LATER, pinned=True))
        self.pairs = {tuple(pair) for pair in exact.believe(self.program, self.told).may_share.tolist()}
        self.ends = {buffer: (uses[0].step, uses[-1].step + 1) for buffer, uses in self.uses.items() if uses}
        for buffer in np.flatnonzero(self.program.buffers.persistent).tolist():
            if buffer in self.ends:
                self.ends[buffer] = (-1, LATER + 1)
        self.short = sorted(self._short())

    def mistakes(self) -> Iterator[tuple[int, frozenset[str]]]:
        """Yield each buffer that the answer is mistaken in, with the mends that set it right."""
        found: dict[int, frozenset[str]] = {}

        def note(buffer: int, mends: frozenset[str]) -> None:
            found[buffer] = found[buffer] & mends if buffer in found else mends

        for buffer, mend in self._misplaced():
            note(buffer, frozenset({mend}))
        for one, other in self._overlaps():
            victim, mends = self._meeting(one, other)
            note(victim, mends)
        for buffer in self.short:
            note(buffer, self._late(buffer, self._believed(buffer)[1], self._believed(buffer)[0]))
        yield from found.items()

    def _misplaced(self) -> Iterator[tuple[int, str]]:
        plan, buffers = self.plan, self.program.buffers
        for buffer in range(len(buffers)):
            inside, offset = bool(plan.arena[buffer] >= 0), int(plan.offset[buffer])
            if inside and offset % int(buffers.alignment[buffer]):
                yield buffer, "offset"
            short = plan.nbytes[buffer] < buffers.nbytes[buffer] or plan.arena[buffer] != buffers.arena[buffer]
            if inside and (short or offset < 0):
                yield buffer, "size"
            apart = bool(plan.arena[buffer] == OWN) != bool(self.told.own[buffer])
            if apart and buffer in self.ends and buffers.nbytes[buffer]:
                yield buffer, "own"
            if inside and self.told.fixed.get(buffer, offset) != offset:
                yield buffer, "fixed"

    def _overlaps(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of buffers, the first born first, that share bytes and live at once."""
        plan = self.plan
        placed = [b for b in sorted(self.ends) if plan.arena[b] >= 0 and plan.nbytes[b] > 0]
        low = {b: int(plan.offset[b]) for b in placed}
        high = {b: low[b] + max(int(plan.nbytes[b]), int(self.program.buffers.nbytes[b])) for b in placed}
        for place, one in enumerate(placed):
            for other in placed[place + 1 :]:
                if plan.arena[one] != plan.arena[other] or low[one] >= high[other] or low[other] >= high[one]:
                    continue
                if self.ends[one][0] >= self.ends[other][1] or self.ends[other][0] >= self.ends[one][1]:
                    continue
                first, second = sorted((one, other), key=lambda b: self.ends[b])
                if (first, second) not in self.pairs or low[first] != low[second]:
                    yield first, second

    def _believed(self, buffer: int) -> tuple[int, int]:
        """Return the life that the plan believes in; all steps where it states none."""
        problem = self.plan.problem
        if problem is None:
            return -1, 2 * LATER
        stop = 2 * LATER if problem.pinned[buffer] else int(problem.stop[buffer])
        return int(problem.start[buffer]), stop

    def _short(self) -> Iterator[int]:
        """Yield buffers whose believed life leaves out a use."""
        for buffer, uses in self.uses.items():
            start, stop = self._believed(buffer)
            if uses and not self.told.own[buffer] and (start > max(uses[0].step, 0) or stop <= uses[-1].step):
                yield buffer

    def _meeting(self, one: int, other: int) -> tuple[int, frozenset[str]]:
        """Return of two that lie over each other the one the answer is mistaken in, and how."""
        problem = self.plan.problem
        if problem is not None:
            pairs = {tuple(pair) for pair in problem.may_share.tolist()}
            given = (one, other) in pairs or (other, one) in pairs
            of_pair = frozenset({"donor"}) | self._undeclared(one, other) if given else frozenset()
            short = [buffer for buffer in (one, other) if buffer in self.short]
            if short:
                start, stop = self._believed(short[0])
                return short[0], self._late(short[0], stop, start) | of_pair
            return one, of_pair or frozenset({"slot"})
        born = max(self.ends[other][0], 0)
        mends = self._late(one, born, -1)
        if any(use.step == born and not use.writes for use in self.uses[one]):
            mends |= {"donor"} | self._undeclared(one, other)
        return one, mends or frozenset({"slot"})

    def _undeclared(self, donor: int, recipient: int) -> frozenset[str]:
        """Return whether the op that hands over declares it, as the mend that it asks for."""
        ops, home, step = self.program.ops, self.program.values.buffer, self.ends[recipient][0]
        if not 0 <= step < len(ops):
            return frozenset()
        op = ops[step]
        declared = {(home[op.operands[o]], home[op.results[r]]) for o, r in op.in_place or ()}
        return frozenset() if (donor, recipient) in declared else frozenset({"undeclared"})

    def _late(self, buffer: int, stop: int, start: int) -> frozenset[str]:
        """Return mends that give a life all its uses; those outside [start, stop) are missed."""
        uses = self.uses[buffer]
        missed = [use for use in uses if use.step >= stop or use.step < start]
        if not missed:
            return frozenset({"state"} if self.program.buffers.persistent[buffer] else ())
        kept = [use for use in uses if use not in missed]
        last = max(use.step for use in uses)
        holds = {name: all(map(is_so, missed)) for name, is_so in _OF_USES.items()} | {
            "step": last < LATER and all(use.step == last for use in missed),
            "reader": any(not use.writes for use in kept) and not any(use.writes for use in missed),
            "unread": all(use.writes for use in uses),
            "state": bool(self.program.buffers.persistent[buffer]),
            "input": self.program.ops[uses[0].step].kind == HOST_WRITE,
            "stream": all(use.stream != uses[0].stream for use in missed),
        }
        return frozenset(name for name, so in holds.items() if so)

    def _in_the_way(self, moved: list[int]) -> list[int]:
        """Return who lies over a moved buffer that stays, since its offset is decided."""
        plan, nbytes, fixed = self.plan, self.program.buffers.nbytes, self.told.fixed
        found = set[int]()
        for buffer in set(moved) & set(fixed):
            low, high = fixed[buffer], fixed[buffer] + int(nbytes[buffer])
            over = (plan.offset < high) & (plan.offset + nbytes > low) & (plan.arena == plan.arena[buffer])
            found |= {*np.flatnonzero(over & (plan.arena >= 0)).tolist()}
        return sorted(found - set(moved) - set(fixed))

    def clean_apart(self, moved: list[int]) -> bool:
        """Return whether the answer is clean once some buffers lie by themselves, where they were
        told to, with their belief set right. Who lies over one that was told its offset gives way.
        """
        plan, buffers = self.plan, self.program.buffers
        arena, offset, nbytes = plan.arena.copy(), plan.offset.copy(), plan.nbytes.copy()
        top = int((plan.offset + buffers.nbytes).max(initial=0)) + sum(self.told.fixed.values())
        for buffer in (*moved, *self._in_the_way(moved)):
            if self.told.own[buffer]:
                arena[buffer], offset[buffer], nbytes[buffer] = OWN, 0, 0
                continue
            step = int(buffers.alignment[buffer])
            at = self.told.fixed.get(buffer, -(-top // step) * step)
            arena[buffer], offset[buffer], nbytes[buffer] = buffers.arena[buffer], at, buffers.nbytes[buffer]
            top = max(top, at + int(buffers.nbytes[buffer]))
        spaces = tuple(replace(space, capacity=None) for space in self.program.arenas)
        program = replace(self.program, arenas=spaces)
        mended = Plan(program=program, arena=arena, offset=offset, nbytes=nbytes)
        return defects(Document.of(with_pins_read(mended, self.told.pinned)), limit=1, plain=True).clean


_OF_USES: Final = {
    "host": lambda use: use.by_host,
    "pin": lambda use: use.pinned,
    "kept": lambda use: use.pinned or use.by_host,
    "view": lambda use: use.by_view,
    "mutation": lambda use: use.writes,
    "operand": lambda use: use.place > 0,
    "third": lambda use: use.place > 1,
}
"""Mends that are about uses of one sort: what holds of these."""


def _uses(program: Program) -> dict[int, list[_Use]]:
    """Return the uses of each buffer by ops other than views, in order of steps. O(accesses)."""
    ops, values = program.ops, program.values
    shown = {int(value) for op in ops if op.kind == VIEW for value in op.results}
    found: dict[int, list[_Use]] = defaultdict(list)
    for op in ops:
        if op.kind == VIEW:
            continue
        stream = int(ops.stream[op.step])
        for place, value in enumerate(op.operands):
            use = _Use(step=op.step, by_view=value in shown, by_host=op.kind == HOST_READ, place=place, stream=stream)
            found[int(values.buffer[value])].append(use)
        for value in op.results:
            found[int(values.buffer[value])].append(_Use(step=op.step, writes=True, stream=stream))
    return found
