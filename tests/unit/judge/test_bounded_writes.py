"""Results of one op that lie near each other are compared in counted steps, and what is left is said."""

import numpy as np
import pytest

from allocsim.errors import ModelError
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder, plan_of


def crowded(results, plans):
    """One op whose results are the columns of one matrix: hulls meet, bytes do not; each plan lays it elsewhere."""
    b = ProgramBuilder("crowded")
    matrix = b.buffer("m", 4 * results * 3)
    columns = [b.value(f"c{i}", matrix, "f32", (3,), strides=(4 * results,), offset=4 * i) for i in range(results)]
    b.op("split", (), columns)
    program = b.build()
    return Document.of(*(plan_of(program, {"m": 64 * number}) for number in range(plans)))


def test_a_right_document_within_the_steps_is_clean_and_beyond_them_says_what_was_left():
    inside, beyond = crowded(40, 3), crowded(520, 3)

    assert check(inside).clean
    assert check(crowded(520, 1)).clean
    with pytest.raises(
        ModelError, match=r"these parts were not examined: whether results of an op overlap from run 1 on, of 3 runs"
    ):
        check(beyond)


@pytest.mark.parametrize("times", [1, 70, 500])
def test_a_value_read_many_times_by_one_op_is_told_once(times):
    b = ProgramBuilder("reads")
    x, y, z = (b.tensor(name, "f32", (4,)) for name in "xyz")
    b.op("make", (), (x,))
    b.op("make", (), (y,))
    b.op("add", (*[x] * times, y, x), (z,))
    b.op("host.read", (z,), ())
    program = b.build()
    wrong = Document.of(plan_of(program, {"x": 0, "y": 0, "z": 16}))
    found = [v for v in check(wrong).violations if v.kind == "StaleRead"]

    assert [v.value for v in found] == [0]
    assert np.count_nonzero(program.ops.operands == 0) >= times
