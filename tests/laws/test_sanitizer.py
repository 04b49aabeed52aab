"""Laws of detector P on generated programs and plans: it sees what the judge sees and every byte a kernel changes that is not its own,
and it accuses nobody else.

Kernels here are honest strangers: they write bytes that depend on nothing but the run and the op.
"""

import numpy as np
import pytest
from few import ENOUGH
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import documents

from allocsim.errors import ModelError
from allocsim.judge.fast import check
from allocsim.model import VIEW, Document, Run
from allocsim.p_sanitizer import BY_KERNEL, sanitized

READS = ("StaleRead", "UninitialisedRead", "OverwrittenRead")


def one_plan(document, choice):
    """Return the runs of a document that run one of its plans on the plan's own program; one run if there are none."""
    plan = document.plans[choice % len(document.plans)]
    runs = [run for run in document.runs if run.plan is plan and run.program is plan.program]
    return plan, [run.skip for run in runs] or [()]


def laid_out(plan, **options):
    """Return an arena for a plan; what cannot be laid out is no example."""
    try:
        return sanitized(plan.program, plan, **options)
    except ModelError:
        assume(False)


def scribble(results, seed):
    """Be an honest kernel."""
    rng = np.random.default_rng(seed)
    for result in results:
        if result.size:
            result[...] = rng.integers(0, 2 if result.dtype == np.bool_ else 100, result.shape).astype(result.dtype)


def perform(arena, skips, misdeed=None):
    """Run all runs with honest kernels; `misdeed(run, step)` is called within each op, after its kernel."""
    for number, skip in enumerate(skips):
        with arena.run(skip=skip):
            for op in arena.program.ops:
                if op.kind == VIEW or op.step in skip:
                    continue
                with arena.op(op.step) as (_, results):
                    scribble(results, (number, op.step))
                    if misdeed is not None:
                        misdeed(number, op.step)
    return arena


@given(documents(sound=True), st.integers(0, 1))
@ENOUGH
def test_a_sound_plan_and_honest_kernels_are_never_accused(document, choice):
    plan, skips = one_plan(document, choice)
    arena = perform(laid_out(plan), [*skips, *skips])
    assert arena.clean, arena.report()


@given(documents(), st.integers(0, 1))
@ENOUGH
def test_it_finds_exactly_the_wrong_reads_that_the_judge_finds(document, choice):
    plan, skips = one_plan(document, choice)
    arena = perform(laid_out(plan), skips)
    report = check(Document.of(*(Run.of(plan, skip=skip) for skip in skips)))
    wanted = {(v.kind, v.run, v.op, v.value, v.bytes) for v in report.of_kind(*READS)}
    assert {(i.kind, i.run, i.op, i.value, i.bytes) for i in arena.incidents if i.kind in READS} == wanted
    witnesses = {
        (v.kind, v.run, v.op, v.value, v.other_run, v.other_op, v.want_run, v.want_op)
        for v in report.of_kind("StaleRead")
    }
    assert {
        (i.kind, i.run, i.op, i.value, i.held_run, i.held_op, i.want_run, i.want_op)
        for i in arena.incidents
        if i.kind == "StaleRead"
    } == witnesses
    assert not [i for i in arena.incidents if i.kind in BY_KERNEL], arena.report()


@given(documents(), st.integers(0, 1))
@ENOUGH
def test_both_executors_say_the_same(document, choice):
    plan, skips = one_plan(document, choice)
    plain, compiled = (perform(laid_out(plan, compiled=c), [*skips, *skips]) for c in (False, True))
    assert plain.incidents == compiled.incidents
    assert np.array_equal(plain._pool, compiled._pool)


@given(documents(sound=True), st.data())
@ENOUGH
def test_every_byte_changed_outside_the_results_is_seen(document, data):
    """Whatever byte of the pool a kernel changes that is not in its results, P says so, at the latest in the run after names the op."""
    plan, _ = one_plan(document, 0)
    steps = [op.step for op in plan.program.ops if op.kind not in (VIEW, "host.write", "host.read") and op.results]
    assume(steps)
    arena = laid_out(plan)
    step = data.draw(st.sampled_from(steps))
    facts = arena._facts
    mine = np.zeros(len(arena._pool), dtype=bool)
    for value in facts.results[step]:
        for low, high in facts.runs[value]:
            mine[facts.origin[facts.owner[value]] + low : facts.origin[facts.owner[value]] + high] = True
    place = data.draw(st.sampled_from(np.flatnonzero(~mine).tolist()))

    def misdeed(_, at):
        if at == step:
            arena._pool[place] ^= 0x55

    perform(arena, [()] * 2, misdeed)
    runs = {incident.run for incident in arena.incidents}
    assert 0 in runs or any(
        i.suspects and i.suspects[0] <= step < i.suspects[1] for i in arena._monitor.blame._found if i.run == 0
    )
    assert {i.op for i in arena.incidents if i.run == 1 and i.kind in BY_KERNEL} == {step}, arena.report()


@given(documents(sound=True), st.integers(0, 255))
@ENOUGH
def test_verifying_after_every_op_names_the_op_in_the_first_run(document, place):
    plan, _ = one_plan(document, 0)
    steps = [op.step for op in plan.program.ops if op.kind not in (VIEW, "host.write", "host.read") and op.results]
    assume(steps)
    arena = laid_out(plan, every_op=True)
    step = steps[place % len(steps)]

    def misdeed(_, at):
        if at == step:
            arena._pool[place] ^= 0x55  # in the first red zone

    perform(arena, [()], misdeed)
    assert {(i.kind, i.op) for i in arena.incidents} == {("Overrun", step)}


@pytest.mark.slow
@given(documents(sound=True), st.integers(0, 1))
@ENOUGH  # `benchmarks/misdeeds.py` has thousands
def test_a_sound_plan_is_never_accused_in_many_programs(document, choice):
    plan, skips = one_plan(document, choice)
    arena = perform(laid_out(plan), [*skips, *skips, *skips])
    assert arena.clean, arena.report()
