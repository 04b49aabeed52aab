"""Builds a `Program` row by row: rows are collected in lists, which `build` turns into columns.

    b = ProgramBuilder("step")
    x = b.tensor("x", "f32", (8, 8), role=Role.INPUT)
    y = b.tensor("y", "f32", (8, 8))
    b.op("host.write", (), (x,))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op("host.read", (y,), ())
    program = b.build()

Values and buffers may be given by name or by the index that `tensor`, `value` and `buffer` return.
A call with malformed arguments is refused at once; `build` checks all rows together
(`allocsim.model.wellformed`). An error names table, row and column of the fault, and for an op its
name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np

from allocsim.allowances import charge
from allocsim.errors import ModelError
from allocsim.model import (
    DEFAULT_ARENAS,
    DTYPE_CODES,
    DTYPES,
    EXACT,
    HOST_READ,
    NEWEST,
    OWN,
    SAME,
    STRENGTHS,
    UNPLACED,
    VIEW,
    WIDTHS,
    Arena,
    Buffers,
    Int32s,
    Meta,
    Op,
    Ops,
    Plan,
    Program,
    Role,
    Values,
)
from allocsim.model.layout import LIMIT, dense_nbytes, dense_strides
from allocsim.programs.dtype_names import dtype_code
from allocsim.programs.names import Names, whole

Which = int | str
"""A buffer or a value, by index or by name."""

Offsets = (
    Mapping[int, int]
    | Mapping[str, int]
    | Mapping[int, int | str | None]
    | Mapping[str, int | str | None]
    | Sequence[int | str | None]
)
"""The offset of each buffer, or "own" or None: by index, by name, or in order."""

Pair = tuple[int, int] | tuple[int, int, str]
"""(operand position, result position), or with the kernel's promise for the two as a third entry;
the default is `exact`.
"""


_WIDTHS: Final[list[int]] = WIDTHS.tolist()
_INT: Final = frozenset((int,))
_STRENGTH_CODES: Final = {name: code for code, name in enumerate(STRENGTHS)}


class ProgramBuilder:
    """Collects rows; every method that adds one returns its index."""

    def __init__(
        self,
        name: str,
        *,
        arenas: Sequence[Arena] = DEFAULT_ARENAS,
        streams: Sequence[str] = ("main",),
        version: int = NEWEST,
        path: str = "",
        meta: Meta | None = None,
    ) -> None:
        self._name = name
        self._arenas = tuple(arenas)
        self._streams = tuple(streams)
        self._meta: Meta = meta or {}
        self._version = version
        self._path = path
        self._buffers: list[tuple[str, int, int, int, int, bool]] = []
        self._ranges: dict[int, tuple[int, int]] = {}
        self._values: list[tuple[str, int, int, int, tuple[int, ...], tuple[int, ...], int]] = []
        self._ops: list[
            tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[Pair, ...] | None, int, tuple[int, ...]]
        ] = []
        self._names = {"buffer": Names("buffer", self._buffers), "value": Names("value", self._values)}
        self._kinds: dict[str, int] = {}
        self._row_meta: dict[str, dict[int, Meta]] = {"buffers": {}, "values": {}, "ops": {}}

    def streams(self, names: Iterable[str]) -> None:
        """Set the names of the streams, for when their number is known only after the ops."""
        self._streams = tuple(names)

    def buffer(
        self,
        name: str,
        nbytes: int,
        *,
        role: Role = Role.TEMPORARY,
        arena: int = 0,
        alignment: int | None = None,
        read_only: bool = False,
        nbytes_range: tuple[int, int] | None = None,
        meta: Meta | None = None,
    ) -> int:
        """Add a buffer of `nbytes` bytes; `alignment` defaults to its arena's.

        `nbytes_range` is its least and greatest size in bytes, if only the run decides the size.
        """
        index = len(self._buffers)
        if alignment is None:
            if not 0 <= arena < len(self._arenas):
                raise ModelError(
                    f"buffers[{index}].arena", f"arena {arena} does not exist; there are {len(self._arenas)}"
                )
            alignment = self._arenas[arena].alignment
        if not (-LIMIT <= nbytes <= LIMIT and -LIMIT <= alignment <= LIMIT):
            for column, number in (("nbytes", nbytes), ("alignment", alignment)):
                _bounded(f"buffers[{index}].{column}", number)
        self._buffers.append((name, nbytes, alignment, arena, int(role), read_only))
        if nbytes_range is not None:
            low, high = nbytes_range
            self._ranges[index] = low, high
        self._remember("buffers", index, meta)
        return index

    def value(
        self,
        name: str,
        buffer: Which,
        dtype: Any,
        shape: Iterable[int],
        *,
        strides: Iterable[int] | None = None,
        offset: int = 0,
        bit_offset: int = 0,
        meta: Meta | None = None,
    ) -> int:
        """Add a value in `buffer`.

        `strides` (bytes) default to contiguous row-major; `offset` is that of element 0 in bytes.

        `dtype` is a name of the document format, of numpy or of torch, or a dtype object
        (`allocsim.programs.dtype_names`). `bit_offset` is the first bit of element 0 of a packed
        value within its byte, counted from the lowest bit.
        """
        index = len(self._values)
        charge("value")
        code = DTYPE_CODES.get(dtype) if type(dtype) is str else None
        if code is None:
            code = dtype_code(f"values[{index}].dtype", dtype)
        dims = _wholes("values[{}].shape", index, shape)
        steps = dense_strides(dims, _WIDTHS[code]) if strides is None else _wholes("values[{}].strides", index, strides)
        if len(dims) != len(steps):
            raise ModelError(f"values[{index}].strides", f"has {len(steps)} entries; the shape has {len(dims)}")
        numbers = (offset, *dims, *steps)
        if not -LIMIT <= min(numbers) <= max(numbers) <= LIMIT:
            for axis, (length, stride) in enumerate(zip(dims, steps, strict=True)):
                _bounded(f"values[{index}].shape[{axis}]", length)
                _bounded(f"values[{index}].strides[{axis}]", stride)
            _bounded(f"values[{index}].offset", offset)
        if not 0 <= bit_offset < 8:
            raise ModelError(f"values[{index}].bit_offset", f"{bit_offset} is not between 0 and 7")
        home = buffer if type(buffer) is int else self._names["buffer"].index(f"values[{index}].buffer", buffer)
        self._values.append((name, home, code, offset, dims, steps, bit_offset))
        self._remember("values", index, meta)
        return index

    def tensor(self, name: str, dtype: Any, shape: Iterable[int], **buffer: Any) -> int:
        """Add a contiguous value in a new buffer; `buffer` are keywords of the method `buffer`.

        Return the index of the value.
        """
        dims = _wholes("values[{}].shape", len(self._values), shape)
        code = dtype_code(f"values[{len(self._values)}].dtype", dtype)
        return self.value(name, self.buffer(name, dense_nbytes(dims, _WIDTHS[code]), **buffer), DTYPES[code][0], dims)

    def view(self, parent: Which, name: str, shape: Iterable[int], *, offset: int = 0, **layout: Any) -> int:
        """Add a value in the buffer of `parent`, `offset` bytes from its element 0, and the `view`
        op that makes it.
        """
        parent = self._names["value"].index(f"values[{len(self._values)}].parent", parent, exists=True)
        _, buffer, dtype, origin, _, _, bits = self._values[parent]
        layout = {"dtype": DTYPES[dtype][0], "bit_offset": bits, **layout}
        child = self.value(name, buffer, layout.pop("dtype"), shape, offset=origin + offset, **layout)
        self.op(VIEW, (parent,), (child,), name=name)
        return child

    def op(
        self,
        kind: str,
        operands: Iterable[Which],
        results: Iterable[Which],
        *,
        name: str | None = None,
        in_place: Iterable[Pair] | None = (),
        stream: int = 0,
        after: Iterable[int] = (),
        meta: Meta | None = None,
    ) -> int:
        """Append an op.

        `in_place` are the declared pairs (operand position, result position), with a third entry
        `"bytes"` or `"whole"` if they promise more than `"exact"`; None if the contract is unknown.
        """
        index = len(self._ops)
        label = name if name is not None else kind
        if not isinstance(kind, str):
            raise ModelError(f"ops[{index}].kind", f"op {label!r} is of kind {kind!r}; a kind is text")
        if not isinstance(stream, int | np.integer):
            raise ModelError(
                f"ops[{index}].stream", f"op {label!r} is on stream {stream!r}; streams are numbered from 0"
            )
        read, made = self._listed(index, label, "operands", operands), self._listed(index, label, "results", results)
        charge("op")
        charge("operand", len(read) + len(made))
        pairs = None if in_place is None else tuple(in_place)
        code = self._kinds.setdefault(kind, len(self._kinds))
        self._ops.append((label, code, read, made, pairs, stream, tuple(after)))
        self._remember("ops", index, meta)
        return index

    def same(self, operands: Iterable[Which], results: Iterable[Which], **op: Any) -> int:
        """Append an op of kind `same`: result i equals operand i byte by byte; if both lie at one
        address, no byte moves.
        """
        return self.op(SAME, operands, results, **op)

    def _listed(self, index: int, label: str, side: str, given: Any) -> tuple[int, ...]:
        """Return the indices of the values in `given`.

        Raise ModelError, naming the op, if `given` is no list or an entry is no value.
        """
        try:
            values = tuple(given)
        except TypeError:
            values = None
        if values is not None and {*map(type, values)} <= _INT:
            return values
        place = f"ops[{index}].{side}"
        if values is None or isinstance(given, str):
            raise ModelError(place, f"op {label!r} is given {given!r}, no list of values; one value is ({given!r},)")
        try:
            return tuple(self._names["value"].index(f"{place}[{at}]", value) for at, value in enumerate(values))
        except ModelError as error:
            raise ModelError(error.place, f"op {label!r}: {error.rule}") from None

    def build(self) -> Program:
        """Return the program; raise ModelError at the first row that breaks a rule."""
        try:
            return Program(**self.columns())
        except ModelError as error:
            found = re.match(r"ops\[(\d+)\]", error.place)
            if found is None:
                raise
            raise ModelError(error.place, f"{error.rule} (op {self._ops[int(found[1])][0]!r})") from None

    def columns(self) -> dict[str, Any]:
        """Return the arguments of `Program` as columns, unchecked."""
        buffers, values, ops = self._buffers, self._values, self._ops
        return {
            "name": self._name,
            "arenas": self._arenas,
            "streams": self._streams,
            "version": self._version,
            "path": self._path,
            "meta": self._meta,
            "buffers": Buffers(
                names=tuple(row[0] for row in buffers),
                nbytes=_column(buffers, 1, np.int64),
                alignment=_column(buffers, 2, np.int64),
                arena=_column(buffers, 3, np.int32, "buffers[{}].arena"),
                role=_column(buffers, 4, np.int8),
                read_only=_column(buffers, 5, np.bool_),
                nbytes_range=self._ranges,
                meta=self._row_meta["buffers"],
            ),
            "values": Values(
                names=tuple(row[0] for row in values),
                buffer=_column(values, 1, np.int32, "values[{}].buffer"),
                dtype=_column(values, 2, np.int8),
                offset=_column(values, 3, np.int64),
                dim_starts=_starts(row[4] for row in values),
                shape=_flat((row[4] for row in values), np.int64),
                strides=_flat((row[5] for row in values), np.int64),
                bit_offset=_column(values, 6, np.uint8),
                meta=self._row_meta["values"],
            ),
            "ops": Ops(
                names=tuple(row[0] for row in ops),
                kinds=tuple(self._kinds),
                kind=_column(ops, 1, np.int32),
                operand_starts=_starts(row[2] for row in ops),
                operands=_indices(ops, 2, "operands"),
                result_starts=_starts(row[3] for row in ops),
                results=_indices(ops, 3, "results"),
                in_place_starts=_starts(row[4] or () for row in ops),
                in_place=_pairs(ops),
                in_place_strength=_strengths(ops),
                in_place_known=np.array([row[4] is not None for row in ops], dtype=np.bool_),
                stream=_column(ops, 5, np.int32, "ops[{}].stream"),
                after_starts=_starts(row[6] for row in ops),
                after=_indices(ops, 6, "after"),
                meta=self._row_meta["ops"],
            ),
        }

    def _remember(self, table: str, index: int, meta: Meta | None) -> None:
        if meta:
            self._row_meta[table][index] = meta


def plan_of(program: Program, slots: Offsets, **keywords: Any) -> Plan:
    """Build a plan from offsets by buffer: an int is an offset in bytes in the buffer's arena,
    "own" is memory of its own, None is no slot.

    A mapping has buffers by index or by name; buffers that it leaves out get memory of their own if
    they are persistent, and no slot otherwise. Raises ModelError, placed at the slot, for a
    malformed slot, for a buffer that does not exist, is named twice or shares its name with
    another, and for a sequence of another length.
    """
    count = len(program.buffers)
    persistent = program.buffers.persistent
    if isinstance(slots, Mapping):
        names = Names("buffer", [(name,) for name in program.buffers.names])
        known: dict[int, Any] = {}
        for which, slot in slots.items():
            place = f"slots[{which!r}]"
            buffer = names.index(place, which if isinstance(which, str) else _whole(place, which), exists=True)
            if buffer in known:
                raise ModelError(place, f"buffer {buffer} has a slot already")
            known[buffer] = slot
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


def read_at_end(program: Program, values: Sequence[int] | Int32s, *, kind: str = HOST_READ) -> Program:
    """Return the program with one more op, of a kind without results (by default `host.read`), that
    reads `values` after all other ops on every stream. O(columns).
    """
    ops, count = program.ops, len(program.ops)
    kinds = ops.kinds if kind in ops.kinds else (*ops.kinds, kind)
    last_of_stream = np.full(len(program.streams), -1, dtype=np.int64)
    np.maximum.at(last_of_stream, ops.stream, np.arange(count))
    here = int(ops.stream[-1]) if count else 0
    waits = np.sort(np.delete(last_of_stream, here))
    waits = waits[waits >= 0]
    read = np.asarray(values, dtype=np.int32)
    grown = replace(
        ops,
        names=(*ops.names, kind),
        kinds=kinds,
        kind=np.append(ops.kind, kinds.index(kind)).astype(np.int32),
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
    """Return a whole number of Python or numpy as an int.

    Raise ModelError for anything else, so that it does not become an offset by accident.
    """
    found = whole(number)
    if found is None:
        raise ModelError(place, f"{number!r} is no whole number")
    _bounded(place, found)
    return found


def _wholes(place: str, index: int, numbers: Any) -> tuple[int, ...]:
    """Return a list of whole numbers as a tuple; raise ModelError for anything else. `place` is a
    string with a hole for the row.
    """
    try:
        found = tuple(numbers)
    except TypeError:
        raise ModelError(place.format(index), f"{numbers!r} is no list of whole numbers") from None
    if {*map(type, found)} <= _INT:
        return found
    return tuple(_whole(f"{place.format(index)}[{axis}]", number) for axis, number in enumerate(found))


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
    return np.fromiter(accumulate(map(len, rows), initial=0), dtype=np.int64)


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


def pairs_of(op: Op) -> tuple[Any, ...] | None:
    """Return the declared pairs of an op as `ProgramBuilder.op` takes them: only pairs that promise
    more than `exact` have a strength.
    """
    if op.in_place is None:
        return None
    return tuple(
        pair if strength == EXACT else (*pair, STRENGTHS[strength])
        for pair, strength in zip(op.in_place, op.strengths, strict=True)
    )


def _pairs(rows: list[Any]) -> Any:
    pairs = [pair[:2] for row in rows for pair in row[4] or ()]
    try:
        return np.array(pairs, dtype=np.int32).reshape(-1, 2)
    except OverflowError:
        for index, row in enumerate(rows):
            for place, pair in enumerate(row[4] or ()):
                if any(not -(1 << 31) <= number < 1 << 31 for number in pair[:2]):
                    raise ModelError(f"ops[{index}].in_place[{place}]", f"position {pair[:2]} does not exist") from None
        raise


def _strengths(rows: list[Any]) -> Any:
    codes = []
    for index, row in enumerate(rows):
        for place, pair in enumerate(row[4] or ()):
            if len(pair) > 2 and pair[2] not in _STRENGTH_CODES:
                raise ModelError(f"ops[{index}].in_place[{place}][2]", f"{pair[2]!r} is none of {' '.join(STRENGTHS)}")
            codes.append(EXACT if len(pair) == 2 else _STRENGTH_CODES[pair[2]])
    return np.array(codes, dtype=np.uint8)
