"""Random functions compiled by XLA for the CPU: is a plan accused whose numbers are right, or clean whose numbers are wrong?

    BENCH_PEERS=python-with-jax python benchmarks/xla.py [--models 1000] [--first SEED] [--seconds S] [--keep FOLDER] [--out FILE]

`xla_models.py` compiles and dumps them and compares their numbers with those of their operations one by one. Each dump is read, with its live ranges,
judged and replayed here. Numbers `differ` that are further apart than rounding explains. What goes on where is in `resumable.py`.
"""

import sys
from pathlib import Path
from typing import Final

from replays import replay_word
from resumable import Row, campaign

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check

FAR: Final = 1e-3
"""Of the largest element: more than float32 loses in such chains of operations."""


def judged(folder: Path, row: Row) -> Row:
    """Return what is said of the dump of one function, beside what its run gave."""
    try:
        document = systems.load(folder / "dump")
    except DocumentError as error:
        return {"told": "refused", "why": str(error)[:200]}
    report = check(document)
    return {
        "told": f"{'clean' if report.clean else 'accused'}, numbers {'differ' if row['apart'] > FAR else 'agree'}",
        "kinds": sorted({violation.kind for violation in report.violations}),
        "doubtful": sum(row.kind == "AssumedInPlace" for row in report.warnings),
        "replayed": [replay_word(document, report)],
        "ops": sum(len(program.ops) for program in document.programs),
    }


if __name__ == "__main__":
    sys.exit(campaign("xla", __doc__, judged))
