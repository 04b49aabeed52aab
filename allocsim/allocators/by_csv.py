"""Planners that read a CSV file and write one, as minimalloc's solver does.

    planner = find("cmd:./minimalloc --capacity={capacity} --input={input} --output={output}")

A command of `cmd:` with `{input}` in it is run once for each arena of a question. `{input}` is a
file with a line for each buffer that needs a place: `id`, `lower`, `upper` (half-open steps; what
is pinned lives to the end), `size`, and `alignment` and `gaps` where some are not 1 and not empty.
The command writes the same with a column `offset` to `{output}`. `{capacity}` is that of the arena;
of one without an end it is what its buffers take side by side.

It refuses by an exit status other than 0 without a file. Pairs in place are left out, which only
makes a problem harder. That an offset is decided cannot be said: such a question is refused here.

Raises PlannerError for what is no answer, CapacityError for a refusal. What this module does not
see: whether a plan is sound, and how long the command may take (`allocsim.fuzzing.target`). The
file format with all its spellings is `allocsim.systems.minimalloc.solver_instance`.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from allocsim.allocators import exact
from allocsim.allocators.constraints import Constraints
from allocsim.allocators.planner import a_plan
from allocsim.errors import CapacityError, EndedError, PlannerError
from allocsim.files.cells import is_plain
from allocsim.files.gate import content
from allocsim.files.signals import signal_name
from allocsim.model import Plan, Problem, Program

INPUT: Final = "{input}"
"""Stands in a command for the file that it reads; one without it is asked in lines of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvPlanner:
    """A command that is run for each arena of each question."""

    name: str
    arguments: tuple[str, ...]
    folder: str = field(default_factory=os.getcwd)
    """Where it is run: where it was named."""

    def plan(self, program: Program, constraints: Constraints | None = None) -> Plan:
        """Return the plan the command answers. The belief it is given is the exact one."""
        return self.place(exact.believe(program, constraints if constraints is not None else Constraints.of(program)))

    def place(self, problem: Problem) -> Plan:
        """Return the plan the command answers to a belief."""
        if problem.fixed:
            raise CapacityError(f"allocator {self.name!r}: a CSV file cannot say that an offset is decided")
        buffers = problem.program.buffers
        offset: list[int | str] = ["own" if apart else 0 for apart in problem.own.tolist()]
        steps = max(len(problem.program.ops), int(problem.stop.max(initial=0)))
        stop = np.where(problem.pinned, steps, problem.stop)
        asked = ~problem.own & (stop > problem.start) & (problem.nbytes > 0)
        for arena, space in enumerate(problem.program.arenas):
            rows = np.flatnonzero(asked & (buffers.arena == arena)).tolist()
            if not rows:
                continue
            unit = buffers.alignment[rows]
            beside = int((-(-problem.nbytes[rows] // unit) * unit).sum())
            capacity = beside if space.capacity is None else space.capacity
            for buffer, at in self._asked(_table(problem, rows, stop.tolist()), capacity, rows).items():
                offset[buffer] = at
        return a_plan(self.name, problem.program, offset, own=problem.own)

    def _asked(self, table: str, capacity: int, rows: Sequence[int]) -> dict[int, int]:
        """Return the offsets of the buffers that are asked for."""
        with tempfile.TemporaryDirectory(prefix="planner-") as folder:
            asked, answered = Path(folder, "input.csv"), Path(folder, "output.csv")
            asked.write_text(table, encoding="utf-8")
            said = {INPUT: str(asked), "{output}": str(answered), "{capacity}": str(capacity)}
            arguments = [_filled(argument, said) for argument in self.arguments]
            try:
                done = subprocess.run(  # noqa: S603 - a person named it
                    arguments, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
                )
            except OSError as error:
                raise PlannerError(f"allocator {self.name!r} cannot be started: {error.strerror or error}") from None
            last = next(
                (line.strip() for line in reversed(done.stderr.decode(errors="replace").split("\n")) if line.strip()),
                "",
            )
            words = f"{': ' if last else ''}{last[:200]}"
            if done.returncode < 0:
                raise EndedError(self.name, signal_name(-done.returncode), last[:200])
            if not answered.exists() and done.returncode:
                raise CapacityError(f"allocator {self.name!r}: exit status {done.returncode}{words}")
            if not answered.exists():
                raise PlannerError(f"allocator {self.name!r} wrote no file{words}")
            return self._offsets(content(answered, refusal=self._refused).decode(errors="replace"), rows)

    def _refused(self, _source: str, _place: str, rule: str) -> PlannerError:
        """Return the error for an answer that is no file, or too long to be one."""
        return PlannerError(f"allocator {self.name!r} wrote a file that {rule}")

    def _offsets(self, text: str, rows: Sequence[int]) -> dict[int, int]:
        lines = [line.split(",") for line in text.splitlines() if line.strip()]
        names = [name.strip() for name in lines[0]] if lines else []
        if "offset" not in names or "id" not in names:
            raise PlannerError(f"allocator {self.name!r} wrote a file without columns 'id' and 'offset'")
        key, at = names.index("id"), names.index("offset")
        try:
            found = {int(line[key]): int(line[at]) for line in lines[1:]}
        except (IndexError, ValueError):
            raise PlannerError(
                f"allocator {self.name!r} wrote a line without whole numbers for 'id' and 'offset'"
            ) from None
        if found.keys() != set(rows):
            wrong = min(found.keys() ^ set(rows))
            what = "placed a buffer that was not asked for" if wrong in found else "left out a buffer"
            raise PlannerError(f"allocator {self.name!r} {what}: {wrong}")
        return found


def ids(names: Sequence[str], buffers: Sequence[int]) -> list[str]:
    """Return what buffers are called in a CSV file: their names where these are different words
    that a spreadsheet shows as they are, else their numbers.
    """
    plain = len(set(names)) == len(names) and all(re.fullmatch(r"[^\s,\"]+", name) and is_plain(name) for name in names)
    return list(names) if plain else [str(buffer) for buffer in buffers]


def _filled(argument: str, said: dict[str, str]) -> str:
    for mark, text in said.items():
        argument = argument.replace(mark, text)
    return argument


def _table(problem: Problem, rows: Sequence[int], stop: Sequence[int]) -> str:
    """Return the file that is asked."""
    columns = {
        "id": [str(buffer) for buffer in rows],
        "lower": [str(int(problem.start[buffer])) for buffer in rows],
        "upper": [str(stop[buffer]) for buffer in rows],
        "size": [str(int(problem.nbytes[buffer])) for buffer in rows],
        "alignment": [str(int(problem.program.buffers.alignment[buffer])) for buffer in rows],
        "gaps": [" ".join(f"{low}-{high}" for low, high in problem.gaps.get(buffer, ())) for buffer in rows],
    }
    optional = {"alignment": "1", "gaps": ""}
    told = {name: column for name, column in columns.items() if set(column) != {optional.get(name)}}
    lines = [list(told), *zip(*told.values(), strict=True)]
    return "".join(",".join(line) + "\n" for line in lines)


__all__ = ["INPUT", "CsvPlanner", "ids"]
