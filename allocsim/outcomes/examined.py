"""For each detector: whether it ran, on what, and whether it found something.

The module also counts in-place ops that no kernel declares safe and no audit has found safe.

    examined = examination(evidence, report)
    examined["K"].state                     # "clean", "found" or "not run"

A detector that did not run gives no answer, neither good nor bad; `why` has the reason, and the
command that can run it, if there is one.

| | asks | ran if |
|---|---|---|
| S | whether bytes, slots and promises hold | there is a plan |
| L | whether beliefs cover the program | there is a problem |
| H | whether an order makes a race | some program has several streams, or runs overlap in time |
| P, D, K | what kernels do | there are measured rows |
| R | whether later runs hold | several runs go over the same memory |

What this module does not see: causes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from allocsim.judge.violations import Report, Violation
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Document, Plan, Program
from allocsim.programs.access_steps import side_by_side_values
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.report_facts import at_once, counts_of, streams

CLEAN, FOUND, NOT_RUN = "clean", "found", "not run"

DETECTORS: Final = "SLHPDKR"
"""Letters of all detectors, in the order in which they are listed."""

DIAGNOSE: Final = "(`allocsim diagnose FILE` tries)"
AUDIT_GGML: Final = "(`allocsim audit --ggml LIBRARY` measures ggml's; `allocsim diagnose FILE` runs a capture)"
NO_PLAN: Final = "no plan here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The answer of one detector."""

    state: str
    """`clean`, `found` or `not run`."""
    why: str = ""
    """Why the detector did not run; if it ran, what it could examine only in part."""
    of: str = ""
    """What the detector examined."""

    def as_json(self) -> dict[str, str]:
        """Return the entry of `examined` in `--json`."""
        return {"state": self.state, "why": self.why, "of": self.of}


def examination(evidence: Evidence, report: Report, whys: Mapping[str, str] | None = None) -> dict[str, Examined]:
    """Return letter -> the answer of the detector, in the order of `DETECTORS`.

    Args:
        evidence: the document judged, with the rows that were measured.
        report: the findings of S, L and H in its document.
        whys: letter -> why a detector without rows did not run, if that is known; for a detector
            that ran, what it could examine only in part.
    """
    document, whys = evidence.document, whys or {}
    runs, most, overlapping = len(document.runs), streams(document), at_once(document.runs)
    concurrent = [f"{most} streams"] * (most > 1) + [f"{overlapping} runs at once"] * (overlapping > 0)
    untold = "" if document.problems else ", of which nothing says when they live"
    ops = counted(report.stats.ops, "op") if report.stats.ops else counted(report.stats.buffers, "buffer") + untold
    believed = sum(len(problem.start) for problem in document.problems)
    rows = {
        "S": (ops, NO_PLAN),
        "L": (counted(believed, "believed buffer"), "no belief to compare with"),
        "H": (", ".join(concurrent), "one stream"),
        "P": (ops, f"nothing was executed {DIAGNOSE}"),
        "D": (ops if evidence.origins is not None else "what the host read", f"nothing was executed {DIAGNOSE}"),
        "K": (_audited(evidence), f"no audit of these kinds {AUDIT_GGML if _is_ggml(document) else DIAGNOSE}"),
        "R": (f"{runs} runs", "no run after another over its memory (`allocsim replay FILE` tries)"),
    }
    if not _kernels(document):
        rows |= {letter: (rows[letter][0], "no kernels in it") for letter in "PDK"}
    if not runs:
        rows |= {letter: (rows[letter][0], NO_PLAN) for letter in "HPDKR"}
    counts = counts_of(evidence, report) | ({} if runs else {"S": None})
    return {
        letter: Examined(state=FOUND if counts[letter] else CLEAN, of=of, why=whys.get(letter, ""))
        if counts[letter] is not None
        else Examined(state=NOT_RUN, why=whys.get(letter) or why)
        for letter, (of, why) in rows.items()
    }


def assumed_returns(document: Document) -> int:
    """Return how many blocks are assumed to be returned in an allocator's trace without a
    `returned` event (`allocsim.programs.allocator_trace`).
    """
    found = (program.meta.get("assumed_returns") for program in document.programs)
    return sum(count for count in found if isinstance(count, int) and count > 0)


def unseen(document: Document) -> tuple[str, ...]:
    """Return the facts that, an importer says, its file lacks: `unseen` in a program's `meta`."""
    rows = (program.meta.get("unseen") for program in document.programs)
    return tuple(dict.fromkeys(str(text) for row in rows if isinstance(row, (list, tuple)) for text in row))


def unaudited(evidence: Evidence) -> tuple[str, ...]:
    """Return the kinds of ops that run in place in some run and that the audit, if there was one,
    did not cover.

    An op whose results lie apart from its operands needs no audit.
    """
    if evidence.audit is None:
        return ()
    known = {row.kind for row in evidence.audit}
    pairs = {(id(run.program), id(run.plan)): (run.program, run.plan) for run in evidence.document.runs}
    found = {kind for program, plan in pairs.values() for kind in _kinds_in_place(program, plan)}
    return tuple(sorted(found - known))


def _kinds_in_place(program: Program, plan: Plan) -> set[str]:
    """Return the kinds of ops with a result whose hull the plan lays over that of an operand in
    another buffer. A mutation does not count, for the program demands it, nor does a `same`, whose
    move no kernel can spoil.
    """
    ops, values = program.ops, program.values
    space = np.where(plan.placed, plan.arena, len(program.arenas) + np.arange(len(plan.arena)))
    low, high = values.hulls.T + np.where(plan.placed, plan.offset, 0)[values.buffer]
    op, source, target = side_by_side_values(ops, ~(ops.is_kind(VIEW) | program.same_ops))
    meets = (space[values.buffer[source]] == space[values.buffer[target]]) & (
        values.buffer[source] != values.buffer[target]
    )
    meets &= (low[source] < high[target]) & (low[target] < high[source])
    return {ops.kinds[kind] for kind in np.unique(ops.kind[op[meets]]).tolist()}


def _audited(evidence: Evidence) -> str:
    audited = len({row.kind for row in evidence.audit or ()})
    missing = len(unaudited(evidence))
    whole = counted(audited + missing, "kind") + " of kernels"
    return f"{audited:,} of {whole}" if missing else whole


def unvouched(evidence: Evidence, report: Report) -> int:
    """Return the number of ops that run in place although no kernel declares it and no audit has
    found it safe; each op of a program counts once if the report lists all of them.
    """
    safe = {row.kind for row in evidence.audit or () if row.measured == "safe"}
    programs = evidence.document.programs
    assumed = [v for v in report.warnings if v.kind == "AssumedInPlace"]
    if len(assumed) < report.counts.get("AssumedInPlace", 0):
        return report.counts["AssumedInPlace"]
    return len({(v.program, v.op) for v in assumed if _kind(programs[v.program or 0], v) not in safe})


def kept_outside(document: Document) -> tuple[int, int]:
    """Return the number of buffers, and of bytes, that plans in use keep in memory of their own
    although no problem demands it.
    """
    plans = {id(run.plan): run.plan for run in document.runs}.values()
    buffers = nbytes = 0
    for plan in plans:
        told = plan.program.buffers.persistent if plan.problem is None else plan.problem.own
        outside = (plan.arena == -1) & ~told & (plan.program.buffers.nbytes > 0)
        buffers += int(outside.sum())
        nbytes += sum(plan.program.buffers.nbytes[outside].tolist())
    return buffers, nbytes


def as_json(examined: Mapping[str, Examined]) -> dict[str, Any]:
    """Return the object `examined` of `--json`."""
    return {letter: row.as_json() for letter, row in examined.items()}


def counted(count: int, noun: str) -> str:
    """Return `1 cause`, `2 causes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _kernels(document: Document) -> bool:
    """Return whether some op is neither a view nor an op of the host."""
    return any(set(program.ops.kinds) - {VIEW, HOST_READ, HOST_WRITE} for program in document.programs)


def _is_ggml(document: Document) -> bool:
    """Return whether ggml made a plan of the document and has a kernel for every kind in it."""
    if not any(plan.source.split(" ")[0] == "ggml" for plan in document.plans):
        return False
    from allocsim.allocators import ggml_kinds  # noqa: PLC0415 - imports every planner

    kinds = {kind for program in document.programs for kind in program.ops.kinds} - {VIEW, HOST_READ, HOST_WRITE}
    return kinds <= ggml_kinds.KINDS


def _kind(program: Program, v: Violation) -> str | None:
    return None if v.op is None else program.ops.kinds[program.ops.kind[v.op]]


__all__ = [
    "CLEAN", "DETECTORS", "FOUND", "NOT_RUN", "NO_PLAN", "Examined", "as_json", "assumed_returns", "counted", "examination", "kept_outside", "unaudited", "unseen", "unvouched",
]  # fmt: skip
