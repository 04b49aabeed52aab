"""The file that costs most: of each kind of file that is read, what repeats and shares legal things until a promise is broken.

    python benchmarks/cost_search.py [--seconds CPU] [--seed S] [--kind NAME,...] [--out FILE] [--kept FILE] [--again]

`tests/growing.py` has the kinds, the steps and the search. The promise is 10 CPU seconds and 1 GiB for any file of up to 10 MB. The table has for each
kind how many files were tried in how many CPU seconds, the worst one, its size, its cost, and the steps that make it of the file that is named.

What cost much is kept as a recipe, one line for each file in `cost_recipes.jsonl`, and is measured anew before each search, so that a cause that was
mended is seen to be mended and does not come back: beside what it costs now a line has the most that it ever cost (`cpu_seconds_at_most`). With
`--again` nothing is searched. Exit status 1 where a file breaks the promise.
"""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
from harness import RESULTS, run

from growing import GROWN, Found, Recipe, line_of, recipe_of, search

from allocsim.errors import AllocsimError
from allocsim.files import write_atomic

KEPT = 3
"""Of each search the files that are kept at most, of those that take more than `SHARE` of what is promised."""
SHARE = 0.4

Kept = dict[tuple[str, int, Recipe], dict[str, Any]]
"""(kind, file, recipe) -> what it cost."""


def searched(name: str, seconds: float, seed: int, kept: Kept) -> dict[str, Any]:
    """Return the row of one kind; what was kept of it is measured anew, and what is found kept."""
    mine = [(file, recipe) for kind, file, recipe in kept if kind == name]
    with tempfile.TemporaryDirectory() as folder:
        found, again = search(GROWN[name], Path(folder), seconds, random.Random(f"{name} {seed}"), kept=mine)  # noqa: S311 - a search, no secret
    for one in again:
        keep(kept, name, one)
    fresh = [one for one in found if one.recipe and not any(one is old for old in again)]
    for one in fresh[:KEPT]:
        if one.cost.share > SHARE or one.cost.answer == "bad":
            keep(kept, name, one)
    worst = found[0]
    return {
        "kind": name, "seed": seed, "seconds_searched": seconds, "tried": len(found) - len(again), "kept": len(again),
        "broken": sum(one.cost.share > 1 or one.cost.answer == "bad" for one in found),
        "worst": {"file": worst.seed, "steps": [str(step) for step in worst.recipe], **told_of(worst)},
    }  # fmt: skip


def keep(kept: Kept, name: str, one: Found) -> None:
    """Note what a file costs now, beside the most that it ever cost."""
    place = name, one.seed, one.recipe
    told = told_of(one)
    most = max(told["cpu_seconds"], kept.get(place, {}).get("cpu_seconds_at_most", 0))
    kept[place] = {**told, "cpu_seconds_at_most": most}


def told_of(one: Found) -> dict[str, Any]:
    """Return what became of a file, in numbers."""
    cost = one.cost
    said = {"answer": cost.answer, "nbytes": cost.nbytes}
    return {**said, "cpu_seconds": round(cost.seconds, 2), "mebibytes": cost.memory >> 20}


def measure(
    *,
    seconds: float = 60.0,
    seed: int = 1,
    kind: tuple[str, ...] = tuple(GROWN),
    kept: str = str(RESULTS / "cost_recipes.jsonl"),
    again: bool = False,
    out: Path,
) -> Iterator[harness.Found]:
    """Search the kinds; `again`: measure what was kept, and search nothing."""
    lines, rows = Path(kept).absolute(), {row["kind"]: row for row in harness.kept(out).get("kinds", ())}
    known: Kept = {}
    for line in lines.read_text().splitlines() if lines.exists() else ():
        name, file, recipe, told = recipe_of(line)
        known[name, file, recipe] = told
    for name in kind:
        try:
            row = searched(name, 0 if again else seconds, seed, known)
        except AllocsimError as error:  # what reads this kind is not here: the proved checker is not built
            print(f"{name:18s} not searched: {error}", flush=True)
            continue
        print(row, flush=True)
        rows |= {} if again else {name: row}
        order = sorted(known.items(), key=lambda item: (list(GROWN).index(item[0][0]), -item[1]["cpu_seconds_at_most"]))
        write_atomic(lines, "".join(line_of(*place, **told) + "\n" for place, told in order).encode())
        broken = [place[0] for place, told in known.items() if breaks(told)]
        broken += [row["kind"] for row in rows.values() if row["broken"] and not again]
        yield {"kinds": [rows[name] for name in GROWN if name in rows], "broken": broken}


def breaks(told: dict[str, Any]) -> bool:
    """Return whether a file that was measured breaks the promise."""
    return bool(told["cpu_seconds"] > 10 or told["mebibytes"] >= 1024 or told["answer"] == "bad")


if __name__ == "__main__":
    run(measure, failed="broken", known={"kind": GROWN})
