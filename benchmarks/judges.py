"""Every judge on many random documents: the columns without a screen and with all of them, the plain judge, and the oracle of version 2.

    python benchmarks/judges.py [--all LOW:HIGH] [--screens LOW:HIGH] [--out FILE]

Documents of version 2 are those of `tests/oracle2/generate.py`, one for each seed; to each piece of them a hundredth is drawn from `tests/strategies.py`: version 1, plans
with faults, wrong beliefs, events, stale plans. Each is judged by the columns with no screen and with all of them forced on, which must be one report, word for word; with
`--all` by the plain judge too (every field of every record but its words, order, counts, sizes), and those of version 2 by the oracle of `tests/oracle2` (what it knows of a
record, and the sizes). Each piece is added to the results as soon as it is done, joined with the one before it, so a campaign goes on where it stopped; a seed is counted once.
`differences` must be 0; exit status 1 where it is not. What was compared before, of earlier versions of the judges, stands under `earlier` in FILE and is kept.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Found, kept, run

import agreement_2
import strategies
from agreement_plain import compare, forced, whole
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from oracle2.features import FEATURES, features
from oracle2.generate import generate

from allocsim import document as native
from allocsim.judge.fast import check

PIECE = 200
QUIET = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
"""How documents are drawn by a campaign: all that are asked for, whatever comes."""
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
    @settings(QUIET, max_examples=max((high - low) // 100, 1))
    @given(FAULTY)
    def drawn(document: Any) -> None:
        counts.update(version_1=1)
        found = differing(json.loads(native.dumps(document)), {}, judges, oracle=False)
        note(f"drawn {counts['version_1']} of {low}", found)

    drawn()
    return {"counts": dict(counts), "differing": wrong, "cpu_seconds": round(time.process_time() - began, 1)}


def summary(pieces: dict[str, dict[str, Any]], earlier: Any) -> Found:
    """Return the counts of all pieces together, and the pieces."""
    counts, by = Counter[str](), Counter[str]()
    for name, one in pieces.items():
        counts.update(one["counts"])
        by[name.split()[0]] += one["counts"]["version_2"]
    whole = {name: counts.pop(name, 0) for name in ("version_2", "version_1")}
    differences = sum(len(one["differing"]) for one in pieces.values())
    seconds = round(sum(one["cpu_seconds"] for one in pieces.values()))
    about = {**whole, "by_all_judges": by["all"], "differences": differences, "cpu_seconds": seconds}
    found = {**about, "features": dict(sorted(counts.items()))}
    return {"differences": differences, "summary": found, "earlier": earlier, "pieces": pieces}


def spanned(name: str) -> tuple[str, int, int]:
    """Return the judges of a piece and its half-open range."""
    judges, low, high = name.replace(":", " ").split()
    return judges, int(low), int(high)


def joined(pieces: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pieces with those as one that follow each other, by the same judges."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(pieces, key=spanned):
        (judges, low, high), one = spanned(name), pieces[name]
        before = next((name for name in found if spanned(name)[::2] == (judges, low)), None)
        if before is not None:
            other, low = found.pop(before), spanned(before)[1]
            one = {
                "counts": dict(Counter(other["counts"]) + Counter(one["counts"])),
                "differing": {**other["differing"], **one["differing"]},
                "cpu_seconds": round(other["cpu_seconds"] + one["cpu_seconds"], 1),
            }
        found[f"{judges} {low}:{high}"] = one
    return found


def measure(*, all: tuple[int, ...] = (0, 0), screens: tuple[int, ...] = (0, 0), out: Path) -> Iterator[Found]:  # noqa: A002 - as it is asked
    """Judge what is asked for and not yet there."""
    before = kept(out)
    done, earlier = before.get("pieces", {}), before.get("earlier", {})
    for judges, (begin, end) in {"all": all, "screens": screens}.items():
        for low in range(begin, end, PIECE):
            high = min(low + PIECE, end)
            if not any(first <= low and high <= last for _, first, last in map(spanned, done)):
                done = joined({**done, f"{judges} {low}:{high}": piece(low, high, judges)})
                yield summary(done, earlier)
    yield summary(done, earlier)


if __name__ == "__main__":
    run(measure, failed="differences")
