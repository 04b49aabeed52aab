"""Find the accesses of the ops, the steps at which each buffer is live (docs/format.md, "When a
buffer is live"), and the place of each buffer.

Ops of kind `view`, and the `host.write` ops that a run leaves out, access nothing. A `same` does
not write a result at its operand's place in the same buffer. A value without bytes is accessed too.

A *stretch* is `(start, stop, low, high, value)`: the bits `[low, high)` of a buffer are live in
steps `[start, stop)`, from the write of `value` or, if `value` is None, from their first read. A
*segment* is a half-open range of steps of a whole buffer. Stretches that share a step are one
segment; stretches that only touch are two. A segment from the run's start starts at -1; a segment
to the run's end stops after step `len(ops)`.

A pair (donor, recipient) is *handed over* at an op that only reads the donor and only writes the
recipient, if a segment of the donor ends and a segment of the recipient begins at the op. A
persistent recipient must be overwritten fully. Without ops, a believed pair is handed over at the
donor's last believed step, if this is the recipient's first and neither buffer is persistent.

This module does not find tags or defects.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

from allocsim.judge.plain import document_records as records
from allocsim.judge.plain.document_records import Pair
from allocsim.judge.plain.ranges import EVERYWHERE, HeldRanges, Range, Ranges, meet, merged, moved, without
from allocsim.judge.violations import Violation

Stretch = tuple[int, int, int, int, int | None]

Space = int | str | Pair
"""An arena, or a buffer's own memory: the name if persistent, else (owner run, buffer)."""

Places = Sequence[tuple[Space, int]]
"""The space of each buffer, and the buffer's first bit in the space."""


@dataclass(frozen=True)
class Liveness:
    """The accesses of a program without skipped uploads, with segments and stretches."""

    program: records.ProgramRecord
    skip: tuple[int, ...]

    @cached_property
    def ops(self) -> dict[int, records.OpRecord]:
        """For each step the op, without views and without skipped uploads."""
        return {step: op for step, op in enumerate(self.program.ops) if op.kind != "view" and step not in self.skip}

    @cached_property
    def made_by(self) -> dict[int, int]:
        """For each value that an op writes, this op; views are not written."""
        return {value: step for step, op in self.ops.items() for value in op.results}

    @cached_property
    def written(self) -> dict[int, list[int]]:
        """For each step, the results that the op writes, in order of position."""
        own = [(buffer, 0) for buffer in range(len(self.program.buffers))]
        return {step: [op.results[i] for i in moving(self.program, op, own)] for step, op in self.ops.items()}

    @cached_property
    def touched(self) -> list[dict[int, tuple[list[int], list[int]]]]:
        """For each buffer and step, in order of step: (values read, values written)."""
        found: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in self.program.buffers]
        for step, op in self.ops.items():
            for side, values in enumerate((op.operands, self.written[step])):
                for value in values:
                    found[self.program.values[value].buffer].setdefault(step, ([], []))[side].append(value)
        return found

    @cached_property
    def segments(self) -> list[Ranges]:
        """The segments of each buffer, in order of step."""
        return [merged((row[:2] for row in rows), touching=False) for rows in self.stretches]

    @cached_property
    def stretches(self) -> list[list[Stretch]]:
        """The stretches of each buffer; a stretch of a persistent buffer covers all its bits."""
        buffers = enumerate(self.program.buffers)
        return [self._epochs(index) if buffer.persistent else self._by_bits(index) for index, buffer in buffers]

    @cached_property
    def overwrites(self) -> set[tuple[int, int]]:
        """The pairs (buffer, step) of ops that overwrite all used bits of a persistent buffer."""
        covered: list[list[Range]] = [[] for _ in self.program.buffers]
        for value, bits in zip(self.program.values, self.program.bits, strict=True):
            covered[value.buffer] += bits
        found = set()
        for buffer in [index for index, buffer in enumerate(self.program.buffers) if buffer.persistent]:
            everything = merged(covered[buffer])
            for step, (_, values) in self.touched[buffer].items():
                if values and not without(everything, merged(part for v in values for part in self.program.bits[v])):
                    found.add((buffer, step))
        return found

    @cached_property
    def handovers(self) -> dict[int, set[Pair]]:
        """For each step, the (donor, recipient) pairs that the op hands over."""
        spans = [(buffer, span) for buffer, spans in enumerate(self.segments) for span in spans]
        ends = {(buffer, stop - 1) for buffer, (_, stop) in spans}
        begins = {(buffer, start) for buffer, (start, _) in spans if not self.program.buffers[buffer].persistent}
        begins |= self.overwrites
        found: dict[int, set[Pair]] = {}
        for step, op in self.ops.items():
            reads, writes = (set(self.program.buffers_of(side)) for side in (op.operands, self.written[step]))
            donors = [buffer for buffer in reads - writes if (buffer, step) in ends]
            found[step] = set(product(donors, [buffer for buffer in writes - reads if (buffer, step) in begins]))
        return found

    def _by_bits(self, buffer: int) -> list[Stretch]:
        """Return the stretches by bits; a value without bits gets an artificial bit below 0."""
        found: list[Stretch] = []
        memory: HeldRanges[tuple[int, int, int | None]] = HeldRanges()
        for step, (reads, writes) in self.touched[buffer].items():
            parts = {value: self.program.bits[value] or ((-1 - value, -value),) for value in (*reads, *writes)}
            for low, high, held in [row for value in reads for part in parts[value] for row in memory.at(*part)]:
                start, _, written = held or (step, step, None)
                memory.put(low, high, (start, step, written))
            for written, part in [(value, part) for value in writes for part in parts[value]]:
                # if two results of one op share a bit, the bit holds the later result
                found += [row for row in _ended(memory.at(*part)) if row[0] < step or row[4] is None]
                memory.put(*part, (step, step, written))
        return found + _ended(memory.at(*EVERYWHERE))

    def _epochs(self, buffer: int) -> list[Stretch]:
        """Return a persistent buffer's stretches, up to the last read before a full overwrite."""
        found: list[Range] = []
        start, last, late = -1, -1, list[int]()
        for step, (reads, writes) in self.touched[buffer].items():
            if reads:
                last, late = step, []
            if (buffer, step) in self.overwrites:
                found += [(start, last + 1), *((w, w + 1) for w in late)]
                start, last, late = step, step, []
            elif writes:
                late.append(step)
        found.append((start, len(self.program.ops) + 1))
        nbits = 8 * self.program.sizes[buffer]
        return [(begin, end, 0, nbits, None) for begin, end in found if begin < end and end > 0]


def _ended(rows: Iterable[tuple[int, int, tuple[int, int, int | None] | None]]) -> list[Stretch]:
    """Return one stretch for each range of `rows` with a held entry."""
    return [(held[0], held[1] + 1, max(low, 0), max(high, 0), held[2]) for low, high, held in rows if held is not None]


def chunks(program: records.ProgramRecord, op: records.OpRecord, position: int) -> Iterator[tuple[int, int, int]]:
    """Yield (operand bit, result bit, bits) for each chunk copied by a `same`, row-major."""
    sources, targets = ([*program.values[side[position]].pieces()][::-1] for side in (op.operands, op.results))
    while sources and targets:
        (low, high), (to, end) = sources.pop(), targets.pop()
        length = min(high - low, end - to)
        yield low, to, length
        sources += [(low + length, high)] * (low + length < high)
        targets += [(to + length, end)] * (to + length < end)


def behind(places: Places, one: int, other: int) -> int | None:
    """Return `other`'s first bit minus `one`'s first bit, or None if their spaces differ."""
    (space, base), (other_space, other_base) = places[one], places[other]
    return other_base - base if space == other_space else None


def moving(program: records.ProgramRecord, op: records.OpRecord, places: Places) -> list[int]:
    """Return the positions of written results; a `same` writes only results that move."""

    def moves(position: int) -> bool:
        one, other = (program.values[side[position]] for side in (op.operands, op.results))
        by = behind(places, one.buffer, other.buffer)
        if by is None or one.element_0 != other.element_0 + by:  # also for a value without bytes
            return True
        return any(low != to + by for low, to, _ in chunks(program, op, position))

    return [position for position in range(len(op.results)) if not op.same or moves(position)]


class RunOnTrial:
    """A run: a program with the slots of a plan and, without ops, the lifetimes of a problem."""

    def __init__(self, document: records.DocumentRecord, index: int, live: Liveness, planned: Places = ()) -> None:
        self.document, self.index, self.run = document, index, document.runs[index]
        self.live, self.program, self.plan = live, live.program, document.plans[self.run.plan]
        named = () if self.plan.problem is None else (document.problems[self.plan.problem],)
        about_it = (problem for problem in (*named, *document.problems) if problem.program == self.run.program)
        self.problem = None if self.program.ops else next(about_it, None)
        """For a program without ops, the plan's problem or else the program's first problem."""
        self.sizes = self.program.sizes if self.problem is None else self.problem.nbytes
        self.apart = _on_its_own(self.program, document.owners[index])
        """The place of each buffer if every buffer has memory of its own."""
        homes = zip(self.plan.slots, _on_its_own(self.program, self.run.program), strict=True)
        self.planned = planned or [(slot.arena, 8 * slot.offset) if slot.arena >= 0 else home for slot, home in homes]

    @cached_property
    def life(self) -> list[Ranges]:
        """The steps of the run at which each buffer is live."""
        if self.problem is not None:
            return [self.problem.life(buffer) for buffer in range(len(self.sizes))]
        return [meet(segments, ((0, len(self.program.ops)),)) for segments in self.live.segments]

    @cached_property
    def handovers(self) -> dict[int, set[Pair]]:
        """For each step, the (donor, recipient) pairs handed over at the step."""
        if self.problem is None:
            return self.live.handovers
        found: dict[int, set[Pair]] = {}
        for pair in self.problem.may_share:
            kept = any(self.program.buffers[buffer].persistent for buffer in pair)
            if self.problem.relays(*pair) and not kept:
                found.setdefault(self.problem.start[pair[1]], set()).add(pair)
        return found

    def shared(self, one: int, other: int) -> Ranges:
        """Return the bits that two values share, within the buffer of the first value."""
        by = behind(self.planned, *self.program.buffers_of((one, other)))
        return () if by is None else meet(self.program.bits[one], moved(self.program.bits[other], by))

    def violation(self, kind: str, step: int | None, **fields: Any) -> Violation:
        """Return a violation of this run at the op `step`."""
        of = self.run
        return Violation(kind=kind, program=of.program, plan=of.plan, run=self.index, step=step, op=step, **fields)


def _on_its_own(program: records.ProgramRecord, owner: int) -> Places:
    """Return a separate space for each buffer; persistent buffers with one name share a space."""
    return [(buffer.name if buffer.persistent else (owner, i), 0) for i, buffer in enumerate(program.buffers)]


class OnTrial:
    """A document with its runs prepared for judging."""

    def __init__(self, document: records.DocumentRecord) -> None:
        self.document = document
        self.liveness = cache(lambda program, skip: Liveness(document.programs[program], skip))
        """The `Liveness` for each (program, skipped uploads)."""
        self.runs = [self.run(index) for index in range(len(document.runs))]
        self.plans_in_use = sorted({run.plan for run in document.runs})

    def run(self, index: int, planned: Places = ()) -> RunOnTrial:
        """Return a run with its buffers at `planned`, by default at the addresses of its plan."""
        run = self.document.runs[index]
        return RunOnTrial(self.document, index, self.liveness(run.program, run.skip), planned)
