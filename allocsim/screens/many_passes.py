"""Compiled passes over the accesses of many small programs: who touches whom within an op, and what
is handed over.

Each looks at all ops of a batch once and marks programs of which it cannot say that they are right
(`pointed`, one entry for each program). What is asked is what `s_in_place` and `l_beliefs` ask, of
values without holes alone; who has others is not asked. Columns are int64 unless said otherwise.

Importing this module imports numba. O(accesses, and pairs of operand and result of one op).

What this module does not see: which programs it is about (`many`).
"""

from typing import Any

from allocsim.model.layout import Int64s
from allocsim.screens.compiling import compiled

Columns = tuple[Any, ...]


@compiled
def in_turn(  # noqa: PLR0917 - columns
    read_op: Int64s, read_value: Int64s, write_op: Int64s, write_value: Int64s, write: Any, value: Int64s
) -> None:
    """Fill `write` (bool) and `value` with the accesses in order, of each op its reads first."""
    reads, writes = len(read_op), len(write_op)
    at = done = 0
    for row in range(writes):
        while at < reads and read_op[at] <= write_op[row]:
            write[done], value[done] = False, read_value[at]
            at, done = at + 1, done + 1
        write[done], value[done] = True, write_value[row]
        done += 1
    while at < reads:
        write[done], value[done] = False, read_value[at]
        at, done = at + 1, done + 1


@compiled
def same_layout(layouts: Columns, a: int, b: int) -> bool:
    """Return whether shape, item size and the strides that matter of two values agree.

    `layouts`: CSR of dimensions, shape, strides, item size.
    """
    dim_starts, shape, strides, itemsize = layouts
    rank = dim_starts[a + 1] - dim_starts[a]
    if itemsize[a] != itemsize[b] or rank != dim_starts[b + 1] - dim_starts[b]:
        return False
    for axis in range(rank):
        i, j = dim_starts[a] + axis, dim_starts[b] + axis
        if shape[i] != shape[j] or (shape[i] > 1 and strides[i] != strides[j]):
            return False
    return True


@compiled
def declared(ops: Columns, op: int, operand: int, result: int) -> bool:
    """Return whether an op declares a pair of positions.

    `ops`: CSR of operands, of results, of declared pairs.
    """
    _, _, _, _, pair_starts, pairs = ops
    found = False
    for row in range(pair_starts[op], pair_starts[op + 1]):
        found |= pairs[row, 0] == operand and pairs[row, 1] == result
    return found


@compiled
def touching(  # noqa: PLR0917 - columns
    ops: Columns, active: Any, values: Columns, layouts: Columns, places: Columns, owner: Int64s, pointed: Any
) -> None:
    """Mark programs in which, as laid, a result meets an operand other than exactly and declared,
    or another result of its op in one buffer: in two they meet in time and space, which is asked
    of all buffers.

    `values`: buffer, first and last byte in it, offset of element 0. `places`: address space and
    base of each buffer.
    """
    operand_starts, operands, result_starts, results, _, _ = ops
    buffer, low, high, offset = values
    space, base = places
    for op in range(len(active)):
        if not active[op] or pointed[owner[op]]:
            continue
        for r in range(result_starts[op], result_starts[op + 1]):
            b = results[r]
            for other in range(operand_starts[op], operand_starts[op + 1]):
                a = operands[other]
                shift = base[buffer[a]] - base[buffer[b]]
                apart = space[buffer[a]] != space[buffer[b]] or low[b] >= high[a] + shift or low[a] + shift >= high[b]
                if apart or low[a] == high[a] or low[b] == high[b]:
                    continue
                exact = offset[a] + shift == offset[b] and same_layout(layouts, a, b)
                if not exact or not declared(ops, op, other - operand_starts[op], r - result_starts[op]):
                    pointed[owner[op]] = True
            for other in range(result_starts[op], r):
                a = results[other]
                if buffer[a] == buffer[b] and low[b] < high[a] and low[a] < high[b]:
                    pointed[owner[op]] = True


@compiled
def one_sided(ops: Columns, op: int, of_value: Int64s, donor: int, recipient: int) -> bool:
    """Return whether an op writes nothing into one buffer and reads nothing from another."""
    operand_starts, operands, result_starts, results, _, _ = ops
    found = False
    for row in range(result_starts[op], result_starts[op + 1]):
        found |= of_value[results[row]] == donor
    for row in range(operand_starts[op], operand_starts[op + 1]):
        found |= of_value[operands[row]] == recipient
    return not found


@compiled
def doubtful(  # noqa: PLR0917 - columns
    believed: Any, ops: Columns, values: Columns, layouts: Columns, first: Int64s, last: Int64s, doubt: Any
) -> None:
    """Mark in `doubt` (bool) which of the pairs (n, 2) that a problem believes in cannot be seen to
    be permissible.
    """
    operand_starts, operands, result_starts, results, pair_starts, pairs = ops
    buffer, low, high, offset = values
    for row in range(len(believed)):
        doubt[row] = True
        donor, recipient = believed[row, 0], believed[row, 1]
        op = last[donor]
        if op < 0 or first[recipient] != op or not one_sided(ops, op, buffer, donor, recipient):
            continue
        joined = False
        for pair in range(pair_starts[op], pair_starts[op + 1]):
            a, b = operands[operand_starts[op] + pairs[pair, 0]], results[result_starts[op] + pairs[pair, 1]]
            joined |= buffer[a] == donor and buffer[b] == recipient
        for i in range(operand_starts[op], operand_starts[op + 1]):
            for j in range(result_starts[op], result_starts[op + 1]):
                a, b = operands[i], results[j]
                if buffer[a] != donor or buffer[b] != recipient or low[a] >= high[b] or low[b] >= high[a]:
                    continue
                exact = offset[a] == offset[b] and same_layout(layouts, a, b)
                joined &= exact and declared(ops, op, i - operand_starts[op], j - result_starts[op])
        doubt[row] = not joined
