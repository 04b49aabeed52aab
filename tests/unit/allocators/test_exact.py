"""The exact belief: lifetimes by access, and the declared pairs that are permitted."""

from allocsim.allocators import Constraints, exact
from allocsim.fuzzing.bulk import batches
from allocsim.model import Role
from allocsim.programs.access_steps import first_and_last


def believe(program, **told):
    return exact.believe(program, Constraints.of(program, **told))


def pairs(problem):
    return [tuple(pair) for pair in problem.may_share.tolist()]


def test_lifetimes_run_from_first_to_last_access_and_views_are_none(graph):
    x = graph.leaf(1)  # step 0
    v = graph.view(x, 1)  # step 1
    y = graph.op("f", v, units=1)  # step 2
    graph.view(y, 1)  # step 3
    graph.tensor(1)

    problem = believe(graph.build())

    assert problem.start.tolist() == [0, 2, 0]
    assert problem.stop.tolist() == [3, 3, 0]


def test_pinned_buffers_live_to_the_end_and_persistent_ones_throughout(graph):
    x = graph.leaf(1)
    y = graph.op("f", x, units=1)
    graph.op("f", y, units=1)
    graph.builder.op("f", (graph.tensor(1, role=Role.STATE),), (graph.tensor(1),))

    problem = believe(graph.build(), pins=[0])

    assert problem.start.tolist() == [0, 1, 2, 0, 3]
    assert problem.stop.tolist() == [4, 3, 3, 4, 4]


def test_a_declared_pair_is_offered_by_its_last_reader(graph):
    x = graph.leaf(1)
    y = graph.op("f", x, units=1)
    graph.op("f", x, y, units=1)

    assert pairs(believe(graph.build())) == [(0, 2), (1, 2)]


def test_reading_the_donor_twice_is_permitted_if_both_operands_are_declared(graph):
    x = graph.leaf(1)
    graph.op("f", x, x, units=1)
    declared = graph.build()

    assert pairs(believe(declared)) == [(0, 1)]


def test_nothing_is_offered_against_the_rules(graph):
    x = graph.leaf(2)
    part = graph.view(x, 1)
    y = graph.tensor(2)
    graph.builder.op("f", (x, part), (y,), in_place=((0, 0),))  # the second operand reads the donor undeclared
    z = graph.tensor(2)
    graph.builder.op("f", (y,), (z,))  # nothing declared
    u = graph.tensor(2)
    graph.builder.op("f", (z,), (u,), in_place=None)  # nobody knows
    w = graph.op("f", u, units=1)  # another layout
    graph.op("f", w, units=1)  # the donor is read by the host
    graph.read(w)

    assert pairs(believe(graph.build())) == []


def test_own_persistent_and_pinned_buffers_are_no_donors(graph):
    for buffer in ({}, {}, {"role": Role.PARAMETER}):
        graph.op("f", graph.leaf(1, **buffer), units=1)

    assert pairs(believe(graph.build(), pins=[0], own=[2])) == []


def test_pairs_of_drawn_programs_are_those_that_the_rule_permits_one_by_one():
    for batch in batches(3, 0, 700):
        program = batch.program
        ops, values = list(program.ops), list(program.values)
        first, last = first_and_last(program)
        asked = [
            (op, declared, values[op.operands[declared[0]]].buffer, values[op.results[declared[1]]].buffer)
            for op in ops
            for declared in op.in_place or ()
        ]
        wanted = [
            (donor, recipient)
            for op, (_, position), donor, recipient in asked
            if donor != recipient
            and (last[donor], first[recipient]) == (op.step, op.step)
            and not program.buffers.persistent[[donor, recipient]].any()
            and program.buffers.arena[donor] == program.buffers.arena[recipient]
            and program.buffers.nbytes[donor] >= program.buffers.nbytes[recipient]
            and not Constraints.of(program).pinned[donor]
            and permitted(op, values, position, donor, recipient)
        ]
        assert pairs(believe(program)) == list(dict.fromkeys(wanted))


def permitted(op, values, position, donor, recipient):
    """Whether a result may lie over all that its op reads in the donor, read value by value."""
    written = [values[result].buffer for result in op.results]
    result = values[op.results[position]]
    read = [(place, values[operand]) for place, operand in enumerate(op.operands)]
    return (
        written.count(recipient) == 1
        and donor not in written
        and all(value.buffer != recipient for _, value in read)
        and all(
            (place, position) in op.in_place and value.offset == result.offset and value.same_layout(result)
            for place, value in read
            if value.buffer == donor
        )
    )
