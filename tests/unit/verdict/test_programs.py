"""What is found once for all violations of a program is what its definition says of one."""

from itertools import product

import hurtful
import numpy as np
from allocsim.verdict.ways import Ways
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import programs

from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Problem
from allocsim.verdict.programs import Doings


def readers(program, doings, buffer):
    """Return (step, through views alone?) of every op other than `view` that reads a buffer."""
    home = program.values.buffer
    return [
        (op.step, not any(home[value] == buffer and doings.own[value] for value in op.operands))
        for op in program.ops
        if op.kind != VIEW and any(home[value] == buffer for value in op.operands)
    ]


@given(programs(defects=True), st.integers(-1, 6), st.integers(0, 8))
def test_reads_through_views_are_those_of_no_own_value(program, start, length):
    doings = Doings(program)
    for buffer in range(len(program.buffers)):
        reads = readers(program, doings, buffer)
        assert [doings.reads_through_view(buffer, step) for step, _ in reads] == [through for _, through in reads]
        assert not doings.reads_through_view(buffer, len(program.ops))
        outside = [through for step, through in reads if not start <= step < start + length]
        assert doings.last_read_outside_through_view(buffer, start, start + length) == bool(outside and outside[-1])


@given(programs(defects=True), st.data())
def test_outputs_copies_and_unread_uploads_are_what_they_are_called(program, data):
    doings, home, arena = Doings(program), program.values.buffer, program.buffers.arena
    assert doings.outputs == {int(home[value]) for op in program.ops if op.kind == HOST_READ for value in op.operands}
    uploads = [op for op in program.ops if op.kind == HOST_WRITE]
    skip = frozenset(data.draw(st.sets(st.sampled_from([op.step for op in uploads])))) if uploads else frozenset()
    read = {int(home[value]) for op in program.ops if op.kind != VIEW for value in op.operands}
    unread = [v for op in uploads if op.step not in skip for v in op.results if int(home[v]) not in read]
    for op in program.ops:
        assert doings.kind(op.step) == op.kind
        reads, writes = ({int(arena[home[value]]) for value in side} for side in (op.operands, op.results))
        assert doings.crosses(op.step) == bool(reads and writes and reads != writes)
        alike = any(program.values[a].same_layout(program.values[b]) for a in unread for b in op.operands)
        assert doings.copies_like_unread(op.step, skip) == alike


def spoilt_ways(pairs, bad, victim, writer):
    """Return whether a way from the writer back to the first time it meets the victim has a bad pair, going along every pair."""
    states, open_ = {(writer, False)}, [(writer, False)]
    while open_:
        recipient, spoilt = open_.pop()
        if recipient == victim:
            continue
        for pair in pairs:
            state = pair[0], spoilt or pair in bad
            if pair[1] == recipient and state not in states:
                states.add(state)
                open_.append(state)
    return (victim, True) in states


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda pair: pair[0] != pair[1]), max_size=9, unique=True)


@settings(max_examples=4 * settings().max_examples)
@given(PAIRS, st.data())
def test_a_way_is_bad_if_any_of_its_pairs_is(pairs, data):
    """Trees, buffers with several donors, and rings, which no sound belief has."""
    bad = set(data.draw(st.lists(st.sampled_from(pairs), min_size=1))) if pairs else set()
    count = 7
    program = hurtful.chain(count)
    problem = Problem.of(program, may_share=np.array(pairs, dtype=np.int32).reshape(-1, 2))
    ways = Ways(hurtful.plan(program, 0, problem=problem), bad)
    for victim, writer in product(range(count), repeat=2):
        assert ways.bad(victim, writer) == spoilt_ways(pairs, bad, victim, writer)
