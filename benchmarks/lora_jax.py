"""The LoRA step of `lora_systems.py` in JAX, dumped by XLA; run by an interpreter that has jax.

    XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text" python benchmarks/lora_jax.py [LAYERS]

Prints the median milliseconds of a step, compiled.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
from lora_sizes import ADAPTERS, BATCH, FROZEN, RATE, SCALE, VOCAB, D, T, timed

Tree = dict


def made(layers: int) -> tuple[Tree, Tree, jax.Array, jax.Array]:
    """Return frozen weights, adapters, tokens and targets."""
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 16 * layers + 8))

    def normal(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape, jnp.float32) * 0.02

    frozen: Tree = {"emb": normal(VOCAB, D), "head": normal(D, VOCAB)}
    frozen["layers"] = [{name: normal(*shape) for name, shape in FROZEN.items()} for _ in range(layers)]
    adapters = [
        {name: normal(*shape) if name.endswith("_a") else jnp.zeros(shape) for name, shape in ADAPTERS.items()}
        for _ in range(layers)
    ]
    x = jax.random.randint(next(keys), (BATCH, T), 0, VOCAB)
    y = jax.random.randint(next(keys), (BATCH, T), 0, VOCAB)
    return frozen, {"layers": adapters}, x, y


def norm(x: jax.Array) -> jax.Array:
    """Return the layer norm without weights."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def loss(adapters: Tree, frozen: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean cross entropy."""
    h = frozen["emb"][x]
    mask = jnp.tril(jnp.ones((T, T), bool))
    for w, a in zip(frozen["layers"], adapters["layers"], strict=True):
        n = norm(h)
        q, k, v = jnp.split(n @ w["qkv"] + SCALE * (n @ a["qkv_a"]) @ a["qkv_b"], 3, axis=-1)
        s = jnp.where(mask, q @ k.swapaxes(-1, -2) / D**0.5, -1e9)
        c = jax.nn.softmax(s) @ v
        h = h + c @ w["o"] + SCALE * (c @ a["o_a"]) @ a["o_b"]
        h = h + jax.nn.gelu(norm(h) @ w["w1"]) @ w["w2"]
    logits = norm(h) @ frozen["head"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()


def step(adapters: Tree, momenta: Tree, frozen: Tree, x: jax.Array, y: jax.Array) -> tuple[Tree, Tree, jax.Array]:
    """Return adapters and momenta after a step, and the loss."""
    value, grads = jax.value_and_grad(loss)(adapters, frozen, x, y)
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, grads)
    return jax.tree.map(lambda a, m: a - RATE * m, adapters, momenta), momenta, value


def main() -> None:
    """Compile, which dumps, and time."""
    frozen, adapters, x, y = made(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    held = [adapters, jax.tree.map(jnp.zeros_like, adapters)]
    run = jax.jit(step, donate_argnums=(0, 1)).lower(*held, frozen, x, y).compile()

    def once() -> Any:
        *held[:], value = run(*held, frozen, x, y)
        return value.block_until_ready()

    timed(once)


if __name__ == "__main__":
    main()
