"""The check's entry for many programs says what the check says of each: whom it does not point at is clean."""

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS, find, pin_all
from allocsim.checks import check
from allocsim.fuzzing import batch as batches
from allocsim.fuzzing.batch import flat, join, join_plans
from allocsim.fuzzing.bulk import batch_of
from allocsim.fuzzing.exhaustive import Odometer, total
from allocsim.fuzzing.planting import FAULTS, MISTAKES, faulty, mistaken
from allocsim.fuzzing.properties import with_pins_read
from allocsim.model import HOST_WRITE, VIEW, Document
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.screens import many
from allocsim.screens.many import to_look_at


def pointed_at(batch, plan):
    """Programs of a batch that are pointed at, those that cannot be laid side by side included."""
    laid, strange = flat(batch, plan)
    return {*strange, *to_look_at(laid, op_starts=batch.op_starts, buffer_starts=batch.buffer_starts).tolist()}


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


@pytest.mark.parametrize("seed", range(8))
def test_of_every_program_of_a_scope_it_points_at_those_that_are_unsound_and_at_no_other(seed):
    random = Random(seed)
    batch = Odometer(3).batch(total(3))
    plans = [planned(random, batch[k], faults=random.randrange(3)) for k in range(1, len(batch))]
    first = ALLOCATORS["reference"].plan(batch[0])  # a program without ops is always looked at
    wrong = judged_alone([first, *plans])

    assert len(wrong) > 60
    assert pointed_at(batch, join_plans(batch, [first, *plans])) == wrong | {0}


@pytest.mark.parametrize("seed", range(4))
def test_one_read_behind_all_programs_is_looked_at_as_one_behind_each(seed):
    random = Random(seed)
    batch = Odometer(3).batch(total(3))
    plans = [ALLOCATORS["reference"].plan(batch[0])]
    plans += [planned(random, batch[k], faults=random.randrange(3)) for k in range(1, len(batch))]
    laid, strange = flat(batch, join_plans(batch, plans))
    read = with_pins_read(laid, pin_all(batch.program))
    found = {*strange, *to_look_at(read, op_starts=batch.op_starts, buffer_starts=batch.buffer_starts).tolist()}
    wrong = judged_alone([with_pins_read(plan, pin_all(plan.program)) for plan in plans])

    assert len(wrong) > len(judged_alone([replace(plan, problem=None) for plan in plans]))
    assert found == wrong | {0}


@pytest.mark.parametrize("seed", range(6))
def test_of_programs_of_every_kind_it_misses_none_that_is_unsound(seed):
    random = Random(seed)
    batch = batch_of(np.random.default_rng([1501, seed]), 150)
    plans = [planned(random, batch[k], faults=random.randrange(3)) for k in range(len(batch))]

    assert judged_alone(plans) <= pointed_at(batch, join_plans(batch, plans))


@pytest.mark.parametrize("name", [name for name, row in ALLOCATORS.items() if "sound" in row.guarantees])
def test_it_points_at_no_sound_plan_of_a_scope(name):
    ops = 4 if name == "greedy_by_size" else 3
    batch = Odometer(ops).batch(total(ops))

    assert pointed_at(batch, ALLOCATORS[name].plan(batch.program)) == {0}


def test_what_it_does_not_see_it_points_at():
    batch = batch_of(np.random.default_rng(7), 400)
    found = pointed_at(batch, ALLOCATORS["reference"].plan(batch.program))

    for place in range(len(batch)):
        program = batch[place]
        acts = ~program.ops.is_kind(VIEW)
        touched = np.concatenate(
            [
                program.ops.operands[np.repeat(acts, np.diff(program.ops.operand_starts))],
                program.ops.results[np.repeat(acts, np.diff(program.ops.result_starts))],
            ]
        )
        unseen = (
            not len(program.ops)
            or program.buffers.persistent.any()
            or not program.ops.in_place_known[acts].all()
            or not program.values.dense[touched].all()
        )
        assert (place in found) == unseen


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


def test_no_kind_of_defect_hides_another_from_the_entry_for_many(monkeypatch):
    """As many slots out of bounds as are noted, and one that is not aligned: of each kind all are noted, so each program is pointed at."""
    batch, laid = batch_of_uploads(4, wrong={0: -1024, 1: -2048, 3: 4})
    monkeypatch.setattr(many, "ROOM", 2)

    assert to_look_at(laid, op_starts=batch.op_starts, buffer_starts=batch.buffer_starts).tolist() == [0, 1, 3]


def test_programs_are_blamed_for_violations_beyond_those_listed(monkeypatch):
    batch, laid = batch_of_uploads(4, wrong={0: -1024, 1: -2048, 3: 4})
    monkeypatch.setattr(batches, "check", partial(check, limit=1))
    assert batch.unsound(laid) == [0, 1, 3]

    monkeypatch.setattr(batches, "check", lambda *given, **named: replace(check(*given, **named), truncated=True))
    assert batch.unsound(laid) == [0, 1, 2, 3]  # where not all are counted, any program may have one
