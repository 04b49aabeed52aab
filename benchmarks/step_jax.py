"""A third side of the step benchmark: the same model and the same step in JAX, one jit of loss, gradients and update.

Needs jax and numpy, nothing of this project. One thread is asked of XLA by flags,
which it reads when it is loaded, and by one processor; the CPU time is that of the process either way.
"""

import math
import os
from typing import Any

import step_serving

JOB = step_serving.job()
if JOB["threads"] == 1:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # a thread for each processor that it may use
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax  # noqa: E402 - after its flags
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

Weights = dict[str, Any]


def rms_norm(x: Any, gain: Any, eps: float) -> Any:
    """Return x / sqrt(mean(x * x) + eps) * gain."""
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    """Rotate the pairs (i, i + half) of x [heads, T, size]."""
    half = x.shape[-1] // 2
    return x * cos + jnp.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def loss_of(adapters: Weights, frozen: Weights, tables: Any, batch: Any, c: dict[str, Any]) -> Any:
    """Return the mean cross entropy of one sequence."""
    (cos, sin, mask), (tokens, labels) = tables, batch
    size, steps, scale = c["hidden"] // c["heads"], len(tokens), c["alpha"] / c["rank"]
    x = frozen["token_embd"][tokens]
    for i in range(c["layers"]):
        at, every = f"layer.{i}.", {**frozen, **adapters}
        w = {name.removeprefix(at): a for name, a in every.items() if name.startswith(at)}
        h = rms_norm(x, w["attn_norm"], c["eps"])
        q, v = (
            h @ w[f"{n}.weight"].T + h @ w[f"{n}.lora_a"].T @ w[f"{n}.lora_b"].T * scale for n in ("attn_q", "attn_v")
        )
        q, k, v = (a.reshape(steps, -1, size).transpose(1, 0, 2) for a in (q, h @ w["attn_k.weight"].T, v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (jnp.repeat(a, c["heads"] // c["kv_heads"], 0) for a in (k, v))
        weights = jax.nn.softmax(q @ k.transpose(0, 2, 1) / math.sqrt(size) + mask, -1)
        x = x + (weights @ v).transpose(1, 0, 2).reshape(steps, -1) @ w["attn_output.weight"].T
        h = rms_norm(x, w["ffn_norm"], c["eps"])
        x = x + (jax.nn.silu(h @ w["ffn_gate.weight"].T) * (h @ w["ffn_up.weight"].T)) @ w["ffn_down.weight"].T
    logits = rms_norm(x, frozen["output_norm"], c["eps"]) @ frozen["token_embd"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1).mean()


def shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight, by the engine's names."""
    hidden, ffn, kv, rank = c["hidden"], c["ffn"], c["hidden"] // c["heads"] * c["kv_heads"], c["rank"]
    layer = {
        "attn_norm": (hidden,), "ffn_norm": (hidden,), "attn_q.weight": (hidden, hidden), "attn_k.weight": (kv, hidden),
        "attn_v.weight": (kv, hidden), "attn_output.weight": (hidden, hidden), "ffn_gate.weight": (ffn, hidden),
        "ffn_up.weight": (ffn, hidden), "ffn_down.weight": (hidden, ffn), "attn_q.lora_a": (rank, hidden),
        "attn_q.lora_b": (hidden, rank), "attn_v.lora_a": (rank, hidden), "attn_v.lora_b": (kv, rank),
    }  # fmt: skip
    every = {f"layer.{i}.{name}": shape for i in range(c["layers"]) for name, shape in layer.items()}
    return {"token_embd": (c["vocab"], hidden), "output_norm": (hidden,), **every}


def weights_of(job: dict[str, Any]) -> Weights:
    """Return the weights as numpy arrays: given ones, rows of q and k in this code's order of pairs, or random ones."""
    c = job["config"]
    size = c["hidden"] // c["heads"]
    generator = np.random.default_rng(job["seed"])
    given = np.load(job["weights"]) if job.get("weights") else None
    found: Weights = {}
    for name, shape in shapes(c).items():
        if given is not None:
            data = np.array(given[name])
        elif name.endswith("norm"):
            data = np.ones(shape, np.float32)
        else:
            data = generator.standard_normal(shape, np.float32) / np.float32(math.sqrt(shape[-1]))
        found[name] = data if given is None else step_serving.halves(name, data, size)
    return found


def main() -> None:
    """Serve steps until standard input ends."""
    c = JOB["config"]
    size, steps = c["hidden"] // c["heads"], c["seq"]
    arrays = weights_of(JOB)
    adapters = {name: jnp.asarray(arrays.pop(name)) for name in list(arrays) if "lora" in name}
    frozen = {name: jnp.asarray(arrays.pop(name)) for name in list(arrays)}
    angles = np.arange(steps)[:, None] * c["rope_theta"] ** (-2.0 * np.arange(size // 2) / size)
    both = np.concatenate([angles, angles], -1).astype(np.float32)
    tables = jnp.cos(both), jnp.sin(both), jnp.triu(jnp.full((steps, steps), -jnp.inf), 1)
    if JOB.get("weights"):
        given = np.load(JOB["weights"])
        batch = jnp.asarray(given["tokens"]), jnp.asarray(given["labels"])
    else:
        tokens = np.random.default_rng(JOB["seed"]).integers(0, c["vocab"], steps + 1)
        batch = jnp.asarray(tokens[:-1]), jnp.asarray(tokens[1:])

    @jax.jit
    def update(adapters: Weights, frozen: Weights, tables: Any, batch: Any) -> tuple[Weights, Any]:
        loss, grads = jax.value_and_grad(lambda a: loss_of(a, frozen, tables, batch, c))(adapters)
        return {name: a - JOB["learning_rate"] * grads[name] for name, a in adapters.items()}, loss

    def step() -> float:
        nonlocal adapters
        adapters, loss = update(adapters, frozen, tables, batch)
        return float(loss)

    step_serving.serve(JOB["warmup"], step, lambda: {"versions": {"jax": jax.__version__}})


if __name__ == "__main__":
    main()
