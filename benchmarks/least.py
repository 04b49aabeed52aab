"""Certificates of the least peak for minimalloc's challenging instances, or the best bound that was proved.

    python benchmarks/least.py DATA [--seconds S] [--nodes N] [--out FILE]

DATA is a folder with `A.1048576.csv` to `K.1048576.csv` (minimalloc, `benchmarks/challenging`), which are no part of this project. Each is planned
by `exact`, for S seconds of processor time where no proof comes before, first with its MiB as enough and then without; the certificate of the lower
plan, whose proof may split N times into cases, is asked of `docs/planners/check_certificate.py` with the instance.

The exit status is the number of certificates that the checker does not accept.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.allocators.branch_and_bound import place, proof  # noqa: E402 - after the path above
from allocsim.allocators.certificate import certificate  # noqa: E402 - as above
from allocsim.systems import load  # noqa: E402 - as above

MIB: Final = 1 << 20

CHECKER: Final = HERE.parent / "docs" / "planners" / "check_certificate.py"


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


def main() -> int:
    """Ask, print, write; return how many certificates are not accepted."""
    parser = argparse.ArgumentParser(description="Certificates of the least peak.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "least.json")
    options = parser.parse_args()
    place(load(options.data / "B.1048576.csv").problems[0], nodes=1)  # compiled before it is measured
    rows: dict[str, Any] = {}
    for path in sorted(options.data.glob("?.1048576.csv")):
        rows[path.name[0]] = measured(path, options.seconds, options.nodes)
        print(path.name[0], rows[path.name[0]], flush=True)
        options.out.write_text(json.dumps({"unit": "CPU seconds, bytes", "instances": rows}, indent=1) + "\n")
    return sum(not row["checker"].startswith("accepted") for row in rows.values())


if __name__ == "__main__":
    sys.exit(main())
