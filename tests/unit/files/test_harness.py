"""What every benchmark shares (`benchmarks/harness.py`): the exit status, and what is asked for and cannot be measured."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from harness import Found, run


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
