"""Random functions compiled by XLA through jax, each dumped into a folder of its own, for `random_models.py`.

    python benchmarks/xla_models.py FOLDER SEED ...

Functions of one to three square matrices: products, sums, tanh, transposes, slices put into others, gathers, sorts,
softmax, cumulative sums, `lax.scan`, `lax.fori_loop`, `lax.cond`, a gradient of some, and the deeds of `WIDE`; some inputs are donated, and some
functions compiled with one switch changed. FOLDER/SEED/dump is what XLA dumps; row.json beside it says switches and the largest difference between the
compiled function and the same without XLA's fusion and reuse (operations one by one), relative to the largest element (`each_seed.py`). Needs jax; run
without its flags for dumps.
"""

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from each_seed import main
from jax import lax

Turn = Callable[[Any], Any]


def searched(one: Any, other: Any, turn: Turn) -> Any:
    """Turn until an array says so."""

    def goes_on(state: tuple[Any, Any]) -> Any:
        return (state[0] < 5) & (jnp.abs(state[1] - other) > 0.1).any()

    return lax.while_loop(goes_on, lambda state: (state[0] + 1, turn(state[1])), (0, one))[1]


def chosen_of_three(one: Any, other: Any, turn: Turn) -> Any:
    """Choose one of three ways by the place of the largest element."""
    return lax.switch(jnp.argmax(one) % 3, (turn, lambda x: x + other, lambda x: x.T), one)


def two_carried(one: Any, other: Any, turn: Turn) -> Any:
    """Carry two arrays that change places at each turn."""
    first, second = lax.fori_loop(0, 3, lambda _, pair: (turn(pair[1]), pair[0]), (one, other))
    return first - second


def quantised(one: Any, other: Any, turn: Turn) -> Any:  # noqa: ARG001 - no body
    """Multiply in 8 bits, with the sum in 32."""
    rows, columns = (jnp.clip(jnp.round(x * 32), -127, 127).astype(jnp.int8) for x in (one, other))
    return jnp.matmul(rows, columns, preferred_element_type=jnp.int32).astype(jnp.float32) / 1024 / one.shape[0]


WIDE: tuple[Callable[[Any, Any, Turn], Any], ...] = (
    searched,
    chosen_of_three,
    two_carried,
    quantised,
    lambda one, other, _: one.T.reshape(-1)[::-1].reshape(one.shape) + other,
    lambda one, other, _: one.reshape(2, -1).swapaxes(0, 1).reshape(one.shape) * other,
    lambda one, other, _: one - one.mean(axis=0) / (1 + other.max(axis=1, keepdims=True)),
    lambda one, other, _: jnp.where(one > other, one, other.min()),
    lambda one, other, _: jnp.concatenate([one[1:], other[:1]]),
    lambda one, other, _: ((one > 0).astype(jnp.uint8) + (other > one).astype(jnp.uint8)).astype(jnp.float32),
)
"""Conditions on arrays, carried arrays that change places, layouts, reductions, types of 8 bits."""


def function(seed: int, share: float = 0.0) -> tuple[Any, int, int, tuple[int, ...]]:
    """Return a function, how many matrices it takes, their side, and which are donated.

    Args:
        seed: what is drawn.
        share: of its deeds, those of `WIDE` that take the place of others; a function with one has no gradient.
    """
    wide = random.Random(f"{seed} wide")  # noqa: S311 - functions, no secrets
    rng = random.Random(seed)  # noqa: S311 - functions, no secrets
    side, count = rng.choice((4, 8, 16, 32)), rng.randint(1, 3)
    steps = [(rng.random(), rng.random(), rng.random(), rng.randint(0, 1 << 30)) for _ in range(rng.randint(3, 20))]
    deeds = {row: wide.choice(WIDE) for row in steps if wide.random() < share}
    with_gradient = rng.random() < 0.3 and not deeds
    outputs = rng.randint(1, 3)
    donated = tuple(place for place in range(count) if rng.random() < 0.3)

    def inside(known: list[Any], rows: list[Any], carried: Any) -> Any:
        return body([*known, carried], rows, nested=True)[-1]

    def body(values: list[Any], rows: list[Any], *, nested: bool) -> list[Any]:
        values = list(values)
        for row in rows:
            what, first, second, number = row
            one, other = values[-1 - int(first * min(len(values), 6))], values[int(second * len(values))]
            half = side // 2
            inner = [((number >> shift) % 97 / 97 * 0.7, first, second, number >> 3) for shift in (0, 4, 8)]
            turn = partial(inside, values, inner)
            if row in deeds:
                made = deeds[row](one, other, turn)
            elif what < 0.25:
                made = one @ other / side
            elif what < 0.35:
                made = one + other
            elif what < 0.42:
                made = jnp.tanh(one)
            elif what < 0.5:
                made = one.T
            elif what < 0.6:
                low, high = number % 2 * half, number // 2 % 2 * half
                made = lax.dynamic_update_slice(other, one[low : low + half], (high, 0))
            elif what < 0.66:
                made = one.at[number % side].set(other[number // 7 % side])
            elif what < 0.7:
                made = jnp.take(one, jnp.array([number % side, 0, number // 5 % side]), axis=0).sum(0)[None] + other
            elif what < 0.74:
                made = jnp.sort(one, axis=number % 2)
            elif what < 0.78:
                made = jax.nn.softmax(one, axis=-1)
            elif what < 0.82:
                made = jnp.cumsum(one, axis=0) / side
            elif nested:
                made = one * other
            elif what < 0.88:
                made, _ = lax.scan(lambda c, x, turn=turn: (turn(c), x.sum()), one, other)
            elif what < 0.94:
                made = lax.fori_loop(0, 1 + number % 3, lambda _, c, turn=turn: turn(c), one)
            else:
                made = lax.cond(
                    one[0, 0] > 0, partial(inside, values, inner[:2]), partial(inside, values, inner[1:]), one
                )
            values.append(made)
        return values

    def forward(*given: Any) -> Any:
        return tuple(body(list(given), steps, nested=False)[-outputs:])

    def trained(*given: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda w: sum(row.sum() for row in forward(w, *given[1:])))(given[0])
        return loss, given[0] - 0.1 * grads

    return (trained if with_gradient else forward), count, side, donated


SHARE = 0.2

SWITCHES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"xla_disable_hlo_passes": "fusion"},
    {"xla_disable_hlo_passes": "algsimp"},
    {"xla_cpu_use_fusion_emitters": False},
    {"xla_cpu_copy_insertion_use_region_analysis": True},
    {"xla_cpu_enable_concurrency_optimized_scheduler": False},
    {"xla_backend_optimization_level": 0},
)
"""What a function is compiled with, drawn by its seed: a third of them as everybody does."""


def measured(seed: int, folder: Path, *, doubt: bool) -> dict[str, Any]:  # noqa: ARG001 - there is nothing to doubt
    """Return the row of a seed; what XLA dumps goes to the folder."""
    call, count, side, donated = function(seed, SHARE)
    rng = np.random.default_rng(seed)
    given = [(rng.standard_normal((side, side)) / side).astype(np.float32) for _ in range(count)]
    switches = random.Random(-seed - 1).choice(SWITCHES)  # noqa: S311 - functions, no secrets
    options = {"xla_dump_to": str(folder / "dump"), "xla_dump_hlo_as_text": True, **switches}
    compiled = jax.jit(call, donate_argnums=donated).lower(*given).compile(compiler_options=options)
    found = jax.tree.leaves(compiled(*(jnp.array(row) for row in given)))
    with jax.disable_jit():
        right = jax.tree.leaves(call(*(jnp.array(row) for row in given)))
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(found, right, strict=True)]
    apart = [float(np.abs(one - other).max() / max(float(np.abs(other).max()), 1e-30)) for one, other in pairs]
    row = {"seed": seed, "version": jax.__version__, "switches": switches}
    return {**row, "donated": len(donated), "apart": max(apart, default=0.0)}


if __name__ == "__main__":
    main(measured)
