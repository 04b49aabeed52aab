"""Every buffer in bytes of its own: where exactly, beside what is told, what lasts and what an arena holds."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from steps import lines_run

from allocsim.cure import apart
from allocsim.cure.apart import all_apart
from allocsim.model import OWN, Arena, Document, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from repro.small.words import belief, plan, program


def offsets(document):
    return [made.offset.tolist() for made in all_apart(document)]


def aligned(rows, capacity=None, **told):
    """A plan of buffers (bytes, alignment), all of them at 0."""
    builder = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=8, capacity=capacity),))
    for number, (nbytes, alignment) in enumerate(rows):
        builder.buffer(f"b{number}", nbytes, alignment=alignment)
    made = builder.build()
    return Document.of(plan_of(made, [0] * len(rows), problem=belief(made, **told)))


def test_a_buffer_begins_after_what_was_told_at_the_next_address_of_its_alignment():
    assert offsets(aligned([(10, 4), (8, 4), (1, 1)], fixed={0: 0})) == [[0, 12, 20]]
    assert offsets(aligned([(10, 4), (8, 4)], fixed={0: 4})) == [[4, 16]]
    assert offsets(aligned([(10, 4), (8, 4)], fixed={0: 8})) == [[8, 0]]


@pytest.mark.parametrize(("capacity", "fits"), [(16, True), (15, False)])
def test_an_arena_may_be_full_to_its_last_byte(capacity, fits):
    assert (all_apart(aligned([(8, 4), (8, 4)], capacity)) is not None) is fits


def test_each_arena_begins_at_its_own_zero_and_what_has_memory_of_its_own_is_in_none():
    made = program("x = host.write; a = f x; g = f x; o = f x; host.read a", gpu="g")
    (apart,) = all_apart(Document.of(plan(made, "x=0 a=0 g=0 o=own")))
    assert apart.arena.tolist() == [0, 0, 1, OWN]
    assert apart.offset.tolist()[:3] == [0, 64, 0]
    assert apart.nbytes.tolist() == [64, 64, 64, 0]


def test_what_lasts_lies_where_no_plan_of_the_session_has_anything_else():
    kept = program("x = host.write; a = f x s; host.read a", roles={"s": Role.STATE})
    between = program("q = host.write; r = h q; host.read r")
    first, second = plan(kept, "s=0 x=64 a=128"), plan(between, "q=0 r=64")
    ((s, *rest), others) = offsets(Document.of(Run.of(first), Run.of(second)))
    assert s == 0
    assert sorted(rest) == sorted(others) == [64, 128]


def lasting(rows):
    """A session of two programs: states (bytes, alignment) that both may have, by name, and what passes."""
    plans = []
    for number, (states, passing, fixed) in enumerate(rows):
        builder = ProgramBuilder(f"p{number}", arenas=(Arena(name="cpu", alignment=1),))
        for name, nbytes, alignment in states:
            builder.buffer(name, nbytes, alignment=alignment, role=Role.STATE)
        for at, (nbytes, alignment) in enumerate(passing):
            builder.buffer(f"t{at}", nbytes, alignment=alignment)
        made = builder.build()
        plans.append(plan_of(made, [0] * len(made.buffers), problem=belief(made, fixed=fixed, own=())))
    return Document.of(*(Run.of(one) for one in plans))


def byte_by_byte(document):
    """What lasts where its first bytes are free, tried one address after another: nothing is shared with what is tested."""
    taken, homes = set(), {}
    for one in document.plans:
        for b, at in one.problem.fixed.items():
            taken.update(range(at, at + int(one.program.buffers.nbytes[b])))
            if one.program.buffers.persistent[b]:
                homes.setdefault(one.program.buffers.names[b], at)
    rows = {}
    for one in document.plans:
        buffers = one.program.buffers
        for b in range(len(buffers)):
            if buffers.persistent[b]:
                rows[buffers.names[b]] = int(buffers.alignment[b]), int(buffers.nbytes[b])
    for name, (step, nbytes) in sorted(rows.items(), key=lambda row: row[1], reverse=True):
        if name not in homes:
            at = next(at for at in range(0, 10_000, step) if taken.isdisjoint(range(at, at + nbytes)))
            homes[name] = at
            taken.update(range(at, at + nbytes))
    return homes


def test_what_lasts_is_aligned_as_the_strictest_of_its_plans_asks():
    """s is at the end of t for the first program, and at the next multiple of 64 for the second."""
    (one, other) = offsets(lasting([([("t", 80, 64), ("s", 8, 16)], [], {}), ([("t", 80, 64), ("s", 8, 64)], [], {})]))
    assert one == other == [0, 128]


def test_what_lasts_has_the_bytes_that_the_most_generous_of_its_plans_believes_it_needs():
    states = [("s", 8, 8), ("t", 8, 8)]
    small, large = lasting([(states, [], {}), (states, [], {})]).plans
    believed = replace(large, problem=belief(large.program, nbytes=[16, 8], own=()))
    for pair in ((small, believed), (believed, small)):
        (one, other) = offsets(Document.of(*(Run.of(each) for each in pair)))
        assert one == other
        assert one[1] >= one[0] + 16 or one[1] + 8 <= one[0]


def test_what_lasts_lies_in_the_lowest_bytes_that_are_free_in_all_plans():
    for seed in range(300):
        rng = random.Random(seed)
        states = [(f"s{n}", rng.randint(1, 20), rng.choice((1, 2, 3, 4, 8, 16))) for n in range(rng.randint(1, 8))]
        rows = []
        for _ in range(2):
            mine = [state for state in states if rng.random() < 0.8]
            passing = [(rng.randint(1, 12), 4) for _ in range(3)]
            fixed = {len(mine) + n: 20 * n + rng.randint(0, 8) for n in range(3) if rng.random() < 0.5}
            rows.append((mine, passing, fixed))
        document = lasting(rows)
        sizes = {name: (nbytes, step) for name, nbytes, step in states}
        found = {}
        for made in all_apart(document):
            buffers = made.program.buffers
            found |= {buffers.names[b]: int(made.offset[b]) for b in range(len(buffers)) if buffers.persistent[b]}
        wanted = byte_by_byte(document)
        # of equal alignment and size either may come first
        assert sorted((at, sizes[n]) for n, at in found.items()) == sorted((at, sizes[n]) for n, at in wanted.items())


def test_of_many_alignments_the_last_lie_behind_all_others_and_apart(monkeypatch):
    rows = [(f"s{n}", 3 + n % 5, 1 + n) for n in range(60)]
    (made,) = all_apart(lasting([(rows, [], {})]))
    ranges = sorted(zip(made.offset.tolist(), (made.offset + made.nbytes).tolist(), strict=True))
    assert all(high <= low for (_, high), (low, _) in pairwise(ranges))
    assert all(at % (1 + n) == 0 for n, at in enumerate(made.offset.tolist()))
    monkeypatch.setattr(apart, "ALIGNMENTS", 1000)
    (tight,) = all_apart(lasting([(rows, [], {})]))
    assert tight.peak_bytes <= made.peak_bytes


@pytest.mark.parametrize("alignments", [(8,), (1, 2, 3, 4, 5, 6, 7, 8)])
def test_four_times_as_many_buffers_take_no_more_than_six_times_the_steps(alignments):
    """Lines of the module that are run, with holes between what is told: sixteen times as many where each looks at all."""

    def lines(count):
        states = [(f"s{n}", 1 + n % 50, alignments[n % len(alignments)]) for n in range(count)]
        fixed = {count + n: 100 * n for n in range(count)}
        document = lasting([(states, [(60, 1)] * count, fixed)])
        return lines_run(apart, lambda: all_apart(document))

    assert lines(400) < 6 * lines(100)
