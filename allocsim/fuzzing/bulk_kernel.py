"""The compiled part of bulk mode: it turns codes into programs.

As `program_recipes`, in elements of four bytes and masks of 64 of them: a code is a row of small
numbers (`CODES`), one for each choice, that choose by remainder, so every list of codes is a
program. Kept in mind of
each buffer: which elements were written; of each value: which elements it covers, and whether an op
made it that was not written over since. What it reads is initialised and current, and what it
writes within one buffer obeys the in-place rule, so a program has no defect of its own.

Importing this module imports numba. O(codes x values) for each program.
"""

import numpy as np

from allocsim.allocators.compiling import compiled
from allocsim.fuzzing.program_tables import (
    ADD,
    BUFFER,
    DIM,
    FOREIGN,
    HAND_ON,
    LOOK,
    MAXIMUM,
    MERGE,
    MINIMUM,
    NEG,
    OP,
    OPERAND,
    PAIR,
    READ,
    RESULT,
    SCRATCH,
    SPLIT,
    STORE,
    VALUE,
    WRITE,
    ProgramTables,
)
from allocsim.model import Role
from allocsim.model.layout import Int64s

INPUT, PARAMETER, STATE = int(Role.INPUT), int(Role.PARAMETER), int(Role.STATE)

(
    COMPUTE_ONE,
    COMPUTE_TWO,
    MUTATE,
    VIEW,
    UPLOAD,
    DOWNLOAD,
    SEVERAL,
    WORKSPACE,
    UNKNOWN,
    PERSIST,
    UNUSED,
    GATHER,
    PASS_ON,
) = range(13)
"""Actions."""

CODES = ("action", "i", "j", "k", "operands", "arena", "alignment", "stream", "twin", "flag")
"""Columns of a code: the action; what it reads first and second; its variant (pairs declared, or
how much of a view); one operand or two; the arena and alignment of its buffer; its stream; arena
and alignment of a second buffer; a twofold choice of some actions.
"""

LENGTHS = np.array([2, 4, 1, 8, 0, 16, 6, 12], dtype=np.int64)

GATHERED = np.array([0, 3, 4, 5, 6, 7, 8, 9], dtype=np.int64)
"""How many operands a `GATHER` has, of the last up to three more."""

FEW = 4
"""Every second `GATHER` of more operands has inputs made where there are fewer values to read."""

Kept = tuple[Int64s, Int64s, Int64s, Int64s, Int64s]
"""Rows of each table so far, and before this program; of each value the elements it covers, of each
buffer those written, as bits; of each value its buffer, its first row of dims, whether an op made
it, and whether it was written over."""


@compiled(allocates=False)
def covered(dims: Int64s, first: int, count: int, offset: int) -> np.uint64:
    """Return the elements of its buffer that a layout covers, as bits."""
    mask = np.uint64(0)
    rows, columns, down, right = 1, 1, 0, 0
    if count >= 1:
        columns, right = dims[first + count - 1, 0], dims[first + count - 1, 1]
    if count == 2:
        rows, down = dims[first, 0], dims[first, 1]
    for i in range(rows):
        for j in range(columns):
            mask |= np.uint64(1) << np.uint64(offset + i * down + j * right)
    return mask


@compiled(allocates=False)
def elements(dims: Int64s, first: int, count: int) -> int:
    """Return how many elements a shape has."""
    total = 1
    for axis in range(count):
        total *= dims[first + axis, 0]
    return total


@compiled(allocates=False)
def bits(mask: np.uint64) -> int:
    """Return how many bits are set."""
    count = 0
    while mask != np.uint64(0):
        mask &= mask - np.uint64(1)
        count += 1
    return count


@compiled(allocates=False)
def alike(dims: Int64s, first: int, count: int, other: int, other_count: int, strides: bool) -> bool:  # noqa: FBT001, PLR0917 - compiled
    """Return whether two shapes are equal, and, if asked, the strides that matter."""
    if count != other_count:
        return False
    for axis in range(count):
        if dims[first + axis, 0] != dims[other + axis, 0]:
            return False
        if strides and dims[first + axis, 0] > 1 and dims[first + axis, 1] != dims[other + axis, 1]:
            return False
    return True


@compiled(allocates=False)
def readable(count: int, state: Int64s, masks: Int64s, written: Int64s) -> int:
    """Return how many values can be read."""
    able = 0
    for value in range(count):
        mask = np.uint64(masks[value])
        able += not state[value, 3] and np.uint64(written[state[value, 0]]) & mask == mask
    return able


@compiled(allocates=False)
def pick(choice: int, count: int, state: Int64s, masks: Int64s, written: Int64s) -> int:
    """Return the value that is `choice`-th from the newest of those that can be read.

    -1 if there is none.
    """
    able = 0
    for turn in range(2):
        left = choice % able if turn else 0
        if turn and not able:
            return -1
        for value in range(count - 1, -1, -1):
            mask = np.uint64(masks[value])
            if state[value, 3] or np.uint64(written[state[value, 0]]) & mask != mask:
                continue
            if not turn:
                able += 1
            elif left:
                left -= 1
            else:
                return value
        if not able:
            return -1
    return -1


@compiled(allocates=False)
def put_two(dims: Int64s, at: int, length: int, stride: int) -> None:
    """Fill a row of two columns."""
    dims[at, 0], dims[at, 1] = length, stride


@compiled(allocates=False)
def copy_two(dims: Int64s, to: int, first: int, count: int) -> None:
    """Copy rows of two columns, from `first` on."""
    for row in range(count):
        dims[to + row, 0], dims[to + row, 1] = dims[first + row, 0], dims[first + row, 1]


@compiled(allocates=False)
def pack(dims: Int64s, to: int, first: int, count: int) -> None:
    """Give a shape the strides of one that lies without gaps, in rows from `to` on."""
    stride = 1
    for row in range(count - 1, -1, -1):
        dims[to + row, 0], dims[to + row, 1] = dims[first + row, 0], stride
        stride *= dims[first + row, 0]


@compiled(allocates=False)
def append(column: Int64s, number: int, at: Int64s, table: int) -> None:
    """Add a row of one column to a table."""
    column[at[table]] = number
    at[table] += 1


@compiled(allocates=False)
def add_buffer(buffers: Int64s, at: Int64s, size: int, arena: int, alignment: int, role: int) -> None:  # noqa: PLR0917 - compiled
    """Add a buffer."""
    row = at[BUFFER]
    buffers[row, 0], buffers[row, 1], buffers[row, 2], buffers[row, 3] = size, arena, alignment, role
    at[BUFFER] += 1


@compiled(allocates=False)
def add_value(  # noqa: PLR0917 - compiled
    values: Int64s, dims: Int64s, kept: Kept, target: int, offset: int, dim: int, rank: int, made: int
) -> None:
    """Add a value of a buffer, and what is kept in mind of it."""
    at, home, masks, _, state = kept
    row, local = at[VALUE], at[VALUE] - home[VALUE]
    values[row, 0], values[row, 1], values[row, 2] = target, offset, rank
    state[local, 0], state[local, 1], state[local, 2], state[local, 3] = target, dim, made, 0
    masks[local] = np.int64(covered(dims, dim, rank, offset))
    at[VALUE] += 1


@compiled(allocates=False)
def finish(ops: Int64s, at: Int64s, kind: int, operands: int, results: int) -> None:
    """Say what an op is, and go on to the next."""
    ops[at[OP], 0], ops[at[OP], 3], ops[at[OP], 4] = kind, operands, results
    at[OP] += 1


def room() -> Kept:
    """Return what is kept in mind of a program, of which nothing is made yet."""
    number, width = 64, len(ProgramTables._fields) - 1
    made = [np.zeros(shape, dtype=np.int64) for shape in (width, width, number, number, (number, 4))]
    return made[0], made[1], made[2], made[3], made[4]


@compiled(allocates=False)
def assemble(  # noqa: PLR0917 - compiled
    codes: Int64s,
    lengths: Int64s,
    alignments: Int64s,
    streams: int,
    uniform: bool,  # noqa: FBT001
    runnable: bool,  # noqa: FBT001
    tables: ProgramTables,
    kept: Kept,
) -> None:
    """Carry out codes (programs, steps, columns of `CODES`) into tables; of each program `lengths`.

    `alignments` are those of the arenas; `uniform` gives every buffer that of its arena; `runnable`
    makes only ops the engine has kernels for; `kept` is `room()`.
    """
    buffers, values, dims, ops, operands, results, pairs, starts = tables
    arenas = len(alignments)
    at, home, masks, written, state = kept
    for program in range(len(lengths)):
        for table in range(len(at)):
            home[table] = starts[program, table] = at[table]
        persistent = -1
        upcoming = 0
        while upcoming < lengths[program]:
            turn = upcoming
            upcoming += 1
            action, i, j, k = (
                codes[program, turn, 0],
                codes[program, turn, 1],
                codes[program, turn, 2],
                codes[program, turn, 3],
            )
            two, flag = codes[program, turn, 4] % 2, codes[program, turn, 9] % 2
            if runnable and (action in (SEVERAL, WORKSPACE, UNKNOWN, GATHER, PASS_ON)):
                action = COMPUTE_TWO
            if at[VALUE] - home[VALUE] > 56 or at[BUFFER] - home[BUFFER] > 56 or at[OP] - home[OP] > 56:
                break
            first = pick(i, at[VALUE] - home[VALUE], state, masks, written)
            many = GATHERED[j] if action == GATHER else 0
            many += codes[program, turn, 4] % 4 if many == GATHERED[-1] else 0
            if first < 0 and action not in (PERSIST, UNUSED):
                action = UPLOAD
            elif flag and many > FEW and readable(at[VALUE] - home[VALUE], state, masks, written) < many:
                action = UPLOAD  # one input more, and the same code once again
                upcoming = turn
            # a buffer and its arena, if one is needed
            arena = codes[program, turn, 5] % arenas
            alignment = alignments[arena]
            own = codes[program, turn, 6] % 8
            if not uniform and own >= 6:
                alignment = 16 if own == 6 else 64
            count_before = at[VALUE]
            if action == UNUSED:
                add_buffer(buffers, at, LENGTHS[j], arena, alignment, 0)
                continue
            if action == PERSIST:
                if persistent < 0:
                    persistent = at[BUFFER] - home[BUFFER]
                    add_buffer(buffers, at, 8, arena, 4, STATE if flag and not runnable else PARAMETER)
                    written[persistent] = 255
                local = at[VALUE] - home[VALUE]
                put_two(dims, at[DIM], 4, 1)
                add_value(values, dims, kept, persistent, 4 * (j % 2), at[DIM], 1, 0)
                at[DIM] += 1
                continue
            op = at[OP]
            ops[op, 1], ops[op, 2], ops[op, 5] = 1, codes[program, turn, 7] % streams, 0
            if action == DOWNLOAD:
                append(operands, first, at, OPERAND)
                finish(ops, at, READ, 1, 0)
                continue
            local = at[VALUE] - home[VALUE]
            if action == UPLOAD:
                fresh = at[BUFFER] - home[BUFFER]
                length = LENGTHS[j]
                add_buffer(buffers, at, length, arena, alignment, INPUT)
                here, rank = at[DIM], 2 if flag and length > 1 else 1
                if rank == 2:
                    put_two(dims, here, 2, length // 2)
                put_two(dims, here + rank - 1, length // rank, 1)
                at[DIM] += rank
                add_value(values, dims, kept, fresh, 0, here, rank, 1)
                written[fresh] = masks[local]
                append(results, local, at, RESULT)
                finish(ops, at, WRITE, 0, 1)
                continue
            dim, rank = state[first, 1], values[home[VALUE] + first, 2]
            if action == VIEW:
                parent = home[VALUE] + first
                offset = values[parent, 1]
                longest = rank - 1
                if rank == 2 and dims[dim, 0] > dims[dim + 1, 0]:
                    longest = 0
                many = dims[dim + longest, 0] if rank else 0
                here = at[DIM]
                way = j % 6
                if rank < 2 and (way == 2 or not many):  # broadcast
                    put_two(dims, here, k % 3, 0)
                    copy_two(dims, here + 1, dim, rank)
                    rank += 1
                else:
                    copy_two(dims, here, dim, rank)
                    if way == 1 and many:  # flipped
                        offset += dims[dim + longest, 1] * (many - 1)
                        dims[here + longest, 1] = -dims[dim + longest, 1]
                    elif way == 3 and rank == 2:  # transposed
                        copy_two(dims, here, dim + 1, 1)
                        copy_two(dims, here + 1, dim, 1)
                    elif way == 4 and many:  # every second
                        put_two(dims, here + longest, (many + 1) // 2, 2 * dims[dim + longest, 1])
                    elif many:  # a slice
                        cut = k % many
                        offset += cut * dims[dim + longest, 1]
                        dims[here + longest, 0] = many - cut
                add_value(values, dims, kept, state[first, 0], offset, here, rank, 0)
                at[DIM] += rank
                append(operands, first, at, OPERAND)
                append(results, local, at, RESULT)
                finish(ops, at, LOOK, 1, 1)
                continue
            if action in (GATHER, PASS_ON):  # none, three to twelve operands, or the one that a `same` hands on
                count = many if action == GATHER else 1
                size = elements(dims, dim, rank) if count else LENGTHS[i]
                fresh = at[BUFFER] - home[BUFFER]
                add_buffer(buffers, at, size, arena, alignment, 0)
                here = at[DIM]
                if count:
                    pack(dims, here, dim, rank)
                else:
                    rank = 1
                    put_two(dims, here, size, 1)
                at[DIM] += rank
                for operand in range(count):
                    append(operands, pick(i + operand, local, state, masks, written), at, OPERAND)
                add_value(values, dims, kept, fresh, 0, here, rank, 1)
                written[fresh] = masks[local]
                if action == GATHER and k % 4 == 3:
                    ops[op, 1] = 0
                elif action == GATHER and count and k % 2 == 0 and alike(dims, dim, rank, here, rank, True):
                    put_two(pairs, at[PAIR], 0, 0)
                    at[PAIR] += 1
                    ops[op, 5] = 1
                append(results, local, at, RESULT)
                finish(ops, at, MERGE if action == GATHER else HAND_ON, count, 1)
                continue
            # everything else computes from one operand or two
            second = first
            if action in (COMPUTE_TWO, MUTATE) or (two and action != COMPUTE_ONE):
                other = pick(j, local, state, masks, written)
                if alike(dims, dim, rank, state[other, 1], values[home[VALUE] + other, 2], False):
                    second = other
            size = elements(dims, dim, rank)
            if action == MUTATE:
                mask = np.uint64(masks[first])
                same = state[second, 0] == state[first, 0] and np.uint64(masks[second]) & mask != np.uint64(0)
                exact = alike(dims, dim, rank, state[second, 1], values[home[VALUE] + second, 2], True)
                if same and not (exact and values[home[VALUE] + first, 1] == values[home[VALUE] + second, 1]):
                    second = first
                if bits(mask) != size or buffers[home[BUFFER] + state[first, 0], 3] == PARAMETER:
                    action = COMPUTE_TWO
            offset, here = 0, at[DIM]
            if action == MUTATE:
                target, offset = state[first, 0], values[home[VALUE] + first, 1]
                copy_two(dims, here, dim, rank)
            else:
                target = at[BUFFER] - home[BUFFER]
                add_buffer(buffers, at, size, arena, alignment, 0)
                written[target] = 0
                pack(dims, here, dim, rank)
            at[DIM] += rank
            add_value(values, dims, kept, target, offset, here, rank, 1)
            made = 1
            if action in (SEVERAL, WORKSPACE):
                twin = at[BUFFER] - home[BUFFER]
                length = size if action == SEVERAL else LENGTHS[j]
                beside = codes[program, turn, 8] % arenas
                add_buffer(buffers, at, length, beside, alignments[beside], 0)
                written[twin] = 0
                here = at[DIM]
                if action == SEVERAL:
                    copy_two(dims, here, state[local, 1], rank)
                else:
                    put_two(dims, here, length, 1)
                dimensions = rank if action == SEVERAL else 1
                at[DIM] += dimensions
                add_value(values, dims, kept, twin, 0, here, dimensions, 1)
                state[local + 1, 3] = action == WORKSPACE  # it is never read
                made = 2
            # what is declared: all pairs of equal layout, the first alone, none, or nobody knows
            count = 1 if action == COMPUTE_ONE or (not two and action in (SEVERAL, WORKSPACE, UNKNOWN)) else 2
            all_of_them = k % 4 < 2 or action == MUTATE
            unknown = action == UNKNOWN or (action == SEVERAL and k % 4 == 3 and flag == 1)
            none = not all_of_them and (k % 4 == 2 or count == 1)
            if count == 1 and none and runnable:
                count = (
                    2  # `maximum` of a value with itself: the engine has no kernel of one operand that declares nothing
                )
            for result in range(1 if action == WORKSPACE else made):
                for operand in range(count):
                    source = second if operand else first
                    fits = alike(
                        dims, state[source, 1], values[home[VALUE] + source, 2], state[local + result, 1], rank, True
                    )
                    if fits and not none and (all_of_them or operand == 0) and not unknown:
                        put_two(pairs, at[PAIR], operand, result)
                        at[PAIR] += 1
                        ops[op, 5] += 1
            for operand in range(count):
                append(operands, second if operand else first, at, OPERAND)
            for result in range(made):
                append(results, local + result, at, RESULT)
            kind = MAXIMUM if none else ADD if all_of_them and count == 2 else NEG if all_of_them else MINIMUM
            if none and count == 1:
                kind = STORE
            if action == SEVERAL:
                kind = SPLIT
            elif action == WORKSPACE:
                kind = SCRATCH
            elif action == UNKNOWN:
                kind = FOREIGN
            ops[op, 1] = 0 if unknown else 1
            finish(ops, at, kind, count, made)
            # what was written over can be read no more
            for result in range(made):
                mine = local + result
                written[state[mine, 0]] |= masks[mine]
                for value in range(count_before - home[VALUE]):
                    over = np.uint64(masks[value]) & np.uint64(masks[mine]) != np.uint64(0)
                    if state[value, 2] and state[value, 0] == state[mine, 0] and over:
                        state[value, 3] = 1
    for table in range(len(at)):
        starts[len(lengths), table] = at[table]
