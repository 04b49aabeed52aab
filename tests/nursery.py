"""What a mutant of the planners does: every planner that it can reach plans a corpus in a process of its own, and what comes out otherwise than
from the planners as they are is judged twice, by replay and by the judge.

* The corpus: programs from recipes by a seed, plans of real ggml's graphs. Every program is planned with the default constraints, with
  all nodes pinned, with persistent buffers placed as the others, or with a buffer whose offset is decided.
* A planner's *answer* is its belief (lifetimes, sizes, pins, pairs) and its plan (arena, offset), or the error in its place. `liveness`
  stands beside the planners as a belief made of `lifetimes` and `permissible_pairs`, placed by size.
* *Unsound* is what `adversary.late_reads` says of two runs of the plan over one memory, and knows nothing of the judge; *convicted* is what
  `allocsim.judge.fast` (S and L) finds in the same document. An answer that is unsound from the planners as they are is no test of a mutant.
* Outcomes, the worst of a mutant's answers: `unsound`; `wrong belief` (the judge finds fault, replay does not: the lifetime or pair is wrong and
  no byte is lost yet); `other plan` (others, all sound and clean); `error` (a planner refuses or raises); `endless`; `broken` (cannot be
  imported); `same`.

A mutant runs in a fork with the mutated source in place of the file, without numba (compiled code would outlive the mutant on disk), under
limits of processor time and memory. What this module does not see: which mutants there are (`mutation`).
"""

import ast
import contextlib
import importlib
import importlib.abc
import importlib.util
import os
import pickle
import random
import resource
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from adversary import late_reads
from mutation import ROOT, Mutant
from oracle import judge
from small_programs import listed

from allocsim import allocators
from allocsim.errors import AllocsimError
from allocsim.fuzzing.program_recipes import ACTIONS, assemble
from allocsim.judge.fast import check
from allocsim.model import Arena, Document, Plan, Problem, Program, Run
from allocsim.systems import load

SECONDS, NBYTES = 15, 4 << 30
"""Processor time and memory a mutant may take."""

BELIEF, PLACE = ("start", "stop", "nbytes", "pinned", "own", "may_share"), ("arena", "offset", "nbytes")
FAULTS_OF_BELIEF = frozenset({"LifetimeTooShort", "MissingPin", "BadSize", "BadShare"})
ENOUGH = 12
"""Changed answers of one planner to one mutant that are judged."""

SEARCHING, SEARCHED = frozenset({"best", "exact"}), 7
"""Planners that search, and the most buffers of a program they are asked about: nothing is compiled here."""

WAITING = 900
"""Seconds on the clock after which it is ended, however little it computed."""

DUMPS = ("train_2L_none", "trainopt_2L_none")
"""Graphs of real ggml, in `tests/data`."""

STRANGER = "strategies:spread"
SMALL = 400
"""Bytes of a program that the judge's twin is asked about as well."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One program with what a planner is told of it."""

    name: str
    program: Program
    told: dict[str, Any]
    planners: tuple[str, ...]


@dataclass(kw_only=True)
class Outcome:
    """What became of one mutant."""

    outcome: str = "same"
    said: str = ""
    changed: int = 0
    unsound: int = 0
    convicted: int = 0
    escaped: list[str] = field(default_factory=list)
    """Answers that are unsound by replay and clean to the judge."""
    accused: int = 0
    """Answers the judge finds fault with and replay does not."""
    kinds: dict[str, int] = field(default_factory=dict)
    """Of violations in all of these."""
    disagree: list[str] = field(default_factory=list)
    """Small documents of which judge and twin say different things."""
    errors: int = 0
    planners: list[str] = field(default_factory=list)
    """Whose answers changed."""
    peaks: dict[str, int] = field(default_factory=dict)
    """Planner -> bytes its peaks grew by, in all."""


def names() -> tuple[str, ...]:
    """Return the planners that are asked."""
    return (*allocators.ALLOCATORS, STRANGER, "liveness")


def corpus(count: int, seed: int, *, dumps: bool = True) -> list[Item]:
    """Return `count` generated programs, every fifth of them of 30 ops or so, and real ggml's graphs of two layers."""
    items = []
    rng = random.Random(seed)
    actions = [*[name for name in ACTIONS if name != "whole"] * 2, *["compute"] * 18, *["download"] * 2]
    ways: tuple[dict[str, Any], ...] = ({}, {"pins": "nodes"}, {"own": []}, {"fixed": {0: 48}})
    for number in range(count):
        length = rng.randint(24, 36) if number % 5 == 0 else rng.randint(4, 14)
        drawn = [
            (rng.choice(actions), *(rng.randrange(8) for _ in range(4)), rng.randrange(4096)) for _ in range(length)
        ]
        arenas = [Arena(name="a", alignment=rng.choice((1, 4, 8))) for _ in range(rng.choice((1, 1, 2)))]
        program = listed(assemble(drawn, arenas=arenas))
        few = len(program.buffers) <= SEARCHED
        asked = tuple(name for name in names() if few or name not in SEARCHING)
        items.append(Item(name=f"program {number}", program=program, told=ways[number % 4], planners=asked))
    for name in DUMPS if dumps else ():
        program = load(str(ROOT / "tests" / "data" / "ggml" / f"{name}.json")).programs[0]
        items.append(Item(name=name, program=program, told={}, planners=("ggml", "greedy_by_size")))
    return items


def answer(item: Item, planner: str) -> Plan | str:
    """Return what a planner makes of an item: a plan with its belief, or an error in words."""
    library: Any = importlib.import_module("allocsim.allocators")
    try:
        told = library.Constraints.of(item.program, **item.told)
        if planner != "liveness":
            made: Plan = library.find(planner).plan(item.program, told)
            return made
        live = importlib.import_module("allocsim.liveness")
        span, pairs = live.lifetimes(item.program), live.permissible_pairs(item.program)
        problem = Problem.of(
            item.program,
            start=span[:, 0],
            stop=np.where(told.pinned & (span[:, 1] > 0), len(item.program.ops), span[:, 1]),
            pinned=told.pinned,
            own=told.own,
            may_share=[(d, r) for _, d, r in pairs.tolist() if not (told.own[[d, r]].any() or told.pinned[d])],
        )
        placed: Plan = library.find("greedy_by_size").place(problem)
    except AllocsimError as error:
        return f"{type(error).__name__}: {error}"
    return placed


def same(one: Plan | str, other: Plan | str) -> bool:
    """Return whether two answers agree in every lifetime, size, pin, pair and offset."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    columns = [(getattr(one, name), getattr(other, name)) for name in PLACE]
    if (one.problem is None) != (other.problem is None):
        return False
    if one.problem is not None and other.problem is not None:
        columns += [(getattr(one.problem, name), getattr(other.problem, name)) for name in BELIEF]
    return all(np.array_equal(a, b) for a, b in columns)


@dataclass(frozen=True, kw_only=True)
class Nursery:
    """A corpus, and what the planners as they are answer to it."""

    items: list[Item]
    base: dict[tuple[int, str], Plan | str]
    broken: frozenset[tuple[int, str]]
    """Answers that are unsound as it is."""
    reached: frozenset[tuple[str, int]]
    """(path, line) of every line that the corpus makes run."""

    @classmethod
    def of(cls, items: list[Item]) -> "Nursery":
        """Ask all planners."""
        with _lines() as reached:
            _fresh(None)
            base = {(n, name): answer(item, name) for n, item in enumerate(items) for name in item.planners}
        unsound = (key for key, made in base.items() if isinstance(made, Plan) and late_reads(_twice(made)))
        return cls(items=items, base=base, broken=frozenset(unsound), reached=frozenset(reached))

    def begin(self, mutant: Mutant) -> tuple[int, int]:
        """Let one mutant answer, in a fork; several may be at it. Return what `end` wants. To be called from a process without threads."""
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            self._in_fork(mutant, write_end)
        os.close(write_end)
        return child, read_end

    def end(self, begun: tuple[int, int]) -> Outcome:
        """Wait for a mutant, and return what became of it."""
        child, read_end = begun
        outcome = Outcome(outcome="broken", said="ended before it was imported")
        with os.fdopen(read_end, "rb") as pipe, contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                outcome = pickle.load(pipe)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended and outcome.outcome in {"same", "other plan"}:
            outcome.outcome, outcome.said = "endless", f"ended with {ended}"
        return outcome

    def _in_fork(self, mutant: Mutant, write_end: int) -> None:
        with os.fdopen(write_end, "wb") as pipe:
            try:
                with open(os.devnull, "w") as nothing:  # noqa: PTH123 - a device
                    os.dup2(nothing.fileno(), 1)
                    os.dup2(nothing.fileno(), 2)
                signal.alarm(WAITING)
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
                resource.setrlimit(resource.RLIMIT_AS, (NBYTES, NBYTES))
                for outcome in self._answers(mutant):
                    pickle.dump(outcome, pipe)
                    pipe.flush()
            finally:
                os._exit(0)

    def _answers(self, mutant: Mutant) -> Iterator[Outcome]:
        outcome = Outcome()
        try:
            _fresh(mutant)
            importlib.import_module("allocsim.allocators")
            importlib.import_module(mutant.module)
        except BaseException as error:  # noqa: BLE001 - a mutant may raise anything
            yield replace(outcome, outcome="broken", said=f"{type(error).__name__}: {error}"[:200])
            return
        yield outcome
        concerned = users(mutant.module)
        judged = Counter[str]()
        for number, item in enumerate(self.items):
            for planner in (name for name in item.planners if name in concerned):
                if (number, planner) in self.broken or judged[planner] >= ENOUGH:
                    continue
                try:
                    made = answer(item, planner)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
                    made = f"{type(error).__name__}: {error}"[:200]
                base = self.base[number, planner]
                if not same(base, made):
                    judged[planner] += 1
                    self._judge(outcome, item, planner, made)
                    if isinstance(made, Plan) and isinstance(base, Plan):
                        outcome.peaks[planner] = outcome.peaks.get(planner, 0) + made.peak_bytes - base.peak_bytes
                    yield outcome

    def _judge(self, outcome: Outcome, item: Item, planner: str, made: Plan | str) -> None:
        if planner not in outcome.planners:
            outcome.planners.append(planner)
        outcome.changed += 1
        if isinstance(made, str):
            outcome.errors += 1
            outcome.said = outcome.said or made
            outcome.outcome = _worse(outcome.outcome, "error")
            return
        document = _twice(made)
        report = check(document, limit=50)
        for kind, count in report.counts.items():
            if kind not in {"LifetimeTooLong", "HistoryRead", "AssumedInPlace"}:
                outcome.kinds[kind] = outcome.kinds.get(kind, 0) + count
        if late_reads(document):
            outcome.unsound += 1
            outcome.convicted += not report.clean
            if report.clean:
                outcome.escaped.append(f"{item.name} by {planner}")
            outcome.outcome = "unsound"
        elif not report.clean:
            outcome.accused += 1
            outcome.outcome = _worse(outcome.outcome, "wrong belief")
        else:
            outcome.outcome = _worse(outcome.outcome, "other plan")
        if (
            int(item.program.buffers.nbytes.sum()) <= SMALL
            and not report.clean
            and len(outcome.disagree) + outcome.changed < 8
        ):
            twin = judge(document)
            if Counter(v.kind for v in twin.violations) != Counter(v.kind for v in check(document).violations):
                outcome.disagree.append(f"{item.name} by {planner}")


ORDER = ("same", "other plan", "error", "wrong belief", "unsound")


def _worse(one: str, other: str) -> str:
    return max(one, other, key=ORDER.index)


def _twice(plan: Plan) -> Document:
    return Document.of(Run.of(plan), Run.of(plan))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Gives one module its mutated source."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant, self.source = mutant, mutant.source

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.mutant.module:
            return None
        file = ROOT / self.mutant.path
        where = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, file, loader=self, submodule_search_locations=where)

    def is_package(self, fullname: str) -> bool:
        return self.mutant.path.endswith("__init__.py")

    def get_source(self, fullname: str) -> str:
        return self.source


def _fresh(mutant: Mutant | None) -> None:
    """Forget the modules that are mutated; with a mutant, import its source in place of the file from now on."""
    for name in [n for n in sys.modules if n == "allocsim.liveness" or n.startswith("allocsim.allocators")]:
        del sys.modules[name]
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(mutant))


@contextlib.contextmanager
def _lines() -> Iterator[set[tuple[str, int]]]:
    """Collect the lines of the mutated modules that run."""
    found: set[tuple[str, int]] = set()
    folder, root = str(ROOT / "allocsim"), str(ROOT) + os.sep

    def local(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            found.add((frame.f_code.co_filename.removeprefix(root), frame.f_lineno))
        return local

    def trace(frame: Any, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        found.add((file.removeprefix(root), frame.f_lineno))
        return local if file.startswith(folder) and ("/allocators/" in file or "/liveness" in file) else None

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(None)


@cache
def users(module: str) -> frozenset[str]:
    """Return the planners whose code a module is part of: its importers in the shelf, transitively; all of them for what everyone imports."""
    if module == "allocsim.liveness":
        return frozenset({"liveness"})
    everyone = {
        "allocsim.allocators",
        "allocsim.allocators.planner",
        "allocsim.allocators.constraints",
        "allocsim.allocators.compiling",
    }
    if module in everyone:
        return frozenset(names())
    if module == "allocsim.allocators.strangers":
        return frozenset({STRANGER})
    found = set()
    for name, row in allocators.ALLOCATORS.items():
        if {row.belief.__module__, row.placement.__module__} & _importers(module):
            found.add(name)
    return frozenset(found | ({"liveness"} if "greedy_by_size" in found else set()))


@cache
def _importers(module: str) -> frozenset[str]:
    found, fresh = {module}, {module}
    while fresh:
        fresh = {name for name, used in _imports().items() if used & fresh} - found
        found |= fresh
    return frozenset(found)


@cache
def _imports() -> dict[str, set[str]]:
    table = {}
    for path in sorted((ROOT / "allocsim" / "allocators").glob("*.py")):
        if path.name == "__init__.py":
            continue
        used: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                used |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        table[f"allocsim.allocators.{path.stem}"] = used
    return table
