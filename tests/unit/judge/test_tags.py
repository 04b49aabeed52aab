"""Which buffers hold one tag, and when: what runs share, what a state holds while it lives, and what a bound on work leaves out."""

from itertools import product

import pytest

from allocsim import plan_of
from allocsim.judge.fast import check, s_tags
from allocsim.judge.fast.s_tags import _while_live
from allocsim.model import Document, Role, Run
from allocsim.programs.builder import ProgramBuilder


def copied_state():
    """A state that is read, and then made the copy of another; both lie in one slot."""
    b = ProgramBuilder("p")
    p, q = (b.tensor(name, "f32", (16,), role=Role.STATE) for name in "pq")
    b.op("use", (p, q), ())
    b.same((p,), (b.value("q after", 1, "f32", (16,)),))
    return b.build()


def test_runs_alike_have_answers_of_their_own_where_their_buffers_hold_other_tags():
    plan = plan_of(copied_state(), [0, 0])
    found = check(Document.of(Run.of(plan), Run.of(plan))).of_kind("Overlap")
    assert [(one.run, one.op) for one in found] == [(0, 0)]  # in run 1 both hold what run 0 copied


@pytest.mark.parametrize(("beyond", "bound"), [(0, 64), (1, 128)])
def test_where_comparing_takes_too_many_steps_two_that_ever_hold_one_tag_count_once(beyond, bound, monkeypatch):
    """The bound stays one: it is smaller, and true."""
    document = Document.of(plan_of(copied_state(), [0, 64]))
    exact, spans = s_tags.agreement, {}

    def looked(one, other, delta):
        spans.update(one=len(one), other=len(other))
        return exact(one, other, delta)

    monkeypatch.setattr(s_tags, "agreement", looked)
    assert check(document).stats.lower_bound_bytes == 128
    monkeypatch.setattr(s_tags, "PAIRS", spans["one"] * spans["other"] + beyond)
    assert check(document).stats.lower_bound_bytes == bound


@pytest.mark.parametrize("written", [False, True])
def test_a_state_holds_a_tag_before_and_after_the_ops_between_which_it_lives(written):
    for start, born, over in product(range(3), range(-1, 6), range(7)):
        for stop in range(start + 1, 6):
            before = {op for op in range(start + 1, stop) if born < op <= over}
            after = {op for op in range(start, stop - (not written)) if born <= op < over}
            rows = _while_live([(0, 8, born, over, None)], [(start, stop)], {stop - 1} if written else set())
            assert {op for _, _, first, last, _ in rows for op in range(first, last + 1)} == before | after
