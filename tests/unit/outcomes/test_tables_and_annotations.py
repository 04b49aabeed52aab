"""A row for each cause, as CSV, as columns and as GitHub shows it; and the action that is shipped."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import which
from unittest.mock import patch

import pytest

from allocsim import judge_file
from allocsim.cli import main
from allocsim.document import dumps, loads
from allocsim.outcomes import cause_table, github

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "data" / "cases"
FILES = ["both-plans-faulty.json", "gap-used.json", "one-wait-for-twenty-races.json", "plan-over-output.json"]
HOSTILE = "=cmd|' /C calc'!A0\n::error::forged|<img src=x>%0A"


@pytest.fixture(scope="module")
def outcomes():
    return [judge_file(CASES / name, cures=True) for name in FILES] + [judge_file("no-such-file.json")]


def test_each_cause_has_a_row_with_its_number_and_a_file_that_cannot_be_read_its_error(outcomes):
    table = list(csv.DictReader(io.StringIO(cause_table.as_csv(outcomes).decode())))
    wanted = [(str(o.file), str(c.number), c.class_, c.party) for o in outcomes for c in o.causes]
    assert len(wanted) >= 3
    assert [(r["file"], r["number"], r["class"], r["party"]) for r in table if r["state"] == "new"] == wanted
    assert [(r["file"], r["number"]) for r in table if r["state"] == "error"] == [("no-such-file.json", "")]


def test_columns_say_what_rows_say(outcomes):
    columns = json.loads(cause_table.as_columns(outcomes))
    assert tuple(columns) == cause_table.COLUMNS
    assert list(zip(*columns.values(), strict=True)) == [tuple(row) for row in cause_table.rows(outcomes)]


def test_there_is_one_annotation_for_each_row_and_known_ones_are_notices(outcomes, tmp_path):
    lines = list(github.annotations(outcomes))
    assert len(lines) == len(list(cause_table.rows(outcomes)))
    assert all(re.fullmatch(r"::error file=[^,:\n]+,title=[^:\n]+::[^\n]+", line) for line in lines)
    known = frozenset(finding.fingerprint for outcome in outcomes for finding in outcome.findings)
    again = judge_file(CASES / FILES[0], known=known, cures=True)
    assert [line.split()[0] for line in github.annotations([again])] == ["::notice"] * len(again.causes)


def test_names_from_a_file_begin_no_command_no_cell_and_no_formula(tmp_path):
    text = json.loads(dumps(loads((CASES / FILES[0]).read_bytes())))
    for buffer in text["programs"][0]["buffers"]:
        buffer["name"] = HOSTILE
    for op in text["programs"][0]["ops"]:
        op["name"] = HOSTILE
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(text))
    outcome = judge_file(path, cures=True)
    assert outcome.causes
    lines = list(github.annotations([outcome]))
    assert all(line.count("::") >= 2 and "\n" not in line for line in lines)
    assert all("%250A" in line and not re.search("%(?!25|0A|3A|2C)", line) for line in lines)
    summary = github.summary([outcome])
    for line in summary.splitlines():
        assert not line.startswith("::")
        assert not re.search(r"(?<!\\)<img", line)
        assert len(re.findall(r"(?<!\\)\|", line)) in (0, 3, 6)
    for row in csv.reader(io.StringIO(cause_table.as_csv([outcome]).decode())):
        assert not any(part.startswith(("=", "+", "-", "@")) and not part[1:].isdigit() for part in row)


def test_the_command_prints_annotations_and_adds_to_the_summary_of_the_job(tmp_path, monkeypatch, capsys):
    job = tmp_path / "summary.md"
    job.write_text("from the step before\n")
    monkeypatch.setenv(github.STEP_SUMMARY, str(job))
    assert main(["check", str(CASES / FILES[0]), "--github", "--findings", str(tmp_path / "found.csv")]) == 1
    assert sum(line.startswith("::error ") for line in capsys.readouterr().out.splitlines()) == 2
    assert job.read_text().startswith("from the step before\n### allocsim\n")
    assert (tmp_path / "found.csv").read_text().startswith("file,state,number,class,party")


@pytest.mark.parametrize(
    ("options", "status", "found"),
    [
        (["--require", "K"], 2, "K did not run and must; S, L ran"),
        (["--max-peak", "1"], 1, "more bytes than are allowed; S, L ran"),
        ([], 0, "nothing found; S, L ran"),
    ],
)
def test_each_reason_to_fail_has_an_annotation_and_is_in_the_summary(options, status, found, tmp_path, capsys):
    job = tmp_path / "summary.md"
    with patch.dict(os.environ, {github.STEP_SUMMARY: str(job)}):
        assert main(["check", str(CASES / "gap-used.json"), "--github", *options]) == status
    assert any(line.startswith("::error file=") for line in capsys.readouterr().out.splitlines()) is bool(status)
    assert f"| {found} |" in job.read_text()


def test_a_file_whose_causes_could_not_be_found_is_not_called_unjudged(outcomes):
    failed = replace(outcomes[0], causes=(), failed="this is a defect in allocsim")
    (line,) = github.annotations([failed])
    assert ",title=judged%2C causes not found::" in line
    assert "causes could not be found" in github.summary([failed])


def test_what_is_printed_for_people_is_between_lines_that_switch_commands_off(tmp_path, capsys):
    text = json.loads(dumps(loads((CASES / FILES[0]).read_bytes())))
    for buffer in text["programs"][0]["buffers"]:
        buffer["name"] = "x" * 50 + " ::error::pwned ##[error]pwned"
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(text))
    assert main(["check", str(path), str(tmp_path / "::error::none.json"), "--github"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("::stop-commands::")
    on = lines.index(f"::{lines[0].removeprefix('::stop-commands::')}::")
    assert on > 10
    assert all(line.startswith("::error file=") for line in lines[on + 1 :])
    assert any("pwned" in line for line in lines[:on])


def test_other_reports_are_written_where_the_summary_cannot_be(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(github.STEP_SUMMARY, str(tmp_path / "none" / "s.md"))
    sarif = tmp_path / "s.sarif"
    assert main(["check", str(CASES / FILES[0]), "--github", "--sarif", str(sarif)]) == 2
    assert sarif.exists()
    assert "Traceback" not in capsys.readouterr().err


def test_json_and_annotations_are_not_mixed(capsys):
    assert main(["check", str(CASES / FILES[0]), "--github", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_a_table_of_another_suffix_is_refused_before_anything_is_judged(capsys):
    assert main(["check", "no-such-file.json", "--findings", "x.xlsx"]) == 2
    assert capsys.readouterr().err == "allocsim: --findings: x.xlsx: a table of causes is .csv or .json\n"


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("files", "status"), [("gap-used.json", 0), ("gap-used.json\nboth-*.json\n", 1)])
def test_the_action_that_is_shipped_judges_what_it_is_given(files, status, tmp_path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    action = yaml.safe_load((ROOT / "examples" / "github-action" / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    given = {name: row.get("default", "") for name, row in action["inputs"].items()} | {
        "files": files,
        "sarif": "x.sarif",
    }
    for name, value in step["env"].items():
        assert value == f"${{{{ inputs.{name.lower().replace('_', '-')} }}}}"
    assert "${{" not in step["run"]
    for name in FILES:
        (tmp_path / name).write_bytes((CASES / name).read_bytes())
    environment = {**os.environ, **{name.upper().replace("-", "_"): value for name, value in given.items()}}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        github.STEP_SUMMARY: str(tmp_path / "s.md"),
    }
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (status, "")
    assert (tmp_path / "x.sarif").exists()
    assert ("::error file=both-plans-faulty.json" in done.stdout) is bool(status)
