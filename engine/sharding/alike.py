"""Judge the plans of all ranks: one of those that are alike, or one document over all.

    report = judge_ranks([plan] * 1024, step.groups)
    report.clean, report.faults, report.report, report.judged

Ranks are alike where they have one program, one belief and one plan, by content. Where all are, and
each takes part in every group that the program names, one rank is judged: docs/sharding.md has the
argument. Programs with messages are never alike: of two ranks one brings and one takes. Else all
are joined, and of beliefs and planners' events nothing is said.

Complexity: O(ranks x columns) to compare (ranks that share the objects: O(ranks)), and the judge
once.

What this module does not see: what ranks compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b

import numpy as np

from allocsim.diagnostics import check
from allocsim.judge.violations import Report
from allocsim.model import Document, Plan, Problem, Program
from allocsim.programs.fingerprints import fingerprint
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import Groups, RankFault, collectives, is_message, meetings


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReport:
    """What was found in the plans of all ranks."""

    faults: tuple[RankFault, ...]
    """Collectives that do not match, and ranks that wait for each other."""
    report: Report | None
    """Of one rank for all, or of all joined; None where there are faults."""
    judged: int
    """Ranks that were judged: 1 where they are alike."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return self.report is not None and self.report.clean


def judge_ranks(plans: Sequence[Plan], groups: Groups) -> RanksReport:
    """Judge the plan of each rank; ModelError for groups that do not partition the ranks."""
    programs = {id(plan.program): plan.program for plan in plans}
    known = {key: _content(program) for key, program in programs.items()}
    distinct = {id(plan): plan for plan in plans}.values()
    seen = {(known[id(plan.program)], *_columns(plan), *_columns(plan.problem)) for plan in distinct}
    if len(seen) == 1 and _all_meet(plans[0], len(plans), groups):
        return RanksReport(faults=(), report=check(Document.of(plans[0])), judged=1)
    met = meetings([plan.program for plan in plans], groups)
    if met.faults:
        return RanksReport(faults=met.faults, report=None, judged=len(plans))
    return RanksReport(faults=(), report=check(joined(plans, groups)), judged=len(plans))


def _all_meet(plan: Plan, count: int, groups: Groups) -> bool:
    """Return whether each rank is in one part of every group that collectives name."""
    met = collectives(plan.program)
    named = {group for _, group in met}
    return not any(is_message(plan.program, step) for step, _ in met) and all(
        group in groups and sorted(rank for part in groups[group] for rank in part) == list(range(count))
        for group in named
    )


def _columns(told: Plan | Problem | None) -> tuple[bytes | str, ...]:
    """Return what a plan or a belief says beside its program, by content."""
    rows = [getattr(told, field.name) for field in fields(told)] if told is not None else []
    kept = [row for row in rows if not isinstance(row, Program | Problem)]
    return tuple(row.tobytes() if isinstance(row, np.ndarray) else repr(row) for row in kept)


def _content(program: Program) -> bytes:
    state = blake2b(fingerprint(program).encode(), digest_size=16)
    told = [(step, group, program.ops.meta[step].get("params")) for step, group in collectives(program)]
    state.update(repr(told).encode())
    return state.digest()
