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

How: memory is `Segments`, one for each arena, holding numbers of writes; apart, most buffers are written whole and keep one number. A
number is `first number of the run + value`, so a read is right if two lookups agree; only where they do not are bytes compared.

Complexity: O(accesses log segments), plus the segments and byte runs of values with holes or with a defect.

What this module does not see: kernels (an op is opaque) and orders other than that of the list.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial

import numpy as np

from allocsim.checks.case import Case, Findings, Trial, buffer_words, bytes_words, op_words, slot_words, value_words
from allocsim.checks.segments import NEVER, Piece, Segments, merged
from allocsim.checks.violations import Violation
from allocsim.model import VIEW, Program

MIXED = -2
"""In place of a number: bytes of the buffer were written by several writes; they are in segments."""

UNCLEAR = frozenset((NEVER, MIXED))

CONTENT = -3
"""Content of buffer identity k has number `CONTENT - k`."""

Step = tuple[bool, int, int, int, int, int, bool, bool, int, int]
"""write?, op, value, identity, low and high in the buffer, dense?, made by an op?, space or -1, base address."""


def check_dataflow(case: Case, findings: Findings) -> None:
    """Replay all runs and report every read that finds other bytes than it must."""
    groups = [case.trials] if case.joined else [[trial] for trial in case.trials]
    for trials in groups:
        if trials:
            _Memory(trials).replay(findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Bytes of one read with one defect: the range, the write found and the write wanted."""

    low: int
    high: int
    found: int
    wanted: int


class _Identities:
    """The buffers of several programs as one dense numbering, in order of (first run that has them, buffer)."""

    def __init__(self, trials: list[Trial]) -> None:
        self.of: dict[int, list[int]] = {}
        """Program index -> identity of each of its buffers."""
        self.home: list[tuple[Trial, int]] = []
        """For each identity, the first run that has it and its index there."""
        names: dict[str, int] = {}
        for trial in trials:
            if trial.program_index in self.of:
                continue
            buffers = trial.program.buffers
            mine: list[int] = []
            for buffer, persistent in enumerate(buffers.persistent.tolist()):
                fresh = len(self.home)
                identity = names.setdefault(buffers.names[buffer], fresh) if persistent else fresh
                if identity == fresh:
                    self.home.append((trial, buffer))
                mine.append(identity)
            self.of[trial.program_index] = mine


class _Memory:
    """Both replays of one group of runs over one memory."""

    def __init__(self, trials: list[Trial]) -> None:
        self.trials = trials
        self.identities = _Identities(trials)
        count = len(self.identities.home)
        self.persistent = [bool(trial.program.buffers.persistent[buffer]) for trial, buffer in self.identities.home]
        # numbers of writes
        self.first_number: list[int] = []
        number = 0
        for trial in trials:
            self.first_number.append(number)
            number += len(trial.program.values)
        # where buffers lie
        in_arena = [False] * count
        for trial in trials:
            for identity, placed in zip(self.identities.of[trial.program_index], trial.plan.placed.tolist(), strict=True):
                in_arena[identity] |= placed
        self.moves = in_arena
        """Buffers that some run has in an arena; the others have the same memory in both replays."""
        self.bases = [self._bases(trial) for trial in trials]
        # memory
        self.low, self.high = self._reach(count)
        self.uniform = [NEVER] * count
        self.mixed: dict[int, Segments] = {}
        self.spaces: dict[int, Segments] = {}
        self._lay_content()

    def _bases(self, trial: Trial) -> list[int]:
        bases: list[int] = np.where(trial.plan.placed, trial.plan.offset, 0).tolist()
        return bases

    def _reach(self, count: int) -> tuple[list[int], list[int]]:
        """Return the stretch of each buffer that any run accesses: what lies outside it is nobody's concern."""
        low, high = np.full(count, 1 << 62, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for trial in {trial.program_index: trial for trial in self.trials}.values():
            extents = trial.accesses.extents
            identity = np.array(self.identities.of[trial.program_index], dtype=np.int64)[extents.buffer]
            rows = extents.low < extents.high
            np.minimum.at(low, identity[rows], extents.low[rows])
            np.maximum.at(high, identity[rows], extents.high[rows])
        return low.tolist(), high.tolist()

    def _space(self, trial: Trial, buffer: int) -> int:
        """Return the number of the planned address space of a buffer: its arena, or one of its own."""
        arena = int(trial.plan.arena[buffer])
        return arena if arena >= 0 else len(trial.program.arenas) + self.identities.of[trial.program_index][buffer]

    def _lay_content(self) -> None:
        for identity, (trial, buffer) in enumerate(self.identities.home):
            if not self.persistent[identity]:
                continue
            self.uniform[identity] = CONTENT - identity
            nbytes = int(trial.program.buffers.nbytes[buffer])
            if self.moves[identity] and nbytes:
                base = int(trial.plan.offset[buffer]) if trial.plan.placed[buffer] else 0
                space = self.spaces.setdefault(self._space(trial, buffer), Segments())
                space.write(base, base + nbytes, CONTENT - identity)

    def replay(self, findings: Findings) -> None:
        """Run every op of every run through both memories."""
        scripts: dict[object, list[Step]] = {}
        for position, trial in enumerate(self.trials):
            if trial.alike not in scripts:
                scripts[trial.alike] = self._script(trial)
            self._run(position, scripts[trial.alike], findings)

    def _script(self, trial: Trial) -> list[Step]:
        """Return all accesses of a run in order: of each op first its reads, each value once, then its writes."""
        accesses, extents, program = trial.accesses, trial.accesses.extents, trial.program
        _, once = np.unique(accesses.read_op * len(program.values) + accesses.read_value, return_index=True)
        op = np.concatenate([accesses.read_op[once], accesses.write_op])
        value = np.concatenate([accesses.read_value[once], accesses.write_value])
        is_write = np.arange(len(op)) >= len(once)
        order = np.argsort(2 * op + is_write, kind="stable")
        order = order[extents.low[value[order]] < extents.high[value[order]]]
        value = value[order]
        buffer = extents.buffer[value]
        identity = np.array(self.identities.of[trial.program_index], dtype=np.int64)
        moves = np.array(self.moves, dtype=np.bool_)[identity]
        arenas = len(program.arenas)
        space = np.where(trial.plan.placed, trial.plan.arena, arenas + identity)
        space = np.where(moves, space, -1)
        base = np.where(trial.plan.placed, trial.plan.offset, 0)
        made = program.producer >= 0
        made[made] = ~program.ops.is_kind(VIEW)[program.producer[made]]
        columns = (
            is_write[order], op[order], value, identity[buffer], extents.low[value], extents.high[value],
            extents.dense[value], made[value], space[buffer], base[buffer],
        )  # fmt: skip
        for number in set(space[moves].tolist()):
            self.spaces.setdefault(number, Segments())
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _run(self, position: int, script: list[Step], findings: Findings) -> None:
        first = self.first_number[position]
        uniform, persistent, spaces = self.uniform, self.persistent, self.spaces
        reach_low, reach_high = self.low, self.high
        for step in script:
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
                if not clean:
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
            memory = self.mixed[identity] = Segments()
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
            trial, buffer = self.identities.home[CONTENT - number]
            return int(trial.plan.offset[buffer]) if trial.plan.placed[buffer] else 0
        position = self._run_of(number)
        trial = self.trials[position]
        return self.bases[position][int(trial.program.values.buffer[number - self.first_number[position]])]

    def _compare(self, position: int, step: Step, findings: Findings) -> None:
        """Compare one read byte by byte (segment by segment) and report what is wrong with it."""
        _, op, value, identity, _, _, _, made, space, base = step
        trial, first = self.trials[position], self.first_number[position]
        wrong: dict[str, list[_Found]] = {}
        for low, high, wanted in self._pieces_apart(trial, value, identity):
            if wanted == NEVER:
                wrong.setdefault("UninitialisedRead", []).append(_Found(low=low, high=high, found=NEVER, wanted=NEVER))
                continue
            if 0 <= wanted < first and not self.persistent[identity]:
                wrong.setdefault("HistoryRead", []).append(_Found(low=low, high=high, found=wanted, wanted=NEVER))
            if made and wanted >= 0 and not self._is_value(wanted, trial, value):
                wrong.setdefault("OverwrittenRead", []).append(_Found(low=low, high=high, found=wanted, wanted=NEVER))
                continue
            if space < 0:
                continue
            moved = wanted < first and self._base_of(wanted) != base
            wrong.setdefault("StaleRead", []).extend(
                _Found(low=a - base, high=b - base, found=found, wanted=wanted)
                for a, b, found in self.spaces[space].pieces(base + low, base + high)
                if found != wanted or moved
            )
        for kind, places in wrong.items():
            if places:
                findings.report(kind, partial(self._record, kind, position, op, value, places))

    def _pieces_apart(self, trial: Trial, value: int, identity: int) -> list[Piece]:
        runs = trial.accesses.extents.runs(value)
        if self.uniform[identity] != MIXED:
            return [(low, high, self.uniform[identity]) for low, high in runs]
        memory = self.mixed[identity]
        return [piece for low, high in runs for piece in memory.pieces(low, high)]

    def _is_value(self, number: int, trial: Trial, value: int) -> bool:
        position = self._run_of(number)
        return self.trials[position].program is trial.program and number - self.first_number[position] == value

    # records ---------------------------------------------------------------------------------------------------------------

    def _record(self, kind: str, position: int, op: int, value: int, places: list[_Found]) -> Violation:
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
            message=messages[kind],
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
            trial, buffer = self.identities.home[CONTENT - number]
            words = f"the content laid for {buffer_words(trial.program, buffer)}"
            mine = self.identities.of[reader.program_index]  # content has no run, so its buffer is named as the reader knows it
            known = mine.index(CONTENT - number) if CONTENT - number in mine else None
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
