"""Random models compiled by TorchInductor for the CPU: is a wrapper accused whose numbers are right, or clean whose numbers are wrong?

    BENCH_PEERS=python-with-torch python benchmarks/inductor.py [--models 100] [--first SEED] [--seconds S] [--keep FOLDER] [--out FILE]

`inductor_models.py` compiles them and compares their numbers with the eager ones. Each wrapper is judged and replayed here; the numbers of an accused one
are compared once more, with its reuse turned off. What goes on where is in `resumable.py`.
"""

import sys
from pathlib import Path
from typing import Final

from replays import replay_word
from resumable import Row, campaign

from allocsim import systems
from allocsim.errors import AllocsimError
from allocsim.judge.fast import check

FAR: Final = 1e-3
"""As in `inductor_models.py`."""


def judged(folder: Path, row: Row) -> Row:
    """Return what is said of the wrappers of one model, beside what its runs gave."""
    ops, kinds, doubtful, refused, replayed = 0, set(), 0, [], []
    for path in sorted(folder.glob("graph*.py")):
        try:
            document = systems.load(path)
        except AllocsimError as error:
            refused.append(str(error).replace(f"{folder}/", "")[:200])
            continue
        report = check(document)
        ops += sum(len(program.ops) for program in document.programs)
        kinds |= {row.kind for row in report.violations}
        doubtful += sum(row.kind == "AssumedInPlace" for row in report.warnings)
        replayed.append(replay_word(document, report))
    far = max(row["apart"], row.get("reuse", 0)) > FAR
    answer = "accused" if kinds else "refused in part" if refused else "clean"
    return {
        "told": f"{answer}, numbers {'differ' if far else 'agree'}",
        "kinds": sorted(kinds),
        "doubtful": doubtful,
        "refused": refused,
        "replayed": replayed,
        "ops": ops,
    }


def doubted(row: Row) -> bool:
    """Return whether what was accused is to be compared with reuse turned off."""
    return bool(row.get("kinds")) and "reuse" not in row


if __name__ == "__main__":
    sys.exit(campaign("inductor", __doc__, judged, {"TORCHINDUCTOR_COMPILE_THREADS": "1"}, doubted=doubted))
