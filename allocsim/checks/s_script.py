"""What the runs of one memory do, as columns: the accesses of a run in order, and one numbering of the buffers of several programs.

* An *identity* is a buffer as it persists: the same from run to run of its program; a parameter or state is the same in all programs that
  have one of its name. Identities are dense, in order of (first run that has them, buffer).
* A *script* lists the accesses of a run that touch bytes: of each op first its reads, then its writes. A value that stands twice among the
  operands is read twice. Runs of equal `Trial.alike` have one script.
* Address spaces: the arenas, then one for each identity in memory of its own. Identities that no run has in an arena *stay*: their memory is the
  same in both replays, and their space is -1.

Complexity: O(accesses + buffers) for each script, vectorised.

What this module does not see: tags, and what is right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from allocsim.checks.accesses import Extents
from allocsim.checks.trial import Trial
from allocsim.errors import ModelError
from allocsim.model import VIEW, Bools
from allocsim.model.layout import Int64s

Step = tuple[bool, int, int, int, int, int, bool, bool, int, int]
"""write?, op, value, identity, low and high in the buffer, dense?, made by an op?, space or -1, base address."""

MAX_RUNS: Final = 1 << 25
"""Byte runs of strided values that the ops of one run may read and write in all: a bound on time."""

STRETCH: Final = 1 << 16
"""Rows of a script that are made Python numbers in one go: a bound on memory."""


class Identities:
    """The buffers of several programs as one dense numbering, and which of them some run has in an arena."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = trials
        self.of: dict[int, Int64s] = {}
        """Program index -> identity of each of its buffers."""
        self._names: dict[str, int] = {}
        homes = [np.empty((2, 0), dtype=np.int64)]
        count = 0
        for position, trial in enumerate(trials):
            if trial.program_index not in self.of:
                mine, fresh = self._numbered(trial, count)
                self.of[trial.program_index] = mine
                homes.append(np.stack([np.full(len(fresh), position, dtype=np.int64), fresh]))
                count += len(fresh)
        self._home: Int64s = np.concatenate(homes, axis=1)
        self.count = count
        self.persistent: Bools = np.zeros(count, dtype=np.bool_)
        self.moves: Bools = np.zeros(count, dtype=np.bool_)
        """Whether some run has it in an arena; the others have the same memory in both replays."""
        for trial in trials:
            self.moves[self.of[trial.program_index][trial.plan.placed]] = True
            self.persistent[self.of[trial.program_index][trial.program.buffers.persistent]] = True

    def _numbered(self, trial: Trial, count: int) -> tuple[Int64s, Int64s]:
        """Return the identity of each buffer of a program, from `count` on where it is new, and the buffers that are."""
        buffers = trial.program.buffers
        named = np.flatnonzero(buffers.persistent).tolist()
        known = [(buffer, self._names[buffers.names[buffer]]) for buffer in named if buffers.names[buffer] in self._names]
        fresh = np.ones(len(buffers), dtype=np.bool_)
        fresh[[buffer for buffer, _ in known]] = False
        mine = (np.cumsum(fresh) - 1 + count).astype(np.int64)
        for buffer, identity in known:
            mine[buffer] = identity
        self._names |= {buffers.names[buffer]: int(mine[buffer]) for buffer in named}
        return mine, np.flatnonzero(fresh)

    def home(self, identity: int) -> tuple[int, int]:
        """Return the position of the first run that has a buffer, and its index there."""
        position, buffer = self._home[:, identity].tolist()
        return position, buffer

    @cached_property
    def reach(self) -> tuple[Int64s, Int64s]:
        """The stretch of each buffer that any run accesses, or has a value in: what lies outside it is nobody's concern."""
        low, high = np.full(self.count, 1 << 62, dtype=np.int64), np.zeros(self.count, dtype=np.int64)
        for trial in {trial.program_index: trial for trial in self.trials}.values():
            extents = trial.accesses.extents
            rows = np.flatnonzero(extents.low < extents.high)
            identity = self.of[trial.program_index][extents.buffer[rows]]
            np.minimum.at(low, identity, extents.low[rows])
            np.maximum.at(high, identity, extents.high[rows])
        return low, high

    def places(self, trial: Trial) -> tuple[Int64s, Int64s]:
        """Return address space and base address of each buffer of a run, as planned; space -1 where the buffer stays."""
        plan, mine = trial.plan, self.of[trial.program_index]
        space = np.where(plan.placed, plan.arena, len(trial.program.arenas) + mine)
        return np.where(self.moves[mine], space, -1), np.where(plan.placed, plan.offset, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The accesses of a run in order, one row each."""

    program: int
    """Index of the program."""
    extents: Extents
    places: tuple[Int64s, Int64s]
    """Address space and base address of each buffer of the program."""
    write: Bools
    op: Int64s
    value: Int64s
    buffer: Int64s
    """Index within the program."""
    identity: Int64s
    low: Int64s
    high: Int64s
    """Bytes within the buffer: `[low, high)` is not empty."""
    dense: Bools
    made: Bools
    """Whether an op other than `view` makes the value."""
    space: Int64s
    base: Int64s
    runs: int
    """Byte runs of the values with holes that these rows read and write."""

    def __len__(self) -> int:
        return len(self.op)

    @classmethod
    def of(cls, trial: Trial, identities: Identities) -> "Script":
        """Return the script of a run."""
        accesses, extents, program = trial.accesses, trial.accesses.extents, trial.program
        op = np.concatenate([accesses.read_op, accesses.write_op])
        value = np.concatenate([accesses.read_value, accesses.write_value])
        write = np.arange(len(op)) >= len(accesses.read_op)
        order = np.argsort(2 * op + write, kind="stable")  # two sorted stretches: a merge
        order = order[(extents.low < extents.high)[value[order]]]
        op, value, write = op[order], value[order], write[order]
        strided = value[~extents.dense[value]]
        runs = int(np.diff(extents.holes.starts, append=0)[extents.holes.row[strided]].sum())
        if runs > MAX_RUNS:
            rule = f"read and write {runs} byte runs of values with holes; at most {MAX_RUNS} are supported"
            raise ModelError(f"programs[{trial.program_index}].ops", rule)
        buffer = extents.buffer[value]
        space, base = places = identities.places(trial)
        made = program.producer >= 0
        made[made] = ~program.ops.is_kind(VIEW)[program.producer[made]]
        return cls(
            program=trial.program_index,
            extents=extents,
            places=places,
            write=write,
            op=op,
            value=value,
            buffer=buffer,
            identity=identities.of[trial.program_index][buffer],
            low=extents.low[value],
            high=extents.high[value],
            dense=extents.dense[value],
            made=made[value],
            space=space[buffer],
            base=base[buffer],
            runs=runs,
        )

    def steps(self, chosen: Bools | None) -> Iterator[Step]:
        """Yield the rows, or those chosen, in order, as Python numbers."""
        columns = (
            self.write, self.op, self.value, self.identity, self.low, self.high, self.dense, self.made, self.space, self.base,
        )  # fmt: skip
        for begin in range(0, len(self), STRETCH):
            part = slice(begin, begin + STRETCH)
            rows: slice | Int64s = part if chosen is None else np.flatnonzero(chosen[part]) + begin
            yield from zip(*(column[rows].tolist() for column in columns), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of one memory with their scripts."""

    identities: Identities
    scripts: Sequence[Script]
    """The distinct ones."""
    follows: Sequence[int]
    """Which of them each run follows."""

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> "Runs":
        """Write down what runs over one memory do."""
        identities = Identities(trials)
        known: dict[object, int] = {}
        scripts: list[Script] = []
        for trial in trials:
            if trial.alike not in known:
                known[trial.alike] = len(scripts)
                scripts.append(Script.of(trial, identities))
        return cls(identities=identities, scripts=scripts, follows=[known[trial.alike] for trial in trials])
