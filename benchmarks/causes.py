"""Guilt by counterfactual by the thousand: planted faults with the right answer, alone and together, and every cure judged again.

    python benchmarks/causes.py [--faults 0:14500] [--several 0:5000] [--documents 101:140] [--laws 0:500] [--evidence 0:2000] [--out FILE]

`--faults` are seeds of planted faults (`tests/culprits.py`), `--several` of two and of three faults within one program (`tests/several.py`), `--documents`
seeds of pieces of 100 random documents each, `--laws` seeds of faults on which every law of company and names is tried (`tests/company.py`), `--evidence`
seeds of faults executed on the engine, on which no larger set of detectors may find less (`tests/evidences.py`). What is run for some hundreds in the suite,
with the same seeds. Every miss is printed, and each piece added to the results under its own name as soon as it is done, so that a campaign can be run in pieces and goes on where it
stopped. Exit status 1 where anything was missed.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(HERE.parent), str(TESTS), str(TESTS / "laws")]

from company import LAWS, broken  # noqa: E402
from culprits import PLANTS, culprits  # noqa: E402
from cures import faults_of_cures, wrong_cures  # noqa: E402
from evidences import executed, lost  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from several import several, wrong_with_several  # noqa: E402
from strategies import documents  # noqa: E402
from test_causes import wrong_with  # noqa: E402

import allocsim.outcomes  # noqa: E402, F401 - first, so that what it imports is whole
from allocsim.files import write_atomic  # noqa: E402
from allocsim.judge.fast import check  # noqa: E402
from allocsim.verdict import judge  # noqa: E402

FAULTS, SEVERAL, DOCUMENTS, SEEDS, EXECUTED = 1000, 250, 100, 50, 100
"""Seeds of faults and of several together, random documents, seeds of laws and of executions in a piece."""


def planted(first: int, stop: int) -> Counter[str]:
    """Return how many faults of each plant there were, and how many were answered wrong."""
    counts: Counter[str] = Counter()
    for culprit in culprits(range(first, stop), tuple(PLANTS)):
        counts[culprit.name.split()[0]] += 1
        verdict = judge(culprit.evidence)
        _told(counts, culprit.name, verdict, wrong_with(culprit, verdict))
    return counts


def _told(counts: Counter[str], name: str, verdict: Any, wrong: str) -> None:
    """Count the cures of a verdict, judged again, and what is wrong with them or with it; print the latter."""
    faults, cures = wrong_cures(verdict)
    counts["cures"] += cures
    for what in [wrong] * bool(wrong) + faults:
        counts["wrong: " + what.split(":")[0]] += 1
        print(name, what, flush=True)


def together(first: int, stop: int) -> Counter[str]:
    """Return how many documents had two or three planted faults, how many of these show, and how many were answered wrong."""
    counts: Counter[str] = Counter()
    for count in (2, 3):
        for one in several(range(first, stop), count):
            shown = sum(shows for *_, shows in one.faults)
            counts.update({f"{count} planted": 1, f"{count} planted, {shown} to be seen": 1})
            verdict = judge(one.evidence)
            _told(counts, one.name, verdict, wrong_with_several(one, verdict))
    return counts


def random(piece: int) -> Counter[str]:
    """Return how many random documents were faulty, how many cures they had, and what was wrong with them."""
    counts: Counter[str] = Counter()

    @seed(piece)
    @settings(
        max_examples=DOCUMENTS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @given(documents())
    def one(document: object) -> None:
        if check(document, limit=1).clean:
            counts["clean"] += 1
            return
        wrong, cures = faults_of_cures(document)
        counts.update(faulty=1, cures=cures)
        for word in wrong:
            counts["wrong: " + word] += 1
            print(f"piece {piece}, faulty document {counts['faulty']}: {word}", flush=True)

    one()
    return counts


def laws(first: int, stop: int) -> Counter[str]:
    """Return how often each law of company and names was tried on planted faults, and how often it was broken."""
    counts: Counter[str] = Counter()
    for culprit in culprits(range(first, stop), tuple(PLANTS)):
        for name in LAWS:
            wrong = broken(name, culprit)
            if wrong is None:
                continue
            counts[name] += 1
            if wrong:
                counts["wrong: " + name] += 1
                print(culprit.name, name, wrong, flush=True)
    return counts


def evidence(first: int, stop: int) -> Counter[str]:
    """Return how many pairs of sets of detectors were compared on executed faults, and where the larger found less."""
    counts: Counter[str] = Counter()
    for name, one in executed(range(first, stop)):
        less, pairs = lost(one)
        counts.update(executed=1, pairs=pairs)
        if less:
            counts["wrong: less found"] += 1
            print(name, less[0], flush=True)
    return counts


PIECES = (
    ("faults", FAULTS, planted),
    ("several", SEVERAL, together),
    ("laws", SEEDS, laws),
    ("evidence", EXECUTED, evidence),
)
"""What is run by seeds: its name, how many seeds a piece has, and what runs it."""


def pieces(options: argparse.Namespace) -> dict[str, Any]:
    """Return the name of each piece asked for, and what runs it."""
    found: dict[str, Any] = {}
    for name, step, run in PIECES:
        for low in range(*getattr(options, name), step):
            high = min(low + step, getattr(options, name)[1])
            found[f"{name} {low}:{high}"] = lambda low=low, high=high, run=run: run(low, high)
    for piece in range(*options.documents):
        found[f"documents {piece} of {DOCUMENTS}"] = lambda piece=piece: random(piece)
    return found


def summary(done: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the counts of all pieces together, by what was run."""
    whole: dict[str, Counter[str]] = {}
    for name, piece in done.items():
        whole.setdefault(name.split()[0], Counter()).update(piece["counts"])
    return {name: dict(sorted(counts.items())) for name, counts in sorted(whole.items())}


def main() -> int:
    """Run what is asked for and not yet there; return the exit status."""

    def span(text: str) -> tuple[int, int]:
        low, _, high = text.partition(":")
        return int(low), int(high)

    parser = argparse.ArgumentParser(description="Planted faults, and cures judged again.")
    for name in (*(name for name, *_ in PIECES), "documents"):
        parser.add_argument(f"--{name}", type=span, default=(0, 0), metavar="LOW:HIGH")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "causes.json")
    options = parser.parse_args()
    done: dict[str, dict[str, Any]] = json.loads(options.out.read_text())["pieces"] if options.out.exists() else {}
    for name, run in pieces(options).items():
        if name in done:
            continue
        began = time.process_time()
        counts = run()
        done[name] = {"counts": dict(sorted(counts.items())), "cpu_seconds": round(time.process_time() - began, 1)}
        record = {"summary": summary(done), "pieces": done}
        write_atomic(options.out, json.dumps(record, indent=1).encode() + b"\n")
        print(name, done[name], flush=True)
    whole = summary(done)
    print(json.dumps(whole, indent=1))
    return int(any(word.startswith("wrong") for counts in whole.values() for word in counts))


if __name__ == "__main__":
    sys.exit(main())
