"""The search for the smallest change: ddmin is 1-minimal, elements edit the belief as they say, and a cure cures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import belief, plan, program

from allocsim import cure
from allocsim.allocators import find
from allocsim.checks import check
from allocsim.cure import Deny, Extend, Pin
from allocsim.model import Document, Run

TEXT = "x = host.write; a = f x; b = g! a; c = h b a; host.read c"
MADE = program(TEXT)


def clean(made):
    return check(Document.of(Run.of(made))).clean


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sets(st.integers(0, n - 1), min_size=1).map(frozenset), min_size=1))
    )
)
def test_ddmin_gives_a_subset_of_which_nothing_can_be_left_out(drawn):
    count, enough = drawn
    asked = []

    def cures(chosen):
        asked.append(chosen)
        return any(needed <= set(chosen) for needed in enough)  # monotone: more never hurts

    found = cure.minimise(range(count), cures)
    assert cures(found)
    assert not any(cures(tuple(e for e in found if e != left_out)) for left_out in found)
    assert len(asked) <= 4 * count**2 + 8


def test_deny_removes_every_pair_of_that_class_and_no_other():
    problem = belief(MADE, share="a>b x>a")
    assert cure.pair_class(MADE, 1, 2) == (Deny("g", 0, 0),)
    assert cure.apply(problem, [Deny("g", 0, 0)]).may_share.tolist() == [[0, 1]]
    assert cure.apply(problem, [Deny("g", 1, 0)]).may_share.tolist() == [[1, 2], [0, 1]]


def test_a_view_of_the_donor_counts_as_the_donor_and_what_no_op_writes_has_no_class():
    made = program("x = host.write; v:x = view x; a = f! v; host.read a", roles=None)
    assert cure.pair_class(made, 0, 1) == (Deny("f", 0, 0),)
    assert cure.pair_class(program("a = f w; host.read a", roles=None), 1, 0) == ()


def test_pin_and_extend_only_ever_lengthen_a_life():
    problem = belief(MADE)
    pinned = cure.apply(problem, [Pin(1)])
    assert (pinned.pinned[1], pinned.stop[1], pinned.start[1]) == (True, len(MADE.ops), problem.start[1])
    assert cure.apply(problem, [Extend(1, 2)]).stop.tolist() == problem.stop.tolist()
    assert cure.apply(problem, [Extend(1, 5)]).stop[1] == 5


def test_only_pairs_at_one_address_are_used():
    assert cure.used_pairs(plan(MADE, "a=0 b=0", belief(MADE, share="a>b x>a"))) == ((1, 2),)
    assert cure.used_pairs(plan(MADE, "a=own b=own", belief(MADE, share="a>b"))) == ()
    assert cure.used_pairs(plan(MADE, "a=0 b=0")) == ()


def test_a_missed_reader_is_cured_by_the_lifetime_alone():
    problem = belief(MADE, a=(1, 2))
    place = find("greedy_by_size").place
    assert not clean(place(problem))
    found = cure.find(problem, place, suspects=[Pin(0), Extend(1, 4), Pin(2)], right=clean)
    assert found.elements == (Extend(1, 4),)
    assert found.minimal
    assert clean(found.plan)
    assert found.plan.problem is found.problem


def test_others_are_tried_only_where_suspects_do_not_suffice():
    problem = belief(MADE, a=(1, 2))
    place = find("greedy_by_size").place
    found = cure.find(problem, place, suspects=[Pin(0)], others=[Pin(2), Extend(1, 4)], right=clean)
    assert Extend(1, 4) in found.elements
    assert found.minimal
    assert cure.find(problem, place, suspects=[Pin(0)], others=[], right=clean) is None
    assert cure.find(problem, place, suspects=[], right=clean) is None


def test_each_set_is_tried_once():
    tried = []

    def right(made):
        tried.append(made.problem.stop.tolist() + made.problem.pinned.tolist())
        return bool(made.problem.pinned[0] and made.problem.pinned[2])

    found = cure.find(belief(MADE), find("reference").place, suspects=[Pin(b) for b in range(3)], right=right)
    assert found.elements == (Pin(0), Pin(2))
    assert found.trials == len(tried)
    assert len({str(t) for t in tried}) == len(tried)


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (Deny("g", 1, 0), "forbid the in-place pair of g (result 0 over operand 1)"),
        (Pin(1), "pin a"),
        (Extend(1, 4), "keep a until op 3 has run"),
    ],
)
def test_elements_say_what_they_are(element, words):
    assert element.describe(MADE) == words
