"""Every judge on many random documents: the columns without a screen and with all of them, the plain judge, and the oracle of version 2.

    python benchmarks/judges.py [--all LOW:HIGH] [--screens LOW:HIGH] [--out FILE]

Documents of version 2 are those of `tests/oracle2/generate.py`, one for each seed; to each piece of them a hundredth is drawn from `tests/strategies.py`: version 1, plans
with faults, wrong beliefs, events, stale plans. Each is judged by the columns with no screen and with all of them forced on, which must be one report, word for word; with
`--all` by the plain judge too (every field of every record but its words, order, counts, sizes), and those of version 2 by the oracle of `tests/oracle2` (what it knows of a
record, and the sizes). Each piece is added to the results as soon as it is done, joined with the one before it, so a campaign goes on where it stopped; a seed is counted once.
`differences` must be 0; exit status 1 where it is not. What was compared before, of earlier versions of the judges, stands under `earlier` in FILE and is kept.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

import agreement_2  # noqa: E402 - after the paths above
import strategies  # noqa: E402 - as above
from agreement_plain import compare, forced, whole  # noqa: E402 - as above
from oracle2.features import FEATURES, features  # noqa: E402 - as above
from oracle2.generate import generate  # noqa: E402 - as above

from allocsim import document as native  # noqa: E402 - as above
from allocsim.files import write_atomic  # noqa: E402 - as above
from allocsim.judge.fast import check  # noqa: E402 - as above

PIECE = 200
FAULTY = st.one_of(strategies.documents(), strategies.documents(sound=True), strategies.instances())


def differing(written: Any, options: dict[str, Any], judges: str, *, oracle: bool) -> list[str]:
    """Return which judges differ from the columns without a screen on a document, as parsed JSON; a crash is a difference."""
    try:
        document = native.loads(json.dumps(written))
        report = check(document, plain=True, **options)
        found = ["screens"] * (whole(forced(document, **options)) != whole(report))
        if judges == "all":
            found += ["plain"] * bool(compare(written, report=report, **options))
            found += ["oracle"] * bool(oracle and agreement_2.differences(written, report, options))
    except Exception as error:  # noqa: BLE001 - as said
        return [f"{type(error).__name__}: {error}"]
    return found


def piece(low: int, high: int, judges: str) -> dict[str, Any]:
    """Judge the documents of a range of seeds, and count them."""
    began, counts, wrong = time.process_time(), Counter[str](), dict[str, list[str]]()

    def note(name: str, found: list[str]) -> None:
        if found:
            wrong[name] = found
            print(name, found, flush=True)

    for number in range(low, high):
        written = generate(number)
        note(f"seed {number}", differing(written, agreement_2.asked(number), judges, oracle=True))
        counts.update(version_2=1)
        counts.update(FEATURES & features(written))

    @seed(low)
    @settings(
        max_examples=max((high - low) // 100, 1),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(FAULTY)
    def drawn(document: Any) -> None:
        counts.update(version_1=1)
        note(
            f"drawn {counts['version_1']} of {low}",
            differing(json.loads(native.dumps(document)), {}, judges, oracle=False),
        )

    drawn()
    return {"counts": dict(counts), "differing": wrong, "cpu_seconds": round(time.process_time() - began, 1)}


def summary(pieces: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of all pieces together."""
    counts, by = Counter[str](), Counter[str]()
    for name, one in pieces.items():
        counts.update(one["counts"])
        by[name.split()[0]] += one["counts"]["version_2"]
    whole = {name: counts.pop(name, 0) for name in ("version_2", "version_1")}
    return {
        **whole,
        "by_all_judges": by["all"],
        "differences": sum(len(one["differing"]) for one in pieces.values()),
        "cpu_seconds": round(sum(one["cpu_seconds"] for one in pieces.values())),
        "features": dict(sorted(counts.items())),
    }


def span(text: str) -> tuple[int, int]:
    """Return a half-open range as `LOW:HIGH` says it."""
    low, _, high = text.partition(":")
    return int(low), int(high)


def joined(pieces: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pieces with those as one that follow each other, by the same judges."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(pieces, key=lambda name: (name.split()[0], span(name.split()[1]))):
        judges, (low, high), one = name.split()[0], span(name.split()[1]), pieces[name]
        before = next(
            (name for name in found if name.startswith(f"{judges} ") and span(name.split()[1])[1] == low), None
        )
        if before is None:
            found[f"{judges} {low}:{high}"] = one
            continue
        other = found.pop(before)
        found[f"{judges} {span(before.split()[1])[0]}:{high}"] = {
            "counts": dict(Counter(other["counts"]) + Counter(one["counts"])),
            "differing": {**other["differing"], **one["differing"]},
            "cpu_seconds": round(other["cpu_seconds"] + one["cpu_seconds"], 1),
        }
    return found


def main() -> int:
    """Judge what is asked for and not yet there; return the exit status."""
    parser = argparse.ArgumentParser(description="Random documents, judged by every judge.")
    for name in ("all", "screens"):
        parser.add_argument(f"--{name}", type=span, default=(0, 0), metavar="LOW:HIGH")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "judges.json")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    done = kept.setdefault("pieces", {})
    for judges in ("all", "screens"):
        low, high = getattr(options, judges)
        for first in range(low, high, PIECE):
            last = min(first + PIECE, high)
            if not any(low <= first and last <= high for low, high in map(span, (name.split()[1] for name in done))):
                done[f"{judges} {first}:{last}"] = piece(first, last, judges)
                done = joined(done)
                kept = {"summary": summary(done), "earlier": kept.get("earlier", {}), "pieces": done}
                write_atomic(options.out, json.dumps(kept, indent=1).encode() + b"\n")
    print(json.dumps(whole := summary(done), indent=1))
    return int(bool(whole["differences"]))


if __name__ == "__main__":
    sys.exit(main())
