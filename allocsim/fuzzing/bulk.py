"""Bulk mode: programs from a seed straight into columns, much faster than Hypothesis draws them.

A batch has arenas, alignments and streams of its own, drawn with its programs from (seed, chunk,
batch). A planner of this project plans a batch as the one program it is; every other planner is
asked for each program by itself, which is cut out of the batch in its process. One batch in eight
has capacities, so that some are refused, and is asked one by one.

What programs have in them is measured by the tests, as for Hypothesis. What they have not: values
of other dtypes than f32, results with holes in their layout, ops that mutate and have a fresh
result, buffers that two values are written into side by side, pairs of other strength than `exact`,
2,000 buffers, as a rule 2^53 bytes.

What this module does not see: what is wrong with a plan.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, overload

import numpy as np

from allocsim.allocators import pin_all
from allocsim.fuzzing.batch import Batch, join
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.fuzzing.program_tables import CODES, WEIGHTS, ProgramTables
from allocsim.fuzzing.scaling import ALIGNMENTS, BUFFERS, aligned, factors, repeated, shift_of, stretched
from allocsim.fuzzing.told_constraints import freed, gapped, telling
from allocsim.model import Arena, Problem, Program
from allocsim.model.layout import Int64s

SIZE: Final = 512
"""Programs in a batch; a planner's work on one grows little faster than in step with it."""

CAPPED: Final = 8
"""One batch in so many has capacities; it is this many times smaller."""

WIDE: Final = 4
"""One batch in so many has programs with more bytes and other alignments."""

LONG: Final = 16
"""One batch in so many has programs of hundreds of ops, and as many times fewer of them."""

LONGEST: Final = 12
"""Codes of a program at most."""

EMPTY: Final = 8
"""Of the programs that would be made of one code, one in so many is made of none."""


def all_pinned(program: Program) -> FuzzCase:
    """Return the program as a case with every buffer pinned that an op writes."""
    return FuzzCase(program=program, pinned=pin_all(program))


TELLINGS: Final[Mapping[str, Callable[[Program], FuzzCase]]] = {
    "pinned": all_pinned,
    "told": telling,
    "gapped": gapped,
    "free": freed,
}
"""What a planner is told beyond what follows from the program, by kind of case."""


@dataclass(frozen=True, slots=True)
class Cut(Sequence[FuzzCase]):
    """The programs of a batch as cases, cut out when asked for; it travels as the batch."""

    batch: Batch
    case: FuzzCase | None = None
    """The batch as one case; None where nothing is told."""
    first: int = 0
    in_parts: bool = False
    """Whether the planner of the batch as one case plans each of its programs by itself."""

    def __len__(self) -> int:
        return len(self.batch) - self.first

    @overload
    def __getitem__(self, index: int) -> FuzzCase: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FuzzCase]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            if step == 1 and end == len(self):
                return Cut(self.batch, self.case, self.first + begin, self.in_parts)
            return [self[place] for place in range(begin, end, step)]
        if not 0 <= index < len(self):
            raise IndexError(index)
        place, whole = self.first + index, self.case
        if whole is None:
            return FuzzCase(program=self.batch[place])
        low, high = int(self.batch.buffer_starts[place]), int(self.batch.buffer_starts[place + 1])
        if whole.believed is not None:
            return _believed_of(self.batch[place], whole.believed, low, high)
        return FuzzCase(
            program=self.batch[place],
            free=whole.free,
            pinned=None if whole.pinned is None else whole.pinned[low:high],
            own=None if whole.own is None else whole.own[low:high],
            fixed={buffer - low: offset for buffer, offset in whole.fixed.items() if low <= buffer < high},
        )

    def __iter__(self) -> Iterator[FuzzCase]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> list[int]:
        """How many ops each program has."""
        found: list[int] = np.diff(self.batch.op_starts)[self.first :].tolist()
        return found

    @property
    def whole(self) -> FuzzCase:
        """The batch as one case."""
        whole = self.case if self.case is not None else FuzzCase(program=self.batch.program)
        return replace(whole, parts=self.batch) if self.in_parts else whole

    def told(self, kind: str) -> "Cut":
        """Return the same cases, told something of a kind of `TELLINGS`."""
        if kind == "gapped":
            return self._gapped()
        case = TELLINGS[kind](self.batch.program)
        return Cut(replace(self.batch, program=case.program), case, self.first, self.in_parts)

    def _gapped(self) -> "Cut":
        """Return the lives of the programs' buffers, each program's from its own first step."""
        batch = self.batch
        case = gapped(batch.program, np.repeat(batch.op_starts[:-1], np.diff(batch.buffer_starts)))
        none = np.zeros_like(batch.op_starts)
        return Cut(replace(batch, program=case.program, op_starts=none, value_starts=none), case, self.first)


def _believed_of(program: Program, believed: Problem, low: int, high: int) -> FuzzCase:
    """Return the belief of the buffers from `low` to `high` as a case of their program."""
    mine = range(low, high)
    pairs = [(donor - low, to - low) for donor, to in believed.may_share.tolist() if donor in mine]
    part = Problem.of(
        program,
        start=believed.start[low:high],
        stop=believed.stop[low:high],
        pinned=believed.pinned[low:high],
        fixed={buffer - low: offset for buffer, offset in believed.fixed.items() if buffer in mine},
        gaps={buffer - low: gaps for buffer, gaps in believed.gaps.items() if buffer in mine},
        may_share=pairs,
    )
    return FuzzCase(program=program, believed=part)


def batches(seed: int, chunk: int, count: int, *, runnable: bool = False) -> Iterator[Batch]:
    """Yield `count` programs in batches; the same ones for the same arguments.

    `runnable` programs have only ops the engine has kernels for.
    """
    number = 0
    while count > 0:
        rng = np.random.default_rng([seed, chunk, number])
        capped, wide, many = (rng.random(3) * (CAPPED, WIDE, LONG) < 1).tolist()
        size = min(SIZE // LONG if many and not runnable else SIZE // CAPPED if capped else SIZE, count)
        batch = batch_of(rng, size, capped=capped, runnable=runnable)
        if wide and not runnable:
            batch = wider(rng, batch)
        if many and not runnable:
            batch = longer(rng, batch)
        yield batch
        count -= size
        number += 1


def batch_of(rng: np.random.Generator, size: int, *, capped: bool = False, runnable: bool = False) -> Batch:
    """Return `size` programs drawn from a generator."""
    many, streams = int(rng.integers(1, 4)), int(rng.integers(2, 4)) if rng.random() < 0.25 else 1
    alignments = rng.choice([4 if runnable else 1, 4, 8, 32], many).tolist()
    weights = np.array(list(WEIGHTS.values()), dtype=np.float64)
    codes = rng.integers(0, 8, (size, LONGEST, len(CODES)), dtype=np.uint8).astype(np.int64)
    codes[:, :, 0] = rng.choice(len(weights), (size, LONGEST), p=weights / weights.sum())
    lengths = rng.integers(1, LONGEST + 1, size)
    if not runnable:  # chosen by a code that no short program reads, so that nothing else is drawn otherwise
        lengths[(lengths == 1) & (codes[:, -1, 1] % EMPTY == 0)] = 0
    capacities = [int(rng.integers(0, 40)) * 8 if capped else None for _ in range(many)]
    uniform = bool(rng.random() < 0.5)
    return _assembled(codes, lengths, alignments, capacities, streams=streams, uniform=uniform, runnable=runnable)


def wider(rng: np.random.Generator, batch: Batch) -> Batch:
    """Return the batch with more bytes and with other alignments."""
    program = stretched(batch.program, factors(rng, batch.program))
    spaces = np.tile(rng.choice(ALIGNMENTS, batch.arenas), len(batch)).tolist()
    own = np.where(rng.random(len(program.buffers)) < 0.2, rng.choice(ALIGNMENTS, len(program.buffers)), 0)
    if rng.random() < 0.5:
        own[:] = 0
    return replace(batch, program=aligned(program, spaces, own))


def longer(rng: np.random.Generator, batch: Batch) -> Batch:
    """Return a batch of as many programs, each of copies of one of this batch."""
    found = []
    for place in range(len(batch)):
        program = batch[place]
        most = max(BUFFERS // 4 // max(len(program.buffers), len(program.ops), 1), 2)
        copies = int(2 ** rng.uniform(1, np.log2(most)))
        found.append(repeated(program, copies=copies, shift=shift_of(rng, program)))
    return join(found)


def assembled(
    programs: Sequence[Sequence[tuple[int, ...]]], alignments: Sequence[int], *, uniform: bool, runnable: bool
) -> Batch:
    """Return the programs that lists of codes make (`program_tables.CODES`), on one stream, in
    unbounded arenas of these alignments.
    """
    lengths = np.array([len(codes) for codes in programs], dtype=np.int64)
    table = np.zeros((len(programs), int(lengths.max(initial=1)), len(CODES)), dtype=np.int64)
    for row, codes in zip(table, programs, strict=True):
        row[: len(codes)] = codes
    unbounded = [None] * len(alignments)
    return _assembled(table, lengths, alignments, unbounded, streams=1, uniform=uniform, runnable=runnable)


def _assembled(
    codes: Int64s,
    lengths: Int64s,
    alignments: Sequence[int],
    capacities: Sequence[int | None],
    *,
    streams: int,
    uniform: bool,
    runnable: bool,
) -> Batch:
    from allocsim.fuzzing.program_steps import assemble  # noqa: PLC0415 - numba

    tables = ProgramTables.room(len(lengths))
    assemble(codes, lengths, np.array(alignments, dtype=np.int64), streams, uniform, runnable, *tables)
    arenas = [
        Arena(name=f"a{index}", alignment=alignment, capacity=capacity)
        for index, (alignment, capacity) in enumerate(zip(alignments, capacities, strict=True))
    ]
    return tables.batch(len(lengths), arenas=arenas, streams=streams)
