"""Schedulers whose backends work behind the call: what nobody waits for is named, and what somebody waits for is not.

The programs (`tests/data/ggml_host/scheduled_programs.c`) have backends that do everything at the latest moment that is
allowed, so that what they print says whether a wait is missing.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allocsim.document import dumps
from allocsim.model import Document
from allocsim.systems.ggml.ggml_dump import AT_ONCE
from allocsim.systems.ggml.host_record import backend_order
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import read_log
from allocsim.systems.ggml.memory_answer import memory_answer
from allocsim.systems.ggml.remarks import remarks_on
from tests.ggml_host import judged, judged_as_it_came, named, programs, recorded

FAULTS = {
    "overwritten_before_it_was_copied": "(write x) wait for op 2 (queue#x#0 of compute 1)",
    "overwritten_before_it_was_read": "(write x) wait for op 5 (queue#node_2#0 of compute 1)",
    "read_where_the_host_laid_it": "(write x) wait for op 8 (node_0 of compute 2)",
    "experts_changed_before_they_were_sent": "(write w) wait for op 7 (queue#w#0 of compute 1 from byte 3072 on)",
}
"""Program -> the wait that its first cause says is missing: both accesses."""

RIGHT = ("sum 68.25\n", "sum 1344\n")

Event = dict[str, Any]


@pytest.fixture(scope="module", name="built")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C programs."""
    return programs(tmp_path_factory.mktemp("host"))


def _at_once(documents: list[Document]) -> list[Document]:
    return [one for one in documents if one.meta["ggml"]["host"]["of"] == AT_ONCE]


@pytest.mark.parametrize("name", FAULTS)
def test_missing_wait_is_named_and_the_twin_is_clean(name: str, built: Path, tmp_path: Path) -> None:
    """The two accesses, and the wait that orders them; the numbers are wrong where it is said, and right in the twin."""
    program = str(built / "scheduled_programs")
    for which in ("wrong", "right"):
        folder = tmp_path / which
        folder.mkdir()
        documents = recorded(folder, [program, name, which])
        printed = subprocess.run([program, name, which], check=True, capture_output=True, text=True).stdout
        outcomes = judged(documents)
        expected = {("C09", "schedule")} if which == "wrong" else set()
        assert named(outcomes) == expected
        assert sum(len(one.causes) for one in outcomes) == len(expected), "it is one, however many runs it shows in"
        assert named(judged_as_it_came(folder / "log.jsonl")) == expected
        assert (printed in RIGHT) == (which == "right")
        (document,) = _at_once(documents)
        assert len(document.programs[0].streams) >= 2
        cures = [cause.cure.words for one in outcomes for cause in one.causes if cause.cure]
        assert not expected or FAULTS[name] in cures[0][0]


def test_ops_of_one_name_and_different_kinds_are_not_turns_of_one() -> None:
    """What has no name is `node_0` in every graph, and two graphs in turn are two faults."""

    def turn(number: int, op: str) -> str:
        told = SimpleNamespace(name="node_0", op=op)
        run = SimpleNamespace(number=number, copies={})
        return backend_order._of_run(SimpleNamespace(told=told, tensor=None), run)[1]  # type: ignore[arg-type]

    assert turn(1, "MUL") == turn(3, "MUL")
    assert turn(1, "MUL") != turn(2, "ADD")


def test_drawn_programs_are_accused_where_their_numbers_are_wrong(built: Path, tmp_path: Path) -> None:
    """Ops on three backends by a drawn choice: those that the CPU alone gives other numbers are convicted, no other."""
    program, wrong = str(built / "scheduled_programs"), 0
    for seed in range(1, 9):
        printed = [
            subprocess.run([program, "drawn_stages", which, str(seed)], check=True, capture_output=True).stdout
            for which in ("right", "wrong")
        ]
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = named(judged(recorded(folder, [program, "drawn_stages", "right", str(seed)])))
        assert found == (set() if printed[0] == printed[1] else {("C09", "schedule")}), f"seed {seed}"
        wrong += bool(found)
    assert 0 < wrong < 8


def _edited(log: Path, change: Callable[[list[Event]], list[Event]]) -> list[Document]:
    events = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps({**event, "n": n}) + "\n" for n, event in enumerate(change(events))))
    return documents_of(read_log(log))


def _is_wait(event: Event, by_backend: bool) -> bool:
    return event["e"] == "inside" and event["word"] == "wait" and bool(event["other"]) == by_backend


@pytest.mark.parametrize(
    ("by_backend", "said"),
    [
        (True, ("queue#node_2#0 of compute 5", "grown of compute 2")),
        (False, ("queue#x#0 of compute 5", "node_0 of compute 2")),
    ],
)
def test_copy_that_does_not_wait_for_its_event(
    by_backend: bool, said: tuple[str, str], built: Path, tmp_path: Path
) -> None:
    """Of four copies in turn the fifth run takes the first one: by the destination, or by the host for its input, while
    the first run may still read it.
    """
    recorded(tmp_path, [str(built / "scheduled_programs"), "overwritten_before_it_was_copied", "right"])
    documents = _edited(tmp_path / "log.jsonl", lambda events: [one for one in events if not _is_wait(one, by_backend)])
    outcomes = judged(documents)
    assert named(outcomes) == {("C09", "schedule")}
    cures = {text for one in outcomes for cause in one.causes if cause.cure for text in cause.cure.words}
    assert any(said[0] in text and said[1] in text for text in cures)


def test_experts_that_are_chosen_before_their_numbers_are_there(built: Path, tmp_path: Path) -> None:
    """A scheduler fetches from the backend which experts to send: one that does not wait for it goes by old bytes."""
    recorded(tmp_path, [str(built / "scheduled_programs"), "experts_changed_before_they_were_sent", "right"])

    def hasty(events: list[Event]) -> list[Event]:
        fetched = {n + 1 for n, one in enumerate(events) if one.get("word") == "fetched"}
        assert all(events[n]["word"] == "sync" for n in fetched)
        return [one for n, one in enumerate(events) if n not in fetched]

    outcomes = judged(_edited(tmp_path / "log.jsonl", hasty))
    assert named(outcomes) == {("C09", "schedule")}
    (cause,) = (cause for one in outcomes for cause in one.causes)
    assert cause.cure is not None
    assert "(look at ids with the host for compute 1) wait for op 4 (ids of compute 1" in cause.cure.words[0]


def test_host_memory_where_an_event_was_given_back_is_host_memory(built: Path, tmp_path: Path) -> None:
    """What a scheduler sends from there is what it sent from there before: the race of its twin stays a race."""
    recorded(tmp_path, [str(built / "scheduled_programs"), "experts_changed_before_they_were_sent", "wrong"])

    def reused(events: list[Event]) -> list[Event]:
        begun, *others = events
        there = {one["other"] for one in others if one.get("word") in {"sent", "fetched"}}
        return [begun, *({"e": "ended", "by": at} for at in there), *others]

    whole = documents_of(read_log(tmp_path / "log.jsonl"))
    assert [*map(dumps, _edited(tmp_path / "log.jsonl", reused))] == [*map(dumps, whole)]


def test_backends_that_do_not_queue_are_done_when_they_come_back(built: Path, tmp_path: Path) -> None:
    """Two CPU backends, four copies in turn: nobody has to wait for them."""
    documents = recorded(tmp_path, [str(built / "host_programs"), "pipelined"])
    (document,) = _at_once(documents)
    assert document.programs[0].streams == ("host", "CPU 0")
    assert named(judged(documents)) == set()


def test_backend_of_an_unknown_layout_is_said(built: Path, tmp_path: Path) -> None:
    """No order is made up for it: what the scheduler did is assumed to be right, and the answer says so."""
    recorded(tmp_path, [str(built / "scheduled_programs"), "overwritten_before_it_was_copied", "wrong"])

    def hidden(events: list[Event]) -> list[Event]:
        seen = [one for one in events if one["e"] != "inside"]
        return [{**one, "seen": False} if one["e"] == "backend" else one for one in seen]

    (document,) = _edited(tmp_path / "log.jsonl", hidden)
    assert "the backend has an unknown layout" in remarks_on(document)["assumed"][-1]


def test_backend_that_is_of_no_scheduler_has_a_name(built: Path, tmp_path: Path) -> None:
    """Uploads by two others are on streams of their own, and each is named."""
    recorded(tmp_path, [str(built / "scheduled_programs"), "overwritten_before_it_was_copied", "right"])

    def by_others(events: list[Event]) -> list[Event]:
        uploads = [one["n"] for one in events if one["e"] == "set"]
        return [{**one, "by": one["n"] % 2 + 8} if one.get("n") in uploads[-4:] else one for one in events]

    (document,) = _at_once(_edited(tmp_path / "log.jsonl", by_others))
    others = [name for name in document.programs[0].streams if name.startswith("another backend ")]
    assert len({*others}) == len(others) == 2
    assert all(document.programs[0].streams)


def test_program_that_stands_before_its_backends_itself_goes_on(built: Path, tmp_path: Path) -> None:
    """Its functions go on to the recorder's: those are not put before them again, or each would ask the other for ever."""
    program = [str(built / "scheduled_programs"), "hooked_by_the_program_too", "right"]
    (document,) = recorded(tmp_path, program)
    assert named(judged([document])) == set()
    assert "the program replaced its functions" in remarks_on(document)["assumed"][-1]
    assert read_log(tmp_path / "log.jsonl").runs[-1].number == 6


@pytest.mark.parametrize(
    "host", [None, 7, {"computes": []}, {"taken": 7}, {"taken": "x"}, {"assumed": None}, {"unseen": [1]}]
)
def test_what_is_said_of_a_host_may_be_anything(host: Any, built: Path, tmp_path: Path) -> None:
    """A document is anybody's: what cannot be read of its host is not said, and the verdict is the same."""
    (document,) = recorded(tmp_path, [str(built / "host_programs"), "input_once", "wrong"])
    about = document.meta["ggml"]
    changed = {**about["host"], **host} if isinstance(host, dict) else host
    other = replace(document, meta={**document.meta, "ggml": {**about, "host": changed}})
    (outcome,) = judged([other])
    assert named([outcome]) == {("C06", "caller")}
    (call,) = remarks_on(other, outcome.causes)["in ggml"]
    assert call.startswith("cause 1: ggml_backend_tensor_set(x, ...) before this run")
    assert memory_answer(other)
