"""Compare what every read finds as planned with what it must find, by two replays:
`UninitialisedRead`, `OverwrittenRead`, `StaleRead`, `HistoryRead`, one for each (run, op, value).

A *tag* is `(run, value, shift, by)`: bit `p` of a memory holds bit `p - shift` of `value`, which
`run` wrote. Initial content has run `CONTENT` and the name of its buffer as value. `by` is the run
that stored the bit at its place; `by` may be later than `run` if a `same` moved the bit. In the
replay *apart*, each buffer has its own memory; in *planned*, each has its plan's address.

    apart, the bit has no tag                                          `UninitialisedRead`
    apart, the bit has another tag than the value's op (no view) wrote `OverwrittenRead`
    planned, the bit has another tag than apart                        `StaleRead`
    apart, another run stored the bit; the buffer is not persistent    `HistoryRead`, beside the others

If the upload of a value was left out, a read may find content or any run's tag of the value.
`bytes` are all bytes of the read with the defect; the witnesses belong to the first byte.

Two buffers may share bytes at a step if some bit that they share as planned is live in both, and
every such bit has one tag in both. At the op that writes a bit, the bit has the new content, at all
other ops the content from before. All bits of a live persistent buffer are live. At an op that
rewrites some bits, such a buffer counts with both its old and its new content.

This module does not examine the computations of kernels, or orders other than list order.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from allocsim.judge.plain.document_records import OpRecord, Pair
from allocsim.judge.plain.on_trial import Places, RunOnTrial, Space, behind, chunks, moving
from allocsim.judge.plain.ranges import HeldRanges, Ranges, in_bytes, meet, without
from allocsim.judge.violations import Violation  # noqa: TC001 - for readers and mypy

CONTENT: Final = -1


class Tag(NamedTuple):
    """The content of a bit, identified by its write."""

    run: int
    value: Any
    shift: int
    by: int

    def moved(self, shift: int, by: int | None = None) -> "Tag":
        """Return the tag moved up by `shift` bits; `by`, if given, is the run that moved it."""
        return Tag(self.run, self.value, self.shift + shift, self.by if by is None else by)


Row = tuple[int, int, Tag | None]
"""The bits `[low, high)` of a buffer, and their tag."""

Spaces = defaultdict[Space, HeldRanges[Tag]]


class _Memory(NamedTuple):
    """Address spaces, with the places of one run's buffers in these spaces."""

    spaces: Spaces
    places: Places

    def look(self, buffer: int, ranges: Ranges) -> list[Row]:
        """Return the tags of some ranges of a buffer."""
        space, base = self.places[buffer]
        rows = [row for low, high in ranges for row in self.spaces[space].at(low + base, high + base)]
        return [(low - base, high - base, tag and tag.moved(-base)) for low, high, tag in rows]

    def put(self, buffer: int, rows: Iterable[Row]) -> None:
        """Write tags into some ranges of a buffer."""
        space, base = self.places[buffer]
        for low, high, tag in rows:
            self.spaces[space].put(low + base, high + base, tag and tag.moved(base))


class Replay:
    """Both replays of the runs over one memory, and the violations of their reads."""

    def __init__(self, runs: Sequence[RunOnTrial]) -> None:
        self.violations: list[Violation] = []
        self.given: dict[tuple[int, int], list[Row]] = {}
        """For each (run, value), the tags that a `same` wrote to the value in the replay apart."""
        self.at_start: dict[int, dict[Space, HeldRanges[Tag]]] = {}
        """For each run, memory apart at its start; empty if no program has a `same`."""
        self._runs = {run.index: run for run in runs}
        self._late: defaultdict[int, list[tuple[RunOnTrial, int, int, list[Row]]]] = defaultdict(list)
        apart, planned = Spaces(HeldRanges), Spaces(HeldRanges)
        self._memories = {run.index: (_Memory(apart, run.apart), _Memory(planned, run.planned)) for run in runs}
        laid: set[str] = set()
        for run in runs:
            for number, buffer in enumerate(run.program.buffers):
                if buffer.persistent and buffer.name not in laid:
                    laid.add(buffer.name)
                    for memory in self._memories[run.index]:
                        memory.put(number, [(0, 8 * buffer.nbytes, Tag(CONTENT, buffer.name, 0, CONTENT))])
        moves = any(op.same for run in runs for op in run.program.ops)
        for run in runs:
            if moves and run.problem is None:
                self.at_start[run.index] = {space: ranges.copy() for space, ranges in apart.items()}
            self._replay(run)

    def written(self, run: RunOnTrial, value: int) -> list[Row]:
        """Return the tags that a value's op wrote in a run, in the replay apart."""
        return self.given.get((run.index, value)) or _own(run, value)

    def _replay(self, run: RunOnTrial) -> None:
        program, late = run.program, run.run.read_after
        apart, planned = self._memories[run.index]
        for step, op in run.live.ops.items():
            for value in dict.fromkeys(op.operands):
                wanted = apart.look(program.values[value].buffer, program.bits[value])
                if op.kind == "host.read" and late is not None:
                    self._late[late].append((run, step, value, wanted))
                else:
                    self._judge(run, step, value, wanted)
            for memory in (apart, planned):
                results = [_results(run, op, position, memory) for position in range(len(op.results))]
                if op.same and memory is apart:
                    self.given |= {(run.index, value): rows for value, rows in zip(op.results, results, strict=True)}
                for position in moving(program, op, memory.places):
                    memory.put(program.values[op.results[position]].buffer, results[position])
        for read in self._late.pop(run.index, ()):
            self._judge(*read)

    def _judge(self, run: RunOnTrial, step: int, value: int, wanted: list[Row]) -> None:
        """Compare the tags that a read must find with the planned tags, and keep violations."""
        buffer = run.program.values[value].buffer
        own = Tag(run.index, value, 0, run.index) if value in run.live.made_by else None
        wrong: defaultdict[str, list[tuple[int, int, Tag | None, Tag | None]]] = defaultdict(list)
        for low, high, tag in wanted:
            if tag is None:
                wrong["UninitialisedRead"].append((low, high, None, None))
                continue
            if tag.by not in {run.index, CONTENT} and not run.program.buffers[buffer].persistent:
                wrong["HistoryRead"].append((low, high, tag, None))
            for left, right, given in self._expected(run, value, low, high, tag):
                if differ(given, tag):
                    wrong["OverwrittenRead"].append((left, right, tag, own))
                    continue
                for at, end, found in self._memories[run.index][1].look(buffer, ((left, right),)):
                    if differ(found, tag):
                        wrong["StaleRead"].append((at, end, found, tag))
        for kind, rows in wrong.items():
            found, want = min(rows, key=lambda row: row[0])[2:]
            about = {"value": value, "buffer": buffer, "bytes": in_bytes(row[:2] for row in rows)}
            about |= zip(("other_run", "other_op", "other_buffer"), self._writer(run, found), strict=True)
            about |= zip(("want_run", "want_op"), self._writer(run, want)[:2], strict=True)
            self.violations.append(run.violation(kind, step, **about))

    def _expected(self, run: RunOnTrial, value: int, low: int, high: int, tag: Tag) -> list[Row]:
        """Return the tags that the value's op wrote to these bits, or `tag` itself if allowed."""
        if value in run.live.made_by:
            rows = [(max(low, a), min(high, b), given) for a, b, given in self.written(run, value)]
            return [row for row in rows if row[0] < row[1]]
        if run.program.made_by.get(value) not in run.run.skip or tag.run == CONTENT:
            return [(low, high, tag)]
        mine = self._runs[tag.run].program is run.program and tag[1:3] == (value, 0)
        return [(low, high, tag if mine else None)]

    def _writer(self, run: RunOnTrial, tag: Tag | None) -> tuple[int | None, int | None, int | None]:
        """Return run, op and buffer of a write; initial content has only a buffer, or None."""
        if tag is None:
            return None, None, None
        if tag.run == CONTENT:
            place = (tag.value, 0)
            return None, None, run.apart.index(place) if place in run.apart else None
        program = self._runs[tag.run].program
        return tag.run, program.made_by[tag.value], program.values[tag.value].buffer


def _own(run: RunOnTrial, value: int) -> list[Row]:
    """Return the bits of a value with the tag of its own op in a run."""
    return [(low, high, Tag(run.index, value, 0, run.index)) for low, high in run.program.bits[value]]


def _results(run: RunOnTrial, op: OpRecord, position: int, memory: _Memory) -> list[Row]:
    """Return the tags of a result: the operand's tags for a `same`, else the op's own tag."""
    result = op.results[position]
    if not op.same:
        return _own(run, result)
    source, target = run.program.buffers_of((op.operands[position], result))
    room, end = 8 * run.program.sizes[source], 8 * run.program.sizes[target]
    found: list[Row] = []
    for start, to, length in chunks(run.program, op, position):
        by = to - start
        part = meet(((start, start + length),), ((-by, end - by),))
        rows: list[Row] = [(*outside, None) for outside in without(part, ((0, room),))]
        rows += memory.look(source, meet(part, ((0, room),)))
        found += [(low + by, high + by, tag and tag.moved(by, run.index)) for low, high, tag in rows]
    return found


def differ(one: Tag | None, other: Tag | None) -> bool:
    """Return whether two tags name different content, whatever run stored the content."""
    return (one and one[:3]) != (other and other[:3])


def held(replay: Replay, run: RunOnTrial, buffer: int, step: int) -> list[Row]:
    """Return the tags of a buffer's live bits at a step, old and new tags for rewritten bits."""
    live = [row for row in run.live.stretches[buffer] if row[0] <= step < row[1]]
    if not live:
        return []
    before, after = (_before(replay, run, buffer, until) for until in (step, step + 1))
    kept, (_, writes) = run.program.buffers[buffer].persistent, run.live.touched[buffer].get(step, ([], []))
    rows: list[Row] = []
    for start, _, low, high, value in live:
        begins = start == step and (kept or value is not None)
        rows += [] if begins else before.at(low, high)
        rows += after.at(low, high) if writes and (begins or kept) else []
    return rows


def _before(replay: Replay, run: RunOnTrial, buffer: int, until: int) -> HeldRanges[Tag]:
    """Return the tags of a buffer before the step `until`, in the replay apart."""
    space, _ = run.apart[buffer]
    memory = replay.at_start[run.index].get(space, HeldRanges[Tag]()).copy()
    written = [value for step, (_, values) in run.live.touched[buffer].items() if step < until for value in values]
    for row in [row for value in written for row in replay.written(run, value)]:
        memory.put(*row)
    return memory


def alike(replay: Replay, run: RunOnTrial, pair: Pair, step: int) -> bool:
    """Return whether two buffers have equal tags at a step in the live bits that they share."""
    by = behind(run.planned, *pair)
    if by is None or run.index not in replay.at_start:
        return False
    one, other = (held(replay, run, buffer, step) for buffer in pair)
    return _agree(one, other, by)


def _agree(one: list[Row], other: list[Row], by: int) -> bool:
    """Return whether rows have equal tags in common bits, `other` moved up by `by` bits."""
    moved = [(low + by, high + by, tag and tag.moved(by)) for low, high, tag in other]
    pairs = [(mine, tag) for start, stop, mine in one for low, high, tag in moved if max(start, low) < min(stop, high)]
    return bool(pairs) and all(mine is not None and not differ(mine, tag) for mine, tag in pairs)


def might_agree(one: list[Row], other: list[Row]) -> bool:
    """Return whether two buffers have equal tags at some distance from each other."""
    tags = [{row[2] for row in rows if row[2] is not None} for rows in (one, other)]
    return any(_agree(one, other, a.shift - b.shift) for a in tags[0] for b in tags[1] if a[:2] == b[:2])
