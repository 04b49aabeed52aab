"""The engine's figures in one table, out of what the benchmarks wrote: printed, and written beside them.

    python benchmarks/table.py [--results FOLDER]

A row is a figure, its target, and whether it is met. Nothing is measured here; a figure whose benchmark has not run is missing.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import RESULTS

Row = tuple[str, float, float | None, str]
"""What, figure, the most it should be, unit."""


def step(found: dict[str, Any], limits: dict[str, float]) -> Iterator[Row]:
    """Return the rows of a training step."""
    fused, threads = found.get("attention") == "fused", found["threads"]
    size = f"T = {found['config']['seq']}" + (f", {threads} threads" if threads > 1 else "")
    what = f"training step, T = {found['config']['seq']}" + (", attention as one op" if fused else "")
    clock, counted = ("cpu", "1 thread, CPU time") if threads == 1 else ("wall", f"{threads} threads, wall")
    for peer, ratio in found["ratio"].items():
        yield f"{what}, {counted}, ours / {peer}", ratio[clock], limits.get(peer), "x"
    if "of_registers" in found and threads == 1:
        loop = "1 thread, ours / a loop of as many multiply-adds in registers"
        yield f"{what}, {loop}", 1 / found["of_registers"], limits.get("registers"), "x"
    for peer, ratio in found["ratio"].items():
        yield f"peak memory of that process, ours / {peer}", ratio["peak"], limits.get(f"{peer} peak"), "x"
    if not fused:  # there, products are inside of attention
        yield f"time outside matrix products, {size}", 100 * found["outside_products"], limits.get("outside"), "%"


STEPS: Final[dict[str, dict[str, float]]] = {
    "step": {"torch": 0.56, "torch flushing": 0.56, "jax": 0.90, "registers": 1.28, "torch peak": 0.68, "outside": 8},
    "step_256": {"torch": 0.68, "torch flushing": 0.68, "registers": 1.28, "torch peak": 0.62, "outside": 8},
    "step_2": {"torch": 0.60, "torch flushing": 0.60, "jax": 0.60},
    "step_256_2": {"torch": 0.60, "torch flushing": 0.60, "jax": 0.60},
    "step_fused": {},
    "step_256_fused": {},
}
"""Result file of a training step -> the most that its figures should be."""

TABLE: Final[dict[str, list[tuple[str, str, float | None, str]]]] = {
    "products": [
        ("products of matrices, T = {key}: time by tiles / by OpenBLAS, geometric mean over a step's shapes", "geometric_mean.*", None, "x")
    ],
    "scalars": [
        ("{nodes:,} scalars: forward and backward on the tape", "1000 us_per_node.tape", 100, "ns a node"),
        ("{nodes:,} scalars: the same from the list of calls", "1000 us_per_node.calls", None, "ns a node"),
        ("{nodes:,} scalars: front", "us_per_node.front", 5, "us a node"),
        ("{nodes:,} scalars: front, backward, planning, binding, run", "us_per_node.front + us_per_node.backward", 40, "us a node"),
        ("800 scalars: a second backward of a kept structure", "us_per_node.again", None, "us a node"),
        ("{nodes:,} scalars: all of it, ours / {key}", "ratio.*", None, "x"),
        ("one ufunc from Python, in the same rounds (a yardstick)", "us_per_node.yardstick", None, "us"),
    ],
    "first_use": [
        ("first use: kernels compiled", "first_kernels_s", 15, "s"),
        ("later use: kernels loaded", "later_kernels_s", 1, "s"),
    ],
    "checkpoint": [
        ("checkpointing, {config[layers]} layers, T = {config[seq]}: arena by {key}, with / without", "arena_ratio.*", 0.35, "x"),
        ("the same: CPU time of a step, with / without", "time_ratio.median", 1.4, "x"),
    ],
    "attention": [
        ("attention as one op, T = {key}, time / that of its parts", "lengths.*.time_ratio", None, "x"),
        ("attention as one op, T = {key}, arena / that of its parts", "lengths.*.arena_ratio", None, "x"),
    ],
}  # fmt: skip
"""Result file -> its rows: what, where the figure stands (`*`: for each key; a factor before it; a sum), the most it should be, unit."""


def figures(found: Any, place: list[str]) -> Iterator[tuple[str, float]]:
    """Yield the figures at a place, each with the key that a `*` stood for."""
    if not place:
        yield "", found
    for key in (found if place[0] == "*" else place[:1]) if place else ():
        for inner, figure in figures(found[key], place[1:]):
            yield key if place[0] == "*" else inner, figure


def rows_of(name: str, found: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of a result file; raises KeyError where it has another form."""
    if name in STEPS:
        yield from step(found, STEPS[name])
    for what, places, most, unit in TABLE.get(name, ()):
        sums: dict[str, float] = {}
        for place in places.split(" + "):
            factor, _, of = place.rpartition(" ")
            for key, figure in figures(found, of.split(".")):
                sums[key] = sums.get(key, 0) + figure * float(factor or 1)
        for key, figure in sums.items():
            yield what.format(key=key, **found), figure, most, unit


def text(results: Path) -> str:
    """Return the table in Markdown."""
    lines = ["| figure | measured | target | met |", "|---|---|---|---|"]
    for name in (*STEPS, *TABLE):
        path = results / f"{name}.json"
        try:
            rows = [*rows_of(name, json.loads(path.read_text(encoding="utf-8")))]
        except FileNotFoundError:
            lines.append(f"| {name} | not measured | | |")
            continue
        except KeyError:
            lines.append(f"| {name} | measured in another form; measure again | | |")
            continue
        for what, figure, most, unit in rows:
            target, met = ("", "") if most is None else (f"<= {most:g} {unit}", "yes" if figure <= most else "no")
            lines.append(f"| {what} | {figure:.3g} {unit} | {target} | {met} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The engine's figures in one table.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    print(table := text(folder), end="")
    (folder / "engine.md").write_text(table, encoding="utf-8")
