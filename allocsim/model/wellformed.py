"""The rules the tables of a program must obey to be judged at all (docs/format.md).

Each rule raises `ModelError` with the place as a document spells it and the value that breaks it.
The constructor of `Program` calls them, so that readers, builders and importers share one set of
rules. All are vectorised: O(size of the columns), plus O(runs) for results with unusual strides.

What this module does not see: beliefs, plans and sessions, whose modules have their own rules, and
whether a program is sound.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model.dtypes import DTYPES, FIRST_OF_VERSION_2
from allocsim.model.guards import Column, counts, first_bad, in_range, row_starts, same_length, sizes
from allocsim.model.layout import LIMIT, MAX_RANK, PACKED_LIMIT, overlaps_itself
from allocsim.model.tables import EXACT, HOST_READ, HOST_WRITE, STRENGTHS, VIEW, Arena, Buffers, Ops, Role, Values

MAX_PIECES: Final = 1 << 24
"""Most elements of results with crossing strides, in all results of a program together: a bound on
time.
"""

NEEDS_VERSION_2: Final = 'needs "version": 2'
"""The rule named in the error for a feature that version 1 of the document does not have."""


def check_tables(
    arenas: tuple[Arena, ...], buffers: Buffers, values: Values, ops: Ops, streams: tuple[str, ...]
) -> None:
    """Raise ModelError unless the tables of a program are well-formed, each by itself and all
    together.
    """
    _check_arenas(arenas)
    _check_buffers(buffers, len(arenas))
    _check_values(values, len(buffers))
    _check_ops(ops, len(values), len(streams))
    _check_kinds(values, ops)
    _check_results(values, ops)


def check_same(values: Values, ops: Ops, chosen: Column) -> None:
    """Raise ModelError unless each op in the mask `chosen` has as many operands as results, and
    operand and result of each position have equal sizes.
    """
    steps = np.flatnonzero(chosen)
    if not steps.size:
        return
    operand_counts, result_counts = counts(ops.operand_starts)[steps], counts(ops.result_starts)[steps]
    first_bad(
        operand_counts != result_counts,
        lambda i: f"ops[{steps[i]}]",
        lambda i: f"a same has as many operands as results, not {operand_counts[i]} and {result_counts[i]}",
    )
    owner = np.repeat(steps, operand_counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(operand_counts) - operand_counts, operand_counts)
    one, other = ops.operands[ops.operand_starts[owner] + place], ops.results[ops.result_starts[owner] + place]
    # widths are powers of two; counts are compared in units of the wider element, so that no
    # product leaves 64 bits
    units = [np.log2(values.width[side]).astype(np.int64) for side in (one, other)]
    ups = [np.maximum(units[1] - units[0], 0), np.maximum(units[0] - units[1], 0)]
    many = [values.counts[one], values.counts[other]]
    unequal = (many[0] >> ups[0] != many[1] >> ups[1]) | (many[0] & ((1 << ups[0]) - 1) != 0)
    unequal |= many[1] & ((1 << ups[1]) - 1) != 0
    first_bad(
        unequal,
        lambda k: f"ops[{owner[k]}].results[{place[k]}]",
        lambda k: (
            f"value {other[k]} has {_size(values, other[k])}; value {one[k]}, which it is to equal, has "
            f"{_size(values, one[k])}"
        ),
    )


def check_version(version: int, path: str, buffers: Buffers, values: Values, ops: Ops) -> None:
    """Raise ModelError for an unknown version, and for version 2 features in version 1."""
    if version not in (1, 2):
        raise ModelError("version", f"{version} is none of 1 and 2")
    found = newer(path, buffers, values, ops) if version == 1 else None
    if found is not None:
        raise ModelError(found, NEEDS_VERSION_2)


def newer(path: str, buffers: Buffers, values: Values, ops: Ops) -> str | None:
    """Return the first place in a program that needs version 2 of the document, kinds of ops aside;
    None if there is none.
    """
    if path:
        return "path"
    if buffers.nbytes_range:
        return f"buffers[{min(buffers.nbytes_range)}].nbytes_range"
    dtypes = np.flatnonzero(values.dtype >= FIRST_OF_VERSION_2)
    if dtypes.size:
        return f"values[{dtypes[0]}].dtype"
    strengths = np.flatnonzero(ops.in_place_strength != EXACT)
    if not strengths.size:
        return None
    op = int(np.searchsorted(ops.in_place_starts, strengths[0], side="right")) - 1
    return f"ops[{op}].in_place[{strengths[0] - ops.in_place_starts[op]}]"


def _check_arenas(arenas: tuple[Arena, ...]) -> None:
    if not arenas:
        raise ModelError("arenas", "there is none; at least one is needed")
    for index, arena in enumerate(arenas):
        if not 1 <= arena.alignment <= LIMIT:
            raise ModelError(f"arenas[{index}].alignment", f"{arena.alignment} is not between 1 and 2^62")
        if arena.capacity is not None and not 0 <= arena.capacity <= LIMIT:
            raise ModelError(f"arenas[{index}].capacity", f"{arena.capacity} is not between 0 and 2^62")


def _check_buffers(buffers: Buffers, arenas: int) -> None:
    count = len(buffers)
    same_length(count, "buffers", buffers.names, buffers.alignment, buffers.arena, buffers.role, buffers.read_only)
    sizes(buffers.nbytes, "buffers[{}].nbytes")
    first_bad(
        (buffers.alignment < 1) | (buffers.alignment > LIMIT),
        "buffers[{}].alignment",
        lambda i: f"{buffers.alignment[i]} is not between 1 and 2^62",
    )
    in_range(buffers.arena, arenas, "buffers[{}].arena", "arena")
    in_range(buffers.role, len(Role), "buffers[{}].role", "role")
    seen: dict[str, int] = {}
    for index in np.flatnonzero(buffers.persistent).tolist():
        name = buffers.names[index]
        if name in seen:
            raise ModelError(f"buffers[{index}].name", f"{name!r} names the persistent buffer {seen[name]} already")
        seen[name] = index
    _check_size_ranges(buffers.nbytes_range, buffers.nbytes)


def _check_size_ranges(ranges: Mapping[int, tuple[int, int]], nbytes: Column) -> None:
    for buffer, (low, high) in ranges.items():
        place = f"buffers[{buffer}].nbytes_range"
        if not 0 <= buffer < len(nbytes):
            raise ModelError(place, f"buffer {buffer} does not exist; there are {len(nbytes)}")
        if not 0 <= low <= high <= LIMIT:
            raise ModelError(place, f"[{low}, {high}] is not a range of sizes, the least first")
        if not low <= nbytes[buffer] <= high:
            raise ModelError(place, f"[{low}, {high}] leaves out the buffer's own size, {nbytes[buffer]}")


def _check_values(values: Values, buffers: int) -> None:
    count = len(values)
    same_length(count, "values", values.names, values.dtype, values.offset, values.bit_offset)
    in_range(values.buffer, buffers, "values[{}].buffer", "buffer")
    in_range(values.dtype, len(DTYPES), "values[{}].dtype", "dtype")
    row_starts(values.dim_starts, count, len(values.shape), "values")
    if len(values.shape) != len(values.strides):
        raise ModelError("values", f"{len(values.shape)} dimensions have {len(values.strides)} strides")
    ranks = counts(values.dim_starts)
    owner = np.repeat(np.arange(count), ranks)
    first_bad(
        ranks > MAX_RANK,
        "values[{}].shape",
        lambda i: f"has {ranks[i]} dimensions; at most {MAX_RANK} are supported",
    )

    def at(name: str) -> "Any":
        return lambda k: f"values[{owner[k]}].{name}[{k - values.dim_starts[owner[k]]}]"

    first_bad(
        (values.shape < 0) | (values.shape > LIMIT),
        at("shape"),
        lambda k: f"{values.shape[k]} is not between 0 and 2^62",
    )
    first_bad(np.abs(values.strides) > LIMIT, at("strides"), lambda k: f"{values.strides[k]} exceeds 2^62")
    first_bad(np.abs(values.offset) > LIMIT, "values[{}].offset", lambda i: f"{values.offset[i]} exceeds 2^62")
    reach = np.abs(values.offset).astype(np.float64) + values.itemsize
    np.add.at(reach, owner, np.maximum(values.shape - 1, 0).astype(np.float64) * np.abs(values.strides))
    elements = np.zeros(count)
    np.add.at(elements, owner, np.log2(np.maximum(values.shape, 1).astype(np.float64)))
    first_bad(reach > LIMIT, "values[{}]", "reaches beyond 2^62 bytes")
    first_bad(elements > 62, "values[{}].shape", "has more than 2^62 elements")
    _check_packed(values, reach)


def _check_packed(values: Values, reach: Column) -> None:
    bits = values.bit_offset
    first_bad(
        ~values.packed & (bits != 0),
        "values[{}].bit_offset",
        lambda i: f"{bits[i]}; only a packed value may start within a byte, and {values[i].dtype} is not packed",
    )
    if not values.packed.any():
        return
    first_bad(
        (bits >= 8) | (bits % values.width != 0),
        "values[{}].bit_offset",
        lambda i: f"{bits[i]} is no multiple of {values.width[i]}, the width of {values[i].dtype}, below 8",
    )
    with_rows = np.flatnonzero(values.packed & (counts(values.dim_starts) > 0))
    last = values.dim_starts[with_rows + 1] - 1
    first_bad(
        values.strides[last] != 0,
        lambda k: f"values[{with_rows[k]}].strides[{last[k] - values.dim_starts[with_rows[k]]}]",
        lambda k: (
            f"{values.strides[last[k]]}; a packed value's last dimension has stride 0, its elements follow "
            "each other bit by bit"
        ),
    )
    far = reach.copy()
    far[with_rows] += values.shape[last].astype(np.float64) * values.width[with_rows] / 8
    first_bad(values.packed & (far + 1 > PACKED_LIMIT), "values[{}]", "is packed and reaches beyond 2^59 bytes")


def _check_ops(ops: Ops, values: int, streams: int) -> None:
    count = len(ops)
    same_length(count, "ops", ops.names, ops.in_place_known, ops.stream)
    same_length(len(ops.in_place), "ops", ops.in_place_strength)
    row_starts(ops.operand_starts, count, len(ops.operands), "ops")
    row_starts(ops.result_starts, count, len(ops.results), "ops")
    row_starts(ops.in_place_starts, count, len(ops.in_place), "ops")
    row_starts(ops.after_starts, count, len(ops.after), "ops")
    steps = np.arange(count)
    reader, writer, pair_op, waiter = (
        np.repeat(steps, counts(starts))
        for starts in (ops.operand_starts, ops.result_starts, ops.in_place_starts, ops.after_starts)
    )
    operand_counts, result_counts = counts(ops.operand_starts)[pair_op], counts(ops.result_starts)[pair_op]

    def at(owner: Column, starts: Column, name: str) -> "Any":
        return lambda k: f"ops[{owner[k]}].{name}[{k - starts[owner[k]]}]"

    operand_at = at(reader, ops.operand_starts, "operands")
    result_at = at(writer, ops.result_starts, "results")
    pair_at = at(pair_op, ops.in_place_starts, "in_place")
    after_at = at(waiter, ops.after_starts, "after")
    in_range(ops.kind, len(ops.kinds), "ops[{}].kind", "kind")
    in_range(ops.operands, values, operand_at, "value")
    in_range(ops.results, values, result_at, "value")
    in_range(ops.stream, streams, "ops[{}].stream", "stream")
    in_range(ops.after, count, after_at, "op")
    first_bad(ops.after >= waiter, after_at, lambda k: f"op {ops.after[k]} is not earlier than op {waiter[k]}")
    first_bad(
        (ops.in_place[:, 0] < 0) | (ops.in_place[:, 0] >= operand_counts),
        pair_at,
        lambda k: f"operand position {ops.in_place[k, 0]} does not exist; there are {operand_counts[k]}",
    )
    first_bad(
        (ops.in_place[:, 1] < 0) | (ops.in_place[:, 1] >= result_counts),
        pair_at,
        lambda k: f"result position {ops.in_place[k, 1]} does not exist; there are {result_counts[k]}",
    )
    in_range(ops.in_place_strength, len(STRENGTHS), pair_at, "strength")
    made_by = np.full(values, -1, dtype=np.int64)
    made_by[ops.results[::-1]] = writer[::-1]  # the first writer wins
    first_bad(
        (made_by[ops.results] != writer),
        result_at,
        lambda k: f"value {ops.results[k]} is made by op {made_by[ops.results[k]]} already",
    )
    first_bad(
        made_by[ops.operands] >= reader,
        operand_at,
        lambda k: f"value {ops.operands[k]} is made by op {made_by[ops.operands[k]]}, not before op {reader[k]}",
    )


def _check_kinds(values: Values, ops: Ops) -> None:
    operand_counts, result_counts = counts(ops.operand_starts), counts(ops.result_starts)
    host_write, host_read, view = (ops.is_kind(kind) for kind in (HOST_WRITE, HOST_READ, VIEW))
    first_bad(host_write & (operand_counts > 0), "ops[{}].operands", "a host.write has results only")
    first_bad(host_read & (result_counts > 0), "ops[{}].results", "a host.read has operands only")
    first_bad(
        view & ((operand_counts != 1) | (result_counts != 1)),
        "ops[{}]",
        lambda i: f"a view has one operand and one result, not {operand_counts[i]} and {result_counts[i]}",
    )
    views = np.flatnonzero(view)
    parents, children = ops.operands[ops.operand_starts[views]], ops.results[ops.result_starts[views]]
    stray = np.flatnonzero(values.buffer[parents] != values.buffer[children])
    if stray.size:
        parent, child = parents[stray[0]], children[stray[0]]
        rule = f"value {child} lies in buffer {values.buffer[child]}, its parent in {values.buffer[parent]}"
        raise ModelError(f"ops[{views[stray[0]]}].results[0]", rule)


def _check_results(values: Values, ops: Ops) -> None:
    """Refuse results, other than those of a `view`, whose own elements overlap."""
    written = ops.results[~np.repeat(ops.is_kind(VIEW), counts(ops.result_starts))]
    bits = 8.0 * (values.hulls[:, 1] - values.hulls[:, 0])
    full = (values.counts > 0) & (np.abs(1.0 * values.counts * values.width - bits) <= 1e-8 + 1e-5 * bits)
    # a dense result, row-major or permuted, fills its hull with as many bytes as it has; only other
    # results are compared element by element, and packed ones, whose rows may share a byte
    simple = values.dense & full & ~values.packed
    strange = written[~simple[written]]
    pieces = 0
    for index in strange[~_nested(values, strange)].tolist() if len(strange) else ():
        value = values[index]
        pieces += prod(n for n, s in zip(value.shape, value.strides, strict=True) if n > 1 and s != 0)
        if pieces > MAX_PIECES:
            rule = (
                f"with the results before it, too many elements on strides that cross: at most {MAX_PIECES} are "
                "supported"
            )
            raise ModelError(f"values[{index}]", rule)
        try:
            broken = overlaps_itself(value.shape, value.strides, value.width)
        except ModelError as error:
            raise ModelError(f"values[{index}]", error.rule) from None
        if broken:
            raise ModelError(f"values[{index}].strides", "a result whose own elements overlap cannot be written")


def _nested(values: Values, chosen: Column) -> Column:
    """Return which values have strides that are each at least the extent of the dimensions inside:
    no two elements of such a value share a byte.

    Packed values are counted in bits, and their last dimension has a stride of one element; all
    others are counted in bytes.
    """
    ranks = counts(values.dim_starts)[chosen]
    inside = np.arange(int(ranks.max(initial=0))) < ranks[:, None]
    dims = (values.dim_starts[chosen][:, None] + np.arange(inside.shape[1]))[inside]
    stride, count = np.zeros(inside.shape, dtype=np.int64), np.ones(inside.shape, dtype=np.int64)
    stride[inside], count[inside] = np.abs(values.strides[dims]), values.shape[dims]
    packed = values.packed[chosen]
    rows = np.flatnonzero(packed & (ranks > 0))
    stride[packed] *= 8
    stride[rows, ranks[rows] - 1] = values.width[chosen][rows]
    stride[count <= 1] = 0
    order = np.argsort(stride, axis=1, kind="stable")
    stride, count = np.take_along_axis(stride, order, axis=1), np.take_along_axis(count, order, axis=1)
    extent = np.where(packed, values.width[chosen], values.itemsize[chosen])
    nested: Column = ~np.any(count == 0, axis=1)
    for axis in range(inside.shape[1]):
        nested &= (count[:, axis] <= 1) | (stride[:, axis] >= extent)
        extent += stride[:, axis] * np.maximum(count[:, axis] - 1, 0)
    return nested


def _size(values: Values, value: int) -> str:
    """Return the size of a value in words: in bytes, or in bits if they fill no whole byte."""
    bits = int(values.counts[value]) * int(values.width[value])
    return f"{bits} bits" if bits % 8 else f"{bits // 8} bytes"
