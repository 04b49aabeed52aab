"""Whole runs: the models of `examples/`, the library of scenarios, and passes from many threads.

    python benchmarks/whole_runs.py own_models [--steps N] [--planners NAME,...] [--seconds S] [--out FILE]
    python benchmarks/whole_runs.py scenarios [--parts matrix,full] [--out FILE]
    python benchmarks/whole_runs.py threads [--passes N] [--threads N] [--planners NAME,...] [--seconds S] [--out FILE]

`own_models`: the five models of `examples/` under every planner of the shelf, and with each of six planted faults: which verdict, which party, which cure.
Each model is diagnosed as `allocsim diagnose examples.NAME:CASE --allocator PLANNER` does it. A row is `clean` where nothing wrong was found; a fault is
`convicted` where the verdict names its class and party and nothing else, `cured` where a cure was found and run. Rows that are in FILE are not made again,
and it is written after each; `wrong` names every row that is not as it must be, with what was said.

`scenarios`: the library of scenarios: processor time of the whole matrix, alone and with `--jobs 2`, and each scenario that has a full size at it. `matrix`:
`allocsim repro run --all --json`, every scenario and its twin at a small size, by one process and by two; the two must print the same. `full`: each scenario
of the engine, and of ggml where a library is there, by itself with `--full`, its twin too where it has one. Seconds are processor time of the command with
all processes that it started, peak memory that of the largest of them. Exit status 1 where a cell differs, a scenario at full size is not as expected, or the
matrix takes more than `AIM` seconds.

`threads`: backward passes from eight threads by every planner of the shelf: every gradient against the bits of a serial run; what is judged, and when. Each
of the threads makes `--passes` passes over six small structures with data of their own, and the interpreter switches as often as it can. `wrong` is the
number of passes with another bit. `judged` counts plans that were judged: once for each structure and planner, however often it runs (`kept` passes judge
nothing), so the price of judging in a kept pass is zero. `judging` is the CPU time of judging a structure over that of one kept pass of it. Planners that are
done are not run again; the file is written after each.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness import RESULTS, Found, kept, run_one_of, took, until

import numpy as np
from planted_models import EXAMPLES, FAULTS, case, options_of, planted

import engine
from allocsim.allocators import ALLOCATORS
from allocsim.judge.fast import check
from engine import tensor
from engine.front import functions as fn
from engine.runtime import entrance
from repro import run as whole_runs
from repro import scenarios as library
from repro.options import EngineOptions


def row_of(name: str, what: str, options: EngineOptions) -> Found:
    """Diagnose one model with a fault, or under a planner."""
    if what in FAULTS:
        result = whole_runs.run(planted(name, what, options), options_of(what, options))
        good = {"convicted": result.matches, "cured": result.evidence.cure is not None}
    else:
        result = whole_runs.run(case(name), replace(options, allocator=what))
        good = {"clean": result.verdict.sound}
    return {**good, **({} if all(good.values()) else {"said": result.verdict.text})}


def own_models(
    *,
    steps: int = 2,
    planners: tuple[str, ...] = tuple(ALLOCATORS),
    seconds: float = float("inf"),
    out: Path = RESULTS / "own_models.json",
) -> Iterator[Found]:
    """Make the rows that are missing in `out`; begin none after so many seconds."""
    found = kept(out)
    rows = found.get("rows", {}) if found.get("steps") == steps else {}
    asked = {f"{name}, {what}": (name, what) for what in (*FAULTS, *planners) for name in EXAMPLES}
    left = [key for key in asked if key not in rows]
    for key in until(seconds, left):
        rows[key] = row_of(*asked[key], EngineOptions(steps=steps))
        print(key, rows[key], flush=True)
        yield told(steps, rows)
    if not left:
        yield told(steps, rows)


def told(steps: int, rows: dict[str, Found]) -> Found:
    """Return the rows, how many are as they must be, and those that are not."""
    counts = {sort: sum(bool(one.get(sort)) for one in rows.values()) for sort in ("clean", "convicted", "cured")}
    wrong = {key: one for key, one in rows.items() if "said" in one}
    return {"steps": steps, **counts, "made": len(rows), "wrong": wrong, "rows": rows}


AIM: Final = 900
"""Processor seconds that the matrix may take."""
NAMED: Final = ("reports", "nothing", "not run")


def scenarios(*, parts: tuple[str, ...] = ("matrix", "full"), out: Path) -> Iterator[Found]:
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
        *((name, *twin) for name in library.MODULES for twin in ((), ("--fixed",))),
        *((name, "--runtime", "ggml") for name in library.MODULES if library.find(name).on_ggml is not None),
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


STRUCTURES = (
    lambda x, w: ((x * w).tanh() * x + w.exp()).sum(),
    lambda x, w: ((x @ w.T).relu() @ w).sum(),
    lambda x, w: ((x.T * w.T).softmax() ** 2).sum(),
    lambda x, w: fn.cross_entropy(x @ w.T, [0, 1, 2, 0]),
    lambda x, w: ((x[1:] * w[:-1]).exp() / (1 + x[:1].exp())).sum(),
    lambda x, w: fn.layer_norm(x.T.reshape(4, 4)).sigmoid().sum() * w.sum(),
)
DIFFERENT = 16
"""Different data of each structure."""


def gradients(number: int, allocator: str) -> bytes:
    """Make one pass over structure `number`, with its data, and return the bits of its gradients."""
    generator = np.random.default_rng(number)
    x, w = (tensor(generator.standard_normal((4, 4)).astype(np.float32), requires_grad=True) for _ in range(2))
    STRUCTURES[number % len(STRUCTURES)](x, w).backward(allocator=allocator)
    return b"".join(t.grad.numpy().tobytes() for t in (x, w) if t.grad is not None)


def campaign(allocator: str, threads: int, passes: int) -> dict[str, float]:
    """Run the passes by one planner and return its figures."""
    judged: list[float] = []

    def counted(document: object, **how: object) -> object:
        began = time.thread_time()
        report = check(document, **how)  # type: ignore[arg-type]
        judged.append(time.thread_time() - began)
        return report

    entrance.check = counted  # type: ignore[assignment]
    entrance._known.clear()  # noqa: SLF001 - so that each structure is judged here
    engine.clear()
    kinds = len(STRUCTURES) * DIFFERENT
    wanted = [gradients(number, allocator) for number in range(kinds)]
    began = time.thread_time()
    again = [gradients(number, allocator) for number in range(kinds)]
    kept = (time.thread_time() - began) / kinds
    serial = len(judged)

    def work(thread: int) -> int:
        return sum(gradients((thread + n) % kinds, allocator) != wanted[(thread + n) % kinds] for n in range(passes))

    before, cpu = sys.getswitchinterval(), time.process_time()
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(threads) as pool:
        wrong = sum(pool.map(work, range(threads)))
    sys.setswitchinterval(before)
    entrance.check = check
    return {
        "passes": threads * passes,
        "wrong": wrong + sum(a != b for a, b in zip(wanted, again, strict=True)),
        "judged": serial,
        "judged_by_threads": len(judged) - serial,
        "judging": round(sum(judged[:serial]) / serial / kept, 2),
        "kept_bytes": engine.kept_bytes(),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def threads(
    *, passes: int = 10_000, threads: int = 8, planners: tuple[str, ...] = (), seconds: float = float("inf"), out: Path
) -> Iterator[Found]:
    """Run what is not done yet; no planner is begun after so many seconds."""
    size = {"threads": threads, "passes_of_each": passes}
    done = kept(out)
    found = done["planners"] if {key: done.get(key) for key in size} == size else {}
    for name in until(seconds, [name for name in planners or ALLOCATORS if name not in found]):
        found[name] = campaign(name, threads, passes)
        print(name, found[name], flush=True)
        yield {**size, "planners": found, "wrong": sum(row["wrong"] for row in found.values())}


if __name__ == "__main__":
    run_one_of(
        own_models,
        scenarios,
        threads,
        failed={"own_models": "wrong", "scenarios": "odd", "threads": "wrong"},
        known={"scenarios": {"parts": ("matrix", "full")}, "threads": {"planners": ALLOCATORS}},
    )
