"""The order of ops over streams, and waits of which none is implied by the others."""

import pytest

from allocsim.cure.waits import Ordered, pruned
from repro.small.words import program

TWO = program("x = host.write; a = f x; b = g x ~1; c = h x ~1 ^1; d = h x ~1")


def test_an_op_knows_of_each_stream_the_last_op_before_it():
    assert Ordered.of(TWO).known.tolist() == [[0, -1], [1, -1], [-1, 2], [1, 3], [1, 4]]
    assert Ordered.of(TWO).waiting([(2, 0)]).known.tolist() == [[0, -1], [1, -1], [0, 2], [1, 3], [1, 4]]


@pytest.mark.parametrize(
    ("waits", "left"),
    [
        (((2, 0),), ((2, 0),)),
        (((2, 1), (3, 0)), ((2, 1),)),
        (((2, 0), (3, 1)), ((2, 0), (3, 1))),
        (((2, 1), (3, 0), (4, 1)), ((2, 1),)),
    ],
)
def test_a_wait_that_another_implies_is_left_out(waits, left):
    free = Ordered.of(program("x = host.write; a = f x; b = g x ~1; c = h x ~1; d = h x ~1"))
    assert pruned(free, waits, waits) == left
