"""Lifetimes over several streams: plans of any planner race in no order."""

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS, find
from allocsim.allocators.over_streams import happens_before, over_streams
from allocsim.diagnostics import check
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder

SOUND = [name for name, row in ALLOCATORS.items() if "sound" in row.guarantees]


def drawn(rng, *, streams=3, count=24):
    """A program on several streams whose ops wait for those that made what they read."""
    b = ProgramBuilder("p", streams=tuple(f"s{n}" for n in range(streams)))
    made, step_of = [], {}
    first = b.tensor("x", "u8", (32,))
    step_of[first] = b.op("host.write", (), (first,))
    made.append(first)
    for number in range(count):
        reads = sorted({int(v) for v in rng.choice(made[-6:], size=min(2, len(made)))})
        value = b.tensor(f"v{number}", "u8", (int(rng.integers(1, 5)) * 16,))
        pairs = [(0, 0)] if rng.random() < 0.3 else []
        step_of[value] = b.op(
            "f", reads, (value,), stream=int(rng.integers(streams)), after=[step_of[v] for v in reads], in_place=pairs
        )
        made.append(value)
    last = made[-1]
    b.op("host.read", (last,), (), after=[step_of[last]])
    return b.build()


def reachable(program):
    """Which op is ordered before which, by walking."""
    count = len(program.ops)
    before = [set() for _ in range(count)]
    last = {}
    for op in program.ops:
        for earlier in (*op.after, *([last[op.stream]] if op.stream in last else [])):
            before[op.step] |= before[earlier] | {earlier}
        last[op.stream] = op.step
    return before


@pytest.mark.parametrize("seed", range(25))
def test_clocks_say_what_walking_finds(seed):
    program = drawn(np.random.default_rng(seed))
    clock, before = happens_before(program), reachable(program)
    streams = program.ops.stream
    for later in range(len(program.ops)):
        for earlier in range(later):
            assert (clock[later, streams[earlier]] >= earlier) == (earlier in before[later])


@pytest.mark.parametrize("seed", range(25))
def test_lives_that_do_not_meet_are_ordered_access_by_access(seed):
    """And a life is not longer than that asks for: shorter by one op, some order would break it."""
    program = drawn(np.random.default_rng(seed))
    problem = over_streams(find("best_fit").believe(program))
    before, of_value = reachable(program), program.values.buffer
    touched = {}
    for op in program.ops:
        for value in (*op.operands, *op.results):
            touched.setdefault(int(of_value[value]), set()).add(op.step)
    begins = {min(steps) for steps in touched.values()}
    for buffer, steps in touched.items():
        late = [j for j in begins if j > min(steps) and not all(a in before[j] for a in steps)]
        if not problem.pinned[buffer]:
            assert problem.stop[buffer] == max([*steps, *late]) + 1


@pytest.mark.parametrize("name", SOUND)
def test_every_planner_is_sound_over_streams(name):
    """The same planners that race when they are told lives in the order of the list alone."""
    planner, raced = ALLOCATORS[name], 0
    for seed in range(6):
        program = drawn(np.random.default_rng([seed, 7]))
        believed = planner.believe(program)
        assert check(Document.of(planner.place(over_streams(believed)))).clean, seed
        raced += not check(Document.of(planner.place(believed))).clean
    assert raced or "no_reuse" in planner.guarantees


def test_a_program_of_one_stream_keeps_its_problem():
    problem = find("best_fit").believe(drawn(np.random.default_rng(1), streams=1))
    assert over_streams(problem) is problem


def test_a_pair_is_dropped_where_another_stream_may_still_read_the_donor():
    """The taker is the donor's last reader in the list and not behind a reader on the other stream."""
    b = ProgramBuilder("p", streams=("a", "c"))
    d, x, r = (b.tensor(name, "u8", (32,)) for name in "dxr")
    written = b.op("host.write", (), (d,))
    other = b.op("f", (d,), (x,), stream=1, after=[written])
    b.op("f", (d,), (r,), after=[written], in_place=[(0, 0)])
    b.op("host.read", (r,), ())
    b.op("host.read", (x,), (), after=[other])
    belief = find("best_fit").believe(b.build())
    assert belief.may_share.tolist() == [[0, 2]]
    problem = over_streams(belief)
    assert problem.may_share.tolist() == []
    assert check(Document.of(find("best_fit").place(problem))).clean
