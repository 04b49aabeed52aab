"""The pair of replays: what every read finds where the plan puts it, against what it must find.

Kinds: `UninitialisedRead`, `OverwrittenRead`, `StaleRead`, `HistoryRead`. One record for each kind
and (run, op, value).

A *tag* is `(run, value, shift)`: bit `p` of a memory holds bit `p - shift` of what that run wrote
as that value; content laid before the session is run `CONTENT` and the buffer's identity. Behind it
stands the run that put it there, which is a later one where a `same` moved it. Apart,
memory is one for each identity; planned, one for each space (`on_trial.Place`).

    no tag apart                                                       `UninitialisedRead`
    the value's op (no view) gave another tag than apart holds         `OverwrittenRead`
    planned holds another tag than apart                               `StaleRead`
    another run put it there apart, and the buffer is not persistent   `HistoryRead`, beside the others

Where the upload of a value was left out, content and any tag of the value will do. `bytes` are all
bytes of the read with that defect; the witnesses are those of the first.

What this module does not see: kernels, and orders other than that of the list.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from allocsim.judge.plain.layouts import Ranges, in_bytes
from allocsim.judge.plain.memory import HeldRanges
from allocsim.judge.plain.on_trial import OnTrial, Place, stays
from allocsim.judge.plain.reads_and_writes import chunks
from allocsim.judge.violations import Violation

CONTENT: Final = -1

Tag = tuple[int, int, int, int]
Row = tuple[int, int, Tag | None]
"""Bits `[low, high)` of a buffer, and what they hold."""

Tags = HeldRanges[Tag]


class Replay:
    """Both replays of the runs of one memory, and what the reads found."""

    def __init__(self, trial: OnTrial, runs: range) -> None:
        self.trial = trial
        self.runs = runs
        self.violations: list[Violation] = []
        self.given: dict[tuple[int, int], list[Row]] = {}
        """What a `same` gave to a value in a run, apart."""
        self.at_start: dict[int, dict[int, Tags]] = {}
        """What memory held apart when a run began, where some `same` moves anything."""
        self._apart: dict[int, Tags] = {}
        self._planned: dict[int, Tags] = {}
        self._late: dict[int, list[tuple[int, int, int, list[Row]]]] = {}
        moves = any(op.same for run in runs for op in trial.program(run).ops)
        self._lay_content()
        for run in runs:
            if moves:
                self.at_start[run] = {identity: memory.copy() for identity, memory in self._apart.items()}
            self._replay(run)

    def written(self, run: int, value: int) -> list[Row]:
        """Return what the op of a value gave to it in a run, apart."""
        if (run, value) in self.given:
            return self.given[run, value]
        return [(low, high, (run, value, 0, run)) for low, high in self.trial.program(run).runs[value]]

    def _lay_content(self) -> None:
        for run in self.runs:
            place = self.trial.place(run)
            for number, buffer in enumerate(self.trial.program(run).buffers):
                identity = self.trial.document.identities[run][number]
                if not buffer.persistent or identity in self._apart:
                    continue
                space, base = place(number)
                self._memory(self._apart, identity).put(0, 8 * buffer.nbytes, (CONTENT, identity, 0, CONTENT))
                self._memory(self._planned, space).put(
                    base, base + 8 * buffer.nbytes, (CONTENT, identity, base, CONTENT)
                )

    def _replay(self, run: int) -> None:
        program, record = self.trial.program(run), self.trial.document.runs[run]
        identities = self.trial.document.identities[run]
        places: list[tuple[dict[int, Tags], Place]] = [
            (self._apart, lambda buffer: (identities[buffer], 0)),
            (self._planned, self.trial.place(run)),
        ]
        for step in self.trial.live(run).accesses.steps:
            op = program.ops[step]
            for value in dict.fromkeys(op.operands):
                wanted = list(self._look(*places[0], program.values[value].buffer, program.runs[value]))
                if op.kind == "host.read" and record.read_after is not None:
                    self._late.setdefault(record.read_after, []).append((run, step, value, wanted))
                else:
                    self._judge(run, step, value, wanted)
            for memories, place in places:
                self._write(run, step, memories, place)
        for late in self._late.pop(run, ()):
            self._judge(*late)

    def _write(self, run: int, step: int, memories: dict[int, Tags], place: Place) -> None:
        program = self.trial.program(run)
        op = program.ops[step]
        if op.same:
            every = [list(self._moved(run, step, i, memories, place)) for i in range(len(op.results))]
        else:
            every = [[(*part, (run, value, 0, run)) for part in program.runs[value]] for value in op.results]
        for position, (value, rows) in enumerate(zip(op.results, every, strict=True)):
            if op.same and memories is self._apart:
                self.given[run, value] = rows
            if op.same and stays(program, op, position, place):
                continue
            space, base = place(program.values[value].buffer)
            memory = self._memory(memories, space)
            for low, high, tag in rows:
                memory.put(low + base, high + base, tag and (*tag[:2], tag[2] + base, tag[3]))

    def _moved(self, run: int, step: int, position: int, memories: dict[int, Tags], place: Place) -> Iterator[Row]:
        """Yield what a `same` gives to one result: the tags that its operand holds, bit by bit."""
        program = self.trial.program(run)
        op = program.ops[step]
        source = program.values[op.operands[position]].buffer
        nbits = 8 * program.buffers[source].nbytes
        ends = 8 * program.buffers[program.values[op.results[position]].buffer].nbytes
        for start, to, length in chunks(program, op, position):
            by, low, high = to - start, max(start, -(to - start)), min(start + length, ends - (to - start))
            for left, right in ((low, min(high, 0)), (max(low, nbits), high)):
                if left < right:
                    yield left + by, right + by, None
            for left, right, tag in self._look(memories, place, source, ((max(low, 0), min(high, nbits)),)):
                yield left + by, right + by, tag and (*tag[:2], tag[2] + by, run)

    def _look(self, memories: dict[int, Tags], place: Place, buffer: int, ranges: Ranges) -> Iterator[Row]:
        space, base = place(buffer)
        memory = self._memory(memories, space)
        for low, high in ranges:
            for left, right, tag in memory.at(low + base, high + base):
                yield left - base, right - base, tag and (*tag[:2], tag[2] - base, tag[3])

    @staticmethod
    def _memory(memories: dict[int, Tags], space: int) -> Tags:
        if space not in memories:
            memories[space] = HeldRanges()
        return memories[space]

    def _judge(self, run: int, step: int, value: int, wanted: list[Row]) -> None:
        """Compare what a read wants with what it finds, and keep what is wrong with it."""
        program, place = self.trial.program(run), self.trial.place(run)
        buffer = program.values[value].buffer
        wrong: dict[str, list[tuple[int, int, Tag | None, Tag | None]]] = {}
        for low, high, tag in wanted:
            if tag is None:
                wrong.setdefault("UninitialisedRead", []).append((low, high, None, None))
                continue
            if tag[3] not in {run, CONTENT} and not program.buffers[buffer].persistent:
                wrong.setdefault("HistoryRead", []).append((low, high, tag, None))
            for left, right, own in self._expected(run, value, low, high, tag):
                if differ(own, tag):
                    wrong.setdefault("OverwrittenRead", []).append((left, right, tag, self._own(run, value)))
                    continue
                for at, end, found in self._look(self._planned, place, buffer, ((left, right),)):
                    if differ(found, tag):
                        wrong.setdefault("StaleRead", []).append((at, end, found, tag))
        for kind, rows in wrong.items():
            self.violations.append(self._record(kind, run, step, value, rows))

    def _expected(self, run: int, value: int, low: int, high: int, tag: Tag) -> Iterable[Row]:
        """Return what the op of a value gave to its bits, or `tag` where any such tag will do."""
        program = self.trial.program(run)
        made = program.made_by.get(value)
        if made is None or program.ops[made].kind == "view":
            return [(low, high, tag)]
        if self.trial.live(run).accesses.producer(value) is None:
            same_program = tag[0] != CONTENT and self.trial.program(tag[0]) is program
            will_do = tag[0] == CONTENT or (same_program and tag[1:3] == (value, 0))
            return [(low, high, tag if will_do else None)]
        rows = [(max(low, a), min(high, b), given) for a, b, given in self.written(run, value)]
        return [row for row in rows if row[0] < row[1]]

    def _own(self, run: int, value: int) -> Tag | None:
        return None if self.trial.live(run).accesses.producer(value) is None else (run, value, 0, run)

    def _record(
        self, kind: str, run: int, step: int, value: int, rows: list[tuple[int, int, Tag | None, Tag | None]]
    ) -> Violation:
        found, wanted = min(rows, key=lambda row: row[0])[2:]
        other_run, other_op = self._writer(found)
        want_run, want_op = self._writer(wanted)
        record = self.trial.document.runs[run]
        return Violation(
            kind=kind,
            program=record.program,
            plan=record.plan,
            run=run,
            step=step,
            op=step,
            value=value,
            buffer=self.trial.program(run).values[value].buffer,
            other_run=other_run,
            other_op=other_op,
            other_buffer=self._seen_from(run, found),
            want_run=want_run,
            want_op=want_op,
            bytes=in_bytes((low, high) for low, high, _, _ in rows),
        )

    def _writer(self, tag: Tag | None) -> tuple[int | None, int | None]:
        """Return run and op of a write; none for content, and for nothing."""
        if tag is None or tag[0] == CONTENT:
            return None, None
        return tag[0], self.trial.program(tag[0]).made_by[tag[1]]

    def _seen_from(self, run: int, tag: Tag | None) -> int | None:
        """Return the buffer of a write as its own program numbers it; that of content as the
        program of a run does, if it has it.
        """
        if tag is None:
            return None
        if tag[0] == CONTENT:
            mine = self.trial.document.identities[run]
            return mine.index(tag[1]) if tag[1] in mine else None
        program = self.trial.program(tag[0])
        return program.values[tag[1]].buffer


def differ(one: Tag | None, other: Tag | None) -> bool:
    """Return whether two places hold different things, whoever put them there."""
    return (one and one[:3]) != (other and other[:3])
