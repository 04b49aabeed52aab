"""The pair of replays: what every read finds where the plan puts it, against what it must find.

Kinds: `UninitialisedRead`, `OverwrittenRead`, `StaleRead`, `HistoryRead`. One record for each kind
and (run, op, value).

A *tag* is `(run, value, shift, by)`: bit `p` of a memory holds bit `p - shift` of what that run
wrote as that value; content laid before the session is run `CONTENT` and the buffer's identity.
`by` is the run that put it there, which is a later one where a `same` moved it. Apart, memory is
one for each identity; planned, one for each space (`on_trial.Place`).

    no tag apart                                                       `UninitialisedRead`
    the value's op (no view) gave another tag than apart holds         `OverwrittenRead`
    planned holds another tag than apart                               `StaleRead`
    another run put it there apart, and the buffer is not persistent   `HistoryRead`, beside the others

Where the upload of a value was left out, content and any tag of the value will do. `bytes` are all
bytes of the read with that defect; the witnesses are those of the first.

Two buffers may share at a step where every bit shared as planned that is live in both holds one tag
in both, and there is such a bit. At the op that begins a stretch by a write a bit holds what is
written, at all others what it held before. Of a persistent buffer all bits are live while it is; at
an op that rewrites some, it holds what it held before and what is written.

What this module does not see: kernels, and orders other than that of the list.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from allocsim.judge.plain.on_trial import OnTrial, Place, Stretch, chunks, stays
from allocsim.judge.plain.ranges import HeldRanges, Ranges, in_bytes
from allocsim.judge.violations import Violation  # noqa: TC001 - read by people and mypy

CONTENT: Final = -1


class Tag(NamedTuple):
    """What a bit holds."""

    run: int
    value: int
    shift: int
    by: int

    def moved(self, shift: int, by: int | None = None) -> "Tag":
        """Return the tag at another place, or put there by another run."""
        return Tag(self.run, self.value, self.shift + shift, self.by if by is None else by)


Row = tuple[int, int, Tag | None]
"""Bits `[low, high)` of a buffer, and what they hold."""

Spaces = defaultdict[int, HeldRanges[Tag]]


class _Memory:
    """Address spaces as one run sees them."""

    def __init__(self, spaces: Spaces, place: Place) -> None:
        self.spaces, self.place = spaces, place

    def look(self, buffer: int, ranges: Ranges) -> list[Row]:
        """Return what ranges of a buffer hold."""
        space, base = self.place(buffer)
        rows = [row for low, high in ranges for row in self.spaces[space].at(low + base, high + base)]
        return [(low - base, high - base, tag and tag.moved(-base)) for low, high, tag in rows]

    def put(self, buffer: int, rows: Iterable[Row]) -> None:
        """Let ranges of a buffer hold something else."""
        space, base = self.place(buffer)
        for low, high, tag in rows:
            self.spaces[space].put(low + base, high + base, tag and tag.moved(base))


class Replay:
    """Both replays of the runs of one memory, and what the reads found."""

    def __init__(self, trial: OnTrial, runs: range) -> None:
        self.trial = trial
        self.runs = runs
        self.violations: list[Violation] = []
        self.given: dict[tuple[int, int], list[Row]] = {}
        """What a `same` gave to a value in a run, apart."""
        self.at_start: dict[int, dict[int, HeldRanges[Tag]]] = {}
        """What memory held apart when a run began, where some `same` moves anything."""
        apart, planned = Spaces(HeldRanges), Spaces(HeldRanges)
        self._memories = {
            run: (_Memory(apart, _alone(trial.document.identities[run])), _Memory(planned, trial.place(run)))
            for run in runs
        }
        self._late: dict[int, list[tuple[int, int, int, list[Row]]]] = {}
        moves = any(op.same for run in runs for op in trial.program(run).ops)
        self._lay_content()
        for run in runs:
            if moves:
                self.at_start[run] = {identity: memory.copy() for identity, memory in apart.items()}
            self._replay(run)

    def written(self, run: int, value: int) -> list[Row]:
        """Return what the op of a value gave to it in a run, apart."""
        if (run, value) in self.given:
            return self.given[run, value]
        return [(low, high, Tag(run, value, 0, run)) for low, high in self.trial.program(run).bits[value]]

    def _lay_content(self) -> None:
        laid: set[int] = set()
        for run in self.runs:
            for number, buffer in enumerate(self.trial.program(run).buffers):
                identity = self.trial.document.identities[run][number]
                if buffer.persistent and identity not in laid:
                    laid.add(identity)
                    for memory in self._memories[run]:
                        memory.put(number, [(0, 8 * buffer.nbytes, Tag(CONTENT, identity, 0, CONTENT))])

    def _replay(self, run: int) -> None:
        program, late = self.trial.program(run), self.trial.document.runs[run].read_after
        apart, planned = self._memories[run]
        for step in self.trial.live(run).steps:
            op = program.ops[step]
            for value in dict.fromkeys(op.operands):
                wanted = apart.look(program.values[value].buffer, program.bits[value])
                if op.kind == "host.read" and late is not None:
                    self._late.setdefault(late, []).append((run, step, value, wanted))
                else:
                    self._judge(run, step, value, wanted)
            for memory in (apart, planned):
                every = [self._results(run, step, position, memory) for position in range(len(op.results))]
                for position, (value, rows) in enumerate(zip(op.results, every, strict=True)):
                    if op.same and memory is apart:
                        self.given[run, value] = rows
                    if not (op.same and stays(program, op, position, memory.place)):
                        memory.put(program.values[value].buffer, rows)
        for read in self._late.pop(run, ()):
            self._judge(*read)

    def _results(self, run: int, step: int, position: int, memory: _Memory) -> list[Row]:
        """Return what an op gives to one result: a tag of its own, or, of a `same`, the tags that
        its operand holds, bit by bit; nothing where that is outside its buffer.
        """
        program, op = self.trial.program(run), self.trial.program(run).ops[step]
        result = op.results[position]
        if not op.same:
            return [(low, high, Tag(run, result, 0, run)) for low, high in program.bits[result]]
        source, target = program.buffers_of((op.operands[position], result))
        room, end = 8 * program.sizes[source], 8 * program.sizes[target]
        found: list[Row] = []
        for start, to, length in chunks(program, op, position):
            by, low, high = to - start, max(start, start - to), min(start + length, end - to + start)
            rows: list[Row] = [(low, min(high, 0), None), (max(low, room), high, None)]
            rows += memory.look(source, ((max(low, 0), min(high, room)),))
            found += [(a + by, b + by, tag and tag.moved(by, run)) for a, b, tag in rows if a < b]
        return found

    def _judge(self, run: int, step: int, value: int, wanted: list[Row]) -> None:
        """Compare what a read wants with what it finds, and keep what is wrong with it."""
        program = self.trial.program(run)
        buffer = program.values[value].buffer
        own = None if self.trial.live(run).producer(value) is None else Tag(run, value, 0, run)
        wrong: defaultdict[str, list[tuple[int, int, Tag | None, Tag | None]]] = defaultdict(list)
        for low, high, tag in wanted:
            if tag is None:
                wrong["UninitialisedRead"].append((low, high, None, None))
                continue
            if tag.by not in {run, CONTENT} and not program.buffers[buffer].persistent:
                wrong["HistoryRead"].append((low, high, tag, None))
            for left, right, given in self._expected(run, value, low, high, tag):
                if differ(given, tag):
                    wrong["OverwrittenRead"].append((left, right, tag, own))
                    continue
                for at, end, found in self._memories[run][1].look(buffer, ((left, right),)):
                    if differ(found, tag):
                        wrong["StaleRead"].append((at, end, found, tag))
        for kind, rows in wrong.items():
            found, wanted_tag = min(rows, key=lambda row: row[0])[2:]
            (other_run, other_op), (want_run, want_op) = self._writer(found), self._writer(wanted_tag)
            self.violations.append(
                self.trial.record(
                    kind,
                    run,
                    step,
                    value=value,
                    buffer=buffer,
                    other_run=other_run,
                    other_op=other_op,
                    other_buffer=self._seen_from(run, found),
                    want_run=want_run,
                    want_op=want_op,
                    bytes=in_bytes(row[:2] for row in rows),
                )
            )

    def _expected(self, run: int, value: int, low: int, high: int, tag: Tag) -> list[Row]:
        """Return what the op of a value gave to its bits, or `tag` where any such tag will do."""
        program = self.trial.program(run)
        made = program.made_by.get(value)
        if made is None or program.ops[made].kind == "view":
            return [(low, high, tag)]
        if self.trial.live(run).producer(value) is None:
            mine = tag.run == CONTENT or (self.trial.program(tag.run) is program and tag[1:3] == (value, 0))
            return [(low, high, tag if mine else None)]
        rows = [(max(low, a), min(high, b), given) for a, b, given in self.written(run, value)]
        return [row for row in rows if row[0] < row[1]]

    def _writer(self, tag: Tag | None) -> tuple[int | None, int | None]:
        """Return run and op of a write; none for content, and for nothing."""
        if tag is None or tag.run == CONTENT:
            return None, None
        return tag.run, self.trial.program(tag.run).made_by[tag.value]

    def _seen_from(self, run: int, tag: Tag | None) -> int | None:
        """Return the buffer of a write as its own program numbers it; that of content as the
        program of a run does, if it has it.
        """
        if tag is None:
            return None
        if tag.run != CONTENT:
            return self.trial.program(tag.run).values[tag.value].buffer
        mine = self.trial.document.identities[run]
        return mine.index(tag.value) if tag.value in mine else None


def _alone(identities: tuple[int, ...]) -> Place:
    """Return where buffers lie apart."""
    return lambda buffer: (identities[buffer], 0)


def differ(one: Tag | None, other: Tag | None) -> bool:
    """Return whether two places hold different things, whoever put them there."""
    return (one and one[:3]) != (other and other[:3])


def held(replay: Replay, run: int, buffer: int, step: int) -> list[Row]:
    """Return what the live bits of a buffer hold at a step, once for each stretch they live in."""
    live = replay.trial.live(run)
    identity = replay.trial.document.identities[run][buffer]
    memory = replay.at_start[run].get(identity, HeldRanges[Tag]())
    rows: list[Row] = []
    for stretch in live.stretches(buffer):
        start, stop, low, high, value = stretch
        if not start <= step < stop:
            continue
        if live.program.buffers[buffer].persistent:
            rows += _whole(replay, run, buffer, stretch, memory.copy(), step=step)
            continue
        found = memory.at(low, high) if value is None else replay.written(run, value)
        rows += [(max(a, low), min(b, high), tag) for a, b, tag in found if a < high and b > low]
    return rows


def _whole(replay: Replay, run: int, buffer: int, stretch: Stretch, memory: HeldRanges[Tag], *, step: int) -> list[Row]:
    """Return what a persistent buffer holds before an op, if it is live there, and after it, if
    that writes.
    """
    start, _, low, high, _ = stretch
    before: list[Row] = []
    for at, (_, values) in replay.trial.live(run).touched(buffer).items():
        if at > step:
            break
        if at == step and values and start < step:
            before = memory.at(low, high)
        for row in [row for value in values for row in replay.written(run, value)]:
            memory.put(*row)
    return before + memory.at(low, high)


def agree(one: list[Row], other: list[Row], by: int) -> bool:
    """Return whether every bit that both hold has one tag in both, and there is one; the other
    buffer begins `by` bits behind the one.
    """
    pairs = [
        (tag, other_tag and other_tag.moved(by))
        for low, high, tag in one
        for other_low, other_high, other_tag in other
        if max(low, other_low + by) < min(high, other_high + by)
    ]
    return bool(pairs) and all(tag is not None and not differ(tag, other_tag) for tag, other_tag in pairs)


def might_agree(one: list[Row], other: list[Row]) -> bool:
    """Return whether there is a distance at which two buffers agree."""
    tags = [{row[2] for row in rows if row[2] is not None} for rows in (one, other)]
    return any(agree(one, other, a.shift - b.shift) for a in tags[0] for b in tags[1] if a[:2] == b[:2])
