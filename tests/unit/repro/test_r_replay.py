"""Detector R: each case gets its S and its D, planted faults where they must show and nowhere else, and no pin goes unexecuted that tells more."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.allocators import Constraints, find
from allocsim.allocators.planner import Allocator
from allocsim.model import Role, Run
from allocsim.r_replay import failed, judged, session_cases
from allocsim.r_replay.other_programs import another_order, program_cases, reordered, rewired
from allocsim.r_replay.pins import OperandPairs, pin_cases
from engine.models.llama import LlamaConfig
from repro import scenarios
from repro.options import EngineOptions
from repro.pipeline import prepare
from repro.r_replay import cases_of, executed, replay

BASE = LlamaConfig(layers=2, hidden=32, ffn=48, heads=4, kv_heads=2, vocab=48, seq=8, rank=4)


def bench(planner=None, kernels=None, name="ggml-1501", layers=2):
    """The repaired twin at a small size, with these kernels and this planner."""
    scenario = replace(scenarios.find(name), kernels=kernels or {}, belief=None, write_once=())
    made = prepare(scenario, EngineOptions(layers=layers, seq=8, steps=2, base=BASE))
    if planner is not None:
        plans = {**made.plans, "default": planner.plan(made.workload.program)}
        made = replace(made, planner=planner, plans=plans)
    return made


def told(planner, **changes):
    """A planner that is told something else than it should be."""

    def believe(program, constraints):
        return planner.belief(program, replace(constraints, **{key: make(program) for key, make in changes.items()}))

    return Allocator(name="told", belief=believe, placement=planner.placement)


def rows(it, *groups, **options):
    return {row["case"]: row for row in replay(it, groups=groups, **options)}


def verdicts(found):
    return {name: (row["S"]["class"], row["S"]["fault"], row["D"]["status"]) for name, row in found.items()}


@pytest.fixture(scope="module")
def sessions():
    return rows(bench(), "session")


def test_an_honest_planner_may_run_again_and_state_persists(sessions):
    for name in ("second run", "accumulators reset in each run", "accumulators reset in the first run only"):
        row = sessions[name]
        assert (row["S"]["status"], row["D"]["status"], row["promised"], row["fits"]) == ("clean", "equal", True, True)
    assert not any(map(failed, sessions.values()))


def test_each_input_left_out_is_the_callers_fault_and_shows_in_the_second_run(sessions):
    found = {name: row for name, row in sessions.items() if "uploaded once" in name}
    assert len(found) == 6
    for row in found.values():
        assert (row["S"]["class"], row["S"]["fault"], row["S"]["run"]) == ("C06", "caller", 1)
        assert (row["D"]["status"], row["D"]["first"]["run"], row["D"]["first"]["what"]) == ("differs", 1, "operand")
        assert not row["promised"]


def test_inputs_that_are_pinned_may_be_left_out():
    it = bench(told(find("ggml"), pinned=lambda p: Constraints.of(p, pins="all").pinned))
    assert {verdict for name, verdict in verdicts(rows(it, "session")).items() if "uploaded once" in name} == {
        (None, None, "equal")
    }


def test_accumulators_in_recycled_memory_fail_where_they_are_not_reset():
    """Placed like temporaries, from the reset to the last access: whoever resets them in each run sees no wrong number."""
    planner = find("linear_scan")

    def believe(program, constraints):
        problem = planner.belief(program, constraints)
        state = program.buffers.role == Role.STATE
        start, stop = first_to_last(program)
        return replace(
            problem,
            own=problem.own & ~state,
            start=np.where(state, start, problem.start),
            stop=np.where(state, stop, problem.stop),
        )

    found = rows(bench(Allocator(name="recycling", belief=believe, placement=planner.placement)), "session")
    each, once = found["accumulators reset in each run"], found["accumulators reset in the first run only"]
    assert (each["S"]["kind"], each["D"]["status"]) == ("Overlap", "equal")  # state must persist, whoever resets it
    assert once["S"]["count"] > each["S"]["count"]
    assert (once["D"]["status"], once["D"]["first"]["run"], once["D"]["first"]["what"]) == ("differs", 1, "operand")
    assert failed(each)
    assert failed(once)


def first_to_last(program):
    """From first to last access of each buffer, state as anything else."""
    ops = program.ops
    steps = np.concatenate(
        [np.repeat(np.arange(len(ops)), np.diff(starts)) for starts in (ops.operand_starts, ops.result_starts)]
    )
    touched = program.values.buffer[np.concatenate([ops.operands, ops.results])]
    start, stop = np.full(len(program.buffers), len(ops)), np.zeros(len(program.buffers), dtype=int)
    np.minimum.at(start, touched, steps)
    np.maximum.at(stop, touched, steps + 1)
    return np.minimum(start, stop), stop


def test_another_program_in_old_slots_is_a_stale_plan_and_reads_what_was_taken():
    found = rows(bench(), "program")
    assert [row["S"]["class"] for row in found.values()] == ["C08"] * len(found)
    assert {row["S"]["fault"] for row in found.values()} == {"plan"}
    assert not any(row["fits"] or row["promised"] for row in found.values())
    wrong = [row for row in found.values() if row["D"]["status"] == "differs"]
    assert len(wrong) >= len(found) - 1  # a slot may happen to hold the same numbers
    assert {row["D"]["first"]["what"] for row in wrong} == {"operand"}
    assert len({row["fingerprint"] for row in found.values()}) == len(found)


def test_slots_that_nobody_shares_suit_any_program_of_these_sizes():
    found = rows(bench(find("reference")), "program")
    assert set(verdicts(found).values()) == {(None, None, "equal")}
    assert not any(row["fits"] for row in found.values())


def test_larger_batches_outgrow_their_slots_and_smaller_ones_do_not():
    found = rows(bench(), "shape")
    assert list(found) == [
        "one position more: 1 x 9 instead of 1 x 8 positions",
        "twice as many positions: 1 x 16 instead of 1 x 8 positions",
        "half as many positions: 1 x 4 instead of 1 x 8 positions",
        "one sequence more: 3 x 4 instead of 2 x 4 positions",
        "twice as many sequences: 4 x 4 instead of 2 x 4 positions",
        "one sequence less: 2 x 4 instead of 3 x 4 positions",
    ]
    longer, twice, half, more, double, less = found.values()
    for row in (longer, twice, more, double):
        assert (row["S"]["class"], row["S"]["fault"], row["D"]["status"], row["fits"]) == (
            "C08",
            "plan",
            "differs",
            False,
        )
    for row in (half, less):
        assert (row["S"]["status"], row["D"]["status"], row["fits"]) == ("clean", "equal", False)


@pytest.fixture(scope="module")
def pinned():
    """A kernel that is wrong over its second operand only: the default plan never uses that pair."""
    it = bench(kernels={"soft_max_back": "two_pass"}, layers=1)
    return it, rows(it, "pins", every=1)


def test_a_pin_that_reaches_a_wrong_kernel_is_among_those_executed():
    """The first plan that uses the pair: S is clean, D names the kernel."""
    it = bench(kernels={"soft_max_back": "two_pass"}, layers=1)
    found = rows(it, "pins", every=0, limit=3)
    row = found["every backward tensor pinned"]
    assert (row["S"]["status"], row["D"]["status"], row["D"]["first"]["kind"]) == ("clean", "differs", "soft_max_back")
    assert failed(row)


@pytest.mark.slow
def test_a_kernel_that_only_a_partial_pin_reaches_is_found_by_executing(pinned):
    it, found = pinned
    assert (
        executed([next(iter(session_cases(it.plans["default"])))], next(cases_of(it, ("session",)))[1])[0]["status"]
        == "equal"
    )
    wrong = {name: row for name, row in found.items() if row["D"]["status"] == "differs"}
    assert wrong
    assert {row["D"]["first"]["kind"] for row in wrong.values()} == {"soft_max_back"}
    assert {(row["S"]["status"], row["D"]["first"]["what"]) for row in wrong.values()} == {("clean", "result")}
    assert "every backward tensor pinned" in found
    assert "every forward tensor pinned" in found
    assert all(failed(row) for row in wrong.values())


def test_of_honest_kernels_no_pin_makes_a_difference():
    found = rows(bench(layers=1), "pins", every=1, limit=12)
    assert set(verdicts(found).values()) == {(None, None, "equal")}


@pytest.mark.slow
def test_what_is_covered_is_what_executing_would_have_found_equal_or_found_before(pinned):
    """The rule leaves out plans, and no sort of difference: each wrong plan uses a pair that an executed one shows to be wrong."""
    it, whole = pinned
    some = rows(it, "pins", every=0)
    assert some.keys() == whole.keys()
    assert {row["D"]["status"] for row in some.values()} == {"covered", "differs", "equal"}
    executed = {name: row for name, row in some.items() if row["D"]["status"] != "covered"}
    assert len(executed) < len(some) / 4
    assert {name: row["D"] for name, row in executed.items()} == {name: whole[name]["D"] for name in executed}
    pairs = OperandPairs.of(it.workload.program)
    plans = {case.name: case.plan for case in pin_cases(it.workload.program, it.planner)}
    bad = [pairs.used(plans[name]) for name, row in whole.items() if row["D"]["status"] == "differs"]
    good = frozenset().union(*(pairs.used(plans[name]) for name, row in whole.items() if row["D"]["status"] == "equal"))
    found = [pairs.used(plans[name]) for name, row in executed.items() if row["D"]["status"] == "differs"]
    assert all(any((one - good) <= (other - good) for other in found) for one in bad)


def test_what_is_done_is_left_out_and_the_rest_is_the_same(sessions):
    first = set(list(sessions)[:3])
    again = rows(bench(), "session", done=first)
    assert list(again) == list(sessions)[3:]
    assert verdicts(again) == {name: verdict for name, verdict in verdicts(sessions).items() if name not in first}


def test_rewiring_and_reordering_make_other_programs_of_the_same_counts_and_sizes():
    it = bench()
    program = it.workload.program
    twins = [twin for *_, twin in rewired(program)] + [reordered(program, another_order(program))]
    assert len(twins) == 4
    for twin in twins:
        assert np.array_equal(twin.buffers.nbytes, program.buffers.nbytes)
        assert len(twin.ops) == len(program.ops)
        assert np.bincount(twin.ops.kind).tolist() == np.bincount(program.ops.kind).tolist()
        plan = find("linear_scan").plan(twin)
        assert judged(next(iter(session_cases(plan)))).count == 0  # nothing is wrong with it under a plan of its own


def test_another_order_is_a_permutation_and_its_inverse_is_the_program():
    program = bench().workload.program
    order = another_order(program)
    assert sorted(order) == list(range(len(program.ops)))
    back = [0] * len(order)
    for at, step in enumerate(order):
        back[step] = at
    again = reordered(reordered(program, order), tuple(back))
    for column in ("operands", "results", "kind", "in_place", "in_place_known"):
        assert np.array_equal(getattr(again.ops, column), getattr(program.ops, column))
    assert again.ops.names == program.ops.names
    assert dict(again.ops.meta) == dict(program.ops.meta)


def test_a_program_on_several_streams_has_no_twins():
    it = bench(name="parallel-branches")
    assert list(program_cases(it.plans["default"])) == []
    assert {case.group for case, _ in cases_of(it, ("session", "program", "shape"))} == {"session"}


def test_a_run_of_an_equal_program_fits():
    it = bench()
    plan = it.plans["default"]
    twin = replace(it.workload.program, name="another name")
    (case, *_) = session_cases(plan)
    assert case.fits
    assert replace(case, runs=(Run.of(plan), Run.of(plan, program=twin))).fits
