"""Certificates of the least peak for minimalloc's challenging instances, or the best bound that was proved.

    python benchmarks/least.py DATA [--seconds S] [--nodes N] [--out FILE]

DATA is a folder with `A.1048576.csv` to `K.1048576.csv` (minimalloc, `benchmarks/challenging`), which are no part of this project. Each is planned
by `exact`, for S seconds of processor time where no proof comes before, first with its MiB as enough and then without; the certificate of the lower
plan, whose proof may split N times into cases, is asked of `docs/planners/check_certificate.py` with the instance.

Exit status 1 where the checker does not accept a certificate.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import ROOT, Found, run

from allocsim.allocators.branch_and_bound import place, proof
from allocsim.allocators.certificate import certificate
from allocsim.systems import load

MIB: Final = 1 << 20

CHECKER: Final = ROOT / "docs" / "planners" / "check_certificate.py"


def measured(path: Path, seconds: float, nodes: int) -> dict[str, Any]:
    """Return what is known of the least peak of an instance, and what the checker says of it."""
    problem = load(path).problems[0]
    begun = time.process_time()
    fits = place(problem, enough=MIB, seconds=60.0)
    quick = time.process_time() - begun
    plan = min(fits, place(problem, seconds=seconds), key=lambda plan: plan.peak_bytes)
    spent = time.process_time() - begun
    record = certificate(plan, nodes=nodes)
    assert record is not None
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "certificate.json"
        written.write_text(json.dumps(record))
        asked = [sys.executable, str(CHECKER), str(written), str(path)]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
    return {
        "buffers": len(problem.nbytes),
        "seconds to a MiB": round(quick, 2),
        "nodes to a MiB": proof(fits)["nodes"],
        "seconds in all": round(spent, 1),
        "peak": record["peak"],
        "bound": record["bound"],
        "rows of the proof": len(record["proof"]),
        "checker": said.stdout.strip(),
    }


def measure(data: str, *, seconds: float = 10.0, nodes: int = 0) -> Iterator[Found]:
    """Ask each instance of a folder."""
    place(load(Path(data) / "B.1048576.csv").problems[0], nodes=1)  # compiled before it is measured
    rows: Found = {}
    for path in sorted(Path(data).glob("?.1048576.csv")):
        rows[path.name[0]] = row = measured(path, seconds, nodes)
        print(path.name[0], row, flush=True)
        refused = [name for name, row in rows.items() if not row["checker"].startswith("accepted")]
        yield {"unit": "CPU seconds, bytes", "instances": rows, "refused": refused}


if __name__ == "__main__":
    run(measure, failed="refused")
