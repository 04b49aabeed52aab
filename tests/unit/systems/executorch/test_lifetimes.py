"""ExecuTorch's lifetimes as beliefs: nodes to ops by hand, and two programs that were recorded from memory, judged without executorch."""

import numpy as np
import pytest
from plan_laws import PLANS, causes, law_of_elide, law_of_shift

from allocsim import systems
from allocsim.judge.fast import check
from allocsim.model import Document, Problem
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.placed_plans import plan_of
from allocsim.systems.executorch.lifetimes import EmittedNode, PlannedMethod, Specified, believed
from allocsim.verdict import causes_of

FOLDER = PLANS / "executorch"
BLOCK, CONDS = FOLDER / "live_block.json", FOLDER / "live_conds.json"


def test_a_recorded_program_with_branches_a_loop_and_a_kept_buffer_is_clean():
    report = check(systems.load(BLOCK))

    assert report.violations == ()
    assert {row.kind for row in report.warnings} == {"LifetimeTooLong"}


def test_beliefs_that_hold_do_not_hide_what_a_move_does():
    """The planner's lifetimes are true; the slots are the ones of the branches."""
    assert set(causes(CONDS)) == {("C15", "plan")}
    assert "LifetimeIgnored" in {row.kind for row in check(systems.load(CONDS)).violations}


@pytest.mark.parametrize("path", [BLOCK, CONDS])
def test_a_shifted_slot_and_a_missing_op_are_found(path):
    assert law_of_shift(systems.load(path), seed=1) > 0
    assert law_of_elide(systems.load(path), seed=2, most=6) > 0


def test_a_belief_that_is_one_step_short_is_found():
    document = systems.load(BLOCK)
    problem = document.plans[0].problem
    index = next(at for at, name in enumerate(problem.program.buffers.names) if name == "value 25")
    read_last = 15
    stop = problem.stop.copy()
    stop[index] = read_last - 1
    kinds = {
        row.kind for row in check(Document.of(Problem.of(problem.program, start=problem.start, stop=stop))).violations
    }

    assert kinds == {"LifetimeTooShort"}


def looped():
    """Return x, then a body that runs twice and makes a temporary of it, then what reads both results."""
    b = ProgramBuilder("forward")
    x, first, one, second, two, out = (b.tensor(name, "f32", (4,)) for name in ("x", "t.0", "r.0", "t.1", "r.1", "out"))
    b.op("host.write", (), (x,))
    b.op("exp", (x,), (first,), meta={"instruction": 0})
    b.op("row", (first,), (one,), meta={"instruction": 1})
    b.op("exp", (x,), (second,), meta={"instruction": 0})
    b.op("row", (second,), (two,), meta={"instruction": 1})
    b.op("add", (one, two), (out,), meta={"instruction": 2})
    b.op("host.read", (out,), ())
    program = b.build()
    metas = {0: {"value": 0}, 1: {"value": 1}, 3: {"value": 1}, 5: {"value": 2}}
    object.__setattr__(program.buffers, "meta", metas)
    return plan_of(program, {at: 16 * at for at in range(6)})


METHOD = PlannedMethod(
    nodes=(
        EmittedNode(0, 2, 0, 2),
        EmittedNode(1, 1, 0, 1),
        EmittedNode(1, 2, 1, 2),
        EmittedNode(0, 4, 2, 3),
    ),
    length=6,
    specs={
        0: Specified(0, 0, 2, 16, (0, 0)),
        1: Specified(1, 1, 2, 16, (0, 16)),
        2: Specified(0, 3, 5, 16, (0, 80)),
    },
)
"""Graph 0: x, a loop (node 2), a sum (node 4), the return (node 5). Graph 1, its body: a temporary (1), a row (2)."""


def test_a_node_is_all_ops_of_its_instructions_and_a_lifetime_of_a_body_holds_in_each_turn():
    problem = believed(looped(), METHOD)

    assert list(zip(problem.start[[0, 1, 3, 5]], problem.stop[[0, 1, 3, 5]], strict=True)) == [
        (0, 5),
        (1, 3),
        (3, 5),
        (5, 7),
    ]


def test_what_is_not_specified_is_believed_to_live_as_long_as_it_is_used():
    problem = believed(looped(), METHOD)

    assert (problem.start[2], problem.stop[2]) == (2, 6)


def test_what_the_graph_returns_was_told_to_the_planner_so_a_returned_tensor_freed_early_is_its_fault():
    assert np.flatnonzero(believed(looped(), METHOD).pinned).tolist() == [5]
    found = {
        cause.class_: (cause.party, cause.first.op) for cause in causes_of(systems.load(FOLDER / "view_also.json"))
    }
    assert found["C05"] == ("plan", 9)


def test_tensors_over_each_other_are_one_life_cut_where_the_next_is_written_or_the_first_is_read_behind_that():
    plan = looped()
    object.__setattr__(plan.program.buffers, "meta", {0: {"value": 0}, 1: {"value": 0, "over": 0}})
    problem = believed(plan, METHOD)

    assert (problem.stop[0], problem.start[1], problem.stop[1]) == (4, 1, 5)  # op 3 reads x behind op 1
    assert np.array_equal(problem.may_share, [[0, 1]])
