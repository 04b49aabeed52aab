"""The nouns: program, problem, plan, run, document. Everything in this project speaks them.

Conventions
-----------
* Time is the *step*: the index of an op in its program's list. Lifetimes are half-open `[start, stop)` ranges of steps.
* Space is bytes. Ranges of bytes are half-open; offsets count from the start of an arena (slots) or of a buffer (values).
* Identity is a dense index into a table; names are for people, may repeat, and mean nothing to any check (except that
  persistent buffers of several programs are one buffer where their names are equal).
* Columns, not objects: each table is a frozen bundle of read-only numpy arrays; lists of lists are in CSR form (`starts`, flat).
  The little objects (`Op`, `Value`) are views for reading a few rows; hot code takes the columns.

Invariants
----------
Construction checks everything a check later relies on (`allocsim.wellformed`) and raises `ModelError`; an instance that
exists is well-formed. What can be *wrong* about a well-formed program or plan is a defect, and found by `allocsim.checks`.

What this module does not see: how a plan was made, what a kernel computes, and files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim import layout, wellformed
from allocsim.errors import ModelError
from allocsim.layout import Int64s

Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]
Meta = Mapping[str, Any]

OWN: Final = -1
"""Arena of a slot in memory of its own, outside all arenas."""

UNPLACED: Final = -2
"""Arena of a buffer the plan gives no slot."""

HOST_WRITE: Final = "host.write"
HOST_READ: Final = "host.read"
VIEW: Final = "view"

DTYPES: Final[tuple[tuple[str, int], ...]] = (
    ("f64", 8), ("f32", 4), ("f16", 2), ("bf16", 2), ("i64", 8), ("i32", 4), ("i16", 2), ("i8", 1),
    ("u64", 8), ("u32", 4), ("u16", 2), ("u8", 1), ("bool", 1),
)  # fmt: skip
"""Name and item size of each dtype; a value's `dtype` column is an index into this table."""

DTYPE_CODES: Final = {name: code for code, (name, _) in enumerate(DTYPES)}
ITEMSIZES: Final = np.array([size for _, size in DTYPES], dtype=np.int64)


class Role(IntEnum):
    """What a buffer is to its program; decides whether it persists from run to run."""

    TEMPORARY = 0
    """Made and used within a run."""
    INPUT = 1
    """Filled by the host."""
    PARAMETER = 2
    """Holds its content before the session starts and through every run: weights."""
    STATE = 3
    """As a parameter, and written by the program: accumulators, momenta, caches."""

    @property
    def persistent(self) -> bool:
        """Whether a buffer of this role lives through every run it is part of."""
        return self >= Role.PARAMETER


class Event(IntEnum):
    """What a planner did to a buffer at a step."""

    ALLOC = 0
    FREE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """One address space: a device's memory, or one chunk of it."""

    name: str
    """For people."""
    alignment: int = 1
    """Bytes; the default of the buffers that live here."""
    capacity: int | None = None
    """Bytes; None is unbounded."""
    meta: Meta = field(default_factory=dict, compare=False, repr=False)


DEFAULT_ARENAS: Final = (Arena(name="cpu", alignment=32),)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Buffers:
    """Units of allocation, one row each."""

    names: tuple[str, ...]
    nbytes: Int64s
    alignment: Int64s
    """Bytes, at least 1; the arena's default is already filled in."""
    arena: Int32s
    """The address space this buffer must be placed in."""
    role: NDArray[np.int8]
    """`Role` codes."""
    read_only: Bools
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nbytes)

    @cached_property
    def persistent(self) -> Bools:
        """Which buffers are parameters or state."""
        mask: Bools = self.role >= Role.PARAMETER
        return mask


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Values:
    """Tensors, one row each: a dtype, a shape and a byte layout inside one buffer."""

    names: tuple[str, ...]
    buffer: Int32s
    dtype: NDArray[np.int8]
    """Indices into `DTYPES`."""
    offset: Int64s
    """Bytes from the start of the buffer to element 0."""
    dim_starts: Int64s
    """CSR: the dimensions of value j are rows `dim_starts[j]:dim_starts[j + 1]` of `shape` and `strides`."""
    shape: Int64s
    strides: Int64s
    """Bytes; negative flips, zero broadcasts."""
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.buffer)

    def __getitem__(self, index: int) -> "Value":
        dims = slice(int(self.dim_starts[index]), int(self.dim_starts[index + 1]))
        name, itemsize = DTYPES[self.dtype[index]]
        return Value(
            index=index,
            name=self.names[index],
            buffer=int(self.buffer[index]),
            dtype=name,
            itemsize=itemsize,
            shape=tuple(self.shape[dims].tolist()),
            strides=tuple(self.strides[dims].tolist()),
            offset=int(self.offset[index]),
        )

    def __iter__(self) -> Iterator["Value"]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def itemsize(self) -> Int64s:
        """Bytes of one element, for each value."""
        return ITEMSIZES[self.dtype]

    @cached_property
    def hulls(self) -> Int64s:
        """(n, 2): lowest and highest byte touched by each value, half-open, within its buffer; empty shapes give (x, x)."""
        extent = (self.shape - 1) * self.strides
        owner = np.repeat(np.arange(len(self)), np.diff(self.dim_starts))
        low, high = self.offset.copy(), self.offset + self.itemsize
        np.add.at(low, owner, np.minimum(extent, 0))
        np.add.at(high, owner, np.maximum(extent, 0))
        empty = np.zeros(len(self), dtype=np.bool_)
        empty[owner[self.shape == 0]] = True
        low[empty] = self.offset[empty]
        high[empty] = self.offset[empty]
        return np.stack([low, high], axis=1)

    @cached_property
    def dense(self) -> Bools:
        """Which values are one byte run: `runs(j)` is then `hulls[j]`. Sufficient and necessary."""
        ranks = np.diff(self.dim_starts)
        rank = int(ranks.max(initial=0))
        column = np.arange(rank)
        inside = column < ranks[:, None]
        stride = np.zeros((len(self), rank), dtype=np.int64)
        count = np.ones((len(self), rank), dtype=np.int64)
        stride[inside] = np.abs(self.strides)
        count[inside] = self.shape
        matters = (count > 1) & (stride > 0)
        stride[~matters], count[~matters] = 0, 1
        by_stride = np.argsort(stride, axis=1, kind="stable")
        stride = np.take_along_axis(stride, by_stride, axis=1)
        count = np.take_along_axis(count, by_stride, axis=1)
        length = self.itemsize.copy()
        dense = np.ones(len(self), dtype=np.bool_)
        for axis in range(rank):
            dense &= stride[:, axis] <= length
            length += stride[:, axis] * (count[:, axis] - 1)
        one_run: Bools = dense | (self.hulls[:, 0] == self.hulls[:, 1])
        return one_run

    def runs(self, index: int) -> Int64s:
        """Return the byte runs of a value within its buffer: int64 (k, 2), half-open, sorted, disjoint (`allocsim.layout`)."""
        if self.dense[index]:
            low, high = self.hulls[index]
            return np.array([[low, high]] if high > low else [], dtype=np.int64).reshape(-1, 2)
        value = self[index]
        return layout.byte_runs(value.shape, value.strides, value.offset, value.itemsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One row of `Values`."""

    index: int
    name: str
    buffer: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def same_layout(self, other: "Value") -> bool:
        """Return whether shape, item size and every stride that matters agree; offsets and buffers may differ."""
        return layout.same_layout((self.shape, self.strides, self.itemsize), (other.shape, other.strides, other.itemsize))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ops:
    """Kernel calls in list order, one row each; the row is the step."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    """The distinct kinds; `kind` indexes this."""
    kind: Int32s
    operand_starts: Int64s
    operands: Int32s
    """CSR: values the kernel reads, by position."""
    result_starts: Int64s
    results: Int32s
    """CSR: values it writes, by position."""
    in_place_starts: Int64s
    in_place: Int32s
    """CSR (n, 2): declared pairs (operand position, result position)."""
    in_place_known: Bools
    """False where nobody knows what the kernel promises (a foreign kernel, `in_place: null`)."""
    stream: Int32s
    after_starts: Int64s
    after: Int32s
    """CSR: earlier ops of other streams it waits for."""
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, step: int) -> "Op":
        return Op(
            step=step,
            name=self.names[step],
            kind=self.kinds[self.kind[step]],
            operands=tuple(self.operands[self.operand_starts[step] : self.operand_starts[step + 1]].tolist()),
            results=tuple(self.results[self.result_starts[step] : self.result_starts[step + 1]].tolist()),
            in_place=(
                tuple((o, r) for o, r in self.in_place[self.in_place_starts[step] : self.in_place_starts[step + 1]].tolist())
                if self.in_place_known[step]
                else None
            ),
            stream=int(self.stream[step]),
            after=tuple(self.after[self.after_starts[step] : self.after_starts[step + 1]].tolist()),
        )

    def __iter__(self) -> Iterator["Op"]:
        return (self[step] for step in range(len(self)))

    def is_kind(self, kind: str) -> Bools:
        """Return the mask of ops of one kind."""
        code = self.kinds.index(kind) if kind in self.kinds else -1
        mask: Bools = self.kind == code
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One row of `Ops`."""

    step: int
    name: str
    kind: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    in_place: tuple[tuple[int, int], ...] | None
    stream: int
    after: tuple[int, ...]


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
            _freeze(table)
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
        _freeze(self)
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
        _freeze(self)
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
        ends = self.offset + self.nbytes
        highest = np.zeros(len(self.program.arenas), dtype=np.int64)
        np.maximum.at(highest, self.arena[self.placed], ends[self.placed])
        return sum(highest.tolist())


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


def _freeze(table: object) -> None:
    for name, column in vars(table).items():
        if isinstance(column, np.ndarray) and column.flags.writeable:
            frozen = column.view() if column.base is None else column.copy()
            frozen.flags.writeable = False
            object.__setattr__(table, name, frozen)


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
