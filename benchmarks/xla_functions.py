"""Random functions compiled by XLA through jax, each dumped into a folder of its own, for `xla.py`.

    python benchmarks/xla_functions.py FOLDER FIRST LAST

Functions of one to three square matrices: products, sums, tanh, transposes, slices put into others, gathers, sorts,
softmax, cumulative sums, `lax.scan`, `lax.while_loop`, `lax.cond`, a gradient of some; some inputs are donated, and some
functions compiled with one switch changed. One line of JSON for each: seed, switches, and the largest difference between the compiled function and the same without XLA's fusion and reuse
(operations one by one), relative to the largest element. Needs jax; run without its flags for dumps.
"""

import json
import os
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def function(seed: int) -> tuple[Any, int, int, tuple[int, ...]]:
    """Return a function, how many matrices it takes, their side, and which are donated."""
    rng = random.Random(seed)  # noqa: S311 - functions, no secrets
    side, count = rng.choice((4, 8, 16, 32)), rng.randint(1, 3)
    steps = [(rng.random(), rng.random(), rng.random(), rng.randint(0, 1 << 30)) for _ in range(rng.randint(3, 20))]
    with_gradient = rng.random() < 0.3
    outputs = rng.randint(1, 3)
    donated = tuple(place for place in range(count) if rng.random() < 0.3)

    def inside(known: list[Any], rows: list[Any], carried: Any) -> Any:
        return body([*known, carried], rows, nested=True)[-1]

    def body(values: list[Any], rows: list[Any], *, nested: bool) -> list[Any]:
        values = list(values)
        for what, first, second, number in rows:
            one, other = values[-1 - int(first * min(len(values), 6))], values[int(second * len(values))]
            half = side // 2
            inner = [((number >> shift) % 97 / 97 * 0.7, first, second, number >> 3) for shift in (0, 4, 8)]
            turn = partial(inside, values, inner)
            if what < 0.25:
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


def main() -> None:
    """Compile, run, say."""
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, last):
        call, count, side, donated = function(seed)
        rng = np.random.default_rng(seed)
        given = [(rng.standard_normal((side, side)) / side).astype(np.float32) for _ in range(count)]
        switches = random.Random(-seed - 1).choice(SWITCHES)  # noqa: S311 - functions, no secrets
        options = {"xla_dump_to": str(folder / str(seed)), "xla_dump_hlo_as_text": True, **switches}
        lowered = jax.jit(call, donate_argnums=donated).lower(*given)
        compiled = lowered.compile(compiler_options=options)
        found = jax.tree.leaves(compiled(*(jnp.array(row) for row in given)))
        with jax.disable_jit():
            right = jax.tree.leaves(call(*(jnp.array(row) for row in given)))
        apart = [
            float(
                np.abs(np.asarray(one) - np.asarray(other)).max() / max(float(np.abs(np.asarray(other)).max()), 1e-30)
            )
            for one, other in zip(found, right, strict=True)
        ]
        row = {"seed": seed, "switches": switches, "apart": max(apart, default=0.0), "donated": len(donated)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
