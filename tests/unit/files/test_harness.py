"""What every benchmark shares (`benchmarks/harness.py`): the exit status, and what is asked for and cannot be measured."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from harness import Found, apart, grown, markdown, run, run_one_of, table


def campaign(*, names: tuple[str, ...] = ("a", "b"), out: Path) -> Iterator[Found]:
    """Go on where a file ends."""
    wrong = json.loads(out.read_text())["wrong"] if out.exists() else {}
    for name in names:
        if name not in wrong:
            wrong[name] = True
            yield {"wrong": wrong}


def status(monkeypatch: pytest.MonkeyPatch, *words: str, **asked: Any) -> object:
    """Return the exit status of a benchmark."""
    monkeypatch.setattr(sys, "argv", ["campaign.py", *words])
    with pytest.raises(SystemExit) as ended:
        run(campaign, failed="wrong", **asked)
    return ended.value.code


def test_campaign_that_has_nothing_left_to_do_fails_as_what_it_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same command says the same, however often it is given."""
    words = ("--out", str(tmp_path / "out.json"))
    assert [status(monkeypatch, *words) for _ in range(2)] == [1, 1]


def test_name_that_is_not_known_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is measured."""
    words = ("--names", "a,c", "--out", str(tmp_path / "out.json"))
    assert status(monkeypatch, *words, known={"names": ("a", "b")}) == 2
    assert capsys.readouterr().err == "--names: no c; there are a, b\n"
    assert not [*tmp_path.iterdir()]


def test_rows_that_are_made_again_take_the_place_of_theirs_and_others_of_the_file_stay(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text(json.dumps({"rows": [{"name": "b", "bad": 1}, {"name": "c", "bad": 1}]}))
    rows = [{"name": "c", "bad": 0}, {"name": "a", "bad": 2}]
    told = grown(
        rows,
        under="rows",
        by="name",
        out=out,
        order=("c", "b", "a"),
        size=3,
        bad=lambda rows: sum(r["bad"] for r in rows),
    )

    assert list(told) == [
        {"size": 3, "rows": [{"name": "c", "bad": 0}, {"name": "b", "bad": 1}], "bad": 1},
        {"size": 3, "rows": [{"name": "c", "bad": 0}, {"name": "b", "bad": 1}, {"name": "a", "bad": 2}], "bad": 3},
    ]


def test_rows_with_names_are_the_results_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*grown((("a", 1), ("b", 2)), more=len)] == [{"a": 1, "more": 1}, {"a": 1, "b": 2, "more": 2}]
    assert capsys.readouterr().out == "a 1\nb 2\n"


def other(*, count: int = 1) -> Found:
    """Return what was asked."""
    return {"count": count}


def test_the_first_word_names_the_benchmark_and_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["several.py", "other", "--count", "5"])
    with pytest.raises(SystemExit) as ended:
        run_one_of(campaign, other, failed={"other": "count"})
    assert ended.value.code == 1
    assert json.loads((tmp_path / "other.json").read_text())["count"] == 5

    monkeypatch.setattr(sys, "argv", ["several.py", "third"])
    with pytest.raises(SystemExit) as ended:
        run_one_of(campaign, other)
    assert ended.value.code == 2
    assert "(choose from 'campaign', 'other')" in capsys.readouterr().err


def test_a_table_of_markdown_and_a_function_in_another_interpreter() -> None:
    assert markdown(("a", "b"), [(1, "x")]) == ["| a | b |", "|---|---|", "| 1 | x |"]
    assert apart(markdown, ["a"], [[2]]) == ["| a |", "|---|", "| 2 |"]


def test_a_number_that_names_a_row_is_a_word_of_json() -> None:
    assert table({"lengths": {16: {"ms": 1}}}) == '{\n"lengths": {\n "16": {"ms": 1}\n}\n}\n'
