"""Where a result's bytes lie on an operand's bytes, and what the op promises about it.

A promise for a pair (operand position, result position) is a tuple of strengths, empty where nothing is promised, or
None where nobody knows. A table of kinds speaks only where the document says `null`; a pair that it calls unsafe is one
for which nothing is promised, and one that it does not list stays unknown. "Exactly over" means: one address of element
0, and equal layout.

Readings. An alias has bytes: two empty values are none. "Contiguous" means that the cells of a value, in row-major order, follow one another. A `same` is judged by its
own rule alone, whatever contract it states; only `whole` makes a difference to it. Since it reads all before it writes
any, it joins any operand to any result.
"""


def promise(op, pair, kinds):
    """Return the strengths that are promised for a pair; None where nobody knows."""
    if op.in_place is not None:
        return tuple(strength for operand, result, strength in op.in_place if (operand, result) == pair)
    rows = [row for row in kinds.get(op.kind, ()) if tuple(row["pair"]) == pair]
    if any(row["says"] == "unsafe" for row in rows):
        return ()
    return tuple(row.get("strength", "exact") for row in rows if row["says"] == "safe") or None


def one_layout(a, b):
    """Say whether two values have the same layout."""
    strides = [[s for s, n in zip(v.strides, v.shape, strict=True) if n > 1] for v in (a, b)]
    return a.shape == b.shape and a.width == b.width and strides[0] == strides[1]


def one_start(site, a, b):
    """Say whether element 0 of two values lies at one address."""
    (here, base), (there, other) = site.home(a), site.home(b)
    return here == there and base + a.start == other + b.start


def exactly_over(site, a, b):
    return one_start(site, a, b) and one_layout(a, b)


def _kept(site, strength, operand, result):
    """Say whether a result over an operand is within a promise of this strength."""
    if strength == "whole":
        return True
    if strength == "exact":
        return exactly_over(site, operand, result)
    starts = one_start(site, operand, result)
    return starts and operand.contiguous and result.contiguous and result.nbytes <= operand.nbytes


def examine(site, op, kinds):
    """Return the pairs of positions of one op that are unsafe, and those that are safe only if nobody knows better."""
    unsafe, assumed = [], []
    for r, w in enumerate(op.results):
        for o, v in enumerate(op.operands):
            x, y = site.program.values[v], site.program.values[w]
            if site.home(x)[0] != site.home(y)[0]:
                continue
            source, target = _cells(site, x), _cells(site, y)
            if not target & source:
                continue
            given = promise(op, (o, r), kinds)
            if op.same:
                fine = source == target or "whole" in (given or ())
            elif given is None:
                fine = exactly_over(site, x, y)
                assumed += [(o, r)] if fine else []
            else:
                fine = any(_kept(site, strength, x, y) for strength in given)
            unsafe += [] if fine else [(o, r)]
    return unsafe, assumed


def joins(site, op, donor, recipient, kinds):
    """Say whether the op joins an operand in one buffer to a result in another."""
    for o, v in enumerate(op.operands):
        for r, w in enumerate(op.results):
            x, y = site.program.values[v], site.program.values[w]
            if x.buffer != donor or y.buffer != recipient:
                continue
            given = promise(op, (o, r), kinds)
            if op.same or given or (given is None and exactly_over(site, x, y) and x.cells):
                return True
    return False


def joins_somewhere(program, op, donor, recipient, kinds):
    """Say whether the op joins an operand in one buffer to a result in another, wherever a plan puts the two."""
    for o, v in enumerate(op.operands):
        for r, w in enumerate(op.results):
            x, y = program.values[v], program.values[w]
            if x.buffer != donor or y.buffer != recipient:
                continue
            given = promise(op, (o, r), kinds)
            if op.same or given or (given is None and one_layout(x, y) and x.cells):
                return True
    return False


def clashing_results(site, op):
    """Return the pairs of result positions of one op that share a byte."""
    found = []
    for b, w in enumerate(op.results):
        for a, v in enumerate(op.results[:b]):
            x, y = site.program.values[v], site.program.values[w]
            if site.home(x)[0] == site.home(y)[0] and _cells(site, x) & _cells(site, y):
                found.append((a, b))
    return found


def _cells(site, value):
    base = site.home(value)[1]
    return {base + cell for _, cell in value.cells}
