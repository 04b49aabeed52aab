"""The file that costs most: of each kind of file that is read, what repeats and shares legal things until a promise is broken.

    python benchmarks/cost_search.py [--seconds CPU] [--seed S] [--kind NAME ...] [--out FILE] [--kept FILE] [--again]

`tests/growing.py` has the kinds, the steps and the search. The promise is 10 CPU seconds and 1 GiB for any file of up to 10 MB. The table has for each
kind how many files were tried in how many CPU seconds, the worst one, its size, its cost, and the steps that make it of the file that is named.

What cost much is kept as a recipe, one line for each file in `cost_recipes.jsonl`, and is measured anew before each search, so that a cause that was
mended is seen to be mended and does not come back: beside what it costs now a line has the most that it ever cost (`cpu_seconds_at_most`). With
`--again` nothing is searched. Exit status 1 where a file breaks the promise.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from growing import GROWN, Found, Recipe, line_of, recipe_of, search  # noqa: E402 - after the paths above

from allocsim.errors import AllocsimError  # noqa: E402
from allocsim.files import write_atomic  # noqa: E402

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
    kept[place] = {
        **told,
        "cpu_seconds_at_most": max(told["cpu_seconds"], kept.get(place, {}).get("cpu_seconds_at_most", 0)),
    }


def told_of(one: Found) -> dict[str, Any]:
    """Return what became of a file, in numbers."""
    cost = one.cost
    return {
        "answer": cost.answer,
        "nbytes": cost.nbytes,
        "cpu_seconds": round(cost.seconds, 2),
        "mebibytes": cost.memory >> 20,
    }


def main() -> int:
    """Search all kinds, print and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description="The file that costs most, of each kind.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(GROWN))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "cost_search.json")
    parser.add_argument("--kept", type=Path, default=HERE / "results" / "cost_recipes.jsonl")
    parser.add_argument("--again", action="store_true", help="measure what was kept, and search nothing")
    options = parser.parse_args()
    out, lines = options.out.absolute(), options.kept.absolute()
    rows = {row["kind"]: row for row in json.loads(out.read_text())["kinds"]} if out.exists() else {}
    kept: Kept = {}
    for line in lines.read_text().splitlines() if lines.exists() else ():
        kind, file, recipe, told = recipe_of(line)
        kept[kind, file, recipe] = told
    for name in options.kind or list(GROWN):
        try:
            row = searched(name, 0 if options.again else options.seconds, options.seed, kept)
        except AllocsimError as error:  # what reads this kind is not here: the proved checker is not built
            print(f"{name:18s} not searched: {error}", flush=True)
            continue
        worst = row["worst"]
        print(
            f"{name:18s} tried {row['tried']:5d}  kept {row['kept']:3d}  broken {row['broken']:3d}  worst {worst['nbytes']:9,d} B  "
            f"{worst['cpu_seconds']:6.2f} s  {worst['mebibytes']:5d} MiB  {worst['answer']}: {'; '.join(worst['steps'])}",
            flush=True,
        )
        if not options.again:
            rows[name] = row
            write_atomic(out, json.dumps({"kinds": [rows[k] for k in GROWN if k in rows]}, indent=1).encode() + b"\n")
        order = sorted(kept.items(), key=lambda item: (list(GROWN).index(item[0][0]), -item[1]["cpu_seconds_at_most"]))
        write_atomic(lines, "".join(line_of(*place, **told) + "\n" for place, told in order).encode())
    broken = any(
        told["cpu_seconds"] > 10 or told["mebibytes"] >= 1024 or told["answer"] == "bad" for told in kept.values()
    )
    return int(broken or (not options.again and any(row["broken"] for row in rows.values())))


if __name__ == "__main__":
    sys.exit(main())
