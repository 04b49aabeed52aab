"""Right schedules over ranks are never accused; one wait left out is found, and shows in some order.

The oracle walks: two ops that touch a byte as planned, one writing, and no path of streams and
waits from the earlier to the later. It shares nothing with the judge or with the schedule.
"""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allocsim.diagnostics import check
from allocsim.model import VIEW, Document
from allocsim.programs.allocator_trace import trace
from allocsim.programs.joined_ranks import joined
from engine.sharding import Simulation, judge_ranks, shard
from engine.sharding.caching_trace import events_of

_spec = importlib.util.spec_from_file_location("law_steps", Path(__file__).parents[1] / "unit/engine/sharding/steps.py")
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)

COUNT = int(os.environ.get("ALLOCSIM_RANK_SCHEDULES", "60"))
"""Schedules of each law; a campaign asks for 1,000."""


def shared_buffers(program):
    """Return the buffers that several streams use and that are freed: those that need a record."""
    streams = {}
    for op in program.ops:
        for value in (*op.operands, *op.results) if op.kind != VIEW else ():
            streams.setdefault(int(program.values.buffer[value]), set()).add(op.stream)
    return [buffer for buffer, used in streams.items() if len(used) > 1 and not program.buffers.persistent[buffer]]


def drawn(seed):
    """A step of a perceptron over ranks, its way of sharding and its planner drawn by a seed."""
    rng = np.random.default_rng([seed, 30])
    zero, ranks = int(rng.integers(0, 4)), int(rng.choice([2, 3, 4]))
    sizes = tuple(int(n) for n in rng.integers(2, 12, int(rng.integers(2, 6))))
    recorded = steps.perceptron(ranks, rows=int(rng.integers(1, 4)), steps=1, sizes=sizes, seed=seed)
    step = shard(
        *recorded.forward(),
        zero=zero,
        ranks=ranks,
        optimizer=str(rng.choice(["sgd", "adamw"])),
        prefetch=int(rng.integers(0, 3)),
        reshard=bool(rng.integers(2)),
        hybrid=(2, 2) if zero and ranks == 4 and rng.integers(2) else None,
        bucket_nbytes=int(rng.choice([1, 200, 1 << 20])),
    )
    name = str(rng.choice(["best_fit", "linear_scan", "greedy_by_size", "caching", "tlsf"]))
    return recorded, step, name, rng


def without(program, wait):
    """The program with one of its waits left out."""
    ops = program.ops
    owner = int(np.searchsorted(ops.after_starts, wait, side="right")) - 1
    starts = ops.after_starts - (np.arange(len(ops.after_starts)) > owner).astype(ops.after_starts.dtype)
    return replace(program, ops=replace(ops, after=np.delete(ops.after, wait), after_starts=starts))


def unordered(plan):
    """The pairs of ops that touch a byte, one writing, with no path between them."""
    program, values = plan.program, plan.program.values
    last, before, touched = {}, [], []
    for op in program.ops:
        found = set()
        for earlier in (*op.after, *([last[op.stream]] if op.stream in last else [])):
            found |= before[earlier] | {earlier}
        last[op.stream] = op.step
        before.append(found)
        rows = []
        for side, writes in ((op.operands, False), (op.results, True)) if op.kind != VIEW else ():
            for value in side:
                buffer = int(values.buffer[value])
                low, high = (int(edge) for edge in values.hulls[value])
                arena = int(plan.arena[buffer])
                start = int(plan.offset[buffer]) if arena >= 0 else 0
                rows.append((arena if arena >= 0 else ~buffer - 9, start + low, start + high, writes))
        touched.append(rows)
    return {
        (i, j)
        for j in range(len(before))
        for i in range(j)
        if i not in before[j]
        and any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] and (a[3] or b[3]) for a in touched[i] for b in touched[j])
    }


def test_right_schedules_are_never_accused():
    for seed in range(COUNT):
        _, step, name, _ = drawn(seed)
        plan = step.planned(name)
        assert not unordered(plan), seed
        assert check(Document.of(plan)).clean, seed


def test_one_rank_says_what_all_say():
    """Judging one of ranks that are alike, and the document of all: both clean, or both race as often."""
    for seed in range(COUNT // 5):
        _, step, name, rng = drawn(seed)
        plan = step.planned(name)
        ranks = step.sharding.ranks
        if seed % 2 and len(plan.program.ops.after):
            wait = int(rng.integers(len(plan.program.ops.after)))
            plan = replace(plan, program=without(plan.program, wait), problem=None)
        one, all_ = judge_ranks([plan] * ranks, step.groups), check(joined([plan] * ranks, step.groups))
        assert one.judged == 1, seed
        assert one.clean == all_.clean, seed
        races = [v for v in all_.violations if v.kind == "Race"]
        assert len(races) == ranks * len([v for v in one.report.violations if v.kind == "Race"]), seed


def test_one_wait_left_out_is_found_where_some_order_breaks():
    """The judge names exactly the pairs that the walk finds; most waits that are left out break something."""
    broken = 0
    for seed in range(COUNT):
        _, step, name, rng = drawn(seed)
        plan = step.planned(name)
        wait = int(rng.integers(len(plan.program.ops.after)))
        faulty = replace(plan, program=without(plan.program, wait), problem=None)
        expected = unordered(faulty)
        report = check(Document.of(faulty))
        found = {(v.other_op, v.op) for v in report.violations if v.kind == "Race"}
        assert found == expected, seed
        broken += bool(expected)
    assert broken > COUNT // 2


@pytest.mark.parametrize("seed", range(8))
def test_a_wait_left_out_gives_other_bits_in_some_order(seed):
    """An execution: the later op of the racing pair runs first, and a weight or the loss comes out otherwise."""
    recorded, step, name, _ = drawn(seed)
    plan = step.planned(name)
    ops = plan.program.ops
    wanted = outcome(recorded, step, plan, None)
    for wait in range(len(ops.after)):
        program = without(plan.program, wait)
        faulty = replace(plan, program=program, problem=None)
        if not unordered(faulty):
            continue
        loose = replace_program(step, program)
        if any(outcome(recorded, loose, faulty, draw) != wanted for draw in range(6)):
            return
    pytest.fail("no wait that was left out gave other bits")


def replace_program(step, program):
    return replace(step, lowered=replace(step.lowered, program=program))


def outcome(recorded, step, plan, seed):
    """Loss and weights of one step, as bytes."""
    with Simulation(step, plan, recorded.weights, suspect=True) as world:
        read = world.run(recorded.data[0], hyper={"alpha": 0.1}, seed=seed)
        weights = world.weights()
    return [one["loss.mean"].tobytes() for one in read], {n: w.tobytes() for n, w in weights.items() if "hp" not in n}


def test_a_caching_allocator_is_clean_with_its_records_and_found_without_one():
    """Blocks of other streams come back by an event; one record left out races where the walk says so, and is often enough a fault."""
    broken = 0
    for seed in range(COUNT):
        _, step, _, rng = drawn(seed)
        program = step.lowered.program
        lag = int(rng.integers(0, 12))
        right = trace(events_of(program, lag=lag))
        assert not unordered(right.plans[0]), seed
        assert not [v for v in check(right).violations if v.kind in ("Race", "StaleRead")], seed
        for buffer in shared_buffers(program)[:4]:
            faulty = trace(events_of(program, lag=lag, forgotten=buffer))
            expected = unordered(faulty.plans[0])
            found = {(v.other_op, v.op) for v in check(faulty).violations if v.kind == "Race"}
            assert found == expected, (seed, buffer)
            broken += bool(expected)
    assert broken > COUNT // 10
