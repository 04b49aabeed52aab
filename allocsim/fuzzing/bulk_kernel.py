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


@compiled()
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


@compiled()
def elements(dims: Int64s, first: int, count: int) -> int:
    """Return how many elements a shape has."""
    total = 1
    for axis in range(count):
        total *= dims[first + axis, 0]
    return total


@compiled()
def bits(mask: np.uint64) -> int:
    """Return how many bits are set."""
    count = 0
    while mask != np.uint64(0):
        mask &= mask - np.uint64(1)
        count += 1
    return count


@compiled()
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


@compiled()
def readable(count: int, state: Int64s, masks: Int64s, written: Int64s) -> int:
    """Return how many values can be read."""
    able = 0
    for value in range(count):
        mask = np.uint64(masks[value])
        able += not state[value, 3] and np.uint64(written[state[value, 0]]) & mask == mask
    return able


@compiled()
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


@compiled()
def assemble(  # noqa: PLR0917 - compiled
    codes: Int64s,
    lengths: Int64s,
    alignments: Int64s,
    streams: int,
    uniform: bool,  # noqa: FBT001
    runnable: bool,  # noqa: FBT001
    tables: ProgramTables,
) -> None:
    """Carry out codes (programs, steps, columns of `CODES`) into tables; of each program `lengths`.

    `alignments` are those of the arenas; `uniform` gives every buffer that of its arena; `runnable`
    makes only ops the engine has kernels for.
    """
    buffers, values, dims, ops, operands, results, pairs, starts = tables
    arenas = len(alignments)
    at = np.zeros(7, dtype=np.int64)
    state = np.zeros((64, 4), dtype=np.int64)  # buffer, first dim, made?, written over?
    masks = np.zeros(64, dtype=np.int64)
    written = np.zeros(64, dtype=np.int64)
    home = np.zeros(7, dtype=np.int64)
    for program in range(len(lengths)):
        home[:] = at
        starts[program] = at
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
                buffers[at[BUFFER]] = LENGTHS[j], arena, alignment, 0
                at[BUFFER] += 1
                continue
            if action == PERSIST:
                if persistent < 0:
                    persistent = at[BUFFER] - home[BUFFER]
                    buffers[at[BUFFER]] = 8, arena, 4, STATE if flag and not runnable else PARAMETER
                    written[persistent] = 255
                    at[BUFFER] += 1
                local = at[VALUE] - home[VALUE]
                values[at[VALUE]] = persistent, 4 * (j % 2), 1
                dims[at[DIM]] = 4, 1
                state[local] = persistent, at[DIM], 0, 0
                masks[local] = np.int64(covered(dims, at[DIM], 1, 4 * (j % 2)))
                at[VALUE] += 1
                at[DIM] += 1
                continue
            op = at[OP]
            ops[op] = 0, 1, codes[program, turn, 7] % streams, 0, 0, 0
            if action == DOWNLOAD:
                ops[op, 0], ops[op, 3] = READ, 1
                operands[at[OPERAND]] = first
                at[OPERAND] += 1
                at[OP] += 1
                continue
            local = at[VALUE] - home[VALUE]
            if action == UPLOAD:
                fresh = at[BUFFER] - home[BUFFER]
                length = LENGTHS[j]
                buffers[at[BUFFER]] = length, arena, alignment, INPUT
                values[at[VALUE]] = fresh, 0, 2 if flag and length > 1 else 1
                state[local] = fresh, at[DIM], 1, 0
                if flag and length > 1:
                    dims[at[DIM]] = 2, length // 2
                    dims[at[DIM] + 1] = length // 2, 1
                    at[DIM] += 2
                else:
                    dims[at[DIM]] = length, 1
                    at[DIM] += 1
                masks[local] = np.int64(covered(dims, state[local, 1], values[at[VALUE], 2], 0))
                written[fresh] = masks[local]
                ops[op, 0], ops[op, 4] = WRITE, 1
                results[at[RESULT]] = local
                at[RESULT] += 1
                at[BUFFER] += 1
                at[VALUE] += 1
                at[OP] += 1
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
                    dims[here] = k % 3, 0
                    if rank:
                        dims[here + 1] = dims[dim]
                    rank += 1
                else:
                    for axis in range(rank):
                        dims[here + axis] = dims[dim + axis]
                    if way == 1 and many:  # flipped
                        offset += dims[dim + longest, 1] * (many - 1)
                        dims[here + longest, 1] = -dims[dim + longest, 1]
                    elif way == 3 and rank == 2:  # transposed
                        dims[here], dims[here + 1] = dims[dim + 1].copy(), dims[dim].copy()
                    elif way == 4 and many:  # every second
                        dims[here + longest] = (many + 1) // 2, 2 * dims[dim + longest, 1]
                    elif many:  # a slice
                        cut = k % many
                        offset += cut * dims[dim + longest, 1]
                        dims[here + longest, 0] = many - cut
                values[at[VALUE]] = state[first, 0], offset, rank
                state[local] = state[first, 0], here, 0, 0
                masks[local] = np.int64(covered(dims, here, rank, offset))
                ops[op, 0], ops[op, 3], ops[op, 4] = LOOK, 1, 1
                operands[at[OPERAND]] = first
                results[at[RESULT]] = local
                at[OPERAND] += 1
                at[RESULT] += 1
                at[DIM] += rank
                at[VALUE] += 1
                at[OP] += 1
                continue
            if action in (GATHER, PASS_ON):  # none, three to twelve operands, or the one that a `same` hands on
                count = many if action == GATHER else 1
                size = elements(dims, dim, rank) if count else LENGTHS[i]
                fresh = at[BUFFER] - home[BUFFER]
                buffers[at[BUFFER]] = size, arena, alignment, 0
                values[at[VALUE]] = fresh, 0, rank if count else 1
                here = at[DIM]
                if count:
                    stride = 1
                    for axis in range(rank - 1, -1, -1):
                        dims[here + axis] = dims[dim + axis, 0], stride
                        stride *= dims[dim + axis, 0]
                    at[DIM] += rank
                else:
                    dims[here] = size, 1
                    at[DIM] += 1
                for operand in range(count):
                    operands[at[OPERAND]] = pick(i + operand, local, state, masks, written)
                    at[OPERAND] += 1
                state[local] = fresh, here, 1, 0
                masks[local] = np.int64(covered(dims, here, values[at[VALUE], 2], 0))
                written[fresh] = masks[local]
                if action == GATHER and k % 4 == 3:
                    ops[op, 1] = 0
                elif action == GATHER and count and k % 2 == 0 and alike(dims, dim, rank, here, rank, True):
                    pairs[at[PAIR]] = 0, 0
                    at[PAIR] += 1
                    ops[op, 5] = 1
                results[at[RESULT]] = local
                at[RESULT] += 1
                ops[op, 0], ops[op, 3], ops[op, 4] = MERGE if action == GATHER else HAND_ON, count, 1
                at[BUFFER] += 1
                at[VALUE] += 1
                at[OP] += 1
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
            if action == MUTATE:
                target = state[first, 0]
                values[at[VALUE]] = target, values[home[VALUE] + first, 1], rank
                for axis in range(rank):
                    dims[at[DIM] + axis] = dims[dim + axis]
            else:
                target = at[BUFFER] - home[BUFFER]
                buffers[at[BUFFER]] = size, arena, alignment, 0
                at[BUFFER] += 1
                written[target] = 0
                values[at[VALUE]] = target, 0, rank
                stride = 1
                for axis in range(rank - 1, -1, -1):
                    dims[at[DIM] + axis] = dims[dim + axis, 0], stride
                    stride *= dims[dim + axis, 0]
            state[local] = target, at[DIM], 1, 0
            at[DIM] += rank
            masks[local] = np.int64(covered(dims, state[local, 1], rank, values[at[VALUE], 1]))
            at[VALUE] += 1
            made = 1
            if action in (SEVERAL, WORKSPACE):
                twin = at[BUFFER] - home[BUFFER]
                length = size if action == SEVERAL else LENGTHS[j]
                beside = codes[program, turn, 8] % arenas
                buffers[at[BUFFER]] = length, beside, alignments[beside], 0
                at[BUFFER] += 1
                written[twin] = 0
                here = at[DIM]
                if action == SEVERAL:
                    for axis in range(rank):
                        dims[here + axis] = dims[state[local, 1] + axis]
                    values[at[VALUE]] = twin, 0, rank
                    at[DIM] += rank
                else:
                    dims[here] = length, 1
                    values[at[VALUE]] = twin, 0, 1
                    at[DIM] += 1
                state[local + 1] = twin, here, 1, 1 if action == WORKSPACE else 0  # a workspace is never read
                masks[local + 1] = np.int64(covered(dims, here, values[at[VALUE], 2], 0))
                at[VALUE] += 1
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
                        pairs[at[PAIR]] = operand, result
                        at[PAIR] += 1
                        ops[op, 5] += 1
            for operand in range(count):
                operands[at[OPERAND]] = second if operand else first
                at[OPERAND] += 1
            for result in range(made):
                results[at[RESULT]] = local + result
                at[RESULT] += 1
            kind = MAXIMUM if none else ADD if all_of_them and count == 2 else NEG if all_of_them else MINIMUM
            if none and count == 1:
                kind = STORE
            if action == SEVERAL:
                kind = SPLIT
            elif action == WORKSPACE:
                kind = SCRATCH
            elif action == UNKNOWN:
                kind = FOREIGN
            ops[op, 0], ops[op, 1], ops[op, 3], ops[op, 4] = kind, 0 if unknown else 1, count, made
            at[OP] += 1
            # what was written over can be read no more
            for result in range(made):
                mine = local + result
                written[state[mine, 0]] |= masks[mine]
                for value in range(count_before - home[VALUE]):
                    over = np.uint64(masks[value]) & np.uint64(masks[mine]) != np.uint64(0)
                    if state[value, 2] and state[value, 0] == state[mine, 0] and over:
                        state[value, 3] = 1
    starts[len(lengths)] = at
