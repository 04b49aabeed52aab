"""Small problems without ops against the least peak there is, found by trying every offset: bounds stay below it, `exact` reaches it.

The oracle knows alignment, pins, fixed offsets, gaps and pairs from their definitions and shares no code with the planners. The judge
decides what is sound.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim import check
from allocsim.allocators import ALLOCATORS, branch_and_bound
from allocsim.allocators.lower_bounds import lower_bound
from allocsim.errors import CapacityError
from allocsim.model import Arena, Document, Problem
from allocsim.programs.builder import ProgramBuilder

STEPS = 6


@st.composite
def problems(draw, *, pairs=True, fixed=True, capacity=None):
    """At most five buffers of a few bytes."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, STEPS - 1), st.integers(1, 4), st.integers(0, 4), st.sampled_from([1, 1, 2, 3, 4])
            ),
            max_size=5,
        )
    )
    builder = ProgramBuilder("small", arenas=(Arena(name="a", alignment=1, capacity=capacity),))
    for number, (_, _, size, alignment) in enumerate(rows):
        builder.buffer(f"b{number}", size, alignment=alignment)
    count = len(rows)
    columns = {"start": [row[0] for row in rows], "stop": [row[0] + row[1] for row in rows]}
    some = st.lists(st.integers(0, count - 1), max_size=1) if count else st.just([])
    columns["pinned"] = draw(some)
    columns["gaps"] = {b: ((columns["start"][b] + 1, columns["start"][b] + 2),) for b in draw(some)}
    if fixed:
        columns["fixed"] = {b: draw(st.integers(0, 6)) * rows[b][3] for b in draw(some) if rows[b][2]}
    if pairs:
        meeting = [
            (d, r)
            for d in range(count)
            for r in range(count)
            if d != r and columns["stop"][d] == columns["start"][r] + 1
        ]
        columns["may_share"] = draw(st.lists(st.sampled_from(meeting), unique=True, max_size=3)) if meeting else []
    return Problem.of(builder.build(), **columns)


def alive(problem, buffer):
    """The steps in which a buffer needs its bytes."""
    stop = 3 * STEPS if problem.pinned[buffer] else int(problem.stop[buffer])
    gaps = problem.gaps.get(buffer, ())
    return {
        step for step in range(int(problem.start[buffer]), stop) if not any(low <= step < high for low, high in gaps)
    }


def least_peak(problem):
    """The lowest peak of all plans in which nothing that lives together overlaps, other than pairs at one address."""
    count = len(problem.nbytes)
    lives = [alive(problem, buffer) for buffer in range(count)]
    sizes, steps = problem.nbytes.tolist(), problem.program.buffers.alignment.tolist()
    paired = {(d, r) for d, r in problem.may_share.tolist() if not problem.pinned[d]}
    offsets = []

    def clear(buffer, at):
        for other, there in enumerate(offsets):
            apart = at >= there + sizes[other] or there >= at + sizes[buffer] or not sizes[other] or not sizes[buffer]
            pair = at == there and ((other, buffer) in paired or (buffer, other) in paired)
            if not apart and not pair and lives[other] & lives[buffer]:
                return False
        return True

    def fits(height):
        buffer = len(offsets)
        if buffer == count:
            return True
        wanted = (
            [problem.fixed[buffer]] if buffer in problem.fixed else range(0, height - sizes[buffer] + 1, steps[buffer])
        )
        for at in wanted:
            if at + sizes[buffer] <= height and clear(buffer, at):
                offsets.append(at)
                if fits(height):
                    return True
                offsets.pop()
        return False

    height = 0
    while not fits(height):
        offsets.clear()
        height += 1
        if height > 60:
            return None  # two fixed buffers in conflict: there is no plan
    return height


@settings(max_examples=75)
@given(problem=problems())
def test_no_plan_goes_below_the_bound(problem):
    least = least_peak(problem)

    assert least is None or lower_bound(problem) <= least


@settings(max_examples=75)
@given(problem=problems(pairs=False))
def test_exact_finds_the_least_peak_and_proves_it(problem):
    plan = branch_and_bound.place(problem)

    assert plan.meta["exact"]["proved"]
    assert plan.peak_bytes == plan.meta["exact"]["lower_bound"] == least_peak(problem)


@settings(max_examples=30)
@given(problem=problems())
def test_what_exact_proves_with_pairs_is_true(problem):
    plan = branch_and_bound.place(problem)

    assert not plan.meta["exact"]["proved"] or plan.peak_bytes == least_peak(problem)


@settings(max_examples=30)
@given(problem=problems(pairs=False, capacity=8))
def test_exact_refuses_only_what_does_not_fit(problem):
    least = least_peak(problem)
    if least is None or least > 8:
        with pytest.raises(CapacityError, match=r"proved|does not fit"):
            branch_and_bound.place(problem)
    else:
        assert branch_and_bound.place(problem).peak_bytes == least


@settings(max_examples=30)
@given(problem=problems())
def test_plans_of_problems_without_ops_are_clean(problem):
    for allocator in ALLOCATORS.values():
        report = check(Document.of(allocator.place(problem)))
        assert report.clean, (allocator.name, report.violations[0].message)


@settings(max_examples=30)
@given(problem=problems(), capacity=st.integers(0, 40))
def test_capacity_is_kept_or_refused(problem, capacity):
    arenas = (Arena(name="a", alignment=1, capacity=capacity),)
    builder = ProgramBuilder("small", arenas=arenas)
    buffers = problem.program.buffers
    for b, name in enumerate(buffers.names):
        builder.buffer(name, int(buffers.nbytes[b]), alignment=int(buffers.alignment[b]))
    bounded = Problem.of(
        builder.build(), start=problem.start, stop=problem.stop, pinned=problem.pinned, fixed=problem.fixed,
        may_share=problem.may_share, gaps=problem.gaps,
    )  # fmt: skip
    for allocator in ALLOCATORS.values():
        try:
            plan = allocator.place(bounded)
        except CapacityError:
            continue
        assert plan.peak_bytes <= capacity, allocator.name
        assert check(Document.of(plan)).clean, allocator.name


def test_the_oracle_knows_a_case_by_hand():
    """Sizes 2, 3 and 4 with lives that meet pairwise but for the first and the last."""
    builder = ProgramBuilder("hand", arenas=(Arena(name="a", alignment=1),))
    for size in (2, 3, 4):
        builder.buffer("b", size)
    problem = Problem.of(builder.build(), start=[0, 1, 3], stop=[2, 4, 5])

    assert least_peak(problem) == 7
    assert branch_and_bound.place(problem).peak_bytes == 7
