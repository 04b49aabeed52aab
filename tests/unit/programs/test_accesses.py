"""First and last accesses, against those that the tests find op by op."""

import facts
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import programs

from allocsim.model import HOST_WRITE
from allocsim.programs.accesses import NEVER, first_and_last, last_writes


@given(program=programs(), data=st.data())
@settings(max_examples=60)
def test_first_and_last_are_those_found_op_by_op(program, data):
    uploads = [op.step for op in program.ops if op.kind == HOST_WRITE]
    skip = data.draw(st.sets(st.sampled_from(uploads)) if uploads else st.just(set()))
    done = facts.accesses(program, skip)
    first, last = first_and_last(program, skip=skip)
    assert first.tolist() == [min((a.step for a in done[b]), default=NEVER) for b in range(len(program.buffers))]
    assert last.tolist() == [max((a.step for a in done[b]), default=NEVER) for b in range(len(program.buffers))]


@given(program=programs())
@settings(max_examples=60)
def test_last_writes_are_those_found_op_by_op(program):
    written = dict.fromkeys(range(len(program.buffers)), NEVER)
    for op in program.ops:
        if op.kind != "view":
            written |= {program.values[value].buffer: op.step for value in op.results}
    assert last_writes(program).tolist() == list(written.values())
