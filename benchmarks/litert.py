"""Random models in a live LiteRT interpreter: who is convicted, and whose numbers are wrong.

    BENCH_PEERS=python-with-litert python benchmarks/litert.py [--models N] [--out FILE]

Each model runs as the interpreter plans it and with `preserve_all_tensors`; its pointers are judged. An accusation whose numbers are right is a false
one; numbers that differ without an accusation are a fault missed. Both must be 0. The models run in an interpreter of their own
(`litert_models.py`), 500 a process.
"""

import json
from collections import Counter

from harness import PEERS, Found, child, run

from replays import DISAGREES, replay_word

from allocsim.judge.fast import check
from allocsim.systems.litert import litert_pointers

BATCH = 500


def measure(*, models: int = 1000, peers: str = PEERS) -> Found:
    """Run and judge; `peers` is an interpreter that has ai-edge-litert."""
    counted, replayed, wrong, version = Counter[str](), Counter[str](), [], ""
    for first in range(0, models, BATCH):
        for line in child("litert_models.py", str(first), str(min(first + BATCH, models)), python=peers, quiet=True):
            row = json.loads(line)
            version = row["dump"]["versions"]
            document = litert_pointers.loads(json.dumps(row["dump"]).encode())
            report = check(document)
            replayed[replay_word(document, report)] += 1
            said = "clean" if report.clean else "convicted"
            counted[f"{said}, numbers {'differ' if row['differs'] else 'agree'}"] += 1
            wrong += [row["seed"]] if row["differs"] else []
    unexplained = counted["convicted, numbers agree"] + counted["clean, numbers differ"]
    return {
        "version": version,
        "models": models,
        "counts": dict(sorted(counted.items())),
        "replayed": dict(sorted(replayed.items())),
        "seeds that differ": wrong,
        "unexplained": unexplained + replayed[DISAGREES],
    }


if __name__ == "__main__":
    run(measure, failed="unexplained")
