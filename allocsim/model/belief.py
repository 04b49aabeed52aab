"""The problem: what a planner believes of a program, the input of a placement.

Lifetimes are half-open ranges `[start, stop)` of steps; every column has an entry for each buffer
of the program. The constructor checks that columns and indices fit, and raises `ModelError` with
the place as a document spells it.

What this module does not see: whether a belief is true. `allocsim.judge` compares it with the
program.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model.computation import Program
from allocsim.model.guards import first_bad, in_range, sizes
from allocsim.model.layout import LIMIT, Int64s
from allocsim.model.tables import Bools, Int32s, Meta, freeze

STATABLE: Final = frozenset({"start", "stop", "nbytes", "own", "may_share"})
"""The lists of a problem for which a list left out differs from an empty or default list."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Problem:
    """What a planner believes of a program: the input of a placement.

    Every column has an entry for each buffer.

    `Problem.of` needs only `program`; the defaults are those of a document (docs/format.md), and
    lifetimes default to the whole program.
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
    """Buffer -> the offset at which it must be placed."""
    order: Int32s
    """A permutation of the buffers: the order in which a planner may place them."""
    may_share: Int32s
    """(n, 2): believed pairs (donor, recipient), for each recipient in order of preference."""
    gaps: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Buffer -> half-open ranges of steps in which its bytes need not survive."""
    stated: frozenset[str] = STATABLE
    """The lists in `STATABLE` that the author gave; the others hold defaults. A list that differs
    from its default is always stated. Planners and belief checks use stated lists and defaults
    alike; a plan must keep only stated lists.
    """
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self)
        _check(self)
        default = _defaults(self.program)
        told = {name for name in STATABLE if not np.array_equal(getattr(self, name), default[name])}
        object.__setattr__(self, "stated", (self.stated & STATABLE) | told)

    def __repr__(self) -> str:
        return f"Problem({self.program!r}, {int(self.pinned.sum())} pinned, {len(self.may_share)} pairs)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002, FBT001 - the protocol of pretty printers
        """Print the problem in one line, for IPython and Hypothesis."""
        printer.text(repr(self))

    @classmethod
    def of(cls, program: Program, **columns: Any) -> "Problem":
        """Build a problem from the columns given; other columns get a document's defaults.

        Columns may be any sequence; `pinned` and `own` may be masks or lists of buffer indices.
        """
        count = len(program.buffers)
        columns = {name: column for name, column in columns.items() if column is not None}
        stated = frozenset(columns.pop("stated", STATABLE & columns.keys()))
        given = {**_defaults(program), **columns}
        start, order = _int64s(given.pop("start")), given.pop("order", None)
        return cls(
            program=program,
            start=start,
            stop=_int64s(given.pop("stop")),
            nbytes=_int64s(given.pop("nbytes")),
            pinned=_mask(given.pop("pinned", ()), count, "pinned"),
            own=_mask(given.pop("own"), count, "own"),
            order=np.argsort(start, kind="stable").astype(np.int32) if order is None else _int32s(order, "order"),
            may_share=_int32s(given.pop("may_share"), "may_share").reshape(-1, 2),
            stated=stated,
            **given,
        )


def _defaults(program: Program) -> dict[str, Any]:
    """Return name -> default for the lists of `STATABLE`."""
    count = len(program.buffers)
    return {
        "start": np.zeros(count, dtype=np.int64),
        "stop": np.full(count, len(program.ops), dtype=np.int64),
        "nbytes": program.buffers.nbytes,
        "own": program.buffers.persistent,
        "may_share": np.empty((0, 2), dtype=np.int32),
    }


def _check(problem: Problem) -> None:
    """Raise ModelError unless every column of the problem fits its program."""
    count = len(problem.program.buffers)
    for name in ("start", "stop", "nbytes", "pinned", "own", "order"):
        if len(getattr(problem, name)) != count:
            raise ModelError(name, f"has {len(getattr(problem, name))} entries; the program has {count} buffers")
    first_bad(problem.start < 0, "start[{}]", lambda i: f"{problem.start[i]} is negative")
    first_bad(problem.stop > LIMIT, "stop[{}]", lambda i: f"{problem.stop[i]} exceeds 2^62")
    first_bad(
        problem.stop < problem.start,
        "stop[{}]",
        lambda i: f"the lifetime [{problem.start[i]}, {problem.stop[i]}) ends before it starts",
    )
    sizes(problem.nbytes, "nbytes[{}]")
    in_range(problem.order, count, "order[{}]", "buffer")
    repeats = np.flatnonzero(np.bincount(problem.order, minlength=count) > 1)
    if repeats.size:
        raise ModelError("order", f"buffer {repeats[0]} stands in it twice")
    in_range(problem.may_share[:, 0], count, "may_share[{}][0]", "buffer")
    in_range(problem.may_share[:, 1], count, "may_share[{}][1]", "buffer")
    first_bad(
        problem.may_share[:, 0] == problem.may_share[:, 1],
        "may_share[{}]",
        lambda i: f"buffer {problem.may_share[i, 0]} is its own donor",
    )
    for buffer, offset in problem.fixed.items():
        _buffer_key(buffer, count, "fixed")
        if abs(offset) > LIMIT:
            raise ModelError(f"fixed.{buffer}", f"offset {offset} exceeds 2^62")
    for buffer, gaps in problem.gaps.items():
        _buffer_key(buffer, count, "gaps")
        for position, (low, high) in enumerate(gaps):
            if not 0 <= low <= high <= LIMIT:
                raise ModelError(f"gaps.{buffer}[{position}]", f"[{low}, {high}) is not a range of steps")


def _buffer_key(buffer: int, count: int, name: str) -> None:
    if not 0 <= buffer < count:
        raise ModelError(f"{name}.{buffer}", f"buffer {buffer} does not exist; there are {count}")


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
