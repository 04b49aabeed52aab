"""Scenarios bisected at their smallest: the kernel alone is left of a kernel fault, three ops of the others."""

import pytest

from allocsim.judge.fast import check
from allocsim.reduction import Reduction
from engine.r_replay import diverging
from repro import scenarios
from repro.bisection import Smallest, bisect_scenario, frozen, kernel_test
from repro.options import EngineOptions

SMALL = EngineOptions(layers=2, seq=4, steps=2)


@pytest.fixture(scope="module")
def kernel_fault():
    return bisect_scenario(scenarios.find("ggml-1501"), EngineOptions(layers=1, seq=4, steps=1))


def test_of_a_kernel_fault_the_kernel_is_left_with_its_uploads(kernel_fault):
    found = kernel_fault.reduced
    assert isinstance(found, Smallest)
    assert found.complete
    (program,) = found.document.programs
    assert [op.kind for op in program.ops] == ["host.write", "host.write", "rms_norm_back", "host.read"]
    assert check(found.document).clean
    assert diverging(found.document.plans[0], found.steps) == found.divergence
    assert found.divergence.op == 2
    assert program.buffers.nbytes.sum() <= 64


def test_the_cure_has_a_price_in_bytes_and_time(kernel_fault):
    assert kernel_fault.evidence.cure.elements == (
        "forbid the in-place pair of rms_norm_back (result 0 over operand 0)",
    )
    assert set(kernel_fault.seconds) == {"default", "cured", "pinned"}
    assert all(seconds > 0 for seconds in kernel_fault.seconds.values())


def test_the_file_to_paste_runs(kernel_fault):
    space = {}
    exec(compile(kernel_test(kernel_fault.reduced, title="t"), "test", "exec"), space)
    space["test_the_plan_is_legal"]()
    space["test_the_kernel_diverges"]()


@pytest.mark.parametrize(
    ("name", "class_", "runs"), [("ggml-1501-as-reported", "C01", 1), ("ggml-1501-seed", "C06", 2)]
)
def test_what_the_checks_see_is_reduced_by_the_checks(name, class_, runs):
    found = bisect_scenario(scenarios.find(name), SMALL).reduced
    assert isinstance(found, Reduction)
    assert (found.ops, found.cause.class_, len(found.document.runs)) == (3, class_, runs)


def test_a_repaired_twin_has_nothing_to_reduce():
    found = bisect_scenario(scenarios.find("ggml-1501"), EngineOptions(layers=1, seq=4, steps=1, fixed=True))
    assert found.reduced is None
    assert found.verdict.sound
    assert not found.seconds


def test_freezing_all_but_some_ops_keeps_all_their_operands(kernel_fault):
    document = kernel_fault.reduced.document
    again = frozen(document, (2,))
    assert [op.kind for op in again.programs[0].ops] == [op.kind for op in document.programs[0].ops]
