"""What each screen of the judge claims, and that no read is stale where nothing overlaps, proved by z3 within larger bounds than the tests ask; mutants refuted: CPU seconds of each.

    python benchmarks/screen_claims.py [--out FILE]

The formulas are those of `tests/screen_claims.py` and `tests/overlap_claims.py`. Exit status 1 where a claim does not hold, or one of its mutants is refuted nowhere.
"""

import argparse
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

import overlap_claims  # noqa: E402 - after the path above
import screen_claims as claims  # noqa: E402

BOUNDS = (
    (claims.holds_of_meetings, claims.MEETINGS, {"count": 5, "below": 8}),
    (claims.holds_of_late, claims.LATE, {"ops": 5, "count": 3}),
    (claims.holds_of_reads, claims.READS, {"ops": 3, "cells": 4}),
    (claims.holds_of_reads, claims.READS, {"ops": 2, "slots": 2, "runs": 1, "cells": 4}),
    (claims.holds_of_reads, {}, {"ops": 4, "cells": 3, "same": False}),
    (overlap_claims.holds_of_overlaps, overlap_claims.OVERLAPS, {"ops": 3, "cells": 3}),
    (overlap_claims.holds_of_overlaps, overlap_claims.OVERLAPS, {"ops": 2, "slots": 2, "runs": 1, "cells": 4}),
    (overlap_claims.holds_of_overlaps, overlap_claims.OVERLAPS, {"ops": 4, "cells": 3, "same": False}),
    (overlap_claims.holds_of_overlaps, {}, {"ops": 4, "cells": 3}),
    (claims.holds_of_reads, {}, {"ops": 4, "values": 4, "buffers": 3, "runs": 1, "same": False}),
)


def main() -> int:
    """Prove, refute, write."""
    parser = argparse.ArgumentParser(description="What the screens claim, by z3.")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "screen_claims.json")
    options = parser.parse_args()
    rows, alive = [], {*claims.MEETINGS, *claims.LATE, *claims.READS, *overlap_claims.OVERLAPS}
    for holds, mutants, bounds in BOUNDS:
        for mutant in (None, *(each for each in mutants if each in alive)):
            began = time.process_time()
            row = {"claim": holds.__name__, **bounds, "mutant": mutant, "holds": holds(mutant, **bounds)}
            rows.append({**row, "cpu_seconds": round(time.process_time() - began, 1)})
            alive -= set() if row["holds"] else {mutant}
            print(rows[-1], flush=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(bool(alive) or not all(row["holds"] for row in rows if row["mutant"] is None))


if __name__ == "__main__":
    sys.exit(main())
