"""List the accesses of the runs over one memory as columns, and number the buffers of several
programs consistently.

* An *identity* is a buffer through several runs. A run has the buffers of the last run of its
  program that it waits for, or else fresh buffers. A parameter or state is one identity in all
  programs with a parameter or state of its name. Identities are numbered without gaps, in order of
  (first run that has the identity, buffer).
* A *script* lists those accesses of a run that cover at least one byte: for each op first its
  reads, then its writes. A value that occurs twice among the operands is read twice. Runs with
  equal `Trial.alike` and the same identities share one script.
* The address spaces are the arenas, then one space for each identity in memory of its own.
  Identities that no run has in an arena *stay*: their memory is the same in both replays, and their
  space is -1.

Complexity: O(accesses + buffers) for each script, vectorised.

This module does not compute tags, and does not decide which reads are right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.accesses import Extents
from allocsim.judge.fast.s_apart import Moves
from allocsim.judge.fast.trial import Trial
from allocsim.model import VIEW, Bools
from allocsim.model.layout import Int64s

Step = tuple[bool, int, int, int, int, int, bool, bool, int, int]
"""(is a write, op, value, identity, low and high in the buffer, is dense, is made by an op, space
or -1, base address)."""

MAX_RUNS: Final = 1 << 25
"""The largest number of byte runs of strided values that a run may access, to bound time."""

MANY: Final = 64
"""If an op has at least this many reads, repeated reads of a value are removed."""

STRETCH: Final = 1 << 16
"""The number of rows of a script converted to Python numbers at once, to bound memory."""


class Identities:
    """A consecutive numbering of the buffers of several runs, with the buffers that *stay*."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = trials
        self.ordered = all(trial.waits is None and trial.read_after is None for trial in trials)
        """Whether every run waits for all earlier runs, and no run has delayed reads."""
        self.of: list[Int64s] = []
        """For each run, the identity of each buffer of its program."""
        self.home_run: list[int] = []
        """For each run, the first run that has the same buffers."""
        self._own: dict[int, Int64s] = {}
        self._names: dict[str, int] = {}
        latest: dict[int, int] = {}
        of_program: dict[int, int] = {}
        homes = [np.empty((2, 0), dtype=np.int64)]
        count = 0
        for position, trial in enumerate(trials):
            before = latest.get(trial.program_index)
            if trial.waits is not None:
                own = trial.waits & of_program.get(trial.program_index, 0)
                before = own.bit_length() - 1 if own else None
            if before is None:
                numbers, fresh = self._numbered(trial, count)
                homes.append(np.stack([np.full(len(fresh), position, dtype=np.int64), fresh]))
                count += len(fresh)
            self.of.append(numbers if before is None else self.of[before])
            self.home_run.append(position if before is None else self.home_run[before])
            self._own.setdefault(trial.program_index, self.of[position])
            latest[trial.program_index] = position
            of_program[trial.program_index] = of_program.get(trial.program_index, 0) | 1 << position
        self._home: Int64s = np.concatenate(homes, axis=1)
        self.count = count
        self.persistent: Bools = np.zeros(count, dtype=np.bool_)
        hands_on = any(trial.program.same_ops.any() for trial in trials)
        self.moves: Bools = np.full(count, hands_on or not self.ordered, dtype=np.bool_)
        """bool (identities,): False for buffers that *stay*, with equal memory in both replays."""
        for trial, mine in zip(trials, self.of, strict=True):
            self.moves[mine[trial.plan.placed]] = True
            self.persistent[mine[trial.program.buffers.persistent]] = True

    def _numbered(self, trial: Trial, count: int) -> tuple[Int64s, Int64s]:
        """Return the identity of each buffer of a program, and the buffers with a new identity. New
        identities are numbered from `count` on.
        """
        buffers = trial.program.buffers
        named = np.flatnonzero(buffers.persistent).tolist()
        known = [
            (buffer, self._names[buffers.names[buffer]]) for buffer in named if buffers.names[buffer] in self._names
        ]
        fresh = np.ones(len(buffers), dtype=np.bool_)
        fresh[[buffer for buffer, _ in known]] = False
        mine = (np.cumsum(fresh) - 1 + count).astype(np.int64)
        for buffer, identity in known:
            mine[buffer] = identity
        self._names |= {buffers.names[buffer]: int(mine[buffer]) for buffer in named}
        return mine, np.flatnonzero(fresh)

    def home(self, identity: int) -> tuple[int, int]:
        """Return the position of an identity's first run, and the index of the buffer there."""
        position, buffer = self._home[:, identity].tolist()
        return position, buffer

    @cached_property
    def reach(self) -> tuple[Int64s, Int64s]:
        """The low and the high end of the part of each identity that values cover; no read accesses
        bytes outside this part.
        """
        low, high = np.full(self.count, 1 << 62, dtype=np.int64), np.zeros(self.count, dtype=np.int64)
        for position in dict.fromkeys(self.home_run):
            extents = self.trials[position].accesses.extents
            rows = np.flatnonzero(extents.low < extents.high)
            identity = self.of[position][extents.buffer[rows]]
            np.minimum.at(low, identity, extents.low[rows])
            np.maximum.at(high, identity, extents.high[rows])
        return low, high

    def places(self, position: int) -> tuple[Int64s, Int64s]:
        """Return the planned address space and base address of each buffer of a run.

        The space is -1 for a buffer that stays.

        A buffer in memory of its own has one space in all runs of its program.
        """
        trial, mine = self.trials[position], self.of[position]
        own = len(trial.program.arenas) + self._own[trial.program_index]
        space = np.where(trial.plan.placed, trial.plan.arena, own)
        return np.where(self.moves[mine], space, -1), np.where(trial.plan.placed, trial.plan.offset * trial.unit, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The accesses of a run in order, one row each."""

    program: int
    """The index of the program."""
    same_ops: Bools
    buffers: Int64s
    """int64 (buffers of the program,): the identity of each buffer."""
    extents: Extents
    moves: Moves
    """The moves by `same` ops of the program."""
    places: tuple[Int64s, Int64s]
    """The address space and the base address of each buffer of the program."""
    write: Bools
    op: Int64s
    value: Int64s
    buffer: Int64s
    """The index of the buffer within the program."""
    identity: Int64s
    low: Int64s
    high: Int64s
    """The non-empty range `[low, high)` of the value within its buffer, in units."""
    dense: Bools
    made: Bools
    """Whether an op other than `view` makes the value."""
    space: Int64s
    base: Int64s
    runs: int
    """The number of byte runs of the values with holes that these rows access."""

    def __len__(self) -> int:
        return len(self.op)

    @classmethod
    def of(cls, position: int, identities: Identities) -> "Script":
        """Return the script of the run at `position`."""
        trial = identities.trials[position]
        accesses, extents, program = trial.accesses, trial.accesses.extents, trial.program
        op = np.concatenate([accesses.read_op, accesses.write_op])
        value = np.concatenate([accesses.read_value, accesses.write_value])
        write = np.arange(len(op)) >= len(accesses.read_op)
        order = np.argsort(2 * op + write, kind="stable")  # merges two sorted parts
        order = order[(extents.low < extents.high)[value[order]]]
        order = order[_read_once(op[order], value[order], write[order], len(extents.low))]
        op, value, write = op[order], value[order], write[order]
        strided = value[~extents.dense[value]]
        runs = int(np.diff(extents.holes.starts, append=0)[extents.holes.row[strided]].sum())
        if runs > MAX_RUNS:
            rule = f"access {runs} byte runs of values with holes; at most {MAX_RUNS} are supported"
            raise ModelError(f"programs[{trial.program_index}].ops", rule)
        buffer = extents.buffer[value]
        space, base = places = identities.places(position)
        made = program.producer >= 0
        made[made] = ~program.ops.is_kind(VIEW)[program.producer[made]]
        return cls(
            program=trial.program_index,
            same_ops=program.same_ops,
            buffers=identities.of[position],
            extents=extents,
            moves=Moves(extents),
            places=places,
            write=write,
            op=op,
            value=value,
            buffer=buffer,
            identity=identities.of[position][buffer],
            low=extents.low[value],
            high=extents.high[value],
            dense=extents.dense[value],
            made=made[value],
            space=space[buffer],
            base=base[buffer],
            runs=runs,
        )

    def steps(self, chosen: Bools | None) -> Iterator[Step]:
        """Return all rows, or the chosen rows, in order, as Python numbers."""
        columns = (
            self.write, self.op, self.value, self.identity, self.low, self.high, self.dense, self.made, self.space, self.base,
        )  # fmt: skip

        def stretch(begin: int) -> Iterator[Step]:
            part = slice(begin, begin + STRETCH)
            rows: slice | Int64s = part if chosen is None else np.flatnonzero(chosen[part]) + begin
            return zip(*(column[rows].tolist() for column in columns), strict=True)

        return chain.from_iterable(map(stretch, range(0, len(self), STRETCH)))


def _read_once(op: Int64s, value: Int64s, write: Bools, values: int) -> Bools | slice:
    """Return the rows without repeated reads of a value by one op, if some op has `MANY` reads."""
    if not len(op) or np.bincount(op[~write], minlength=1).max() < MANY:
        return slice(None)
    kept = write.copy()
    reads = np.flatnonzero(~write)
    kept[reads[np.unique(op[reads] * values + value[reads], return_index=True)[1]]] = True
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs over one memory, with their scripts."""

    identities: Identities
    scripts: Sequence[Script]
    """The distinct scripts."""
    follows: list[int]
    """For each run, the index of its script."""

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> "Runs":
        """Return the identities and scripts of runs over one memory."""
        identities = Identities(trials)
        known: dict[object, int] = {}
        scripts: list[Script] = []
        follows = []
        for position, trial in enumerate(trials):
            key = trial.alike, identities.home_run[position]
            if key not in known:
                known[key] = len(scripts)
                scripts.append(Script.of(position, identities))
            follows.append(known[key])
        return cls(identities=identities, scripts=scripts, follows=follows)
