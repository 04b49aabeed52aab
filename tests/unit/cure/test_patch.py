"""A cure as a JSON Patch: a program that knows nothing of this project makes it, and the judge finds it right."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from culprits import PLANTS, culprits

from allocsim import loads
from allocsim.cure.defects import keys_of
from allocsim.cure.patch import patch
from allocsim.document import dumps, read
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program

ROOT = Path(__file__).parents[3]
STRANGER = ROOT / "examples" / "apply_cure.py"
CASES = ROOT / "tests" / "data" / "cases"

applied = runpy.run_path(str(STRANGER))["applied"]


def wrong_patches(verdict):
    """Return the cures of a verdict, of each cause and of all, that do not cure as a stranger makes them."""
    wrong = []
    before = keys_of(verdict.report.violations)
    for cause in verdict.causes:
        if cause.cure is None:
            continue
        written = json.loads(dumps(cause.cure.before))
        cured = loads(json.dumps(applied(written, json.loads(json.dumps(cause.cure.as_json(patched=True)))["patch"])))
        now = keys_of(check(cured, of_each_kind=True).violations)
        others = keys_of(v for other in verdict.causes if other is not cause for v in other.violations)
        if now - before or now & (keys_of(cause.violations) - others):
            wrong.append(cause.mend)
    if verdict.cure is not None and all(cause.cure is not None for cause in verdict.causes):
        cured = loads(json.dumps(applied(json.loads(dumps(verdict.cure.before)), list(verdict.cure.patch))))
        if not check(cured).clean:
            wrong.append("all together")
    return wrong


def test_the_program_of_a_stranger_has_at_most_sixty_lines_and_imports_no_project():
    text = STRANGER.read_text()
    assert len(text.splitlines()) <= 60
    assert "allocsim" not in text.split('"""')[2]


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json")))
def test_each_printed_cure_of_the_cases_is_made_by_a_stranger(name):
    """The file is taken as it stands, with whatever defaults it leaves out."""
    document = read(CASES / f"{name}.json")
    verdict = judge(Evidence(document=document))
    assert wrong_patches(verdict) == []
    if verdict.cure is not None and all(cause.cure is not None for cause in verdict.causes):
        raw = json.loads((CASES / f"{name}.json").read_text())
        assert check(loads(json.dumps(applied(raw, list(verdict.cure.patch))))).clean


@pytest.mark.parametrize("name", PLANTS)
def test_each_cure_of_a_planted_fault_is_made_by_a_stranger(name):
    first = tuple(PLANTS).index(name)
    for culprit in culprits(range(first, first + 6 * len(PLANTS), len(PLANTS)), tuple(PLANTS)):
        assert wrong_patches(judge(culprit.evidence)) == [], culprit.name


def test_the_program_reads_what_the_commands_print(tmp_path):
    plan, report = CASES / "misaligned-told-twice.json", tmp_path / "report.json"
    for command, more in ((["verdict"], []), (["check"], ["0"])):
        said = subprocess.run(
            [sys.executable, "-m", "allocsim", *command, "--json", str(plan)], capture_output=True, check=False
        )
        report.write_bytes(said.stdout)
        made = subprocess.run(
            [sys.executable, str(STRANGER), str(plan), str(report), *more], capture_output=True, check=True
        )
        assert check(loads(made.stdout)).clean


def test_a_document_is_no_change_from_itself():
    document = read(CASES / "both-plans-faulty.json")
    assert patch(document, document) == ()
    assert patch(document, loads(dumps(document))) == ()


def test_a_slot_is_replaced_whole_and_of_any_other_row_the_members_that_changed():
    made = program("x = host.write; a = f x; host.read a")
    one, other = (Document.of(plan(made, f"x=0 a={at}", belief(made, a=(1, stop)))) for at, stop in ((64, 2), (128, 3)))
    assert {(edit["op"], edit["path"]) for edit in patch(one, other)} == {
        ("add", "/problems/0/stop"),
        ("replace", "/plans/0/slots/1"),
    }
