"""Detector R at full size: what a plan of 30 layers allows, every case judged by S, and executed by D where that can tell more.

    python benchmarks/replay.py [--layers 30] [--seq 64] [--every 500] [--limit N] [--out FILE]

For each group of cases: how many, what S and D say, and the processor time. Every single pin is planned and judged; of the pin cases those are executed that
use a pair in place that no other has used, that S finds something in, or that are drawn (every n-th of the rest): `allocsim.r_replay.pins`.
"""

import argparse
import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.r_replay import GROUPS, failed  # noqa: E402 - after the path above
from repro import scenarios  # noqa: E402 - as above
from repro.options import EngineOptions  # noqa: E402 - as above
from repro.pipeline import prepare  # noqa: E402 - as above
from repro.r_replay import replay  # noqa: E402 - as above


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Detector R at full size.")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--limit", type=int, default=None, help="at most so many pin cases")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "replay.json")
    options = parser.parse_args()
    experiment = prepare(
        scenarios.find("ggml-1501"), EngineOptions(layers=options.layers, seq=options.seq, steps=2, fixed=True)
    )
    results: dict[str, Any] = {
        "layers": options.layers,
        "seq": options.seq,
        "every": options.every,
        "ops": len(experiment.workload.program.ops),
        "buffers": len(experiment.workload.program.buffers),
    }
    for group in GROUPS:
        began = time.process_time()
        rows = list(replay(experiment, groups=(group,), limit=options.limit, every=options.every))
        results[group] = {
            "cases": len(rows),
            "fail": sum(map(failed, rows)),
            "S": dict(Counter(row["S"]["status"] for row in rows)),
            "D": dict(Counter(row["D"]["status"] for row in rows)),
            "cpu_seconds": round(time.process_time() - began, 1),
        }
        results["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{group:8} {results[group]}", flush=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
