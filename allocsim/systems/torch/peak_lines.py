"""Makes lines of text about the memory of a recorded document: the peak and its lower bound, the
buffers alive at the peak with the reason for each, and the peaks of other plans and orders.

What this module does not see: faults of the plan. `allocsim check` finds these.
"""

from collections.abc import Iterator
from typing import Final

from allocsim.allocators import find
from allocsim.errors import PlannerError
from allocsim.files.sizes import in_bytes
from allocsim.liveness.holding import holding, reason
from allocsim.liveness.reordering import reordered
from allocsim.model import Document, Plan, Program

PLANNERS: Final = ("greedy_by_size", "xla_best_fit", "best_fit")
"""The planners that the recorded plan is compared with; all are fast for large programs."""


def lines_of(document: Document, most: int = 12) -> list[str]:
    """Return lines about a document's first plan, with at most `most` buffers alive at the peak."""
    plan = document.plans[0]
    problem = next(iter(document.problems), None)
    held = None if problem is None else holding(problem)
    if held is None or problem is None:
        return ["nothing was recorded"]
    program = plan.program
    peak = peak_bytes(plan)
    lines = [
        (
            f"{len(program.ops)} ops, {len(program.buffers)} blocks, {int(problem.own.sum())} of them allocated "
            "before the run and alive after it"
        ),
        f"needed     {in_bytes(held.needed)}, the most bytes that ops still need at one step",
        (
            f"held       {in_bytes(held.nbytes)}{_times(held.nbytes, held.needed)} at op "
            f"{held.step}{_place(program, held.step)}"
        ),
        f"addresses  {in_bytes(peak)}{_times(peak, held.needed)}",
        f"alive at op {held.step}: {len(held.buffers)} blocks; {in_bytes(held.idle)} of their bytes are not needed there",
    ]
    lines += [
        f"  {in_bytes(row.nbytes):>10}  {program.buffers.names[row.buffer]}: {reason(program, row)}"
        for row in held.buffers[:most]
    ]
    if len(held.buffers) > most:
        rest = sum(row.nbytes for row in held.buffers[most:])
        lines.append(f"  {in_bytes(rest):>10}  in {len(held.buffers) - most} more blocks")
    lines += _plans(program, peak)
    better = reordered(program, counted=~problem.own)
    if better is None:
        lines.append("order      not searched: the program has too many ops")
    elif better.found < better.given:
        lines.append(f"order      another order needs {in_bytes(better.found)}, this order {in_bytes(better.given)}")
    else:
        lines.append("order      a greedy search found no order that needs less")
    return lines


def peak_bytes(plan: Plan) -> int:
    """Return the sum over arenas of the highest end of a slot, in bytes."""
    ends = (plan.offset + plan.nbytes) * (plan.arena >= 0)
    return sum(int(ends[plan.arena == arena].max(initial=0)) for arena in range(len(plan.program.arenas)))


def _plans(program: Program, peak: int) -> Iterator[str]:
    """Yield one line: the lowest peak that a planner of `PLANNERS` has for the program. If a
    planner raises PlannerError, yield a line with the error instead.
    """
    found: list[tuple[int, str]] = []
    for name in PLANNERS:
        try:
            found.append((peak_bytes(find(name).plan(program)), name))
        except PlannerError as error:
            yield f"plan       not computed: {error}"
            return
    least, name = min(found)
    saved = f", {in_bytes(peak - least)} less than the addresses" if least < peak else ", no less than the addresses"
    yield f"plan       {name} needs {in_bytes(least)} for this order{saved}"


def _times(one: int, other: int) -> str:
    return f", {one / other:.2f} times the needed bytes" if other else ""


def _place(program: Program, step: int) -> str:
    at = program.ops.meta.get(step, {}).get("at")
    return f" ({program.ops[step].kind}{f', {at}' if at else ''})"


__all__ = ["PLANNERS", "lines_of", "peak_bytes"]
