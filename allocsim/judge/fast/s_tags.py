"""Find buffers that hold equal content at a step because a `same` copied the content. Such buffers
may share bytes.

Two buffers may share bytes at a step if some shared unit (byte, or bit) is live in both, and every
such unit has the same tag in both in the replay apart. A unit is live from a write to its last
read, as in `live`; all units of a live persistent buffer are live. At the op that writes a unit,
the unit's new content is compared. At every other op, the unit's content before the op is compared.
So a last read and a rewrite at one op never agree. Units without a write have no tag, and agree
with no unit.

There are two algorithms. A buffer that is written once in a run, as a whole, and only read as a
whole has one tag. If such a buffer is the result of a `same` of another such buffer, the tags are
compared in columns (`Copies`). All other buffers that a `same` accesses are followed range by range
(`Spans`), through all runs over their memory.

Complexity: O(buffers) for `Copies`; O(accesses x pieces) for `Spans`, over the buffers that a
`same` accesses.

This module does not examine the offsets of slots; callers pass the distance of two buffers.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from allocsim.judge.fast.accesses import Accesses, handed_on
from allocsim.judge.fast.intervals import among
from allocsim.judge.fast.live import LiveSegments
from allocsim.judge.fast.owners import NEVER, OwnerAxis, Piece, Range, left_over, merged
from allocsim.judge.fast.s_apart import CONTENT, ApartMemory, Marks
from allocsim.judge.fast.s_script import Runs, Script
from allocsim.judge.fast.trial import Trial, TrialDocument, Work
from allocsim.model import OWN, Bools, Plan
from allocsim.model.layout import Int64s

Span = tuple[int, int, int, int, tuple[int, int] | None]
"""(low, high, first step, last step, tag); the tag is (number of a write, shift), or None if no
write reached the units."""

RUN: Final = 6
"""The steps for following a run, in addition to one step for each access (`trial.WORK`)."""

PAIRS: Final = 1 << 20
"""The largest number of pairs of buffers, and of pairs of spans, compared for one lower bound.

Buffers of further pairs count as one class, which can make the bound lower."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copies:
    """The *plain* buffers of a run; each plain buffer has one tag."""

    plain: Bools
    """bool (buffers,): accessed by a `same`, written once as a whole, and only read as a whole."""
    root: Int64s
    """int64 (buffers,): the buffer that first held the content of a plain buffer; maybe itself."""
    shift: Int64s
    """int64 (buffers,): place of the content here minus its place in the root, in units."""

    @classmethod
    def of(cls, accesses: Accesses) -> "Copies":
        """Return the plain buffers of a run; the result is computed once."""
        if accesses not in _COPIES:
            _COPIES[accesses] = cls._found(accesses)
        return _COPIES[accesses]

    @classmethod
    def _found(cls, accesses: Accesses) -> "Copies":
        extents, program, count = accesses.extents, accesses.program, len(accesses.program.buffers)
        low, high = np.full(count, 1 << 62, dtype=np.int64), np.zeros(count, dtype=np.int64)
        handed = np.zeros(count, dtype=np.bool_)
        handed[accesses.read_buffer[program.same_ops[accesses.read_op]]] = True
        handed[accesses.write_buffer[program.same_ops[accesses.write_op]]] = True
        reads, writes = np.flatnonzero(handed[accesses.read_buffer]), np.flatnonzero(handed[accesses.write_buffer])
        buffer = np.concatenate([accesses.read_buffer[reads], accesses.write_buffer[writes]])
        value = np.concatenate([accesses.read_value[reads], accesses.write_value[writes]])
        np.minimum.at(low, buffer, extents.low[value])
        np.maximum.at(high, buffer, extents.high[value])
        plain = handed & ~program.buffers.persistent & (np.bincount(accesses.write_buffer, minlength=count) == 1)
        plain &= accesses.first_write < accesses.first_read
        bad = (
            ~extents.dense[value]
            | (extents.low[value] != low[buffer])
            | (extents.high[value] != high[buffer])
            | ~extents.whole[value]
        )
        bad |= extents.low[value] >= extents.high[value]
        plain[buffer[bad]] = False
        root, shift = np.arange(count), np.zeros(count, dtype=np.int64)
        row, source, target = handed_on(program)
        source, target = (side[among(row, accesses.write_row)] for side in (source, target))
        one, other = extents.buffer[source], extents.buffer[target]
        fits = extents.contiguous[source] & extents.contiguous[target] & (one != other)
        plain[other[~(fits & plain[one])]] = False
        while np.any(lost := plain[other] & ~plain[one]):
            plain[other[lost]] = False
        kept = plain[other]
        root[other[kept]] = one[kept]
        shift[other[kept]] = (extents.start[target] - extents.start[source])[kept]
        while np.any(root[root] != root):
            shift, root = shift + shift[root], root[root]
        return cls(plain=plain, root=root, shift=shift)

    def agree(self, one: Int64s, other: Int64s, delta: Int64s) -> Bools:
        """Return which pairs of plain buffers hold equal tags while both live, if `other` begins
        `delta` units after `one`.
        """
        same: Bools = self.plain[one] & self.plain[other] & (self.root[one] == self.root[other])
        same &= self.shift[one] == self.shift[other] + delta
        return same


_COPIES: Final[WeakKeyDictionary[Accesses, Copies]] = WeakKeyDictionary()
"""The copies of each `Accesses` object, cached as long as the object exists, for three callers."""


class Spans:
    """For each run, the spans (units, steps and tag) of the buffers that a `same` accesses."""

    def __init__(self, runs: Runs, lives: Sequence[LiveSegments], work: Work) -> None:
        self.runs, self.lives = runs, lives
        identities = runs.identities
        self.marks = Marks(len(trial.program.values) for trial in identities.trials)
        self.apart = ApartMemory(self.marks, *(column.tolist() for column in identities.reach))
        for identity in np.flatnonzero(identities.persistent).tolist():
            self.apart.uniform[identity] = CONTENT - identity
        self.involved = np.zeros(identities.count, dtype=np.bool_)
        for script in runs.scripts:
            self.involved[script.identity[script.same_ops[script.op]]] = True
        self.work = work
        self._of: list[dict[int, list[Span]]] = []

    def of(self, position: int) -> dict[int, list[Span]]:
        """Return the spans of each buffer in a run; all earlier runs are followed first."""
        while len(self._of) <= position:
            self._of.append(self._followed(len(self._of)))
        return self._of[position]

    def _followed(self, position: int) -> dict[int, list[Span]]:
        script = self.runs.scripts[self.runs.follows[position]]
        trial = self.runs.identities.trials[position]
        extents, first = script.extents, self.marks.first[position]
        persistent = trial.program.buffers.persistent.tolist()
        held: dict[int, OwnerAxis] = defaultdict(OwnerAxis)
        facts: list[tuple[int, int, tuple[int, int] | None, bool]] = []
        found: dict[int, list[Span]] = defaultdict(list)
        written: dict[int, set[int]] = defaultdict(set)

        def put(buffer: int, step: int, pieces: list[Piece]) -> None:
            for low, high, mark in pieces:
                emit(buffer, low, high, step)
                facts.append((step, step, None if mark == NEVER else self.marks.tag(mark), True))
                held[buffer].write(low, high, len(facts) - 1)

        def emit(buffer: int, low: int, high: int, step: int) -> None:
            """Add the spans in `[low, high)` that end because the op at `step` overwrites them."""
            for a, b, fact in held[buffer].pieces(low, high):
                if fact != NEVER:
                    since, last, tag, written_then = facts[fact]
                    if written_then and since == step:
                        continue  # if two results of one op share a byte, the byte holds the later result
                    found[buffer].append((a, b, since, step if persistent[buffer] else last, tag))

        for buffer in np.flatnonzero(trial.program.buffers.persistent & self.involved[script.buffers]).tolist():
            runs = [(0, int(extents.room[buffer]))]
            put(
                buffer,
                -1,
                [piece for piece in self.apart.pieces(int(script.buffers[buffer]), runs) if piece[0] < piece[1]],
            )
        done, chosen = -1, self.involved[script.identity]
        self.work.take(RUN + int(chosen.sum()))
        for is_write, op, value, identity, *_ in script.steps(chosen):
            buffer = int(extents.buffer[value])
            if is_write and script.same_ops[op]:
                if done != op:
                    done = op
                    for home, target, pieces in self._handed_on(position, script, op):
                        written[home].add(op)
                        self.apart.put(target, pieces)
                        put(home, op, pieces)
            elif is_write:
                pieces = [(low, high, first + value) for low, high in extents.runs(value)]
                written[buffer].add(op)
                self.apart.put(identity, pieces)
                put(buffer, op, pieces)
            elif not persistent[buffer]:
                for low, high, mark in list(self.apart.pieces(identity, extents.runs(value))):
                    for a, b, fact in held[buffer].pieces(low, high):
                        since, by_write = (facts[fact][0], facts[fact][3]) if fact != NEVER else (op, False)
                        facts.append((since, op, None if mark == NEVER else self.marks.tag(mark), by_write))
                        held[buffer].write(a, b, len(facts) - 1)
        for buffer in list(held):
            emit(buffer, 0, int(extents.room[buffer]), len(trial.program.ops))
        for buffer in [buffer for buffer in found if persistent[buffer]]:
            found[buffer] = _while_live(found[buffer], self.lives[position].of(buffer), written[buffer])
        return dict(found)

    def _handed_on(self, position: int, script: Script, op: int) -> list[tuple[int, int, list[Piece]]]:
        """Return (buffer, identity, pieces) for each result that a `same` writes."""
        done = []
        for move in script.moves.of(op):
            if not move.still:
                found = self.apart.handed_on(int(script.buffers[move.source]), move.cut, position)
                done.append((move.target, int(script.buffers[move.target]), sorted(found + move.bare)))
        return done


def shares_tags(case: TrialDocument, trial: Trial) -> bool:
    """Return whether some run over the memory of `trial` has a `same`; computed once per memory."""
    group = case.group(trial)

    def some() -> bool:
        programs = {id(other.program): other.program for other in group}
        return any(program.same_ops.any() for program in programs.values())

    return case.kept(("shares tags", group[0].index), some)


def spans(case: TrialDocument, trial: Trial) -> dict[int, list[Span]]:
    """Return the spans of each buffer that a `same` accesses; computed once for each memory."""
    group = case.group(trial)

    def followed() -> Spans:
        return Spans(Runs.of(group), [case.hand_overs(other.accesses).live for other in group], case.tag_work)

    return case.kept(("spans", group[0].index), followed).of(trial.index - group[0].index)


def asks_tags(case: TrialDocument, trial: Trial) -> bool:
    """Return whether a run needs `Spans`, because it has buffers that `Copies` does not cover."""
    return shares_tags(case, trial) and bool(np.any(_strange(case, trial, Copies.of(trial.accesses))))


def as_tagged(case: TrialDocument, trial: Trial) -> Hashable:
    """Return a key; runs with equal keys have equal conflicts and bounds. Such runs are alike, and
    their buffers hold tags in the same pattern, whichever run wrote these tags.

    O(spans of the run).
    """
    if not shares_tags(case, trial):
        return trial.alike
    numbers: dict[int, int] = {}
    held = tuple(
        (
            buffer,
            *((*span[:4], span[4] and (numbers.setdefault(span[4][0], len(numbers)), span[4][1])) for span in mine),
        )
        for buffer, mine in spans(case, trial).items()
    )
    return trial.alike, held


def spans_alone(accesses: Accesses, live: LiveSegments) -> dict[int, list[Span]]:
    """Return the spans of a program for one run on fresh memory, with every buffer apart."""
    program = accesses.program
    nothing = np.zeros(len(program.buffers), dtype=np.int64)
    plan = Plan(
        program=program, arena=np.full(len(nothing), OWN, dtype=np.int32), offset=nothing, nbytes=program.buffers.nbytes
    )
    trial = Trial(
        index=0,
        program=program,
        program_index=0,
        plan=plan,
        plan_index=0,
        skip=frozenset(),
        after=None,
        waits=None,
        read_after=None,
        accesses=accesses,
        problem=None,
    )
    return Spans(Runs.of([trial]), [live], Work()).of(0)


def ties(case: TrialDocument, trial: Trial) -> Int64s:
    """Return (n, 4): first step, stop, and two buffers. The two hold equal tags at some distance at
    the steps `[first step, stop)`.

    At each step, the rows for this step connect all buffers with equal tags, but not every two of
    these buffers have a row.
    """
    none = np.empty((0, 4), dtype=np.int64)
    if not shares_tags(case, trial):
        return none
    plain, live = Copies.of(trial.accesses), case.hand_overs(trial.accesses).live
    chosen = trial.plan.placed & (trial.program.buffers.nbytes > 0)
    rows = np.flatnonzero((plain.plain & chosen)[live.buffer])
    buffer = live.buffer[rows]
    rows = rows[np.lexsort((live.start[rows], plain.root[buffer]))]
    buffer = live.buffer[rows]
    fresh = np.ones(len(rows), dtype=np.bool_)
    fresh[1:] = plain.root[buffer[1:]] != plain.root[buffer[:-1]]
    start, stop = live.start[rows], live.stop[rows]
    # in each class, find the segment with the latest stop so far; stops are offset by the number of
    # the class, so that classes do not mix
    reach = np.cumsum(fresh) * (len(trial.program.ops) + 2) + stop
    until = np.maximum.accumulate(reach)
    longest = np.maximum.accumulate(np.where(np.append(True, reach[1:] > until[:-1]), np.arange(len(rows)), 0))
    met = 1 + np.flatnonzero(~fresh[1:] & (start[1:] < stop[longest[:-1]]))
    before = longest[met - 1]
    found = [np.stack([start[met], np.minimum(stop[met], stop[before]), buffer[before], buffer[met]], axis=1)]
    if np.any(_strange(case, trial, plain)):
        found.append(np.array(_ties_by_spans(case, trial, plain, chosen), dtype=np.int64).reshape(-1, 4))
    return np.concatenate(found)


def _strange(case: TrialDocument, trial: Trial, plain: Copies) -> Bools:
    """Return which buffers a `same` of this run, or of another run over the same memory, may access
    and `Copies` does not cover.

    The result is computed once for all runs of a program over one memory.
    """
    group = case.group(trial)

    def touched() -> Bools:
        mask = np.zeros(len(plain.plain), dtype=np.bool_)
        kept: set[str] = set()
        for other in {id(each.accesses): each for each in group}.values():
            accesses, buffers = other.accesses, other.program.buffers
            here = np.zeros(len(buffers), dtype=np.bool_)
            here[accesses.read_buffer[other.program.same_ops[accesses.read_op]]] = True
            here[accesses.write_buffer[other.program.same_ops[accesses.write_op]]] = True
            kept.update(buffers.names[buffer] for buffer in np.flatnonzero(here & buffers.persistent).tolist())
            if other.program is trial.program:
                mask |= here
        persistent = np.flatnonzero(trial.program.buffers.persistent).tolist() if kept else []
        mask[[buffer for buffer in persistent if trial.program.buffers.names[buffer] in kept]] = True
        return mask

    return case.kept(("touched by same", group[0].index, id(trial.program)), touched) & ~plain.plain


def _ties_by_spans(case: TrialDocument, trial: Trial, plain: Copies, chosen: Bools) -> list[tuple[int, int, int, int]]:
    """Return the rows of `ties` for pairs with at least one buffer that is not plain."""
    known = spans(case, trial)
    holders: dict[int, dict[int, None]] = defaultdict(dict)
    for buffer, mine in known.items():
        for *_, tag in mine if chosen[buffer] else ():
            if tag is not None:
                holders[tag[0]][buffer] = None
    pairs = {pair for buffers in holders.values() for pair in combinations(sorted(buffers), 2)}
    if len(pairs) > PAIRS:
        steps = len(trial.program.ops)
        return [(0, steps, a, b) for buffers in holders.values() for a, b in pairwise(buffers)]
    tags = {buffer: defaultdict[int, set[int]](set) for buffer in known}
    for buffer, mine in known.items():
        for *_, tag in mine:
            if tag is not None:
                tags[buffer][tag[0]].add(tag[1])
    rows, spent = list[tuple[int, int, int, int]](), 0
    for a, b in sorted(pairs):
        if plain.plain[a] and plain.plain[b]:
            continue
        common = [(tags[a][number], tags[b][number]) for number in tags[a].keys() & tags[b].keys()]
        spent += sum(len(mine) * len(its) for mine, its in common)
        deltas = {one - other for mine, its in common for one in mine for other in its} if spent <= PAIRS else set()
        spent += len(deltas) * len(known[a]) * len(known[b])
        if spent > PAIRS:
            rows.append((0, len(trial.program.ops), a, b))
            continue
        for delta in deltas:
            same, differ = agreement(known[a], known[b], delta)
            rows += [(low, high, a, b) for low, high in left_over(same, differ)]
    return rows


def _while_live(spans: list[Span], segments: list[Range], written: set[int]) -> list[Span]:
    """Return the spans of a persistent buffer, restricted to its live segments.

    Each given span extends from the op that wrote it to the op that overwrote it.
    """
    found = []
    for low, high, born, over, tag in spans:
        for start, stop in segments:
            # held before each op but the first of the segment, and after each op but the last,
            # unless the last op writes
            ranges = [
                (max(start + 1, 0, born + 1), min(stop - 1, over)),
                (max(start, 0, born), min(stop - 2, over - 1)),
            ]
            if stop - 1 in written and born <= stop - 1 < over:
                ranges.append((stop - 1, stop - 1))
            found += [(low, high, first, last, tag) for first, last in ranges if first <= last]
    return found


def agreement(one: list[Span], other: list[Span], delta: int) -> tuple[list[Range], list[Range]]:
    """Return, as ranges, the steps at which two buffers hold equal tags in some shared live unit,
    and the steps at which they hold different tags in some shared live unit.

    `other` begins `delta` units after `one`.
    """
    same: list[Range] = []
    differ: list[Range] = []
    for low, high, first, last, tag in one:
        for a, b, begin, end, its in other:
            start, stop = max(first, begin), min(last, end) + 1
            if start < stop and max(low, a + delta) < min(high, b + delta):
                alike = tag is not None and its is not None and tag[0] == its[0] and tag[1] == its[1] + delta
                (same if alike else differ).append((start, stop))
    return list(merged(sorted(same))), list(merged(sorted(differ)))
