"""The pair of replays: what every read finds where the plan puts it, against what it must find.

Ground truth
    Two replays of the same runs. *Apart*, every buffer has memory of its own. *Planned*, buffers lie where the plan of the run
    puts them; those with no slot in an arena have memory of their own there too. Runs of a session are joined over one memory;
    without a session each run has fresh memory. A buffer is the same from run to run of its program; a parameter or state is the
    same in all programs that have one of its name.
Tags
    Every byte carries the write that wrote it last: (run, value, byte of the value). A write is one value made by one op in one
    run. The content of a parameter or state is a write before the first run, laid in order of (first run that has it, buffer)
    where that run's plan puts the buffer. Since a value never moves within its buffer, two bytes carry one tag exactly if they
    were written by one write and the buffer began at one address when they were: the byte of the value need not be kept.
Each read, of each value that an op (no view, not skipped) has among its operands, once for each (run, op, value)
    no tag apart                                                            -> `UninitialisedRead`
    made by an op other than `view`, and apart holds another value's tag    -> `OverwrittenRead`
    otherwise, planned differs from apart                                   -> `StaleRead`
    written in an earlier run, apart, and neither parameter nor state       -> `HistoryRead` (warning, beside the others)
    Content counts as no other value: it is found only where the host left out the upload that would replace it.
Records
    `bytes` are all bytes of that read with that defect, merged. The witnesses are those of the lowest such byte: `other_*` the write
    found (none if nothing did; run and op none if it is content, its buffer as the reader's program numbers it, if it has it), `want_*` the write wanted. For `OverwrittenRead`
    the write wanted is the value's own in this run, none if its upload was left out. `UninitialisedRead` has no witness, for nothing wrote.

How: memory is `OwnerAxis`, one for each arena, holding numbers of writes; apart, most buffers are written whole and keep one number. A
number is `first number of the run + value`, so a read is right if two lookups agree; only where they do not are bytes compared. Of many reads
a compiled `screen` says first which need that at all, and where it says none, nothing is replayed here.

A bound: of the reads of one memory (a session's, or a run's without one) that may be wrong, `PIECES` pieces of equal writer are looked at in all. From then on each read
is looked at up to its first piece with a violation: it is reported by that, says so, and makes counts a lower bound; a warning ends no look. When
`MOST` pieces have been looked at, each read gets `FEW`. One that has more, and no violation among them, has no verdict, and if no read has one,
the document has none either: ModelError.

Complexity: O(accesses log segments), plus the segments and byte runs of values with holes or with a defect.

What this module does not see: kernels (an op is opaque) and orders other than that of the list.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from allocsim.checks.intervals import distinct
from allocsim.checks.owners import NEVER, OwnerAxis, Piece, merged
from allocsim.checks.s_script import Runs, Script, Step
from allocsim.checks.trial import Findings, Trial, TrialDocument, buffer_words, bytes_words, op_words, slot_words, value_words
from allocsim.checks.violations import Violation
from allocsim.errors import ModelError
from allocsim.model import Bools, Program
from allocsim.model.layout import Int64s

MIXED = -2
"""In place of a number: bytes of the buffer were written by several writes; they are in segments."""

UNCLEAR = frozenset((NEVER, MIXED))

CONTENT = -3
"""Content of buffer identity k has number `CONTENT - k`."""


PIECES: Final = 1 << 20
"""Pieces looked at in all the reads that may be wrong, before each ends at its first violation: a bound on what is listed."""

MOST: Final = 1 << 24
"""Pieces looked at in all, before each read is cut short: a bound on time."""

FEW: Final = 64
"""Pieces looked at in each read from then on."""

GUILTY: Final = ("UninitialisedRead", "OverwrittenRead", "StaleRead")
"""Violations of a read; `HistoryRead` is a warning, and says nothing of the pieces behind it."""


def check_dataflow(case: TrialDocument, findings: Findings) -> None:
    """Replay all runs and report every read that finds other bytes than it must."""
    groups = [case.trials] if case.joined else [[trial] for trial in case.trials]
    undecided = 0
    for trials in groups:
        if any(len(trial.accesses.read_op) for trial in trials):
            runs = Runs.of(trials)
            looks = case.selector.reads(runs)
            if looks is None or any(len(rows) for rows in looks):
                memory = _Memory(runs)
                memory.replay(findings, looks)
                undecided += memory.undecided
    if undecided and not any(findings.counts[kind] for kind in GUILTY):
        rule = f"{undecided} reads of more pieces than can be looked at, {MOST} in all; what was looked at is right, and there is no verdict"
        raise ModelError("runs", rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Bytes of one read with one defect: the range, the write found and the write wanted."""

    low: int
    high: int
    found: int
    wanted: int


class _Memory:
    """Both replays of one group of runs over one memory."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.trials = runs.identities.trials
        self.identities = runs.identities
        self.persistent: list[bool] = runs.identities.persistent.tolist()
        # numbers of writes
        self.first_number: list[int] = []
        number = 0
        for trial in self.trials:
            self.first_number.append(number)
            number += len(trial.program.values)
        # memory
        self.low, self.high = (column.tolist() for column in runs.identities.reach)
        self.uniform = [NEVER] * runs.identities.count
        self.mixed: dict[int, OwnerAxis] = {}
        self.spaces: dict[int, OwnerAxis] = {}
        for script in runs.scripts:
            for space in distinct(script.places[0]).tolist():
                self.spaces.setdefault(space, OwnerAxis())
        self.looked = 0
        """Pieces looked at so far."""
        self.undecided = 0
        """Reads cut short with nothing found."""
        self._lay_content()

    def _lay_content(self) -> None:
        for identity in np.flatnonzero(self.identities.persistent).tolist():
            self.uniform[identity] = CONTENT - identity
            position, buffer = self.identities.home(identity)
            nbytes = int(self.trials[position].program.buffers.nbytes[buffer])
            space, base = self._place(position, buffer)
            if space >= 0 and nbytes:
                self.spaces[space].write(base, base + nbytes, CONTENT - identity)

    def _place(self, position: int, buffer: int) -> tuple[int, int]:
        """Return address space (-1 where it stays) and base address of a buffer in one run."""
        space, base = self.runs.scripts[self.runs.follows[position]].places
        return int(space[buffer]), int(base[buffer])

    def replay(self, findings: Findings, looks: list[Int64s] | None) -> None:
        """Run every op of every run through both memories; look at all reads, or at those in the rows given for each run."""
        last = len(self.trials) if looks is None else max((run + 1 for run, rows in enumerate(looks) if len(rows)), default=0)
        for position in range(last):
            script = self.runs.scripts[self.runs.follows[position]]
            chosen = None
            if looks is not None:
                chosen = script.write.copy()
                chosen[looks[position]] = True
            self._run(position, script, chosen, findings)

    def _run(self, position: int, script: Script, chosen: Bools | None, findings: Findings) -> None:
        first = self.first_number[position]
        uniform, persistent, spaces = self.uniform, self.persistent, self.spaces
        reach_low, reach_high = self.low, self.high
        seen: tuple[int, set[int]] = -1, set()
        for step in script.steps(chosen):
            is_write, _, value, identity, low, high, dense, made, space, base = step
            if not is_write:
                wanted = uniform[identity]
                if wanted >= first:
                    clean = not made or wanted == first + value
                else:
                    clean = wanted not in UNCLEAR and not made and persistent[identity]
                if clean and space >= 0:
                    clean = spaces[space].holds(base + low, base + high, wanted) and (
                        wanted >= first or self._base_of(wanted) == base
                    )
                if clean:
                    continue
                if seen[0] != step[1]:
                    seen = step[1], set()
                if value not in seen[1]:
                    seen[1].add(value)
                    self._compare(position, step, findings)
                continue
            number = first + value
            if dense and low == reach_low[identity] and high == reach_high[identity]:
                uniform[identity] = number
            else:
                self._write_part(position, value, identity, number)
            if space < 0:
                continue
            if dense:
                spaces[space].write(base + low, base + high, number)
            else:
                runs = self.trials[position].accesses.extents.runs(value)
                spaces[space].write_runs([(base + a, base + b) for a, b in runs], number)

    def _write_part(self, position: int, value: int, identity: int, number: int) -> None:
        """Apart: write a value that does not fill its buffer."""
        if self.uniform[identity] != MIXED:
            memory = self.mixed[identity] = OwnerAxis()
            if self.uniform[identity] != NEVER:
                memory.write(self.low[identity], self.high[identity], self.uniform[identity])
            self.uniform[identity] = MIXED
        self.mixed[identity].write_runs(self.trials[position].accesses.extents.runs(value), number)

    def _run_of(self, number: int) -> int:
        """Return the position of the run that a (non-negative) number belongs to."""
        return bisect_right(self.first_number, number) - 1

    def _base_of(self, number: int) -> int:
        """Return where the buffer of a write began in its space when it was written."""
        if number <= CONTENT:
            return self._place(*self.identities.home(CONTENT - number))[1]
        position = self._run_of(number)
        value = number - self.first_number[position]
        return self._place(position, int(self.trials[position].program.values.buffer[value]))[1]

    def _compare(self, position: int, step: Step, findings: Findings) -> None:
        """Compare one read byte by byte (segment by segment) and report what is wrong with it."""
        _, op, value, *_ = step
        wrong: dict[str, list[_Found]] = {}
        pieces, guilty, told = self._looks(position, step), False, True
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
        cut = next(pieces, None) is not None
        findings.bounded |= cut
        self.undecided += cut and not guilty
        for kind, places in wrong.items():
            findings.report(kind, partial(self._record, kind, position, op, value, places, cut=cut or not told))

    def _looks(self, position: int, step: Step) -> Iterator[tuple[tuple[str, _Found], ...]]:
        """Yield the defects of every piece of a read, cut where its writer changes apart or as planned; none where it is right."""
        _, _, value, identity, _, _, _, made, space, base = step
        trial, first = self.trials[position], self.first_number[position]
        for low, high, wanted in self._pieces_apart(trial, value, identity):
            if wanted == NEVER:
                yield (("UninitialisedRead", _Found(low=low, high=high, found=NEVER, wanted=NEVER)),)
                continue
            old: tuple[tuple[str, _Found], ...] = ()
            if 0 <= wanted < first and not self.persistent[identity]:
                old = (("HistoryRead", _Found(low=low, high=high, found=wanted, wanted=NEVER)),)
            if made and wanted >= 0 and not self._is_value(wanted, trial, value):
                yield (*old, ("OverwrittenRead", _Found(low=low, high=high, found=wanted, wanted=NEVER)))
                continue
            if space < 0:
                yield old
                continue
            moved = wanted < first and self._base_of(wanted) != base
            for a, b, found in self.spaces[space].walk(base + low, base + high):
                if found != wanted or moved:
                    yield (*old, ("StaleRead", _Found(low=a - base, high=b - base, found=found, wanted=wanted)))
                else:
                    yield old
                old = ()

    def _pieces_apart(self, trial: Trial, value: int, identity: int) -> Iterator[Piece]:
        runs = trial.accesses.extents.runs(value)
        if self.uniform[identity] != MIXED:
            return iter([(low, high, self.uniform[identity]) for low, high in runs])
        memory = self.mixed[identity]
        return (piece for low, high in runs for piece in memory.walk(low, high))

    def _is_value(self, number: int, trial: Trial, value: int) -> bool:
        position = self._run_of(number)
        return self.trials[position].program is trial.program and number - self.first_number[position] == value

    # records ---------------------------------------------------------------------------------------------------------------

    def _record(self, kind: str, position: int, op: int, value: int, places: list[_Found], *, cut: bool) -> Violation:
        trial = self.trials[position]
        program, buffer = trial.program, int(trial.program.values.buffer[value])
        ranges = merged((place.low, place.high) for place in places)
        found = places[0].found
        wanted = self._own_write(position, value) if kind == "OverwrittenRead" else places[0].wanted
        finder, wanter = self._witness(found, trial), self._witness(wanted, trial)
        read = f"{op_words(program, op)} reads {bytes_words(ranges)} of {buffer_words(program, buffer)} as {value_words(program, value)}"
        where = slot_words(program, trial.plan, buffer)
        messages = {
            "UninitialisedRead": f"{read}: nothing wrote them before",
            "OverwrittenRead": f"{read}: the program itself wrote over them, by {finder.words}",
            "StaleRead": f"{read} in {where}: they hold what {finder.words} left there, not what {wanter.words} did",
            "HistoryRead": f"{read}: they date from an earlier run, by {finder.words}",
        }
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
            message=messages[kind] + ("; more of its pieces may be wrong" if cut else ""),
            other=finder.program,
            wanted=wanter.program,
        )

    def _own_write(self, position: int, value: int) -> int:
        """Return the number of the write of a value in one run, `NEVER` if its upload was left out."""
        trial = self.trials[position]
        return NEVER if int(trial.program.producer[value]) in trial.skip else self.first_number[position] + value

    def _witness(self, number: int, reader: Trial) -> "_Witness":
        if number == NEVER:
            return _Witness(words="nobody")
        if number <= CONTENT:
            position, buffer = self.identities.home(CONTENT - number)
            words = f"the content laid for {buffer_words(self.trials[position].program, buffer)}"
            # content has no run, so its buffer is named as the reader knows it
            mine = np.flatnonzero(self.identities.of[reader.program_index] == CONTENT - number)
            known = int(mine[0]) if len(mine) else None
            return _Witness(program=reader.program, buffer=known, words=words)
        position = self._run_of(number)
        trial = self.trials[position]
        value = number - self.first_number[position]
        op = int(trial.program.producer[value])
        return _Witness(
            run=trial.index,
            op=op,
            buffer=int(trial.program.values.buffer[value]),
            program=trial.program,
            words=f"{op_words(trial.program, op)} of run {trial.index} ({value_words(trial.program, value)})",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Witness:
    """A write as a record names it."""

    words: str
    run: int | None = None
    op: int | None = None
    buffer: int | None = None
    program: Program | None = None
