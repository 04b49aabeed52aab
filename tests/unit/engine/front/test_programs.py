"""A few of the random programs of `benchmarks/front_programs.py`, where PyTorch is installed."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from front_programs import compare, forget_cube


@pytest.fixture(scope="module", autouse=True)
def _without_the_op():
    yield
    forget_cube()


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_programs_come_to_what_pytorch_comes_to(start):
    """In place on views, hooks, an op of one's own, second derivatives, Jacobians, threads: by seed."""
    found = [compare(seed) for seed in range(start, start + 10)]
    assert {one.seed: one.differences for one in found if one.differences} == {}
    assert sum(one.compared for one in found) > 50
