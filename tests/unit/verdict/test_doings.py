"""What is found once for all violations of a program is what its definition says of one."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from strategies import programs

from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Role
from allocsim.verdict.doings import Doings
from allocsim.verdict.dossier import climb
from repro.small.words import program as words


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
    for value in program.values:
        into = [v for op in uploads for v in op.results if home[v] == value.buffer]
        alike = any(program.values[a].same_layout(program.values[b]) for a in unread for b in (value.index, *into))
        assert doings.instead_of_unread(value.index, skip) == alike


PAIRS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda pair: pair[0] != pair[1]), max_size=9, unique=True
)


@given(PAIRS, st.integers(0, 6), st.integers(0, 6))
def test_a_way_leads_from_a_recipient_up_to_a_donor_along_pairs_that_are_there(pairs, donor, recipient):
    """Trees, buffers with several donors, and rings, which no sound belief has."""
    donors = {}
    for one, other in pairs:
        donors[other] = (*donors.get(other, ()), one)
    found = climb(donors, donor, recipient)
    reached, open_ = set(), [recipient]
    while open_:
        for one in donors.get(open_.pop(), ()):
            if one not in reached:
                reached.add(one)
                open_.append(one)
    assert (found is not None) == (donor in reached and donor != recipient)
    if found is not None:
        assert (found[0][0], found[-1][1]) == (donor, recipient)
        assert all(pair in pairs for pair in found)
        assert all(one[1] == other[0] for one, other in pairwise(found))


def test_the_host_lays_some_of_a_buffer_unless_every_upload_into_it_is_left_out():
    made = words("a:x[4@0] = host.write; b:x[4@16] = host.write; c = f a b; host.read c", roles={"x": Role.INPUT})
    doings = Doings(made)
    assert [doings.filled(0, frozenset(left)) for left in ((), (0,), (1,), (0, 1))] == [True, True, True, False]
