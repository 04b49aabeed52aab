"""Cells of llama.cpp's caches, recorded from real runs: which faults are told, and that right runs are not accused.

The host (`tests/data/ggml_host/llama_host.py`) is a program of its own; what goes wrong in it goes wrong in memory, between
llama.cpp and ggml, where the recorder sees what really is there.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import pytest
from ggml_live import live
from gguf_models import write_model

from allocsim.cli import main
from allocsim.outcomes import outcome_of
from allocsim.recordings import judge
from allocsim.systems.ggml.access.library import find
from allocsim.systems.ggml.host_record import host_recorder as recorder
from allocsim.systems.ggml.host_record.cache_cells import CellRecording, cell_recordings
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import read_log

HOSTS = Path(__file__).parents[4] / "data" / "ggml_host"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

FAULTS = {
    "taken": ("read of compute 3", "cells [263, 264)", "from 7 on of sequence 1; they hold other content"),
    "opened": ("read of compute 5", "cells [15, 16)", "from 15 on of sequence 0; they hold other content"),
    "behind": ("read of compute 3", "cells [30, 31)", "from 20 on of sequence 0; not all of them were written"),
    "unturned": ("read of compute 10", "cells [516, 526)", "from 2 on of sequence 2; they hold other content"),
    "twice": ("read of compute 10", "cells [516, 526)", "from 2 on of sequence 2; they hold other content"),
    "uncopied": ("read of compute 8", "cells [512, 525)", "from 0 on of sequence 2; not all of them were written"),
    "divided": ("read of compute 14", "cells [514, 515)", "from 18 on of sequence 2; they hold other content"),
    "uncopied_keys": (
        "read of compute 8",
        "cells [512, 525) of cache_k_l1",
        "sequence 2; not all of them were written",
    ),
    "uncopied_values": (
        "read of compute 8",
        "cells [512, 525) of cache_v_l1",
        "sequence 2; not all of them were written",
    ),
    "astray": ("read of compute 3", "cells [263, 264) of cache_v_l[0-1]", "sequence 1; they hold other content"),
    "astray apart": ("read of compute 3", "cells [263, 264) of cache_v_l[0-1]", "sequence 1; they hold other content"),
    "uncopied_values apart": ("read of compute 8", "of cache_v_l1 hold", "sequence 2; not all of them were written"),
    "unturned apart": ("read of compute 10", "cells [516, 526) of cache_k_l[0-1]", "they hold other content"),
    "stale": ("read of compute 5", "cells [11, 12)", "from 11 on of sequence 0; they hold other content"),
}
"""Fault -> where the cells are read, which they are, and what the allocator says of them."""


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers."""
    live("after")
    return write_model(tmp_path_factory.mktemp("cells") / "m.gguf")


def _command(model: Path, fault: str) -> list[str]:
    return [sys.executable, str(HOSTS / "llama_host.py"), str(find("after")), str(model), *fault.split()]


def _cells(model: Path, folder: Path, fault: str) -> CellRecording:
    assert recorder.record(_command(model, fault), folder / "log.jsonl") == 0
    (found,) = cell_recordings(read_log(folder / "log.jsonl"))
    return found


@pytest.mark.parametrize("attention", ["none", "none apart"])
def test_right_sequences_are_followed_through_copies_and_shifts_without_an_accusation(model, tmp_path, attention):
    """Every cell that is read holds what its sequence wants there, keys and values; nothing is taken for granted."""
    cells = _cells(model, tmp_path, attention)
    judged = judge(cells.events)
    assert (judged.findings, dict(judged.assumed), dict(cells.assumed)) == ([], {}, {})
    kinds = [event["kind"] for event in cells.events if event["event"] == "use"]
    assert {kind: kinds.count(kind) for kind in kinds} == {"write": 11, "read": 11, "copy": 1, "turn": 1}


@pytest.mark.parametrize("fault", FAULTS)
def test_cells_that_hold_something_else_are_told_where_they_are_read(model, tmp_path, fault):
    """The class is C14, the plan's: llama.cpp's own word of its cells is wrong."""
    cells = _cells(model, tmp_path, fault)
    (found,) = judge(cells.events).findings
    place, which, text = FAULTS[fault]
    assert (found.class_, found.party, cells.place(found.event)) == ("C14", "plan", place)
    assert which in found.text
    assert text in found.text


@pytest.mark.parametrize(
    ("fault", "named", "assumed"),
    [
        ("restored", set(), {}),
        ("restored apart", set(), {}),
        ("elsewhere", {("C01", "caller")}, {"the state of sequence 1 is meant for sequence 2": 1}),
    ],
)
def test_a_state_that_is_restored_into_the_wrong_sequence_is_told(model, tmp_path, fault, named, assumed):
    """The sequence goes on where the state ended, and has none of it; the right twin is known cell by cell."""
    cells = _cells(model, tmp_path, fault)
    found = judge(cells.events).findings
    assert {(one.class_, one.party) for one in found} == named
    assert all("positions [0, 15) of sequence 1 as it was saved are read" in one.text for one in found)
    assert dict(cells.assumed) == assumed


def test_tokens_whose_cells_are_swapped_are_left_out_by_the_mask_and_that_is_said(model, tmp_path):
    """What each cell holds is wanted by its sequence; that a token does not read its own is not judged, but counted."""
    cells = _cells(model, tmp_path, "swapped")
    assert judge(cells.events).findings == []
    assert cells.assumed == {"positions that a mask leaves out are left out on purpose": 3}


def test_results_that_are_given_out_without_a_wait_are_told(model, tmp_path):
    """The race is the schedule's; the same host, where llama.cpp waits, is clean, and its cells are right in both."""
    causes = {}
    for fault in ("hasty", "none"):
        folder = tmp_path / fault
        folder.mkdir()
        assert judge(_cells(model, folder, fault).events).findings == []
        outcomes = [outcome_of("record", document) for document in documents_of(read_log(folder / "log.jsonl"))]
        causes[fault] = {(cause.class_, cause.party) for outcome in outcomes for cause in outcome.causes}
    assert causes == {"hasty": {("C09", "schedule")}, "none": set()}


def test_the_command_says_it_keeps_the_events_and_trace_says_the_same(model, tmp_path, capsys):
    """Exit status 1 by the cells alone: the plans of the program are right."""
    folder = tmp_path / "kept"
    assert main(["record", "ggml", "--documents", str(folder), "--", *_command(model, "opened")]) == 1
    said = capsys.readouterr().out
    assert "cells of memory 0: 1 finding in " in said
    assert "1. C14 plan, at read of compute 5\n" in said
    assert main(["trace", "--json", str(folder / "cells-0.jsonl")]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["class"], finding["party"]) == ("C14", "plan")


def test_drawn_hosts_that_are_right_are_not_accused_and_nothing_is_assumed(model, tmp_path):
    """Twenty contexts of one process, whose memories come to lie where earlier ones lay."""
    seed = random.randrange(1 << 30)
    command = [sys.executable, str(HOSTS / "llama_sessions.py"), str(find("after")), str(model), str(seed), "20"]
    assert recorder.record(command, tmp_path / "log.jsonl") == 0
    found = cell_recordings(read_log(tmp_path / "log.jsonl"))
    reads = sum(event.get("kind") == "read" for one in found for event in one.events)
    assert [(judge(one.events).findings, dict(one.assumed)) for one in found] == [([], {})] * len(found), f"seed {seed}"
    assert reads > 100, f"seed {seed}"
