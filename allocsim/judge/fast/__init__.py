"""The judge: what is wrong with a program, its beliefs and its plan, seen from bytes and steps
alone (detectors S, L and H).

    report = check(document)

Every check is one row of `CHECKS`. Its file begins with the letter of its detector and has its
specification in the header:

    S  s_slots      each slot against its buffer and its arena
       s_events     what a planner did, against itself and its slots
       s_dataflow   the pair of replays: what every read finds (`s_script` lists the accesses, `owners` is the memory)
       s_writes     what an op writes where it must not (`s_in_place` has the in-place rule and the pairs that may share an address)
       s_overlap    buffers laid over each other while both live
    L  l_beliefs    what a planner believed, against what the program does
    H  h_races      accesses that nothing orders (`h_clocks` has the order, `h_pairs` the pairs)

Beside them: `trial` numbers the runs and keeps the records, `accesses`, `holes` and `intervals` are
the facts and joins that checks share, `bound` measures sizes, `violations` is the vocabulary of a
report, `facts` is what the rest of the program may ask besides `check`.

Each check looks at the whole document and reports all defects of its kinds (`violations.KINDS`),
with witnesses. Checks share nothing with whatever made the plan: this package imports numpy,
`allocsim.model` and `allocsim.errors`, no more. What speeds it up stands above the checks in the
folder `screens`, is handed to them here, and is asked in one place where to look (`selector`).

Order: records are listed by (run, step, kind), nulls first, kinds in the order of `KINDS`; what
stands at one place is in order of operand, value, buffer or event. Violations and warnings are
listed up to `limit` each. Both are all found, listed or not: `count` is exact up to 10^6; beyond,
it is a lower bound and `truncated` is set.

What the judge does not see: kernels and numbers. All checks follow the order of the list but
`h_races`, which says whether any other is as good.
"""

from collections.abc import Callable
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.judge.fast.bound import stats
from allocsim.judge.fast.contract import KindsTable, rows_of
from allocsim.judge.fast.ends import HIGH, LOW, at_end, both, has_ranges
from allocsim.judge.fast.h_races import check_order
from allocsim.judge.fast.l_beliefs import check_beliefs
from allocsim.judge.fast.s_dataflow import check_dataflow
from allocsim.judge.fast.s_events import check_events
from allocsim.judge.fast.s_overlap import check_overlap
from allocsim.judge.fast.s_promises import check_promises
from allocsim.judge.fast.s_slots import check_slots
from allocsim.judge.fast.s_writes import check_writes
from allocsim.judge.fast.screens import COMPILED
from allocsim.judge.fast.selector import PLAIN, Selector
from allocsim.judge.fast.trial import COUNT_LIMIT, WORK, Findings, TrialDocument
from allocsim.judge.violations import KINDS, Defects, Report, Stats, Violation
from allocsim.model import Document

CHECKS: Final[dict[str, Callable[[TrialDocument, Findings], None]]] = {
    "slots": check_slots,
    "promises": check_promises,
    "beliefs": check_beliefs,
    "events": check_events,
    "dataflow": check_dataflow,
    "writes": check_writes,
    "overlap": check_overlap,
    "order": check_order,
}
"""Every check by name."""

ACCESSES: Final = 8
"""Accesses of the programs for each of which a step more may be taken."""

UNMEASURED: Final = Stats(ops=0, buffers=0, peak_bytes=0, lower_bound_bytes=0)
"""The sizes of a document where nobody asks for them."""

SCREENED: Final = Selector(COMPILED)

__all__ = ["CHECKS", "KINDS", "Defects", "Report", "Stats", "Violation", "check", "defects"]


def check(
    document: Document,
    *,
    limit: int = 10_000,
    of_each_kind: bool = False,
    plain: bool = False,
    kinds: KindsTable | None = None,
    strict: bool = False,
    unbounded: bool = False,
    sizes: bool = True,
) -> Report:
    """Judge every run and every belief of a document.

    Args:
        document: programs, problems, plans, and the runs to judge: its session, or each plan once
            on fresh memory.
        limit: how many violations, and how many warnings, are listed; the count is not affected.
        of_each_kind: the limit is one of each kind, so that none hides another.
        plain: nothing but this package decides; nothing is compiled, and large documents take
            longer. The report is the same.
        kinds: parsed JSON of a table that says what kernels promise where the document says `null`
            (`contract`).
        strict: an alias of which nobody knows whether the kernel allows it is a violation.
        unbounded: look at everything that may be wrong, however long it takes; else no more steps
            are taken than `trial.WORK` and one for each `ACCESSES` accesses of the programs, and
            the report says what it has not looked at (`unexamined`).
        sizes: whether `stats` are computed; else all of them are 0.

    Returns:
        All that was found. `clean` if there are no violations; then every read of every run finds
        the bytes it would find with each buffer in memory of its own. Where buffers have ranges of
        sizes, at both ends of them (`ends`).

    Raises:
        ModelError: `limit` is negative, the table is none, a value falls into more byte runs than
            are supported, or a bound on time or memory leaves open whether there is a violation:
            the steps are spent and none was found.

    O(accesses log accesses) for a clean document; O(defects) more for others, in memory O(limit).
    """
    if limit < 0:
        raise ModelError("limit", f"{limit} is negative")
    if has_ranges(document):
        low, high = (
            check(
                at_end(document, end),
                limit=limit,
                of_each_kind=of_each_kind,
                plain=plain,
                kinds=kinds,
                strict=strict,
                unbounded=unbounded,
                sizes=sizes,
            )
            for end in (LOW, HIGH)
        )
        return both(low, high, limit=limit, of_each_kind=of_each_kind)
    rows_of(kinds)
    work = None if unbounded else steps_for(document)
    case = TrialDocument(document, PLAIN if plain else SCREENED, kinds, work)
    findings = Findings(limit, strict=strict)
    return Report(**_judged(case, findings, of_each_kind=of_each_kind), stats=stats(case) if sizes else UNMEASURED)


def defects(document: Document, *, limit: int = 10_000, plain: bool = False) -> Defects:
    """Return what `check` finds, without sizes and with warnings that are counted and not listed:
    for who asks of thousands of documents whether they are sound.
    """
    if has_ranges(document):
        return check(document, limit=limit, plain=plain)
    case = TrialDocument(document, PLAIN if plain else SCREENED, work=steps_for(document))
    return Defects(**_judged(case, Findings(limit, warned=False)))


def steps_for(document: Document) -> int:
    """Return how many steps may be taken for what may be wrong with a document."""
    accesses = sum(len(program.ops.operands) + len(program.ops.results) for program in document.programs)
    return WORK + accesses // ACCESSES


def _judged(case: TrialDocument, findings: Findings, *, of_each_kind: bool = False) -> dict[str, Any]:
    """Let every check look at a document, and return the columns of what they found."""
    for run in CHECKS.values():
        run(case, findings)
    count, unexamined = findings.count("violation"), tuple(case.work.unexamined)
    if unexamined and not count:
        left = "; ".join(unexamined)
        rule = f"there is no verdict: nothing wrong was found, and not examined is {left}; --unbounded examines all"
        raise ModelError("runs", f"{rule}; the steps set for it are spent")
    return {
        "violations": findings.listed("violation", of_each_kind=of_each_kind),
        "warnings": findings.listed("warning", of_each_kind=of_each_kind),
        "count": count,
        "truncated": findings.bounded or count > COUNT_LIMIT or bool(unexamined),
        "unexamined": unexamined,
        "counts": {kind: number for kind, number in findings.counts.items() if number},
    }
