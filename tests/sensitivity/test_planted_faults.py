"""One or more planted faults for every kind: that kind fires, no other does, and the unplanted twin is clean.

Where a fault cannot help but break two rules at once, both are named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from planting import JUDGES, Plant, names, planter

from allocsim.judge.violations import KINDS
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Event, Plan, Problem, Program, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

PLANTS: list[Plant] = []
plant = planter(PLANTS)

BYTES = (Arena(name="cpu", alignment=1),)
"""An arena without an alignment of its own."""


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("row", PLANTS, ids=lambda row: row.name)
def test_the_planted_kinds_fire_and_no_other(row, judge):
    assert row.fires == JUDGES[judge](row.build(True))


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("row", PLANTS, ids=lambda row: row.name)
def test_the_unplanted_twin_is_clean(row, judge):
    assert not JUDGES[judge](row.build(False))


def test_every_kind_is_planted():
    fired = {kind for row in PLANTS for kind in row.fires}
    assert fired == set(KINDS)


def test_every_kind_fires_alone_somewhere():
    alone = {kind for row in PLANTS for kind in row.fires if len(row.fires) == 1}
    assert alone == set(KINDS)


def test_plants_have_names_of_their_own():
    assert len(set(names(PLANTS))) == len(PLANTS)


# --- a small program and how it is laid -----------------------------------------------------------------------------------


def chain() -> Program:
    """x -> relu -> h -> relu -> y, each 16 bytes; the host writes x and reads y. Buffers 0, 1, 2."""
    b = ProgramBuilder("chain", arenas=BYTES)
    x, h, y = (b.tensor(name, "f32", (4,), role=role) for name, role in (("x", Role.INPUT), ("h", 0), ("y", 0)))
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (h,), in_place=((0, 0),))
    b.op("relu", (h,), (y,), in_place=((0, 0),))
    b.op(HOST_READ, (y,), ())
    return b.build()


def chained(slots: dict[int, int | str | None], **columns: object) -> Plan:
    """Return a plan of the chain; each buffer lies apart unless `slots` says otherwise."""
    return plan_of(chain(), {0: 0, 1: 16, 2: 32} | slots, **columns)


# --- defects of the program -----------------------------------------------------------------------------------------------


@plant("UninitialisedRead")
def an_operand_nobody_wrote(planted):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    if not planted:
        b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (y,))
    return Document.of(plan_of(b.build(), {0: 0, 1: 32}))


@plant("UninitialisedRead")
def the_last_element_was_never_written(planted):
    b = ProgramBuilder("p")
    buffer = b.buffer("x", 16)
    part = b.value("part", buffer, "f32", (3 if planted else 4,))
    everything = b.value("everything", buffer, "f32", (4,))
    b.op(HOST_WRITE, (), (part,))
    b.op(HOST_READ, (everything,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("OverwrittenRead")
def an_old_value_is_read_after_a_mutation(planted):
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (4,))
    old = x
    b.op(HOST_WRITE, (), (old,))
    new = b.value("x.add_", 0, "f32", (4,))
    b.op("add_", (old,), (new,), in_place=((0, 0),))
    b.op(HOST_READ, (old if planted else new,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("WriteToReadOnly")
def an_op_writes_a_read_only_buffer(planted):
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (4,), read_only=True)
    b.op("fill" if planted else HOST_WRITE, (), (x,))
    b.op(HOST_READ, (x,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("WriteToReadOnly", "WriteToReadOnly")
def two_results_in_read_only_buffers_are_two_defects(planted):
    b = ProgramBuilder("p")
    results = [b.tensor(name, "f32", (4,), read_only=planted) for name in "xy"]
    b.op("fill", (), results)
    return Document.of(plan_of(b.build(), {0: 0, 1: 32}))


# --- in place -------------------------------------------------------------------------------------------------------------


@plant("UnsafeInPlace")
def a_mutation_nobody_declared(planted):
    b = ProgramBuilder("p")
    old = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (old,))
    new = b.value("x.add_", 0, "f32", (4,))
    b.op("add_", (old,), (new,), in_place=() if planted else ((0, 0),))
    b.op(HOST_READ, (new,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("UnsafeInPlace")
def a_foreign_kernel_over_a_flipped_operand(planted):
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    new = b.value("new", 0 if planted else b.buffer("y", 16), "f32", (4,), strides=(-4,), offset=12)
    b.op("foreign", (x,), (new,), in_place=None)
    b.op(HOST_READ, (new,), ())
    return Document.of(plan_of(b.build(), {0: 0} if planted else {0: 0, 1: 32}))


@plant("UnsafeInPlace", "Overlap")
def a_result_over_an_operand_the_kernel_does_not_offer(planted):
    b = ProgramBuilder("p")
    x, dz, dx = (b.tensor(name, "f32", (4,)) for name in ("x", "dz", "dx"))
    b.op(HOST_WRITE, (), (x, dz))
    b.op("rms_norm_back", (dz, x), (dx,), in_place=((0, 0),))
    b.op(HOST_READ, (dx,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 32, 2: 0 if planted else 32}))


@plant("UnsafeInPlace", "Overlap")
def an_in_place_result_of_another_item_size(planted):
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (4,))
    y = b.tensor("y", "f16" if planted else "i32", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op("cast", (x,), (y,), in_place=((0, 0),))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0}))


@plant("UnsafeInPlace", "Overlap")
def an_in_place_result_of_another_item_size_and_no_stride_to_tell(planted):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (1,)), b.tensor("y", "f16" if planted else "i32", (1,))
    b.op(HOST_WRITE, (), (x,))
    b.op("cast", (x,), (y,), in_place=((0, 0),))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0}))


@plant("UninitialisedRead", "Overlap")
def a_recipient_that_its_op_reads_as_well(planted):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    seed = b.value("seed", 1, "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op("add", (x, seed) if planted else (x, x), (y,), in_place=((0, 0), (1, 0)))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0}))


@plant("ResultsOverlap", "Overlap")
def a_donor_that_its_op_writes_as_well(planted):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    results = (b.value("x'", 0, "f32", (4,)), y) if planted else (y,)
    b.op("both", (x,), results, in_place=((0, 0), (0, 1)) if planted else ((0, 0),))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0}))


@plant("AssumedInPlace")
def a_foreign_kernel_exactly_over_its_operand(planted):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op("foreign", (x,), (y,), in_place=None)
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0 if planted else 32}))


@plant("ResultsOverlap")
def two_results_share_a_byte_of_one_buffer(planted):
    b = ProgramBuilder("p")
    buffer = b.buffer("pair", 16)
    one = b.value("one", buffer, "u8", (9 if planted else 8,))
    other = b.value("other", buffer, "u8", (8,), offset=8)
    b.op("split", (), (one, other))
    b.op(HOST_READ, (other,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("ResultsOverlap", "Overlap")
def a_workspace_lies_over_the_result(planted):
    b = ProgramBuilder("p")
    x, y, workspace = (b.tensor(name, "f32", (4,)) for name in ("x", "y", "workspace"))
    b.op(HOST_WRITE, (), (x,))
    b.op("sort", (x,), (workspace, y))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 32, 2: 32 if planted else 64}))


# --- placement ------------------------------------------------------------------------------------------------------------


@plant("StaleRead", "Overlap")
def bytes_are_taken_before_their_last_reader(planted):
    b = ProgramBuilder("p")
    x, t, z = (b.tensor(name, "f32", (4,)) for name in "xtz")
    b.op(HOST_WRITE, (), (x,))
    b.op("fill", (), (t,))
    b.op("add", (x, t), (z,))
    b.op(HOST_READ, (z,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0 if planted else 32, 2: 64}))


@plant("Overlap")
def padding_of_a_live_buffer_is_taken(planted):
    b = ProgramBuilder("p", arenas=BYTES)
    padded = b.value("x", b.buffer("x", 32), "f32", (4,))
    y = b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (padded,))
    b.op("relu", (padded,), (y,))
    b.op(HOST_READ, (padded, y), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 31 if planted else 32}))


@plant("Overlap")
def a_parameter_nobody_reads_is_overlaid(planted):
    b = ProgramBuilder("p")
    b.tensor("w", "f32", (4,), role=Role.PARAMETER)
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op(HOST_READ, (x,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 0 if planted else 32}))


@plant("OutOfBounds")
def a_slot_starts_before_its_arena(planted):
    return Document.of(chained({0: -1 if planted else 0}))


@plant("OutOfBounds")
def a_slot_ends_beyond_the_capacity(planted):
    b = ProgramBuilder("p", arenas=(Arena(name="cpu", capacity=31 if planted else 32),))
    x = b.tensor("x", "f32", (8,))
    b.op(HOST_WRITE, (), (x,))
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("OutOfBounds")
def a_value_reaches_outside_its_buffer(planted):
    b = ProgramBuilder("p")
    x = b.value("x", b.buffer("x", 16), "f32", (4,), offset=4 if planted else 0)
    b.op(HOST_WRITE, (), (x,))
    b.op(HOST_READ, (x,), ())
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("OutOfBounds")
def bytes_outside_a_buffer_harm_no_neighbour_in_the_replay(planted):
    b = ProgramBuilder("p", arenas=BYTES)
    x, stray = b.tensor("x", "u8", (4,)), b.value("stray", b.buffer("y", 8), "u8", (8,), offset=-4 if planted else 0)
    b.op(HOST_WRITE, (), (x,))
    b.op("fill", (), (stray,))
    b.op(HOST_READ, (x, stray), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 4}))


@plant("OutOfBounds")
def a_flipped_value_starts_at_the_wrong_end(planted):
    b = ProgramBuilder("p")
    x = b.value("x", b.buffer("x", 16), "f32", (4,), strides=(-4,), offset=0 if planted else 12)
    b.op(HOST_WRITE, (), (x,))
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("Undersized")
def a_slot_is_a_byte_short(planted):
    made = chained({})
    short = made.nbytes - [0, 0, 1] if planted else made.nbytes
    return Document.of(Plan(program=made.program, arena=made.arena, offset=made.offset, nbytes=short))


@plant("Misaligned")
def an_offset_between_two_multiples(planted):
    b = ProgramBuilder("p", arenas=BYTES)
    x = b.tensor("x", "f32", (4,), alignment=16)
    b.op(HOST_WRITE, (), (x,))
    return Document.of(plan_of(b.build(), {0: 8 if planted else 16}))


@plant("WrongArena")
def a_slot_in_another_arena(planted):
    b = ProgramBuilder("p", arenas=(Arena(name="cpu"), Arena(name="gpu")))
    x = b.tensor("x", "f32", (4,), arena=1)
    b.op(HOST_WRITE, (), (x,))
    made = plan_of(b.build(), {0: 0})
    arena = made.arena - 1 if planted else made.arena
    return Document.of(Plan(program=made.program, arena=arena, offset=made.offset, nbytes=made.nbytes))


@plant("Unplaced")
def a_used_buffer_has_no_slot(planted):
    return Document.of(chained({1: None if planted else 16}))


@plant("Unplaced")
def a_slot_only_a_read_of_no_elements_needs(planted):
    b = ProgramBuilder("p")
    nothing = b.tensor("nothing", "f32", (0,))
    if planted:
        b.op(HOST_READ, (nothing,), ())
    return Document.of(plan_of(b.build(), {}))


# --- beliefs --------------------------------------------------------------------------------------------------------------


def belief(**columns: object) -> Document:
    """Return a document with one belief of the chain, right but for the columns given."""
    program = chain()
    right = {"start": [0, 1, 2], "stop": [2, 3, 4], "pinned": [2], "may_share": [(0, 1), (1, 2)]}
    return Document.of(Problem.of(program, **right | columns))


@plant("LifetimeTooShort")
def a_last_reader_is_left_out(planted):
    return belief(stop=[2, 2 if planted else 3, 4])


@plant("LifetimeTooShort")
def a_birth_is_believed_late(planted):
    return belief(start=[0, 2 if planted else 1, 2])


@plant("MissingPin")
def the_read_by_the_host_is_left_out(planted):
    return belief(stop=[2, 3, 3 if planted else 4], pinned=[] if planted else [2])


@plant("LifetimeTooLong")
def a_death_is_believed_late(planted):
    return belief(stop=[2, 4 if planted else 3, 4])


@plant("LifetimeTooLong")
def a_birth_is_believed_early(planted):
    return belief(start=[0, 0 if planted else 1, 2])


@plant("BadSize")
def a_size_is_believed_a_byte_short(planted):
    return belief(nbytes=[16, 15 if planted else 16, 16])


@plant("BadShare")
def a_pair_that_no_op_joins(planted):
    return belief(may_share=[(0, 2)] if planted else [(0, 1)])


@plant("BadShare")
def a_pair_the_wrong_way_round(planted):
    return belief(may_share=[(1, 0)] if planted else [(0, 1)])


@plant("BadShare")
def a_donor_that_is_read_once_more(planted):
    b = ProgramBuilder("p")
    x, y, z = (b.tensor(name, "f32", (4,)) for name in "xyz")
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op("add", (x, y) if planted else (y,), (z,))
    b.op(HOST_READ, (z,), ())
    stops = [3 if planted else 2, 3, 4]
    return Document.of(Problem.of(b.build(), start=[0, 1, 2], stop=stops, pinned=[2], may_share=[(0, 1)]))


@plant("BadShare")
def a_parameter_as_donor(planted):
    b = ProgramBuilder("p")
    w = b.tensor("w", "f32", (4,), role=Role.PARAMETER if planted else Role.INPUT)
    y = b.tensor("y", "f32", (4,))
    if not planted:
        b.op(HOST_WRITE, (), (w,))
    b.op("relu", (w,), (y,), in_place=((0, 0),))
    b.op(HOST_READ, (y,), ())
    ops = 2 if planted else 3
    stops = [ops if planted else ops - 1, ops]
    return Document.of(Problem.of(b.build(), start=[0, ops - 2], stop=stops, pinned=[1], may_share=[(0, 1)]))


# --- events ---------------------------------------------------------------------------------------------------------------

A, F = Event.ALLOC, Event.FREE


def events(*rows: tuple[int, int, int]) -> Document:
    """Return the chain laid so that y takes the bytes of x, with these events."""
    return Document.of(chained({2: 0}, events=np.array(rows)))


@plant("DoubleFree")
def a_buffer_is_freed_twice(planted):
    again = ((2, F, 0),) if planted else ()
    return events((0, A, 0), (1, A, 1), (1, F, 0), *again, (2, A, 2), (2, F, 1), (3, F, 2))


@plant("FreeOfUnallocated")
def a_buffer_is_freed_that_nobody_allocated(planted):
    first = () if planted else ((0, A, 0),)
    return events(*first, (1, A, 1), (1, F, 0), (2, A, 2), (2, F, 1), (3, F, 2))


@plant("AllocOverLive")
def a_buffer_is_allocated_over_one_not_yet_freed(planted):
    rows = ((2, A, 2), (2, F, 0)) if planted else ((1, F, 0), (2, A, 2))
    return events((0, A, 0), (1, A, 1), *rows, (2, F, 1), (3, F, 2))


@plant("AllocOverLive")
def the_bytes_of_a_donor_pass_to_its_recipient_and_no_further(planted):
    """In place nobody need free the donor; whoever comes next must wait for the recipient."""
    rows = ((2, A, 2), (2, F, 1)) if planted else ((2, F, 1), (2, A, 2))
    b = ProgramBuilder("p")
    x, h, y = (b.tensor(name, "f32", (4,)) for name in "xhy")
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (h,), in_place=((0, 0),))
    b.op(HOST_WRITE, (), (y,))
    b.op(HOST_READ, (y,), ())
    made = plan_of(b.build(), {0: 0, 1: 0, 2: 0}, events=np.array([(0, A, 0), (1, A, 1), *rows, (3, F, 2)]))
    return Document.of(made)


# --- a plan against its own problem ---------------------------------------------------------------------------------------


def told(slots: dict[int, int | str | None], *rows: tuple[int, int, int], **columns: object) -> Document:
    """Return the chain laid as `slots` say, harmless, from a right belief with the columns given, and with these events."""
    made = chained(slots, events=np.array(rows, dtype=np.int64).reshape(-1, 3))
    problem = Problem.of(made.program, **({"start": [0, 1, 2], "stop": [2, 3, 4], "pinned": [2]} | columns))
    return Document.of(replace(made, problem=problem))


@plant("LifetimeIgnored", "LifetimeTooLong")
def a_slot_is_taken_while_its_buffer_is_believed_to_live(planted):
    """x is dead when y is written; the problem says longer, and the plan knows better."""
    return told({2: 0}, stop=[3, 3, 4]) if planted else told({2: 0})


@plant("LifetimeIgnored")
def in_place_without_a_believed_pair(planted):
    return told({1: 0}, may_share=[] if planted else [(0, 1)])


@plant("LifetimeIgnored", "LifetimeTooLong")
def a_slot_is_taken_beyond_a_gap(planted):
    """y comes when x need not survive, and is not gone when x is believed to be back."""
    return told({2: 0}, stop=[4, 3, 4], gaps={0: ((2, 3),)}) if planted else told({2: 0})


@plant("PinIgnored")
def a_pinned_buffer_gives_its_bytes_away(planted):
    return told({2: 0}, pinned=[0, 2] if planted else [2])


@plant("PinIgnored")
def a_pinned_donor(planted):
    return told({1: 0}, may_share=[(0, 1)], pinned=[0, 2] if planted else [2])


@plant("SizeIgnored")
def a_slot_below_the_believed_size(planted):
    return told({1: 64}, nbytes=[16, 17 if planted else 16, 16])


@plant("FixedIgnored")
def a_slot_that_is_not_where_it_was_told(planted):
    return told({0: 64 if planted else 128}, fixed={0: 128})


@plant("FixedIgnored")
def a_fixed_buffer_without_a_slot(planted):
    b = ProgramBuilder("p")
    b.buffer("x", 16)
    y = b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (y,))
    program = b.build()
    problem = Problem.of(program, start=[0, 0], stop=[1 if planted else 0, 1], fixed={0: 32})
    return Document.of(plan_of(program, [None, 0], problem=problem))


@plant("OwnIgnored")
def memory_of_its_own_was_told(planted):
    return told({0: 64 if planted else "own"}, own=[0])


@plant("OwnIgnored")
def a_parameter_lies_in_an_arena_though_it_was_told_otherwise(planted):
    """The twin's problem leaves `own` out: parameters are `own` by default, and nobody told a planner so."""
    b = ProgramBuilder("p")
    w, y = b.tensor("w", "f32", (4,), role=Role.PARAMETER), b.tensor("y", "f32", (4,))
    b.op("relu", (w,), (y,))
    b.op(HOST_READ, (y,), ())
    program = b.build()
    problem = Problem.of(program, pinned=[1], start=[0, 0], stop=[2, 2], own=[0] if planted else None)
    return Document.of(plan_of(program, [0, 32], problem=problem))


@plant("OwnUntold")
def memory_of_its_own_that_nobody_told(planted):
    return told({0: "own"}, own=[] if planted else [0])


@plant("EventOutsideLifetime")
def a_free_before_the_last_step(planted):
    return told({}, (0, A, 0), (1, A, 1), (1, F, 0), (2, A, 2), (1 if planted else 2, F, 1))


@plant("EventOutsideLifetime")
def an_allocation_after_the_first_step(planted):
    return told({}, (0, A, 0), (2 if planted else 1, A, 1), (1, F, 0), (2, A, 2), (2, F, 1))


@plant("EventOutsideLifetime")
def a_pinned_buffer_is_freed(planted):
    return told({}, (0, A, 0), (1, A, 1), (1, F, 0), (2, A, 2), (2, F, 1), pinned=[0, 2] if planted else [2])


# --- sessions -------------------------------------------------------------------------------------------------------------


@plant("HistoryRead")
def an_upload_is_left_out_of_the_second_run(planted):
    made = chained({0: "own"})
    return Document.of(Run.of(made), Run.of(made, skip=(0,) if planted else ()))


@plant("StaleRead", "HistoryRead")
def an_upload_is_left_out_and_its_slot_was_recycled(planted):
    made = chained({2: 0})
    return Document.of(Run.of(made), Run.of(made, skip=(0,) if planted else ()))


def weighted(name: str, *, buffers: int = 2) -> Program:
    """Return a program that reads the parameter w; buffers are w, y, and more if asked for."""
    b = ProgramBuilder(name, arenas=BYTES)
    w, y = b.tensor("w", "f32", (4,), role=Role.PARAMETER), b.tensor("y", "f32", (4,))
    b.op("relu", (w,), (y,))
    b.op(HOST_READ, (y,), ())
    for number in range(2, buffers):
        b.tensor(f"t{number}", "f32", (4,))
    return b.build()


@plant("StaleRead")
def a_later_plan_moves_a_parameter(planted):
    program = weighted("p")
    return Document.of(
        Run.of(plan_of(program, {0: 0, 1: 16})), Run.of(plan_of(program, {0: 32 if planted else 0, 1: 16}))
    )


@plant("StaleRead")
def a_run_overwrites_a_parameter_of_another_program(planted):
    b = ProgramBuilder("other", arenas=BYTES)
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    reader, writer = plan_of(weighted("p"), {0: 0, 1: 16}), plan_of(b.build(), {0: 12 if planted else 16})
    return Document.of(Run.of(reader), Run.of(writer), Run.of(reader))


@plant("StaleRead")
def content_is_there_before_the_session_and_not_only_before_its_first_run(planted):
    b = ProgramBuilder("other", arenas=BYTES)
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    writer, reader = plan_of(b.build(), {0: 12 if planted else 16}), plan_of(weighted("p"), {0: 0, 1: 16})
    return Document.of(Run.of(writer), Run.of(reader))


@plant("OverwrittenRead")
def an_upload_left_out_where_another_program_wrote(planted):
    """Persistent, so not history; but the value the reader means was never written."""
    plans = []
    for name in ("one", "other"):
        b = ProgramBuilder(name)
        s = b.tensor("s", "f32", (4,), role=Role.STATE)
        b.op(HOST_WRITE, (), (s,))
        b.op(HOST_READ, (s,), ())
        plans.append(plan_of(b.build(), {0: 0}))
    return Document.of(Run.of(plans[0]), Run.of(plans[1], skip=(0,) if planted else ()))


@plant("Overlap", "StaleRead")
def a_plan_made_for_another_program(planted):
    short = chain()
    b = ProgramBuilder("long", arenas=BYTES)
    x, h, y = (b.tensor(name, "f32", (4,)) for name in "xhy")
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (h,))
    b.op("relu", (h,), (y,))
    b.op(HOST_READ, (x, y), ())
    long = b.build()
    made = plan_of(short, {0: 0, 1: 16, 2: 0})
    return Document.of(Run.of(made, program=long if planted else short))


# --- order ----------------------------------------------------------------------------------------------------------------


def branches(waits: Mapping[int, Sequence[int]], slots: Mapping[int, int], *, arenas: int = 1) -> Document:
    """x, then a = f(x) on one stream and b = g(x) on the other, then y = h(a, b); ops 0 to 4, buffers x, a, b, y of 16 bytes each."""
    b = ProgramBuilder(
        "branches", arenas=tuple(Arena(name=f"m{n}", alignment=1) for n in range(arenas)), streams=("one", "two")
    )
    x, a, c, y = (b.tensor(name, "f32", (4,), arena=arenas - 1 if name == "b" else 0) for name in "xaby")
    b.op(HOST_WRITE, (), (x,))
    b.op("g", (x,), (c,), stream=1, after=waits.get(1, (0,)))
    b.op("f", (x,), (a,), in_place=((0, 0),), after=waits.get(2, ()))
    b.op("h", (a, c), (y,), after=waits.get(3, (1,)))
    b.op(HOST_READ, (y,), ())
    return Document.of(plan_of(b.build(), slots))


APART = {0: 0, 1: 16, 2: 32, 3: 48}


@plant("Race")
def in_place_over_what_another_stream_still_reads(planted):
    """In list order g has read x before f takes its bytes; on two streams f need not wait for g."""
    return branches({2: () if planted else (1,)}, APART | {1: 0})


@plant("Race")
def an_upload_into_the_slot_that_another_stream_reads(planted):
    """Both uploads are on one stream; g has read the first before the second in list order only."""
    b = ProgramBuilder("p", arenas=BYTES, streams=("one", "two"))
    x, a, c = (b.tensor(name, "f32", (4,)) for name in "xac")
    b.op(HOST_WRITE, (), (x,))
    b.op("g", (x,), (a,), stream=1, after=(0,))
    b.op(HOST_WRITE, (), (c,), after=() if planted else (1,))
    return Document.of(plan_of(b.build(), {0: 0, 1: 16, 2: 0}))


@plant("Race")
def a_forgotten_wait_for_an_operand(planted):
    """The only race that exists apart: h reads b, and nothing says that g is done."""
    return branches({3: () if planted else (1,)}, APART)


@plant("Race")
def a_forgotten_wait_for_an_upload(planted):
    return branches({1: () if planted else (0,)}, APART)


@plant("Race")
def a_copy_that_nobody_waits_for(planted):
    """g carries x into the memory of another device."""
    return branches({3: () if planted else (1,)}, {0: 0, 1: 16, 2: 0, 3: 32}, arenas=2)


@plant("Race")
def two_streams_write_one_byte(planted):
    """Workspaces of two streams share their last and first byte; nobody reads either."""
    b = ProgramBuilder("p", arenas=BYTES, streams=("one", "two"))
    w, v = (b.tensor(name, "u8", (4,)) for name in "wv")
    b.op("f", (), (w,))
    b.op("g", (), (v,), stream=1)
    return Document.of(plan_of(b.build(), {0: 0, 1: 3 if planted else 4}))


@plant("Race")
def one_wait_goes_to_the_wrong_op(planted):
    """The second piece of x is read; only the first has been waited for."""
    b = ProgramBuilder("p", arenas=BYTES, streams=("one", "two"))
    x = b.buffer("x", 8)
    halves = [b.value(f"x{n}", x, "u8", (4,), offset=4 * n) for n in range(2)]
    whole = b.value("whole", x, "u8", (8,))
    for half in halves:
        b.op(HOST_WRITE, (), (half,))
    b.op("f", (whole,), (b.tensor("y", "u8", (8,)),), stream=1, after=(0,) if planted else (1,))
    return Document.of(plan_of(b.build(), {0: 0, 1: 8}))


@plant("Race")
def columns_that_miss_each_other_until_one_is_a_byte_wider(planted):
    """Two streams fill interleaved columns of one buffer: hulls cross, bytes do not."""
    b = ProgramBuilder("p", arenas=BYTES, streams=("one", "two"))
    x = b.buffer("x", 16)
    left = b.value("left", x, "u8", (4, 3 if planted else 2), strides=(4, 1))
    right = b.value("right", x, "u8", (4, 2), strides=(4, 1), offset=2)
    b.op("f", (), (left,))
    b.op("g", (), (right,), stream=1)
    return Document.of(plan_of(b.build(), {0: 0}))


@plant("Race", "Race")
def each_run_races_for_itself(planted):
    """Runs follow each other: two equal races, and none between the runs."""
    (made,) = branches({2: () if planted else (1,)}, APART | {1: 0}).plans
    return Document.of(Run.of(made), Run.of(made))
