"""The compiled part of exhaustive mode: it enumerates the programs of a scope.

A program is the list of choices that make it, each a digit below the number of ways there were.
After a program the last digit that can be raised is, and those behind it are dropped: an odometer
whose wheels have as many digits as there are choices. So any program can be gone on from, given its
digits.

Importing this module imports numba. O(ops x values^2) for each program.
"""

import numpy as np

from allocsim.allocators.compiling import compiled
from allocsim.fuzzing import program_tables
from allocsim.fuzzing.program_tables import ProgramTables
from allocsim.model import Role
from allocsim.model.layout import Int64s

INPUT = int(Role.INPUT)
PLACE, DEPTH, DONE = range(3)
"""Of `cursor`: the next digit to read, how many there are, and whether there is no further
program.
"""


@compiled()
def choose(ways: int, digits: Int64s, radix: Int64s, cursor: Int64s) -> int:
    """Return the next digit, a new one being 0."""
    place = cursor[PLACE]
    if place == cursor[DEPTH]:
        digits[place] = 0
        cursor[DEPTH] = place + 1
    radix[place] = ways
    cursor[PLACE] = place + 1
    return int(digits[place])


@compiled()
def advance(digits: Int64s, radix: Int64s, cursor: Int64s) -> None:
    """Go to the next program."""
    depth = cursor[DEPTH]
    while depth > 0:
        digits[depth - 1] += 1
        if digits[depth - 1] < radix[depth - 1]:
            break
        depth -= 1
    cursor[DEPTH], cursor[PLACE] = depth, 0
    if depth == 0:
        cursor[DONE] = 1


@compiled(allocates=False)
def copy(table: Int64s, row: int, numbers: Int64s) -> None:
    """Fill a row. A row assigned at once takes numba seconds to compile."""
    for column in range(len(numbers)):
        table[row, column] = numbers[column]


@compiled()
def enumerate_programs(  # noqa: PLR0917 - compiled
    most: int,
    count: int,
    digits: Int64s,
    radix: Int64s,
    cursor: Int64s,
    write: bool,  # noqa: FBT001
    tables: ProgramTables,
) -> int:
    """Make the next `count` programs of at most `most` ops, into tables if `write`.

    Return how many there were.
    """
    buffers, values, dims, ops, operands, results, pairs, starts = tables
    at = np.zeros(7, dtype=np.int64)
    size = np.zeros(64, dtype=np.int64)  # of each value, in units
    home = np.zeros(64, dtype=np.int64)  # its buffer
    low = np.zeros(64, dtype=np.int64)  # its first unit
    lost = np.zeros(64, dtype=np.int64)  # an op made it, and another wrote over it
    made = np.zeros(64, dtype=np.int64)
    able = np.zeros(64, dtype=np.int64)
    for program in range(count):
        if cursor[DONE]:
            return program
        if write:
            copy(starts, program, at)
        many, stores = 0, 0
        length = choose(most + 1, digits, radix, cursor)
        for _ in range(length):
            # the values that can be read, and the ways to go on
            n = 0
            wide = 0
            for value in range(many):
                if not lost[value]:
                    able[n] = value
                    n += 1
                    wide += size[value] == 2
            two = 0
            for one in range(n):
                for other in range(one + 1, n):
                    two += 4 if size[able[one]] == size[able[other]] else 2
            way = choose(2 + 3 * n + two + n + 2 * wide + n, digits, radix, cursor)
            # 0: host.write of one unit or two
            kind, first, second, units, buffer, begin, over, known = program_tables.WRITE, -1, -1, way + 1, -1, 0, 0, 0
            if way >= 2:
                way -= 2
                if way < 3 * n:  # one operand: declared, not declared, of another size
                    kind, first = (program_tables.NEG if way % 3 == 0 else program_tables.STORE), able[way // 3]
                    units = size[first] if way % 3 < 2 else 3 - size[first]
                    over = 1 if way % 3 == 0 else 0
                elif way < 3 * n + two:  # two operands: what is declared of those of the result's size
                    way -= 3 * n
                    for one in range(n):
                        for other in range(one + 1, n):
                            if first >= 0:
                                continue
                            ways = 4 if size[able[one]] == size[able[other]] else 2
                            if way >= ways:
                                way -= ways
                                continue
                            first, second = able[one], able[other]
                            units = max(size[first], size[second])
                            over = way if ways == 4 else way * (1 if size[first] == units else 2)
                            kind = program_tables.ADD if over == 3 else program_tables.STORE
                elif way < 3 * n + two + n:  # written over itself
                    kind, first = program_tables.STORE, able[way - 3 * n - two]
                    units, buffer, begin, over = size[first], home[first], low[first], 1
                elif way < 3 * n + two + n + 2 * wide:  # half of it
                    way -= 3 * n + two + n
                    kind, begin = program_tables.LOOK, way % 2
                    left = way // 2
                    for place in range(n):
                        if size[able[place]] == 2:
                            if left == 0:
                                first = able[place]
                            left -= 1
                    units, buffer = 1, home[first]
                    begin += low[first]
                else:
                    kind, first = program_tables.READ, able[way - 3 * n - two - n - 2 * wide]
            # carry it out
            if kind != program_tables.READ:
                if buffer < 0:
                    buffer = stores
                    stores += 1
                    if write:
                        row = at[program_tables.BUFFER]
                        buffers[row, 0], buffers[row, 1], buffers[row, 2] = units, 0, 4
                        buffers[row, 3] = INPUT if kind == program_tables.WRITE else 0
                        at[program_tables.BUFFER] += 1
                if kind != program_tables.LOOK:
                    for value in range(many):
                        meets = (
                            home[value] == buffer and low[value] < begin + units and begin < low[value] + size[value]
                        )
                        if meets and made[value]:
                            lost[value] = 1
                size[many], home[many], low[many], lost[many] = units, buffer, begin, 0
                made[many] = 0 if kind == program_tables.LOOK else 1
                if write:
                    row, dim = at[program_tables.VALUE], at[program_tables.DIM]
                    values[row, 0], values[row, 1], values[row, 2] = buffer, begin, 1
                    dims[dim, 0], dims[dim, 1] = units, 1
                    results[at[program_tables.RESULT]] = many
                    at[program_tables.VALUE] += 1
                    at[program_tables.DIM] += 1
                    at[program_tables.RESULT] += 1
                many += 1
            if not write:
                continue
            op = at[program_tables.OP]
            known = 0
            if first >= 0:
                operands[at[program_tables.OPERAND]] = first
                at[program_tables.OPERAND] += 1
                known += 1
            if second >= 0:
                operands[at[program_tables.OPERAND]] = second
                at[program_tables.OPERAND] += 1
                known += 1
            declared = 0
            for operand in range(2):
                if over >> operand & 1:
                    row = at[program_tables.PAIR]
                    pairs[row, 0], pairs[row, 1] = operand, 0
                    at[program_tables.PAIR] += 1
                    declared += 1
            ops[op, 0], ops[op, 1], ops[op, 2], ops[op, 3] = kind, 1, 0, known
            ops[op, 4], ops[op, 5] = 0 if kind == program_tables.READ else 1, declared
            at[program_tables.OP] += 1
        if write:
            copy(starts, program + 1, at)
        advance(digits, radix, cursor)
    return count
