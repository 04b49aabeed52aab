"""Compare what every read finds as planned with what the read must find, by two replays.

Ground truth
    The same runs are replayed twice. In the replay *apart*, every buffer has memory of its own. In
    the replay *planned*, buffers are where the plan of the run puts them, and buffers without a
    slot in an arena have memory of their own. The runs of a session share one memory. Without a
    session, each run has fresh memory. A buffer is the same buffer in all runs of its program. A
    parameter or state is the same buffer in all programs with a buffer of its name.
Tags
    Every unit (byte, or bit where packed values share bytes) has a tag for its last write: (run,
    value, unit of the value). A write is one value made by one op in one run. The content of a
    parameter or state is a write before the first run. These writes are done in order of (first run
    that has the buffer, buffer), at the place that this run's plan gives the buffer. A `same` reads
    all its operands, then writes the found tags into its results, unit by unit in row-major order.
    If operand and result are at one address, the `same` writes nothing. `s_apart` defines the marks
    that represent tags.
Defects of a read, for each operand of each op (no view, not skipped), once for each
(run, op, value)
    no tag apart                                                            -> `UninitialisedRead`
    the value is made by an op other than `view`, and apart holds another tag than this op wrote
        (if the upload was left out, any run's tag of the value is right)   -> `OverwrittenRead`
    otherwise, planned differs from apart                                   -> `StaleRead`
    apart, another run wrote the tag; the buffer is not persistent          -> `HistoryRead` (warning, beside the others)
    If the host left out the upload of a value, initial content is right, too.
    A `host.read` of a run with `read_after: k` must find the tags that the replay apart has at the
    position of the read in the list. The read finds the tags that planned memory has after run k.
Records
    `bytes` are all bytes of the read with the defect, merged. The witnesses belong to the lowest of
    these bytes. `other_*` is the write that was found, and is None if there was no write. For
    initial content, run and op are None. The buffer is then the index in the reader's program, or
    None if that program does not have the buffer. `want_*` is the right write. For
    `OverwrittenRead`, it is the value's own write in this run, or None if its upload was left out.
    `UninitialisedRead` has no witness, because there was no write.

Algorithm: each arena is one `OwnerAxis` of marks. Apart, most buffers are written whole and have
one mark. A read is right if two lookups agree; single units are compared only if they do not. For
many reads a screen may first select the reads to compare (`selector`). If the screen selects no
read, nothing is replayed here.

Bound on time: all suspect reads of one memory (of a session, or of a single run) are compared piece
by piece, up to `PIECES` pieces in all. A piece is a range with one last writer. After `PIECES`
pieces, each read is compared only up to its first piece with a violation; a warning does not end
the read. The record of such a read is `partial`, and counts are lower bounds. After `MOST` pieces,
only `FEW` pieces of each read are compared. A read with more pieces and no violation among these is
undecided. If there are undecided reads and no read has a violation, a ModelError is raised: there
is no verdict.

Complexity: O(accesses log segments), plus the segments and byte runs of values with holes or with a
defect.

This module does not examine kernels (an op is opaque) or other orders than list order.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.intervals import distinct
from allocsim.judge.fast.owners import NEVER, OwnerAxis, Piece
from allocsim.judge.fast.s_apart import CONTENT, UNCLEAR, ApartMemory, Marks, joined_pieces
from allocsim.judge.fast.s_script import Runs, Script, Step
from allocsim.judge.fast.trial import Findings, Trial, TrialDocument, Work
from allocsim.judge.violations import Particulars, Violation
from allocsim.model import HOST_READ, Bools
from allocsim.model.layout import Int64s

PIECES: Final = 1 << 20
"""The number of pieces compared in all after which each read ends at its first violation, to bound
the length of records."""

MOST: Final = 1 << 24
"""The number of pieces compared in all after which each read is cut short, to bound time."""

FEW: Final = 64
"""The number of pieces compared in each read after `MOST` is reached."""

READ, MOVE, ACCESSES, PIECES_OF_A_STEP = 18, 5, 10, 8
"""The steps for a compared read, and for a move of a `same` once a read is wrong; then the number
of accesses, and the number of pieces, that cost one step (`trial.WORK`)."""

WHAT: Final = "what reads find"

GUILTY: Final = ("UninitialisedRead", "OverwrittenRead", "StaleRead")
"""The violations of a read. After the warning `HistoryRead`, later pieces are still compared."""


def check_dataflow(case: TrialDocument, findings: Findings) -> None:
    """Replay all runs, and report every read that finds wrong bytes."""
    groups = [case.trials] if case.joined else [[trial] for trial in case.trials]
    undecided = 0
    for trials in groups:
        if any(len(trial.accesses.read_op) for trial in trials):
            runs = Runs.of(trials)
            looks = case.selector.reads(runs)
            if looks is None or any(len(rows) for rows in looks):
                if case.work.over:
                    case.work.leave(WHAT, trials[0].index, len(case.trials))
                    break
                memory = _Memory(runs, findings, case.work)
                memory.replay(looks)
                undecided += memory.undecided
    if undecided and not any(findings.counts[kind] for kind in GUILTY):
        rule = (
            f"{undecided} reads have more pieces than can be compared, {MOST} in all; the compared pieces are right, "
            "and there is no verdict"
        )
        raise ModelError("runs", rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Units of a read with one defect: the range, the found mark and the right mark."""

    low: int
    high: int
    found: int
    wanted: int


Look = tuple[int, int, int, str | None, bool]
"""A piece of a read in memory apart: low, high, mark, violation or None, is a `HistoryRead`."""


class _Memory:
    """Both replays of a group of runs that share one memory."""

    def __init__(self, runs: Runs, findings: Findings, work: Work) -> None:
        self.runs, self.findings, self.work = runs, findings, work
        self.trials = runs.identities.trials
        self.identities = runs.identities
        self.persistent: list[bool] = runs.identities.persistent.tolist()
        self.marks = Marks(len(trial.program.values) for trial in self.trials)
        self.apart = ApartMemory(self.marks, *(column.tolist() for column in runs.identities.reach))
        self.spaces: dict[int, OwnerAxis] = {}
        for script in runs.scripts:
            for space in distinct(script.places[0]).tolist():
                self.spaces.setdefault(space, OwnerAxis())
        self.given: dict[int, list[Piece]] = {}
        """Maps the number of each value made by a `same` to the value's pieces, with marks."""
        self.given_whole: dict[int, int] = {}
        """Maps the number of each value that a `same` made with a single mark to this mark."""
        self.moving = any(script.same_ops.any() for script in runs.scripts)
        self.late: dict[int, list[tuple[int, Step, list[Look]]]] = defaultdict(list)
        """For each run k, the reads delayed until after k: position of their run, read, pieces
        apart."""
        self.looked = 0
        """The number of pieces compared so far."""
        self.undecided = 0
        """The number of reads that were cut short without a violation."""
        self.wrong = False
        """Whether some read has a violation so far."""
        self.cut = False
        """Whether some read was not compared to its end."""
        self.staged: tuple[int, int, list[Any]] = NEVER, NEVER, []
        """The run and the op of the current `same`, and the pieces that it will write."""
        self.reports: list[tuple[int, int, str, Callable[[], Violation]]] = []
        self._lay_content()

    def _lay_content(self) -> None:
        for identity in np.flatnonzero(self.identities.persistent).tolist():
            self.apart.uniform[identity] = CONTENT - identity
            position, buffer = self.identities.home(identity)
            room = int(self.trials[position].accesses.extents.room[buffer])
            space, base = self._place(position, buffer)
            if space >= 0 and room:
                self.spaces[space].write(base, base + room, CONTENT - identity)

    def _place(self, position: int, buffer: int) -> tuple[int, int]:
        """Return the space (-1 if the buffer stays, see `s_script`) and the base address of a
        buffer.
        """
        space, base = self.runs.scripts[self.runs.follows[position]].places
        return int(space[buffer]), int(base[buffer])

    def replay(self, looks: list[Int64s] | None) -> None:
        """Run every op of every run in both memories, and examine all reads or the rows `looks`."""
        last = (
            len(self.trials)
            if looks is None
            else max((run + 1 for run, rows in enumerate(looks) if len(rows)), default=0)
        )
        for position in range(last):
            script = self.runs.scripts[self.runs.follows[position]]
            chosen = None
            if looks is not None:
                chosen = script.write.copy()
                chosen[looks[position]] = True
                chosen |= script.same_ops[script.op]
            self.work.take(len(script) // ACCESSES)
            op = self._run(position, script, chosen)
            for run, step, wanted in self.late.pop(position, ()):
                self._compare(run, step, wanted)
            if self.work.over and (op is not None or position + 1 < last):
                waiting = [late for reads in self.late.values() for late, *_ in reads]
                first = min([position if op is not None else position + 1, *waiting])
                self.work.leave(WHAT, self.trials[first].index, len(self.trials), (op or 0) if not waiting else 0)
                break
        self.reports.sort(key=lambda report: report[:2])
        for _, _, kind, make in self.reports:
            self.findings.report(kind, make)
        self.findings.bounded |= self.cut

    def _run(self, position: int, script: Script, chosen: Bools | None) -> int | None:
        """Run the ops of a run; return the first op not run as the steps are spent, or None."""
        first, trial = self.marks.first[position], self.trials[position]
        apart, uniform, spaces = self.apart, self.apart.uniform, self.spaces
        reach_low, reach_high, persistent = apart.low, apart.high, self.persistent
        late = trial.program.ops.is_kind(HOST_READ) if trial.read_after is not None else None
        hands_on: set[int] = set(np.flatnonzero(script.same_ops).tolist())
        moving, given = self.moving, self.given_whole
        seen: tuple[int, set[int]] = -1, set()
        for step in script.steps(chosen):
            is_write, op, value, identity, low, high, dense, made, space, base = step
            mark = first + value
            if is_write:
                if op in hands_on:
                    self._hand_on(position, script, op, put=True)
                    continue
                if dense and low == reach_low[identity] and high == reach_high[identity]:
                    uniform[identity] = mark
                else:
                    apart.write(identity, trial.accesses.extents.runs(value), mark)
                if space < 0:
                    continue
                if dense:
                    spaces[space].write(base + low, base + high, mark)
                else:
                    runs = trial.accesses.extents.runs(value)
                    spaces[space].write_runs([(base + a, base + b) for a, b in runs], mark)
                continue
            if op in hands_on and self.staged[:2] != (position, op):
                self._hand_on(position, script, op, put=False)
            wanted = uniform[identity]
            if wanted >= first:
                clean = not made or wanted == (given.get(mark, mark) if moving else mark)
                clean = clean and (not moving or self.marks.writer(wanted) == position)
            else:
                clean = wanted not in UNCLEAR and not made and persistent[identity]
            if clean and space >= 0:
                here = wanted if wanted >= first and not moving else self._as_planned(wanted, base)
                clean = here is not None and spaces[space].holds(base + low, base + high, here)
            if clean and late is None:
                continue
            if seen[0] != op:
                seen = op, set()
            if value in seen[1]:
                continue
            seen[1].add(value)
            looks = self._looks_apart(position, step)
            if late is not None and late[op]:
                self.late[trial.read_after or 0].append((position, step, list(looks)))
            else:
                self._compare(position, step, looks)
            self.work.take(READ)
            if self.work.over:
                return op + 1 if op + 1 < len(trial.program.ops) else None
        return None

    def _hand_on(self, position: int, script: Script, op: int, *, put: bool) -> None:
        """Collect the pieces that a `same` reads, before any is written; with `put`, write them."""
        if self.staged[:2] != (position, op):
            self.staged = position, op, list(self._handed_on(position, script, op))
        if not put:
            return
        for identity, pieces, space, planned in self.staged[2]:
            if pieces is not None:
                self.apart.put(identity, pieces)
            for low, high, mark in planned:
                self.spaces[space].write(low, high, mark)
        self.staged = position, op, []

    def _handed_on(
        self, position: int, script: Script, op: int
    ) -> Iterator[tuple[int, list[Piece] | None, int, list[Piece]]]:
        """Yield for each result of a `same`: the identity, the pieces apart (None if nothing is
        written apart), the space, and the pieces as planned.
        """
        space, base = script.places
        for move in script.moves.of(op):
            self.work.take((MOVE + len(move.cut) // PIECES_OF_A_STEP) * self.wrong)
            one, other, cut, none, still = move.source, move.target, move.cut, move.bare, move.still
            if still:
                stretches = [(start, start + length) for start, _, length in cut]
                found = joined_pieces(sorted(self.apart.pieces(int(script.buffers[one]), stretches)))
            else:
                found = sorted(self.apart.handed_on(int(script.buffers[one]), cut, position) + none)
            self._give(self.marks.first[position] + move.value, found)
            a, b = int(base[one]), int(base[other])
            planned: list[Piece] = []
            if space[one] != space[other] or not move.ways <= {a - b}:
                planned = self._moved_as_planned(int(space[one]), [(x + a, y + b, n) for x, y, n in cut])
                planned += [(low + b, high + b, NEVER) for low, high, _ in none]
            yield int(script.buffers[other]), None if still else found, int(space[other]), planned

    def _give(self, number: int, pieces: list[Piece]) -> None:
        """Record the pieces that a `same` wrote for a value."""
        self.given[number] = pieces
        self.given_whole.pop(number, None)
        if len(pieces) == 1:
            self.given_whole[number] = pieces[0][2]

    def _moved_as_planned(self, space: int, cut: list[tuple[int, int, int]]) -> list[Piece]:
        """Return the pieces that a `same` writes as planned. `cut` has rows (start in `space`, new
        start, length).
        """
        found: list[Piece] = []
        for start, target, length in cut:
            by = target - start
            for low, high, mark in self.spaces[space].walk(start, start + length):
                number, shift, _ = self.marks.of(mark)
                if mark == NEVER:
                    found.append((low + by, high + by, NEVER))
                    continue
                base = self._base_of(number)
                moved = (base if shift is None else shift) + by
                found.append((low + by, high + by, number if moved == base else self.marks.moved(number, moved, NEVER)))
        return found

    def _as_planned(self, wanted: int, base: int) -> int | None:
        """Return the planned mark of the tag that mark `wanted` has apart, for a buffer at `base`.
        Return None if no planned unit holds this tag.
        """
        number, shift, _ = self.marks.of(wanted)
        place = base + (shift or 0)
        return number if self._base_of(number) == place else self.marks.known(number, place)

    def _base_of(self, number: int) -> int:
        """Return the base address of a write's buffer at the time of the write."""
        if number <= CONTENT:
            return self._place(*self.identities.home(CONTENT - number))[1]
        position = self.marks.run_of(number)
        value = number - self.marks.first[position]
        return self._place(position, int(self.trials[position].program.values.buffer[value]))[1]

    def _compare(self, position: int, step: Step, looks: Iterable[Look]) -> None:
        """Compare a read piece by piece, and report its defects."""
        _, op, value, *_ = step
        wrong: dict[str, list[_Found]] = {}
        pieces, guilty, told = self._defects(step, looks, self.marks.first[position]), False, True
        number = 0
        for number, defects in enumerate(pieces, 1):
            self.looked += 1
            full = self.looked <= PIECES or number <= FEW
            for kind, place in defects:
                guilty |= kind in GUILTY
                if full or kind not in wrong:
                    wrong.setdefault(kind, []).append(place)
                else:
                    told = False
            if (guilty and self.looked >= PIECES) or (self.looked >= MOST and number >= FEW):
                break
        self.work.take(number // PIECES_OF_A_STEP)
        cut = next(pieces, None) is not None
        self.cut |= cut
        self.wrong |= guilty
        self.undecided += cut and not guilty
        for kind, places in wrong.items():
            make = partial(self._record, kind, position, op, value, places, cut=cut or not told)
            self._report(position, op, kind, make)

    def _report(self, position: int, op: int, kind: str, make: Callable[[], Violation]) -> None:
        """Report a defect. If delayed reads may come out of order, keep all reports until the end,
        and sort them there by (run, step).
        """
        if self.identities.ordered:
            self.findings.report(kind, make)
        else:
            self.reports.append((position, op, kind, make))

    def _looks_apart(self, position: int, step: Step) -> Iterator[Look]:
        """Yield the pieces of a read in the replay apart, each with its violation. A piece ends
        where its mark changes, or where the mark that the value's op wrote changes.
        """
        _, _, value, identity, _, _, _, made, _, _ = step
        trial, number = self.trials[position], self.marks.first[position] + value
        given = self.given.get(number) if self.moving else None
        skipped = made and int(trial.program.producer[value]) in trial.skip
        for low, high, mark in self.apart.pieces(identity, trial.accesses.extents.runs(value)):
            if mark == NEVER:
                yield low, high, mark, "UninitialisedRead", False
                continue
            old = not self.persistent[identity] and self.marks.writer(mark) not in {NEVER, position}
            if given is not None:
                for a, b, gave in _against(low, high, given):
                    other = gave == NEVER or self.marks.tag(gave) != self.marks.tag(mark)
                    yield a, b, mark, "OverwrittenRead" if other else None, old
                continue
            lost = made and not (self._is_value(mark, trial, value) if skipped else self.marks.tag(mark) == (number, 0))
            yield low, high, mark, "OverwrittenRead" if lost else None, old

    def _defects(self, step: Step, looks: Iterable[Look], first: int) -> Iterator[tuple[tuple[str, _Found], ...]]:
        """Yield the defects of every piece of a read; the tuple is empty for a piece without
        defects. A piece ends where its mark changes in either replay.
        """
        space, base = step[8], step[9]
        for low, high, wanted, wrong, late in looks:
            old: tuple[tuple[str, _Found], ...] = ()
            if late:
                old = (("HistoryRead", _Found(low=low, high=high, found=wanted, wanted=NEVER)),)
            if wrong is not None:
                yield (*old, (wrong, _Found(low=low, high=high, found=wanted, wanted=NEVER)))
                continue
            if space < 0:
                yield old
                continue
            here = wanted if wanted >= first and not self.moving else self._as_planned(wanted, base)
            for a, b, found in self.spaces[space].walk(base + low, base + high):
                if here is None or found != here:
                    yield (*old, ("StaleRead", _Found(low=a - base, high=b - base, found=found, wanted=wanted)))
                else:
                    yield old
                old = ()

    def _is_value(self, mark: int, trial: Trial, value: int) -> bool:
        """Return whether a mark is initial content, or `value` as some run wrote it, unmoved."""
        number, shift = self.marks.tag(mark)
        if number <= CONTENT:
            return True
        position = self.marks.run_of(number)
        return (
            shift == 0
            and self.trials[position].program is trial.program
            and number - self.marks.first[position] == value
        )

    # records --------------------------------------------------------------------------------------

    def _record(self, kind: str, position: int, op: int, value: int, places: list[_Found], *, cut: bool) -> Violation:
        trial = self.trials[position]
        buffer = int(trial.program.values.buffer[value])
        ranges = trial.accesses.extents.in_bytes((place.low, place.high) for place in places)
        found = self.marks.number(places[0].found)
        wanted = self._own_write(position, value) if kind == "OverwrittenRead" else self.marks.number(places[0].wanted)
        finder, wanter = self._witness(found, trial), self._witness(wanted, trial)
        return trial.record(
            kind,
            op=op,
            value=value,
            buffer=buffer,
            bytes=ranges,
            other_run=finder.run,
            other_op=finder.op,
            other_buffer=finder.buffer,
            want_run=wanter.run,
            want_op=wanter.op,
            more=Particulars(
                other_value=finder.value,
                want_value=wanter.value,
                content=finder.content,
                want_content=wanter.content,
                partial=cut,
            ),
        )

    def _own_write(self, position: int, value: int) -> int:
        """Return the number of a value's write in a run, or `NEVER` if its upload was left out."""
        trial = self.trials[position]
        return NEVER if int(trial.program.producer[value]) in trial.skip else self.marks.first[position] + value

    def _witness(self, number: int, reader: Trial) -> "_Witness":
        if number == NEVER:
            return _Witness()
        if number <= CONTENT:
            # initial content has no run, so the record has the buffer index of the reader's program
            mine = np.flatnonzero(self.identities.of[reader.index - self.trials[0].index] == CONTENT - number)
            known = int(mine[0]) if len(mine) else None
            position, buffer = self.identities.home(CONTENT - number)
            return _Witness(buffer=known, content=(self.trials[position].program_index, buffer))
        position = self.marks.run_of(number)
        trial = self.trials[position]
        value = number - self.marks.first[position]
        return _Witness(
            run=trial.index,
            op=int(trial.program.producer[value]),
            buffer=int(trial.program.values.buffer[value]),
            value=value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Witness:
    """The fields of a record that identify a write."""

    run: int | None = None
    op: int | None = None
    buffer: int | None = None
    value: int | None = None
    content: tuple[int, int] | None = None
    """The (program, buffer) of initial content."""


def _against(low: int, high: int, given: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces of `given` in `[low, high)`, cut to this range."""
    for a, b, mark in given:
        if max(a, low) < min(b, high):
            yield max(a, low), min(b, high), mark
