"""Branches of a target's own Python files that a campaign takes, by the package `coverage`.

    Target(name="my_package.planner:plan", trace=True)     # in the worker: what is seen travels with the answers, into the tally
    branches(tally.arcs)                                   # in the campaign: how many there are, and which were never taken

A step is a string "file:from:to" of line numbers, as `coverage` has them, so steps add up over
chunks, processes and machines. A target's own files are those of its package, for a planner of the
shelf those of its belief and its placement. What is seen by an answer that never came is lost; what
numba compiled is not seen, nor what runs in C.

What this module does not see: programs and plans.
"""

import functools
import inspect
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocsim.errors import PlannerError

MISSING = "branch coverage needs the package coverage: pip install 'allocsim[fuzz]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """Branches of one file."""

    file: str
    there_are: int
    taken: int
    never: tuple[tuple[int, int], ...]
    """(line, line it never went to; negative: out of the function there) of those not taken."""


class BranchTracer:
    """Notes steps in a planner's own files, in the process that runs it."""

    def __init__(self, planner: Any) -> None:
        self.files = own_files(planner)
        self.told: set[str] = set()

    def start(self) -> None:
        """Begin to note steps."""
        self.measured = _measure(self.files)
        self.measured.start()

    def news(self) -> set[str]:
        """Return the steps that were not told before."""
        data = self.measured.get_data()
        seen = {f"{file}:0:0" for file in self.files}
        seen |= {f"{file}:{a}:{b}" for file in data.measured_files() for a, b in data.arcs(file) or ()}
        news, self.told = seen - self.told, seen
        return news


def branches(arcs: Iterable[str]) -> list[Branches]:
    """Return the branches of each file of which steps were seen, by name of the file.

    Raises PlannerError without `coverage`.
    """
    steps: dict[str, list[tuple[int, int]]] = {}
    for arc in arcs:
        file, start, stop = arc.rsplit(":", 2)
        steps.setdefault(file, [])
        if start != stop:
            steps[file].append((int(start), int(stop)))
    steps = {file: pairs for file, pairs in steps.items() if Path(file).is_file()}
    if not steps:
        return []
    measured = _measure(sorted(steps))
    with _closed_behind(measured) as data, tempfile.TemporaryDirectory() as folder:
        data.add_arcs(steps)
        data.touch_files(steps)
        path = Path(folder) / "branches.json"
        measured.json_report(outfile=str(path), ignore_errors=True)
        report = json.loads(path.read_text())
    found = []
    for file, row in sorted(report["files"].items()):
        summary = row["summary"]
        never = tuple((a, b) for a, b in row["missing_branches"])
        found.append(
            Branches(file=file, there_are=summary["num_branches"], taken=summary["covered_branches"], never=never)
        )
    return found


def own_files(planner: Any) -> list[str]:
    """Return the Python files a planner is made of."""
    functions = [getattr(planner, name, None) for name in ("belief", "placement", "function")]
    ours: set[str] = set()
    theirs: set[str] = set()
    for given in functions:
        function = given
        while isinstance(function, functools.partial):
            function = function.func
        module = inspect.getmodule(inspect.unwrap(function)) if function is not None else None
        path = getattr(module, "__file__", None)
        if module is None or path is None:
            continue
        package = sys.modules[module.__name__.partition(".")[0]]
        if package.__name__ == "allocsim":
            ours.add(path)
        elif not hasattr(package, "__path__"):
            theirs.add(path)
        else:
            theirs |= {str(file) for home in package.__path__ for file in Path(home).rglob("*.py")}
    return sorted(theirs or ours)  # a stranger's placement has a belief of ours


@contextmanager
def _closed_behind(measured: Any) -> Iterator[Any]:
    """Give what was measured; close its data base, which in memory stays open unless forced."""
    data = measured.get_data()
    try:
        yield data
    finally:
        data.close(force=True)


def _measure(files: list[str]) -> Any:
    try:
        import coverage  # noqa: PLC0415 - an optional package
    except ImportError:
        raise PlannerError(MISSING) from None
    return coverage.Coverage(data_file=None, branch=True, include=files, config_file=False)
