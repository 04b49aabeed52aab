"""No overlap but a hand-over, so no stale read: as a formula over the stories of `screen_claims`.

Within bounds, whatever the story: where no two buffers meet while both live, but for a pair that an op hands over and for bytes that hold one tag, each read finds as
planned what it finds apart. Three things are asked besides, for which there are other records: no two results of an op share a unit; buffers that last lie in one place in all
runs and apart from each other (else the one's content is laid over the other's before the session); what is read of any other was written by the same run.

`overlaps` says at which ops two buffers meet, as docs/format.md has it ("When a buffer is live"), with numbers or with terms of z3, and is held against the judge's own records on
drawn stories (`laws/test_screens.py`). A `mutant` is a rule of meeting, or one of the three, with a clause changed: it must be refuted.
"""

from itertools import combinations, pairwise, product

from screen_claims import Terms, entry, pick, proved, stays, stories, two_of, units_of, valid

OVERLAPS = {
    "a life ends before its last read": "what is read last",
    "a write of a part ends what was there": "a view that is read after another part was written",
    "a write of a part begins a buffer that lasts": "a state of which half is rewritten",
    "a buffer that lasts is free behind its last read": "a state that the next run reads",
    "an op hands over whatever it reads": "an operand that is read again",
    "one byte of one tag is enough": "the byte beside it",
    "what is written does not count for tags": "a copy that is written anew",
    "results of one op may share": "the result that was written first",
    "a buffer that lasts may move": "a weight that another run has elsewhere",
    "buffers that last may share": "a state that the first op writes, whose content is laid over a weight",
    "what an earlier run wrote may be read": "an upload left out of a later run",
}
"""Mutants of the claim, and what each lets pass."""


class Lives:
    """Which units of which buffers are accessed at each op, and live before and after it."""

    def __init__(self, logic, s, mutant=None):
        self.logic, self.s, self.mutant = logic, s, mutant
        self.ops, self.buffers, self.units = range(len(s.run)), range(s.buffers), range(s.units)
        self.read = [self._touched(s.read[op], [True] * len(s.read[op])) for op in self.ops]
        moved = [[logic.no(stays(logic, s, op, k)) for k in range(len(s.write[op]))] for op in self.ops]
        self.write = [self._touched(s.write[op], moved[op]) for op in self.ops]
        covered = self._touched([(True, value) for value in range(len(s.home))], [True] * len(s.home))
        every = logic.any if mutant == "a write of a part begins a buffer that lasts" else logic.all
        self.full = [
            [
                logic.all([logic.any(row[b]), every(logic.any([logic.no(covered[b][u]), row[b][u]]) for u in self.units)])
                for b in self.buffers
            ]
            for row in self.write
        ]  # fmt: skip
        self.before = self._each(lambda op, b, u: self._lives_on(op, op, b, u))
        self.after = self._each(lambda op, b, u: self._lives_on(op, op + 1, b, u))
        self.live = self._each(self._live)

    def _each(self, of):
        return [[[of(op, b, u) for u in self.units] for b in self.buffers] for op in self.ops]

    def _touched(self, slots, moved):
        """Return by buffer and unit whether some of these values covers it."""
        logic, s = self.logic, self.s
        rows = [(there, pick(logic, s.home, v), units_of(logic, s, v), m) for (there, v), m in zip(slots, moved, strict=True)]  # fmt: skip
        return [
            [
                logic.any(
                    logic.all([there, m, home == b, logic.any([k == u for k in unit])]) for there, home, unit, m in rows
                )
                for u in self.units
            ]
            for b in self.buffers
        ]

    def _lives_on(self, op, first, b, u):
        """Whether a unit's life goes on over the beginning of op `first`, in the run of `op`: its next access reads it; of a buffer that lasts all of it, unless a full overwrite comes first."""
        logic, s, later = self.logic, self.s, range(first, len(self.s.run))
        of_run = [s.run[q] == s.run[op] for q in self.ops]
        wrote = lambda q: self.write[q][b][u]  # noqa: E731 - short
        if self.mutant == "a write of a part ends what was there":
            wrote = lambda q: logic.any(self.write[q][b])  # noqa: E731 - short
        last = 1 if self.mutant == "a life ends before its last read" else 0
        read = logic.any(
            logic.all([of_run[q], self.read[q][b][u], *(logic.no(wrote(m)) for m in range(first, q))])
            for q in later[last:]
        )
        begun = logic.any(
            logic.all([of_run[p], logic.any([self.read[p][b][u], self.write[p][b][u]])]) for p in range(first)
        )
        overwritten = logic.any(logic.all([of_run[q], self.full[q][b]]) for q in later)
        if self.mutant == "a buffer that lasts is free behind its last read":
            overwritten = True
        kept = logic.any(
            [
                logic.no(overwritten),
                *(
                    logic.all([of_run[q], logic.any(self.read[q][b]), *(logic.no(self.full[m][b]) for m in range(first, q))])
                    for q in later
                ),
            ]
        )  # fmt: skip
        return logic.either(s.persistent[b], kept, logic.all([begun, read]))

    def _live(self, op, b, u):
        logic = self.logic
        touched = [self.read[op][b][u], self.write[op][b][u], self.after[op][b][u]]
        if self.mutant == "a life ends before its last read":
            touched = touched[1:]
        whole = logic.any([*self.read[op][b], *self.write[op][b], self.after[op][b][u]])
        return logic.either(self.s.persistent[b], whole, logic.any(touched))

    def handed_over(self, op, donor, recipient):
        """Whether an op only reads the one, whose life ends there, and only writes the other, whose life begins there."""
        logic = self.logic
        ends = logic.no(logic.any(self.after[op][donor]))
        begins = logic.no(logic.any(self.before[op][recipient]))
        if self.mutant == "an op hands over whatever it reads":
            ends = True
            begins = True
        return logic.all(
            [
                *(logic.any(self.read[op][donor]), logic.no(logic.any(self.write[op][donor])), ends),
                *(logic.any(self.write[op][recipient]), logic.no(logic.any(self.read[op][recipient])), begins),
                logic.any([logic.no(self.s.persistent[recipient]), self.full[op][recipient]]),
            ]
        )


def bases(logic, s, run):
    """Return where each buffer lies in a run."""
    return [pick(logic, [row[b] for row in s.base], run) for b in range(s.buffers)]


def cells_of(logic, s, base, value):
    """Return where the units of a value lie."""
    return [pick(logic, base, pick(logic, s.home, value)) + unit for unit in units_of(logic, s, value)]


def replayed(logic, s):
    """Yield, for each op: what each unit holds apart before it and after it, as (number of the write, unit, run), and each operand's units so and as planned."""
    values, never = len(s.home), s.runs * len(s.home) + s.buffers
    apart = [
        [(logic.either(s.persistent[b], s.runs * values + b, never), u, s.runs) for u in range(s.units)]
        for b in range(s.buffers)
    ]
    planned = [(never, 0)] * s.cells
    for b, u in product(range(s.buffers), range(s.units)):
        here = [logic.all([s.persistent[b], s.base[0][b] + u == cell]) for cell in range(s.cells)]
        planned = [two_of(logic, test, (s.runs * values + b, u), old) for test, old in zip(here, planned, strict=True)]
    for op, run in enumerate(s.run):
        base, before = bases(logic, s, run), [row[:] for row in apart]
        operands = []
        for there, value in s.read[op]:
            home, unit = pick(logic, s.home, value), units_of(logic, s, value)
            held = [entry(logic, [entry(logic, row, k) for row in before], home) for k in unit]
            operands.append((there, value, held, [entry(logic, planned, cell) for cell in cells_of(logic, s, base, value)]))  # fmt: skip
        for place, (there, value) in enumerate(s.write[op]):
            home, unit, cells = pick(logic, s.home, value), units_of(logic, s, value), cells_of(logic, s, base, value)
            _, source, held, found = operands[place]
            rests = logic.all(one == two for one, two in zip(cells, cells_of(logic, s, base, source), strict=True))
            rests, still = logic.all([s.same[op], rests]), stays(logic, s, op, place)
            for k in (0, 1):
                mine = run * values + value
                for b, u in product(range(s.buffers), range(s.units)):
                    here = logic.all([there, logic.no(still), home == b, unit[k] == u])
                    put = two_of(logic, s.same[op], (*held[k][:2], run), (mine, u, run))
                    apart[b][u] = two_of(logic, here, put, apart[b][u])
                for cell in range(s.cells):
                    here = logic.all([there, logic.no(rests), cells[k] == cell])
                    planned[cell] = two_of(logic, here, two_of(logic, s.same[op], found[k], (mine, unit[k])), planned[cell])  # fmt: skip
        yield op, before, [row[:] for row in apart], operands


def overlaps(logic, s, mutant=None):
    """Yield, for each op and pair of buffers, the lower first: whether they overlap there."""
    lives = Lives(logic, s, mutant)
    never = s.runs * len(s.home) + s.buffers
    for op, before, after, _ in replayed(logic, s):
        base = bases(logic, s, s.run[op])
        joined = logic.any([s.vouched[op], logic.all([s.same[op], _apart_or_equal(logic, s, op, base)])])
        for one, other in combinations(range(s.buffers), 2):
            meet = logic.any(base[one] + u == base[other] + v for u, v in product(range(s.units), repeat=2))
            handed = logic.any(lives.handed_over(op, *pair) for pair in ((one, other), (other, one)))
            met, wrong = [], []
            for u, v in product(range(s.units), repeat=2):
                here = [base[one] + u == base[other] + v, lives.live[op][one][u], lives.live[op][other][v]]
                tests = []
                for a, b in product(
                    _held(lives, op, (one, u), before, after), _held(lives, op, (other, v), before, after)
                ):
                    alike = logic.all([a[1][0] == b[1][0], a[1][1] == b[1][1], a[1][0] != never])
                    tests.append(logic.any([logic.no(logic.all([a[0], b[0]])), alike]))
                met.append(logic.all([*here, *tests]))
                wrong.append(logic.all([*here, logic.no(logic.all(tests))]))
            if mutant == "one byte of one tag is enough":
                wrong = []
            alike = logic.all([logic.any(met), logic.no(logic.any(wrong))])
            both = logic.all([logic.any(lives.live[op][one]), logic.any(lives.live[op][other])])
            yield op, one, other, logic.all([meet, both, logic.no(logic.all([handed, joined])), logic.no(alike)])


def _held(lives, op, unit, before, after):
    """Yield what a unit holds at an op, with whether that counts: what was there if it lived before, what is written, and of a buffer that lasts what is there then."""
    (b, u), logic = unit, lives.logic
    lasts = lives.s.persistent[b]
    yield logic.any([lives.before[op][b][u], logic.all([logic.no(lasts), lives.read[op][b][u]])]), before[b][u]
    if lives.mutant != "what is written does not count for tags":
        yield logic.any([lasts, lives.write[op][b][u]]), after[b][u]


def _apart_or_equal(logic, s, op, base):
    """Whether each operand and each result of an op lie in equal or in disjoint units."""
    tests = []
    for (there, source), (given, target) in product(s.read[op], s.write[op]):
        a, b = cells_of(logic, s, base, source), cells_of(logic, s, base, target)
        share = logic.any(x == y for x, y in product(a, b))
        within = [logic.any(x == y for y in b) for x in a] + [logic.any(x == y for x in a) for y in b]
        tests.append(logic.no(logic.all([there, given, share, logic.no(logic.all(within))])))
    return logic.all(tests)


def claim_of_overlaps(logic, s, mutant=None):
    """If nothing overlaps, no results share, what lasts stays, and each run reads what it wrote or what lasts: every read finds as planned what it finds apart."""
    none = [logic.no(found) for *_, found in overlaps(logic, s, mutant)]
    right = []
    for op, _, _, operands in replayed(logic, s):
        base = bases(logic, s, s.run[op])
        cells = [(there, cells_of(logic, s, base, value)) for there, value in s.write[op]]
        for (there, one), (given, other) in combinations(cells, 2):
            share = logic.any(x == y for x, y in product(one, other))
            if mutant != "results of one op may share":
                none.append(logic.no(logic.all([there, given, share])))
        for there, value, held, found in operands:
            lasts = pick(logic, s.persistent, pick(logic, s.home, value))
            own = logic.all(wrote == s.run[op] for _, _, wrote in held)
            if mutant != "what an earlier run wrote may be read":
                none.append(logic.any([logic.no(there), lasts, own]))
            alike = [a[0] == b[0] for a, b in zip(held, found, strict=True)]
            alike += [a[1] == b[1] for a, b in zip(held, found, strict=True)]
            right.append(logic.any([logic.no(there), logic.all(alike)]))
    if mutant != "buffers that last may share":
        for one, other in combinations(range(s.buffers), 2):
            share = [s.base[0][one] + u == s.base[0][other] + v for u, v in product(range(s.units), repeat=2)]
            none.append(logic.no(logic.all([s.persistent[one], s.persistent[other], logic.any(share)])))
    if mutant != "a buffer that lasts may move":
        for one, other in pairwise(s.base):
            none += [logic.any([logic.no(s.persistent[b]), one[b] == other[b]]) for b in range(s.buffers)]
    return logic.any([logic.no(logic.all(none)), logic.all(right)])


def holds_of_overlaps(mutant=None, **bounds):
    """Whether z3 proves the claim of overlaps, or of a mutant, within bounds."""
    terms = Terms()
    story = stories(terms, **bounds)
    return proved(terms, list(valid(terms, story)), claim_of_overlaps(terms, story, mutant))
