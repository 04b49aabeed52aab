"""What each screen of the judge claims, and that no read is stale where nothing overlaps, proved by z3 within larger bounds than the tests ask; mutants refuted: CPU seconds of each.

    python benchmarks/screen_claims.py [--out FILE]

The formulas are those of `tests/screen_claims.py` and `tests/overlap_claims.py`. Exit status 1 where a claim does not hold, or one of its mutants is refuted nowhere.
"""

from collections.abc import Iterator

from harness import Found, cpu, run

import overlap_claims
import screen_claims as claims

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


def measure() -> Iterator[Found]:
    """Prove and refute."""
    rows, alive = [], {*claims.MEETINGS, *claims.LATE, *claims.READS, *overlap_claims.OVERLAPS}
    for holds, mutants, bounds in BOUNDS:
        for mutant in (None, *(each for each in mutants if each in alive)):
            took, held = cpu(lambda holds=holds, mutant=mutant, bounds=bounds: holds(mutant, **bounds))
            row = {"claim": holds.__name__, **bounds, "mutant": mutant, "holds": held}
            rows.append({**row, "cpu_seconds": round(took, 1)})
            alive -= set() if held else {mutant}
            print(rows[-1], flush=True)
            failed = [row for row in rows if row["mutant"] is None and not row["holds"]]
            yield {"claims": rows, "do not hold": failed, "refuted nowhere": sorted(alive)}


if __name__ == "__main__":
    run(measure, failed=("do not hold", "refuted nowhere"))
