"""`allocsim bisect NAME`: run a scenario, find its cure, and reduce the program.

The output has the same form as that for a file (`allocsim.cli.bisect`).

What this module does not see: how scenarios are bisected (`repro.bisection`).
"""

from typing import Any

from allocsim.cli.bisect import Bisected, cause_lines, cure_lines, in_short, smallest_entry, smallest_lines
from allocsim.cli.progress import stepping
from allocsim.reduction import Reduction, script
from repro import bisection, scenarios
from repro.options import EngineOptions


def bisect_scenario(name: str, sizes: dict[str, Any], seconds: float | None) -> Bisected:
    """Run a scenario with the options `sizes`, find its cure, and reduce it within `seconds`.

    Raises UnknownNameError for a name that is neither a file nor a scenario.
    """
    scenario = scenarios.find_beside_files(name)
    with stepping(name) as progress:
        done = bisection.bisect_scenario(scenario, EngineOptions(**sizes), seconds=seconds, progress=progress)
    first = done.verdict.joint[0] if done.verdict.joint else None
    if first is None:
        record = {"target": name, "found": False, "cause": None, "cure": None, "smallest": None}
        return Bisected(record=record, lines=[f"{done.scenario.name}: nothing is wrong with it"])
    cause = {"class": first.class_, "fault": first.party, "kind": None, "message": first.text}
    made, cure = done.evidence.cure, None
    if made is not None:
        cure = {
            "elements": list(made.elements),
            "bytes": made.nbytes,
            "pin_all_bytes": made.pin_all_bytes,
            "minimal": made.minimal,
            "trials": made.trials,
            "placement": sizes.get("allocator", "ggml"),
            "seconds": dict(done.seconds),
            "why_no_seconds": None,
        }
    reduced = done.reduced
    title = f"The smallest program found that has the fault of {name}."
    record = {
        "target": name,
        "found": cure is not None and reduced is not None,
        "cause": cause,
        "cure": cure,
        "smallest": None
        if reduced is None
        else smallest_entry(reduced.document, reduced, len(done.evidence.document.programs[0].ops)),
    }
    lines = [f"{done.scenario.name}: {in_short(cause)}{first.text}", *cure_lines(cure), *smallest_lines(record)]
    if isinstance(reduced, Reduction):
        return Bisected(
            record=record,
            lines=[*lines, *cause_lines(reduced)],
            smallest=reduced.document,
            test=script(reduced.document, title=title),
        )
    if isinstance(reduced, bisection.Smallest):
        seen = reduced.divergence
        op = reduced.document.programs[0].ops[seen.op]
        size = "not a number" if seen.max_error is None else f"{seen.max_error:.3g}"
        lines.append(
            f"  the plan is legal; op {seen.op} ({op.kind}) writes other bytes than with operands and results "
            f"disjoint, relative error {size}"
        )
        lines += [f"  {op.step:>4}  {op.kind} {op.name!r}" for op in reduced.document.programs[0].ops]
        return Bisected(
            record=record, lines=lines, smallest=reduced.document, test=bisection.kernel_test(reduced, title=title)
        )
    return Bisected(record=record, lines=lines)
