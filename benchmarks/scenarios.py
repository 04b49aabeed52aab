"""The library of scenarios: processor time of the whole matrix, alone and with `--jobs 2`, and each scenario that has a full size at it.

    python benchmarks/scenarios.py [--parts matrix,full] [--out FILE]

`matrix`: `allocsim repro run --all --json`, every scenario and its twin at a small size, by one process and by two; the two must print the same.
`full`: each scenario of the engine, and of ggml where a library is there, by itself with `--full`, its twin too where it has one.

Seconds are processor time of the command with all processes that it started, peak memory that of the largest of them. Exit status 1 where a cell
differs, a scenario at full size is not as expected, or the matrix takes more than `AIM` seconds.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import Found, kept, run, took

from repro import scenarios

AIM: Final = 900
"""Processor seconds that the matrix may take."""

NAMED: Final = ("reports", "nothing", "not run")


def measure(*, parts: tuple[str, ...] = ("matrix", "full"), out: Path) -> Iterator[Found]:
    """Measure the parts that are named; another part keeps what was found."""
    found = kept(out) | {"unit": "CPU seconds of all processes, wall seconds, peak MiB of the largest process"}
    for part in parts:
        found[part] = {"matrix": matrix, "full": full}[part]()
        table = found.get("matrix", {"differs": 0, "jobs_agree": True, "alone": {"cpu": 0}})
        found["odd"] = [row["run"] for row in found.get("full", ()) if not row["as_expected"]]
        found["odd"] += ["matrix"] if table["differs"] or not table["jobs_agree"] or table["alone"]["cpu"] > AIM else []
        yield found


def matrix() -> dict[str, Any]:
    """Return the counts of the matrix and what it took by one process and by two."""
    alone, printed = command("repro", "run", "--all", "--json")
    print("matrix", alone, flush=True)
    shared, again = command("repro", "run", "--all", "--json", "--jobs", "2")
    print("matrix, two processes", shared, flush=True)
    rows = printed["matrix"]
    answers = Counter(answer for row in rows for answer in row["answers"].values())
    return {
        "aim": AIM,
        "scenarios": len({row["scenario"].split(" ")[0] for row in rows}),
        "rows": len(rows),
        "small_twins": sum(row["runtime"] == "small" for row in rows),
        "cells": sum(answers.values()),
        "answers": {word: answers[word] for word in NAMED},
        "classes": sorted({cause["class"] for row in rows for cause in row["causes"]}),
        "differs": sum(bool(row["differs"]) for row in rows),
        "skipped": len(printed.get("skipped", ())),
        "jobs_agree": rows == again["matrix"],
        "alone": alone,
        "two_processes": shared,
    }


def full() -> list[dict[str, Any]]:
    """Return a row for each scenario at full size."""
    asked = [
        *((name, *twin) for name in scenarios.MODULES for twin in ((), ("--fixed",))),
        *((name, "--runtime", "ggml") for name in scenarios.MODULES if scenarios.find(name).on_ggml is not None),
    ]
    rows = []
    for words in asked:
        took, printed = command("repro", "run", *words, "--full", "--json")
        as_expected = bool(printed.get("runs")) and all(one["matches"] for one in printed["runs"])
        rows.append({"run": " ".join(words), **took, "as_expected": as_expected})
        print(rows[-1], flush=True)
    return rows


def command(*words: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Run allocsim; return what it took and the document it printed, empty where there is none."""
    ran = took(sys.executable, "-m", "allocsim", *words)
    spent = {"cpu": round(ran["cpu"], 1), "wall": round(ran["wall"], 1)}
    spent |= {key: ran[key] for key in ("peak_mib", "status")}
    return spent, json.loads(ran["out"]) if ran["out"] else {}


if __name__ == "__main__":
    run(measure, failed="odd", known={"parts": ("matrix", "full")})
