"""What a greedy removal keeps: enough, and nothing that can be left out."""

from hypothesis import given
from hypothesis import strategies as st

from allocsim.reduction.search import thinned


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sets(st.integers(0, n - 1), min_size=1).map(frozenset), min_size=1))
    )
)
def test_what_is_thinned_holds_and_nothing_of_it_can_be_left_out(drawn):
    count, enough = drawn
    asked = []

    def holds(chosen):
        asked.append(chosen)
        return any(needed <= set(chosen) for needed in enough)  # monotone: more never hurts

    found = thinned(range(count), holds)
    assert holds(found)
    assert not any(holds(tuple(e for e in found if e != left_out)) for left_out in found)
    assert len(asked) <= 4 * count**2 + 8
