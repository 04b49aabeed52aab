"""Exhaustive mode makes every program of its scope once: counted in another way, from the words of its header."""

from itertools import pairwise, permutations

import pytest

from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.fuzzing.exhaustive import Odometer, batches, stretches, total
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Document
from engine.d_differential.execution import apart


def brute(most):
    """Every program of the scope, with values called by arbitrary names and operands in any order, as what is left when both are forgotten."""
    found = set()

    def grow(ops, values):
        found.add(forgotten(ops))
        if len(ops) == most:
            return
        name = len(values)
        able = [v for v, (_, _, lost, _, _) in values.items() if not lost]
        for units in (1, 2):
            step(ops, values, ("write", (), name, units, ("new", name), 0, ()), made=True)
        for count in (1, 2):
            for chosen in permutations(able, count):
                sizes = [values[v][1] for v in chosen]
                for units in (1, 2) if count == 1 else (max(sizes),):
                    same = [v for v, size in zip(chosen, sizes, strict=True) if size == units]
                    for declared in subsets(same):
                        step(ops, values, ("op", chosen, name, units, ("new", name), 0, declared), made=True)
        for v in able:
            buffer, units, _, begin, _ = values[v]
            step(ops, values, ("over", (v,), name, units, buffer, begin, (v,)), made=True)
            for half in (0, 1) if units == 2 else ():
                step(ops, values, ("view", (v,), name, 1, buffer, begin + half, ()), made=False)
            grow((*ops, ("read", (v,), None, 0, None, 0, ())), values)

    def step(ops, values, op, *, made):
        kind, _, name, units, buffer, begin, _ = op
        after = {}
        for v, (home, size, lost, low, by_op) in values.items():
            meets = home == buffer and low < begin + units and begin < low + size
            after[v] = (home, size, lost or (kind != "view" and meets and by_op), low, by_op)
        after[name] = (buffer, units, False, begin, made)
        grow((*ops, op), after)

    grow((), {})
    return found


def subsets(items):
    return [tuple(v for place, v in enumerate(items) if bits >> place & 1) for bits in range(1 << len(items))]


def forgotten(ops):
    """A program without the order of operands: what each op reads as a set. Names are those of the ops that make the values."""
    return tuple(
        (kind, frozenset(reads), units, buffer, begin, frozenset(declared))
        for kind, reads, _, units, buffer, begin, declared in ops
    )


def as_brute(program):
    """A program of the enumeration, as `brute` has it."""
    ops = []
    makers, values = {}, 0
    for op in program.ops:
        reads = frozenset(makers[v] for v in op.operands)
        declared = frozenset(makers[op.operands[o]] for o, _ in op.in_place)
        if op.kind == HOST_READ:
            ops.append(("read", reads, 0, None, 0, frozenset()))
            continue
        made = program.values[op.results[0]]
        home = (
            next(
                makers[v]
                for v in [*makers, op.results[0]]
                if v == op.results[0] or program.values[v].buffer == made.buffer
            )
            if any(program.values[v].buffer == made.buffer for v in makers)
            else values
        )
        shared = op.operands and program.values[op.operands[0]].buffer == made.buffer
        kind = "write" if op.kind == HOST_WRITE else "view" if op.kind == VIEW else "over" if shared else "op"
        makers[op.results[0]] = values
        ops.append((kind, reads, made.shape[0], ("new", home), made.offset // 4, declared))
        values += 1
    return tuple(ops)


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_it_makes_what_brute_force_makes(most):
    made = [
        as_brute(batch[k])
        for begin, count in stretches(most, 100)
        for batch in batches(most, begin, count)
        for k in range(len(batch))
    ]

    assert len(made) == len(set(made)) == total(most)
    assert set(made) == brute(most)


def test_every_program_is_clean_without_reuse():
    batch = Odometer(4).batch(total(4))

    assert len(batch) == total(4)
    assert check(Document.of(apart(batch.program))).clean


def test_stretches_join_without_a_gap():
    whole = Odometer(3).batch(10_000)
    parts = [
        batch[k] for begin, count in stretches(3, 37) for batch in batches(3, begin, count) for k in range(len(batch))
    ]

    assert len(parts) == len(whole)
    assert [as_brute(part) for part in parts] == [as_brute(whole[k]) for k in range(len(whole))]


@pytest.mark.parametrize("pins", ["reads", "all"])
@pytest.mark.parametrize("name", list(ALLOCATORS))
def test_a_planner_of_the_shelf_plans_a_batch_as_it_plans_each_program(name, pins):
    """So what is found of the plan of a batch is found of the planner: the campaign asks for one plan of each batch."""
    batch, planner = Odometer(3).batch(total(3)), ALLOCATORS[name]
    together = planner.plan(batch.program, Constraints.of(batch.program, pins=pins))

    for place, (begin, end) in enumerate(pairwise(batch.buffer_starts.tolist())):
        alone = planner.plan(batch[place], Constraints.of(batch[place], pins=pins))
        assert alone.offset.tolist() == together.offset[begin:end].tolist()
        assert alone.nbytes.tolist() == together.nbytes[begin:end].tolist()
        assert (alone.arena >= 0).tolist() == (together.arena[begin:end] >= 0).tolist()
