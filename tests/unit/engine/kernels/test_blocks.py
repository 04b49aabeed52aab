"""Attention and convolutions of several blocks: values by numpy in float64, whichever way products are made."""

import numpy as np
import pytest

from engine.kernels import KERNELS, tiles
from engine.kernels import convolution as direct


def normal(*shape):
    return np.random.default_rng(list(shape)).standard_normal(shape).astype("f4")


def done(bind, params, operands, shape):
    out = np.full(shape, np.nan, "f4")
    function, args = bind(params, operands, (out,))
    function(*args)
    return out


def attention(q, k, v, grad, mask, *, scale):
    """Return the result and the gradients of q, k and v, flat; two heads of q meet one of k and v."""
    q, k, v, grad = (np.float64(x) for x in (q, k, v, grad))
    with np.errstate(invalid="ignore"):
        scores = np.exp(q @ k.swapaxes(-1, -2) * scale + mask)
    weights = scores / scores.sum(-1, keepdims=True)
    slopes = grad @ v.swapaxes(-1, -2)
    slopes = (slopes - (slopes * weights).sum(-1, keepdims=True)) * weights * scale
    found = [
        slopes @ k,
        (slopes.swapaxes(-1, -2) @ q).sum(0, keepdims=True),
        (weights.swapaxes(-1, -2) @ grad).sum(0, keepdims=True),
    ]
    return weights @ v, np.concatenate([x.ravel() for x in found])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_attention_of_several_blocks_is_that_of_numpy(monkeypatch, wide, causal):
    """Blocks of a length that does not divide the rows; heads of a group add up into one gradient."""
    monkeypatch.setattr(tiles, "wide", lambda: wide)
    q, k, v, grad = normal(2, 150, 64), normal(1, 600, 64), normal(1, 600, 48), normal(2, 150, 48)
    mask = np.where(np.tri(150, 600, 450) == 1, 0, -np.inf).astype("f4") if causal else normal(150, 600)
    params, want = {"scale": 0.2, "causal": causal}, attention(q, k, v, grad, mask, scale=0.2)
    for kind, operands, wanted in (("attention", (q, k, v, mask), want[0]), ("attention_back", (grad, q, k, v, mask), want[1])):  # fmt: skip
        found = done(KERNELS[kind]["blocks"].bind, params, operands, wanted.shape)
        np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max())


WINDOWS = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}


def test_a_convolution_by_blocks_of_rows_has_the_bits_of_one_block(monkeypatch):
    """Of its result and of the gradient of the image: each element is one chain of sums, whatever is staged at a time."""
    x, w, dy = normal(2, 3, 20, 21), normal(9, 3, 3, 2), normal(2, 9, 20, 12)
    params = {"stride": (1, 2), "padding": (1, 2), "dilation": (1, 1)}
    calls = [("conv_2d", (x, w), dy.shape), ("conv_2d_back_x", (dy, w), x.shape)]

    def run():
        return [
            done(KERNELS[kind]["direct"].bind, params | {"shape": shape}, given, shape) for kind, given, shape in calls
        ]

    whole = run()
    monkeypatch.setattr(direct, "STAGED", 4096)

    assert [a.tobytes() for a in run()] == [a.tobytes() for a in whole]


def test_the_gradient_of_filters_by_blocks_is_that_of_numpy(monkeypatch):
    monkeypatch.setattr(direct, "STAGED", 4096)
    x, dy = normal(2, 3, 20, 21), normal(2, 5, 18, 19)
    found = done(KERNELS["conv_2d_back_w"]["direct"].bind, WINDOWS | {"shape": (5, 3, 3, 3)}, (dy, x), (5, 3, 3, 3))
    seen = np.lib.stride_tricks.sliding_window_view(np.float64(x), (18, 19), axis=(2, 3))
    wanted = np.einsum("nfuv,ncijuv->fcij", np.float64(dy), seen)

    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def test_what_a_tap_does_not_show_does_not_reach_its_gradient():
    """A row of windows is no whole number of vectors: what lies behind it is in the last one, and does not count."""
    x, dy = normal(1, 1, 5, 21), normal(1, 2, 3, 19)
    x[..., -1] = np.inf
    found = done(KERNELS["conv_2d_back_w"]["direct"].bind, WINDOWS | {"shape": (2, 1, 3, 3)}, (dy, x), (2, 1, 3, 3))

    assert np.isfinite(found[..., :2]).all()
    assert not np.isfinite(found[..., 2]).any()
