"""Two and three faults within one program: every party named, none invented, and cures that cure whatever else is wrong.

Some dozens run here; thousands by hand (`python benchmarks/verdicts.py causes --several 0:5000`).
"""

import pytest
from cures import wrong_cures
from several import planted, several, unmatched, wrong_with_several

from allocsim.verdict import judge


@pytest.mark.parametrize("count", [2, 3])
def test_every_fault_is_named_and_none_is_invented(count):
    tried = list(several(range(40), count))
    assert len(tried) > 10
    assert sum(shows for one in tried for *_, shows in one.faults) > 20
    verdicts = {one.name: judge(one.evidence) for one in tried}
    assert {one.name: found for one in tried if (found := wrong_with_several(one, verdicts[one.name]))} == {}
    assert {name: found for name, verdict in verdicts.items() if (found := wrong_cures(verdict)[0])} == {}


TOGETHER = (
    (("left_out", "no_wait"), 110, {("C06", "caller"), ("C09", "schedule")}, "what a later run misses makes no two buffers meet"),
    (("shifted", "left_out"), 153, {("C06", "caller"), ("C12", "plan")}, "nor does it make more slots meet"),
    (("state", "no_wait"), 233, {("C07", "caller"), ("C09", "plan")}, "nor does what it misses of an earlier one"),
    (("ends_early", "booked"), 282, {("C01", "plan"), ("C13", "plan")}, "a book that follows a wrong lifetime is that lifetime's"),
    (("bad_pair", "no_wait"), 372, {("C03", "plan"), ("C09", "schedule")}, "one wait is left out, though a pair hides what it was for"),
    (("undeclared", "gap"), 2137, {("C01", "plan"), ("C03", "caller")}, "a pair is guilty of its own op alone"),
)  # fmt: skip
"""Faults planted together, the seed, what they are, and what was got wrong before."""


@pytest.mark.parametrize(("names", "seed", "right", "why"), TOGETHER, ids=[" and ".join(row[0]) for row in TOGETHER])
def test_of_two_faults_neither_is_taken_for_a_third(names, seed, right, why):
    laid = planted(names, seed)
    assert laid is not None
    found = [(c.class_, c.party) for c in judge(laid.evidence, cures=False).causes]
    assert (len(found), set(found)) == (len(names), right), why


def test_a_slot_as_small_as_believed_does_not_make_it_the_one_that_was_moved():
    laid = planted(("small", "gap", "shifted"), 129)
    assert laid is not None
    charges = {(c.change.kind, c.change.buffer) for c in judge(laid.evidence, cures=False).causes}
    assert charges == {("lifetime", 11), ("size", 6), ("slot", 2)}


def test_a_wrong_answer_is_seen():
    faults = (("plan", frozenset({"C01"}), True), ("caller", frozenset({"C05"}), False))
    assert not unmatched([("C01", "plan")], faults)
    assert not unmatched([("C05", "caller"), ("C01", "plan")], faults)
    assert unmatched([("C05", "caller")], faults)
    assert unmatched([("C01", "plan"), ("C01", "plan")], faults)
    assert unmatched([("C02", "plan")], faults)
