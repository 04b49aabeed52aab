"""Mutants of every kind of file that is read: each read, or refused in one line.

    python benchmarks/self_fuzz.py [--count N] [--seed S] [--kind NAME ...] [--out FILE]

`tests/hostile.py` has the kinds, the changes and what counts as bad. Each kind runs in a process of its own, whose peak of memory is its own.
The table says how many mutants were tried, refused and read, how many were bad, and the most CPU seconds and bytes that one took. Bad ones
are kept beside the output, with the seed that makes them. Exit status 1 where there is one.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from hostile import KINDS, mutants  # noqa: E402 - after the paths above

from allocsim.files import write_atomic  # noqa: E402


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


def _before(out: Path) -> dict[str, dict[str, Any]]:
    """Return by kind the rows of what was tried before."""
    return {row["kind"]: row for row in json.loads(out.read_text())["kinds"]} if out.exists() else {}


def main() -> int:
    """Try all kinds, print and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Mutants of every kind of file.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "self_fuzz.json")
    options = parser.parse_args()
    wanted = options.kind or list(KINDS)
    rows = _before(options.out)
    for name in wanted:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(tried, (name, options.count, options.seed))
        rows[name] = row  # what was not tried again keeps its row
        print(
            f"{name:18s} tried {row['tried']:6d}  refused {row['refused']:6d}  read {row['read']:6d}  bad {row['bad']:3d}  "
            f"at most {row['seconds_at_most']:6.2f} s, {row['bytes_at_most'] / 2**20:7.1f} MiB",
            flush=True,
        )
        for one in row["bad_ones"][:5]:
            print(f"    {one['number']}: {one['words']}", flush=True)
        about = {"kinds": [rows[kind] for kind in KINDS if kind in rows]}
        write_atomic(options.out, json.dumps(about, indent=1).encode() + b"\n")
    return int(any(row["bad"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
