"""Outcomes: the result of judging one file, for the command line, tests and CI.

    outcome = judge_file("plan.json", known=baseline.read("known.json"), max_peak=1 << 30)
    junit.dumps([outcome]); sarif.dumps([outcome]); baseline.dumps([outcome])

A file is a document, a file of another format, or a folder of evidence. It is judged once, and
every command, test and report shows the same outcome: its causes, the violations under them, and
the detectors that ran.

An outcome *passes* if every violation is known, all violations are listed, no kernel is at fault,
no read of a replay differs without a cause, and the peak is within its limit. A file *cannot be
judged* (`status` 2) if it cannot be read, if it has no plan (wrong beliefs are reported all the
same), or if a required detector did not run.

A *fingerprint* names a fault by its cause: kind, class and party, and the names and kinds of the
ops and buffers involved. It contains no index, address, run, size or file, so it stays the same
when a program grows, is planned anew or is numbered otherwise, and changes only with names. Two
faults with the same names have one fingerprint; without names, only kinds of ops tell faults apart.

What this module does not see: the terminal and files.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from allocsim.collector import paused
from allocsim.diagnostics import told
from allocsim.errors import AllocsimError, os_error_line
from allocsim.files.gate import INPUT
from allocsim.html_table import table_of
from allocsim.judge.fast import check
from allocsim.judge.fast.facts import KindsTable
from allocsim.judge.violations import Report, Violation
from allocsim.model import Document, Program
from allocsim.opaque import UNASKED, ReplayAnswer, told_by_replay
from allocsim.outcomes.examined import NOT_RUN, Examined, examination, unvouched
from allocsim.outcomes.examined import as_json as examined_json
from allocsim.outcomes.plain_report import plain_report
from allocsim.systems import folder_format, load
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.evidence import load as load_evidence
from allocsim.verdict.records import Cause, Verdict

if TYPE_CHECKING:  # a clean document is neither charged, nor cured, nor judged twice
    from allocsim.outcomes.confirmation import Confirmation
    from allocsim.verdict.attribution import Charge

FINGERPRINT_BYTES = 16

LISTED: Final = 10_000
"""Most violations of each kind from which causes are found; by default also the most that a report
lists in all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledViolation:
    """A violation with its cause, and whether it was known before."""

    cause: "Charge"
    fingerprint: str
    known: bool
    kind_of_op: str | None
    """Kind of the op that the violation names."""
    program: str | None
    """Name of its program."""

    @property
    def violation(self) -> Violation:
        """The violation as the judge reports it."""
        return self.cause.violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result for one file, which was judged or could not be read."""

    file: str
    document: Document | None = None
    """The document judged; None if the file could not be read."""
    evidence: Evidence | None = None
    """The document with its measurements."""
    report: Report | None = None
    """The judge's report; None if the file could not be read."""
    findings: tuple[FiledViolation, ...] = ()
    """The listed violations, in the report's order."""
    causes: tuple[Cause, ...] = ()
    """The causes found, most important first."""
    examined: Mapping[str, Examined] = field(default_factory=dict)
    """Letter -> the answer of each detector."""
    unvouched: int = 0
    """Number of in-place ops that no kernel declares safe and no audit has found safe."""
    error: str | None = None
    failed: str | None = None
    """An error of allocsim, not of the file, because of which violations have no causes; None if
    there is none.
    """
    confirmation: "Confirmation | None" = None
    """The plain judge's answer on the listed violations; None if it was not asked."""
    max_peak: int | None = None
    """The most bytes that the plan may need; None for no limit."""
    required: str = ""
    """Letters of the detectors that must have run."""
    replay: ReplayAnswer | None = None
    """The result of a run with opaque kernels for the causes; None if there was none."""
    executed_by: str = ""
    """The kernels that P, D and K ran, and on which data, if they may differ from the kernels of
    the planner's system.
    """

    def _repr_html_(self) -> str:
        """Return a table of the causes with their cures, which a notebook shows."""
        from allocsim.outcomes.cause_table import rows  # noqa: PLC0415 - it reads outcomes

        found = [(row.number, row.class_, row.party, row.first, row.evidence, row.cure) for row in rows([self])]
        heads = ("cause", "class", "party", "first", "what happened", "cure")
        return table_of(
            f"{self.file}: {self.status} (0 nothing found, 1 found, 2 not judged)", heads, found, len(found)
        )

    @property
    def over_peak(self) -> bool:
        """Whether the plan needs more bytes than `max_peak`."""
        return bool(self.beyond)

    @property
    def beyond(self) -> str:
        """What is said of a plan that needs more bytes than `max_peak`; empty for any other."""
        if self.report is None or self.max_peak is None or self.report.stats.peak_bytes <= self.max_peak:
            return ""
        return f"the plan needs {self.report.stats.peak_bytes} bytes; at most {self.max_peak} are allowed"

    @property
    def new(self) -> int:
        """Number of violations that are not known; violations not listed count as unknown."""
        if self.report is None:
            return 0
        return self.report.count - sum(finding.known for finding in self.findings)

    @property
    def measured(self) -> tuple[Cause, ...]:
        """Causes without a violation, which only kernels and numbers show."""
        return tuple(cause for cause in self.causes if not cause.violations)

    @property
    def passes(self) -> bool:
        """Whether the outcome passes, as the header of this package says."""
        unknown = self.replay is not None and bool(self.replay.unaccounted)
        return self.error is None and not self.new and not self.over_peak and not self.measured and not unknown

    @property
    def unexamined(self) -> tuple[str, ...]:
        """Letters of the required detectors that did not run."""
        return tuple(
            letter for letter in self.required if letter in self.examined and self.examined[letter].state == NOT_RUN
        )

    @property
    def judged(self) -> bool:
        """Whether there was a plan to judge."""
        return self.error is None and self.document is not None and bool(self.document.runs)

    @property
    def denied(self) -> tuple[Violation, ...]:
        """Violations that the plain judge does not find: an error of allocsim."""
        return () if self.confirmation is None else self.confirmation.denied

    @property
    def status(self) -> int:
        """Exit status: 0 nothing found, 1 found, 2 cannot be judged, or the judges differ."""
        if not self.judged or self.denied:
            return 2
        return 1 if not self.passes else 2 if self.unexamined else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRules:
    """Options of the judge; most fields are arguments of `allocsim.judge.fast.check`."""

    limit: int | None = None
    """Most violations that are listed; None is the judge's own limit."""
    plain: bool = False
    """Whether only the plain judge (`allocsim.judge.plain`) makes the report."""
    strict: bool = False
    """Whether an `AssumedInPlace` is a violation."""
    kinds: KindsTable | None = None
    """Alias contracts by kind, for ops whose contract the document leaves unknown."""
    unbounded: bool = False
    """Whether the judge examines every suspect, however long it takes."""
    confirm: bool = True
    """Whether the plain judge must confirm the listed violations."""

    def report(self, document: Document) -> Report:
        """Return the judge's report of a document."""
        return self.reports(document)[0]

    def reports(self, document: Document) -> tuple[Report, Report]:
        """Return the judge's report of a document, and a report that lists enough violations to
        find all causes. The fast judge runs only once.
        """
        most = LISTED if self.limit is None else self.limit
        if self.plain:
            report = told(plain_report(document, strict=self.strict, kinds=self.kinds, limit=most), document)
            if report.count <= len(report.violations):
                return report, report
            return report, told(self.listed(document), document)
        found = self._checked(document, max(most, LISTED))
        report = replace(found, violations=found.violations[:most], warnings=found.warnings[:most])
        report = told(report, document)
        if report.count <= len(report.violations):
            return report, report
        return report, told(found, document)

    def listed(self, document: Document, *, sizes: bool = True) -> Report:
        """Return the judge's report with violations of every kind listed, without sentences."""
        return self._checked(document, LISTED, sizes=sizes)

    def _checked(self, document: Document, limit: int, *, sizes: bool = True) -> Report:
        return check(
            document,
            limit=limit,
            plain=self.plain,
            strict=self.strict,
            kinds=self.kinds,
            of_each_kind=True,
            unbounded=self.unbounded,
            sizes=sizes,
        )


AS_USUAL: Final = JudgeRules()


@paused()  # rows, records and causes live until the end, and next to none is in a reference cycle
def judge_file(
    path: str | Path,
    *,
    rules: JudgeRules = AS_USUAL,
    known: Collection[str] = (),
    max_peak: int | None = None,
    causes_too: bool = True,
    cures: bool = False,
    required: str = "",
) -> Outcome:
    """Read a file in any supported format, or a folder of evidence, and judge it.

    If the file cannot be read, the outcome has the error.

    Args:
        path: the file or folder; messages name it like this.
        rules: the options of the judge.
        known: fingerprints of violations that do not count.
        max_peak: the most bytes that the plan may need.
        causes_too: whether to find causes and to give each violation its cause and fingerprint,
            which costs as much as judging. Otherwise `findings` and `causes` are empty.
        cures: whether to search the cure of each cause, too.
        required: letters of the detectors that must have run.
    """
    name = str(path)
    try:
        evidence = read_evidence(Path(path))
        report, whole = rules.reports(evidence.document)
    except AllocsimError as error:
        return Outcome(file=name, error=str(error))
    except OSError as error:
        return Outcome(file=name, error=os_error_line(error))
    bare = _outcome(name, evidence, report, max_peak=max_peak, required=required)
    if not causes_too and not _measures(evidence):
        return _confirmed(bare, rules)
    return _confirmed(_found(bare, whole, None, rules, known, cures=cures), rules)


def replayed(outcome: Outcome, rules: JudgeRules, *, asked: bool = True) -> Outcome:
    """Return an outcome with the result of a run with opaque kernels for each of its causes.

    Unless the run was `asked` for, it is left out for a clean document, for one of more than
    `UNASKED` ops, and for one without ops that run (beliefs, an instance of a solver), where no
    number can differ. A violation that is not listed may explain a read that differs. So if not all
    violations are listed, no read is called unaccounted for.
    """
    if outcome.document is None or outcome.report is None:
        return outcome
    if not asked and not (outcome.causes and any(len(run.program.ops) for run in outcome.document.runs)):
        return outcome
    report = outcome.report
    listed = report.violations if report.count == len(report.violations) and not report.unexamined else None
    told = told_by_replay(
        outcome.document,
        [cause.violations for cause in outcome.causes],
        found=listed,
        kinds=rules.kinds,
        strict=rules.strict,
        most=None if asked else UNASKED,
    )
    return replace(outcome, replay=told)


def read_evidence(path: Path) -> Evidence:
    """Return the evidence in a folder, or a document file as evidence without measurements.

    Raises DocumentError or OSError for anything else.
    """
    if str(path) != INPUT and path.is_dir() and folder_format(path) is None:
        return load_evidence(path)
    return Evidence(document=load(str(path)))


def outcome_of(
    file: str,
    judged: Document | Evidence,
    *,
    report: Report | None = None,
    rules: JudgeRules = AS_USUAL,
    known: Collection[str] = (),
    max_peak: int | None = None,
    causes: tuple[Cause, ...] | None = None,
    cures: bool = False,
    whys: Mapping[str, str] | None = None,
    executed_by: str = "",
    required: str = "",
) -> Outcome:
    """Return the outcome of a document or evidence; it is judged by `rules`, unless its `report` is
    given.

    Violations whose fingerprint is in `known` are marked as known. `causes` may be given with a
    `report`, as a verdict has them. `whys` has the reason for each detector that did not run, by
    letter, and `executed_by` names the kernels that were run.
    """
    evidence = judged if isinstance(judged, Evidence) else Evidence(document=judged)
    report, whole = rules.reports(evidence.document) if report is None else (report, None)
    bare = _outcome(file, evidence, report, max_peak=max_peak, required=required, whys=whys)
    found = _found(replace(bare, executed_by=executed_by), whole, causes, rules, known, cures=cures)
    return _confirmed(found, rules)


def _found(
    bare_outcome: Outcome,
    whole: Report | None,
    causes: tuple[Cause, ...] | None,
    rules: JudgeRules,
    known: Collection[str],
    *,
    cures: bool,
) -> Outcome:
    """Return an outcome with each violation under its cause. The causes are those given, or are
    found from the `whole` report of its document.
    """
    evidence, report = bare_outcome.evidence, bare_outcome.report
    assert evidence is not None
    assert report is not None
    if report.clean and not _measures(evidence):
        return bare_outcome
    from allocsim.verdict.attribution import charged  # noqa: PLC0415 - as above

    document = evidence.document
    if causes is None:
        try:
            whole = rules.reports(document)[1] if whole is None else whole
            causes = _causes(evidence, whole, rules, cures=cures)
        except Exception as error:  # noqa: BLE001 - whatever it is, what the judge said of the file stands
            findings = tuple(_finding(document, charge, known) for charge in charged((), report.violations))
            return replace(bare_outcome, findings=findings, failed=failure(bare_outcome.file, report, error))
    findings = tuple(_finding(document, charge, known) for charge in charged(causes, report.violations))
    return replace(bare_outcome, causes=causes, findings=findings)


def _confirmed(outcome: Outcome, rules: JudgeRules) -> Outcome:
    """Return an outcome with the plain judge's answer on its violations; in a large document, the
    first violation of each cause, or of each kind, is looked for first.
    """
    document, report = outcome.document, outcome.report
    if rules.plain or not rules.confirm or document is None or report is None or not report.violations:
        return outcome
    from allocsim.outcomes.confirmation import confirmation  # noqa: PLC0415 - as above

    causes = {id(finding.violation): finding.cause.cause for finding in outcome.findings}
    first: dict[int | str, Violation] = {}
    for violation in report.violations:
        cause = causes.get(id(violation))
        first.setdefault(violation.kind if cause is None else id(cause), violation)
    asked: dict[str, Any] = {"first": first.values(), "count": sum(report.counts.values())}
    said = confirmation(document, report.violations, **asked, kinds=rules.kinds, strict=rules.strict)
    return replace(outcome, confirmation=said)


def denial(outcome: Outcome) -> str:
    """Return the message for listed violations that the plain judge does not find."""
    what = outcome.denied[0]
    more = f", and {len(outcome.denied) - 1} more" if outcome.denied[1:] else ""
    return (
        f"{outcome.file}: the judges differ: the plain judge does not find {what.kind}: {what.message}{more}. "
        "That is a fault of allocsim, not of the file: please report it with the file"
    )


def failure(file: str, report: Report, error: Exception) -> str:
    """Return the message for an error of the verdict, which is not the fault of the file."""
    first = report.violations[0].message if report.violations else "what was measured"
    what = " ".join(str(error).split())
    return (
        f"{file}: no cause was found for what the judge lists, first: {first}. The verdict itself failed "
        f"({type(error).__name__}: {what}); that is a fault of allocsim, not of the file: please report it with the file"
    )


def _causes(evidence: Evidence, report: Report, rules: JudgeRules, *, cures: bool) -> tuple[Cause, ...]:
    from allocsim.verdict.causes import found_in, with_cures  # noqa: PLC0415 - as above
    from allocsim.verdict.dossier import Dossier  # noqa: PLC0415 - as above

    dossier = Dossier(evidence, report, rules.listed)
    found = found_in(dossier)
    return with_cures(dossier, found)[0] if cures else found


def _measures(evidence: Evidence) -> bool:
    """Return whether the evidence has measurements besides the document."""
    return any(getattr(evidence, name) is not None for name in ("audit", "origins", "sanitizer", "diverges"))


def _outcome(
    file: str,
    evidence: Evidence,
    report: Report,
    *,
    max_peak: int | None,
    required: str,
    whys: Mapping[str, str] | None = None,
) -> Outcome:
    return Outcome(
        file=file,
        document=evidence.document,
        evidence=evidence,
        report=report,
        examined=examination(evidence, report, whys),
        unvouched=unvouched(evidence, report),
        max_peak=max_peak,
        required=required,
    )


def verdict_entry(verdict: Verdict, evidence: Evidence, *, patched: bool = False) -> dict[str, Any]:
    """Return the keys of a verdict in `--json`: the verdict, its detectors, its causes, and what
    each detector examined; with `patched`, also the patches of the cures.
    """
    patch = {"patch": None if verdict.cure is None else list(verdict.cure.patch)} if patched else {}
    return {
        "verdict": verdict.as_json(),
        "detectors": dict(verdict.detectors),
        "causes": [cause.as_json(patched=patched) for cause in verdict.causes],
        **patch,
        "examined": examined_json(examination(evidence, verdict.report)),
    }


def fingerprint(document: Document, cause: "Charge") -> str:
    """Return the fingerprint of a violation of a document: 32 hexadecimal digits."""
    v = cause.violation
    names = {
        key: v.names.get(key)
        for key in ("op_name", "value_name", "buffer_name", "other_op_name", "other_buffer_name", "want_op_name")
    }
    program = _program(document, v)
    parts: list[Any] = [
        v.kind,
        cause.class_,
        cause.fault,
        program.name if program is not None else None,
        sorted(names.items()),
        _kind(program, v.op),
    ]
    data = json.dumps(parts, ensure_ascii=True).encode()
    return hashlib.sha256(data).hexdigest()[: 2 * FINGERPRINT_BYTES]


def _finding(document: Document, cause: "Charge", known: Collection[str]) -> FiledViolation:
    program, mark = _program(document, cause.violation), fingerprint(document, cause)
    return FiledViolation(
        cause=cause,
        fingerprint=mark,
        known=mark in known,
        kind_of_op=_kind(program, cause.violation.op),
        program=program.name if program is not None else None,
    )


def _program(document: Document, v: Violation) -> Program | None:
    if v.program is not None:
        return document.programs[v.program]
    if v.problem is not None:
        return document.problems[v.problem].program
    return document.plans[v.plan].program if v.plan is not None else None


def _kind(program: Program | None, op: int | None) -> str | None:
    return None if program is None or op is None else program.ops.kinds[program.ops.kind[op]]


__all__ = [
    "FiledViolation",
    "JudgeRules",
    "Outcome",
    "denial",
    "failure",
    "fingerprint",
    "judge_file",
    "outcome_of",
    "read_evidence",
    "replayed",
    "verdict_entry",
]
