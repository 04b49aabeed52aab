"""`Run`, one execution of a program, and `Document`, the programs, plans and runs for the judge.

Runs are numbered by their place in the session, and every part they refer to is in one document.
Constructors check that, and raise `ModelError` with the place as a document spells it.

What this module does not see: files (`allocsim.document`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.html_table import table_of
from allocsim.model.assignment import Plan
from allocsim.model.belief import Problem
from allocsim.model.computation import NEWEST, Program
from allocsim.model.tables import DEFAULT_ARENAS, HOST_WRITE, Arena, Meta
from allocsim.model.wellformed import NEEDS_VERSION_2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """One execution in a session: a program with the slots of a plan, possibly made for another
    program.
    """

    plan: Plan
    program: Program
    skip: tuple[int, ...] = ()
    """Steps of `host.write` ops that the host leaves out of this run."""
    after: tuple[int, ...] | None = None
    """Earlier runs of the session that this run waits for; None is all of them."""
    read_after: int | None = None
    """A later run, after which the `host.read` ops of this run read memory; None if they read it at
    their own place.
    """
    meta: Meta = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, *, program: Program | None = None, meta: Meta | None = None, **rest: Any) -> "Run":
        """Run `plan` on its own program unless another is given; `rest` are the other fields."""
        return cls(plan=plan, program=program if program is not None else plan.program, meta=meta or {}, **rest)


def waited_for(runs: Sequence[Run]) -> list[int]:
    """Return for each run the runs that it waits for, transitively, as a set of bits: bit k is run
    k. O(runs x (runs + runs named) / 64) time, runs^2 / 8 bytes of memory.
    """
    found: list[int] = []
    for index, run in enumerate(runs):
        known = (1 << index) - 1 if run.after is None else 0
        for earlier in run.after or ():
            known |= 1 << earlier | found[earlier]
        found.append(known)
    return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Document:
    """Programs, problems, plans and the session: all the data that a check reads."""

    programs: tuple[Program, ...]
    problems: tuple[Problem, ...] = ()
    plans: tuple[Plan, ...] = ()
    session: tuple[Run, ...] | None = None
    """Runs in order over the same memory; if None, each plan runs once on fresh memory."""
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_parts(self)
        _check_persistent(self.programs)
        for index, run in enumerate(self.session or ()):
            _check_run(f"session[{index}]", index, run, len(self.session or ()))

    def __repr__(self) -> str:
        parts = (len(self.programs), len(self.problems), len(self.plans), len(self.runs))
        return "Document({} programs, {} problems, {} plans, {} runs)".format(*parts)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002, FBT001 - the protocol of pretty printers
        """Print the document in one line, for IPython and Hypothesis."""
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        """Return a table of the first runs, which a notebook shows."""
        rows = (
            (number, run.program.name, len(run.program.ops), run.plan.source, run.plan.peak_bytes)
            for number, run in enumerate(self.runs)
        )
        return table_of(repr(self), ("run", "program", "ops", "plan by", "peak bytes"), rows, len(self.runs))

    @property
    def arenas(self) -> tuple[Arena, ...]:
        """The arenas, which all programs share."""
        return self.programs[0].arenas if self.programs else DEFAULT_ARENAS

    @property
    def version(self) -> int:
        """The version of the document that all programs follow."""
        return self.programs[0].version if self.programs else NEWEST

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The session, or one run for each plan."""
        return self.session if self.session is not None else tuple(Run.of(plan) for plan in self.plans)

    @classmethod
    def of(cls, *parts: Plan | Problem | Program | Run) -> "Document":
        """Gather plans, problems, programs and runs, with all they refer to, into one document.

        If there are runs, they become the session.
        """
        seen: dict[int, Any] = {}

        def add(part: Any) -> None:
            if part is None or id(part) in seen:
                return
            for name in ("program", "problem", "plan"):
                add(getattr(part, name, None))
            seen[id(part)] = part

        for part in parts:
            add(part)
        found = list(seen.values())
        runs = tuple(part for part in parts if isinstance(part, Run))
        return cls(
            programs=tuple(part for part in found if isinstance(part, Program)),
            problems=tuple(part for part in found if isinstance(part, Problem)),
            plans=tuple(part for part in found if isinstance(part, Plan)),
            session=runs or None,
        )

    def with_parts(
        self,
        *,
        programs: Sequence[Program] | None = None,
        problems: Sequence[Problem] | None = None,
        plans: Sequence[Plan] | None = None,
    ) -> "Document":
        """Return the document with new parts, one for each old one; references between parts are
        updated. A part that refers to no new part is kept as the same object.
        """
        program_of = dict(zip(map(id, self.programs), self.programs if programs is None else programs, strict=True))
        problem_of = {
            id(old): _referring(new, program=program_of[id(old.program)])
            for old, new in zip(self.problems, self.problems if problems is None else problems, strict=True)
        }
        plan_of = {
            id(old): _referring(new, program=program_of[id(old.program)], problem=problem_of.get(id(old.problem)))
            for old, new in zip(self.plans, self.plans if plans is None else plans, strict=True)
        }
        session = self.session and tuple(
            _referring(run, plan=plan_of[id(run.plan)], program=program_of[id(run.program)]) for run in self.session
        )
        return replace(
            self,
            programs=tuple(program_of.values()),
            problems=tuple(problem_of.values()),
            plans=tuple(plan_of.values()),
            session=session,
        )


def _referring(part: Any, **to: Any) -> Any:
    """Return a part that refers to the parts `to`; the part itself if it already does."""
    return part if all(getattr(part, name) is other for name, other in to.items()) else replace(part, **to)


def index_of(items: tuple[Any, ...], item: object) -> int:
    """Return the position of `item` in `items` by identity; raise ModelError if it is not there."""
    for index, candidate in enumerate(items):
        if candidate is item:
            return index
    raise ModelError("", f"{type(item).__name__.lower()} is not part of the document")


def _check_parts(document: Document) -> None:
    """Raise ModelError unless all parts refer to parts of the document, and all programs have equal
    arenas and versions.
    """
    for index, program in enumerate(document.programs):
        if program.arenas != document.programs[0].arenas:
            raise ModelError(f"programs[{index}]", "has other arenas than the first program")
        if program.version != document.version:
            rule = f"is of version {program.version}; the first program is of version {document.version}"
            raise ModelError(f"programs[{index}]", rule)
    programs = {id(program) for program in document.programs}
    problems = {id(problem) for problem in document.problems}
    plans = {id(plan) for plan in document.plans}
    for index, problem in enumerate(document.problems):
        _part(f"problems[{index}].program", problem.program, programs)
    for index, plan in enumerate(document.plans):
        _part(f"plans[{index}].program", plan.program, programs)
        if plan.problem is not None:
            _part(f"plans[{index}].problem", plan.problem, problems)
    for index, run in enumerate(document.session or ()):
        _part(f"session[{index}].plan", run.plan, plans)
        _part(f"session[{index}].program", run.program, programs)


def _part(place: str, part: object, known: set[int]) -> None:
    if id(part) not in known:
        raise ModelError(place, "is not part of the document")


def _check_run(place: str, index: int, run: Run, runs: int) -> None:
    """Raise ModelError unless a run fits its plan, leaves out only uploads, and waits only for
    earlier runs.
    """
    made_for, found = len(run.plan.program.buffers), len(run.program.buffers)
    if made_for != found:
        raise ModelError(f"{place}.program", f"has {found} buffers; the plan was made for a program with {made_for}")
    for name, given in (("after", run.after), ("read_after", run.read_after)):
        if given is not None and run.program.version < 2:
            raise ModelError(f"{place}.{name}", NEEDS_VERSION_2)
    _check_skipped(place, run)
    for position, earlier in enumerate(run.after or ()):
        _check_other(f"{place}.after[{position}]", earlier, runs)
        if earlier >= index:
            raise ModelError(f"{place}.after[{position}]", f"run {earlier} is not earlier than run {index}")
    if run.read_after is not None:
        _check_other(f"{place}.read_after", run.read_after, runs)
        if run.read_after <= index:
            raise ModelError(f"{place}.read_after", f"run {run.read_after} is not later than run {index}")


def _check_other(place: str, run: int, runs: int) -> None:
    """Raise ModelError unless run `run` exists."""
    if not 0 <= run < runs:
        raise ModelError(place, f"run {run} does not exist; there are {runs}")


def _check_skipped(place: str, run: Run) -> None:
    """Raise ModelError unless all ops that a run leaves out are uploads of its program."""
    uploads = run.program.ops.is_kind(HOST_WRITE)
    for position, step in enumerate(run.skip):
        if not 0 <= step < len(uploads):
            raise ModelError(f"{place}.skip[{position}]", f"op {step} does not exist; there are {len(uploads)}")
        if not uploads[step]:
            raise ModelError(f"{place}.skip[{position}]", f"op {step} is no host.write")


def _check_persistent(programs: tuple[Program, ...]) -> None:
    """Raise ModelError unless persistent buffers of one name have one size and one range of sizes,
    for they are one buffer.
    """
    sizes: dict[str, tuple[int, int, tuple[int, int] | None]] = {}
    for index, program in enumerate(programs):
        buffers = program.buffers
        rows = np.flatnonzero(buffers.persistent)
        for buffer, nbytes in zip(rows.tolist(), buffers.nbytes[rows].tolist(), strict=True):
            name, ends = buffers.names[buffer], buffers.nbytes_range.get(buffer)
            first, known, range_known = sizes.setdefault(name, (index, nbytes, ends))
            if (known, range_known) == (nbytes, ends):
                continue
            place = f"programs[{index}].buffers[{buffer}]"
            if known != nbytes:
                raise ModelError(
                    f"{place}.nbytes", f"{nbytes}; the persistent buffer {name!r} has {known} in programs[{first}]"
                )
            rule = f"{_ends(ends)}; the persistent buffer {name!r} has {_ends(range_known)} in programs[{first}]"
            raise ModelError(f"{place}.nbytes_range", rule)


def _ends(ends: tuple[int, int] | None) -> str:
    return "none" if ends is None else f"[{ends[0]}, {ends[1]}]"
