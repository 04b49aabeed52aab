"""Places where a checker that seems right is wrong: each fault must be found, and each sound twin let pass.

A table as in `test_planted_faults.py`. Some twins are the trap: a checker that looks at byte spans alone, or at lifetimes
alone, cries wolf there.
"""

import pytest
from planting import JUDGES, Plant, planter

from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

PLANTS: list[Plant] = []
plant = planter(PLANTS)

BYTES = (Arena(name="cpu", alignment=1),)


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("row", PLANTS, ids=lambda row: row.name)
def test_the_trap_is_seen(row, judge):
    assert row.fires == JUDGES[judge](row.build(True))


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("row", PLANTS, ids=lambda row: row.name)
def test_its_sound_twin_is_let_pass(row, judge):
    assert not JUDGES[judge](row.build(False))


# --- a pair is not enough -------------------------------------------------------------------------------------------------


def added(*, second: str, declared: tuple[tuple[int, int], ...]) -> Document:
    """x + (x[1:4] | a view equal to x | another buffer), the result over x."""
    b = ProgramBuilder("p", arenas=BYTES)
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    if second == "slice":
        other = b.view(x, "x[1:]", (3,), offset=4)
    elif second == "same":
        other = b.view(x, "x[:]", (4,))
    else:
        other = b.tensor("other", "f32", (4,))
        b.op(HOST_WRITE, (), (other,))
    y = b.tensor("y", "f32", (4,))
    b.op("add", (x, other), (y,), in_place=declared)
    b.op(HOST_READ, (y,), ())
    program = b.build()
    return Document.of(
        plan_of(program, {0: 0, len(program.buffers) - 1: 0, **({} if len(program.buffers) == 2 else {1: 64})})
    )


@plant("UnsafeInPlace", "Overlap")
def x_plus_x_shifted_over_x(planted):
    return added(second="slice" if planted else "apart", declared=((0, 0), (1, 0)))


@plant("UnsafeInPlace", "Overlap")
def x_plus_x_over_x_declared_for_one_position_only(planted):
    return added(second="same", declared=((0, 0),) if planted else ((0, 0), (1, 0)))


@plant("BadShare")
def a_believed_pair_whose_donor_is_read_through_a_view_as_well(planted):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    other = b.view(x, "x[1:]", (3,), offset=4) if planted else b.view(x, "x[:]", (4,))
    b.op("add", (x, other), (y,), in_place=((0, 0), (1, 0)))
    b.op(HOST_READ, (y,), ())
    return Document.of(Problem.of(b.build(), start=[0, 2], stop=[3, 4], pinned=[1], may_share=[(0, 1)]))


@plant("Overlap", "StaleRead")
def a_donor_that_a_view_reads_later(planted):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    seen = b.view(x, "x.T", (4,), strides=(4,))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op(HOST_READ, (seen, y) if planted else (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0}))


@plant("Overlap", "StaleRead")
def a_donor_overlaid_beside_the_pair(planted):
    """The result is exact over one operand and reaches past it, into a second one still needed."""
    b = ProgramBuilder("p", arenas=BYTES)
    x, z = b.tensor("x", "f32", (4,)), b.tensor("z", "f32", (4,))
    y = b.value("y", b.buffer("y", 20), "f32", (4,))
    rest = b.value("rest", 2, "f32", (1,), offset=16)
    b.op(HOST_WRITE, (), (x, z))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op("fill", (), (rest,))
    b.op(HOST_READ, (y, z), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 16 if planted else 20, 2: 0}))


# --- byte spans are not enough --------------------------------------------------------------------------------------------


def two_columns(offset):
    """A matrix of two columns of f16; the second begins at `offset`."""
    b = ProgramBuilder("p")
    matrix = b.buffer("matrix", 16)
    left = b.value("left", matrix, "f16", (4,), strides=(4,))
    return b, left, b.value("right", matrix, "f16", (3,), strides=(4,), offset=offset)


@plant("OverwrittenRead")
def two_producers_fill_columns_of_one_buffer(planted):
    """Their hulls cross and they share no byte; shifted by one byte they do."""
    b, left, right = two_columns(1 if planted else 2)
    b.op("fill", (), (left,))
    b.op("fill", (), (right,))
    b.op(HOST_READ, (left, right), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("UnsafeInPlace")
def a_column_is_made_from_its_neighbour(planted):
    b, left, right = two_columns(1 if planted else 2)
    b.op("fill", (), (left,))
    b.op("relu", (left,), (right,))
    b.op(HOST_READ, (right,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("ResultsOverlap")
def two_results_with_crossing_hulls(planted):
    b, left, right = two_columns(3 if planted else 2)
    b.op("split", (), (left, right))
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("UninitialisedRead")
def a_view_over_both_columns(planted):
    b = ProgramBuilder("p")
    matrix = b.buffer("matrix", 16)
    columns = [b.value(f"column{n}", matrix, "f16", (4,), strides=(4,), offset=2 * n) for n in range(2)]
    whole = b.value("whole", matrix, "f16", (4, 2))
    for column in columns[: 1 if planted else 2]:
        b.op("fill", (), (column,))
    b.op(HOST_READ, (whole,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


# --- an op reads all, then writes all -------------------------------------------------------------------------------------


@plant("UnsafeInPlace", "Overlap")
def a_recipient_shifted_against_its_donor(planted):
    b = ProgramBuilder("p", arenas=BYTES)
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 4 if planted else 0}))


@plant("UnsafeInPlace", "Overlap")
def a_slot_reused_one_step_too_soon(planted):
    """Half-open lifetimes that forget the op at which the operand dies: the result takes its bytes with no pair declared."""
    b = ProgramBuilder("p")
    x, h, y = (b.tensor(name, "f32", (4,)) for name in "xhy")
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (h,))
    b.op("relu", (h,), (y,))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 32, 2: 32 if planted else 0}))


@plant("ResultsOverlap", "Overlap", "StaleRead")
def two_results_over_one_donor(planted):
    b = ProgramBuilder("p")
    x, y, z = (b.tensor(name, "f32", (4,)) for name in "xyz")
    b.op(HOST_WRITE, (), (x,))
    b.op("split", (x,), (y, z), in_place=((0, 0), (0, 1)))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0, 2: 0 if planted else 32}))


# --- neighbours are not enough --------------------------------------------------------------------------------------------


@plant("Overlap", "Overlap", "Overlap", "StaleRead", "StaleRead")
def three_buffers_at_one_place_are_three_conflicts(planted):
    b = ProgramBuilder("p")
    values = [b.tensor(name, "f32", (4,)) for name in "xyz"]
    for value in values:
        b.op(HOST_WRITE, (), (value,))
    b.op(HOST_READ, values, ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0, 2: 0} if planted else {0: 0, 1: 32, 2: 64}))


# --- what nobody reads, and what is read late -----------------------------------------------------------------------------


@plant("Overlap", "StaleRead")
def an_unread_value_lies_over_a_live_one(planted):
    b = ProgramBuilder("p")
    x, y, unread = (b.tensor(name, "f32", (4,)) for name in ("x", "y", "unread"))
    b.op(HOST_WRITE, (), (x,))
    b.op("dropout", (), (y, unread))
    b.op(HOST_READ, (x, y), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 32, 2: 0 if planted else 64}))


def a_row_is_looked_at():
    """The host looks at the last row of `x`, a view, after `y` was written."""
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4, 4)), b.tensor("y", "f32", (4, 4))
    b.op("init", (), (x,))
    row = b.view(x, "x[3]", (4,), offset=48)
    b.op("init", (), (y,))
    b.op(HOST_READ, (row, y), ())
    return b.build()


@plant("Overlap", "StaleRead")
def a_pin_on_a_view_does_not_reach_its_storage(planted):
    return Document.of(plan_of(a_row_is_looked_at(), {0: 0, 1: 0 if planted else 64}))


@plant("MissingPin")
def a_belief_pins_the_view_and_not_the_storage(planted):
    stop = [1 if planted else 4, 4]
    return Document.of(Problem.of(a_row_is_looked_at(), start=[0, 2], stop=stop, pinned=[1] if planted else [0, 1]))


@plant("OverwrittenRead")
def a_view_of_the_old_value_is_fine_and_the_old_value_is_not(planted):
    """A view follows its storage; an SSA value read after a mutation is a defect under every plan."""
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    seen = b.view(x, "x[:]", (4,))
    new = b.value("x.add_", 0, "f32", (4,))
    b.op("add_", (x,), (new,), in_place=((0, 0),))
    b.op(HOST_READ, (x if planted else seen,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("OverwrittenRead")
def a_mutation_of_a_part_spoils_the_whole(planted):
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    part = b.value("x[0].fill_", 0, "f32", (1,))
    b.op("fill_", (), (part,))
    b.op(HOST_READ, (x if planted else part,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


# --- over several runs ----------------------------------------------------------------------------------------------------


@plant("StaleRead", "HistoryRead")
def a_seed_set_once_and_recycled(planted):
    """The first run is right, every later one reads what the plan left in the seed's slot."""
    b = ProgramBuilder("step")
    seed, grad, update = (b.tensor(name, "f32", (4,)) for name in ("seed", "grad", "update"))
    w = b.tensor("w", "f32", (4,), role=Role.STATE)
    b.op(HOST_WRITE, (), (seed,))
    b.op("back", (seed, w), (grad,))
    b.op("scale", (grad,), (update,))
    b.op("sgd", (w, update), (b.value("w'", 3, "f32", (4,)),), in_place=((0, 0),))
    made = plan_of(b.build(), {0: 0, 1: 32, 2: 0})
    return Document.of(Run.of(made), Run.of(made, skip=(0,) if planted else ()))


@plant("Overlap")
def state_in_an_arena_lives_through_the_whole_run(planted):
    """Its last reader has run, and yet its bytes must survive: the next run reads them, or would."""
    b = ProgramBuilder("step")
    s, y = b.tensor("s", "f32", (4,), role=Role.STATE), b.tensor("y", "f32", (4,))
    b.op("read", (s,), ())
    b.op("fill", (), (y,))
    return Document.of(Run.of(plan_of(b.build(), {0: 0, 1: 0 if planted else 32})))
