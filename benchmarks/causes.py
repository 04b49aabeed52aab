"""Guilt by counterfactual by the thousand: planted faults with the right answer, alone and together, and every cure judged again.

    python benchmarks/causes.py [--faults 0:14500] [--several 0:5000] [--documents 101:140] [--laws 0:500] [--evidence 0:2000] [--out FILE]

`--faults` are seeds of planted faults (`tests/culprits.py`), `--several` of two and of three faults within one program (`tests/several.py`), `--documents`
seeds of pieces of 100 random documents each, `--laws` seeds of faults on which every law of company and names is tried (`tests/company.py`), `--evidence`
seeds of faults executed on the engine, on which no larger set of detectors may find less (`tests/evidences.py`). What is run for some hundreds in the suite,
with the same seeds. Every miss is printed, and each piece added to the results under its own name as soon as it is done, so that a campaign can be run in pieces and goes on where it
stopped. Exit status 1 where anything was missed.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Found, cpu, kept, run

from company import LAWS, broken
from culprits import PLANTS, culprits
from cures import faults_of_cures, wrong_cures
from evidences import executed, lost
from hypothesis import given, seed, settings
from judges import QUIET
from several import several, wrong_with_several
from strategies import documents
from test_causes import wrong_with

import allocsim.outcomes  # noqa: F401 - first, so that what it imports is whole
from allocsim.judge.fast import check
from allocsim.verdict import judge

DOCUMENTS = 100
"""Random documents of a piece."""


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


def random(piece: int, stop: int) -> Counter[str]:
    """Return how many random documents were faulty, how many cures they had, and what was wrong with them."""
    assert stop == piece + 1
    counts: Counter[str] = Counter()

    @seed(piece)
    @settings(QUIET, max_examples=DOCUMENTS)
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


PIECES = {
    "faults": (1000, planted), "several": (250, together), "laws": (50, laws), "evidence": (100, evidence), "documents": (1, random),
}  # fmt: skip
"""What is run by seeds: its name, how many seeds a piece has, and what runs it."""


def measure(
    *,
    faults: tuple[int, ...] = (0, 0),
    several: tuple[int, ...] = (0, 0),
    documents: tuple[int, ...] = (0, 0),
    laws: tuple[int, ...] = (0, 0),
    evidence: tuple[int, ...] = (0, 0),
    out: Path,
) -> Iterator[Found]:
    """Run what is asked for and not yet there."""
    asked = {"faults": faults, "several": several, "laws": laws, "evidence": evidence, "documents": documents}
    done: dict[str, Any] = kept(out).get("pieces", {})
    for sort, (step, work) in PIECES.items():
        for low in range(*asked[sort], step):
            high = min(low + step, asked[sort][1])
            name = f"documents {low} of {DOCUMENTS}" if sort == "documents" else f"{sort} {low}:{high}"
            if name not in done:
                seconds, counts = cpu(lambda low=low, high=high, work=work: work(low, high))
                done[name] = {"counts": dict(sorted(counts.items())), "cpu_seconds": round(seconds, 1)}
                print(name, done[name], flush=True)
                yield summary(done)
    yield summary(done)


def summary(done: dict[str, Any]) -> Found:
    """Return the counts of all pieces together, by what was run, and the pieces."""
    whole: dict[str, Counter[str]] = {}
    for name, piece in done.items():
        whole.setdefault(name.split()[0], Counter()).update(piece["counts"])
    found = {name: dict(sorted(counts.items())) for name, counts in sorted(whole.items())}
    wrong = sum(count for counts in whole.values() for word, count in counts.items() if word.startswith("wrong"))
    return {"summary": found, "wrong": wrong, "pieces": done}


if __name__ == "__main__":
    run(measure, failed="wrong")
