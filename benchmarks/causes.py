"""Guilt by counterfactual by the thousand: planted faults with the right answer, and the cures of random faulty documents judged again.

    python benchmarks/causes.py 10000 2000       # seeds of planted faults, random documents

What is run for some hundreds in the suite (`tests/laws/test_causes.py`), with the same seeds. Prints every miss, then the counts.
"""

import sys
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "laws")]

from culprits import PLANTS, culprits  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from strategies import documents  # noqa: E402
from test_causes import faults_of_cures, wrong_with  # noqa: E402

import allocsim.outcomes  # noqa: E402, F401 - first, so that what it imports is whole
from allocsim.checks import check  # noqa: E402


def planted(count: int) -> Counter[str]:
    """Return how many faults of each plant there were, and how many were answered wrong."""
    counts: Counter[str] = Counter()
    for culprit in culprits(range(count), tuple(PLANTS)):
        counts[culprit.name.split()[0]] += 1
        if wrong := wrong_with(culprit):
            counts["wrong"] += 1
            print(culprit.name, wrong)
    return counts


def random(count: int) -> Counter[str]:
    """Return how many random documents were faulty, and what was wrong with cures."""
    counts: Counter[str] = Counter()

    @seed(1)
    @settings(
        max_examples=count,
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
        counts["faulty"] += 1
        for wrong in faults_of_cures(document):
            counts[wrong] += 1

    one()
    return counts


def main() -> None:
    """Run both, as many as asked for."""
    seeds, drawn = (int(word) for word in [*sys.argv[1:], "1000", "200"][:2])
    for name, counts in (("planted", planted(seeds)), ("random", random(drawn))):
        print(name, counts.total() - counts["wrong"], dict(sorted(counts.items())))
    print(f"{time.process_time():.0f} s of processor time")


if __name__ == "__main__":
    main()
