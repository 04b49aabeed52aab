"""The judges, the screens, the verdict, the cure, the sentences, the sanitizer, the fuzzer's properties and the gate with one line changed at a time: does a test fail?

    python benchmarks/judge_mutants.py [--part verdict,cure] [--each 8] [--seed 1] [--seconds 3] [--minutes 30] [--files naming.py] [--again] [--known] [--tests FILE,...] [--out FILE]

`judge_sites.py` says what is changed, in which modules of which parts. The tests of the parts asked for are collected once, with laws cut to `EXAMPLES` examples; `judge_reach.py` finds
which lines each runs, at what cost. Each mutant is then tried in a process parted from there: the tests that run the changed lines are asked until one
fails, those first that have failed most for their time, for `--seconds` of processor time in all. It is *killed* by a failing test or a crash, *endless* if it ends neither by
`ENDLESS` seconds nor by a failure, *not run* if no test runs the line in a process that can be changed, else it *survived*: the tests are then to be bettered, or
`judge_explained.tsv` says why nothing can tell it from the source.

Of each module `--each` sites are drawn by seed, without replacement; a larger `--each` of the same seed takes up the smaller. The results are kept after
every mutant, as JSON and, beside it, as a page; run again, it goes on where it stopped, and with `--again` first tries those once more that no test killed and
nothing explains: with more `--seconds`, or after the tests were bettered (with `--each 0` those alone). With `--tests`, only these are asked, and what they do not kill is not written down: others
may. With `--known`, a test whose modules changed is not traced again: it is taken to run all lines of these. Exit status 1 where a survivor of a part that was asked for is not explained.
"""

import contextlib
import csv
import gc
import importlib
import os
import random
import resource
import select
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness import HERE, Found, kept, run, spent
from harness import write as write_results

import pytest
from hypothesis import HealthCheck, Phase, settings
from judge_reach import Reach
from judge_sites import PARTS, ROOT, Mutant, change, functions, modules, mutants, mutated

from allocsim.errors import EngineError

EXPLAINED: Final = {
    (row[0], row[1], row[2]): row[3]
    for row in csv.reader((HERE / "judge_explained.tsv").open(encoding="utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE)
}
"""(Path of the module, source line, change) -> why nothing can tell it from the source: it is that in other words, or changes only how fast it is."""

ENDLESS: Final = 30
"""Seconds, of processor time or four times as many by the clock, after which a mutant is ended."""
EXAMPLES: Final = 15
"""Of each law."""
SETTINGS: Final = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps them on a test."""
NBYTES: Final = 8 << 30
"""Of address space, which a mutant may not exceed."""
LAWS: Final = (
    *("batches", "causes", "cheapest", "checks", "company", "cuts", "oracle2", "order"),
    *("plain", "promises", "screens", "several", "verdict", "version_2"),
)
TESTS: Final = {
    "judging": (
        *(f"tests/unit/{name}" for name in ("judge", "verdict", "cure")),
        "tests/sensitivity/test_planted_faults.py",
        "tests/golden/test_verdicts.py",
        "tests/golden/test_outcomes.py",
        *(f"tests/laws/test_{name}.py" for name in LAWS),
    ),
    "sanitizer": (
        "tests/unit/p_sanitizer",
        "tests/unit/engine/test_p_sanitizer.py",
        "tests/laws/test_sanitizer.py",
    ),
    "properties": (
        "tests/unit/reduction",
        *(f"tests/unit/fuzzing/test_{name}.py" for name in ("properties", "examination", "mutants", "cases")),
    ),
    "gate": ("tests/unit/files",),
    "replay": ("tests/unit/opaque", "tests/laws/test_opaque.py"),
}
"""Part -> the tests that are asked; parts that are not here have those of `judging`."""
COMPILED: Final = tuple(f"allocsim/p_sanitizer/{name}.py" for name in ("compiled_executor", "crashes", "row_actions"))
"""Modules of whose functions numba makes code, whose lines are never seen to run, and which it keeps."""
OWN: Final = {
    "allocsim/judge/fast": (
        "tests/unit/judge/",
        "tests/sensitivity/",
        "tests/laws/test_checks",
        "tests/laws/test_version_2",
    ),
    "allocsim/judge/plain": ("tests/laws/test_plain",),
    "allocsim/diagnostics": ("tests/unit/judge/test_report", "tests/golden/", "tests/laws/test_checks"),
    "allocsim/judge/fast/screens": (
        "tests/unit/judge/test_screens",
        "tests/laws/test_screens",
        "tests/laws/test_batches",
    ),
    "allocsim/p_sanitizer": ("tests/unit/p_sanitizer/", "tests/laws/test_sanitizer", "tests/unit/engine/"),
}
"""Folder -> the tests that are about it, where that is not only the folder of its name in `tests/unit`."""
UNRUN: Final = frozenset({"survived", "not run"})


class Trials:
    """A plugin of pytest: where it would run the tests that it has collected, each mutant is tried in a process of its own."""

    def __init__(self, body: Callable[["Trials"], None], seconds: float, *, anew: bool) -> None:
        self.body, self.seconds, self.anew, self.items, self.failed = body, seconds, anew, {}, ""
        self.kills: Counter[tuple[str, str]] = Counter()
        self.reach, self.loaded = Reach({}), {}

    def pytest_runtestloop(self, session: Any) -> bool:
        """Do what is to be done with the tests collected, and run none here."""
        self.items = {item.nodeid: item for item in session.items}
        files = [str(ROOT / path) for part in PARTS for path in modules(part)]
        _in_few_examples(session.items)
        self.reach = Reach.of(session.items, files, self._passes, ROOT / "out" / "judge_reach.jsonl", anew=self.anew)
        for file in files:
            with contextlib.suppress(ImportError):
                importlib.import_module(str(Path(file).relative_to(ROOT).with_suffix("")).replace("/", "."))
        self.loaded = functions(files)
        gc.collect()
        gc.freeze()
        self.body(self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember a failure."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def asked(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the changed lines, those first that are likeliest to fail for their time."""
        file = str(ROOT / mutant.path)
        compiled = mutant.path in COMPILED
        found = self.reach.using(file) if compiled else self.reach.asked(file, mutant.line, mutant.last)
        folder = mutant.path.rpartition("/")[0]
        own = OWN.get(folder, (f"tests/unit/{folder.removeprefix('allocsim/')}/",))

        def rank(test: str) -> tuple[float, str]:
            likely = 1 + 9 * test.startswith(own) + 3 * self.kills[folder, test]
            return (self.reach.tests[test][0] + 0.01) / likely, test

        return sorted(found, key=rank)

    def outcome(self, mutant: Mutant) -> tuple[str, str, int]:
        """Return what became of a mutant, the first test that failed, and how many were to be asked."""
        asked = self.asked(mutant)
        if not asked:
            return "not run", "", 0
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._try(mutant, asked, writing)
        os.close(writing)
        said = ""
        if select.select([reading], [], [], 4 * ENDLESS)[0]:
            with os.fdopen(reading) as pipe:
                said = pipe.read()
        else:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) not in {signal.SIGXCPU, signal.SIGKILL}:
            said = "a crash of the process"
        if said in {"", "survived", "not changed"}:
            return said or "endless", "", len(asked)
        self.kills[mutant.path.rpartition("/")[0], said] += 1
        return "killed", said, len(asked)

    def _try(self, mutant: Mutant, asked: list[str], writing: int) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(ENDLESS + self.seconds), int(ENDLESS + self.seconds) + 5))
        resource.setrlimit(resource.RLIMIT_AS, (NBYTES, NBYTES))
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        said = "not changed"
        with contextlib.suppress(BaseException):
            if mutant.path in COMPILED:
                _compile_anew()
            if change(mutant, self.loaded[str(ROOT / mutant.path)]):
                said = self._first_failure(asked) or "survived"
        os.write(writing, said.encode())
        os._exit(0)

    def _first_failure(self, asked: list[str]) -> str:
        limit = spent() + self.seconds
        for test in asked:
            if not self._passes(self.items[test]):
                return test
            if spent() > limit:
                return ""
        return ""

    def _passes(self, item: Any) -> bool:
        self.failed = ""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed


def _compile_anew() -> None:
    """Let numba take nothing from disk: what is kept there is known by its instructions, and a mutant may differ in a number."""
    from numba.core import caching

    caching.FunctionCache.load_overload = lambda *_: None  # type: ignore[method-assign]
    caching.FunctionCache.save_overload = lambda *_: None  # type: ignore[method-assign]


def _screens_as_written() -> None:
    """Let the screens run as they are written, before any is loaded: numba's code shows no lines, and takes seconds to make."""
    compiling = importlib.import_module("allocsim.judge.fast.screens.compiling")
    compiling.compiled = lambda function: function  # type: ignore[attr-defined]


def _in_few_examples(items: list[Any]) -> None:
    """Let each law draw a few examples."""
    for item in items:
        law = getattr(item, "obj", None)
        law = getattr(law, "__func__", law)
        own = getattr(law, SETTINGS, None)
        if own is not None:
            setattr(law, SETTINGS, settings(own, max_examples=min(own.max_examples, EXAMPLES)))


def drawn(parts: tuple[str, ...], each: int, seed: int, files: tuple[str, ...]) -> list[tuple[str, Mutant]]:
    """Return as many mutants of each module as asked for, each with its part, module by module in turn."""
    paths = [(part, path) for part in parts for path in modules(part) if not files or Path(path).name in files]
    shuffled = []
    for part, path in paths:
        rows = mutants(path)
        shuffled.append([(part, row) for row in random.Random(f"{seed} {path}").sample(rows, len(rows))])  # noqa: S311
    return [rows[turn] for turn in range(each) for rows in shuffled if turn < len(rows)]


def page(record: dict[str, Any]) -> str:
    """Return the results as a page: how many of each module, and each survivor with its reason."""
    lines = [
        "# The judge with one line changed at a time",
        "",
        "Written by `benchmarks/judge_mutants.py`; how it is done is said in its header. `sites` is how",
        "many places could be changed in that way, a seeded sample of which was tried, module by module.",
        "`survived`: none of the tests that were asked in the seconds given failed, or no test runs the line.",
        "Where only tests that were named were asked (`--tests`: all of the screens so far), kills alone are",
        "written down: what these tests left alive is not among the tried.",
        "",
        "| module | sites | tried | killed | endless | survived | of these explained |",
        "|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for part, sites in record["sites"].items():
        sums: Counter[str] = Counter()
        own = []
        for path, count in sites.items():
            counts = _counted([row for row in record["rows"] if row["path"] == path]) + Counter(sites=count)
            sums += counts
            own.append(_line(path.removeprefix("allocsim/"), counts))
        lines += [_line(f"**{part}**", sums), *own]
        total += sums
    lines += [_line("**all**", total), "", "## Survivors", ""]
    lines += ["| module | line | change | tests that run it | why |", "|---|---|---|---|---|"]
    for row in sorted(record["rows"], key=lambda row: (row["path"], row["line"], row["place"])):
        if row["outcome"] in UNRUN:
            cells = [row["path"].removeprefix("allocsim/"), row["source"], row["change"]]
            cells += [str(row["asked"]), row["why"] or "not explained"]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _counted(rows: list[dict[str, Any]]) -> Counter[str]:
    left = [row for row in rows if row["outcome"] in UNRUN]
    return Counter(
        tried=len(rows),
        killed=sum(row["outcome"] == "killed" for row in rows),
        endless=sum(row["outcome"] == "endless" for row in rows),
        survived=len(left),
        explained=sum(bool(row["why"]) for row in left),
    )


def _line(name: str, counts: Counter[str]) -> str:
    cells = (counts[key] for key in ("sites", "tried", "killed", "endless", "survived", "explained"))
    return f"| {name} | " + " | ".join(f"{cell:,}" for cell in cells) + " |"


def write(rows: list[dict[str, Any]], sites: dict[str, dict[str, int]], out: Path) -> Found:
    """Write the rows, with their counts, as JSON and as a page beside it; return what is written."""
    for row in rows:
        row["why"] = EXPLAINED.get((row["path"], row["source"], row["change"]), "")
    record = {"sites": sites, "counts": Counter(f"{row['part']} {row['outcome']}" for row in rows), "rows": rows}
    write_results(out, record)
    out.with_suffix(".md").write_text(page(record), encoding="utf-8")
    return record


def measure(
    *,
    part: tuple[str, ...] = (),
    each: int = 8,
    seed: int = 1,
    seconds: float = 3.0,
    minutes: float = float("inf"),
    again: bool = False,
    files: tuple[str, ...] = (),
    known: bool = False,
    tests: tuple[str, ...] = (),
    out: Path,
) -> Found:
    """Try a sample of the mutants, write what became of each as it is known."""
    out = out.absolute()
    os.chdir(ROOT)
    parts = part or tuple(PARTS)
    wanted = drawn(parts, each, seed, files)
    found = {part: {path: mutants(path) for path in modules(part)} for part in PARTS}
    sites = {part: {path: len(rows) for path, rows in paths.items()} for part, paths in found.items()}
    there = {(row.path, row.place): row for paths in found.values() for rows in paths.values() for row in rows}
    text = {path: (ROOT / path).read_text(encoding="utf-8").splitlines() for part in sites.values() for path in part}
    rows: list[dict[str, Any]] = kept(out).get("rows", [])
    rows = [row for row in rows if _stands(row, text, there.get((row["path"], row["place"])))]
    for row in rows:
        row["line"] = there[row["path"], row["place"]].line
        row["why"] = EXPLAINED.get((row["path"], row["source"], row["change"]), "")
    open_ = {(row["path"], row["place"]) for row in rows if row["outcome"] in UNRUN and not row["why"]}
    tried = {(row["path"], row["place"]) for row in rows} - (open_ if again else set())
    every = [(part, row) for part, paths in found.items() if part in parts for path in paths.values() for row in path]
    first = [(part, row) for part, row in every if again and (row.path, row.place) in open_]
    wanted = list(dict.fromkeys([*first, *wanted]))
    began = time.monotonic()

    def body(trials: Trials) -> None:
        trials.kills.update((row["path"].rpartition("/")[0], row["test"]) for row in rows if row["test"])
        for number, (place, mutant) in enumerate(wanted, 1):
            if (mutant.path, mutant.place) in tried:
                continue
            if time.monotonic() - began > 60 * minutes:
                break
            before = spent()
            what, test, asked = trials.outcome(mutant)
            row = {
                "part": place, "path": mutant.path, "line": mutant.line, "place": mutant.place,
                "source": text[mutant.path][mutant.line - 1].strip(), "change": mutated(mutant)[1][:200],
                "outcome": what, "asked": asked, "test": test, "seconds": round(spent() - before, 2), "why": "",
            }  # fmt: skip
            print(
                f"{number}/{len(wanted)} {what:8} {row['seconds']:6.2f} s of {asked:4} tests  {mutant.path}:{mutant.line} {row['change'][:90]}",
                flush=True,
            )
            if tests and what != "killed":
                continue
            rows[:] = [r for r in rows if (r["path"], r["place"]) != (mutant.path, mutant.place)]
            rows.append(row)
            write(rows, sites, out)

    trials = Trials(body, seconds, anew=not known)
    quick = settings(
        deadline=None, database=None, derandomize=True, report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    settings.register_profile("mutants", quick)
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    _screens_as_written()
    quiet = ["-q", "-s", "-p", "no:cacheprovider", "--no-header", "--assert=plain", "--tb=no"]
    asked = dict.fromkeys(test for part in parts for test in TESTS.get(part, TESTS["judging"]))
    status = pytest.main([*quiet, *(tests or asked)], plugins=[trials])
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} or not trials.items:
        raise EngineError("the tests cannot be collected")
    left = [row for row in rows if row["part"] in parts and row["outcome"] in UNRUN and not row["why"]]
    return {**write(rows, sites, out), "not_explained": len(left)}


def _stands(row: dict[str, Any], text: dict[str, list[str]], mutant: Mutant | None) -> bool:
    """Whether what was changed is still as it was, and so is the change; prose before it may have moved its line."""
    if mutant is None or text[mutant.path][mutant.line - 1].strip() != row["source"]:
        return False
    return mutated(mutant)[1][:200] == row["change"]


if __name__ == "__main__":
    run(measure, failed="not_explained", known={"part": PARTS})
