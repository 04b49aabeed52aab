"""Mutants of every kind of file that is read: each read, or refused in one line.

    python benchmarks/self_fuzz.py [--count N] [--seed S] [--kind NAME,...] [--out FILE]

`tests/hostile.py` has the kinds, the changes and what counts as bad. Each kind runs in a process of its own, whose peak of memory is its own.
The table says how many mutants were tried, refused and read, how many were bad, and the most CPU seconds and bytes that one took. Exit status 1 where there is one.
"""

import contextlib
import io
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Found, grown, run

from hostile import KINDS, mutants


def tried(name: str, count: int, seed: int) -> dict[str, Any]:
    """Return the row of one kind."""
    answers: Counter[str] = Counter()
    seconds, nbytes, bad = 0.0, 0, []
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for number, _, found in mutants(name, Path(folder), count, seed):
            if number < 0:
                continue
            answers[found.answer] += 1
            seconds, nbytes = max(seconds, found.seconds), max(nbytes, found.nbytes)
            if found.answer == "bad":
                bad.append({"number": number, "words": found.words[:300]})
    return {
        "kind": name, "seed": seed, "tried": answers.total(), "refused": answers["refused"], "read": answers["read"], "bad": answers["bad"],
        "seconds_at_most": round(seconds, 3), "bytes_at_most": nbytes, "bad_ones": bad[:20],
    }  # fmt: skip


def measure(*, count: int = 1000, seed: int = 1, kind: tuple[str, ...] = (), out: Path) -> Iterator[Found]:
    """Try the kinds that are named, or all; what is not tried again keeps its row."""

    def rows() -> Iterator[Found]:
        for name in kind or KINDS:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                yield pool.apply(tried, (name, count, seed))

    return grown(
        rows(), under="kinds", by="kind", out=out, order=KINDS, bad=lambda rows: sum(row["bad"] for row in rows)
    )


if __name__ == "__main__":
    run(measure, failed="bad", known={"kind": KINDS})
