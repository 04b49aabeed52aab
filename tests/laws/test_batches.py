"""A batch of programs is judged as each of them is alone."""

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest
from few import few_of

from allocsim.allocators import ALLOCATORS, find, pin_all
from allocsim.fuzzing import batch as batches
from allocsim.fuzzing.batch import flat, join, join_plans
from allocsim.fuzzing.bulk import batch_of
from allocsim.fuzzing.exhaustive import Odometer, total
from allocsim.fuzzing.planting import FAULTS, MISTAKES, faulty, mistaken
from allocsim.fuzzing.properties import with_pins_read
from allocsim.judge.fast import check, defects
from allocsim.model import HOST_WRITE, Document
from allocsim.programs.builder import ProgramBuilder, plan_of


def named_in(batch, plan):
    """Programs of a batch that its judgement names, and those that cannot be laid side by side, which are judged alone."""
    laid, strange = flat(batch, plan)
    return {*strange, *batch.unsound(laid)}


def planned(random, program, *, faults):
    """A plan with that many faults, in slots or in the belief."""
    plan = find(random.choice(("greedy_by_size", "reference", "linear_scan"))).plan(program)
    for _ in range(faults):
        choice = random.randrange(64), random.randrange(8)
        if random.random() < 0.6:
            plan = faulty(plan, [(random.choice(FAULTS), *choice)])
        else:
            plan = replace(plan, problem=mistaken(plan.problem, [(random.choice(MISTAKES), *choice)]))
    return plan


def judged_alone(plans):
    """The programs that the check, asked of each plan by itself, finds fault with."""
    return {place for place, plan in enumerate(plans) if not check(Document.of(plan)).clean}


@pytest.mark.parametrize("seed", few_of(range(8), 2))
def test_of_every_program_of_a_scope_those_that_are_unsound_are_named_and_no_other(seed):
    random = Random(seed)
    batch = Odometer(3).batch(total(3))
    plans = [planned(random, batch[k], faults=random.randrange(3)) for k in range(1, len(batch))]
    first = ALLOCATORS["reference"].plan(batch[0])
    wrong = judged_alone([first, *plans])

    assert len(wrong) > 60
    assert named_in(batch, join_plans(batch, [first, *plans])) == wrong


@pytest.mark.parametrize("seed", few_of(range(4), 1))
def test_one_read_behind_all_programs_is_judged_as_one_behind_each(seed):
    random = Random(seed)
    batch = Odometer(3).batch(total(3))
    plans = [ALLOCATORS["reference"].plan(batch[0])]
    plans += [planned(random, batch[k], faults=random.randrange(3)) for k in range(1, len(batch))]
    laid, strange = flat(batch, join_plans(batch, plans))
    read = with_pins_read(laid, pin_all(batch.program))
    found = {*strange, *batch.unsound(read)}
    wrong = judged_alone([with_pins_read(plan, pin_all(plan.program)) for plan in plans])

    assert len(wrong) > len(judged_alone([replace(plan, problem=None) for plan in plans]))
    assert found == wrong


@pytest.mark.parametrize("seed", few_of([24, *range(5)], 2))
def test_of_programs_of_every_kind_those_that_are_unsound_are_named_and_no_other(seed):
    random = Random(seed)
    batch = batch_of(np.random.default_rng([1501, seed]), 150)
    plans = [planned(random, batch[k], faults=random.randrange(3)) for k in range(len(batch))]

    assert judged_alone(plans) == named_in(batch, join_plans(batch, plans))


@pytest.mark.parametrize("name", [name for name, row in ALLOCATORS.items() if "sound" in row.guarantees])
def test_no_sound_plan_of_a_scope_is_named(name):
    ops = 4 if name == "greedy_by_size" else 3
    batch = Odometer(ops).batch(total(ops))

    assert named_in(batch, ALLOCATORS[name].plan(batch.program)) == set()


def batch_of_uploads(number, *, wrong):
    """Return a batch of programs that upload one buffer each, and its plan, flat, with those of `wrong` in bad slots: by offset."""
    made = []
    for _ in range(number):
        b = ProgramBuilder("p")
        b.op(HOST_WRITE, (), (b.tensor("x", "f32", (1,)),))
        made.append(b.build())
    batch = join(made)
    laid, _ = flat(batch, join_plans(batch, [plan_of(program, {0: 0}) for program in made]))
    offset = laid.offset.copy()
    for place, shift in wrong.items():
        offset[place] += shift
    return batch, replace(laid, offset=offset)


def test_programs_are_blamed_for_violations_beyond_those_listed(monkeypatch):
    batch, laid = batch_of_uploads(4, wrong={0: -1024, 1: -2048, 3: 4})
    monkeypatch.setattr(batches, "defects", partial(defects, limit=1))
    assert batch.unsound(laid) == [0, 1, 3]

    monkeypatch.setattr(batches, "defects", lambda *given, **named: replace(defects(*given, **named), truncated=True))
    assert batch.unsound(laid) == [0, 1, 2, 3]  # where not all are counted, any program may have one
