"""What the fuzzer is worth: its programs are honest and hold what they should, a batch is judged as its programs are, and what fails shrinks."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from few import few_of
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

from allocsim import check
from allocsim.allocators import ALLOCATORS
from allocsim.fuzzing.batch import flat, join, join_plans
from allocsim.fuzzing.bulk import batch_of
from allocsim.fuzzing.bulk import batches as bulk_batches
from allocsim.fuzzing.features import FEATURES, marks, names
from allocsim.fuzzing.planting import FAULTS, faulty
from allocsim.fuzzing.program_recipes import assemble
from allocsim.fuzzing.repeatable import repeatable
from allocsim.fuzzing.scaling import BUFFERS, FARTHEST, stretched
from allocsim.fuzzing.strategies import (
    PLANNERS,
    faults_of,
    in_list_order,
    plans,
    problems,
    programs,
    recipes,
    runnable_programs,
    sessions,
)
from allocsim.model import Arena, Document
from engine.d_differential.execution import apart, execute

EVERY = tuple(FEATURES)
SCALE = (
    "same",
    "bytes pair",
    "whole pair",
    "no operand",
    "three operands",
    "three results",
    "odd granule",
    "wide alignment",
    "huge alignment",
    "three views deep",
    "squeezed",
    *(name for name in EVERY if name.startswith("above ")),
)
"""Features that only programs of real sizes or with rarer ops have."""
SMALL = tuple(name for name in EVERY if name not in SCALE)
FEWER = settings(max_examples=20)


def drawn(strategy, examples):
    """Return examples of a strategy, the same ones every time."""
    collected = []

    @seed(1501)
    @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(example):
        collected.append(example)

    with repeatable():
        collect()
    return collected


# what there is ---------------------------------------------------------------------------------------------------------------


def shares(batches):
    counts = Counter(name for batch in batches for mask in marks(batch) for name in names(mask))
    total = sum(map(len, batches))
    print({name: round(counts[name] / total, 3) for name in EVERY})  # noqa: T201  (the shares are what these tests are read for)
    return {name: counts[name] / total for name in EVERY}


def test_drawn_programs_hold_every_feature():
    found = shares([join([program]) for program in drawn(programs(), 300)])

    assert all(found[name] >= 0.02 for name in SMALL), found
    for name in (
        "view",
        "mutation",
        "in place",
        "several results",
        "unread result",
        "pin",
        "persistent",
        "several arenas",
        "capacity",
    ):
        assert found[name] >= 0.15, name


def test_bulk_programs_hold_every_feature():
    found = shares([batch_of(np.random.default_rng([1501, n]), 200, capped=n == 7) for n in range(8)])

    assert all(found[name] >= 0.03 for name in SMALL), found
    for name in (
        "view",
        "view of a view",
        "mutation",
        "in place",
        "in-place chain",
        "several results",
        "unread result",
        "pin",
        "persistent",
    ):
        assert found[name] >= 0.08, name


def test_programs_of_real_sizes_hold_every_feature_and_are_clean_without_reuse():
    made = drawn(programs(real=True), 250)
    found = shares([join([program]) for program in made])

    rare = {"above 1,000 buffers", "above 2,000 buffers"}
    assert all(found[name] > 0 for name in SCALE if name not in rare), found
    assert max(len(program.buffers) for program in made) <= 1.35 * BUFFERS
    assert max(int(program.buffers.nbytes.sum()) for program in made) <= FARTHEST
    for program in made[::5]:
        report = check(Document.of(apart(program)))
        assert report.clean, report.violations[0].message


def test_bulk_batches_are_of_real_sizes_too_and_clean_without_reuse():
    made = list(bulk_batches(3, 0, 16_384))
    found = shares(made)

    never = {
        "three results",
        "bytes pair",
        "whole pair",
        "above 1,000 buffers",
        "above 2,000 buffers",
        "above 2^53",
    }  # `bulk` says so
    assert all(found[name] > 0 for name in SCALE if name not in never), found
    for batch in made[::8]:
        report = check(Document.of(apart(batch.program)))
        assert report.clean, report.violations[0].message


@given(programs(), st.lists(st.sampled_from([1, 2, 3, 1 << 30]), min_size=16, max_size=16))
def test_a_stretch_keeps_which_bytes_are_shared(program, by):
    """Under the same plan, stretched as the program is, the same is clean."""
    program = replace(program, arenas=tuple(replace(arena, capacity=None) for arena in program.arenas))
    factor = np.full(len(program.buffers), by[0], dtype=np.int64)
    plan = ALLOCATORS["greedy_by_size"].plan(program)
    grown = replace(
        plan, problem=None, offset=plan.offset * by[0], nbytes=plan.nbytes * by[0], program=stretched(program, factor)
    )
    assert check(Document.of(grown)).clean
    zero = replace(grown, offset=np.zeros_like(plan.offset))
    assert (
        check(Document.of(zero)).clean
        is check(Document.of(replace(plan, problem=None, offset=np.zeros_like(plan.offset)))).clean
    )


@pytest.mark.parametrize("runnable", [False, True])
def test_bulk_programs_are_clean_without_reuse(runnable):
    for number in range(6):
        batch = batch_of(np.random.default_rng([7, number]), 200, capped=number == 5, runnable=runnable)
        report = check(Document.of(apart(batch.program)))

        assert report.clean, report.violations[0].message


@given(programs(capacities=(None,)))
def test_drawn_programs_are_clean_without_reuse_and_under_the_shelf(program):
    for plan in (apart(program), ALLOCATORS["greedy_by_size"].plan(program)):
        report = check(Document.of(plan))

        assert report.clean, report.violations[0].message


@FEWER
@given(sessions())
def test_drawn_sessions_are_clean(document):
    report = check(document)

    assert report.clean, report.violations[0].message


def test_stale_sessions_and_mistaken_beliefs_are_often_wrong():
    assert sum(not check(document).clean for document in drawn(sessions(stale=True), 80)) >= 8
    assert sum(not check(Document.of(problem)).clean for problem in drawn(problems(mistakes=True), 80)) >= 16
    assert all(check(Document.of(problem)).clean for problem in drawn(problems(), 40))


@FEWER
@given(runnable_programs())
def test_runnable_programs_run_and_a_sound_plan_is_invisible(program):
    assert execute(ALLOCATORS["greedy_by_size"].plan(program)) is None


# many at once ----------------------------------------------------------------------------------------------------------------


@st.composite
def alike(draw):
    """A few programs of up to three arenas and streams, each with a plan that may have faults."""
    most, several = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 3)))
    made = []
    for drawn_recipes, planted in draw(
        st.lists(st.tuples(recipes(max_size=6), faults_of(FAULTS, max_size=1)), min_size=1, max_size=4)
    ):
        count, streams = draw(st.integers(1, most)), draw(st.integers(1, several))
        spaces = [Arena(name="a", alignment=draw(st.sampled_from((1, 8)))) for _ in range(count)]
        program = assemble(drawn_recipes, arenas=spaces, streams=streams)
        plan = ALLOCATORS["greedy_by_size"].plan(in_list_order(program) if streams > 1 else program)
        made.append(faulty(replace(plan, problem=plan.problem if draw(st.booleans()) else None), planted))
    with_beliefs = all(plan.problem is not None for plan in made)
    return [plan if with_beliefs else replace(plan, problem=None) for plan in made]


def kinds(report):
    return Counter(
        {
            kind: n
            for kind, n in report.counts.items()
            if kind not in {"LifetimeTooLong", "HistoryRead", "AssumedInPlace"}
        }
    )


@settings(max_examples=60)
@given(alike())
def test_a_batch_has_the_violations_of_its_programs_and_says_whose_they_are(made):
    single = [check(Document.of(plan)) for plan in made]
    batch = join([plan.program for plan in made])
    whole = join_plans(batch, made)
    unclean = [k for k, report in enumerate(single) if not report.clean]

    report = check(Document.of(whole))
    assert kinds(report) == sum(map(kinds, single), Counter())
    assert batch.blamed(report) == unclean
    laid, alone = flat(batch, whole)
    assert sorted({*alone, *batch.blamed(check(Document.of(laid)))}) == sorted({*alone, *unclean})


@FEWER
@given(alike())
def test_a_program_cut_out_of_a_batch_is_what_it_was(made):
    batch = join([plan.program for plan in made])
    for k, plan in enumerate(made):
        mine, cut = plan.program, batch[k]
        assert [replace_name(op) for op in cut.ops] == [replace_name(op) for op in mine.ops]
        assert list(cut.values) == list(mine.values)
        assert (cut.arenas, cut.streams) == (mine.arenas, mine.streams)
        for column in ("nbytes", "alignment", "arena", "role"):
            assert getattr(cut.buffers, column).tolist() == getattr(mine.buffers, column).tolist()
        replace(cut, name="well-formed")  # checks it


def replace_name(op):
    return replace(op, name="")


@pytest.mark.parametrize("name", [name for name in ALLOCATORS if name not in {"exact", "best"}])
def test_a_planner_of_ours_plans_a_batch_as_it_plans_its_programs(name):
    batch = batch_of(np.random.default_rng(15), 40)
    whole = ALLOCATORS[name].plan(batch.program)
    alone = join_plans(batch, [ALLOCATORS[name].plan(batch[k]) for k in range(len(batch))])

    assert whole.arena.tolist() == alone.arena.tolist()
    assert whole.offset.tolist() == alone.offset.tolist()


# what fails is small -----------------------------------------------------------------------------------------------------------


def smallest(strategy, kind, number):
    """Return what the strategy's first example with this kind of violation shrinks to, the same each time."""
    with repeatable():
        return find(
            strategy,
            lambda example: kind in check(Document.of(example)).counts,
            settings=settings(max_examples=2000, database=None, deadline=None, phases=(Phase.generate, Phase.shrink)),
            random=Random(number),
        )


@pytest.mark.parametrize("kind", ["Overlap", "StaleRead", "UnsafeInPlace"])
@pytest.mark.parametrize("number", few_of(range(4), 1))
def test_a_planted_fault_shrinks_to_a_few_ops(kind, number):
    program = smallest(plans(), kind, number).program

    assert len(program.buffers) <= 3
    assert len(program.ops) <= 4


@pytest.mark.parametrize("kind", ["LifetimeTooShort", "BadShare"])
@pytest.mark.parametrize("number", few_of(range(2), 1))
def test_a_mistaken_belief_shrinks_to_a_few_ops(kind, number):
    program = smallest(problems(mistakes=True), kind, number).program

    assert len(program.buffers) <= 3
    assert len(program.ops) <= 4


def test_plans_start_from_planners_that_promise_soundness():
    assert all("sound" in ALLOCATORS[name].guarantees for name in PLANNERS)
