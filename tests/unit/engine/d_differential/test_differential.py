"""Detector D: origins are where a run goes wrong by itself, and comparisons are to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_runs import small

from allocsim.array_difference import relative_error, same_bits
from engine.d_differential import HostRun, compare, origins, tap
from repro.pipeline import prepare
from repro.workload import bind, host_runs

FINITE = st.floats(-1e6, 1e6, width=32)


def bench(name):
    result = small(name)
    return prepare(result.scenario, result.options)


@pytest.mark.parametrize("mode", ["default", "pinned", "reference"])
def test_a_repaired_program_has_no_origin_under_any_plan(mode):
    result = small("ggml-1501", fixed=True)
    it = prepare(result.scenario, result.options)
    with bind(it.workload, it.plans[mode]) as planned, bind(it.workload, it.plans["reference"]) as reference:
        assert origins(planned, reference, host_runs(it.workload, 2)) == ()


def test_an_unsafe_kernel_shows_as_results_and_never_downstream():
    found = small("ggml-1501").evidence.origins
    program = small("ggml-1501").evidence.document.programs[0]
    assert {program.ops[o.op].kind for o in found} == {"rms_norm_back"}
    assert {o.what for o in found} == {"result"}
    assert len(found) == 2 * len({o.op for o in found})  # in each of two runs
    assert [(o.run, o.op) for o in found] == sorted((o.run, o.op) for o in found)


def test_taken_bytes_show_as_operands_at_the_reader_alone():
    found = small("ggml-1501-as-reported").evidence.origins
    assert {o.what for o in found} == {"operand"}
    assert len({o.op for o in found}) == 1


def test_two_faults_show_as_two():
    found = small("ggml-1501+ggml-1501-as-reported").evidence.origins
    assert {o.what for o in found} == {"operand", "result"}


def test_an_upload_left_out_shows_from_the_second_run_on():
    found = small("ggml-1501-seed").evidence.origins
    assert [(o.run, o.what) for o in found] == [(1, "operand")]


def test_a_tap_copies_what_is_made_and_changes_nothing():
    it = bench("ggml-1501")
    values = list(it.workload.gradient_values)
    with bind(it.workload, it.plans["default"]) as plain, bind(it.workload, it.plans["default"]) as tapped:
        observer = tap(tapped, values)
        (host,) = host_runs(it.workload, 1)
        one = plain.run(host.inputs, skip=host.skip)
        other = tapped.run(host.inputs, skip=host.skip, observer=observer)
        copies = observer.take()
    assert all(same_bits(one[name], other[name]) for name in one)
    assert sorted(copies) == sorted(values)
    assert observer.take() == {}


def test_a_host_run_leaves_nothing_out_unless_told():
    assert HostRun(inputs={}).skip == ()


def test_bits_tell_zeros_apart_and_equal_nans_together():
    zero, minus, nan = (np.array([x], dtype=np.float32) for x in (0.0, -0.0, np.nan))
    assert not same_bits(zero, minus)
    assert same_bits(nan, nan.copy())
    assert same_bits(zero, zero)
    assert not same_bits(zero, zero + 1)


def test_bits_are_compared_through_any_strides():
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert same_bits(grid[:, ::2], grid[:, ::2].copy())
    assert same_bits(grid.T, np.ascontiguousarray(grid.T))
    assert not same_bits(grid[:, ::2], grid[:, 1::2])


@pytest.mark.parametrize(
    ("mine", "right", "wanted"),
    [
        ([1, 2], [1, 4], 0.5),
        ([0, 1], [0, 0], 1.0),
        ([], [], 0.0),
        ([np.inf], [1], None),
        ([1], [np.nan], None),
        ([3], [3], 0.0),
    ],
)
def test_relative_error_is_against_the_largest_of_the_reference(mine, right, wanted):
    assert relative_error(np.array(mine, dtype=np.float32), np.array(right, dtype=np.float32)) == wanted


def test_ratio_and_cosine_are_null_where_the_reference_is_zero_or_not_finite():
    one, zero = np.ones(3), np.zeros(3)
    assert compare(one, zero) == (None, None)
    assert compare(np.array([np.nan, 1, 1]), one) == (None, None)
    assert compare(one, np.array([np.inf, 1, 1])) == (None, None)
    assert compare(zero, one) == (0.0, None)


@given(st.lists(FINITE, min_size=1, max_size=5), st.floats(0.5, 100, width=32))
def test_a_scaled_gradient_has_its_scale_and_cosine_one(numbers, scale):
    right = np.array(numbers, dtype=np.float64) + 1e-3
    if not np.linalg.norm(right):
        return
    ratio, cosine = compare(scale * right, right)
    assert ratio == pytest.approx(scale)
    assert cosine == pytest.approx(1.0)
    assert compare(-right, right) == pytest.approx((1.0, -1.0))
