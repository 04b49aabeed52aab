"""Random models in tinygrad: is a schedule accused whose numbers are right, or clean whose numbers are wrong?

    BENCH_PEERS=python-with-tinygrad python benchmarks/in_tinygrad.py [--models 1000] [--first SEED] [--seconds S] [--keep FOLDER] [--out FILE]

`tinygrad_models.py` runs them; what its memory planner made of their schedules is judged here. What goes on where is in `resumable.py`.
"""

import sys
from pathlib import Path
from typing import Final

from replays import replay_word
from resumable import Row, campaign

from allocsim.errors import AllocsimError
from allocsim.judge.fast import check
from allocsim.systems.tinygrad import tinygrad_schedule

FAR: Final = 1e-3
"""As in `tinygrad_models.py`."""


def judged(folder: Path, row: Row) -> Row:
    """Return what is said of the schedules of one model, beside what its runs gave."""
    far = max(row["planned"]) > FAR
    try:
        document = tinygrad_schedule.loads((folder / "schedules.json").read_bytes(), folder.name)
    except AllocsimError as error:
        planned = "no plan here" not in str(error)
        told = "refused" if planned else f"no buffer was planned, numbers {'differ' if far else 'agree'}"
        return {"told": told, "why": str(error)[:200]}
    report = check(document)
    kinds = sorted({violation.kind for violation in report.violations})
    answer = f"{'accused' if kinds else 'clean'}, numbers {'differ' if far else 'agree'}"
    if far and not kinds and max(row["without"]) > FAR:
        answer += ": the same without reuse"
    return {
        "told": answer,
        "kinds": kinds,
        "replayed": [replay_word(document, report)],
        "ops": sum(len(program.ops) for program in document.programs),
    }


if __name__ == "__main__":
    sys.exit(campaign("tinygrad", __doc__, judged))
