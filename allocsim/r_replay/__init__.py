"""Detector R: what a plan allows beyond one run; each case is judged, and executed by an engine.

    for case in (*session_cases(plan), *program_cases(plan), *pin_cases(program, planner)):
        case.fits, judged(case)

| group | case | must hold |
|---|---|---|
| session | a second run, everything uploaded again | yes |
| session | accumulators reset in each run; in the first only | yes: state persists |
| session | all inputs uploaded once; each of them once | no: what is read late is found, the rest may be left out |
| program | an op reads another tensor of the same layout, whose last reader had run; the same ops in another legal order | no |
| shape | longer, shorter, more sequences, in the slots of the old one (`repro.r_replay` makes the programs) | no |
| pins | each single buffer pinned; each stage (`backward` and so on) pinned, and nothing else | yes |

`must hold` is what an honest planner and honest kernels owe; a finding there is a fault. The other
cases show what would happen: a plan is kept where `allocsim.fingerprint` says that it fits, and
where it does not, these are what it risks.

Invariants: deterministic; cases are made lazily, since planning costs more than judging. Names of
cases are unique within a program and plan.

Complexity: a session case is two runs to judge; a pin case is one plan to make and one run to
judge.

What this module does not see: kernels and numbers (`repro.r_replay` executes scenarios,
`engine.d_differential.execution` files).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from allocsim.diagnostics import check
from allocsim.errors import ModelError
from allocsim.model import HOST_WRITE, Document, Plan, Program, Role, Run
from allocsim.programs.fingerprints import fingerprint, same_program
from allocsim.verdict.attribution import leading
from allocsim.verdict.evidence import Origin

GROUPS: Final = ("session", "program", "shape", "pins")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayCase:
    """One session of a plan."""

    group: str
    name: str
    runs: tuple[Run, ...]
    promised: bool
    """Whether an honest planner and honest kernels owe that nothing goes wrong."""
    order: tuple[int, ...] | None = None
    """Where the last run's program has the ops of the plan's own in another order: its steps
    there.
    """

    @property
    def plan(self) -> Plan:
        """The plan whose slots all runs use."""
        return self.runs[0].plan

    @property
    def program(self) -> Program:
        """The program of the last run."""
        return self.runs[-1].program

    @property
    def fits(self) -> bool:
        """Whether the plan was made for the program that runs last."""
        return same_program(self.plan.program, self.program)

    @property
    def executed(self) -> tuple[Run, ...]:
        """The runs that are executed: all, if they are of one program.

        Else the last one twice, as if the others had never been.
        """
        last = self.runs[-1]
        same = all(run.program is last.program for run in self.runs)
        return self.runs if same else (last, last)

    @property
    def slots(self) -> Plan:
        """The slots as a plan of the last program, with room for what is larger than its slot.

        Raises ModelError for another number of buffers.
        """
        return slots_for(self.plan, self.program)


def slots_for(plan: Plan, program: Program) -> Plan:
    """Return the slots of a plan as one of another program, with room for what is larger than its
    slot.

    Raises ModelError for another number of buffers.
    """
    if plan.program is program:
        return plan
    if len(program.buffers) != len(plan.arena):
        raise ModelError("slots", f"{len(program.buffers)} buffers; the plan has {len(plan.arena)} slots")
    return replace(plan, program=program, problem=None, nbytes=np.maximum(plan.nbytes, program.buffers.nbytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """What S says of a case.

    The fields of the fault a verdict would name first, None where there is none.
    """

    count: int
    class_: str | None = None
    fault: str | None = None
    kind: str | None = None
    run: int | None = None
    message: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "status": "violations" if self.count else "clean",
            "count": self.count,
            "class": self.class_,
            "fault": self.fault,
            "kind": self.kind,
            "run": self.run,
            "message": self.message,
        }


def judged(case: ReplayCase) -> Static:
    """Ask S. As `allocsim.judge.fast.check`; a few times that where something is wrong."""
    document = Document.of(*case.runs)
    report = check(document, limit=1)
    if report.clean:
        return Static(count=0)
    first = leading(document)
    assert first is not None
    v = first.violation
    return Static(count=report.count, class_=first.class_, fault=first.fault, kind=v.kind, run=v.run, message=v.message)


def session_cases(plan: Plan) -> Iterator[ReplayCase]:
    """Yield what the host may do between two runs of the plan's own program."""
    program = plan.program
    inputs, resets = uploads(program)
    twice = (Run.of(plan), Run.of(plan))
    yield ReplayCase(group="session", name="second run", runs=twice, promised=True)
    if resets:
        yield ReplayCase(group="session", name="accumulators reset in each run", runs=twice, promised=True)
        again = Run.of(plan, skip=resets)
        yield ReplayCase(
            group="session", name="accumulators reset in the first run only", runs=(Run.of(plan), again), promised=True
        )
    if inputs:
        again = Run.of(plan, skip=inputs)
        yield ReplayCase(group="session", name="inputs uploaded once", runs=(Run.of(plan), again), promised=False)
    for step in inputs:
        again = Run.of(plan, skip=(step,))
        name = f"input {step} ({program.ops.called(step)}) uploaded once"
        yield ReplayCase(group="session", name=name, runs=(Run.of(plan), again), promised=False)


def uploads(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the steps of the `host.write` ops into inputs, and into state (resets)."""
    ops, buffers = program.ops, program.buffers
    inputs: list[int] = []
    resets: list[int] = []
    for step in np.flatnonzero(ops.is_kind(HOST_WRITE)).tolist():
        roles = {int(buffers.role[program.values.buffer[value]]) for value in ops[step].results}
        (resets if roles <= {int(Role.STATE), int(Role.PARAMETER)} else inputs).append(step)
    return tuple(inputs), tuple(resets)


def failed(row: dict[str, Any]) -> bool:
    """Whether the case of a line is one that must hold and does not."""
    return bool(row["promised"]) and (
        row["S"]["status"] == "violations" or row["D"]["status"] in {"differs", "refused"}
    )


def not_run(status: str, why: str | None) -> dict[str, Any]:
    """Return the numbers of a case that was not executed, or not to the end."""
    return {"status": status, "why": why, "first": None}


def numbers_of(program: Program, origin: Origin | None) -> dict[str, Any]:
    """Return the numbers of a case that was executed: whether, and where first, it is not what it
    is with every buffer apart.
    """
    if origin is None:
        return not_run("equal", None)
    op = program.ops[origin.op]
    first = {
        "run": origin.run,
        "op": origin.op,
        "name": op.name,
        "kind": op.kind,
        "what": origin.what,
        "ulp": origin.ulp,
        "relative": origin.max_error,
    }
    return {"status": "differs", "why": None, "first": first}


def row_of(case: ReplayCase, static: Static, numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a log for one case: what S says of it, and beside it the `numbers` of an
    execution.
    """
    problem = case.plan.problem
    return {
        "case": case.name,
        "group": case.group,
        "promised": case.promised,
        "fits": case.fits,
        "fingerprint": fingerprint(case.program, None if problem is None or case.group != "pins" else problem.pinned),
        "peak_bytes": case.plan.peak_bytes,
        "S": static.as_json(),
        "D": numbers,
    }


__all__ = [
    "GROUPS",
    "ReplayCase",
    "Static",
    "failed",
    "judged",
    "not_run",
    "numbers_of",
    "row_of",
    "session_cases",
    "uploads",
]
