"""Detector R at full size: what a plan of 30 layers allows, every case judged by S, and executed by D where that can tell more.

    python benchmarks/replay.py [--layers 30] [--seq 64] [--every 500] [--limit N] [--out FILE]

For each group of cases: how many, what S and D say, and the processor time. Every single pin is planned and judged; of the pin cases those are executed that
use a pair in place that no other has used, that S finds something in, or that are drawn (every n-th of the rest): `allocsim.r_replay.pins`.
"""

from collections import Counter
from collections.abc import Iterator

from harness import Found, cpu, peak_mib, run

from allocsim.r_replay import GROUPS, failed
from repro import scenarios
from repro.options import EngineOptions
from repro.pipeline import prepare
from repro.r_replay import replay


def measure(*, layers: int = 30, seq: int = 64, every: int = 500, limit: int | None = None) -> Iterator[Found]:
    """Replay group by group; of the pin cases at most `limit`."""
    experiment = prepare(scenarios.find("ggml-1501"), EngineOptions(layers=layers, seq=seq, steps=2, fixed=True))
    program = experiment.workload.program
    found: Found = {
        "layers": layers,
        "seq": seq,
        "every": every,
        "ops": len(program.ops),
        "buffers": len(program.buffers),
    }
    for group in GROUPS:
        seconds, rows = cpu(lambda group=group: list(replay(experiment, groups=(group,), limit=limit, every=every)))
        found[group] = {
            "cases": len(rows),
            "fail": sum(map(failed, rows)),
            **{letter: dict(Counter(row[letter]["status"] for row in rows)) for letter in "SD"},
            "cpu_seconds": round(seconds, 1),
        }
        print(f"{group:8} {found[group]}", flush=True)
        yield {**found, "peak_mib": peak_mib()}


if __name__ == "__main__":
    run(measure)
