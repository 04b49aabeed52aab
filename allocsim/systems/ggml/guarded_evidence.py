"""P for a captured ggml graph: each op runs alone between red zones; a wrong access is an incident
of every node with this op.

Contract
--------
* `guarded(child, captured, seed)` runs the distinct ops of a captured plan
  (`allocsim.systems.ggml.k_audit.guarded_kernels`) on drawn elements, and returns incidents of the
  first run of the plan, and the names of ops that are not examined: those that call a function of
  the program, need more than `MOST_BYTES`, or are refused by ggml when run alone.
* The plan is not used: an incident is wrong wherever the tensors lie. Results over sources are
  examined by K.
* A dependence on the number of threads is no incident; `allocsim audit` reports it.

What this module does not see: the fault behind an incident (`allocsim.verdict`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from allocsim.model import Plan
from allocsim.p_sanitizer.incidents import Incident, Kind
from allocsim.programs.slots import position_of
from allocsim.systems.ggml.access.child import Child
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.k_audit.guarded_kernels import THREADS, Misdeed, SingleOp, guard_each, single_ops

MOST_BYTES: Final = 1 << 28
"""Of the tensors of one op, which is run a dozen times with as much round it."""

INCIDENTS: Final[dict[str, Kind]] = {
    "Overrun": "Overrun",
    "OperandWritten": "OperandWritten",
    "ResultUnwritten": "ResultUnwritten",
    "UndeclaredRead": "UndeclaredRead",
    "OldRead": "UndeclaredRead",
    "Crash": "Crash",
}
"""Misdeed -> kind of incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPlan:
    """Rows and plan of one program of a capture, and where the plan puts each root."""

    program: int
    """Which of the document's."""
    run: int
    """The first run of it."""
    rows: Rows
    plan: Plan
    offsets: dict[int, int]
    """Place of a root, leafs first, to its offset; roots in memory of their own are not in it."""
    steps: list[int | None]
    """Op of the program for each node."""


def guarded(
    child: Child, captured: CapturedPlan, seed: int, *, threads: Sequence[int] = THREADS
) -> tuple[list[Incident], list[str]]:
    """Return the incidents in the order of steps, and what was not examined; each op runs with one
    thread and with these.
    """
    ops = single_ops(captured.rows)
    small = [one for one in ops if _nbytes(one) <= MOST_BYTES]
    left_out = [f"{one.op} of {one.words} (more than {MOST_BYTES >> 20} MiB)" for one in ops if one not in small]
    incidents: list[Incident] = []
    ran = guard_each(child, small, seed=seed, threads=threads, reads=False)
    for one, found in zip(small, ran, strict=True):
        if found.refused:
            left_out.append(f"{one.op} of {one.words} ({found.refused})")
        for misdeed in found.misdeeds:
            incidents += _incidents(captured, one, misdeed)
    return sorted(incidents, key=lambda one: (one.run, one.op or 0)), left_out


def _nbytes(one: SingleOp) -> int:
    return sum(row["nbytes"] for row in (*one.rows["leafs"], *one.rows["nodes"]))


def _incidents(captured: CapturedPlan, one: SingleOp, misdeed: Misdeed) -> Iterator[Incident]:
    ops, values = captured.plan.program.ops, captured.plan.program.values
    for node in one.nodes if misdeed.kind in INCIDENTS else ():
        step = captured.steps[node]
        if step is None:
            continue
        value = ops[step].results[0]
        if misdeed.where.startswith("source "):
            position = position_of(ops, step, int(misdeed.where.split()[1]))
            value = value if position is None else ops[step].operands[position]
        buffer = int(values.buffer[value])
        inside = misdeed.kind not in {"Overrun", "Crash"}
        low = int(values.hulls[value][0]) + misdeed.start
        yield Incident(
            kind=INCIDENTS[misdeed.kind],
            run=captured.run,
            op=step,
            value=value,
            buffer=buffer,
            bytes=((low, low + misdeed.nbytes),) if inside and misdeed.nbytes else (),
            address=None if inside else low,
            message=f"{one.op.lower()} of {one.words}: {misdeed.words}",
        )


__all__ = ["CapturedPlan", "guarded"]
