"""The search for costly files: what a file costs is measured."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import growing
import pytest
from growing import GIBIBYTE, JSON, Cost, GrownKind, Step, cost, line_of, played, recipe_of, search

from allocsim.allowances import charge, metered
from allocsim.errors import AllocsimError


def _raises(_: Path) -> None:
    raise ZeroDivisionError


def _refuses(_: Path) -> None:
    raise AllocsimError("no")


def _endless(_: Path) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("run", "answer"), [(_raises, "bad"), (_refuses, "refused"), (_endless, "stopped"), (lambda _: None, "read")]
)
def test_what_became_of_a_file_is_told(run, answer: str, tmp_path: Path) -> None:
    """A traceback is bad, one line of ours is not, and what does not end is stopped."""
    (tmp_path / "f").write_bytes(b"x")
    assert cost(run, tmp_path / "f", 1).answer == answer


def test_memory_that_was_given_back_is_counted(tmp_path: Path) -> None:
    """The peak counts, beyond what the process had."""
    (tmp_path / "f").write_bytes(b"x")
    found = cost(lambda _: b"x" * (200 << 20), tmp_path / "f")
    assert found.answer == "read"
    assert 190 << 20 < found.memory < 400 << 20


def _calls(folder: Path) -> Path:
    """A small file that is right: two calls take what two lists hold."""
    made = {"lists": [["a", "b"], ["c"]], "calls": [{"takes": [0, 1]}, {"takes": [1]}]}
    (folder / "calls.json").write_text(json.dumps(made))
    return folder / "calls.json"


def _expanded(charged: Callable[[int], None]) -> Callable[[Path], None]:
    """A reader that lays out, for each list that a call takes, all that the list holds: 64 bytes each."""

    @metered
    def loads(data: bytes, _: str) -> None:
        tree, laid = json.loads(data), []
        for call in tree["calls"]:
            for index in call["takes"]:
                count = len(tree["lists"][index])
                charged(count)
                laid.append(b"x" * (64 * count))

    def run(path: Path) -> None:
        data = path.read_bytes()
        try:
            loads(data, "calls.json")
        except (LookupError, TypeError) as error:
            raise AllocsimError(str(error)) from None

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("charged", "breaks"),
    [(lambda _: None, True), (lambda count: charge("listed operand", count), False)],
    ids=["not charged", "charged"],
)
def test_the_search_finds_a_reader_that_expands_without_charging(charged, breaks, tmp_path, monkeypatch) -> None:
    """The bomb is planted here alone; its twin charges before it expands, and nothing is found.

    A quarter of a gibibyte stands for one: a bomb of that size is filled sooner.
    """
    monkeypatch.setattr(growing, "GIBIBYTE", GIBIBYTE // 4)
    # turns end it, and memory alone is what is sought: CPU seconds are not the same under another load
    kind = GrownKind(JSON, (_calls,), _expanded(charged))
    found, _ = search(kind, tmp_path, 300, random.Random(2), turns=16, large=500_000, measured=_memory)
    assert any(one.cost.memory > GIBIBYTE // 4 or one.cost.answer == "bad" for one in found) == breaks, found[0]


def test_a_recipe_is_a_line_that_makes_the_same_file() -> None:
    """What is kept of a costly file makes it again, and so do paths, numbers and columns in it."""
    tree = {"lists": [["a", "b"], ["c"]], "calls": [{"takes": [0, 1], "n": 3}, {"takes": [1], "n": 4}]}
    recipe = (
        Step("repeat", ("lists", 0), 0, 2, 3),
        Step("fresh", ("calls",), 0, 1, 2),
        Step("put", ("lists", 1), other=("lists", 0)),
        Step("equal", ("calls",), other="takes"),
        Step("number", ("calls", 1, "n"), other=1 << 40),
    )
    line = line_of("a kind", 1, recipe, nbytes=7)
    kind, file, read, told = recipe_of(line)
    assert (kind, file, told) == ("a kind", 1, {"nbytes": 7})
    assert "\n" not in line
    assert played(tree, read) == played(tree, recipe) != tree


def _counted(run: Callable[[Path], None], path: Path, most: int) -> Cost:
    return Cost("read", path.stat().st_size, len(json.loads(path.read_bytes())["lists"][0]) / 1000, 0)


def test_what_was_kept_is_measured_again_before_the_search_and_grows_with_it(tmp_path: Path) -> None:
    """The kept file is among those found with what it costs now, though no turn of the search could make it."""
    kind = GrownKind(JSON, (_calls,), lambda _: None)
    kept = (0, (Step("repeat", ("lists", 0), 0, 2, 50),))
    found, again = search(kind, tmp_path, 300, random.Random(2), turns=0, large=30_000, measured=_counted, kept=[kept])
    assert [(one.seed, one.recipe, one.cost.seconds) for one in again] == [(*kept, 0.102)]
    assert found[0].recipe[0].times > 50


def _memory(run: Callable[[Path], None], path: Path, most: int) -> Cost:
    return replace(cost(run, path, most), seconds=0.0)
