"""Build a `Program` row by row: the one place where lists grow before they become columns.

    b = ProgramBuilder("step")
    x = b.tensor("x", "f32", (8, 8), role=Role.INPUT)
    y = b.tensor("y", "f32", (8, 8))
    b.op("host.write", (), (x,))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op("host.read", (y,), ())
    program = b.build()

Rows are checked together in `build` (`allocsim.model.wellformed`), with places that name table, row and column.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import (
    DEFAULT_ARENAS,
    DTYPE_CODES,
    DTYPES,
    HOST_READ,
    OWN,
    UNPLACED,
    VIEW,
    Arena,
    Buffers,
    Int32s,
    Meta,
    Ops,
    Plan,
    Program,
    Role,
    Values,
)
from allocsim.model.layout import LIMIT, contiguous_strides


class ProgramBuilder:
    """Collects rows; every method that adds one returns its index."""

    def __init__(
        self,
        name: str,
        *,
        arenas: Sequence[Arena] = DEFAULT_ARENAS,
        streams: Sequence[str] = ("main",),
        meta: Meta | None = None,
    ) -> None:
        self._name = name
        self._arenas = tuple(arenas)
        self._streams = tuple(streams)
        self._meta: Meta = meta or {}
        self._buffers: list[tuple[str, int, int, int, int, bool]] = []
        self._values: list[tuple[str, int, int, int, tuple[int, ...], tuple[int, ...]]] = []
        self._ops: list[
            tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...] | None, int, tuple[int, ...]]
        ] = []
        self._kinds: dict[str, int] = {}
        self._row_meta: dict[str, dict[int, Meta]] = {"buffers": {}, "values": {}, "ops": {}}

    def buffer(
        self,
        name: str,
        nbytes: int,
        *,
        role: Role = Role.TEMPORARY,
        arena: int = 0,
        alignment: int | None = None,
        read_only: bool = False,
        meta: Meta | None = None,
    ) -> int:
        """Add a buffer of `nbytes` bytes; `alignment` defaults to its arena's."""
        index = len(self._buffers)
        if alignment is None:
            if not 0 <= arena < len(self._arenas):
                raise ModelError(f"buffers[{index}].arena", f"arena {arena} does not exist; there are {len(self._arenas)}")
            alignment = self._arenas[arena].alignment
        for column, number in (("nbytes", nbytes), ("alignment", alignment)):
            _bounded(f"buffers[{index}].{column}", number)
        self._buffers.append((name, nbytes, alignment, arena, int(role), read_only))
        self._remember("buffers", index, meta)
        return index

    def value(
        self,
        name: str,
        buffer: int,
        dtype: str,
        shape: Iterable[int],
        *,
        strides: Iterable[int] | None = None,
        offset: int = 0,
        meta: Meta | None = None,
    ) -> int:
        """Add a value in `buffer`; `strides` (bytes) default to contiguous row-major, `offset` is that of element 0."""
        index = len(self._values)
        if dtype not in DTYPE_CODES:
            raise ModelError(f"values[{index}].dtype", f"{dtype!r} is none of {' '.join(DTYPE_CODES)}")
        dims = tuple(shape)
        steps = tuple(strides) if strides is not None else contiguous_strides(dims, DTYPES[DTYPE_CODES[dtype]][1])
        if len(dims) != len(steps):
            raise ModelError(f"values[{index}].strides", f"has {len(steps)} entries; the shape has {len(dims)}")
        for axis, (length, stride) in enumerate(zip(dims, steps, strict=True)):
            _bounded(f"values[{index}].shape[{axis}]", length)
            _bounded(f"values[{index}].strides[{axis}]", stride)
        _bounded(f"values[{index}].offset", offset)
        self._values.append((name, buffer, DTYPE_CODES[dtype], offset, dims, steps))
        self._remember("values", index, meta)
        return index

    def tensor(self, name: str, dtype: str, shape: Iterable[int], **buffer: Any) -> int:
        """Add a contiguous value in a buffer of its own, with the buffer's keywords; return the value."""
        dims = tuple(shape)
        nbytes = prod(dims) * DTYPES[DTYPE_CODES[dtype]][1] if dtype in DTYPE_CODES else 0
        return self.value(name, self.buffer(name, nbytes, **buffer), dtype, dims)

    def view(self, parent: int, name: str, shape: Iterable[int], *, offset: int = 0, **layout: Any) -> int:
        """Add a value in the buffer of `parent`, `offset` bytes from its element 0, and the `view` op that makes it."""
        _, buffer, dtype, origin, _, _ = self._values[parent]
        child = self.value(name, buffer, layout.pop("dtype", DTYPES[dtype][0]), shape, offset=origin + offset, **layout)
        self.op(VIEW, (parent,), (child,), name=name)
        return child

    def op(
        self,
        kind: str,
        operands: Iterable[int],
        results: Iterable[int],
        *,
        name: str | None = None,
        in_place: Iterable[tuple[int, int]] | None = (),
        stream: int = 0,
        after: Iterable[int] = (),
        meta: Meta | None = None,
    ) -> int:
        """Append an op; `in_place` are the declared pairs (operand position, result position), None if nobody knows."""
        index = len(self._ops)
        pairs = None if in_place is None else tuple(in_place)
        code = self._kinds.setdefault(kind, len(self._kinds))
        self._ops.append((name if name is not None else kind, code, tuple(operands), tuple(results), pairs, stream, tuple(after)))
        self._remember("ops", index, meta)
        return index

    def build(self) -> Program:
        """Return the program; raise ModelError at the first row that breaks a rule."""
        buffers, values, ops = self._buffers, self._values, self._ops
        return Program(
            name=self._name,
            arenas=self._arenas,
            streams=self._streams,
            meta=self._meta,
            buffers=Buffers(
                names=tuple(row[0] for row in buffers),
                nbytes=_column(buffers, 1, np.int64),
                alignment=_column(buffers, 2, np.int64),
                arena=_column(buffers, 3, np.int32, "buffers[{}].arena"),
                role=_column(buffers, 4, np.int8),
                read_only=_column(buffers, 5, np.bool_),
                meta=self._row_meta["buffers"],
            ),
            values=Values(
                names=tuple(row[0] for row in values),
                buffer=_column(values, 1, np.int32, "values[{}].buffer"),
                dtype=_column(values, 2, np.int8),
                offset=_column(values, 3, np.int64),
                dim_starts=_starts(row[4] for row in values),
                shape=_flat((row[4] for row in values), np.int64),
                strides=_flat((row[5] for row in values), np.int64),
                meta=self._row_meta["values"],
            ),
            ops=Ops(
                names=tuple(row[0] for row in ops),
                kinds=tuple(self._kinds),
                kind=_column(ops, 1, np.int32),
                operand_starts=_starts(row[2] for row in ops),
                operands=_indices(ops, 2, "operands"),
                result_starts=_starts(row[3] for row in ops),
                results=_indices(ops, 3, "results"),
                in_place_starts=_starts(row[4] or () for row in ops),
                in_place=_pairs(ops),
                in_place_known=np.array([row[4] is not None for row in ops], dtype=np.bool_),
                stream=_column(ops, 5, np.int32, "ops[{}].stream"),
                after_starts=_starts(row[6] for row in ops),
                after=_indices(ops, 6, "after"),
                meta=self._row_meta["ops"],
            ),
        )

    def _remember(self, table: str, index: int, meta: Meta | None) -> None:
        if meta:
            self._row_meta[table][index] = meta


def plan_of(program: Program, slots: Mapping[int, int] | Sequence[int | str | None], **keywords: Any) -> Plan:
    """Build a plan from offsets by buffer: an int is an offset in the buffer's own arena, "own" and None as in a document.

    Buffers a mapping leaves out are kept apart (`own`) if persistent and unplaced if not. Raises ModelError, placed at the slot, for what is no
    slot, for a buffer that does not exist, and for a sequence of another length.
    """
    count = len(program.buffers)
    persistent = program.buffers.persistent
    if isinstance(slots, Mapping):
        known = {_whole(f"slots[{buffer!r}]", buffer): slot for buffer, slot in slots.items()}
        for buffer in known:
            if not 0 <= buffer < count:
                raise ModelError(f"slots[{buffer}]", f"buffer {buffer} does not exist; there are {count}")
        slots = [known.get(index, "own" if persistent[index] else None) for index in range(count)]
    if isinstance(slots, str) or not isinstance(slots, Iterable):
        raise ModelError("slots", f"{slots!r} is neither a plan nor an offset for each buffer")
    rows = list(slots)
    if len(rows) != count:
        raise ModelError("slots", f"has {len(rows)} entries; the program has {count} buffers")
    named = {"own": OWN, None: UNPLACED}
    words = [slot if slot is None or isinstance(slot, str) else "" for slot in rows]
    arena = [named.get(word, int(program.buffers.arena[index])) for index, word in enumerate(words)]
    offsets = [0 if place < 0 else _whole(f"slots[{index}]", rows[index]) for index, place in enumerate(arena)]
    return Plan(
        program=program,
        arena=np.array(arena, dtype=np.int32),
        offset=np.array(offsets, dtype=np.int64),
        nbytes=np.where(np.array(arena) >= 0, program.buffers.nbytes, 0).astype(np.int64),
        **keywords,
    )


def read_at_end(program: Program, values: Sequence[int] | Int32s) -> Program:
    """Return the program with one more op: the host reads `values`, after everything else on every stream. O(columns)."""
    ops, count = program.ops, len(program.ops)
    kinds = ops.kinds if HOST_READ in ops.kinds else (*ops.kinds, HOST_READ)
    last_of_stream = np.full(len(program.streams), -1, dtype=np.int64)
    np.maximum.at(last_of_stream, ops.stream, np.arange(count))
    here = int(ops.stream[-1]) if count else 0
    waits = np.sort(np.delete(last_of_stream, here))
    waits = waits[waits >= 0]
    read = np.asarray(values, dtype=np.int32)
    grown = replace(
        ops,
        names=(*ops.names, HOST_READ),
        kinds=kinds,
        kind=np.append(ops.kind, kinds.index(HOST_READ)).astype(np.int32),
        operand_starts=np.append(ops.operand_starts, ops.operand_starts[-1] + len(read)),
        operands=np.append(ops.operands, read).astype(np.int32),
        result_starts=np.append(ops.result_starts, ops.result_starts[-1]),
        in_place_starts=np.append(ops.in_place_starts, ops.in_place_starts[-1]),
        in_place_known=np.append(ops.in_place_known, True),
        stream=np.append(ops.stream, here).astype(np.int32),
        after_starts=np.append(ops.after_starts, ops.after_starts[-1] + len(waits)),
        after=np.append(ops.after, waits).astype(np.int32),
    )
    return replace(program, ops=grown)


def _whole(place: str, number: Any) -> int:
    """Return a whole number of Python or numpy; raise ModelError for anything else, which may not become an offset by accident."""
    try:
        found = None if isinstance(number, bool) else operator.index(number)
    except TypeError:
        found = None
    if found is None:
        raise ModelError(place, f"{number!r} is no whole number")
    _bounded(place, found)
    return found


def _bounded(place: str, number: int) -> None:
    if not -LIMIT <= number <= LIMIT:
        raise ModelError(place, f"{number} exceeds 2^62")


def _column(rows: list[Any], position: int, dtype: Any, place: str = "") -> Any:
    try:
        return np.array([row[position] for row in rows], dtype=dtype)
    except OverflowError:
        for index, row in enumerate(rows):
            if not -(1 << 31) <= row[position] < 1 << 31:
                raise ModelError(place.format(index), f"{row[position]} does not exist") from None
        raise


def _starts(rows: Iterable[Sequence[Any]]) -> Any:
    return np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)]).astype(np.int64)


def _flat(rows: Iterable[Sequence[int]], dtype: Any) -> Any:
    return np.fromiter(chain.from_iterable(rows), dtype=dtype)


def _indices(rows: list[Any], position: int, name: str) -> Any:
    try:
        return _flat((row[position] for row in rows), np.int32)
    except OverflowError:
        for index, row in enumerate(rows):
            for place, number in enumerate(row[position]):
                if not -(1 << 31) <= number < 1 << 31:
                    raise ModelError(f"ops[{index}].{name}[{place}]", f"{number} does not exist") from None
        raise


def _pairs(rows: list[Any]) -> Any:
    pairs = [pair for row in rows for pair in row[4] or ()]
    try:
        return np.array(pairs, dtype=np.int32).reshape(-1, 2)
    except OverflowError:
        for index, row in enumerate(rows):
            for place, pair in enumerate(row[4] or ()):
                if any(not -(1 << 31) <= number < 1 << 31 for number in pair):
                    raise ModelError(f"ops[{index}].in_place[{place}]", f"position {pair} does not exist") from None
        raise
