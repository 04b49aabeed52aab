"""What is asked of pins: they never make a plan unsound, and what is pinned is there at the end."""

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS, pin_all
from allocsim.fuzzing.batch import join, join_plans
from allocsim.fuzzing.broken_property import case_of, told_of
from allocsim.fuzzing.bulk import Cut, batch_of
from allocsim.fuzzing.fuzz_case import Answer, FuzzCase
from allocsim.fuzzing.mutants import MUTANTS
from allocsim.fuzzing.properties import PROPERTIES, asked_of, with_pins_read
from allocsim.fuzzing.told_constraints import gapped, told_in
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Problem, Role
from allocsim.programs.builder import ProgramBuilder, plan_of, read_at_end

KEPT = PROPERTIES["kept"]


def chain(*, in_place=(), streams=1):
    """x is written, y is made of x, z of y; nobody reads z."""
    b = ProgramBuilder("chain", arenas=(Arena(name="cpu"),), streams=[f"s{n}" for n in range(streams)])
    x, y, z = (b.tensor(name, "f32", (2,)) for name in "xyz")
    b.op(HOST_WRITE, (), (x,))
    b.op("neg", (x,), (y,), in_place=in_place)
    b.op("neg", (y,), (z,), in_place=in_place, stream=streams - 1, after=(1,) if streams > 1 else ())
    return b.build()


def mutated():
    """x is written, mutated, and read by nobody."""
    b = ProgramBuilder("mutated", arenas=(Arena(name="cpu"),))
    x, y = b.buffer("x", 8), b.buffer("y", 8)
    old, new = (b.value(name, x, "f32", (2,)) for name in ("old", "new"))
    other = b.value("other", y, "f32", (2,))
    b.op(HOST_WRITE, (), (old,))
    b.op("scale", (old,), (new,), in_place=((0, 0),))
    b.op(HOST_WRITE, (), (other,))
    return b.build()


@pytest.mark.parametrize(
    ("program", "slots", "pins", "lost"),
    [
        (chain(), [0, 8, 0], [0], True),
        (chain(), [0, 8, 0], [1, 2], False),
        (chain(), [0, 8, 16], [0, 1, 2], False),
        (chain(), ["own", 0, 8], [0, 1, 2], False),
        (chain(in_place=((0, 0),)), [0, 0, 0], [2], False),
        (chain(in_place=((0, 0),)), [0, 0, 8], [0, 1], True),
        (chain(streams=2), [0, 8, 0], [0], True),
        (chain(streams=2), [0, 8, 16], [0, 1, 2], False),
        (mutated(), [0, 8], [0, 1], False),
        (mutated(), [0, 0], [0], True),
        (mutated(), [0, 0], [1], False),
    ],
)
def test_a_pinned_buffer_is_lost_where_another_is_written_over_it_later(program, slots, pins, lost):
    plan = plan_of(program, slots)
    pinned = np.isin(np.arange(len(program.buffers)), pins)
    assert check(Document.of(plan)).clean  # nothing is wrong but for the pins

    why = KEPT.broken(FuzzCase(program=program, pinned=pinned), Answer(plan=plan))
    assert (why is not None) is lost
    batch = join([program, program])
    both = join_plans(batch, [plan_of(program, ["own"] * len(slots)), plan])
    whole = FuzzCase(program=batch.program, pinned=np.concatenate([pinned, pinned]))
    assert list(KEPT.suspects(batch, both, whole)) == [1] * lost


def test_a_program_without_ops_has_written_nothing_that_could_be_lost():
    """Nor has it lives by its ops: where its parameters may lie is for its belief to say."""
    b = ProgramBuilder("empty", arenas=(Arena(name="cpu"),))
    for name in "xy":
        b.value(name, b.buffer(name, 8, role=Role.PARAMETER), "f32", (2,))
    plan, nowhere = plan_of(b.build(), [0, 0]), np.zeros(2, dtype=np.bool_)

    assert KEPT.broken(FuzzCase(program=plan.program, pinned=nowhere, own=nowhere), Answer(plan=plan)) is None
    case = FuzzCase(program=plan.program, pinned=nowhere, own=nowhere)
    assert PROPERTIES["told"].broken(case, Answer(plan=plan)) is None


def test_what_is_not_pinned_is_nobodys_business():
    plan = plan_of(chain(), [0, 8, 0])

    assert KEPT.broken(FuzzCase(program=plan.program), Answer(plan=plan)) is None
    assert list(KEPT.suspects(join([plan.program]), plan, FuzzCase(program=plan.program))) == []


def test_an_unsound_plan_is_another_propertys_business():
    plan = plan_of(chain(), [0, 0, 0])
    case = FuzzCase(program=plan.program, pinned=pin_all(plan.program))

    assert PROPERTIES["pins"].broken(case, Answer(plan=plan)) is not None
    assert KEPT.broken(case, Answer(plan=plan)) is None


def test_a_planner_that_is_told_of_no_pins_is_not_asked_to_keep_them():
    assert {"pins", "kept", "told"} <= set(asked_of(None))
    assert not {"pins", "kept", "told"} & set(asked_of(None, told=False))


@pytest.mark.parametrize("name", [name for name in ALLOCATORS if name not in {"exact", "best"}])
def test_the_shelf_keeps_every_pin_of_a_batch(name):
    batch = batch_of(np.random.default_rng(9), 60)
    pinned = pin_all(batch.program)
    case = FuzzCase(program=batch.program, pinned=pinned)

    assert list(KEPT.suspects(batch, ALLOCATORS[name].plan(batch.program, case.constraints), case)) == []


def test_a_planner_that_forgets_pins_it_is_told_of_is_caught_by_this_alone():
    batch = batch_of(np.random.default_rng(9), 60)
    case = FuzzCase(program=batch.program, pinned=pin_all(batch.program))
    plan = MUTANTS["told_pins_forgotten"].allocator().plan(batch.program, case.constraints)

    assert check(Document.of(plan)).clean
    assert list(KEPT.suspects(batch, plan, case)) != []


def test_the_host_reads_at_the_end_after_every_stream():
    program = chain(streams=2)
    grown = read_at_end(program, [0, 2])
    last = grown.ops[len(program.ops)]

    assert (last.kind, last.operands, last.results) == (HOST_READ, (0, 2), ())
    assert last.stream == 1
    assert last.after == (1,)  # the last op of the other stream
    assert list(grown.ops)[:-1] == list(program.ops)
    assert with_pins_read(plan_of(program, [0, 8, 16]), np.zeros(3, dtype=bool)).program.ops[3].operands == ()


def lives(gaps):
    """x lives in six steps, y in two of them, with gaps in x; no ops."""
    b = ProgramBuilder("lives", arenas=(Arena(name="cpu"),))
    for name in "xy":
        b.buffer(name, 8)
    program = b.build()
    return FuzzCase(program=program, believed=Problem.of(program, start=[0, 2], stop=[6, 4], gaps=gaps))


@pytest.mark.parametrize(
    ("gaps", "slots", "broken"),
    [
        ({0: ((1, 5),)}, [0, 0], False),
        ({0: ((2, 4),)}, [0, 0], False),
        ({0: ((2, 3),)}, [0, 0], True),
        ({0: ((1, 3), (4, 5))}, [0, 0], True),
        ({0: ((1, 2),)}, [0, 8], False),
    ],
)
def test_two_lives_may_share_bytes_in_a_gap_and_nowhere_else(gaps, slots, broken):
    case, row = lives(gaps), PROPERTIES["gaps"]
    plan = plan_of(case.program, slots)
    assert (row.broken(case, Answer(plan=plan)) is not None) is broken

    batch = join([case.program, case.program])
    both = join_plans(batch, [plan_of(case.program, [0, 8]), plan])
    twice = gaps | {buffer + 2: gap for buffer, gap in gaps.items()}
    believed = Problem.of(batch.program, start=[0, 2] * 2, stop=[6, 4] * 2, gaps=twice)
    whole = FuzzCase(program=batch.program, believed=believed)
    assert list(row.suspects(batch, both, whole)) == [1] * broken
    assert told_in(whole, batch.buffer_starts) == {"gap in a life": 2}


def test_a_belief_with_gaps_is_the_lives_of_a_program_and_is_read_back():
    batch = batch_of(np.random.default_rng(3), 32)
    cut = Cut(batch).told("gapped")
    many = 0
    for place, case in enumerate(cut):
        alone = gapped(batch[place])
        assert np.array_equal(case.believed.start, alone.believed.start)
        assert np.array_equal(case.believed.stop, alone.believed.stop)
        many += len(case.believed.gaps)
        for buffer, gaps in case.believed.gaps.items():
            edges = [case.believed.start[buffer], *(step for gap in gaps for step in gap), case.believed.stop[buffer]]
            assert edges == sorted(set(edges))
        for again in (FuzzCase.of(case.document()), case_of(case.program, told_of(case))):
            assert again.kind == "gapped"
            assert again.believed.gaps == case.believed.gaps
            assert np.array_equal(again.believed.stop, case.believed.stop)
    assert many > 10


def test_what_an_offset_that_is_told_takes_is_nobodys_waste():
    """Told of a program or in a belief: x lies at 64, so the plan ends higher than both side by side."""
    case = lives({})
    decided = Problem.of(case.program, start=[0, 2], stop=[6, 4], fixed={0: 64})
    plan, row = plan_of(case.program, [64, 0]), PROPERTIES["no_worse"]

    assert row.broken(FuzzCase(program=case.program), Answer(plan=plan)) is not None
    for told in (FuzzCase(program=case.program, believed=decided), FuzzCase(program=case.program, fixed={0: 64})):
        assert row.broken(told, Answer(plan=plan)) is None
        assert row.broken(told, Answer(refused="no room")) is None
        assert list(row.suspects(join([case.program]), plan, told)) == []


def test_a_refusal_where_no_arena_has_an_end_is_one_finding():
    case, refusal = FuzzCase(program=lives({}).program), Answer(refused="no room")
    assert all(arena.capacity is None for arena in case.program.arenas)
    assert [name for name in ("answers", "no_worse") if PROPERTIES[name].broken(case, refusal) is not None] == [
        "answers"
    ]


def test_a_planner_that_places_no_belief_is_not_asked_for_gaps():
    assert "gaps" in asked_of(None)
    assert "gaps" not in asked_of(None, places=False)
