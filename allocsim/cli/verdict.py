"""`allocsim verdict FILE-or-DIR`: the verdict on a document, or on saved evidence, in this process
and from nothing else.

A folder of evidence (`session.json`, `evidence.json`) brings what kernels and numbers showed; a
document or a captured graph is judged by S, L and H alone, and the verdict says so.

Exit status: 0 if nothing is wrong, 1 if a fault was found, 2 for what cannot be judged: it cannot
be read, has no plan, or lacks a detector that `--require` names.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli import BAD_INPUT
from allocsim.cli.check import Kinds, Required, Strict, Unbounded, kinds_table, letters_of, outcome_entry
from allocsim.cli.output import print_error, print_json, print_line, show_path
from allocsim.outcomes import JudgeRules, denial, failure, outcome_of, read_evidence, verdict_entry
from allocsim.outcomes.examined import NO_PLAN
from allocsim.outcomes.telling import examined_lines, headline, lines_of, wrapped
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence


def verdict(
    target: Annotated[Path, typer.Argument(metavar="FILE-or-DIR", help="A document, or a folder of evidence.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    require: Required = "",
    strict: Strict = False,
    kinds: Kinds = None,
    unbounded: Unbounded = False,
) -> int:
    """Exit status: 0 nothing is wrong, 1 a fault was found, 2 it cannot be judged.

    Example: allocsim verdict plan.json
    """
    required = letters_of(require)
    evidence = read_evidence(target)
    if not evidence.document.runs:
        print_error(f"{show_path(target)}: {NO_PLAN}")
        return BAD_INPUT
    rules = JudgeRules(strict=strict, kinds=kinds_table(kinds), unbounded=unbounded)
    try:
        found = judge(evidence, judged=rules.listed)
    except Exception as error:  # noqa: BLE001 - whatever it is, what the judge says of the file stands
        return _plain_report(target, evidence, rules, required, error, as_json=as_json)
    outcome = outcome_of(
        str(target), evidence, report=found.report, rules=rules, causes=found.causes, required=required
    )
    if outcome.denied:
        print_error(denial(outcome))
    if as_json:
        print_json(verdict_entry(found, evidence, patched=True))
        return outcome.status
    if not found.causes:
        print_line(headline(outcome))
    for clause in found.clauses:
        for line in wrapped(clause, "", "  "):
            print_line(line)
    for line in examined_lines(outcome.examined):
        print_line(line)
    return outcome.status


def _plain_report(
    target: Path, evidence: Evidence, rules: JudgeRules, required: str, error: Exception, *, as_json: bool
) -> int:
    """Say what the judge found, and that the verdict on it failed."""
    report = rules.report(evidence.document)
    said = failure(str(target), report, error)
    outcome = outcome_of(str(target), evidence, report=report, rules=rules, causes=(), required=required)
    outcome = replace(outcome, failed=said)
    print_error(said)
    if as_json:
        print_json(outcome_entry(outcome))
        return outcome.status
    for line in lines_of(outcome):
        print_line(line)
    return outcome.status
