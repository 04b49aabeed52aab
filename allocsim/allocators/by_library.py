"""Planners as shared libraries, by a C interface of four functions: `lib:./planner.so`.

    planner = find_library("lib:./planner.so")
    plan = planner.plan(program, constraints)

The interface is `docs/planners/allocsim_planner.h`: `allocsim_open(version)` once in a process,
`allocsim_plan(planner, problem, offsets)` for each question, `allocsim_why(planner)` where the
answer is no plan, `allocsim_close(planner)`. The problem is in columns that the library may read
while it is asked; it writes an offset for each buffer. The lifetimes are the exact ones
(`allocsim.allocators.exact`), or those of the problem at hand.

Many programs that are joined as one (`plan_parts`) are believed at once and asked one after
another, so that a question costs a call of C and little more.

Raises PlannerError for what is no answer, CapacityError for a refusal. What this module does not
see: whether a plan is sound. A library runs in this process and can do whatever it likes to it:
`allocsim.fuzzing.target` has a process for that.
"""

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.allocators import exact
from allocsim.allocators.constraints import Constraints
from allocsim.allocators.planner import a_plan
from allocsim.errors import CapacityError, PlannerError
from allocsim.model import OWN, UNPLACED, Plan, Problem, Program
from allocsim.model.layout import Int64s

PREFIX: Final = "lib:"

VERSION: Final = 1

FUNCTIONS: Final = ("allocsim_open", "allocsim_plan", "allocsim_why", "allocsim_close")

PLANNED, REFUSED = 0, 1

COLUMNS: Final = ("start", "stop", "nbytes", "alignment", "arena", "fixed", "order", "pinned", "own")
"""With a row for each buffer."""

TABLES: Final = ("may_share", "gap", "capacity", "granule")


class _Asked(ctypes.Structure):
    """`struct allocsim_problem`; pointers as numbers, which is quicker to fill."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("buffers", "steps", "arenas", "pairs", "gaps")),
        *((name, ctypes.c_void_p) for name in (*COLUMNS, *TABLES)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """A problem of one program or of many in turn, as the library reads it.

    What a program has of each column lies between two entries of `starts`.
    """

    columns: dict[str, Any]
    """Contiguous arrays by name: int64, but bytes for masks."""
    starts: dict[str, Int64s]
    steps: Int64s

    @classmethod
    def of(cls, problem: Problem, op_starts: Int64s, buffer_starts: Int64s, arenas: int) -> "_Columns":
        """Return the columns, with numbers of steps, buffers and arenas that begin at 0 in each
        program. O(columns log columns).
        """
        program, count = problem.program, len(problem.program.buffers)
        parts = len(buffer_starts) - 1
        owner = np.repeat(np.arange(parts), np.diff(buffer_starts))
        low, high, first = op_starts[owner], op_starts[owner + 1], buffer_starts[owner]
        start = np.clip(problem.start, low, high) - low if parts > 1 else problem.start
        stop = np.clip(problem.stop, low, high) - low if parts > 1 else problem.stop
        order = problem.order if parts == 1 else np.lexsort((start, owner))
        donors = owner[problem.may_share[:, 0]]
        pairs = problem.may_share[np.argsort(donors, kind="stable")]
        rows = sorted((buffer, *gap) for buffer, gaps in problem.gaps.items() for gap in gaps)
        gap = np.array(rows, dtype=np.int64).reshape(-1, 3)
        gap_owner = owner[gap[:, 0]]
        gap[:, 0] -= buffer_starts[gap_owner]
        gap[:, 1:] -= op_starts[gap_owner, None]
        fixed = np.full(count, -1, dtype=np.int64)
        fixed[list(problem.fixed)] = list(problem.fixed.values())
        capacity = [-1 if arena.capacity is None else arena.capacity for arena in program.arenas]
        found = {
            "start": start,
            "stop": stop,
            "nbytes": problem.nbytes,
            "alignment": program.buffers.alignment,
            "arena": program.buffers.arena - arenas * owner,
            "fixed": fixed,
            "order": order - first[order] if count else order,
            "may_share": pairs - buffer_starts[owner[pairs]] if len(pairs) else pairs,
            "gap": gap,
            "capacity": capacity,
            "granule": [arena.alignment for arena in program.arenas],
        }
        # copies: what the library writes into them is its own, never the program's
        columns = {name: np.array(column, dtype=np.int64, order="C") for name, column in found.items()}
        masks = {name: np.array(getattr(problem, name), dtype=np.uint8) for name in ("pinned", "own")}
        ends = np.arange(parts + 1)
        return cls(
            columns=columns | masks,
            starts={
                **dict.fromkeys(COLUMNS, buffer_starts),
                "may_share": np.searchsorted(np.sort(donors), ends),
                "gap": np.searchsorted(gap_owner, ends),
                "capacity": ends * arenas,
                "granule": ends * arenas,
            },
            steps=np.diff(op_starts),
        )

    def asked(self) -> Iterator[_Asked]:
        """Yield one problem after another, in the same memory."""
        problem = _Asked()
        named = [
            (name, self.columns[name].ctypes.data, self.columns[name].strides[0], self.starts[name].tolist())
            for name in (*COLUMNS, *TABLES)
        ]
        counts = {
            "buffers": np.diff(self.starts["start"]).tolist(),
            "steps": self.steps.tolist(),
            "arenas": np.diff(self.starts["capacity"]).tolist(),
            "pairs": np.diff(self.starts["may_share"]).tolist(),
            "gaps": np.diff(self.starts["gap"]).tolist(),
        }
        for part in range(len(self.steps)):
            for name, number in counts.items():
                setattr(problem, name, number[part])
            for name, base, row, begins in named:
                setattr(problem, name, base + row * begins[part])
            yield problem


@dataclass(slots=True, kw_only=True, eq=False)
class LibraryPlanner:
    """A library that is loaded; its planner is opened when it is first asked, in each process."""

    name: str
    library: Any = field(repr=False)
    planner: int | None = None
    owner: int = 0
    """The process that opened it."""

    def plan(self, program: Program, constraints: Constraints | None = None) -> Plan:
        """Return the plan the library answers. The belief it is given is the exact one."""
        return self.place(exact.believe(program, constraints if constraints is not None else Constraints.of(program)))

    def place(self, problem: Problem) -> Plan:
        """Return the plan the library answers to a belief."""
        ops, buffers = (np.array([0, len(table)]) for table in (problem.program.ops, problem.program.buffers))
        return self._answered(problem, ops, buffers, len(problem.program.arenas))

    def plan_parts(
        self, program: Program, constraints: Constraints, *, op_starts: Int64s, buffer_starts: Int64s, arenas: int
    ) -> Plan:
        """Return one plan of many programs that are joined as one, disjoint in ops, buffers and
        arenas, of which each has `arenas`; each is asked for by itself.

        Raises what the first one raises that gets no plan.
        """
        return self._answered(exact.believe(program, constraints), op_starts, buffer_starts, arenas)

    def close(self) -> None:
        """Close the planner. Safe to call twice."""
        planner, self.planner = self.planner, None
        if planner is not None and self.owner == os.getpid():
            self.library.allocsim_close(planner)

    def _answered(self, problem: Problem, op_starts: Int64s, buffer_starts: Int64s, arenas: int) -> Plan:
        program = problem.program
        asked = _Columns.of(problem, op_starts, buffer_starts, arenas)
        offset = np.full(len(program.buffers) + 1, UNPLACED, dtype=np.int64)
        planner, ask, at = self._opened(), self.library.allocsim_plan, offset.ctypes.data
        for question, first in zip(asked.asked(), buffer_starts.tolist(), strict=False):
            status = ask(planner, ctypes.byref(question), at + 8 * first)
            if status != PLANNED:
                raise self._no_plan(planner, status)
        offset = offset[:-1]
        wrong = np.flatnonzero(offset < UNPLACED)
        if len(wrong):
            buffer = int(wrong[0])
            raise PlannerError(f"allocator {self.name!r} put buffer {buffer} at {int(offset[buffer])}")
        apart = (offset == OWN) | (problem.own & (offset == UNPLACED))
        inside = offset >= 0
        plan = Plan(
            program=program,
            arena=np.where(inside, program.buffers.arena, np.where(apart, OWN, UNPLACED)).astype(np.int32),
            offset=np.where(inside, offset, 0),
            nbytes=np.where(inside, program.buffers.nbytes, 0),
        )
        return a_plan(self.name, program, plan)

    def _no_plan(self, planner: int, status: int) -> PlannerError:
        said = self.library.allocsim_why(planner)
        why = " ".join((said or b"").decode(errors="replace").split())[:200] or "it did not say why"
        if status == REFUSED:
            return CapacityError(f"allocator {self.name!r}: {why}")
        return PlannerError(f"allocator {self.name!r} returned {status}, which is neither a plan nor a refusal: {why}")

    def _opened(self) -> int:
        if self.planner is None or self.owner != os.getpid():
            planner = self.library.allocsim_open(VERSION)
            if not planner:
                raise PlannerError(f"allocator {self.name!r} does not know version {VERSION} of the interface")
            self.planner, self.owner = planner, os.getpid()
        return self.planner


def find_library(name: str) -> LibraryPlanner:
    """Return the planner that a shared library is.

    Raises PlannerError where there is no such library, or one of its four functions is missing.
    """
    path = Path(name.removeprefix(PREFIX)).resolve()
    if not path.is_file():
        raise PlannerError(f"allocator {name!r} names no file")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise PlannerError(f"allocator {name!r} cannot be loaded: {' '.join(str(error).split())[:200]}") from None
    missing = [function for function in FUNCTIONS if not hasattr(library, function)]
    if missing:
        raise PlannerError(f"allocator {name!r} has no function {missing[0]}; {', '.join(FUNCTIONS)} are needed")
    library.allocsim_open.restype, library.allocsim_open.argtypes = ctypes.c_void_p, [ctypes.c_int64]
    library.allocsim_plan.restype = ctypes.c_int64
    library.allocsim_plan.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.allocsim_why.restype, library.allocsim_why.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    library.allocsim_close.restype, library.allocsim_close.argtypes = None, [ctypes.c_void_p]
    return LibraryPlanner(name=name, library=library)


__all__ = ["PREFIX", "LibraryPlanner", "find_library"]
