"""What each screen of the judge claims, as a formula: whatever is wrong is among what it selects.

A *story* is a list of ops within small bounds: values as units of buffers (views with strides, flips and packed rows are sets of units), `same` between values, runs of a
session with buffers that move between them, uploads left out. `reads` replays it as the plain checks do and as the screen does, unit by unit, with numbers or with terms of
z3: so one text is proved for all stories within bounds (`proved`), and held against the judge itself on drawn ones (`laws/test_screens.py`). Likewise `meetings`, of
rectangles, and `late`, of clocks. A `mutant` is a screen with one clause changed, which must be refuted.
"""

from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

WIDTH = 5
"""Bits of a number, as z3 has it."""


class Numbers:
    """Numbers and truth values of Python."""

    @staticmethod
    def either(test, one, other):
        return one if test else other

    all, any = staticmethod(all), staticmethod(any)

    @staticmethod
    def no(test):
        return not test

    @staticmethod
    def less(one, other):
        return one < other


class Terms:
    """Terms of z3, and what they must obey."""

    def __init__(self):
        import z3  # noqa: PLC0415 - only where it is installed

        self.z3, self.rules, self.made = z3, [], 0

    def number(self, below):
        self.made += 1
        made = self.z3.BitVec(f"n{self.made}", WIDTH)
        self.rules.append(self.z3.ULT(made, below))
        return made

    def truth(self):
        self.made += 1
        return self.z3.Bool(f"t{self.made}")

    def either(self, test, one, other):
        as_term = lambda x: self.z3.BitVecVal(x, WIDTH) if type(x) is int else x  # noqa: E731 - short
        if type(test) is bool:
            return one if test else other
        return self.z3.If(test, as_term(one), as_term(other))

    def all(self, tests):
        return self.z3.And([*tests, True])

    def any(self, tests):
        return self.z3.Or([*tests, False])

    def no(self, test):
        return self.z3.Not(test)

    def less(self, one, other):
        return one < other if type(one) is type(other) is int else self.z3.ULT(one, other)


def pick(logic, row, index):
    """Return the entry of a row at an index that may be a term."""
    found = row[-1]
    for number in reversed(range(len(row) - 1)):
        found = logic.either(index == number, row[number], found)
    return found


def proved(logic, premises, claim):
    """Whether a claim holds of all that obey the premises."""
    solver = logic.z3.Then("simplify", "propagate-values", "solve-eqs", "bit-blast", "sat").solver()
    solver.add(*logic.rules, *premises, logic.no(claim))
    answer = solver.check()
    assert answer != logic.z3.unknown
    return answer == logic.z3.unsat


# reads ------------------------------------------------------------------------------------------------------------------------

READS = {
    "a buffer that moves keeps its key": "a weight that another run has elsewhere",
    "a value is known by its number in any run": "an upload left out of a later run",
    "any owner will do for what lasts": "a state that the program itself wrote over",
    "a `same` at rest shares a key whatever else is written": "an operand that is written again",
    "results at rest are there after the others": "a `same` that puts its second result over its first",
    "two results of a `same` in one buffer": "the one at rest, which the other takes",
    "a read of a `same` is looked at alone": "what a `same` handed on, which was wrong already",
}
"""Mutants of the screen of reads, and what each misses."""


@dataclass(kw_only=True)
class Story:
    """Ops in order, each with `SLOTS` operands and results at most; two units to a value."""

    buffers: int
    units: int
    """Of a buffer."""
    runs: int
    run: list[Any]
    """Of each op; the first op is of run 0."""
    same: list[Any]
    """Of each op, whether it hands on operand k as result k."""
    vouched: list[Any]
    """Of each op, whether it promises `whole` of every operand and result."""
    read: list[list[tuple[Any, Any]]]
    """Of each op, by operand: whether there is one, and its value."""
    write: list[list[tuple[Any, Any]]]
    home: list[Any]
    """Of each value, its buffer."""
    unit: list[tuple[Any, Any]]
    """Of each value, its units in order; one twice is a value of one unit."""
    made: list[Any]
    """Of each value, whether an op makes it, in the runs that do not leave that op out."""
    handed: list[Any]
    """Of each value, whether that op is a `same`."""
    persistent: list[Any]
    base: list[list[Any]]
    """By run, then buffer."""
    cells: int


def stories(logic, *, ops, buffers=2, units=2, runs=2, values=3, slots=1, cells=4, same=True):
    """Return a story of which nothing is known but its bounds."""
    number, truth = logic.number, logic.truth
    present = lambda: [(truth(), number(values)) for _ in range(slots)]  # noqa: E731 - short
    return Story(
        buffers=buffers,
        units=units,
        runs=runs,
        run=[number(runs) for _ in range(ops)],
        same=[truth() if same else False for _ in range(ops)],
        vouched=[truth() for _ in range(ops)],
        read=[present() for _ in range(ops)],
        write=[present() for _ in range(ops)],
        home=[number(buffers) for _ in range(values)],
        unit=[(number(units), number(units)) for _ in range(values)],
        made=[truth() for _ in range(values)],
        handed=[truth() if same else False for _ in range(values)],
        persistent=[truth() for _ in range(buffers)],
        base=[[number(cells - units + 1) for _ in range(buffers)] for _ in range(runs)],
        cells=cells,
    )


def valid(logic, s):
    """Yield what a document makes sure of."""
    ops = range(len(s.run))
    yield s.run[0] == 0
    for one, other in pairwise(ops):
        yield logic.any([s.run[other] == s.run[one], s.run[other] == s.run[one] + 1])
    for op in ops:
        for (there, value), (given, target) in zip(s.read[op], s.write[op], strict=True):
            size = [pick(logic, [a == b for a, b in s.unit], index) for index in (value, target)]
            yield logic.any([logic.no(s.same[op]), logic.all([there == given, size[0] == size[1]])])
        for there, value in s.write[op]:
            yield logic.any([logic.no(there), pick(logic, s.made, value)])
            yield logic.any([logic.no(there), pick(logic, s.handed, value) == s.same[op]])
        for there, value in s.read[op]:
            before = [
                logic.all([given, made == value, s.run[other] == s.run[op]])
                for other in range(op)
                for given, made in s.write[other]
            ]
            left_out = logic.all(
                [logic.no(_written(logic, s, s.run[op], value)), logic.no(pick(logic, s.handed, value))]
            )
            yield logic.any([logic.no(there), logic.no(pick(logic, s.made, value)), *before, left_out])
    writes = [(op, *write) for op in ops for write in s.write[op]]
    for number, (op, there, value) in enumerate(writes):
        for other, given, target in writes[:number]:
            yield logic.no(logic.all([there, given, s.run[op] == s.run[other], value == target]))


def _written(logic, s, run, value):
    """Whether a run writes a value."""
    return logic.any(
        logic.all([there, made == value, s.run[op] == run]) for op in range(len(s.run)) for there, made in s.write[op]
    )


def reads(logic, s, mutant=None):
    """Replay a story; return, for each read, op, operand, whether it is there, whether the plain check reports it, and whether the screen notes it."""
    values, never = len(s.home), s.runs * len(s.home) + s.buffers
    content = lambda buffer: s.runs * values + buffer  # noqa: E731 - short
    tag = lambda number, unit, run: (number, unit, run)  # noqa: E731 - short
    apart = [
        [tag(logic.either(s.persistent[b], content(b), never), u, s.runs) for u in range(s.units)]
        for b in range(s.buffers)
    ]
    screen = [[apart[b][u][0] for u in range(s.units)] for b in range(s.buffers)]
    latest: list[Any] = [never] * s.buffers
    planned: list[Any] = [(never, 0)] * s.cells
    keys: list[Any] = [WIDE] * s.cells
    key_of = _keys(logic, s, mutant)
    for b, u in product(range(s.buffers), range(s.units)):
        here = [logic.all([s.persistent[b], s.base[0][b] + u == cell]) for cell in range(s.cells)]
        planned = [two_of(logic, test, (content(b), u), old) for test, old in zip(here, planned, strict=True)]
        keys = [logic.either(test, b, old) for test, old in zip(here, keys, strict=True)]
    given: list[Any] = [[(never, 0), (never, 0)] for _ in range(values)]
    found = []
    for op, run in enumerate(s.run):
        base = lambda buffer, run=run: pick(logic, [pick(logic, row, buffer) for row in s.base], run)  # noqa: E731 - short
        key = lambda buffer, run=run: pick(logic, [pick(logic, row, buffer) for row in key_of], run)  # noqa: E731 - short
        staged = []
        for place, (there, value) in enumerate(s.read[op]):
            if there is False and s.write[op][place][0] is False:
                staged.append(([(0, 0, 0)] * 2, [(0, 0)] * 2, False, False))
                continue
            home, unit = pick(logic, s.home, value), units_of(logic, s, value)
            made, handed, mine = pick(logic, s.made, value), pick(logic, s.handed, value), run * values + value
            kept, left_out = pick(logic, s.persistent, home), logic.no(_written(logic, s, run, value))
            wrong, stray, other = [], [], []
            for k in (0, 1):
                number, at, wrote = entry(logic, [entry(logic, row, unit[k]) for row in apart], home)
                gave = entry(logic, [row[k] for row in given], value)
                is_value = logic.any(
                    [
                        logic.all([logic.less(s.runs * values - 1, number), number != never]),
                        logic.all(
                            [
                                logic.less(number, s.runs * values),
                                _rest(logic, number, s.runs, values) == value,
                                at == unit[k],
                            ]
                        ),
                    ]
                )
                right = logic.either(
                    handed,
                    _bit(logic, logic.all([gave[0] != never, gave[0] == number, gave[1] == at])),
                    logic.either(
                        left_out, _bit(logic, is_value), _bit(logic, logic.all([number == mine, at == unit[k]]))
                    ),
                )
                lies = entry(logic, planned, base(home) + unit[k])
                wrong += [
                    number == never,
                    logic.all([made, right == 0]),
                    logic.all([logic.no(kept), wrote != s.runs, wrote != run]),
                    logic.any([lies[0] != number, lies[1] != at]),
                ]
                owner = pick(logic, [pick(logic, row, unit[k]) for row in screen], home)
                alike = logic.all([logic.less(owner, s.runs * values), _rest(logic, owner, s.runs, values) == value])
                lasts = logic.all([kept, logic.any([owner == s.runs * values + home, alike])])
                if mutant == "any owner will do for what lasts":
                    lasts = kept
                now = logic.any(
                    logic.all([run == r, logic.no(logic.less(owner, r * values)), logic.less(owner, (r + 1) * values)])
                    for r in range(s.runs)
                )
                fine = logic.any(
                    [logic.all([made, logic.any([owner == mine, lasts])]), logic.all([logic.no(made), now])]
                )
                stray.append(logic.no(fine))
                other.append(pick(logic, keys, base(home) + unit[k]) != key(home))
            last = pick(logic, latest, home)
            known = last == mine
            if mutant == "a value is known by its number in any run":
                known = logic.any([known, logic.all([last != never, _rest(logic, last, s.runs, values) == value])])
            passed = logic.any([known, logic.all([kept, logic.no(made)])])
            noted = logic.any([logic.all([logic.no(passed), logic.any(stray)]), *other])
            found.append((op, place, there, logic.any(wrong), noted))
            target = s.write[op][place][1]
            pieces = [entry(logic, [entry(logic, row, unit[k]) for row in apart], home) for k in (0, 1)]
            lay = [entry(logic, planned, base(home) + unit[k]) for k in (0, 1)]
            there_home, there_unit = pick(logic, s.home, target), units_of(logic, s, target)
            rests = logic.all(base(home) + unit[k] == base(there_home) + there_unit[k] for k in (0, 1))
            staged.append((pieces, lay, logic.all([s.same[op], rests]), stays(logic, s, op, place)))
        for (there, value), (pieces, lay, rests, still) in zip(s.write[op], staged, strict=True):
            home, unit, mine = pick(logic, s.home, value), units_of(logic, s, value), run * values + value
            for k, b, u in product((0, 1), range(s.buffers), range(s.units)):
                here = logic.all([there, home == b, unit[k] == u])
                put = two_of(logic, s.same[op], (*pieces[k][:2], run), (mine, u, run))
                here = logic.all([here, logic.no(still)])
                apart[b][u] = two_of(logic, here, put, apart[b][u])
                screen[b][u] = logic.either(here, mine, screen[b][u])
            for k, cell in product((0, 1), range(s.cells)):
                here = logic.all([there, logic.no(rests), base(home) + unit[k] == cell])
                planned[cell] = two_of(logic, here, two_of(logic, s.same[op], lay[k], (mine, unit[k])), planned[cell])
            told = logic.all([there, logic.no(still)])
            latest = [logic.either(logic.all([told, home == b]), mine, old) for b, old in enumerate(latest)]
            given = [
                [two_of(logic, logic.all([there, value == v]), pieces[k][:2], old[k]) for k in (0, 1)]
                for v, old in enumerate(given)
            ]
        late = mutant == "results at rest are there after the others"
        for at_rest in (not late, late):
            for (there, value), (_, _, rests, still) in zip(s.write[op], staged, strict=True):
                home, unit = pick(logic, s.home, value), units_of(logic, s, value)
                for k, cell in product((0, 1), range(s.cells)):
                    turn = rests if at_rest else logic.no(rests)
                    here = logic.all([there, turn, logic.no(still), base(home) + unit[k] == cell])
                    keys[cell] = logic.either(here, key(home), keys[cell])
    return found


WIDE = (1 << WIDTH) - 1
"""The key of bytes that nobody wrote."""


def _keys(logic, s, mutant):
    """Return the key of each buffer by run: another one where it has moved, and that of the operand where a `same` leaves a result at rest."""
    rows, epoch = [], [0] * s.buffers
    for run, places in enumerate(s.base):
        if run and mutant != "a buffer that moves keeps its key":
            moved = [places[b] != s.base[run - 1][b] for b in range(s.buffers)]
            epoch = [logic.either(test, old + 1, old) for test, old in zip(moved, epoch, strict=True)]
        own = [epoch[b] * s.buffers + b for b in range(s.buffers)]
        plain = [
            mutant == "a `same` at rest shares a key whatever else is written" or _plain(logic, s, run, b)
            for b in range(s.buffers)
        ]
        shares = [[False] * s.buffers for _ in range(s.buffers)]
        for op in range(len(s.run)):
            for (there, source), (_, target) in zip(s.read[op], s.write[op], strict=True):
                one, other = pick(logic, s.home, source), pick(logic, s.home, target)
                a, b = units_of(logic, s, source), units_of(logic, s, target)
                rests = pick(logic, places, one) + a[0] == pick(logic, places, other) + b[0]
                in_order = [logic.any([x[1] == x[0] + 1, x[1] == x[0]]) for x in (a, b)]
                test = logic.all([there, s.same[op], s.run[op] == run, rests, one != other, *in_order])
                if test is False:
                    continue
                for x, y in product(range(s.buffers), repeat=2):
                    if x != y:
                        here = logic.all([test, one == x, other == y, plain[x], plain[y]])
                        shares[y][x] = logic.any([shares[y][x], here])
        for _ in range(s.buffers - 1):
            own = [
                _first(logic, [(shares[y][x], own[x]) for x in range(s.buffers) if x != y], own[y])
                for y in range(s.buffers)
            ]
        rows.append(own)
    return rows


def _first(logic, cases, otherwise):
    for test, value in reversed(cases):
        otherwise = logic.either(test, value, otherwise)
    return otherwise


def _plain(logic, s, run, buffer, depth=1):
    """Whether a run writes a buffer once, before it reads it, and every access is of the same units, in order; so with the operand of a `same` that wrote it."""
    touched = [(op, 0, *access) for op in range(len(s.run)) for access in s.read[op]]
    touched += [
        (op, 1, logic.all([there, logic.no(stays(logic, s, op, place))]), value)
        for op in range(len(s.run))
        for place, (there, value) in enumerate(s.write[op])
        if there is not False
    ]
    mine = [
        (op, w, value, logic.all([there, s.run[op] == run, pick(logic, s.home, value) == buffer]))
        for op, w, there, value in sorted(touched, key=lambda row: row[:2])
        if there is not False
    ]
    mine = [row for row in mine if row[3] is not False]
    tests = [logic.no(s.persistent[buffer]), logic.any(logic.all([here, s.same[op]]) for op, _, _, here in mine)]
    tests.append(logic.any(here for _, w, _, here in mine if w))
    for number, (_, w, value, here) in enumerate(mine):
        unit = units_of(logic, s, value)
        tests.append(logic.any([logic.no(here), unit[1] == unit[0] + 1, unit[1] == unit[0]]))
        for _, v, target, there in mine[:number]:
            if v and w:
                tests.append(logic.no(logic.all([here, there])))
            if not v and w:  # a read before the write, or of the op that writes
                tests.append(logic.no(logic.all([here, there])))
            alike = [one == two for one, two in zip(unit, units_of(logic, s, target), strict=True)]
            tests.append(logic.any([logic.no(logic.all([here, there])), logic.all(alike)]))
    if depth:
        pairs = [(op, *pair) for op in range(len(s.run)) for pair in zip(s.read[op], s.write[op], strict=True)]
        for op, (there, source), (_, target) in pairs:
            here = logic.all([there, s.same[op], s.run[op] == run, pick(logic, s.home, target) == buffer])
            if here is False:
                continue
            unit = units_of(logic, s, source)
            fits = [logic.any([unit[1] == unit[0] + 1, unit[1] == unit[0]]), pick(logic, s.home, source) != buffer]
            from_plain = [
                logic.any([pick(logic, s.home, source) != b, _plain(logic, s, run, b, depth - 1)])
                for b in range(s.buffers)
                if b != buffer
            ]
            tests.append(logic.any([logic.no(here), logic.all([*fits, *from_plain])]))
    return logic.all(tests)


def stays(logic, s, op, place):
    """Whether a `same` hands a value on to where it is in its own buffer, which writes nothing."""
    source, target = s.read[op][place][1], s.write[op][place][1]
    alike = [one == two for one, two in zip(units_of(logic, s, source), units_of(logic, s, target), strict=True)]
    return logic.all([s.same[op], pick(logic, s.home, source) == pick(logic, s.home, target), *alike])


def units_of(logic, s, value):
    return tuple(pick(logic, [pair[k] for pair in s.unit], value) for k in (0, 1))


def entry(logic, rows, index):
    """Return the entry of a row of tuples."""
    return tuple(pick(logic, column, index) for column in zip(*rows, strict=True))


def two_of(logic, test, one, other):
    return tuple(logic.either(test, a, b) for a, b in zip(one, other, strict=True))


def _bit(logic, test):
    return logic.either(test, 1, 0)


def _rest(logic, number, runs, values):
    """Return a number of a write modulo the numbers of values."""
    found = number
    for run in range(1, runs):
        found = logic.either(logic.less(number, run * values), found, number - run * values)
    return found


def claim_of_reads(logic, s, mutant=None):
    """Nothing that the plain check reports is left out, but where all reads are looked at: a read of a `same` is noted, or one rests under another result."""
    found = reads(logic, s, mutant)
    all_of_them = [logic.all([there, s.same[op], noted]) for op, _, there, _, noted in found]
    if mutant == "a read of a `same` is looked at alone":
        all_of_them = []
    if mutant != "two results of a `same` in one buffer":
        all_of_them += rests_under_itself(logic, s)
    left_out = logic.any(logic.all([there, wrong, logic.no(noted)]) for *_, there, wrong, noted in found)
    return logic.any([*all_of_them, logic.no(left_out)])


def rests_under_itself(logic, s):
    """Yield, for each pair of results of an op, whether they are of one `same` in one buffer, and the first or the second lies where its operand does."""
    for op, run in enumerate(s.run):
        base = lambda buffer, run=run: pick(logic, [pick(logic, row, buffer) for row in s.base], run)  # noqa: E731 - short
        rows = []
        for (there, source), (_, target) in zip(s.read[op], s.write[op], strict=True):
            one, other = pick(logic, s.home, source), pick(logic, s.home, target)
            a, b = units_of(logic, s, source), units_of(logic, s, target)
            rows.append((there, other, logic.all(base(one) + a[k] == base(other) + b[k] for k in (0, 1))))
        for number, (there, home, rests) in enumerate(rows):
            for given, other, also in rows[:number]:
                yield logic.all([s.same[op], there, given, home == other, logic.any([rests, also])])


def holds_of_reads(mutant=None, **bounds):
    """Whether z3 proves the claim of reads, or of a mutant, within bounds."""
    terms = Terms()
    story = stories(terms, **bounds)
    return proved(terms, list(valid(terms, story)), claim_of_reads(terms, story, mutant))


# rectangles -------------------------------------------------------------------------------------------------------------------

MEETINGS = {
    "what ends a step after a newcomer is gone": "the last step of a life",
    "a newcomer meets those that begin below it": "two that begin at one byte",
    "what ends a step after the stretch is not carried on": "a life over the end of a stretch",
}


def rectangles(logic, *, count, below=5):
    """Return rows (start, stop, low, high) in order of start, none empty, and the newcomer with which a second stretch begins."""
    rows = [tuple(logic.number(below) for _ in range(4)) for _ in range(count)]
    logic.rules += [logic.all([logic.less(a, b), logic.less(c, d)]) for a, b, c, d in rows]
    logic.rules += [logic.no(logic.less(two[0], one[0])) for one, two in pairwise(rows)]
    return rows, logic.number(count)


def meetings(logic, rows, second, mutant=None):
    """Yield, for each pair of rows, whether they share a point and whether the sweep notes them."""
    lives: list[Any] = []
    more = lambda which: 1 if mutant == which else 0  # noqa: E731 - short
    for comer, (start, stop, low, high) in enumerate(rows):
        left = more("what ends a step after the stretch is not carried on")
        lives = [
            logic.all([alive, logic.any([second != comer, logic.less(start + left, rows[row][1])])])
            for row, alive in enumerate(lives)
        ]
        for row, (begin, end, bottom, top) in enumerate(rows[:comer]):
            reached = logic.less(bottom, low if mutant == "a newcomer meets those that begin below it" else high)
            asked = logic.all([lives[row], reached, logic.less(low, top)])
            over = logic.no(logic.less(start + more("what ends a step after a newcomer is gone"), end))
            lives[row] = logic.all([lives[row], logic.no(logic.all([asked, over]))])
            share = [logic.less(begin, stop), logic.less(start, end), logic.less(bottom, high), logic.less(low, top)]
            yield row, comer, logic.all(share), logic.all([asked, logic.no(over)])
        lives.append(True)


def claim_of_meetings(logic, rows, second, mutant=None):
    """Every pair that shares a point is noted."""
    return logic.all(
        logic.any([logic.no(share), noted]) for _, _, share, noted in meetings(logic, rows, second, mutant)
    )


def holds_of_meetings(mutant=None, **bounds):
    """Whether z3 proves the claim of rectangles, or of a mutant."""
    terms = Terms()
    rows, second = rectangles(terms, **bounds)
    return proved(terms, [], claim_of_meetings(terms, rows, second, mutant))


# accesses of several streams --------------------------------------------------------------------------------------------------

LATE = {
    "a write asks the writes alone": "a write over what another stream still reads",
    "whoever waits knows all": "what an op did behind the one waited for",
    "nodes above a range are not told": "a read of more bytes than were written",
}

RANKS = 4
RANGES = [(low, high) for low in range(RANKS) for high in range(low + 1, RANKS + 1)]


@dataclass(kw_only=True)
class Streams:
    """Ops of several streams, one access each."""

    stream: list[Any]
    waits: list[list[Any]]
    """Of each op, whether it waits for each earlier one."""
    write: list[Any]
    range: list[Any]
    """Index into `RANGES`."""


def streams(logic, *, ops, count=2):
    """Return ops of which nothing is known."""
    return Streams(
        stream=[logic.number(count) for _ in range(ops)],
        waits=[[logic.truth() for _ in range(op)] for op in range(ops)],
        write=[logic.truth() for _ in range(ops)],
        range=[logic.number(len(RANGES)) for _ in range(ops)],
    )


def late(logic, s, count=2, mutant=None):
    """Yield, for each access and source stream, whether it races with an earlier access of that stream, and whether the sweep notes it."""
    ops = range(len(s.stream))
    before: list[list[Any]] = []
    for op in ops:
        direct = [logic.any([s.waits[op][one], s.stream[one] == s.stream[op]]) for one in range(op)]
        through = lambda one, op=op, direct=direct: logic.any(  # noqa: E731 - short
            logic.all([direct[two], before[two][one]]) for two in range(one + 1, op)
        )
        before.append([logic.any([direct[one], through(one)]) for one in range(op)])
    for source in range(count):
        left, below = (
            [[0] * (2 * RANKS) for _ in (0, 1)] for _ in (0, 1)
        )  # one more than the op; the tree of writes, then of all
        known: list[Any] = []
        latest: Any = 0
        for op in ops:
            mine = s.stream[op] == source
            knowledge: Any = 0
            for one in range(op):
                told = len(s.stream) if mutant == "whoever waits knows all" else known[one]
                hears = [logic.all([s.stream[one] == s.stream[op], logic.less(knowledge, known[one])])]
                knowledge = logic.either(hears[0], known[one], knowledge)
                knowledge = logic.either(logic.all([s.waits[op][one], logic.less(knowledge, told)]), told, knowledge)
            known.append(logic.either(mine, op + 1, knowledge))
            asks = [False]
            for number, (low, high) in enumerate(RANGES):
                whole, above = nodes_of(low, high)
                here = s.range[op] == number
                for tree in (0, 1):
                    asked = s.write[op] if tree else logic.no(s.write[op])
                    if mutant == "a write asks the writes alone":
                        asked = tree == 0
                    seen = [*(below[tree][n] for n in whole), *(left[tree][n] for n in above)]
                    asks.append(logic.all([here, asked, logic.any(logic.less(knowledge, x) for x in seen)]))
                    tell = logic.all([mine, here, True if tree else s.write[op]])
                    for n in whole:
                        left[tree][n] = logic.either(tell, op + 1, left[tree][n])
                        below[tree][n] = logic.either(tell, op + 1, below[tree][n])
                    for n in () if mutant == "nodes above a range are not told" else above[2:]:
                        below[tree][n] = logic.either(tell, op + 1, below[tree][n])
            noted = logic.all([logic.no(mine), logic.less(knowledge, latest), logic.any(asks)])
            latest = logic.either(mine, op + 1, latest)
            race = logic.any(
                logic.all(
                    [
                        s.stream[one] == source,
                        logic.no(mine),
                        logic.any([s.write[one], s.write[op]]),
                        logic.no(before[op][one]),
                        logic.any(
                            logic.all([s.range[one] == x, s.range[op] == y])
                            for (x, (a, b)), (y, (c, d)) in product(enumerate(RANGES), repeat=2)
                            if a < d and c < b
                        ),
                    ]
                )
                for one in range(op)
            )
            yield op, source, race, noted


def claim_of_late(logic, s, count=2, mutant=None):
    """Every access that races with an earlier one of a stream is noted for that stream."""
    return logic.all(logic.any([logic.no(race), noted]) for _, _, race, noted in late(logic, s, count, mutant))


def holds_of_late(mutant=None, *, ops, count=2):
    """Whether z3 proves the claim of streams, or of a mutant."""
    terms = Terms()
    drawn = streams(terms, ops=ops, count=count)
    return proved(terms, [], claim_of_late(terms, drawn, count, mutant))


def nodes_of(low, high):
    """Return the nodes of a tree over `RANKS` leaves that make up a range, and the first and last leaf of it with all that is above them."""
    first, last = low + RANKS, high + RANKS - 1
    whole, above = [], []
    a, b = first, last + 1
    while a < b:
        whole += [a] * (a & 1) + [b - 1] * (b & 1)
        a, b = (a + 1) >> 1, b >> 1
    a, b = first, last
    while a:
        above += [a, b]
        a, b = a >> 1, b >> 1
    return whole, above
