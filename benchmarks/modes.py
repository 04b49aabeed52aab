"""Detector D at full size: 30 layers trained 20 steps in every sort of mode, each compared with the reference tensor by tensor.

    python benchmarks/modes.py [--layers 30] [--steps 20] [--modes a,b,...] [--out FILE]

For each mode: whether it is equal, rounds or is corrupt, where it first goes wrong, and its arena; the processor time of everything `repro run` does, and the most
memory it had.
"""

from typing import Any

from harness import Found, cpu, peak_mib, run

from repro import run as whole_runs
from repro import scenarios
from repro.options import EngineOptions

MODES = ("default", "pinned", "reference", "float64", "deny", "pin:backward", "greedy_by_size", "tape")


def measure(*, layers: int = 30, steps: int = 20, modes: tuple[str, ...] = MODES) -> Found:
    """Train in every mode."""
    chosen = EngineOptions(layers=layers, steps=steps, modes=modes)
    seconds, result = cpu(lambda: whole_runs.run(scenarios.find("ggml-1501"), chosen))
    rows = {course["mode"]: _row(course) for course in result.differential}
    for name, row in rows.items():
        print(f"{name:16} {row}")
    return {
        "layers": layers,
        "steps": steps,
        "verdict": [list(cause) for cause in sorted(result.verdict.classes)],
        "cpu_seconds": round(seconds, 1),
        "peak_mib": peak_mib(),
        "modes": rows,
    }


def _row(course: dict[str, Any]) -> dict[str, Any]:
    first = course["first"]
    return {
        "nature": course["nature"],
        "first_step": course["first_step"],
        "first_wrong": None if first is None else f"{first['name']} ({first['what']})",
        "loss": [course["loss"][0], course["loss"][-1]],
        "arena_mib": round(course["arena_bytes"] / 2**20, 1),
        "executor": course["executor"],
        "tensors": sum(row["tensors"] for row in course["rows"]),
        "differing": sum(row["differing"] for row in course["rows"]),
    }


if __name__ == "__main__":
    run(measure)
