"""The judge finds the defects of a program, its beliefs and its plans from bytes and steps alone
(detectors S, L and H).

    report = check(document)

Every check is one row of `CHECKS`. The file name of a check begins with the letter of its detector,
and the module docstring is its specification:

    S  s_slots      compares each slot with its buffer and its arena
       s_events     compares the planner's events with each other and with the slots
       s_dataflow   replays all runs twice and compares what every read finds (`s_script` lists the accesses, `owners` is the memory)
       s_writes     finds forbidden writes of ops (`s_in_place` has the in-place rule and the pairs that may share an address)
       s_overlap    finds buffers that share bytes while both live
       s_promises   compares a plan with its own problem
    L  l_beliefs    compares the beliefs of a planner with the program
    H  h_races      finds accesses without an order (`h_clocks` has the order, `h_pairs` the pairs)

The other modules serve the checks. `trial` numbers the runs and keeps the records. `accesses`,
`holes` and `intervals` have facts and joins that the checks share. `bound` measures sizes.
`violations` has the kinds and records. `facts` has the functions besides `check` that other
packages may call.

Each check examines the whole document and reports all defects of its kinds (`violations.KINDS`),
with witnesses. Checks share no code with planners: this package imports only numpy,
`allocsim.model` and `allocsim.errors`. The compiled screens in the folder `screens` make the checks
faster. The screens are passed in here, and only `selector` calls them to select the rows to
examine.

Records are listed by (run, step, kind), nulls first, with kinds in the order of `KINDS`. Records of
equal run, step and kind are in order of operand, value, buffer or event. At most `limit` violations
and `limit` warnings are listed, but all are counted. `count` is exact up to 10^6; beyond that,
`count` is a lower bound and `truncated` is set.

The judge does not examine the computations of kernels or the numbers in buffers. All checks follow
the ops in list order, except `h_races`. `h_races` checks whether every other legal order of the ops
gives the same reads.
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
"""The number of accesses of the programs for which the step limit grows by one step."""

UNMEASURED: Final = Stats(ops=0, buffers=0, peak_bytes=0, lower_bound_bytes=0)
"""The sizes in a report if the caller requested no sizes."""

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
        limit: the largest number of violations, and of warnings, that are listed; all are counted.
        of_each_kind: apply `limit` to each kind separately, so that no kind hides another.
        plain: use no screens, so that nothing is compiled; large documents then take longer. The
            report is the same.
        kinds: parsed JSON of a table of alias contracts by kind, for ops with `null` as
            `in_place` (`contract`).
        strict: count each `AssumedInPlace` as a violation, not as a warning.
        unbounded: examine every suspect, without a step limit. Otherwise at most `trial.WORK` steps
            are taken, plus one step for each `ACCESSES` accesses of the programs; the report lists
            the parts that were not examined (`unexamined`).
        sizes: whether to compute `stats`; if not, all sizes are 0.

    Returns:
        All defects found. The report is `clean` if there are no violations. In that case every read
        of every run finds the bytes that it would find with each buffer in memory of its own. If
        buffers have ranges of sizes, this is true at both ends of the ranges (`ends`).

    Raises:
        ModelError: `limit` is negative, `kinds` is not such a table, or the document exceeds a
            bound on time or memory, such as the number of byte runs of a value. The error is also
            raised if the steps are spent and no violation was found, because the document may still
            have a violation.

    O(accesses log accesses) for a clean document; other documents take O(defects) more time and
    O(limit) memory.
    """
    if limit < 0:
        raise ModelError("limit", f"{limit} is negative")
    if has_ranges(document):
        lists: dict[str, Any] = {"limit": limit, "of_each_kind": of_each_kind}
        how: dict[str, Any] = {"plain": plain, "kinds": kinds, "strict": strict, "unbounded": unbounded, "sizes": sizes}
        low, high = (check(at_end(document, end), **lists, **how) for end in (LOW, HIGH))
        return both(low, high, **lists)
    rows_of(kinds)
    work = None if unbounded else steps_for(document)
    case = TrialDocument(document, PLAIN if plain else SCREENED, kinds, work)
    findings = Findings(limit, strict=strict)
    return Report(**_judged(case, findings, of_each_kind=of_each_kind), stats=stats(case) if sizes else UNMEASURED)


def defects(document: Document, *, limit: int = 10_000, plain: bool = False) -> Defects:
    """Return the defects that `check` finds. No sizes are computed, and warnings are only counted,
    so that thousands of documents are judged quickly. If buffers have ranges of sizes, return the
    whole report of `check`.
    """
    if has_ranges(document):
        return check(document, limit=limit, plain=plain)
    case = TrialDocument(document, PLAIN if plain else SCREENED, work=steps_for(document))
    return Defects(**_judged(case, Findings(limit, warned=False)))


def steps_for(document: Document) -> int:
    """Return the number of steps that the judge may spend on the suspects of a document."""
    accesses = sum(len(program.ops.operands) + len(program.ops.results) for program in document.programs)
    return WORK + accesses // ACCESSES


def _judged(case: TrialDocument, findings: Findings, *, of_each_kind: bool = False) -> dict[str, Any]:
    """Run every check on a document, and return the fields of `Defects`."""
    for run in CHECKS.values():
        run(case, findings)
    count, unexamined = findings.count("violation"), tuple(case.work.unexamined)
    if unexamined and not count:
        left = "; ".join(unexamined)
        rule = f"there is no verdict: no violation was found, but these parts were not examined: {left}; --unbounded examines all"
        raise ModelError("runs", f"{rule}; the steps allowed for this check are spent")
    return {
        "violations": findings.listed("violation", of_each_kind=of_each_kind),
        "warnings": findings.listed("warning", of_each_kind=of_each_kind),
        "count": count,
        "truncated": findings.bounded or count > COUNT_LIMIT or bool(unexamined),
        "unexamined": unexamined,
        "counts": {kind: number for kind, number in findings.counts.items() if number},
    }
