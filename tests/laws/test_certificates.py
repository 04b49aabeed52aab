"""From JSON to the checker's terms, which no machine proved: an oracle derives the terms, and the nodes, anew."""

import json

import pytest
from oracle2.generate import generate
from terms_oracle import Truth, nodes_differ, reaches_outside, terms_differ

from allocsim.certificates import certificate_of, joined, terms_of
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
        terms = terms_of(loads(json.dumps(parsed)))
        assert terms_differ(parsed, terms) == [], seed
        assert nodes_differ(parsed, joined(terms)) == [], seed


def test_every_claim_and_every_clock_is_so_by_the_oracle():
    for seed, parsed in documents(20_100, 40):
        terms = terms_of(loads(json.dumps(parsed)))
        certificate, truth = certificate_of(terms), Truth(parsed, terms)
        for node, operands in enumerate(certificate.claims):
            if truth.terms.nodes[node].kind == "hold":
                continue
            for operand, pieces in enumerate(operands):
                assert all(piece[2] < 0 or truth.holds(node, operand, piece) for piece in pieces), (seed, node)
        for node, clock in enumerate(certificate.clocks):
            if truth.terms.nodes[node].kind != "hold":
                assert all(truth.knows(node, chain, end) for chain, end in clock.ends), (seed, node)


def first(rows, change, **conditions):
    """Change the first row that has what is asked for; None without one."""
    at = next((i for i, row in enumerate(rows) if all(getattr(row, k) != v for k, v in conditions.items())), None)
    return None if at is None else (*rows[:at], change(rows[at]), *rows[at + 1 :])


def within(part, change, **conditions):
    """Change the first such row of the first program that has one."""

    def planted(terms):
        for index, program in enumerate(terms.programs):
            rows = first(getattr(program, part), change, **conditions)
            if rows is not None:
                programs = terms.programs
                changed = program._replace(**{part: rows})
                return terms._replace(programs=(*programs[:index], changed, *programs[index + 1 :]))
        return None

    return planted


def of_runs(change, **conditions):
    def planted(terms):
        rows = first(terms.session, change, **conditions)
        return None if rows is None else terms._replace(session=rows)

    return planted


PLANTED = {
    "another offset": within("values", lambda v: v._replace(offset=v.offset + 1)),
    "another width": within("values", lambda v: v._replace(width=v.width * 2)),
    "another bit": within("values", lambda v: v._replace(bit_offset=v.bit_offset + 1)),
    "another buffer": within("values", lambda v: v._replace(buffer=v.buffer + 1)),
    "a longer dimension": within("values", lambda v: v._replace(dims=((v.dims[0][0] + 1, v.dims[0][1]), *v.dims[1:])), dims=()),
    "a size": within("buffers", lambda b: b._replace(nbytes=b.nbytes + 1)),
    "a name lost": within("buffers", lambda b: b._replace(name=None), name=None),
    "a kind": within("ops", lambda o: o._replace(kind="view"), kind="view"),
    "a stream": within("ops", lambda o: o._replace(stream=o.stream + 1)),
    "a wait lost": within("ops", lambda o: o._replace(after=()), after=()),
    "an operand lost": within("ops", lambda o: o._replace(operands=o.operands[1:]), operands=()),
    "a promise lost": within("ops", lambda o: o._replace(promises=()), promises=()),
    "a slot": lambda terms: terms._replace(plans=((None if terms.plans[0][0] else (0, 0), *terms.plans[0][1:]), *terms.plans[1:])),
    "one memory": lambda terms: terms._replace(shared=not terms.shared),
    "an upload back": of_runs(lambda r: r._replace(skip=()), skip=()),
    "runs that wait": of_runs(lambda r: r._replace(waits=None), waits=None),
    "a read in time": of_runs(lambda r: r._replace(read_after=None), read_after=None),
}  # fmt: skip


def test_the_oracle_sees_a_fault_planted_in_the_terms():
    seen = set()
    for seed, parsed in documents(20_200, 40):
        terms = terms_of(loads(json.dumps(parsed)))
        for fault, plant in PLANTED.items():
            planted = plant(terms) if terms.plans and terms.plans[0] else None
            if planted is not None:
                assert terms_differ(parsed, planted), (seed, fault)
                seen.add(fault)
    assert seen == set(PLANTED)
