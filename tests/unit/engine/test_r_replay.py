"""Replaying a planned program on drawn data: only a kernel that breaks its contract diverges."""

import pytest

from allocsim.errors import EngineError
from allocsim.model import OWN, Role
from allocsim.programs.builder import ProgramBuilder, plan_of
from engine.r_replay import KernelCall, diverging


def backward(shape=(3, 5), dtype="f32"):
    """`rms_norm_back` of two uploads."""
    b = ProgramBuilder("p")
    dy, x, dx = (b.tensor(name, dtype, shape) for name in ("dy", "x", "dx"))
    b.op("host.write", (), (dy,))
    b.op("host.write", (), (x,))
    b.op("rms_norm_back", (dy, x), (dx,), in_place=((0, 0), (1, 0)))
    b.op("host.read", (dx,), ())
    return b.build()


def kernel(variant):
    return {2: KernelCall(kind="rms_norm_back", variant=variant, params={"eps": 1e-5})}


@pytest.mark.parametrize(
    ("variant", "slots", "wrong"),
    [
        ("two_pass", [0, 64, 0], True),
        ("two_pass", [0, 64, 64], False),  # over x it is safe
        ("two_pass", [0, 64, 128], False),
        ("two_pass", ["own", "own", 0], False),
        ("one_pass", [0, 64, 0], False),
    ],
)
def test_only_the_kernel_that_re_reads_what_it_wrote_diverges(variant, slots, wrong):
    found = diverging(plan_of(backward(), slots), kernel(variant))
    assert (found is not None) == wrong
    if wrong:
        assert (found.op, found.position) == (2, 0)
        assert found.max_error > 1e-3


def test_bytes_the_plan_took_are_no_divergence_of_a_kernel():
    assert diverging(plan_of(backward(), [0, 0, 64]), kernel("one_pass")) is None


def test_content_is_the_same_on_both_sides_and_seeds_do_not_matter():
    b = ProgramBuilder("p")
    w = b.tensor("w", "f32", (4,), role=Role.PARAMETER)
    y = b.tensor("y", "f32", (4,))
    b.op("silu", (w,), (y,), in_place=((0, 0),))
    made = plan_of(b.build(), ["own", 0])
    assert made.arena[0] == OWN
    assert all(diverging(made, {0: KernelCall(kind="silu")}, seed=seed) is None for seed in range(3))


def test_what_cannot_run_is_one_line():
    made = backward()
    with pytest.raises(EngineError, match=r"op 2 .* has no kernel"):
        diverging(plan_of(made, [0, 64, 128]), {})
    with pytest.raises(EngineError, match="reaches beyond"):
        diverging(plan_of(made, [-64, 64, 128]), kernel("one_pass"))
    with pytest.raises(EngineError, match="does not fit"):
        diverging(plan_of(made, [1, 64, 128]), kernel("one_pass"))
    with pytest.raises(EngineError, match="there is no kernel for it"):
        diverging(plan_of(backward(dtype="u8"), [0, 64, 128]), kernel("one_pass"))
