"""Laws of liveness, against the byte-by-byte oracle and against definitions spelled out."""

import json
from itertools import combinations, permutations

import numpy as np
import pytest
from columns import difference
from facts import accesses, live_steps, permissible, persistent
from hypothesis import given
from hypothesis import strategies as st
from oracle import measure
from oracle2 import judge
from oracle2.aliasing import joins_somewhere
from oracle2.generate import generate
from oracle2.reading import read
from oracle2.segments import lives
from oracle2.sharing import Scene, hand_over, one_gives, together
from strategies import documents, programs

from allocsim import document as native
from allocsim import liveness
from allocsim.liveness.explanation import explain
from allocsim.model import HOST_WRITE, Document, Program
from allocsim.programs.networkx_graph import from_networkx, to_networkx


@given(programs(defects=True), st.data())
def test_lifetimes_are_the_steps_in_which_a_buffer_is_live(program: Program, data: st.DataObject) -> None:
    uploads = np.flatnonzero(program.ops.is_kind(HOST_WRITE)).tolist()
    skip = data.draw(st.lists(st.sampled_from(uploads), unique=True)) if uploads else []
    live, steps = live_steps(program, skip), len(program.ops)
    found = liveness.segments(program, skip=skip).tolist()
    assert {b: {t for owner, start, stop in found if owner == b for t in range(start, stop)} for b in live} == live
    for buffer, (start, stop) in enumerate(liveness.lifetimes(program, skip=skip).tolist()):
        done = accesses(program, skip)[buffer]
        around = (0, steps) if persistent(program, buffer) else (done[0].step, done[-1].step + 1) if done else (0, 0)
        assert (start, stop) == around


@given(programs(defects=True))
def test_live_bytes_and_their_peak_are_sums_over_live_buffers(program: Program) -> None:
    live, size = live_steps(program), program.buffers.nbytes.tolist()
    spelled = [sum(size[b] for b in live if step in live[b]) for step in range(len(program.ops))]
    assert liveness.live_bytes(program).tolist() == spelled
    peak = liveness.peak(program)
    if peak is None:
        assert not spelled
        return
    assert (peak.nbytes, peak.step) == (max(spelled), spelled.index(max(spelled)))
    assert set(peak.buffers) == {b for b in live if peak.step in live[b]}


@given(programs(defects=True))
def test_interference_is_living_together_in_one_arena(program: Program) -> None:
    live, size, arena = live_steps(program), program.buffers.nbytes, program.buffers.arena
    expected = {
        (a, b) for a, b in combinations(live, 2) if live[a] & live[b] and size[a] and size[b] and arena[a] == arena[b]
    }
    pairs = [tuple(pair) for pair in liveness.interference_pairs(program).tolist()]
    assert pairs == sorted(expected)
    graph = liveness.interference_graph(program)
    assert set(map(frozenset, graph.edges)) == set(map(frozenset, expected))
    assert len(graph) == len(live)


@given(programs(defects=True))
def test_permissible_pairs_are_those_the_oracle_permits(program: Program) -> None:
    some = [buffer for buffer in range(len(program.buffers)) if program.buffers.nbytes[buffer]]
    expected = {(step, d, r) for d in some for r in some if d != r for step in permissible(program, d, r)}
    found = {tuple(row) for row in liveness.permissible_pairs(program).tolist()}
    assert {row for row in found if program.buffers.nbytes[row[1]] and program.buffers.nbytes[row[2]]} == expected


@given(documents())
def test_the_lower_bound_is_the_one_the_oracle_measures(document: Document) -> None:
    runs = [run for run in document.runs if len(run.program.ops)]
    bounds = [liveness.lower_bound(run.program, counted=run.plan.arena >= 0, skip=run.skip) for run in runs]
    if len(runs) == len(document.runs):
        assert max(bounds, default=0) == measure(document).lower_bound_bytes


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_pairs_and_bound_of_version_2_are_those_of_its_oracle(first):
    """Strengths, `same` and packed elements; a `same` may lower the bound below the oracle's, who knows when it was rewritten."""
    for seed in range(first, first + 50):
        written = generate(seed)
        document, theirs = native.loads(json.dumps(written)), read(written)
        if any(b.get("nbytes_range") for p in written["programs"] for b in p["buffers"]) or not all(
            p.ops for p in theirs.programs
        ):
            continue
        for run, other in zip(document.runs, theirs.runs, strict=True):
            scene = Scene(theirs, other, lives(theirs, other), (), {})
            some = [b.index for b in scene.program.buffers if b.nbytes]
            steps = range(len(scene.program.ops))
            chances = [(t, a, b) for t in steps for a, b in permutations(some, 2) if one_gives(scene, t, a, b)]
            joined = [
                (t, a, b) for t, a, b in chances if joins_somewhere(scene.program, scene.program.ops[t], a, b, {})
            ]
            permissible = [(t, a, b) for t, a, b in chances if hand_over(scene, together(a, b), t, a, b)]
            for expected, found in (
                (joined, liveness.joined_pairs(run.program, skip=run.skip)),
                (permissible, liveness.permissible_pairs(run.program, skip=run.skip)),
            ):
                assert [tuple(row) for row in found.tolist() if {*row[1:]} <= {*some}] == expected, seed
        bounds = [liveness.lower_bound(r.program, counted=r.plan.placed, skip=r.skip) for r in document.runs]
        bound = judge(written).stats["lower_bound_bytes"]
        assert max(bounds, default=0) <= bound, seed
        assert max(bounds, default=0) == bound or any(op.same for p in theirs.programs for op in p.ops), seed


@given(programs(defects=True))
def test_a_program_comes_back_from_networkx_with_equal_columns(program: Program) -> None:
    again = from_networkx(to_networkx(program))
    assert difference(program, again) is None


@given(documents())
def test_every_buffer_can_be_explained_under_every_plan(document: Document) -> None:
    for plan in document.plans:
        live = live_steps(plan.program)
        for buffer in range(len(plan.program.buffers)):
            found = explain(plan.program, buffer, plan)
            assert live[buffer] <= set(range(found.start, found.stop))
            assert found.text.startswith(f"buffer {buffer} ")
            others = found.before + found.after + found.conflicts
            assert buffer not in others
            assert all(not live[other] & live[buffer] for other in found.before + found.after)
            around = [set(range(*span)) for span in liveness.lifetimes(plan.program).tolist()]
            assert all(around[other] & around[buffer] for other in found.conflicts)
