"""Certificates with one claim made false, and the word of an independent oracle that it is.

`damaged(rng, truth, certificate)` changes one number of one claim: the node, the result or
the shift of a piece, where it starts or how long it is; or it drops a piece, or has a clock know
more than it may. It returns the changed certificate and what was changed, or None where the oracle
(`terms_oracle.Truth` of the document and its terms) finds the changed claim true, or where there is nothing to change.
"""

from dataclasses import replace

FIELDS = ("start", "length", "node", "result", "shift")


def damaged(rng, truth, certificate):
    """Return a certificate with a claim that is false, and a word for the damage; None without one."""
    if certificate.clocks and rng.random() < 0.3:
        return _clock(rng, truth, certificate)
    places = [
        (node, operand, piece)
        for node, operands in enumerate(certificate.claims)
        if truth.terms.nodes[node].kind != "hold"
        for operand, pieces in enumerate(operands)
        for piece in range(len(pieces))
    ]
    if not places:
        return None
    node, operand, at = rng.choice(places)
    pieces = list(certificate.claims[node][operand])
    if rng.random() < 0.15:
        del pieces[at]  # the units of no piece are claimed by none, and a claim is of all units
        return _with(certificate, (node, operand, pieces)), "piece left out"
    field = rng.randrange(5)
    by = rng.choice((-8, -1, 1, 8))
    changed = list(pieces[at])
    changed[field] = rng.randrange(len(certificate.claims) + 1) if field == 2 else changed[field] + by
    if tuple(changed) == pieces[at] or (field > 1 and truth.holds(node, operand, changed)):
        return None
    pieces[at] = tuple(changed)  # another start or length: the pieces no longer tile what is read
    return _with(certificate, (node, operand, pieces)), FIELDS[field]


def _with(certificate, place):
    node, operand, pieces = place
    claims = [list(operands) for operands in certificate.claims]
    claims[node][operand] = tuple(pieces)
    return replace(certificate, claims=tuple(tuple(operands) for operands in claims))


def _clock(rng, truth, certificate):
    node = rng.randrange(len(certificate.clocks))
    if truth.terms.nodes[node].kind == "hold":
        return None
    others = [n for n, other in enumerate(truth.terms.nodes, 1) if other.kind != "hold"]
    end = rng.choice(others)
    chain = truth.terms.nodes[end - 1].chain
    clock = dict(certificate.clocks[node].ends)
    if clock.get(chain, 0) >= end or truth.knows(node, chain, end):
        return None
    clock[chain] = end
    clocks = list(certificate.clocks)
    clocks[node] = clocks[node]._replace(ends=tuple(sorted(clock.items())))
    return replace(certificate, clocks=tuple(clocks)), "clock"
