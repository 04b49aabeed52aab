"""Tables that compiled generators fill with many small programs, and the batch they make.

A row of each table is a row of the model, in order, programs one after another; indices in them
count within their program. `ProgramTables.batch` makes the columns of one program of them all. All
values are f32, all layouts have at most two dimensions.

What this module does not see: what the programs do.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from allocsim.fuzzing.batch import SEVERAL, Batch, trusted
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

WRITE, READ, LOOK, NEG, ADD, MAXIMUM, MINIMUM, SPLIT, SCRATCH, FOREIGN, STORE, MERGE, HAND_ON = range(len(KINDS))

MOST: Final = 64
"""Rows of any table that one program may have."""

ITEM: Final = 4
"""Bytes of an element."""

_NAMES: Final = {stem: np.array([f"{stem}{n}" for n in range(MOST)], dtype=object) for stem in "bvo"}


BUFFER, VALUE, DIM, OP, OPERAND, RESULT, PAIR = range(7)
"""Columns of `ProgramTables.starts`: its tables, in their order."""


class ProgramTables(NamedTuple):
    """Room for `programs` programs, as compiled loops take it: at most `MOST` rows a table."""

    buffers: Int64s
    """(n, 4): elements, arena, alignment, role."""
    values: Int64s
    """(n, 3): buffer, offset in elements, dimensions."""
    dims: Int64s
    """(n, 2): length, stride in elements."""
    ops: Int64s
    """(n, 6): kind, declares?, stream, operands, results, pairs."""
    operands: Int64s
    results: Int64s
    pairs: Int64s
    """(n, 2): operand position, result position."""
    starts: Int64s
    """(programs + 1, 7): where the rows of each program begin, table by table."""

    @classmethod
    def room(cls, programs: int, *, rows: int = MOST) -> "ProgramTables":
        """Return empty tables for programs of at most so many rows in any table."""
        room = programs * rows

        def table(*width: int) -> Int64s:
            return np.empty((room, *width), dtype=np.int64)

        return cls(
            buffers=table(4),
            values=table(3),
            dims=np.empty((2 * room, 2), dtype=np.int64),
            ops=table(6),
            operands=np.empty(3 * room, dtype=np.int64),
            results=np.empty(2 * room, dtype=np.int64),
            pairs=np.empty((2 * room, 2), dtype=np.int64),
            starts=np.zeros((programs + 1, 7), dtype=np.int64),
        )

    def batch(self, programs: int, *, arenas: Sequence[Arena], streams: int = 1) -> Batch:
        """Return the first `programs` programs as a batch, each with arenas of its own.

        Ops wait for the one before on another stream.

        What fills the tables is trusted to make well-formed programs, as the tests see it does: to
        check that takes longer than all the rest.
        """
        starts = self.starts[: programs + 1]
        b, v, d, o, x, r, p = (int(end) for end in starts[-1])
        buffer_starts, value_starts, _, op_starts, *_ = (np.ascontiguousarray(column) for column in starts.T)
        owner_b, owner_v, owner_o = (
            np.repeat(np.arange(programs), np.diff(column)) for column in (buffer_starts, value_starts, op_starts)
        )
        buffers, values, ops = self.buffers[:b], self.values[:v], self.ops[:o]
        counts = ops[:, 3:6]
        stream = ops[:, 2].astype(np.int32)
        waits = (
            np.flatnonzero((stream[1:] != stream[:-1]) & (owner_o[1:] == owner_o[:-1]))
            if streams > 1
            else np.empty(0, np.int64)
        )
        waiting = np.zeros(o, dtype=np.int64)
        waiting[waits + 1] = 1
        per_op = np.repeat(value_starts[owner_o], counts[:, 0]), np.repeat(value_starts[owner_o], counts[:, 1])
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
                names=_names("b", buffer_starts, owner_b, buffers[:, 3] >= 2),
                nbytes=buffers[:, 0] * ITEM,
                alignment=buffers[:, 2].copy(),
                arena=(buffers[:, 1] + owner_b * len(arenas)).astype(np.int32),
                role=buffers[:, 3].astype(np.int8),
                read_only=np.zeros(b, dtype=np.bool_),
                nbytes_range={},
            ),
            values=trusted(
                Values,
                meta={},
                names=_names("v", value_starts, owner_v),
                buffer=(values[:, 0] + buffer_starts[owner_v]).astype(np.int32),
                dtype=np.full(v, DTYPE_CODES["f32"], dtype=np.int8),
                offset=values[:, 1] * ITEM,
                dim_starts=_starts(values[:, 2]),
                shape=self.dims[:d, 0].copy(),
                strides=self.dims[:d, 1] * ITEM,
                bit_offset=np.zeros(v, dtype=np.uint8),
            ),
            ops=trusted(
                Ops,
                meta={},
                names=_names("o", op_starts, owner_o),
                kinds=KINDS,
                kind=ops[:, 0].astype(np.int32),
                operand_starts=_starts(counts[:, 0]),
                operands=(self.operands[:x] + per_op[0]).astype(np.int32),
                result_starts=_starts(counts[:, 1]),
                results=(self.results[:r] + per_op[1]).astype(np.int32),
                in_place_starts=_starts(counts[:, 2]),
                in_place=self.pairs[:p].astype(np.int32),
                in_place_strength=np.zeros(p, dtype=np.uint8),
                in_place_known=ops[:, 1] > 0,
                stream=stream,
                after_starts=_starts(waiting),
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


def _names(stem: str, starts: Int64s, owner: Int64s, apart: Bools | None = None) -> tuple[str, ...]:
    """Return a name for each row by its place in its program.

    Rows that are `apart` have the program's number in it, to be unique.
    """
    found = _NAMES[stem][np.arange(len(owner)) - starts[owner]]
    if apart is not None:
        for row in np.flatnonzero(apart).tolist():
            found[row] = f"{owner[row]}.{found[row]}"
    return tuple(found.tolist())


def _starts(counts: Int64s) -> Int64s:
    found = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=found[1:])
    return found
