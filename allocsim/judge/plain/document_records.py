"""What the plain judge reads: a document as frozen records, every default filled in.

Everything refers to everything else by index, as in the native document (docs/format.md). Ranges
are half-open; strides and offsets are bytes; widths and places of elements are bits.

What this module does not see: where a document comes from (`native_reader`), and what is wrong
with it.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from allocsim.judge.plain.layouts import Ranges, ValueRecord, inside, runs_of

OWN: Final = -1
"""Arena of a slot in memory of its own, outside all arenas."""

UNPLACED: Final = -2
"""Arena of a buffer that has no slot."""


@dataclass(frozen=True, slots=True)
class ArenaRecord:
    """One address space."""

    alignment: int = 1
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class BufferRecord:
    """A number of bytes that belong together."""

    name: str
    nbytes: int
    alignment: int
    arena: int
    persistent: bool
    read_only: bool
    ends: tuple[int, int] | None = None
    """Least and greatest size, where only the run decides it."""


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One step: it reads all operands, then writes all results."""

    kind: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    in_place: dict[tuple[int, int], str] | None
    """(operand position, result position) -> strength; None where nobody knows."""
    stream: int
    after: tuple[int, ...]
    same: bool
    """Whether it is of kind `same`, in a document that has that kind."""


@dataclass(frozen=True)
class ProgramRecord:
    """Buffers, the values in them, and the ops that read and write values."""

    buffers: tuple[BufferRecord, ...]
    values: tuple[ValueRecord, ...]
    ops: tuple[OpRecord, ...]
    streams: int

    @cached_property
    def runs(self) -> tuple[Ranges, ...]:
        """The bits of each value that lie inside its buffer, as sorted ranges."""
        return tuple(inside(runs_of(value), 8 * self.buffers[value.buffer].nbytes) for value in self.values)

    @cached_property
    def made_by(self) -> dict[int, int]:
        """The op that produces each value; a value of none is left out."""
        return {value: step for step, op in enumerate(self.ops) for value in op.results}

    @cached_property
    def persistent(self) -> dict[str, int]:
        """The persistent buffer of each name."""
        return {buffer.name: index for index, buffer in enumerate(self.buffers) if buffer.persistent}


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """What a planner believes of a program; each column has an entry for each buffer."""

    program: int
    start: tuple[int, ...]
    stop: tuple[int, ...]
    nbytes: tuple[int, ...]
    pinned: frozenset[int]
    own: frozenset[int]
    fixed: dict[int, int]
    may_share: tuple[tuple[int, int], ...]
    gaps: dict[int, Ranges]
    stated: frozenset[str]
    """Which of `start`, `stop`, `nbytes`, `own` and `may_share` the document gives."""


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """Where a buffer lies: an arena, or `OWN`, or `UNPLACED`."""

    arena: int
    offset: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A slot for each buffer, and what the planner did."""

    program: int
    problem: int | None
    slots: tuple[SlotRecord, ...]
    events: tuple[tuple[int, bool, int], ...] = ()
    """(step, whether it frees, buffer), in order."""


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """One execution of a program with the slots of a plan."""

    plan: int
    program: int
    skip: frozenset[int] = frozenset()
    after: tuple[int, ...] | None = None
    """Earlier runs that it waits for; None is all of them."""
    read_after: int | None = None


@dataclass(frozen=True)
class DocumentRecord:
    """Everything the judge looks at."""

    arenas: tuple[ArenaRecord, ...]
    programs: tuple[ProgramRecord, ...]
    problems: tuple[ProblemRecord, ...]
    plans: tuple[PlanRecord, ...]
    runs: tuple[ExecutionRecord, ...]
    joined: bool
    """Whether the runs are a session, over one memory."""
    kinds: dict[str, dict[tuple[int, int], tuple[str, str]]] = field(default_factory=dict)
    """What a table of kinds says: kind -> pair -> (`safe`, `unsafe` or `unknown`, strength)."""

    @cached_property
    def waits(self) -> tuple[frozenset[int], ...]:
        """The runs that each run waits for, transitively."""
        found: list[frozenset[int]] = []
        for index, run in enumerate(self.runs):
            direct = range(index) if run.after is None else run.after
            found.append(frozenset(direct).union(*(found[earlier] for earlier in direct)))
        return tuple(found)

    @cached_property
    def identities(self) -> tuple[tuple[int, ...], ...]:
        """The buffer as it persists behind each buffer of each run, numbered by first appearance.

        A persistent buffer is one in all programs that have its name; the others are those of the
        last run of the program that a run waits for, else fresh.
        """
        known: dict[object, int] = {}
        found: list[tuple[int, ...]] = []
        for index, run in enumerate(self.runs):
            alone = None if self.joined else index
            earlier = [w for w in self.waits[index] if self.runs[w].program == run.program] if self.joined else []
            before = found[max(earlier)] if earlier else None
            mine = []
            for number, buffer in enumerate(self.programs[run.program].buffers):
                if before is not None:
                    mine.append(before[number])
                else:
                    key: object = (alone, buffer.name) if buffer.persistent else (index, number)
                    mine.append(known.setdefault((buffer.persistent, key), len(known)))
            found.append(tuple(mine))
        return tuple(found)

    @cached_property
    def homes(self) -> tuple[tuple[int, ...], ...]:
        """The memory of its own that each buffer of each run has where the plan gives it no slot.

        One for all runs of a program; of a persistent buffer, for all programs that have its name.
        """
        known: dict[tuple[object, ...], int] = {}
        found = []
        for index, run in enumerate(self.runs):
            alone = None if self.joined else index
            buffers = self.programs[run.program].buffers
            keys = [(alone, b.name) if b.persistent else (alone, run.program, i) for i, b in enumerate(buffers)]
            found.append(tuple(known.setdefault(key, len(known)) for key in keys))
        return tuple(found)

    def at_end(self, end: int) -> "DocumentRecord":
        """Return the document with every buffer that has a range of sizes at its low (0) or high
        (1) end; believed sizes follow where the problem states none.
        """
        programs = tuple(
            replace(program, buffers=tuple(replace(b, nbytes=b.ends[end]) if b.ends else b for b in program.buffers))
            for program in self.programs
        )
        problems = tuple(
            problem
            if "nbytes" in problem.stated
            else replace(problem, nbytes=tuple(buffer.nbytes for buffer in programs[problem.program].buffers))
            for problem in self.problems
        )
        return replace(self, programs=programs, problems=problems)
