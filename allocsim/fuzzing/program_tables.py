"""Tables that compiled steps fill with many small programs, and the batch they make.

A row of each table is a row of the model, in order, programs one after another; what names a row
names it among all. `ProgramTables.batch` makes the columns of one program of them all. All values
are f32, all layouts have at most two dimensions.

What this module does not see: what the programs do.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from allocsim.fuzzing.batch import SEVERAL, Batch, starts, trusted
from allocsim.model import (
    DTYPE_CODES,
    HOST_READ,
    HOST_WRITE,
    NEWEST,
    SAME,
    VIEW,
    Arena,
    Bools,
    Buffers,
    Ops,
    Program,
    Values,
)
from allocsim.model.layout import Int64s

KINDS: Final = (
    HOST_WRITE,
    HOST_READ,
    VIEW,
    "neg",
    "add",
    "maximum",
    "minimum",
    "split",
    "scratch",
    "foreign",
    "write",
    "merge",
    SAME,
)
"""Kinds of op by code.

`neg`, `add`, `maximum` and `minimum` are kernels of the engine too, element by element; what
declares every pair of equal layout is a `neg` or an `add`, which ggml's list allows in place."""

MOST: Final = 64
"""Rows of any table that one program may have."""

ITEM: Final = 4
"""Bytes of an element."""

_NAMES: Final = {stem: np.array([f"{stem}{n}" for n in range(MOST)], dtype=object) for stem in "bvo"}


WEIGHTS: Final = {
    "COMPUTE_ONE": 14, "COMPUTE_TWO": 14, "MUTATE": 8, "VIEW": 14, "UPLOAD": 6, "DOWNLOAD": 5, "SEVERAL": 5, "WORKSPACE": 4,
    "UNKNOWN": 3, "PERSIST": 4, "UNUSED": 1, "GATHER": 3, "PASS_ON": 3,
}  # fmt: skip
"""The actions that a code may choose, and how often each is drawn."""

CODES: Final = {
    "action": len(WEIGHTS), "i": 8, "j": 8, "k": 8, "operands": 2, "arena": 6, "alignment": 8, "stream": 1, "twin": 6, "flag": 2,
}  # fmt: skip
"""Columns of a code, and how many ways Hypothesis draws of each: the action; what it reads first
and second; its variant (pairs declared, or how much of a view); one operand or two; the arena and
alignment of its buffer; its stream; arena and alignment of a second buffer; a twofold choice of
some actions.
"""

BUFFER, VALUE, DIM, OP, OPERAND, RESULT, PAIR = range(7)
"""Tables of `ProgramTables`."""

COLUMNS: Final = np.array([0, 5, 13, 15, 21, 23, 25, 27], dtype=np.int64)
"""Of `ProgramTables.rows` the first of each table, and how many there are."""

ELEMENTS, ARENA, ALIGNMENT, ROLE, WRITTEN = range(5)
"""Of a buffer; last, which elements were written, as bits."""

HOME, OFFSET, RANK, FIRST, SIZE, BY_OP, LOST, COVERS = range(5, 13)
"""Of a value: its buffer, offset in elements, dimensions, the first of its dims, elements, whether
an op made it, whether it was written over since, which elements of its buffer it covers, as bits.
"""

LENGTH, STRIDE = 13, 14
"""Of a dim, in elements."""

KIND, KNOWN, STREAM, OPERANDS, RESULTS, PAIRS = range(15, 21)
"""Of an op; last, how many it has of each."""

END, PROGRAM, SINCE = range(3)
"""Rows of `ProgramTables.at`."""


class ProgramTables(NamedTuple):
    """Room for `programs` programs, as compiled loops take it."""

    rows: Int64s
    """(n, 27): a table has columns of its own, and fills them from the first row on. Operands and
    results name a value (and leave a column empty), pairs an operand's and a result's position.
    """
    at: Int64s
    """(3, 7): where the rows of each table end, and where they did when the program that is made
    was begun, and when its last op was added."""
    starts: Int64s
    """(programs + 1, 7): where the rows of each program begin, table by table."""

    @classmethod
    def room(cls, programs: int, *, rows: int = MOST) -> "ProgramTables":
        """Return empty tables for programs of at most so many buffers, values and ops each."""
        return cls(
            rows=np.empty((3 * programs * rows, COLUMNS[-1]), dtype=np.int64),
            at=np.zeros((3, 7), dtype=np.int64),
            starts=np.zeros((programs + 1, 7), dtype=np.int64),
        )

    def batch(self, programs: int, *, arenas: Sequence[Arena], streams: int = 1) -> Batch:
        """Return the first `programs` programs as a batch, each with arenas of its own.

        Ops wait for the one before on another stream.

        What fills the tables is trusted to make well-formed programs, as the tests see it does: to
        check that takes longer than all the rest.
        """
        begins = self.starts[: programs + 1]
        b, v, d, o, x, r, p = (int(end) for end in begins[-1])
        buffer_starts, value_starts, _, op_starts, *_ = (np.ascontiguousarray(column) for column in begins.T)
        owner_b, owner_v, owner_o = (
            np.repeat(np.arange(programs), np.diff(column)) for column in (buffer_starts, value_starts, op_starts)
        )
        # a table's columns at once: a row lies in few lines of the cache
        elements, arena, alignment, role = self.rows[:b, ELEMENTS:WRITTEN].T.copy()
        buffer, offset, rank = self.rows[:v, HOME:FIRST].T.copy()
        length, stride = self.rows[:d, LENGTH:KIND].T.copy()
        kind, known, stream, *counts = self.rows[:o, KIND : PAIRS + 1].T.copy()
        operands, results, pairs = (int(first) for first in COLUMNS[OPERAND:-1])
        waits = (
            np.flatnonzero((stream[1:] != stream[:-1]) & (owner_o[1:] == owner_o[:-1]))
            if streams > 1
            else np.empty(0, np.int64)
        )
        waiting = np.zeros(o, dtype=np.int64)
        waiting[waits + 1] = 1
        program = trusted(
            Program,
            meta={},
            version=NEWEST,
            path="",
            name=SEVERAL,
            arenas=tuple(arenas) * programs,
            streams=tuple(f"stream{n}" for n in range(streams)),
            buffers=trusted(
                Buffers,
                meta={},
                names=_names("b", buffer_starts, owner_b, role >= 2),
                nbytes=elements * ITEM,
                alignment=alignment,
                arena=(arena + owner_b * len(arenas)).astype(np.int32),
                role=role.astype(np.int8),
                read_only=np.zeros(b, dtype=np.bool_),
                nbytes_range={},
            ),
            values=trusted(
                Values,
                meta={},
                names=_names("v", value_starts, owner_v),
                buffer=buffer.astype(np.int32),
                dtype=np.full(v, DTYPE_CODES["f32"], dtype=np.int8),
                offset=offset * ITEM,
                dim_starts=starts(rank),
                shape=length,
                strides=stride * ITEM,
                bit_offset=np.zeros(v, dtype=np.uint8),
            ),
            ops=trusted(
                Ops,
                meta={},
                names=_names("o", op_starts, owner_o),
                kinds=KINDS,
                kind=kind.astype(np.int32),
                operand_starts=starts(counts[0]),
                operands=self.rows[:x, operands].astype(np.int32),
                result_starts=starts(counts[1]),
                results=self.rows[:r, results].astype(np.int32),
                in_place_starts=starts(counts[2]),
                in_place=self.rows[:p, pairs : pairs + 2].astype(np.int32),
                in_place_strength=np.zeros(p, dtype=np.uint8),
                in_place_known=known > 0,
                stream=stream.astype(np.int32),
                after_starts=starts(waiting),
                after=waits.astype(np.int32),
            ),
        )
        return Batch(
            program=program,
            op_starts=op_starts,
            buffer_starts=buffer_starts,
            value_starts=value_starts,
            arenas=len(arenas),
        )


def _names(stem: str, begins: Int64s, owner: Int64s, apart: Bools | None = None) -> tuple[str, ...]:
    """Return a name for each row by its place in its program.

    Rows that are `apart` have the program's number in it, to be unique.
    """
    found = _NAMES[stem][np.arange(len(owner)) - begins[owner]]
    if apart is not None:
        for row in np.flatnonzero(apart).tolist():
            found[row] = f"{owner[row]}.{found[row]}"
    return tuple(found.tolist())
