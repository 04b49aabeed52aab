"""The engine's figures in one table, out of what the benchmarks wrote: printed, and written beside them.

    python benchmarks/table.py [--results FOLDER]

A row is a figure, its target, and whether it is met. Nothing is measured here; a figure whose benchmark has not run is missing.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

Row = tuple[str, float, float | None, str]
"""What, figure, the most it should be, unit."""


def steps(name: str, limits: dict[str, float], outside: float | None) -> Callable[[dict[str, Any]], Iterator[Row]]:
    """Return the rows of a training step."""

    def rows(found: dict[str, Any]) -> Iterator[Row]:
        fused = found.get("attention") == "fused"
        step = f"training step, T = {found['config']['seq']}" + (", attention as one op" if fused else "")
        what, clock = (
            ("1 thread, CPU time", "cpu") if found["threads"] == 1 else (f"{found['threads']} threads, wall", "wall")
        )
        for peer, ratio in found["ratio"].items():
            yield f"{step}, {what}, ours / {peer}", ratio[clock], limits.get(peer), "x"
        if "of_registers" in found and found["threads"] == 1:
            most = limits.get("registers")
            yield (
                f"{step}, 1 thread, ours / a loop of as many multiply-adds in registers",
                1 / found["of_registers"],
                most,
                "x",
            )
        for peer, ratio in found["ratio"].items():
            yield f"peak memory of that process, ours / {peer}", ratio["peak"], limits.get(f"{peer} peak"), "x"
        if not fused:  # there, products are inside of attention
            yield f"time outside matrix products, {name}", 100 * found["outside_products"], outside, "%"

    return rows


def scalars(found: dict[str, Any]) -> Iterator[Row]:
    """Return the rows of the scalar graph."""
    us, many = found["us_per_node"], f"{found['nodes']:,} scalars"
    yield f"{many}: forward and backward on the tape", 1000 * us["tape"], 100, "ns a node"
    yield f"{many}: the same from the list of calls", 1000 * us["calls"], None, "ns a node"
    yield f"{many}: front", us["front"], 5, "us a node"
    yield f"{many}: front, backward, planning, binding, run", us["front"] + us["backward"], 40, "us a node"
    yield "800 scalars: a second backward of a kept structure", us["again"], None, "us a node"
    for peer, ratio in found["ratio"].items():
        yield f"{many}: all of it, ours / {peer}", ratio, None, "x"
    yield "one ufunc from Python, in the same rounds (a yardstick)", us["yardstick"], None, "us"


def first_use(found: dict[str, Any]) -> Iterator[Row]:
    """Return the rows of first and later use."""
    yield "first use: kernels compiled", found["first_kernels_s"], 15, "s"
    yield "later use: kernels loaded", found["later_kernels_s"], 1, "s"


def checkpoint(found: dict[str, Any]) -> Iterator[Row]:
    """Return the rows of gradient checkpointing."""
    what = f"checkpointing, {found['config']['layers']} layers, T = {found['config']['seq']}"
    for planner, ratio in found["arena_ratio"].items():
        yield f"{what}: arena by {planner}, with / without", ratio, 0.35, "x"
    yield "the same: CPU time of a step, with / without", found["time_ratio"]["median"], 1.4, "x"


def attention(found: dict[str, Any]) -> Iterator[Row]:
    """Return the rows of the fused op."""
    for length, row in found["lengths"].items():
        yield f"attention as one op, T = {length}, time / that of its parts", row["time_ratio"], None, "x"
        yield f"attention as one op, T = {length}, arena / that of its parts", row["arena_ratio"], None, "x"


def products(found: dict[str, Any]) -> Iterator[Row]:
    """Return the rows of matrix products."""
    for length, ratio in found["geometric_mean"].items():
        yield (
            f"products of matrices, T = {length}: time by tiles / by OpenBLAS, geometric mean over a step's shapes",
            ratio,
            None,
            "x",
        )


TABLE: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "step": steps(
        "T = 64", {"torch": 0.56, "torch flushing": 0.56, "jax": 0.90, "registers": 1.28, "torch peak": 0.68}, 8
    ),
    "step_256": steps("T = 256", {"torch": 0.68, "torch flushing": 0.68, "registers": 1.28, "torch peak": 0.62}, 8),
    "step_2": steps("T = 64, 2 threads", {"torch": 0.60, "torch flushing": 0.60, "jax": 0.60}, None),
    "step_256_2": steps("T = 256, 2 threads", {"torch": 0.60, "torch flushing": 0.60, "jax": 0.60}, None),
    "step_fused": steps("T = 64", {}, None),
    "step_256_fused": steps("T = 256", {}, None),
    "products": products,
    "scalars": scalars,
    "first_use": first_use,
    "checkpoint": checkpoint,
    "attention": attention,
}
"""Result file -> its rows."""

KEYS: dict[str, set[str]] = {
    "step": {"ratio", "sides", "outside_products"},
    "step_256": {"ratio", "sides", "outside_products"},
    "step_2": {"ratio", "sides", "outside_products"},
    "step_256_2": {"ratio", "sides", "outside_products"},
    "step_fused": {"ratio", "sides", "outside_products"},
    "step_256_fused": {"ratio", "sides", "outside_products"},
    "products": {"geometric_mean"},
    "scalars": {"us_per_node", "ratio"},
    "first_use": {"first_kernels_s", "later_kernels_s"},
    "checkpoint": {"arena_ratio", "time_ratio"},
    "attention": {"lengths"},
}
"""Result file -> what it must hold to be read."""


def text(results: Path) -> str:
    """Return the table in Markdown."""
    lines = ["| figure | measured | target | met |", "|---|---|---|---|"]
    for name, rows in TABLE.items():
        path = results / f"{name}.json"
        if not path.exists():
            lines.append(f"| {name} | not measured | | |")
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        if not KEYS[name] <= set(found):
            lines.append(f"| {name} | measured in another form; measure again | | |")
            continue
        for what, figure, most, unit in rows(found):
            target, met = ("", "") if most is None else (f"<= {most:g} {unit}", "yes" if figure <= most else "no")
            lines.append(f"| {what} | {figure:.3g} {unit} | {target} | {met} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description="The engine's figures in one table.")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options, _ = parser.parse_known_args()
    table = text(options.results)
    print(table, end="")
    (options.results / "engine.md").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
