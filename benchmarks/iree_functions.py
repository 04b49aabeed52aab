"""JAX functions through IREE's compiler: what is said of their plans, and whether their numbers are JAX's.

    python benchmarks/iree_functions.py [--random N] [--out FILE]

Needs jax, iree-base-compiler, iree-base-runtime, msgspec and lazy-loader in one environment. Those written here have
loops, branches, sorts, scatters and sizes that only the run knows; the random ones are those of `xla_models.py`.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import Found, run

import iree.runtime as rt
import jax
import jax.numpy as jnp
import numpy as np
from iree.compiler.tools.binaries import find_tool
from jax import export, lax
from xla_models import function as random_function

from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.systems.iree.iree_stream import PASSES, loads

TARGET: Final = (
    "--iree-input-type=stablehlo",
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=generic",
    *PASSES.split(),
)
FAR: Final = 1e-3
S: Final = "16,16"


def scan(step: Any) -> Any:
    """Return a function that takes six turns of a step."""
    return lambda x, w: lax.scan(lambda c, _: step(c, w), x, None, length=6)


def windows(x: Any, i: Any) -> Any:
    """Read one window of an array and write it at another, at places that are data."""
    return lax.fori_loop(
        0, 9, lambda k, c: lax.dynamic_update_slice(c, lax.dynamic_slice(c, (k + i, 0), (4, 16)) * 2, (k, 0)), x
    )


WRITTEN: Final[dict[str, tuple[Any, tuple[str, ...]]]] = {
    "scan of products": (scan(lambda c, w: (jnp.tanh(c @ w), c.sum(0))), (S, S)),
    "scan of two carries": (
        lambda x, w: lax.scan(lambda c, _: ((jnp.tanh(c[1] @ w), c[0] + 1), c[0]), (x, x), None, length=5),
        (S, S),
    ),
    "scan over rows": (lambda w, xs: lax.scan(lambda c, x: (jnp.tanh(w @ x) + c, c), jnp.zeros(16), xs), (S, S)),
    "concatenation in a scan": (
        lambda w, x: lax.scan(lambda c, _: (jnp.concatenate([c, x])[8:24] @ w, c), x, None, length=3),
        (S, "16"),
    ),
    "while on an array": (
        lambda x: lax.while_loop(
            lambda s: (s[0] < 20) & jnp.any(jnp.abs(s[1]) > 0.1), lambda s: (s[0] + 1, s[1] / 2), (0, x)
        ),
        (S,),
    ),
    "branches": (lambda x, i: lax.cond(i > 0, lambda x: (x @ x, x.T), lambda x: (x + 1, x.T @ x), x), (S, "i32")),
    "three ways": (
        lambda x, i: lax.switch(i, [lambda x: x @ x, lambda x: x + 1, lambda x: jnp.sort(x, 0)], x),
        (S, "i32"),
    ),
    "windows": (windows, (S, "i32")),
    "scatter": (lambda x, i: (x.at[i].add(2.0), x[i]), (S, "i32")),
    "attention": (lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v, ("4,8,16", "4,8,16", "4,8,16")),
    "sums and sorts": (lambda x: (jnp.cumsum(x), jnp.sort(x), jnp.argsort(x)), ("64",)),
    "gradient": (jax.value_and_grad(lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2)), (S, S)),
    "conjugate gradient": (
        lambda a: jax.scipy.sparse.linalg.cg(lambda x: a @ a.T @ x + x, jnp.ones(16), maxiter=8)[0],
        (S,),
    ),
    "best four": (lambda x: lax.top_k(x, 4), (S,)),
    "rows unknown": (lambda x, w: jnp.tanh(x @ w) @ w, ("b,16", S)),
    "softmax of rows unknown": (lambda x, w: (jax.nn.softmax(x @ w, axis=0), (x @ w).sum()), ("b,16", S)),
    "joined rows unknown": (lambda x, y: jnp.concatenate([x @ x.T, y @ y.T]), ("b,16", "b,16")),
    "three sizes unknown": (lambda x, y: ((x @ y) @ (y.T @ x.T), x.sum(0)), ("a,b", "b,c")),
    "scan of rows unknown": (scan(lambda c, w: (jnp.tanh(c @ w), c.sum())), ("b,16", S)),
    "while of rows unknown": (
        lambda x: lax.while_loop(
            lambda s: (s[0] < 5) & jnp.any(s[1] > 0.1), lambda s: (s[0] + 1, s[1] @ s[1].T @ s[1] / 9), (0, x)
        ),
        ("b,16",),
    ),
}
"""Name -> function, and the shapes of what it is given; a letter is a size that only the run knows."""


def cases(count: int) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Yield the functions that are written here, then random ones."""
    yield from ((name, *row) for name, row in WRITTEN.items())
    for seed in range(count):
        call, matrices, side, _ = random_function(seed)
        yield str(seed), call, (f"{side},{side}",) * matrices


def tried(call: Any, shapes: tuple[str, ...], folder: Path) -> tuple[str, float]:
    """Return what is said of the plan of a function, and how far its numbers are from JAX's, -1 where it does not run."""
    scope, rng = export.SymbolicScope(), np.random.default_rng(1)
    sizes = {"i32": ()} | {row: export.symbolic_shape(row, scope=scope) for row in shapes if row != "i32"}
    kinds = {row: jnp.int32 if row == "i32" else jnp.float32 for row in shapes}
    module = export.export(jax.jit(call, keep_unused=True))(
        *(jax.ShapeDtypeStruct(sizes[row], kinds[row]) for row in shapes)
    )
    source, made = folder / "m.mlir", folder / "m.vmfb"
    source.write_text(module.mlir_module())
    done = subprocess.run([find_tool("iree-compile"), *TARGET, source, "-o", made], capture_output=True, check=False)
    try:
        report = check(loads(done.stderr))
        doubtful = any(row.kind == "AssumedInPlace" for row in report.warnings)
        answer = ("doubtful" if doubtful else "clean") if report.clean else "accused"
    except DocumentError as error:
        answer = "no plan" if "no plan here" in str(error) else f"refused: {error}"
    if done.returncode:
        return answer if done.stderr and not answer.startswith(("no plan", "refused")) else "not compiled", -1.0
    real = {"a": 5, "b": 6, "c": 7}
    given = [
        np.array(2, np.int32)
        if row == "i32"
        else (rng.standard_normal([real.get(size) or int(size) for size in row.split(",")]) / 8).astype(np.float32)
        for row in shapes
    ]
    context = rt.SystemContext(config=rt.Config("local-task"))
    context.add_vm_module(rt.VmModule.copy_buffer(context.instance, made.read_bytes()))
    found = next(row for name, row in context.modules.items() if name.startswith("jit")).main(*given)
    found = [row.to_host() for row in (found if isinstance(found, (list, tuple)) else [found])]
    right = [np.asarray(row) for row in jax.tree.leaves(jax.jit(call)(*given))]
    rows = zip(found, right, strict=True)
    return answer, max(float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30)) for one, other in rows)


def measure(*, random: int = 100) -> Found:
    """Compile, judge and run, so many random ones too."""
    answers: dict[str, list[str]] = {}
    wrong: dict[str, list[Any]] = {}
    ran = 0
    for name, call, shapes in cases(random):
        with tempfile.TemporaryDirectory() as folder:
            answer, apart = tried(call, shapes, Path(folder))
        print(name, answer, apart, flush=True)
        answers.setdefault(answer.partition(":")[0], []).append(name)
        ran += apart >= 0
        if apart > FAR:
            wrong[name] = [answer, apart]
    return {
        "written": len(WRITTEN),
        "random": random,
        **{answer: len(names) for answer, names in answers.items()},
        "ran": ran,
        "wrong": wrong,
        "names": {answer: names for answer, names in answers.items() if answer != "clean"},
        "unexplained": bool(answers.get("accused") or answers.get("refused")),
    }


if __name__ == "__main__":
    run(measure, failed="unexplained")
