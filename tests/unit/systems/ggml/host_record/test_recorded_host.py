"""Programs of C and Python whose host errs, recorded and judged: each fault by class and party, and each right twin clean.

The programs (`tests/data/ggml_host`) were written from ggml's public functions before there was a recorder, but for
those of schedulers from `scheduled_read_while_computing` on.
"""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allocsim.cli.record_live import finding
from allocsim.document import dumps
from allocsim.errors import AllocsimError, DocumentError
from allocsim.systems.ggml.access.library import find
from allocsim.systems.ggml.host_record import host_recorder as recorder
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import LogReading, read_log
from allocsim.systems.ggml.memory_answer import memory_answer
from allocsim.systems.ggml.remarks import remarks_on
from tests.ggml_host import PROGRAMS, judged, judged_as_it_came, linked_program, named, programs, recorded

FAULTS = {
    "input_once": ("C06", "caller"),
    "half_upload": ("C06", "caller"),
    "seed_once": ("C06", "caller"),
    "rebuilt_without_upload": ("C06", "caller"),
    "scheduled_input_once": ("C06", "caller"),
    "output_unflagged": ("C05", "caller"),
    "output_flag_too_late": ("C05", "caller"),
    "input_read_back": ("C05", "caller"),
    "view_unflagged": ("C05", "caller"),
    "copied_unflagged": ("C05", "caller"),
    "gradient_unflagged": ("C05", "caller"),
    "second_context_unflagged": ("C05", "caller"),
    "scheduled_unflagged": ("C05", "caller"),
    "planned_over_then_run": ("C07", "caller"),
    "planned_over_then_read": ("C07", "caller"),
    "replaced_then_run": ("C07", "caller"),
    "replaced_then_read": ("C07", "caller"),
    "state_recycled": ("C07", "caller"),
    "both_uploaded_first": ("C14", "caller"),
    "weights_freed": ("C14", "caller"),
    "next_input_over_result": ("C07", "caller"),
    "computed_another_than_asked": ("C14", "caller"),
    "extended_behind_a_reset": ("C14", "caller"),
    "computed_before_it_was_planned": ("C14", "caller"),
    "trained_without_new_labels": ("C14", "caller"),
    "read_while_computing": ("C09", "schedule"),
    "upload_while_computing": ("C09", "schedule"),
    "scheduled_read_while_computing": ("C09", "schedule"),
    "waited_for_another_scheduler": ("C09", "schedule"),
}
"""Program with a fault -> class and party."""

GONE = {
    "weights_freed": "the memory of w was given back (ggml_backend_buffer_free,",
    "extended_behind_a_reset": "the memory of x was given back (ggml_backend_buffer_free, ggml_backend_sched_reset,",
    "replaced_then_run": "the memory of x was given back (ggml_backend_buffer_free,",
    "replaced_then_read": "before its memory is given back (ggml_backend_buffer_free,",
}
"""Program whose fault is memory that is no more -> what is said of it: no upload helps."""

SAID = {
    **GONE,
    "computed_another_than_asked": "ggml_backend_sched_reset(sched) before this graph is computed",
    "both_uploaded_first": "ggml_backend_tensor_set(x, ...) before compute 1 and after the upload of 'x', which overwrites these bytes",
    "input_once": "ggml_backend_tensor_set(x, ...) before compute 2 and after compute 1, which overwrites these bytes",
}
"""Program -> what its cure is in calls of ggml, where its class does not say it."""

CURES = {
    "extended_behind_a_reset": "keep the memory of x until every run that reads it has ended",
    "weights_freed": "keep the memory of w until every run that reads it has ended",
    "replaced_then_run": "keep the memory of x until every run that reads it has ended",
    "planned_over_then_run": "upload x before every run, after each run of another program that reuses its bytes",
    "input_once": "upload x before every run",
}
"""Program whose upload is gone, or left out -> the cure."""

CALLS = {
    "C05": "ggml_set_output(",
    "C06": "ggml_backend_tensor_set(",
    "C09": "ggml_backend_synchronize(backend)",
    "C14": "ggml_backend_tensor_set(",
}
"""Class -> what cures the fault, in calls of ggml."""

SOUND = (
    "weights_in_the_plan",
    "state_in_the_plan",
    "written_by_pointer",
    "first_by_call_then_by_pointer",
    "read_after_scale_inplace",
    "waited_by_another_run",
    "reserved_then_more",
    "run_again_behind_a_reset",
    "read_what_was_uploaded",
    "sized_then_computed",
    "planned_where_it_lay",
)
"""Right programs that look like wrong ones."""


@pytest.fixture(scope="module", name="built")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C programs."""
    return programs(tmp_path_factory.mktemp("host"))


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_and_its_twin_is_clean(name: str, built: Path, tmp_path: Path) -> None:
    """The fault of a host is the caller's or the schedule's, by its class; the right program is accused of nothing."""
    program = str(built / "host_programs")
    wrong, right = (tmp_path / which for which in ("wrong", "right"))
    wrong.mkdir()
    right.mkdir()
    outcomes = judged(recorded(wrong, [program, name, "wrong"]))
    assert named(outcomes) == {FAULTS[name]}
    assert named(judged_as_it_came(wrong / "log.jsonl")) == {FAULTS[name]}
    (said,) = {text for one in outcomes for text in remarks_on(one.document, one.causes).get("in ggml", ())}
    assert SAID.get(name, CALLS.get(FAULTS[name][0], "ggml_")) in said
    assert ("ggml_backend_buffer_free" in said) == (name in GONE)
    if name in CURES:
        assert {cause.cure.words for one in outcomes for cause in one.causes if cause.cure} == {(CURES[name],)}
    twin = judged(recorded(right, [program, name, "right"]))
    assert not named(judged_as_it_came(right / "log.jsonl"))
    assert twin
    assert all(outcome.status == 0 and outcome.report and not outcome.report.warnings for outcome in twin)


@pytest.fixture(scope="module", name="linked")
def _linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C programs, linked with the recorder's object and a static stand-in for ggml."""
    return linked_program(tmp_path_factory.mktemp("linked"))


@pytest.mark.parametrize("which", ["wrong", "right"])
@pytest.mark.parametrize("name", ["input_once", "planned_over_then_read", "extended_behind_a_reset", "weights_freed"])
def test_program_that_ggml_is_linked_into(name: str, which: str, linked: Path, tmp_path: Path) -> None:
    """The linker's wrapped names reach what no loader sees: the same faults, and nothing without them."""
    log = tmp_path / "log.jsonl"
    subprocess.run([linked, name, which], env={**os.environ, recorder.LOG: str(log)}, check=True, capture_output=True)
    assert named(judged(documents_of(read_log(log)))) == ({FAULTS[name]} if which == "wrong" else set())


def test_linked_program_that_asks_what_a_graph_needs_holds_no_other(linked: Path, tmp_path: Path) -> None:
    """The scheduler gives up what it holds, by a call that no linker wraps: the graph behind it is the one computed."""
    log = tmp_path / "log.jsonl"
    subprocess.run([linked, "sized_then_computed"], env={**os.environ, recorder.LOG: str(log)}, check=True)
    said = [json.loads(line)["e"] for line in log.read_text().splitlines()]
    assert (said.count("run"), said.count("reset"), said.count("asked")) == (2, 1, 0)
    assert named(judged(documents_of(read_log(log)))) == set()


def test_linked_recorder_writes_nothing_where_no_log_is_named(linked: Path, tmp_path: Path) -> None:
    """The program does what it does without it."""
    quiet = {name: value for name, value in os.environ.items() if name != recorder.LOG}
    told = subprocess.run(
        [linked, "input_once", "right"], env=quiet, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert told.stdout == "out 1296\n" * 3
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", SOUND)
def test_right_program_is_not_accused(name: str, built: Path, tmp_path: Path) -> None:
    """A state that is carried, a leaf that keeps its bytes, an upload by pointer: nothing, and no lifetime is too long."""
    outcomes = judged(recorded(tmp_path, [str(built / "host_programs"), name]))
    assert not named(judged_as_it_came(tmp_path / "log.jsonl"))
    assert outcomes
    assert all(outcome.status == 0 and outcome.report and not outcome.report.warnings for outcome in outcomes)


def test_what_lies_where_it_lay_in_memory_made_anew_is_told_anew(built: Path, tmp_path: Path) -> None:
    """Three buffers at one address, and the tensors in each: the log had a line within a line."""
    documents = recorded(tmp_path, [str(built / "host_programs"), "planned_where_it_lay"])
    told = [*map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())]
    places = [(one["at"], one["base"]) for one in told if one["e"] == "buffer"]
    assert len(places) == 3
    assert len({*places}) == 1
    assert [document.meta["ggml"]["host"]["computes"] for document in documents] == [[1], [2], [3]]


def test_a_record_says_what_its_buffer_was_needed_for(built: Path, tmp_path: Path) -> None:
    """Three tensors of 256 bytes, all needed when the first op runs, in a buffer of just as many."""
    (document,) = recorded(tmp_path, [str(built / "host_programs"), "weights_in_the_plan"])
    (row,) = memory_answer(document)
    assert (row.asked, row.used, row.least) == (768, 768, 768)
    assert [name for name, _ in row.needed] == ["w", "x", "node_0"]


def test_a_record_says_where_what_was_reserved_was_too_little(built: Path, tmp_path: Path) -> None:
    """Room for tensors of 256 bytes is reserved; behind the first graph comes one that needs four times as much."""
    documents = recorded(tmp_path, [str(built / "host_programs"), "reserved_then_more"])
    rows = [row for document in documents for row in memory_answer(document)]
    assert [(row.asked, row.outgrown) for row in rows] == [(512, None), (2048, 512)]
    assert any("512 B reserved earlier were too few for a graph" in text for text in rows[1].sentences())


def test_steps_of_training_are_told(built: Path, tmp_path: Path) -> None:
    """Which step of ggml_opt a run is part of stands beside its number, and is said as it comes."""
    recorded(tmp_path, [str(built / "host_programs"), "trained_without_new_labels", "wrong"])
    (outcome,) = judged(documents_of(read_log(tmp_path / "log.jsonl")))
    assert outcome.document is not None
    assert outcome.document.meta["ggml"]["host"]["evaluations"] == [1, 2]
    assert finding(outcome.causes[0], outcome.document).startswith("compute 2, step 2 of ggml_opt: C14 caller")


def test_a_record_tells_which_copy_a_pipelined_run_uses(built: Path, tmp_path: Path) -> None:
    """Four in turn; those of the other runs are no leafs that the host would have to fill."""
    document, _ = recorded(tmp_path, [str(built / "host_programs"), "pipelined"])
    assert document.meta["ggml"]["host"]["copies"] == [0, 1, 2, 3, 0]
    assert document.meta["ggml"]["host"]["assumed"] == []


def test_two_contexts_of_one_shape_are_two_sessions(built: Path, tmp_path: Path) -> None:
    """Equal names and shapes in memory of their own: the fault is found in the second session alone."""
    outcomes = judged(recorded(tmp_path, [str(built / "host_programs"), "second_context_unflagged", "wrong"]))
    assert [len(outcome.causes) for outcome in outcomes] == [0, 1]


def test_killed_program_leaves_what_it_did(built: Path, tmp_path: Path) -> None:
    """A program that aborts is judged up to there, and so is its log cut within a line."""
    documents = recorded(tmp_path, [str(built / "host_programs"), "killed"])
    assert named(judged(documents)) == {("C06", "caller")}
    log = tmp_path / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-20])
    assert named(judged(documents_of(read_log(log)))) == {("C06", "caller")}


@pytest.mark.parametrize(("at", "found"), [("ran", set()), ("get", {("C09", "schedule")})])
def test_host_that_waits_for_an_event_waits_for_what_was_there(
    at: str, found: set[str], built: Path, tmp_path: Path
) -> None:
    """An event behind the run, waited for before the read, is a wait; recorded behind the read it is none."""
    recorded(tmp_path, [str(built / "host_programs"), "read_while_computing", "wrong"])
    log = tmp_path / "log.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    run = next(place for place, event in enumerate(events) if event["e"] == "run")
    kinds = [event["e"] for event in events]
    told = 1 + kinds.index(at, run)
    waits = [{"e": "record", "by": 7, "other": events[run]["by"]}, {"e": "wait", "by": 7, "other": 0}]
    events[told:told] = waits
    log.write_text("".join(json.dumps({**event, "n": n}) + "\n" for n, event in enumerate(events)))
    assert named(judged(documents_of(read_log(log)))) == found


def test_read_behind_an_op_in_place_is_a_hint(built: Path, tmp_path: Path) -> None:
    """`a` read after `scale_inplace(a)` is legal and rarely meant."""
    (document,) = recorded(tmp_path, [str(built / "host_programs"), "read_after_scale_inplace"])
    (hint,) = remarks_on(document)["hints"]
    assert "'node_1' reads 'a' after 'a (view)' wrote over it in place" in hint


def test_upload_by_pointer_is_said_to_be_assumed(built: Path, tmp_path: Path) -> None:
    """What no call wrote is assumed, and the answer says so."""
    (document,) = recorded(tmp_path, [str(built / "host_programs"), "written_by_pointer"])
    assert remarks_on(document) == {
        "assumed": ["the host uploaded 'x' by pointer before the first use: no recorded call did"]
    }


@pytest.mark.parametrize("calls", ["named", "bound"])
@pytest.mark.parametrize(("which", "found"), [("wrong", {("C07", "caller")}), ("right", set())])
def test_python_program_by_ctypes(
    which: str, found: set[tuple[str, str]], calls: str, built: Path, tmp_path: Path
) -> None:
    """Handles that ctypes asks of the loader are recorded, and what a library calls of itself by no name."""
    script = [sys.executable, str(PROGRAMS / "ctypes_host.py"), str(find("before")), which, calls]
    outcomes = judged(recorded(tmp_path, script))
    assert outcomes
    assert named(outcomes) == found


def test_damaged_logs_are_refused_in_one_line(built: Path, tmp_path: Path) -> None:
    """Lines left out, doubled, moved, and numbers that lie: a DocumentError, or an answer."""
    recorded(tmp_path, [str(built / "host_programs"), "planned_over_then_read", "wrong"])
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    refused = 0
    for seed in range(60):
        drawn, damaged = random.Random(seed), list(lines)
        place, numbers = drawn.randrange(len(lines)), ("0", "-1", "1.5", '"a"', "[]", "null", str(1 << 62), "9" * 20)
        kind = seed % 4
        if kind == 0:
            del damaged[place]
        elif kind == 1:
            damaged.insert(drawn.randrange(len(lines)), damaged[place])
        else:
            found = drawn.choice(list(re.finditer(r"\d+", damaged[place])))
            damaged[place] = damaged[place][: found.start()] + drawn.choice(numbers) + damaged[place][found.end() :]
        path = tmp_path / "damaged.jsonl"
        path.write_text("\n".join(damaged) + "\n")
        try:
            judged(documents_of(read_log(path)))
        except AllocsimError:
            refused += 1
    assert 0 < refused < 60


def test_view_of_before_a_reset_whose_root_is_laid_elsewhere_is_named() -> None:
    """Not taken for a log that lacks a line: where the view lies is said, and where its root puts it."""

    def told(at: int, op: str, name: str, data: int, *src: int, view: int = 0) -> dict[str, Any]:
        shape = {"type": "f32", "ne": [64, 1, 1, 1], "nb": [4, 256, 256, 256], "nbytes": 256, "view_offs": 0}
        whose = {"buffer": 9, "view_src": view, "src": src, "flags": 0, "op_params": []}
        return {"e": "tensor", "at": at, "op": op, "name": name, "data": data, **shape, **whose}

    def ran(at: int, *nodes: int) -> list[dict[str, Any]]:
        listed = {"e": "graph", "at": at, "leafs": [1, 2], "nodes": nodes}
        run = {"e": "run", "by": 7, "graph": at, "waits": True, "thread": 1, "changed": [], "same": [], "backends": [8]}
        return [listed, {"e": "plan", "by": 6, "graph": at, "for": 7}, run]

    events = [
        {"e": "start", "recorder": 5, "ggml": "", "pid": 1, "inplace_ops": []},
        {"e": "buffer", "at": 9, "base": 4096, "size": 65536, "usage": 2, "alignment": 32, "name": "CPU"},
        *(told(1, "NONE", "x", 4096), told(2, "NONE", "root", 8192), told(3, "VIEW", "part", 8192, 2, view=2)),
        *(told(4, "ADD", "sum", 12288, 1, 3), *ran(50, 3, 4), {"e": "reset", "by": 7}),
        *(told(2, "NONE", "root", 16384), told(5, "SQR", "over x", 4096, 3), told(6, "ADD", "more", 20480, 1, 5)),
        *ran(51, 3, 5, 6),
    ]
    reading = LogReading("log")
    reading.feed(b"".join(json.dumps({"n": n, **event}).encode() + b"\n" for n, event in enumerate(events)))
    reading.end()
    with pytest.raises(DocumentError, match=r"nodes\[0\]\.off: 4096 is not the offset of its root plus view_offs"):
        [*documents_of(reading.log)]


def _told_anew(log: Path) -> bytes:
    """Return a log in which all that is there again is told once more, in full."""
    told: dict[tuple[str, int], dict[str, Any]] = {}
    listed: dict[int, list[int]] = {}
    events = []
    for event in map(json.loads, log.read_text().splitlines()):
        if event["e"] in {"tensor", "graph"}:
            told[event["e"], event["at"]] = event
        again = event["e"] == "again"
        if again:
            listed[event["graph"]] = event.get("tensors", listed.get(event["graph"]))
        events += [told["tensor", at] for at in listed[event["graph"]]] if again else [event]
        events += [told["graph", event["graph"]]] if again and event["graph"] else []
    return b"".join(json.dumps({**event, "n": n}).encode() + b"\n" for n, event in enumerate(events))


def test_a_graph_made_anew_as_it_was_is_told_in_a_line(built: Path, tmp_path: Path) -> None:
    """It is a further graph all the same: documents and findings are those of a log that tells every tensor again."""
    documents = recorded(tmp_path, [str(built / "thirty_layers"), "12", "8", "4", "anew", "wrong"])
    log = tmp_path / "log.jsonl"
    again = [event for event in map(json.loads, log.read_text().splitlines()) if event["e"] == "again"]
    assert any(event["graph"] and len(event.get("tensors", ())) > 3000 for event in again)
    assert any(event["graph"] and "tensors" not in event for event in again), "those of last time"
    reading = LogReading("log")
    reading.feed(_told_anew(log))
    assert [*map(dumps, documents_of(reading.log))] == [*map(dumps, documents)]
    reading = LogReading("log")
    with pytest.raises(DocumentError, match="event 0: names address 7, where no earlier event placed an object"):
        reading.feed(b'{"e":"again","n":0,"tensors":[7],"graph":0}\n')


@pytest.mark.parametrize("graph", ["kept", "anew"])
def test_steps_that_are_alike_are_judged_once(graph: str, built: Path, tmp_path: Path) -> None:
    """Of 12 steps of 30 layers, in one graph or in one made anew each time, those after the third are no news."""
    recorded(tmp_path, [str(built / "thirty_layers"), "12", "8", "4", graph, "wrong"])
    outcomes = judged_as_it_came(tmp_path / "log.jsonl")
    assert named(outcomes) == {("C06", "caller")}
    assert max(len(outcome.document.session) for outcome in outcomes if outcome.document) <= 4
    assert len(outcomes) <= 6


def test_log_that_grows_is_read_as_one_that_is_whole(built: Path, tmp_path: Path) -> None:
    """Pieces of any length, lines of two threads in the wrong order, a last line without its end: the same documents."""
    whole = recorded(tmp_path, [str(built / "host_programs"), "planned_over_then_read", "wrong"])
    data, drawn = (tmp_path / "log.jsonl").read_bytes(), random.Random(7)
    lines = data.splitlines(keepends=True)
    for place in drawn.sample(range(1, len(lines) - 1), 20):
        lines[place : place + 2] = reversed(lines[place : place + 2])
    shuffled = b"".join(lines)[:-1]
    reading = LogReading("log")
    while shuffled:
        cut = drawn.randrange(1, 300)
        reading.feed(shuffled[:cut])
        shuffled = shuffled[cut:]
    reading.end()
    assert [*map(dumps, documents_of(reading.log))] == [*map(dumps, whole)]
