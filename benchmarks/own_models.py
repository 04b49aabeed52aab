"""The five models of `examples/` under every planner of the shelf, and with each of six planted faults: which verdict, which party, which cure.

    python benchmarks/own_models.py [--steps N] [--planners NAME,...] [--seconds S] [--out FILE]

Each model is diagnosed as `allocsim diagnose examples.NAME:CASE --allocator PLANNER` does it. A row is `clean` where nothing wrong was found; a fault is
`convicted` where the verdict names its class and party and nothing else, `cured` where a cure was found and run. Rows that are in FILE are not made again,
and it is written after each; `wrong` names every row that is not as it must be, with what was said.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness import RESULTS, Found, kept, run, until

from planted_models import EXAMPLES, FAULTS, case, options_of, planted

from allocsim.allocators import ALLOCATORS
from repro import run as whole_runs
from repro.options import EngineOptions


def row(name: str, what: str, options: EngineOptions) -> Found:
    """Diagnose one model with a fault, or under a planner."""
    if what in FAULTS:
        result = whole_runs.run(planted(name, what, options), options_of(what, options))
        good = {"convicted": result.matches, "cured": result.evidence.cure is not None}
    else:
        result = whole_runs.run(case(name), replace(options, allocator=what))
        good = {"clean": result.verdict.sound}
    return {**good, **({} if all(good.values()) else {"said": result.verdict.text})}


def measure(
    *,
    steps: int = 2,
    planners: tuple[str, ...] = tuple(ALLOCATORS),
    seconds: float = float("inf"),
    out: Path = RESULTS / "own_models.json",
) -> Iterator[Found]:
    """Make the rows that are missing in `out`; begin none after so many seconds."""
    found = kept(out)
    rows = found.get("rows", {}) if found.get("steps") == steps else {}
    asked = {f"{name}, {what}": (name, what) for what in (*FAULTS, *planners) for name in EXAMPLES}
    left = [key for key in asked if key not in rows]
    for key in until(seconds, left):
        rows[key] = row(*asked[key], EngineOptions(steps=steps))
        print(key, rows[key], flush=True)
        yield told(steps, rows)
    if not left:
        yield told(steps, rows)


def told(steps: int, rows: dict[str, Found]) -> Found:
    """Return the rows, how many are as they must be, and those that are not."""
    counts = {sort: sum(bool(one.get(sort)) for one in rows.values()) for sort in ("clean", "convicted", "cured")}
    wrong = {key: one for key, one in rows.items() if "said" in one}
    return {"steps": steps, **counts, "made": len(rows), "wrong": wrong, "rows": rows}


if __name__ == "__main__":
    run(measure, failed="wrong")
