"""Run the detector P on a captured ggml graph: each op runs alone between red zones.

If an op makes a wrong access, each node with this op gets an incident.

Contract
--------
* `guarded(child, captured, seed)` runs the distinct ops of a captured plan on drawn elements
  (`allocsim.systems.ggml.k_audit.guarded_kernels`). The function returns incidents, all in the
  plan's first run, and the names of ops that are not examined.
* Two kinds of ops are reported as not examined: an op with more than `MOST_BYTES` of tensors, and
  an op that ggml refuses to run alone. An op that calls a function of the program is left out
  silently; `allocsim.systems.ggml.capture_evidence` reports it.
* The offsets of the plan are not used, so an incident does not depend on where the tensors are
  placed. K examines results that are placed over sources.
* A result that depends on the number of threads is no incident; `allocsim audit` reports it.

This module does not name the fault behind an incident; `allocsim.verdict` does.
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
"""The most bytes of an op's tensors; the op is run about twelve times, between red zones."""

INCIDENTS: Final[dict[str, Kind]] = {
    "Overrun": "Overrun",
    "OperandWritten": "OperandWritten",
    "ResultUnwritten": "ResultUnwritten",
    "UndeclaredRead": "UndeclaredRead",
    "OldRead": "UndeclaredRead",
    "Crash": "Crash",
}
"""The kind of a `Misdeed` -> the kind of incident that is reported for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPlan:
    """The rows and the plan of one program of a capture, and the offset of each root."""

    program: int
    """The index of the program in the document."""
    run: int
    """The index of the first run of the program."""
    rows: Rows
    plan: Plan
    offsets: dict[int, int]
    """Place of a root, leafs first -> its byte offset; a root outside the arenas has no entry."""
    steps: list[int | None]
    """For each node, its op in the program; None if the node is no op."""


def guarded(
    child: Child, captured: CapturedPlan, seed: int, *, threads: Sequence[int] = THREADS
) -> tuple[list[Incident], list[str]]:
    """Return the incidents in the order of steps, and the ops that were not examined, with reasons.
    Each op runs with one thread and with each number in `threads`.
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
