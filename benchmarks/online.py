"""Online allocators: sound ones are not accused, planted faults are found, and how fast.

    python benchmarks/online.py                 # 5,000 sequences for each sound allocator

Writes `benchmarks/results/online.json`: for each sound allocator of the tests and of the shelf, the
sequences and calls, what was (wrongly) found, and sequences and calls a CPU second; for each
planted fault the number of the first sequence that finds it.
"""

import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from online_allocators import BROKEN, SOUND  # noqa: E402 - beside the tests

from allocsim.online import SHELF, Judge, campaign, drawn, find  # noqa: E402 - behind the path

EXAMPLES = 5000
SEED = 29


def sound() -> dict[str, dict[str, float]]:
    """Return what a campaign says of each sound allocator."""
    rows = {}
    for name in (*SOUND, *SHELF):
        began = time.process_time()
        result = campaign(Judge(make=SOUND.get(name) or find(name), deterministic=True), examples=EXAMPLES, seed=SEED)
        seconds = time.process_time() - began
        rows[name] = {
            "sequences": result.sequences,
            "calls": result.calls,
            "accusations": len(result.findings),
            "sequences_per_cpu_second": round(result.sequences / seconds),
            "calls_per_cpu_second": round(result.calls / seconds),
        }
    return rows


def broken() -> dict[str, int | None]:
    """Return the first sequence that finds each planted fault by its promise."""
    rows: dict[str, int | None] = {}
    for name, (make, promise) in BROKEN.items():
        judge = Judge(make=make, deterministic=promise == "deterministic", waste=3.0 if promise == "waste" else None)
        abilities = judge.abilities()
        rows[name] = next(
            (
                index
                for index in range(EXAMPLES * 2)
                for found in (judge.judge(drawn(SEED, index, abilities), again=index % 4 == 0),)
                if found is not None and found.property == promise
            ),
            None,
        )
    return rows


if __name__ == "__main__":
    record = {"seed": SEED, "sound": sound(), "broken": broken()}
    (ROOT / "benchmarks/results/online.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    missed = [name for name, first in record["broken"].items() if first is None]
    sys.stdout.write(f"{sum(row['accusations'] for row in record['sound'].values())} accusations, missed: {missed}\n")
