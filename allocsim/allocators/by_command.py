"""Planners in any language: a command that is asked in lines of JSON, `cmd:./planner --flag`.

    planner = find_command("cmd:./planner --flag")
    plan = planner.plan(program, constraints)

The command is started once, at the first question, and asked one line for each question on its
standard input: a native document (docs/format.md) in one line, with one program and one problem,
in which every list that a planner needs is written out (`question`), and `id`, the number of the
question. It answers one line on its standard output: `{"slots": [...]}` with an entry for each
buffer, an offset in the buffer's arena, `"own"` or null; or `{"refused": "why"}` where the buffers
do not fit; an `id` in it is that of the question. What it writes beyond that line is looked for
after each answer and before each question, and ends it: its answers would be those of other
questions. What it writes to standard error is shown where it ends. It ends when its standard input
does.

Raises PlannerError for what is no answer, CapacityError for a refusal. What this module does not
see: whether a plan is sound, and how long the command may take (`allocsim.fuzzing.target`).
"""

import contextlib
import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import weakref
from dataclasses import dataclass, field
from typing import IO, Any, Final

import numpy as np

from allocsim.allocators import exact
from allocsim.allocators.by_csv import INPUT, CsvPlanner
from allocsim.allocators.constraints import Constraints
from allocsim.allocators.planner import a_plan
from allocsim.document import dumps
from allocsim.errors import CapacityError, EndedError, PlannerError
from allocsim.files.signals import how_ended
from allocsim.model import Document, Plan, Problem, Program, Role

PREFIX: Final = "cmd:"

MOST: Final = 1 << 28
"""Bytes of an answer."""


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class CommandPlanner:
    """A running command; it is started when it is first asked, and again where it has ended."""

    name: str
    arguments: list[str]
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)
    said: "IO[bytes] | None" = field(default=None, repr=False)
    owner: int = 0
    """The process that started it: a fork starts its own."""
    ahead: bytes = b""
    """What it wrote behind the last answer."""
    asked: int = 0
    """Questions so far: the `id` of the next one."""
    folder: str = field(default_factory=os.getcwd)
    """Where it is started: where it was named, whatever folder this process has gone to since."""

    @property
    def processes(self) -> int:
        """How many processes it keeps beside this one."""
        return int(self.process is not None)

    def plan(self, program: Program, constraints: Constraints | None = None) -> Plan:
        """Return the plan the command answers. The belief it is given is the exact one."""
        told = constraints if constraints is not None else Constraints.of(program)
        return self._answered(exact.believe(program, told))

    def place(self, problem: Problem) -> Plan:
        """Return the plan the command answers to a belief."""
        return self._answered(problem)

    def close(self) -> None:
        """End the command. Safe to call twice."""
        process, said, self.process, self.said, self.ahead = self.process, self.said, None, None, b""
        _end(process, said, self.owner)

    def _answered(self, problem: Problem) -> Plan:
        line = json.dumps({"id": self.asked, **question(problem)}, separators=(",", ":")).encode() + b"\n"
        answer, number = self._line(line), self.asked
        self.asked += 1
        try:
            record = json.loads(answer)
        except ValueError:
            raise PlannerError(f"allocator {self.name!r} answered {_shown(answer)}, which is no JSON") from None
        except RecursionError:
            raise PlannerError(f"allocator {self.name!r} answered {_shown(answer)}, lists within lists") from None
        if isinstance(record, dict) and record.get("id", number) != number:
            self.close()
            raise PlannerError(f"allocator {self.name!r} answered question {record['id']!r} when asked {number}")
        if isinstance(record, dict) and isinstance(record.get("refused"), str):
            raise CapacityError(f"allocator {self.name!r}: {record['refused']}")
        if not isinstance(record, dict) or not isinstance(record.get("slots"), list):
            raise PlannerError(
                f'allocator {self.name!r} answered {_shown(answer)}; {{"slots": [...]}} or {{"refused": '
                f'"why"}} is needed'
            )
        return a_plan(self.name, problem.program, record["slots"], own=problem.own)

    def _line(self, line: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        if self._more(process.stdout):
            raise self._beside("before the question")
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line)
            process.stdin.flush()
            while (
                b"\n" not in self.ahead
                and len(self.ahead) < MOST
                and (more := os.read(process.stdout.fileno(), 1 << 16))
            ):
                self.ahead += more
        answer, end, self.ahead = self.ahead.partition(b"\n")
        if end and self._more(process.stdout):
            raise self._beside(f"after its answer {_shown(answer)}")
        if end:
            return answer
        code = process.wait()
        how = how_ended(code)
        last = self._last_words()
        self.close()
        raise EndedError(self.name, f"{how}{f' after half an answer, {_shown(answer)}' if answer else ''}", last)

    def _more(self, answers: IO[bytes]) -> bool:
        """Return whether the command wrote something that is no answer to what was asked."""
        if not self.ahead:
            poll = select.poll()  # numbers of 1,024 and more are beyond select
            poll.register(answers, select.POLLIN)
            if poll.poll(0):
                self.ahead = os.read(answers.fileno(), 1 << 16)
        return bool(self.ahead)

    def _beside(self, where: str) -> PlannerError:
        """End the command; return the error for what it wrote. The next question starts another."""
        wrote = _shown(self.ahead)
        self.close()
        return PlannerError(f"allocator {self.name!r} wrote {wrote} {where}; an answer is one line")

    def _running(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.owner != os.getpid():
            self.said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the command
            try:
                self.process = subprocess.Popen(  # noqa: S603 - a person named it
                    self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, cwd=self.folder
                )
                self.ahead = b""
            except OSError as error:
                raise PlannerError(f"allocator {self.name!r} cannot be started: {error.strerror or error}") from None
            self.owner = os.getpid()
            weakref.finalize(self, _end, self.process, self.said, self.owner)
        return self.process

    def _last_words(self) -> str:
        if self.said is None:
            return ""
        self.said.seek(0)
        lines = self.said.read()[-4096:].decode(errors="replace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def question(problem: Problem) -> dict[str, Any]:
    """Return the native document that is asked: nothing that a placement needs is left to a
    default. O(columns).
    """
    program = problem.program
    record: dict[str, Any] = json.loads(dumps(Document(programs=(program,), problems=(problem,))))
    shown = record["programs"][0]
    record["arenas"] = [
        {"name": arena.name, "alignment": arena.alignment, "capacity": arena.capacity} for arena in program.arenas
    ]
    buffers = program.buffers
    columns = zip(buffers.alignment.tolist(), buffers.arena.tolist(), buffers.role.tolist(), strict=True)
    for row, (alignment, arena, role) in zip(shown["buffers"], columns, strict=True):
        row |= {"alignment": alignment, "arena": arena, "role": Role(role).name.lower()}
    for row, value in zip(shown["values"], program.values, strict=True):
        row |= {"strides": list(value.strides), "offset": value.offset}
    shown["ops"] = [{"in_place": [], "stream": 0, "after": [], **row} for row in shown["ops"]]
    record["problems"] = [
        {
            "program": 0,
            "start": problem.start.tolist(),
            "stop": problem.stop.tolist(),
            "nbytes": problem.nbytes.tolist(),
            "pinned": np.flatnonzero(problem.pinned).tolist(),
            "own": np.flatnonzero(problem.own).tolist(),
            "fixed": {str(buffer): offset for buffer, offset in problem.fixed.items()},
            "order": problem.order.tolist(),
            "may_share": problem.may_share.tolist(),
            "gaps": {str(buffer): [list(gap) for gap in gaps] for buffer, gaps in problem.gaps.items()},
        }
    ]
    return record


def find_command(name: str) -> CommandPlanner | CsvPlanner:
    """Return the planner that a command is, one of files where it names `{input}`.

    Raises PlannerError where there is no such program.
    """
    try:
        arguments = shlex.split(name.removeprefix(PREFIX))
    except ValueError as error:
        raise PlannerError(f"allocator {name!r} is no command: {error}") from None
    if not arguments or shutil.which(arguments[0]) is None:
        raise PlannerError(f"allocator {name!r} names no program that can be run")
    if any(INPUT in argument for argument in arguments):
        return CsvPlanner(name=name, arguments=tuple(arguments))
    return CommandPlanner(name=name, arguments=arguments)


def _end(process: "subprocess.Popen[bytes] | None", said: "IO[bytes] | None", owner: int) -> None:
    """End a command and close what it was asked by; of a fork, only close."""
    for stream in (said, *(() if process is None else (process.stdin, process.stdout))):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    if process is not None and owner == os.getpid() and process.poll() is None:
        process.kill()
        process.wait()


def _shown(answer: bytes) -> str:
    text = answer.decode(errors="replace").strip()
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


__all__ = ["PREFIX", "CommandPlanner", "find_command", "question"]
