"""The compiled grammar of programs over a sequence of choices, and the drivers that choose.

A *step* adds to the program that is made (`ProgramTables`): a buffer, a value, an op. The drivers
decide what is taken, and nothing else:

* `assemble` takes what codes choose: rows of small numbers, one for each choice (`CODES`), that
  choose by remainder, so every list of codes is a program. Codes are drawn by `bulk`, and one by
  one by Hypothesis (`strategies.runnable_programs`);
* `enumerate_programs` takes every step of a scope. A program is the list of choices that make it,
  each a digit below the number of ways there were. After a program the last digit that can be
  raised is, and those behind it are dropped: an odometer whose wheels have as many digits as there
  are choices. So any program can be gone on from, given its digits.

What is read is initialised and current (`able`), and what is written within one buffer obeys the
in-place rule, so a program has no defect of its own. Buffers, values and ops are named by their
rows.

Importing this module imports numba. For each program O(steps x values), of the scope O(steps x
values^2).
"""

import numpy as np

from allocsim.allocators.compiling import compiled
from allocsim.fuzzing.program_tables import (
    ALIGNMENT,
    BUFFER,
    BY_OP,
    COLUMNS,
    COVERS,
    DIM,
    ELEMENTS,
    END,
    FIRST,
    HOME,
    KINDS,
    LENGTH,
    LOST,
    MOST,
    OFFSET,
    OP,
    OPERAND,
    OPERANDS,
    PAIR,
    PROGRAM,
    RANK,
    RESULT,
    ROLE,
    SINCE,
    SIZE,
    STREAM,
    STRIDE,
    VALUE,
    WEIGHTS,
    WRITTEN,
)
from allocsim.model import Role
from allocsim.model.layout import Int64s

INPUT, PARAMETER, STATE = int(Role.INPUT), int(Role.PARAMETER), int(Role.STATE)

WRITE, READ, LOOK, NEG, ADD, MAXIMUM, MINIMUM, SPLIT, SCRATCH, FOREIGN, STORE, MERGE, HAND_ON = range(len(KINDS))

(
    COMPUTE_ONE, COMPUTE_TWO, MUTATE, VIEW, UPLOAD, DOWNLOAD, SEVERAL, WORKSPACE, UNKNOWN, PERSIST, UNUSED, GATHER, PASS_ON,
) = range(len(WEIGHTS))  # fmt: skip
"""Actions."""

NONE = -1
"""In place of a row."""

# --- steps ----------------------------------------------------------------------------------------


@compiled(allocates=False, part=True)
def begin(at: Int64s, starts: Int64s, program: int) -> None:
    """Begin a program; after the last one, say where it ends."""
    for table in range(at.shape[1]):
        at[PROGRAM, table] = at[SINCE, table] = starts[program, table] = at[END, table]


@compiled(allocates=False, part=True)
def put(rows: Int64s, at: Int64s, table: int, left: int, right: int) -> None:
    """Add a row of two columns to a table, or of one."""
    column = COLUMNS[table]
    rows[at[END, table], column], rows[at[END, table], column + 1] = left, right
    at[END, table] += 1


@compiled(allocates=False, part=True)
def put_dims(rows: Int64s, at: Int64s, value: int) -> None:
    """Lay out what is added next as a value is."""
    for dim in range(rows[value, FIRST], rows[value, FIRST] + rows[value, RANK]):
        put(rows, at, DIM, rows[dim, LENGTH], rows[dim, STRIDE])


@compiled(allocates=False, part=True)
def put_packed(rows: Int64s, at: Int64s, value: int) -> None:
    """Give what is added next the shape of a value, without gaps."""
    put_dims(rows, at, value)
    stride = 1
    for back in range(rows[value, RANK]):
        dim = at[END, DIM] - 1 - back
        rows[dim, STRIDE] = stride
        stride *= rows[dim, LENGTH]


@compiled(allocates=False, part=True)
def add_buffer(rows: Int64s, at: Int64s, size: int, arena: int, alignment: int, role: int) -> int:  # noqa: PLR0917 - compiled
    """Add a buffer; return its row."""
    row = at[END, BUFFER]
    rows[row, ALIGNMENT], rows[row, ROLE], rows[row, WRITTEN] = alignment, role, 0
    put(rows, at, BUFFER, size, arena)
    return int(row)


@compiled(allocates=False, part=True)
def add_value(rows: Int64s, at: Int64s, buffer: int, offset: int, rank: int, by_op: int) -> int:  # noqa: PLR0917 - compiled
    """Add a value of the last `rank` dims; return its row."""
    row, dim = at[END, VALUE], at[END, DIM] - rank
    rows[row, RANK], rows[row, FIRST] = rank, dim
    rows[row, BY_OP], rows[row, LOST] = by_op, 0
    rows[row, COVERS] = covered(rows, dim, rank, offset)
    rows[row, SIZE] = rows[dim, LENGTH] * (rows[dim + 1, LENGTH] if rank == 2 else 1)
    put(rows, at, VALUE, buffer, offset)
    return int(row)


@compiled(allocates=False, part=True)
def add_result(rows: Int64s, at: Int64s, buffer: int, offset: int, rank: int, by_op: int) -> int:  # noqa: PLR0917 - compiled
    """Add a value that the next op makes, or sees; what it writes over can be read no more."""
    row = add_value(rows, at, buffer, offset, rank, by_op)
    put(rows, at, RESULT, row, 0)
    covers = rows[row, COVERS] * by_op
    for other in range(at[PROGRAM, VALUE], row):
        if rows[other, BY_OP] and rows[other, HOME] == buffer and rows[other, COVERS] & covers:
            rows[other, LOST] = 1
    rows[buffer, WRITTEN] |= covers
    return row


@compiled(allocates=False, part=True)
def add_op(rows: Int64s, at: Int64s, kind: int, first: int, second: int, stream: int, known: int) -> None:  # noqa: PLR0917 - compiled
    """Add the op of the operands, results and pairs that were put since the last one, and of two
    operands more, or none.
    """
    for operand in (first, second):
        if operand != NONE:
            put(rows, at, OPERAND, operand, 0)
    row = at[END, OP]
    rows[row, STREAM] = stream
    for place, table in enumerate((OPERAND, RESULT, PAIR)):
        rows[row, OPERANDS + place] = at[END, table] - at[SINCE, table]
        at[SINCE, table] = at[END, table]
    put(rows, at, OP, kind, known)


@compiled(allocates=False, part=True)
def upload(rows: Int64s, at: Int64s, length: int, rank: int, arena: int, alignment: int, stream: int) -> None:  # noqa: PLR0917 - compiled
    """The host writes a new buffer, in one row or two."""
    if rank == 2:
        put(rows, at, DIM, 2, length // 2)
    put(rows, at, DIM, length // rank, 1)
    add_result(rows, at, add_buffer(rows, at, length, arena, alignment, INPUT), 0, rank, 1)
    add_op(rows, at, WRITE, NONE, NONE, stream, 1)


# --- what is asked of values ----------------------------------------------------------------------


@compiled(allocates=False, part=True)
def covered(rows: Int64s, first: int, rank: int, offset: int) -> int:
    """Return the elements of its buffer that a layout covers, as bits."""
    mask, last = 0, first + rank - 1
    for i in range(rows[first, LENGTH] if rank == 2 else 1):
        for j in range(rows[last, LENGTH]):
            mask |= 1 << (offset + i * rows[first, STRIDE] + j * rows[last, STRIDE])
    return mask


@compiled(allocates=False, part=True)
def bits(mask: int) -> int:
    """Return how many bits are set."""
    count = 0
    while mask != 0:
        mask &= mask - 1
        count += 1
    return count


@compiled(allocates=False, part=True)
def alike(rows: Int64s, value: int, other: int, strides: bool) -> bool:  # noqa: FBT001 - compiled
    """Return whether two shapes are equal, and, if asked, the strides that matter."""
    if rows[value, RANK] != rows[other, RANK]:
        return False
    for axis in range(rows[value, RANK]):
        mine, its = rows[value, FIRST] + axis, rows[other, FIRST] + axis
        length = rows[mine, LENGTH]
        if length != rows[its, LENGTH] or (strides and length > 1 and rows[mine, STRIDE] != rows[its, STRIDE]):
            return False
    return True


@compiled(allocates=False, part=True)
def able(rows: Int64s, value: int) -> bool:
    """Return whether a value can be read."""
    covers, written = rows[value, COVERS], rows[rows[value, HOME], WRITTEN]
    return bool(rows[value, LOST] == 0 and written & covers == covers)


@compiled(allocates=False, part=True)
def readable(rows: Int64s, at: Int64s) -> int:
    """Return how many values can be read."""
    count = 0
    for value in range(at[PROGRAM, VALUE], at[END, VALUE]):
        count += able(rows, value)
    return count


@compiled(allocates=False, part=True)
def pick(rows: Int64s, at: Int64s, choice: int) -> int:
    """Return the value that is `choice`-th from the newest of those that can be read, `NONE` if
    there is none.
    """
    count, value = readable(rows, at), at[END, VALUE]
    left = choice % count if count else NONE
    while left >= 0:
        value -= 1
        left -= able(rows, value)
    return int(value) if count else NONE


# --- steps by codes -------------------------------------------------------------------------------

LENGTHS = np.array([2, 4, 1, 8, 0, 16, 6, 12], dtype=np.int64)

GATHERED = np.array([0, 3, 4, 5, 6, 7, 8, 9], dtype=np.int64)
"""How many operands a `GATHER` has, of the last up to three more."""

FEW = 4
"""Every second `GATHER` of more operands has inputs made where there are fewer values to read."""


@compiled(allocates=False)
def assemble(  # noqa: PLR0917 - compiled
    codes: Int64s,
    lengths: Int64s,
    alignments: Int64s,
    streams: int,
    uniform: bool,  # noqa: FBT001
    runnable: bool,  # noqa: FBT001
    rows: Int64s,
    at: Int64s,
    starts: Int64s,
) -> None:
    """Carry out codes (programs, steps, columns of `CODES`) into tables; of each program `lengths`.

    `alignments` are those of the arenas; `uniform` gives every buffer that of its arena; `runnable`
    makes only ops the engine has kernels for.
    """
    for program in range(len(lengths)):
        begin(at, starts, program)
        turn = 0
        while turn < lengths[program] and fullest(at) <= MOST - 8:
            code = codes[program, turn]
            action, i, j, k, flag = code[0], code[1], code[2], code[3], code[9] % 2
            if runnable and action in (SEVERAL, WORKSPACE, UNKNOWN, GATHER, PASS_ON):
                action = COMPUTE_TWO
            first, many = pick(rows, at, i), GATHERED[j] if action == GATHER else 1
            many += code[4] % 4 if many == GATHERED[-1] else 0
            again = first != NONE and flag and many > FEW and readable(rows, at) < many
            turn += 0 if again else 1  # an input more, and the same code once again
            if again or (first == NONE and action not in (PERSIST, UNUSED)):
                action = UPLOAD
            arena, own, stream = code[5] % len(alignments), code[6] % 8, code[7] % streams
            alignment = alignments[arena] if uniform or own < 6 else 16 if own == 6 else 64
            if action == UNUSED:
                add_buffer(rows, at, LENGTHS[j], arena, alignment, 0)
            elif action == PERSIST:
                persist(rows, at, arena, STATE if flag and not runnable else PARAMETER, 4 * (j % 2))
            elif action == DOWNLOAD:
                add_op(rows, at, READ, first, NONE, stream, 1)
            elif action == UPLOAD:
                upload(rows, at, LENGTHS[j], 2 if flag and LENGTHS[j] > 1 else 1, arena, alignment, stream)
            elif action == VIEW:
                look_as(rows, at, first, j % 6, k, stream)
            elif action in (GATHER, PASS_ON):
                size = rows[first, SIZE] if many else LENGTHS[i]
                gather(rows, at, action, i, k, first, many, add_buffer(rows, at, size, arena, alignment, 0), stream)
            else:
                compute(rows, at, action, code, first, arena, alignments, alignment, stream, runnable)
    begin(at, starts, len(lengths))


@compiled(allocates=False, part=True)
def fullest(at: Int64s) -> int:
    """Return how many rows this program has in the fullest of its tables."""
    most = 0
    for table in (BUFFER, VALUE, OP):
        most = max(most, at[END, table] - at[PROGRAM, table])
    return most


@compiled(allocates=False, part=True)
def persist(rows: Int64s, at: Int64s, arena: int, role: int, offset: int) -> None:
    """A value in the program's parameter or state, which is added where there is none."""
    buffer = at[PROGRAM, BUFFER]
    while buffer < at[END, BUFFER] and rows[buffer, ROLE] < PARAMETER:
        buffer += 1
    if buffer == at[END, BUFFER]:
        add_buffer(rows, at, 8, arena, 4, role)
        rows[buffer, WRITTEN] = 255
    put(rows, at, DIM, 4, 1)
    add_value(rows, at, buffer, offset, 1, 0)


@compiled(allocates=False, part=True)
def look_as(rows: Int64s, at: Int64s, parent: int, way: int, k: int, stream: int) -> None:  # noqa: PLR0917 - compiled
    """A view: a slice, flipped, broadcast, transposed, or every second element."""
    rank, offset, here = rows[parent, RANK], rows[parent, OFFSET], at[END, DIM]
    put_dims(rows, at, parent)
    longest = here + (rank == 2 and rows[here, LENGTH] <= rows[here + 1, LENGTH])
    many, step = rows[longest, LENGTH], rows[longest, STRIDE]
    if rank < 2 and (way == 2 or not many):  # broadcast
        rows[here, LENGTH], rows[here, STRIDE] = k % 3, 0
        put(rows, at, DIM, many, step)
        rank += 1
    elif way == 1 and many:  # flipped
        offset += step * (many - 1)
        rows[longest, STRIDE] = -step
    elif way == 3 and rank == 2:  # transposed
        for column in range(2):
            first, last = rows[here, LENGTH + column], rows[here + 1, LENGTH + column]
            rows[here, LENGTH + column], rows[here + 1, LENGTH + column] = last, first
    elif way == 4 and many:  # every second
        rows[longest, LENGTH], rows[longest, STRIDE] = (many + 1) // 2, 2 * step
    elif many:  # a slice
        offset += k % many * step
        rows[longest, LENGTH] = many - k % many
    add_result(rows, at, rows[parent, HOME], offset, rank, 0)
    add_op(rows, at, LOOK, parent, NONE, stream, 1)


@compiled(allocates=False, part=True)
def gather(  # noqa: PLR0917 - compiled
    rows: Int64s, at: Int64s, action: int, i: int, k: int, first: int, many: int, buffer: int, stream: int
) -> None:
    """An op of none or three to twelve operands, or the one that a `same` hands on."""
    for operand in range(many):
        put(rows, at, OPERAND, pick(rows, at, i + operand), 0)
    if many:
        put_packed(rows, at, first)
    else:
        put(rows, at, DIM, rows[buffer, ELEMENTS], 1)
    result = add_result(rows, at, buffer, 0, rows[first, RANK] if many else 1, 1)
    known = action == PASS_ON or k % 4 < 3
    if action == GATHER and many and k % 2 == 0 and alike(rows, first, result, True):
        put(rows, at, PAIR, 0, 0)
    add_op(rows, at, MERGE if action == GATHER else HAND_ON, NONE, NONE, stream, int(known))


@compiled(allocates=False, part=True)
def compute(  # noqa: PLR0917 - compiled
    rows: Int64s,
    at: Int64s,
    action: int,
    code: Int64s,
    first: int,
    arena: int,
    alignments: Int64s,
    alignment: int,
    stream: int,
    runnable: bool,  # noqa: FBT001
) -> None:
    """An op of one operand or two: its result in a new buffer or over its first operand, alone or
    with a second result or a workspace.
    """
    j, k, two = code[2], code[3], code[4] % 2
    size, rank = rows[first, SIZE], rows[first, RANK]
    home, offset, second = rows[first, HOME], rows[first, OFFSET], first
    if action in (COMPUTE_TWO, MUTATE) or (two and action != COMPUTE_ONE):
        other = pick(rows, at, j)
        if alike(rows, first, other, False):
            second = other
    if action == MUTATE:
        meets = rows[second, HOME] == home and rows[second, COVERS] & rows[first, COVERS] != 0
        if meets and (rows[second, OFFSET] != offset or not alike(rows, first, second, True)):
            second = first
        if bits(rows[first, COVERS]) != size or rows[home, ROLE] == PARAMETER:
            action = COMPUTE_TWO
    if action == MUTATE:
        put_dims(rows, at, first)
        result = add_result(rows, at, home, offset, rank, 1)
    else:
        put_packed(rows, at, first)
        result = add_result(rows, at, add_buffer(rows, at, size, arena, alignment, 0), 0, rank, 1)
    if action in (SEVERAL, WORKSPACE):
        beside = code[8] % len(alignments)
        if action == SEVERAL:
            put_packed(rows, at, first)
        else:
            size, rank = LENGTHS[j], 1
            put(rows, at, DIM, size, 1)
        twin = add_result(rows, at, add_buffer(rows, at, size, beside, alignments[beside], 0), 0, rank, 1)
        rows[twin, LOST] = action == WORKSPACE  # it is never read
    # what is declared: all pairs of equal layout, the first alone, none, or nobody knows
    count = 1 if action == COMPUTE_ONE or (not two and action in (SEVERAL, WORKSPACE, UNKNOWN)) else 2
    every = k % 4 < 2 or action == MUTATE
    unknown = action == UNKNOWN or (action == SEVERAL and k % 4 == 3 and code[9] % 2 == 1)
    none = not every and (k % 4 == 2 or count == 1)
    if count == 1 and none and runnable:
        count = 2  # `maximum` of a value with itself: the engine has no kernel of one operand that declares nothing
    for place in range(0 if none or unknown else 2 if action == SEVERAL else 1):
        for operand in range(count if every else 1):
            if alike(rows, second if operand else first, result + place, True):
                put(rows, at, PAIR, operand, place)
    kind = STORE if count == 1 else MAXIMUM
    if not none:
        kind = MINIMUM if not every else ADD if count == 2 else NEG
    if action in (SEVERAL, WORKSPACE, UNKNOWN):
        kind = SPLIT if action == SEVERAL else SCRATCH if action == WORKSPACE else FOREIGN
    add_op(rows, at, kind, first, second if count == 2 else NONE, stream, int(not unknown))


# --- every step of a scope ------------------------------------------------------------------------

PLACE, DEPTH, DONE = range(3)
"""Of `cursor`: the next digit to read, how many there are, and whether there is no further
program.
"""

FAR = 1 << 30
"""More than there are ways to go on."""


@compiled(allocates=False, part=True)
def choose(ways: int, digits: Int64s, radix: Int64s, cursor: Int64s) -> int:
    """Return the next digit, a new one being 0."""
    place = cursor[PLACE]
    if place == cursor[DEPTH]:
        digits[place] = 0
        cursor[DEPTH] = place + 1
    radix[place] = ways
    cursor[PLACE] = place + 1
    return int(digits[place])


@compiled(allocates=False, part=True)
def advance(most: int, digits: Int64s, radix: Int64s, cursor: Int64s) -> int:
    """Go past this program and up to `most` - 1 more that differ from it in their last op alone;
    return past how many.
    """
    depth = cursor[DEPTH]
    passed = min(most, radix[depth - 1] - digits[depth - 1]) if depth > 1 else 1
    digits[depth - 1] += passed - 1
    while depth > 0:
        digits[depth - 1] += 1
        if digits[depth - 1] < radix[depth - 1]:
            break
        depth -= 1
    cursor[DEPTH], cursor[PLACE], cursor[DONE] = depth, 0, depth == 0
    return int(passed)


@compiled(allocates=False)
def enumerate_programs(  # noqa: PLR0917 - compiled
    most: int,
    count: int,
    digits: Int64s,
    radix: Int64s,
    cursor: Int64s,
    keep: bool,  # noqa: FBT001
    rows: Int64s,
    at: Int64s,
    starts: Int64s,
) -> int:
    """Make the next `count` programs of at most `most` ops, and return how many there were.

    Without `keep` each is made over the one before, and of those that differ in their last op alone
    only the first is.
    """
    found, at[END] = 0, 0
    while found < count and not cursor[DONE]:
        if not keep:
            at[END] = 0
        begin(at, starts, found if keep else 0)
        way = FAR
        for _ in range(2 * choose(most + 1, digits, radix, cursor)):  # the ways are counted, and one is taken
            left = take(rows, at, way)
            way = choose(FAR - left, digits, radix, cursor) if way == FAR else FAR
        found += advance(1 if keep else count - found, digits, radix, cursor)
    begin(at, starts, found if keep else 0)
    return found


@compiled(allocates=False, part=True)
def take(rows: Int64s, at: Int64s, way: int) -> int:
    """Go on in the `way`-th of the ways there are; return how far beyond them it is, if it is."""
    low, high = at[PROGRAM, VALUE], at[END, VALUE]
    for action in (UPLOAD, COMPUTE_ONE, COMPUTE_TWO, MUTATE, VIEW, DOWNLOAD):
        two = action == COMPUTE_TWO
        for one in range(low, low + 1 if action == UPLOAD else high):
            for other in range(one + two, high if two else one + 1):
                ways = ways_of(rows, action, one, other)
                if way < ways:
                    act(rows, at, action, way, one, other)
                    return 0
                way -= ways
    return way


@compiled(allocates=False, part=True)
def ways_of(rows: Int64s, action: int, one: int, other: int) -> int:
    """Return in how many ways an action of the scope can be done to a value, or to two."""
    if action == UPLOAD:  # of one unit or of two, whatever there is
        return 2
    if not able(rows, one) or not able(rows, other):
        return 0
    if action == COMPUTE_ONE:  # declared, not declared, of the other size
        return 3
    if action == COMPUTE_TWO:  # what is declared of those of the result's size
        return 4 if rows[one, SIZE] == rows[other, SIZE] else 2
    return 2 * (rows[one, SIZE] == 2) if action == VIEW else 1  # a half of it


@compiled(allocates=False, part=True)
def act(rows: Int64s, at: Int64s, action: int, way: int, one: int, other: int) -> None:  # noqa: PLR0917 - compiled
    """Do an action of the scope to a value, or to two, in one of its ways."""
    size, declared = way + 1 if action == UPLOAD else rows[one, SIZE], int(action == MUTATE)
    kind = WRITE if action == UPLOAD else READ if action == DOWNLOAD else LOOK if action == VIEW else STORE
    if action == COMPUTE_TWO:
        its = rows[other, SIZE]
        declared, size = way << (size < its), max(size, its)
        kind = ADD if declared == 3 else STORE
    elif action == COMPUTE_ONE:
        declared, size = int(way == 0), 3 - size if way == 2 else size
        kind = NEG if declared else STORE
    if action != DOWNLOAD:
        home, offset = rows[one, HOME], rows[one, OFFSET]
        if action == VIEW:
            size, offset = 1, offset + way
        elif action != MUTATE:
            home, offset = add_buffer(rows, at, size, 0, 4, INPUT if action == UPLOAD else 0), 0
        put(rows, at, DIM, size, 1)
        add_result(rows, at, home, offset, 1, int(action != VIEW))
    for operand in range(2):
        if declared >> operand & 1:
            put(rows, at, PAIR, operand, 0)
    first = NONE if action == UPLOAD else one
    add_op(rows, at, kind, first, other if action == COMPUTE_TWO else NONE, 0, 1)
