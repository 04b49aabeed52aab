"""What the tests ask of some cases, asked of all of them, or of as many as there is time for.

    python benchmarks/at_length.py damaged [--times 2000] [--seed N] [--only WORD] [--out FILE]
    python benchmarks/at_length.py schedules [--right 10000] [--wrong 2000] [--out FILE]
    python benchmarks/at_length.py screen_claims [--out FILE]
    python benchmarks/at_length.py shifts [--out FILE] [NAME...]
    python benchmarks/at_length.py sound [--programs 100000] [--first SEED] [--out FILE]

`damaged`: plans of other systems, damaged: is each one read, or refused in one line? Every file of tests/data/plans is cut, and some of its bytes are changed
(`law_of_damage`, tests/plan_laws.py). The format is found by the content; a text of a dump of XLA is read with the others of its folder. Exit status 1 where a
file ended in anything but a document or one line.

`schedules` of a server with streams and counted pages: of the right ones, how many the judge of recordings accuses; of those with one fence, wait or count
left out, as many as an order of the device shows wrong bytes in (`tests/schedules.py`, which has no code of the judge), how many it finds.

`screen_claims`: what each screen of the judge claims, and that no read is stale where nothing overlaps, proved by z3 within larger bounds than the tests ask;
mutants refuted: CPU seconds of each. The formulas are those of `tests/screen_claims.py` and `tests/overlap_claims.py`. Exit status 1 where a claim does not
hold, or one of its mutants is refuted nowhere.

`shifts`: real plans with one slot moved onto a live neighbour, every slot in turn: how many the judge misses. The plans are the dumps of ggml in
`tests/data/ggml`, the law is that of `tests/laws/test_real_plans.py`. `missed` must be 0; exit status 1 where it is not.

`sound`: a hundred thousand sound programs with plans, beliefs and sessions, made without any planner (`tests/generation.py`, a thousand to a document): what
is in them, and what S, L, H and R and the verdict say against them. `accusations` must be 0; exit status 1 where it is not. `tests/power/test_sound.py` does
the same in every run of the tests; here any number can be judged, from any seed.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from harness import Found, cpu, grown, run_one_of

from allocsim import systems
from allocsim.model import Document

OTHER = (".md", ".mlir")
"""Endings of files that are no plans."""

LOT = 1000
"""Programs of a document."""


def damaged(*, times: int = 2000, seed: int = 0, only: str = "", out: Path) -> Iterator[Found]:
    """Damage and count; what was damaged before and is not asked for now keeps its row."""
    from plan_laws import PLANS

    files = {str(path.relative_to(PLANS)): path for path in sorted(PLANS.rglob("*")) if path.is_file()}
    rows = (
        {"file": name, "times": times, "seed": seed, **_damaged(path, seed, times)}
        for name, path in files.items()
        if path.suffix not in OTHER and only in name
    )
    odd = {"odd": lambda rows: [row["file"] for row in rows if "error" in row]}
    return grown(rows, under="rows", by="file", out=out, **odd)


def _damaged(path: Path, seed: int, times: int) -> Found:
    """Return how many damaged copies were read, and how many were refused; or what else one ended in."""
    try:
        return dict(zip(("read", "refused"), _law(path, seed, times), strict=True))
    except Exception as error:  # noqa: BLE001 - whatever else comes is what this looks for
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def _law(path: Path, seed: int, times: int) -> tuple[int, int]:
    from plan_laws import law_of_damage

    data = path.read_bytes()
    if path.parent.parent.name != "xla" or path.suffix == ".pb":
        loads = systems.FORMATS[systems.detect(data[: systems.HEAD])].loads
        return law_of_damage(data, loads, seed, times)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "dump"  # the texts of a dump are read together
        shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns("*.pb"))

        def load(changed: bytes, _source: str) -> Document:
            (folder / path.name).write_bytes(changed)
            return systems.load(folder)

        return law_of_damage(data, load, seed, times)


def schedules(*, right: int = 10_000, wrong: int = 2000) -> Found:
    """Judge both sorts."""
    from schedules import Schedule

    from allocsim.recordings import judge

    accused = [seed for seed in range(right) if judge(Schedule(seed).events).findings]
    shown, harmless, missed = Counter[str](), Counter[str](), []
    for seed in count():
        for without in range(len(Schedule(seed).kinds)):
            broken = Schedule(seed, without=without)
            kind = broken.kinds[without]
            found = bool(judge(broken.events).findings)
            if broken.shown() is None:
                harmless[f"{kind}, {'found' if found else 'not found'}"] += 1
            else:
                shown[kind] += 1
                missed += [[seed, without]] * (not found)
        if shown.total() >= wrong:
            break
    said = {"right": right, "accusations": accused, "wrong": dict(shown), "missed": missed}
    return {**said, "no_order_shows_it": dict(harmless)}


def screen_claims() -> Iterator[Found]:
    """Prove and refute."""
    from overlap_claims import OVERLAPS, holds_of_overlaps
    from screen_claims import LATE, MEETINGS, READS, holds_of_late, holds_of_meetings, holds_of_reads

    bounds = (
        (holds_of_meetings, MEETINGS, {"count": 5, "below": 8}),
        (holds_of_late, LATE, {"ops": 5, "count": 3}),
        (holds_of_reads, READS, {"ops": 3, "cells": 4}),
        (holds_of_reads, READS, {"ops": 2, "slots": 2, "runs": 1, "cells": 4}),
        (holds_of_reads, {}, {"ops": 4, "cells": 3, "same": False}),
        (holds_of_overlaps, OVERLAPS, {"ops": 3, "cells": 3}),
        (holds_of_overlaps, OVERLAPS, {"ops": 2, "slots": 2, "runs": 1, "cells": 4}),
        (holds_of_overlaps, OVERLAPS, {"ops": 4, "cells": 3, "same": False}),
        (holds_of_overlaps, {}, {"ops": 4, "cells": 3}),
        (holds_of_reads, {}, {"ops": 4, "values": 4, "buffers": 3, "runs": 1, "same": False}),
    )
    alive = {*MEETINGS, *LATE, *READS, *OVERLAPS}

    def asked() -> Iterator[Found]:
        for holds, mutants, within in bounds:
            for mutant in (None, *(each for each in mutants if each in alive)):
                took, held = cpu(lambda holds=holds, mutant=mutant, within=within: holds(mutant, **within))
                alive.difference_update(() if held else {mutant})
                row = {"claim": holds.__name__, **within, "mutant": mutant, "holds": held}
                yield {**row, "cpu_seconds": round(took, 1)}

    def failed(rows: list[Found]) -> list[Found]:
        return [row for row in rows if row["mutant"] is None and not row["holds"]]

    return grown(asked(), under="claims", **{"do not hold": failed, "refuted nowhere": lambda _: sorted(alive)})


def shifts(*names: str) -> Found:
    """Move and judge."""
    import test_real_plans as law

    def moved(name: str) -> Found:
        made = law.given(name)
        away = [step for step in law.sames(made) if law.apart(made, step)]
        return {
            "slots": int(made.plans[0].placed.sum()),
            "moved": len(law.shifts(name)),
            "missed": law.missed(name, law.shifts(name)),
            "same_dropped": len(away),
            "same_missed": [step for step in away if law.check(law.dropped(made, step)).clean],
        }

    seconds, plans = cpu(lambda: {name: moved(name) for name in names or law.NAMES})
    total = {
        key: sum(row[key] if isinstance(row[key], int) else len(row[key]) for row in plans.values())
        for key in ("moved", "missed", "same_dropped", "same_missed")
    }
    return {**total, "plans": plans, "cpu_seconds": round(seconds)}


def sound(*, programs: int = 100_000, first: int = 0) -> Found:
    """Make and judge them, a thousand for each seed from the first."""
    from generation import lot
    from power.accusations import accusations

    counts, seconds, accused = Counter[str](), Counter[str](), dict[int, list[str]]()
    for seed in range(first, first + -(-programs // LOT)):
        began = time.process_time()
        one = lot(seed, count=LOT, ops=4)
        made = time.process_time()
        said = accusations(one.document)
        seconds.update(making=made - began, judging=time.process_time() - made)
        counts.update(programs=one.programs, in_place=one.in_place, sessions=one.sessions, streams=one.streams)
        counts.update(ops=len(one.document.programs[0].ops), runs=one.programs * len(one.document.runs))
        if said:
            accused[seed] = said
            print(f"seed {seed}: {said[0]}")
    shares = {name: round(100 * counts[name] / counts["programs"], 1) for name in ("in_place", "sessions", "streams")}
    return {
        "programs": counts["programs"],
        "seeds": [first, first + counts["programs"] // LOT],
        **{name: counts[name] for name in ("ops", "runs")},
        **{f"{name}_percent": share for name, share in shares.items()},
        "accusations": sum(map(len, accused.values())),
        "cpu_seconds": {name: round(spent, 1) for name, spent in seconds.items()},
    }


FAILED = {
    "damaged": "odd",
    "schedules": ("accusations", "missed"),
    "screen_claims": ("do not hold", "refuted nowhere"),
    "shifts": ("missed", "same_missed"),
    "sound": "accusations",
}

if __name__ == "__main__":
    run_one_of(damaged, schedules, screen_claims, shifts, sound, failed=FAILED)
