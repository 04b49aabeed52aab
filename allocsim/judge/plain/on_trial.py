"""What is on trial: who reads and writes what, when each buffer is live (docs/format.md, "When a
buffer is live"), and where it lies.

Ops of kind `view`, and the `host.write` ops that a run leaves out, are no accesses; nor is a result
of a `same` that lies where its operand does, in one buffer: nothing moves. A value without bytes is
accessed all the same.

A *stretch* is `(start, stop, low, high, value)`: the bits `[low, high)` of a buffer are live in
`[start, stop)` since `value` was written, or, if that is None, since they were first read. A
*segment* is a half-open range of steps of a whole buffer; stretches that share a step are one
segment, stretches that only meet are two. What lives from the run's start starts at -1; what lives
to its end stops behind the step after the last.

What this module does not see: tags, and what is wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from allocsim.judge.plain.document_records import (
    DocumentRecord,
    OpRecord,
    Pair,
    PlanRecord,
    ProblemRecord,
    ProgramRecord,
)
from allocsim.judge.plain.ranges import HeldRanges, Range, Ranges, merged, without
from allocsim.judge.violations import Violation

Stretch = tuple[int, int, int, int, int | None]

Place = Callable[[int], tuple[int, int]]
"""Buffer -> (space, first bit); a space is an arena, or, below 0, memory of one buffer's own."""

STRENGTHS: Final = ("exact", "bytes", "whole")


@dataclass(frozen=True)
class Liveness:
    """The accesses of a program, uploads left out, with segments and stretches of every buffer."""

    program: ProgramRecord
    skip: tuple[int, ...]
    _stretches: dict[int, list[Stretch]] = field(default_factory=dict)
    _segments: dict[int, Ranges] = field(default_factory=dict)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The steps of ops that are accesses."""
        ops = enumerate(self.program.ops)
        return tuple(step for step, op in ops if op.kind != "view" and step not in self.skip)

    @cached_property
    def _touched(self) -> dict[int, dict[int, tuple[list[int], list[int]]]]:
        found: dict[int, dict[int, tuple[list[int], list[int]]]] = {}
        for step in self.steps:
            for side, values in enumerate((self.program.ops[step].operands, self.written(step))):
                for value in values:
                    of_buffer = found.setdefault(self.program.values[value].buffer, {})
                    of_buffer.setdefault(step, ([], []))[side].append(value)
        return found

    def touched(self, buffer: int) -> dict[int, tuple[list[int], list[int]]]:
        """Return the accesses of a buffer: step -> (values read, values written), steps in
        order.
        """
        return self._touched.get(buffer, {})

    def written(self, step: int) -> list[int]:
        """Return the results that an op writes, by position."""
        program, op = self.program, self.program.ops[step]
        rests = [op.same and stays(program, op, i, lambda buffer: (buffer, 0)) for i in range(len(op.results))]
        return [value for value, rest in zip(op.results, rests, strict=True) if not rest]

    def producer(self, value: int) -> int | None:
        """Return the op that writes a value; None for a view, and for what nothing writes."""
        step = self.program.made_by.get(value)
        return None if step is None or step in self.skip or self.program.ops[step].kind == "view" else step

    def segments(self, buffer: int) -> Ranges:
        """Return the segments of a buffer, in order."""
        if buffer not in self._segments:
            found: list[Range] = []
            for start, stop in sorted(row[:2] for row in self.stretches(buffer)):
                if found and start < found[-1][1]:
                    found[-1] = (found[-1][0], max(stop, found[-1][1]))
                else:
                    found.append((start, stop))
            self._segments[buffer] = tuple(found)
        return self._segments[buffer]

    def stretches(self, buffer: int) -> list[Stretch]:
        """Return the stretches of a buffer; those of a persistent one have all its bits."""
        if buffer not in self._stretches:
            whole = self.program.buffers[buffer].persistent
            self._stretches[buffer] = self._epochs(buffer) if whole else self._by_bits(buffer)
        return self._stretches[buffer]

    def overwrites(self, buffer: int, step: int) -> bool:
        """Return whether the results of an op cover every byte that values cover in a buffer."""
        _, written = self.touched(buffer).get(step, ([], []))
        ranges = merged(part for value in written for part in self.program.bits[value])
        return bool(written) and not without(self._covered.get(buffer, ()), ranges)

    @cached_property
    def _covered(self) -> dict[int, Ranges]:
        parts: dict[int, list[Range]] = {}
        for index, value in enumerate(self.program.values):
            if self.program.buffers[value.buffer].persistent:
                parts.setdefault(value.buffer, []).extend(self.program.bits[index])
        return {buffer: merged(found) for buffer, found in parts.items()}

    def _by_bits(self, buffer: int) -> list[Stretch]:
        found: list[Stretch] = []
        memory: HeldRanges[tuple[int, int, int | None]] = HeldRanges()
        named: dict[int, int] = {}
        for step, (reads, writes) in self.touched(buffer).items():
            for value in reads:
                if not self.program.bits[value]:
                    made = self.producer(value)
                    found.append((named.setdefault(value, step) if made is None else made, step + 1, 0, 0, value))
                for low, high, held in [row for part in self.program.bits[value] for row in memory.at(*part)]:
                    start, _, writer = held or (step, step, None)
                    memory.put(low, high, (start, step, writer))
            for value in writes:
                if not self.program.bits[value]:
                    found.append((step, step + 1, 0, 0, value))
                for part in self.program.bits[value]:
                    # of two results of one op on one bit, the later one is what it holds
                    found += [row for row in _ended(memory.at(*part)) if row[0] < step or row[4] is None]
                    memory.put(*part, (step, step, value))
        return found + _ended(memory.all())

    def _epochs(self, buffer: int) -> list[Stretch]:
        """Return when a persistent buffer is live: from the run's start or a full overwrite to the
        last read before the next full overwrite.
        """
        found: list[Range] = []
        start, last, late = -1, -1, list[int]()
        for step, (reads, writes) in self.touched(buffer).items():
            if reads:
                last, late = step, []
            if writes and self.overwrites(buffer, step):
                found += [(start, last + 1), *((w, w + 1) for w in late)]
                start, last, late = step, step, []
            elif writes:
                late.append(step)
        found.append((start, len(self.program.ops) + 1))
        nbits = 8 * self.program.sizes[buffer]
        return [(begin, end, 0, nbits, None) for begin, end in found if begin < end and end > 0]


def _ended(rows: Iterable[tuple[int, int, tuple[int, int, int | None] | None]]) -> list[Stretch]:
    """Return the stretches of what a memory held."""
    return [(held[0], held[1] + 1, low, high, held[2]) for low, high, held in rows if held is not None]


def chunks(program: ProgramRecord, op: OpRecord, position: int) -> Iterator[tuple[int, int, int]]:
    """Yield (bit of the operand, bit of the result, how many) of one pair of a `same`,
    row-major.
    """
    sources, targets = ([*program.values[side[position]].pieces()][::-1] for side in (op.operands, op.results))
    while sources and targets:
        (low, high), (to, end) = sources.pop(), targets.pop()
        length = min(high - low, end - to)
        yield low, to, length
        sources += [(low + length, high)] * (low + length < high)
        targets += [(to + length, end)] * (to + length < end)


def stays(program: ProgramRecord, op: OpRecord, position: int, place: Place) -> bool:
    """Return whether both sides of one pair of a `same` lie at one address: nothing moves."""
    (space, base), (other_space, other_base) = map(
        place, program.buffers_of((op.operands[position], op.results[position]))
    )
    return space == other_space and all(base + low == other_base + to for low, to, _ in chunks(program, op, position))


def places(plan: PlanRecord, homes: Sequence[int]) -> Place:
    """Return where a plan puts buffers; `homes` numbers memory of their own."""

    def place(buffer: int) -> tuple[int, int]:
        slot = plan.slots[buffer]
        return (slot.arena, 8 * slot.offset) if slot.arena >= 0 else (-1 - homes[buffer], 0)

    return place


class OnTrial:
    """A document and its runs."""

    def __init__(self, document: DocumentRecord) -> None:
        self.document = document
        self._live: dict[tuple[int, tuple[int, ...]], Liveness] = {}

    def program(self, run: int) -> ProgramRecord:
        """Return the program of a run."""
        return self.document.programs[self.document.runs[run].program]

    def plan(self, run: int) -> PlanRecord:
        """Return the plan of a run."""
        return self.document.plans[self.document.runs[run].plan]

    def liveness(self, program: int, skip: tuple[int, ...] = ()) -> Liveness:
        """Return the accesses of a program, uploads left out."""
        if (program, skip) not in self._live:
            self._live[program, skip] = Liveness(self.document.programs[program], skip)
        return self._live[program, skip]

    def live(self, run: int) -> Liveness:
        """Return the accesses of a run."""
        return self.liveness(self.document.runs[run].program, self.document.runs[run].skip)

    def place(self, run: int) -> Place:
        """Return where the buffers of a run lie."""
        return places(self.plan(run), self.document.homes[run])

    def believed(self, plan: PlanRecord, program: ProgramRecord) -> ProblemRecord | None:
        """Return the problem that stands in for a program without ops, if its plan names one."""
        return None if plan.problem is None or program.ops else self.document.problems[plan.problem]

    @cached_property
    def plans_in_use(self) -> dict[int, list[int]]:
        """Plan -> its runs, in order of plans."""
        found: dict[int, list[int]] = {}
        for index, run in enumerate(self.document.runs):
            found.setdefault(run.plan, []).append(index)
        return dict(sorted(found.items()))

    def contract(self, op: OpRecord, pair: Pair) -> str:
        """Return what a kernel promises of a pair of positions: a strength, `denied` or
        `unknown`.
        """
        if op.in_place is None:
            return self.document.kinds.get(op.kind, {}).get(pair, "unknown")
        said = [strength for one, other, strength in op.in_place if (one, other) == pair]
        return max(said, key=STRENGTHS.index, default="denied")

    def record(self, kind: str, run: int, step: int | None, **fields: Any) -> Violation:
        """Return a record of something that a run does at a step."""
        of = self.document.runs[run]
        return Violation(kind=kind, program=of.program, plan=of.plan, run=run, step=step, op=step, **fields)
