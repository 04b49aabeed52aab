"""Which test runs which lines of the judge, and what it takes: only a test that runs a line can tell a change of it.

    reach = Reach.of(items, files)      # {test: (seconds, lines)}, each test run once, under a tracer, in a process parted from this one

The tracer is `sys.settrace`, which a forked child inherits: lines are marked in memory that parent and children share. It marks a line once for each test; a
function whose every line is marked is traced no more. A test beyond `LIMIT` seconds of processor time is broken off, and asks for as many: what it ran until then counts.
A test that fails though nothing is changed, or that runs no line of the judge, is left out.

What this module does not see: lines that a process begun anew (`subprocess`, spawned workers) runs; a change made by `judge_sites.change` is not there either.
"""

import hashlib
import json
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from harness import spent

LIMIT: Final = 1.5
"""Of processor time, under the tracer, which slows a test that does nothing but judge by some three times."""


class TooSlowError(BaseException):
    """A test has run as long as it may."""


def restrained(call: Callable[[], object], seconds: float) -> bool:
    """Call, and break it off after so many seconds of processor time; return whether it came to its end by itself."""
    late = False

    def stop(*_: object) -> None:
        nonlocal late
        late = True
        raise TooSlowError

    was = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.5)
    try:
        call()
    except TooSlowError:
        late = True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, was)
    return not late


class Tracer:
    """Marks the lines of some files that are run."""

    def __init__(self, files: Iterable[str]) -> None:
        self.lines: dict[str, range] = {}
        """Of each file the places of its lines among the marks."""
        end = 0
        for file in sorted(files):
            self.lines[file] = range(end, end + len(Path(file).read_bytes().splitlines()) + 1)
            end = self.lines[file].stop
        self.marks = mmap.mmap(-1, end + 1)
        self.left: dict[int, tuple[CodeType, dict[int, int]]] = {}

    def run(self, call: Callable[[], object]) -> dict[str, list[int]]:
        """Call; return the lines that were run, by file."""
        self.marks[:] = bytes(len(self.marks))
        self.left = {}
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            call()
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        ran = {file: [line for line, at in enumerate(row) if self.marks[at]] for file, row in self.lines.items()}
        return {file: lines for file, lines in ran.items() if lines}

    def _called(self, frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        known = self.left.get(id(code))
        if known is None:
            row = self.lines.get(code.co_filename, range(0))
            known = code, {line: row[line] for _, _, line in code.co_lines() if line and line < len(row)}
            self.left[id(code)] = known
        if not known[1]:
            return None
        place = known[1].pop(frame.f_lineno, None)
        if place is not None:
            self.marks[place] = 1
        return self._ran

    def _ran(self, frame: FrameType, _event: str, _arg: object) -> Any:
        left = self.left[id(frame.f_code)][1]
        place = left.pop(frame.f_lineno, None)
        if place is not None:
            self.marks[place] = 1
        if not left:
            frame.f_trace_lines = False
        return self._ran


@dataclass(frozen=True)
class Reach:
    """Test -> seconds of processor time that it takes at most, and the lines that it runs, by file."""

    tests: dict[str, tuple[float, dict[str, frozenset[int]]]]

    @classmethod
    def of(
        cls, items: list[Any], files: list[str], run: Callable[[Any], bool], kept: Path, *, anew: bool = True
    ) -> "Reach":
        """Run every test that is not known, or whose file or a module that it runs changed, in a process of its own; say which lines it ran.

        `run` runs one test and says whether it passed. What is known is kept in a file, a line for each test, and written on as it is found.
        Without `anew` a test whose file stands is not run again: of a module that changed since, it is taken to run every line.
        """
        state = {file: _digest(file) for file in {*files, *(str(item.path) for item in items)}}
        own = {item.nodeid: str(item.path) for item in items}
        known = _read(kept, own, state, anew=anew)
        missing = [item for item in items if item.nodeid not in known]
        if missing:
            kept.parent.mkdir(parents=True, exist_ok=True)
            child = os.fork()
            if not child:
                _trace(missing, files, run, kept, state)
                os._exit(0)
            os.waitpid(child, 0)
            known = _read(kept, own, state, anew=anew)
        ran = {test: row for test, row in known.items() if row["passed"] and row["lines"]}
        within = {test: {file: frozenset(lines) for file, lines in row["lines"].items()} for test, row in ran.items()}
        return cls({test: (row["seconds"], within[test]) for test, row in ran.items()})

    def asked(self, file: str, first: int, last: int) -> list[str]:
        """Return the tests that run one of the lines."""
        wanted = set(range(first, last + 1))
        return [test for test, (_, lines) in self.tests.items() if not wanted.isdisjoint(lines.get(file, ()))]

    def using(self, file: str) -> list[str]:
        """Return the tests that run any line of a module."""
        return [test for test, (_, lines) in self.tests.items() if file in lines]


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]


def _read(kept: Path, own: dict[str, str], state: dict[str, str], *, anew: bool) -> dict[str, Any]:
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    found: dict[str, Any] = {}
    for row in rows:
        file = own.get(row["test"], "")
        changed = [path for path, digest in row["state"].items() if state.get(path) != digest]
        if file not in row["state"] or file in changed or (anew and changed):
            continue
        for path in changed:
            row["lines"][path] = range(1, 1 + len(Path(path).read_bytes().splitlines())) if path in state else ()
        found[row["test"]] = row
    return found


def _trace(items: list[Any], files: list[str], run: Callable[[Any], bool], kept: Path, state: dict[str, str]) -> None:
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    tracer = Tracer(files)
    with kept.open("a", encoding="utf-8") as out:
        for item in items:
            passed = False

            def body(item: Any = item) -> None:
                nonlocal passed
                passed = run(item)

            def traced(body: Callable[[], None] = body) -> None:
                nonlocal lines
                lines = tracer.run(body)

            lines: dict[str, list[int]] = {}
            began = spent()
            whole = restrained(traced, LIMIT)
            digests = {file: state[file] for file in (str(item.path), *lines)}
            about = {"test": item.nodeid, "state": digests, "passed": passed or not whole}
            row = {**about, "seconds": round(spent() - began, 3), "lines": lines}
            out.write(json.dumps(row) + "\n")
            out.flush()
