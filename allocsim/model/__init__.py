"""The nouns: program, problem, plan, run, document. Everything in this project speaks them.

Conventions
-----------
* Time is the *step*: the index of an op in its program's list. Lifetimes are half-open `[start, stop)` ranges of steps.
* Space is bytes. Ranges of bytes are half-open; offsets count from the start of an arena (slots) or of a buffer (values).
* Identity is a dense index into a table; names are for people, may repeat, and mean nothing to any check (except that
  persistent buffers of several programs are one buffer where their names are equal).
* Columns, not objects: a program is tables of numpy arrays (`allocsim.model.tables`, whose nouns are this module's too).

Invariants
----------
Construction checks everything a check later relies on (`allocsim.model.wellformed`) and raises `ModelError`; an instance that
exists is well-formed. What can be *wrong* about a well-formed program or plan is a defect, and found by `allocsim.checks`.

What this module does not see: how a plan was made, what a kernel computes, and files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import wellformed
from allocsim.model.layout import Int64s
from allocsim.model.tables import (
    DEFAULT_ARENAS,
    DTYPE_CODES,
    DTYPES,
    HOST_READ,
    HOST_WRITE,
    ITEMSIZES,
    VIEW,
    Arena,
    Bools,
    Buffers,
    Int32s,
    Meta,
    Op,
    Ops,
    Role,
    Value,
    Values,
    freeze,
)

OWN: Final = -1
"""Arena of a slot in memory of its own, outside all arenas."""

UNPLACED: Final = -2
"""Arena of a buffer the plan gives no slot."""


class Event(IntEnum):
    """What a planner did to a buffer at a step."""

    ALLOC = 0
    FREE = 1


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Program:
    """What is to be computed, as far as bytes and steps go: buffers, the values in them, and ops in order."""

    name: str
    arenas: tuple[Arena, ...] = DEFAULT_ARENAS
    buffers: Buffers
    values: Values
    ops: Ops
    streams: tuple[str, ...] = ("main",)
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in (self.buffers, self.values, self.ops):
            freeze(table)
        wellformed.check_program(self)

    @cached_property
    def producer(self) -> Int32s:
        """Step of the op (views included) that makes each value, -1 where none does."""
        made_by = np.full(len(self.values), -1, dtype=np.int32)
        steps = np.repeat(np.arange(len(self.ops), dtype=np.int32), np.diff(self.ops.result_starts))
        made_by[self.ops.results] = steps
        return made_by

    def __repr__(self) -> str:
        return f"Program({self.name!r}, {len(self.buffers)} buffers, {len(self.values)} values, {len(self.ops)} ops)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Problem:
    """What a planner believes of a program: the input of a placement. Every column has an entry for each buffer.

    Only `program` need be given; the defaults are those of a document (format.md), lifetimes default to the whole program.
    """

    program: Program
    start: Int64s
    stop: Int64s
    """Lifetimes `[start, stop)` in steps."""
    nbytes: Int64s
    """Believed sizes."""
    pinned: Bools
    """Buffers believed to be read by the host after the run."""
    own: Bools
    """Buffers kept in memory of their own, outside all arenas."""
    fixed: Mapping[int, int] = field(default_factory=dict)
    """Buffer -> offset that is already decided."""
    order: Int32s
    """A permutation of the buffers: the order in which a planner that cares places them."""
    may_share: Int32s
    """(n, 2): believed pairs (donor, recipient), for each recipient in order of preference."""
    gaps: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Buffer -> half-open ranges of steps in which its bytes need not survive."""
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self)
        wellformed.check_problem(self)

    def __repr__(self) -> str:
        return f"Problem({self.program!r}, {int(self.pinned.sum())} pinned, {len(self.may_share)} pairs)"

    @classmethod
    def of(cls, program: Program, **columns: Any) -> "Problem":
        """Build a problem from the columns given, the rest as a document's defaults.

        Columns may be any sequence; `pinned` and `own` may be masks or lists of buffer indices.
        """
        count = len(program.buffers)
        start = _int64s(columns.pop("start", np.zeros(count)))
        stop = _int64s(columns.pop("stop", np.full(count, len(program.ops))))
        nbytes = columns.pop("nbytes", None)
        own = columns.pop("own", None)
        order = columns.pop("order", None)
        return cls(
            program=program,
            start=start,
            stop=stop,
            nbytes=program.buffers.nbytes if nbytes is None else _int64s(nbytes),
            pinned=_mask(columns.pop("pinned", ()), count, "pinned"),
            own=program.buffers.persistent if own is None else _mask(own, count, "own"),
            order=np.argsort(start, kind="stable").astype(np.int32) if order is None else _int32s(order, "order"),
            may_share=_int32s(columns.pop("may_share", ()), "may_share").reshape(-1, 2),
            **columns,
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """The answer: a slot for each buffer of `program`."""

    program: Program
    problem: Problem | None = None
    """The belief it was made from, where that is known."""
    source: str = ""
    """Who made it, for people."""
    arena: Int32s
    """Arena of each slot, or `OWN`, or `UNPLACED`."""
    offset: Int64s
    nbytes: Int64s
    events: Int64s = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    """(n, 3): step, `Event`, buffer: what the planner did, in order."""
    meta: Meta = field(default_factory=dict)
    slot_meta: Mapping[int, Meta] = field(default_factory=dict)
    """`meta` of the slots that carry one, by buffer."""

    def __post_init__(self) -> None:
        freeze(self)
        wellformed.check_plan(self)

    def __repr__(self) -> str:
        return f"Plan({self.program!r}, {self.source!r}, {self.peak_bytes} bytes)"

    @cached_property
    def placed(self) -> Bools:
        """Which buffers have a slot inside an arena."""
        return self.arena >= 0

    @cached_property
    def peak_bytes(self) -> int:
        """Highest end of any slot, summed over arenas."""
        last = self.offset + (self.nbytes - 1)  # the end itself may be 2^63, one too many for 64 bits
        highest = np.full(len(self.program.arenas), -1, dtype=np.int64)
        np.maximum.at(highest, self.arena[self.placed], last[self.placed])
        return sum(end + 1 for end in highest.tolist())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """One execution in a session: a program with the slots of a plan, possibly made for another program."""

    plan: Plan
    program: Program
    skip: tuple[int, ...] = ()
    """Steps of `host.write` ops that the host leaves out of this run."""
    meta: Meta = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, *, program: Program | None = None, skip: tuple[int, ...] = (), meta: Meta | None = None) -> "Run":
        """Run `plan` on its own program unless another is given."""
        return cls(plan=plan, program=program if program is not None else plan.program, skip=skip, meta=meta or {})


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Document:
    """Programs, beliefs, plans and what was run: everything a check looks at."""

    programs: tuple[Program, ...]
    problems: tuple[Problem, ...] = ()
    plans: tuple[Plan, ...] = ()
    session: tuple[Run, ...] | None = None
    """Runs in order over the same memory; None: each plan runs once, each time on fresh memory."""
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        wellformed.check_document(self)

    def __repr__(self) -> str:
        parts = (len(self.programs), len(self.problems), len(self.plans), len(self.runs))
        return "Document({} programs, {} problems, {} plans, {} runs)".format(*parts)

    @property
    def arenas(self) -> tuple[Arena, ...]:
        """The arenas all programs share."""
        return self.programs[0].arenas if self.programs else DEFAULT_ARENAS

    @property
    def runs(self) -> tuple[Run, ...]:
        """The session, or one run for each plan."""
        return self.session if self.session is not None else tuple(Run.of(plan) for plan in self.plans)

    @classmethod
    def of(cls, *parts: Plan | Problem | Program | Run) -> "Document":
        """Gather plans, problems, programs and runs, with all they refer to, into one document; runs make a session."""
        seen: dict[int, Any] = {}

        def add(part: Any) -> None:
            if part is None or id(part) in seen:
                return
            for name in ("program", "problem", "plan"):
                add(getattr(part, name, None))
            seen[id(part)] = part

        for part in parts:
            add(part)
        found = list(seen.values())
        runs = tuple(part for part in parts if isinstance(part, Run))
        return cls(
            programs=tuple(part for part in found if isinstance(part, Program)),
            problems=tuple(part for part in found if isinstance(part, Problem)),
            plans=tuple(part for part in found if isinstance(part, Plan)),
            session=runs or None,
        )


def index_of(items: tuple[Any, ...], item: object) -> int:
    """Return the position of `item` in `items` by identity; raise ModelError if it is not there."""
    for index, candidate in enumerate(items):
        if candidate is item:
            return index
    raise ModelError("", f"{type(item).__name__.lower()} is not part of the document")


def _int64s(column: Any) -> Int64s:
    return np.asarray(column).astype(np.int64)


def _int32s(column: Any, name: str) -> Int32s:
    wide = np.asarray(column, dtype=np.int64)
    if wide.size and (wide.min() < -(1 << 31) or wide.max() >= 1 << 31):
        raise ModelError(name, f"index {wide.min() if wide.min() < 0 else wide.max()} does not fit 32 bits")
    return wide.astype(np.int32)


def _mask(column: Any, count: int, name: str) -> Bools:
    array = np.asarray(column)
    if array.dtype == np.bool_:
        return array
    indices = array.astype(np.int64)
    bad = np.flatnonzero((indices < 0) | (indices >= count))
    if bad.size:
        raise ModelError(f"{name}[{bad[0]}]", f"buffer {indices[bad[0]]} does not exist; there are {count}")
    mask = np.zeros(count, dtype=np.bool_)
    mask[indices] = True
    return mask


__all__ = [
    "DEFAULT_ARENAS",
    "DTYPES",
    "DTYPE_CODES",
    "HOST_READ",
    "HOST_WRITE",
    "ITEMSIZES",
    "OWN",
    "UNPLACED",
    "VIEW",
    "Arena",
    "Bools",
    "Buffers",
    "Document",
    "Event",
    "Int32s",
    "Meta",
    "Op",
    "Ops",
    "Plan",
    "Problem",
    "Program",
    "Role",
    "Run",
    "Value",
    "Values",
    "index_of",
]
