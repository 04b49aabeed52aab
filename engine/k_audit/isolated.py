"""The audit of foreign kernels, in a process that may crash or hang.

A crash is a finding, and the audit goes on.

`audit_isolated` starts a child (`serve`) that imports the table and measures cell after cell, each
announced before and sent after it. If the child ends, or says nothing for `seconds` in which the
machine let it run, the cell it was at is called `crashed` or `hung`, and another child goes on with
the next one. A kernel that
ends two children is not tried again: the rest of its cells are `not reached`.

A kernel that raises is `crashed` with what it raised, and needs no other child. What a kernel
prints is dropped. What this module does not see: how a cell is measured.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, Self

from allocsim.errors import AllocsimError, EngineError
from allocsim.files.frames import Frames, send
from allocsim.files.patience import Limit
from allocsim.files.signals import signal_name
from engine.k_audit import cells, grouped
from engine.k_audit.arranged_memory import draw
from engine.k_audit.audit_cases import default_cases
from engine.k_audit.kernel_tables import load
from engine.k_audit.measuring import AuditRow, Measured, measure, unmeasured

SECONDS: Final = 60.0
"""A cell may take, by default."""
START: Final = 300.0
"""Seconds until the first cell, with the import of the table."""
DEATHS: Final = 2
"""Children a kernel may end."""


def audit_isolated(
    target: str, *, layouts: Sequence[str], seed: int = 0, seconds: float = SECONDS
) -> Iterator[AuditRow]:
    """Measure a table `package.module:KERNELS`.

    Yield a row for each cell, as `engine.k_audit.audit`. Errors as `kernel_tables.load`.
    """
    done = 0
    deaths: Counter[tuple[str, str]] = Counter()
    finished = False
    while not finished:
        at: AuditRow | None = None  # what is lost if the child ends now
        dead = [name for name, count in deaths.items() if count >= DEATHS]
        with _Child(target, layouts, seed, done, dead) as child:
            while True:
                message = child.receive(seconds if at is not None else max(seconds, START))
                if isinstance(message, AuditRow) and at is None:
                    at = message
                elif isinstance(message, AuditRow):
                    at, done = None, done + 1
                    yield message
                elif isinstance(message, AllocsimError):
                    raise message
                else:
                    break
        finished = message is False
        if finished:
            return
        how, said = message
        if at is None:
            raise EngineError(f"{target}: importing it {how}{': ' if said else ''}{said}")
        deaths[at.kind, at.variant] += 1
        done += 1
        measured: Measured = "hung" if how.startswith("gave no answer") else "crashed"
        yield replace(at, measured=measured, words=f"{how}{': ' if said else ''}{said}")


class _Child:
    """One child and its messages."""

    def __init__(self, target: str, layouts: Sequence[str], seed: int, done: int, dead: Sequence[Any]) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from engine.k_audit.isolated import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
                "PYTHONFAULTHANDLER": "",
            },
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a child that is gone is heard of by `receive`
            self.process.stdin.write(pickle.dumps((target, list(layouts), seed, done, list(dead))))
            self.process.stdin.close()

    def receive(self, seconds: float) -> Any:
        """Return the next message, False at the end, or how and with what words it ended before."""
        limit = Limit(seconds=seconds, process=self.process.pid)
        with contextlib.suppress(EOFError):
            while (left := limit.left()) > 0:
                with contextlib.suppress(TimeoutError):
                    return self.replies.receive(time.monotonic() + left)
        with contextlib.suppress(subprocess.TimeoutExpired):  # its output ends a moment before it does
            self.process.wait(limit.left())
        if self.process.poll() is None:
            self.process.kill()
            return f"gave no answer for {seconds:g} s", ""
        code = self.process.wait()
        self.errors.seek(0)
        said = [line.strip() for line in self.errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f"ended with {signal_name(-code) if code < 0 else f'exit {code}'}", said[-1] if said else ""

    @cached_property
    def replies(self) -> Frames:
        """What it has said and nobody has heard."""
        assert self.process.stdout is not None
        return Frames(self.process.stdout.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.errors.close()


def serve() -> None:
    """Be the child: read what to measure from standard input, write messages to standard output."""
    say = partial(send, os.fdopen(os.dup(1), "wb"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    target, layouts, seed, done, dead = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - our own parent
    try:
        found = load(target)
        groups = grouped(found.kernels, default_cases(found.kernels) if found.cases is None else found.cases)
    except AllocsimError as error:
        say(EngineError(str(error)))
        return
    for number, (kind, variant, operand, result, layout) in enumerate(cells(groups, layouts)):
        if number < done:
            continue
        kernel, group = found.kernels[kind][variant], groups[kind, variant]
        lost = unmeasured(kernel, group, (operand, result), layout, words="not tried again: it ended two processes")
        say(lost)
        if (kind, variant) in dead:
            say(lost if lost.sample is not None else replace(lost, measured="not applicable", words=""))
            continue
        try:
            say(measure(kernel, group, (operand, result), layout, seed=seed, draws=found.draws.get(kind, draw)))
        except AllocsimError as error:
            say(replace(lost, measured="crashed", words=str(error)))
    say(False)
