"""An error inside the verdict is told as one of this program: the judge's report stands, and the other files are judged."""

import json
from pathlib import Path

import pytest

from allocsim.cli import main
from allocsim.cli import verdict as command
from allocsim.errors import ModelError
from allocsim.outcomes import JudgeRules, judge_file
from allocsim.outcomes.telling import lines_of
from allocsim.verdict import causes as room

CASES = Path(__file__).parents[1] / "data" / "cases"
FILES = [CASES / f"{name}.json" for name in ("two-slots-overlap", "gap-used", "missed-reader")]


@pytest.mark.parametrize(
    "error", [ModelError("session[0].after", "run 1 does not exist"), IndexError("tuple index out of range")]
)
def test_what_the_judge_found_stands_where_the_verdict_fails(monkeypatch, error):
    def fails(_dossier):
        raise error

    monkeypatch.setattr(room, "found_in", fails)
    outcomes = [judge_file(path, rules=JudgeRules(), cures=True) for path in FILES]
    assert [outcome.status for outcome in outcomes] == [1, 0, 1]
    for outcome, path in zip(outcomes, FILES, strict=True):
        if outcome.status:
            said = " ".join(" ".join(lines_of(outcome)).split())
            assert outcome.error is None
            assert outcome.findings
            assert path.name in outcome.failed
            assert outcome.report.violations[0].message in outcome.failed
            assert "fault of allocsim" in said


def test_late_and_waiting_runs_are_judged_in_one_batch(capsys):
    names = ("late-read-judged-alone", "gap-used", "waiting-run-judged-alone")
    assert main(["check", "--json", *(str(CASES / f"{name}.json") for name in names)]) == 1
    assert [entry["clean"] for entry in json.loads(capsys.readouterr().out)["files"]] == [False, True, False]


def test_the_verdict_of_a_file_says_that_it_failed_and_what_was_found(monkeypatch, capsys):
    def fails(*_, **__):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(command, "judge", fails)
    assert main(["verdict", str(FILES[0])]) == 1
    said = capsys.readouterr()
    assert "fault of allocsim, not of the file" in said.err
    assert "Overlap" in said.out


def test_what_is_confirmed_where_the_verdict_fails_is_judged_by_the_rules_asked_for(monkeypatch, capsys, tmp_path):
    """Strictly, an alias that nobody vouches for is a violation, by both judges."""

    def fails(*_, **__):
        raise IndexError("tuple index out of range")

    value = {"dtype": "f32", "shape": [1]}
    program = {
        "name": "p",
        "buffers": [{"name": "a", "nbytes": 4}, {"name": "b", "nbytes": 4}],
        "values": [{"name": "v", "buffer": 0, **value}, {"name": "w", "buffer": 1, **value}],
        "ops": [
            {"name": "make", "kind": "f", "operands": [], "results": [0]},
            {"name": "change", "kind": "g", "operands": [0], "results": [1], "in_place": None},
            {"name": "read", "kind": "h", "operands": [1], "results": []},
        ],
    }
    plan = {"program": 0, "slots": [{"arena": 0, "offset": 0, "nbytes": 4}] * 2}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"format": "allocsim", "version": 2, "programs": [program], "plans": [plan]}))
    monkeypatch.setattr(command, "judge", fails)
    assert main(["verdict", "--strict", str(path)]) == 1
    assert "the judges differ" not in capsys.readouterr().out
