"""Scenarios at small size: the verdict each must get, its repaired twin, several at once, and the cure."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from few import few_of
from scenario_runs import ALL, PAIRS, THREE, small

from allocsim.allocators import ALLOCATORS
from allocsim.errors import AllocsimError, ModelError, PlannerError
from allocsim.judge.fast import check
from allocsim.verdict import judge
from engine.models.llama import SMOLLM2_135M
from repro import scenarios
from repro.options import EngineOptions
from repro.run import MODES, run
from repro.scenario import join, repaired


@pytest.mark.parametrize("name", ALL)
def test_each_scenario_and_each_pair_gets_its_verdict(name):
    result = small(name)
    assert result.matches, result.verdict.text
    assert result.verdict.classes == frozenset(result.scenario.expected)
    assert [f.class_ for f in result.verdict.joint[1:]] == [also["class"] for also in result.verdict.as_json()["also"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", few_of(ALL, 2))
@pytest.mark.parametrize(("layers", "seq"), [(3, 5), pytest.param(4, 16, marks=pytest.mark.campaign)])
def test_so_it_does_at_other_sizes(name, layers, seq):
    assert small(name, layers=layers, seq=seq, steps=3).matches


def test_all_three_at_once_are_all_named():
    result = small("+".join(THREE))
    assert result.verdict.classes == {("C04", "kernel"), ("C01", "plan"), ("C06", "caller")}


@pytest.mark.parametrize("allocator", few_of(ALLOCATORS, 3))
def test_the_repaired_twin_is_clean_under_every_planner(allocator):
    result = small("ggml-1501", fixed=True, allocator=allocator)
    assert result.matches
    assert result.verdict.sound
    assert len({mode.loss for mode in result.modes.values()}) == 1
    assert {says["status"] for says in result.verdict.detectors.values()} <= {"clean", "not run"}


def test_repaired_the_three_are_one():
    prose = dict.fromkeys(("name", "title", "story", "source", "caught"), "")
    one, *others = (replace(repaired(scenario), **prose) for scenario in map(scenarios.find, THREE))
    assert all(other == one for other in others)


@pytest.mark.parametrize("name", ["ggml-1501", "ggml-1501-as-reported"])
def test_pinning_every_node_gives_the_reference_to_the_bit(name):
    modes = small(name).modes
    assert modes["pinned"].loss == modes["reference"].loss
    assert modes["pinned"].first_difference is None
    assert modes["default"].first_difference == 1


def test_a_recycled_seed_is_right_for_one_step_and_hidden_only_by_pinning_leafs():
    nodes, leafs = small("ggml-1501-seed").modes, small("ggml-1501-seed", pin_leafs=True).modes
    assert nodes["default"].first_difference == nodes["pinned"].first_difference == 2
    assert leafs["pinned"].first_difference is None
    assert leafs["pinned"].loss == leafs["reference"].loss


def test_the_default_run_of_1501_differs_and_its_gradients_say_where():
    default = small("ggml-1501").modes["default"]
    assert default.loss[0] == small("ggml-1501").modes["reference"].loss[0]
    assert default.loss[1:] != small("ggml-1501").modes["reference"].loss[1:]
    first = [g for g in default.gradients if g.step == 1]
    assert len(first) == 2 * 4
    assert all(g.ratio is not None and abs(g.ratio - 1) > 1e-3 for g in first)
    assert all((g.ratio, g.cosine) == pytest.approx((1, 1)) for g in small("ggml-1501").modes["pinned"].gradients)


def test_arenas_grow_from_default_over_pinned_to_reference():
    peaks = [small("ggml-1501").modes[mode].arena_bytes for mode in MODES]
    assert peaks == sorted(peaks)
    assert small("ggml-1501").verdict.pin_all_bytes == peaks[1] - peaks[0]


@pytest.mark.parametrize("name", ["ggml-1501", "ggml-1501-as-reported+ggml-1501-seed"])
def test_the_cure_cures_and_nothing_of_it_can_be_left_out(name):
    """The record says so of numbers; the judge bears the mended document out."""
    result = small(name)
    assert result.evidence.cure.minimal
    whole = judge(msgspec.structs.replace(result.evidence, cure=None)).cure
    assert check(whole.document).clean
    assert sorted(change.kind for change in whole.changes) == sorted(
        {"ggml-1501": ["kernel"]}.get(name, ["lifetime", "upload"])
    )


def test_races_and_a_bad_kernel_have_one_cure_of_waits_and_a_pair():
    cure = small("parallel-branches+ggml-1501", layers=1).verdict.cure_text.split("; ")
    assert "forbid the in-place pair of rms_norm_back (result 0 over operand 0)" in cure
    assert len(cure) > 1
    assert sum(" wait for " in element for element in cure) == len(cure) - 1


def test_a_kernel_without_its_unsafe_pair_in_use_is_not_convicted():
    result = small("ggml-1501", allocator="reference")
    assert result.verdict.sound
    assert not result.matches
    assert result.verdict.detectors["K"]["status"] == "violations"


def test_a_wrong_expectation_does_not_match():
    scenario = replace(scenarios.find("ggml-1501"), expected=(("C01", "plan"),))
    assert not replace(small("ggml-1501"), scenario=scenario).matches
    assert not replace(small(PAIRS[0]), scenario=scenarios.find("ggml-1501")).matches


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"layers": 0}, "layers"),
        ({"seq": 0}, "seq"),
        ({"steps": 0}, "steps: 0; ggml-1501 needs at least 1 step"),
        ({"steps": -1}, "steps: -1"),
        ({"allocator": "nobody"}, "nobody"),
    ],
)
def test_sizes_and_names_that_make_no_run_are_refused(options, line):
    with pytest.raises(AllocsimError, match=line):
        run(scenarios.find("ggml-1501"), EngineOptions(**{"layers": 2, "seq": 8, "steps": 2, **options}))


def test_a_scenario_says_how_many_steps_it_needs_and_which_depth():
    with pytest.raises(ModelError, match="ggml-1501-seed needs at least 2 steps"):
        small("ggml-1501-seed", steps=1)
    with pytest.raises(AllocsimError, match="at least 2 layers"):
        small("ggml-1501-as-reported", layers=1)


def test_a_planner_without_a_belief_cannot_have_a_wrong_one(tmp_path, monkeypatch):
    (tmp_path / "stranger_planner.py").write_text("def plan(program):\n    return [0] * len(program.buffers)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PlannerError, match="has no belief"):
        small("ggml-1501-as-reported", allocator="stranger_planner:plan")


def test_joining_refuses_what_meets_in_one_place():
    one = scenarios.find("ggml-1501")
    with pytest.raises(ModelError, match="joined with itself"):
        join(one, one)
    with pytest.raises(ModelError, match="joined with itself"):
        scenarios.find("ggml-1501+ggml-1501-seed+ggml-1501")
    with pytest.raises(ModelError, match="train differently"):
        join(one, replace(scenarios.find("ggml-1501-seed"), training=replace(one.training, rate=1.0)))
    with pytest.raises(ModelError, match="both change the kernel of rms_norm_back"):
        join(one, replace(one, name="other"))


def fall(losses, reference):
    """Return by how much of the reference's fall the losses ever fell."""
    return (losses[0] - min(losses)) / (reference[0] - reference[-1])


STAYS = 1 / 3
"""Of the reference's fall, at most this much for a run that does not learn.

Twenty steps by wrong gradients are chaotic: the last digit of a sum changes the last loss of the default run in its second or third digit, so no loss
of it holds on two processors. What holds is how far it gets. Over the seeds 0 to 19 with tiles and AVX-512, the same seeds with OpenBLAS for SSE3 and
numba's kernels for SSE2, and the seeds 0 to 12 with both for AVX2, that is 0.04 of the reference's fall on average, with a standard deviation of 0.03 and
0.09 at most. The bound lies nine deviations above; a run that learns falls by 1, and nothing was seen between.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "seq", "steps"), [(2, 16, 12), pytest.param(4, 64, 20, marks=pytest.mark.campaign)])
def test_training_shows_what_the_report_shows(layers, seq, steps):
    """The reference learns, the default of ggml-1501 stays where it is, the others end far above the reference."""
    runs = {name: small(name, layers=layers, seq=seq, steps=steps, base=SMOLLM2_135M).modes for name in THREE}
    for name, modes in runs.items():
        reference, default = np.array(modes["reference"].loss), np.array(modes["default"].loss)
        wrong = 2 if name == "ggml-1501-seed" else 1
        assert modes["default"].first_difference == wrong
        assert default[:wrong].tolist() == reference[:wrong].tolist(), "a step's loss is computed before its gradients"
        assert reference[0] - reference[-1] >= reference[0] / 2
        # 0.69 and more over the seeds 0 to 12; of the repaired twin 0
        assert default[-1] - reference[-1] >= reference[0] / 2
    modes = runs["ggml-1501"]
    assert fall(modes["default"].loss, modes["reference"].loss) < STAYS
    assert fall(modes["pinned"].loss, modes["reference"].loss) > 1 - STAYS, (
        "a run without the fault is told from one with it"
    )
    # one step is not chaotic: no gradient of the first points within 45 degrees of the right one (over 20 seeds no cosine is beyond 0.55)
    assert all(abs(g.cosine) < np.sqrt(0.5) for g in modes["default"].gradients if g.step == 1)
