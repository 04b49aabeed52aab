"""What no machine proved of certificates: from JSON to the checker's terms. An oracle derives the terms anew."""

import json

import pytest
from oracle2.generate import generate
from terms_oracle import Truth, differences, reaches_outside

from allocsim.certificates import certificate_of, terms_of
from allocsim.document import loads


def documents(first, count):
    """Yield (seed, parsed document) of one size each, with all values inside their buffers."""
    for seed in range(first, first + count):
        parsed = generate(seed, leave_out=frozenset({"nbytes range"}))
        ranges = any(buffer.get("nbytes_range") for program in parsed["programs"] for buffer in program["buffers"])
        if not ranges and not reaches_outside(parsed):
            yield seed, parsed


@pytest.mark.parametrize("first", [20_000, 20_050])
def test_the_terms_of_a_document_are_those_that_the_oracle_derives(first):
    for seed, parsed in documents(first, 50):
        assert differences(parsed, terms_of(loads(json.dumps(parsed)))) == [], seed


def test_every_claim_and_every_clock_is_so_by_the_oracle():
    for seed, parsed in documents(20_100, 40):
        terms = terms_of(loads(json.dumps(parsed)))
        certificate, truth = certificate_of(terms), Truth(parsed, terms)
        for node, operands in enumerate(certificate.claims):
            if terms.nodes[node].kind == "hold":
                continue
            for operand, pieces in enumerate(operands):
                assert all(piece[2] < 0 or truth.holds(node, operand, piece) for piece in pieces), (seed, node)
        for node, clock in enumerate(certificate.clocks):
            if terms.nodes[node].kind != "hold":
                assert all(truth.knows(node, chain, end) for chain, end in clock), (seed, node)


PLANTED = {
    "another place": lambda a: a._replace(base=a.base + 8),
    "a unit more": lambda a: a._replace(length=a.length + 1),
    "another start": lambda a: a._replace(start=a.start + 1),
    "other memory": lambda a: a._replace(ident=a.ident + 1000, space=a.space + 1000),
    "another width": lambda a: a._replace(width=a.width + 1),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_oracle_sees_a_fault_planted_in_the_terms(fault):
    seen = 0
    for _, parsed in documents(20_200, 12):
        terms = terms_of(loads(json.dumps(parsed)))
        nodes = list(terms.nodes)
        at = next((i for i in reversed(range(len(nodes))) if nodes[i].kind == "op" and nodes[i].operands), None)
        if at is None or (len(nodes[at].operands) == 1 and fault == "other memory"):
            continue
        first, *rest = nodes[at].operands
        nodes[at] = nodes[at]._replace(operands=(PLANTED[fault](first), *rest))
        object.__setattr__(terms, "nodes", tuple(nodes))
        assert differences(parsed, terms), fault
        seen += 1
    assert seen
