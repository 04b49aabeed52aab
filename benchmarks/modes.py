"""Detector D at full size: 30 layers trained 20 steps in every sort of mode, each compared with the reference tensor by tensor.

    python benchmarks/modes.py [--layers 30] [--steps 20] [--modes a,b,...] [--out FILE]

For each mode: whether it is equal, rounds or is corrupt, where it first goes wrong, and its arena; the processor time of everything `repro run` does, and the most
memory it had.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from repro import scenarios  # noqa: E402 - after the path above
from repro.options import EngineOptions  # noqa: E402 - as above
from repro.run import run  # noqa: E402 - as above

MODES = "default,pinned,reference,float64,deny,pin:backward,greedy_by_size,tape"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Any set of modes at full size.")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--modes", default=MODES)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "modes.json")
    options = parser.parse_args()
    chosen = EngineOptions(layers=options.layers, steps=options.steps, modes=tuple(options.modes.split(",")))
    began = time.process_time()
    result = run(scenarios.find("ggml-1501"), chosen)
    rows = {course["mode"]: _row(course) for course in result.differential}
    results: dict[str, Any] = {
        "layers": options.layers,
        "steps": options.steps,
        "verdict": [list(cause) for cause in sorted(result.verdict.causes)],
        "cpu_seconds": round(time.process_time() - began, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "modes": rows,
    }
    for name, row in rows.items():
        print(f"{name:16} {row}")
    print({name: value for name, value in results.items() if name != "modes"})
    options.out.write_text(json.dumps(results, indent=1) + "\n")


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
    main()
