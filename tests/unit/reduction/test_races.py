"""A race is reduced like any other fault: to the two accesses, two streams, and nothing that orders them; its cure is a wait."""

from dataclasses import replace

import pytest

from allocsim.judge.fast import check
from allocsim.model import Document, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.streams import without_wait
from allocsim.reduction import reduce, script
from allocsim.verdict.attribution import leading
from allocsim.verdict.causes import cure_all


def crowded(*, session=False):
    """Ten ops of no interest on either stream; in the midst y takes x's slot on one stream while the other has yet to read x."""
    b = ProgramBuilder("step", streams=("main", "side"))
    values = [b.tensor(name, "f32", (16,)) for name in ("x", "y", "z")]
    x, y, z = values
    b.op("host.write", (), (x,))
    last = x
    for number in range(10):
        made = b.tensor(f"a{number}", "f32", (16,))
        b.op("neg", (last,) if number else (), (made,), name=f"a{number}")
        last = made
    fork = b.op("exp", (x,), (z,), name="reader", stream=1, after=(0,))
    for number in range(10):
        made = b.tensor(f"b{number}", "f32", (16,))
        b.op("neg", (z,), (made,), name=f"b{number}", stream=1)
    b.op("sqr", (last,), (y,), name="writer")
    end = len(b._ops) - 1
    b.op("add", (y, z), (b.tensor("sum", "f32", (16,)),), name="join", after=(end - 1,))
    program = b.build()
    slots = [64 * index for index in range(len(program.buffers))]
    slots[1] = slots[0]  # y over x
    plan = plan_of(program, slots)
    assert fork < end
    return Document.of(Run.of(plan), Run.of(plan)) if session else Document.of(plan)


@pytest.mark.parametrize("session", [False, True])
def test_a_race_is_reduced_to_its_two_accesses(session):
    document = crowded(session=session)
    first = leading(document)
    assert (first.violation.kind, first.class_, first.fault) == ("Race", "C09", "plan")
    found = reduce(document)
    assert found.complete
    assert found.cause.key == first.key
    (program,) = found.document.programs
    assert len(program.ops) <= 3
    assert len(program.streams) == 2
    assert len(set(program.ops.stream.tolist())) == 2
    assert len(found.document.runs) == 1
    assert not found.cause.violation.in_apart


def test_what_is_left_is_the_race_alone():
    """One race is left and no more; with both accesses on one stream there is none."""
    small = reduce(crowded()).document
    (program,) = small.programs
    assert check(small).counts == {"Race": 1}
    together = replace(program, ops=replace(program.ops, stream=program.ops.stream * 0))
    plan = replace(small.plans[0], program=together, problem=None)
    assert "Race" not in check(Document.of(plan)).counts


def test_it_is_written_as_a_test_that_passes():
    found = reduce(crowded())
    source = script(found.document, title="A race.")
    space = {}
    exec(compile(source, "test_race.py", "exec"), space)
    tests = [function for name, function in space.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()
    assert "Race" in source


def test_its_cure_is_one_wait_which_costs_no_bytes():
    found = cure_all(crowded())
    (change,) = found.changes
    assert change.kind == "wait"
    assert found.minimal
    assert (found.nbytes, found.overlap > 0) == (0, True)
    assert check(found.document).clean
    (program,) = found.document.programs
    without = without_wait(program, change.op, change.after)
    assert not check(Document.of(replace(found.document.plans[0], program=without))).clean
