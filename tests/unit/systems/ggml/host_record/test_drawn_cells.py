"""Cells of llama.cpp's caches in logs that are drawn: what a host may ask, and what is said where that is not done."""

import random
import re
from contextlib import suppress

import pytest

from allocsim.cli import main
from allocsim.errors import AllocsimError, DocumentError
from allocsim.recordings import judge
from allocsim.systems.ggml.host_record.cache_cells import cell_recordings
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import LogReading
from tests.llama_logs import CACHE, KEYS, ROW, TURNED, DrawnLog

RESTORED = "cells that were restored from a state are right"


def _said(log, folder):
    """Return what is found, and what is assumed, how often."""
    cells = log.recording(folder)
    return [found.text for found in judge(cells.events).findings], dict(cells.assumed)


def _rows(*positions, sequence=0):
    return [[at, sequence] for at in positions]


def _begun(count=6):
    """A prompt in the cells from 0 on."""
    log = DrawnLog()
    log.decode(_rows(*range(count)), [*range(count)], [[0, k + 1] for k in range(count)])
    return log


def test_a_state_that_was_saved_and_is_restored_is_assumed_not_taken_for_a_copy_of_cells(tmp_path):
    """The bytes saved last are as many as those restored, and may be others."""
    log = _begun()
    log.touch("get", 0, 6)
    log.ask("remove", 0)
    log.ask("restore", 0)
    log.touch("set", 0, 6)
    log.ask("restored", 0, number=1)
    log.decode(_rows(6), [6], [[0, 7]])
    assert _said(log, tmp_path) == ([], {RESTORED: 6})


def test_a_state_restored_into_a_new_context_is_known_before_its_first_run(tmp_path):
    log = DrawnLog()
    log.ask("restore", -1)
    log.touch("set", 0, 6)
    log.ask("restored", -1, number=1)
    log.decode(_rows(6), [6], [[0, 7]])
    assert _said(log, tmp_path) == ([], {RESTORED: 6})


def _moved(to, cells=(8, 14)):
    """What was saved of the prompt is restored into other cells, once it was removed."""
    log = _begun()
    log.ask("saved", 0, digest=7, number=1)
    log.ask("remove", 0)
    log.ask("restore", to)
    log.touch("set", *cells)
    log.ask("restored", to, digest=7, number=1)
    return log


def test_a_state_whose_bytes_were_saved_before_is_known_and_nothing_is_assumed(tmp_path):
    log = _moved(0)
    log.decode(_rows(6), [14], [[8, 15]])
    assert _said(log, tmp_path) == ([], {})


def test_what_is_decoded_behind_a_save_is_not_in_the_state(tmp_path):
    """It is gone where the state is restored over it, and its position is another token's then."""
    log = _begun()
    log.ask("saved", 0, digest=7, number=1)
    log.decode(_rows(6), [6], [[0, 7]])
    for _ in range(2):
        log.ask("restore", 0)
        log.touch("set", 8, 14)
        log.ask("restored", 0, digest=7, number=1)
        log.decode([[None, 0]], [14], [[8, 15]], turned=[6])
    assert _said(log, tmp_path) == ([], {})


def test_a_known_state_of_all_ends_what_was_assumed_of_each(tmp_path):
    """A cell that the host writes behind it is no part of a state that was not known."""
    log = _begun()
    log.ask("saved", -1, digest=9, number=1)
    for named, digest in ((0, 8), (-1, 9)):
        log.ask("restore", named)
        log.touch("set", 0, 6)
        log.ask("restored", named, digest=digest, number=1)
    log.touch("set", 2, 3)
    log.decode(_rows(6), [6], [[0, 7]])
    (told,), assumed = _said(log, tmp_path)
    assert "cells [2, 3)" in told
    assert not assumed


def test_cells_of_a_known_state_that_are_given_away_are_told(tmp_path):
    log = _moved(0)
    log.decode(_rows(0, sequence=1), [9], [[9, 10]])
    log.decode(_rows(6), [14], [[8, 15]])
    (text,), assumed = _said(log, tmp_path)
    assert ("cells [9, 10)" in text, "from 1 on of sequence 0" in text, assumed) == (True, True, {})


def test_a_state_of_which_other_cells_are_written_than_were_saved_is_assumed(tmp_path):
    log = _moved(0, (8, 13))
    log.decode(_rows(6), [14], [[8, 13, 14, 15]])
    assert _said(log, tmp_path) == ([], {RESTORED: 5})


def test_a_sequence_that_goes_on_where_a_state_ended_which_another_one_got_is_told(tmp_path):
    """Its first positions are those of nobody: the host restored them into sequence 1."""
    log = _moved(1)
    log.decode(_rows(6), [14], [[14, 15]])
    cells = log.recording(tmp_path)
    (found,) = judge(cells.events).findings
    assert (found.class_, found.party) == ("C01", "caller")
    assert "positions [0, 6) of sequence 0 as it was saved are read" in found.text
    assert dict(cells.assumed) == {"the state of sequence 0 is meant for sequence 1": 1}


def test_a_state_may_be_meant_for_another_sequence(tmp_path):
    """A server moves its slots; the sequence that was saved begins anew."""
    log = _moved(1)
    log.decode([[6, 1], [0, 0]], [14, 0], [[8, 15], [0, 1]])
    log.decode(_rows(1), [1], [[0, 2]])
    assert _said(log, tmp_path) == ([], {"the state of sequence 0 is meant for sequence 1": 1})


def test_cells_of_a_state_are_told_where_a_sequence_reads_them_that_got_none(tmp_path):
    """Also where it could not be restored: then nobody has it."""
    log = _begun()
    log.ask("restore", 1)
    log.touch("set", 8, 12)
    log.ask("restored", 1, number=0)
    log.decode(_rows(4, sequence=1), [12], [[8, 13]])
    (text,), assumed = _said(log, tmp_path)
    assert ("cells [8, 9)" in text, "sequence 1" in text, assumed) == (True, True, {})


@pytest.mark.parametrize("named", [0, -1])
def test_a_state_that_is_not_taken_may_leave_what_was_there(tmp_path, named):
    """A file that is missing, or of another model, leaves the cells alone; one that is cut gives them up."""
    log = _begun()
    log.ask("restore", named)
    log.ask("restored", named, number=0)
    log.decode([[None, 0]], [6], [[0, 7]], turned=[6])
    assert _said(log, tmp_path) == ([], {"cells of a batch that failed, or cannot be followed, are right": 6})


def test_a_state_that_is_not_taken_may_leave_one_that_was(tmp_path):
    log = DrawnLog()
    log.ask("restore", 0)
    log.touch("set", 0, 6)
    for number in (1, 0):
        log.ask("restored", 0, number=number)
        log.ask("restore", 0)
    log.ask("restored", 0, number=0)
    log.decode(_rows(6), [6], [[0, 7]])
    assert _said(log, tmp_path) == ([], {RESTORED: 6})


def test_cells_are_copied_behind_a_state_that_an_older_recorder_told_at_its_end(tmp_path):
    """That recorder told no beginning: what is written behind it is no state."""
    log = DrawnLog(streams=2)
    log.events[0]["recorder"] = 1
    log.decode(_rows(*range(6)), [*range(6)], [[0, k + 1] for k in range(6)])
    log.ask("restore", 3)
    log.touch("get", 0, 16)
    log.touch("set", 16, 32)
    log.ask("copy", 0, 1)
    log.decode(_rows(6, sequence=1), [22], [[16, 23]])
    assert _said(log, tmp_path) == ([], {})


def test_positions_left_to_llama_cpp_go_on_where_a_restored_sequence_ended(tmp_path):
    log = DrawnLog()
    log.ask("restore", 0)
    log.touch("set", 0, 6)
    log.ask("restored", 0, number=1)
    log.decode([[None, 0]], [6], [[0, 7]], turned=[6])
    log.decode([[None, 0]], [7], [[0, 8]], turned=[7])
    assert _said(log, tmp_path) == ([], {RESTORED: 12})


def test_several_tokens_may_come_to_one_position(tmp_path):
    """Positions 4 to 7 divided by two lie at 2 and 3, beside those that are there."""
    log = _begun(8)
    log.ask("divide", 0, start=4, stop=8, number=2)
    log.decode(_rows(4), [8], [[0, 9]], turns=[0, 0, 0, 0, -2, -3, -3, -4] + [0] * 8)
    assert _said(log, tmp_path) == ([], {})


def test_keys_that_are_turned_the_other_way_are_told(tmp_path):
    """As llama.cpp's division of positions does it (xllamacpp 2026.10.11549)."""
    log = _begun(8)
    log.ask("divide", 0, start=4, stop=8, number=2)
    log.decode(_rows(4), [8], [[0, 9]], turns=[0, 0, 0, 0, 2, 3, 3, 4] + [0] * 8)
    texts, assumed = _said(log, tmp_path)
    assert ("cells [4, 5)" in texts[0], assumed) == (True, {})


def test_a_shift_of_cells_that_two_sequences_share_moves_both(tmp_path):
    """Sequence 1 keeps what 0 gave up, and has two cells at those positions then."""
    log = DrawnLog()
    log.decode([[at, 0, 1] for at in range(6)], [*range(6)], [[0, k + 1] for k in range(6)])
    log.ask("remove", 0, start=2, stop=4)
    log.ask("add", 0, start=4, number=-2)
    log.decode(_rows(4), [6], [[0, 2, 4, 7]], turns=[0, 0, 0, 0, -2, -2] + [0] * 10)
    log.decode(_rows(4, sequence=1), [7], [[0, 6, 7, 8]])
    assert _said(log, tmp_path) == ([], {})


@pytest.mark.parametrize(
    ("turned", "named"),
    [
        ([0, 1, 2, 3, 5], ["cache_k_l4"]),
        ([1], ["cache_k_l[0, 2-5]"]),
        ([0, 3], ["cache_k_l[1-2, 4-5]"]),
        (range(6), []),
    ],
)
def test_layers_whose_keys_are_not_shifted_are_named_once_together(tmp_path, turned, named):
    """Whichever they are: each layer is judged, not the first one for all."""
    log = DrawnLog(layers=6)
    log.decode(_rows(*range(6)), [*range(6)], [[0, k + 1] for k in range(6)])
    log.ask("remove", 0, start=2, stop=4)
    log.ask("add", 0, start=4, number=-2)
    log.decode(_rows(4), [6], [[0, 2, 4, 7]], turns=[0, 0, 0, 0, -2, -2] + [0] * 10, turned_layers=turned)
    texts, assumed = _said(log, tmp_path)
    assert [re.findall(r"cells \[4, 6\) of (\S.*?) hold", text) for text in texts] == [[name] for name in named]
    assert assumed == {}


def test_a_layer_that_a_copy_left_out_is_told(tmp_path):
    log = DrawnLog(streams=2, layers=3)
    log.decode(_rows(*range(6)), [*range(6)], [[0, k + 1] for k in range(6)])
    for layer in (0, 2):
        log.touch("get", 0, 16, layer)
        log.touch("set", 16, 32, layer)
    log.ask("copy", 0, 1)
    log.decode(_rows(6, sequence=1), [22], [[16, 23]])
    (text,), assumed = _said(log, tmp_path)
    assert ("cells [16, 22) of cache_k_l1 hold" in text, "not all of them were written" in text, assumed) == (1, 1, {})


def test_values_that_the_graph_does_not_tell_are_said_not_to_be_examined(tmp_path):
    log = _begun()
    log.decode(_rows(6), [6], [[0, 7]], values=TURNED)
    assert _said(log, tmp_path) == ([], {"values (V) in cells that the graph does not show are right: not examined": 1})


@pytest.mark.parametrize("word", ["clear", "remove"])
def test_a_batch_that_failed_is_no_excuse_behind_a_memory_that_was_cleared(tmp_path, word):
    """The next token of the sequence is its first one again; its key is turned to 5."""
    log = _begun()
    log.decode(_rows(6), [6], [[0, 7]], status=1)
    log.ask(word, -1)
    log.decode([[None, 0]], [0], [[0, 1]], turned=[5])
    (text,), assumed = _said(log, tmp_path)
    assert ("cells [0, 1)" in text, assumed) == (True, {})


def test_a_sequence_keeps_its_own_cells_beside_those_that_are_copied_to_it(tmp_path):
    """In one stream a copy gives cells another name; nothing of the target is removed."""
    log = _begun()
    log.decode(_rows(0, 1, sequence=1), [6, 7], [[6, 7], [6, 8]])
    log.ask("copy", 0, 1)
    log.decode(_rows(6, sequence=1), [8], [[0, 9]])
    assert _said(log, tmp_path) == ([], {})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_log_of_a_known_recorder_is_read(tmp_path, number):
    log = _begun()
    log.events[0]["recorder"] = number
    assert _said(log, tmp_path) == ([], {})


def test_a_log_of_a_newer_recorder_is_refused_in_a_line(tmp_path):
    log = _begun()
    log.events[0]["recorder"] = 7
    with pytest.raises(DocumentError, match=r"line 1.*recorder"):
        log.read(tmp_path)


@pytest.mark.parametrize(("cells", "reads"), [([16], [[0, 7]]), ([-1], [[0, 7]]), ([6], [[0, 17]]), ([6], [[0]])])
def test_a_run_that_goes_beyond_its_cache_is_counted_as_assumed(tmp_path, cells, reads):
    log = _begun()
    log.decode(_rows(6), cells, reads)
    assert _said(log, tmp_path) == ([], {"runs that write or read outside of a cache are right": 1})


def test_a_prompt_whose_first_cells_are_given_away_is_told_where_a_window_is_no_reason(tmp_path):
    """A token of a higher position read as far down: there is no window there."""
    log = _begun(8)
    log.decode(_rows(*range(4), sequence=1), [8, 9, 10, 11], [[8, 9 + k] for k in range(4)])
    log.decode(_rows(8), [8], [[0, 9]])
    log.decode(_rows(4, sequence=1), [12], [[9, 13]])
    (text,), assumed = _said(log, tmp_path)
    assert ("cells [8, 9)" in text, "from 0 on of sequence 1" in text, assumed) == (True, True, {})


def test_cells_below_a_window_are_nobodys(tmp_path):
    """Each token reads three positions, those of its sequence; a chunk would begin anew."""
    log = DrawnLog()
    log.decode(_rows(*range(6)), [*range(6)], [[max(k - 2, 0), k + 1] for k in range(6)])
    log.decode(_rows(*range(4), sequence=1), [8, 9, 10, 11], [[8 + max(k - 2, 0), 9 + k] for k in range(4)])
    log.decode(_rows(6), [0], [[0, 1, 4, 6]])
    log.decode(_rows(4, sequence=1), [1], [[1, 2, 10, 12]])
    assert _said(log, tmp_path) == ([], {})


def test_a_fault_that_is_seen_in_many_runs_is_told_once_with_its_first_place(tmp_path, capsys):
    log = _begun(4)
    for at in range(4, 8):
        log.ask("remove", 0, start=at - 1, stop=at)
        log.decode(_rows(at), [at], [[0, at + 1]])
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{line}\n" for line in log.lines()))
    assert main(["record", "ggml", "--log", str(path)]) == 1
    said = capsys.readouterr().out
    assert "cells of memory 0: 1 finding in " in said
    assert "1. C14 plan, 4 places, first at read of compute 2\n" in said
    assert "2. C14" not in said


def test_results_that_come_without_a_wait_are_kept_until_they_are_waited_for_or_taken(tmp_path):
    """A host that reads into ever other addresses is followed in the memory of what is under way; what is taken unwaited
    for is told once."""
    log = DrawnLog()
    for address in range(0, 640, 64):
        log.say("get", t=CACHE, size=ROW, by=5, into=10_000 + address, **{"from": 0})
    log.say("taken", at=10_000 + 64 + 4)
    log.say("taken", at=10_000 + 64 + 8)
    log.say("taken", at=77)
    reading = LogReading("log")
    reading.feed("".join(f"{line}\n" for line in log.lines()).encode())
    assert sum(map(len, reading.coming.values())) == 9
    assert [one.event for one in reading.log.happened[10:]] == [log.events[-3]["n"]]
    log.say("sync", by=5)
    reading.feed(f"{log.lines()[-1]}\n".encode())
    assert not any(reading.coming.values())


NUMBERS = ("0", "-1", "1.5", '"a"', "[]", "null", "100000", str(1 << 62), "9" * 20)


def _damaged(lines, drawn):
    """Leave a line out, double one, put another thing there, change it with the next one, or a number of it."""
    place, other = (
        drawn.randrange(len(lines)),
        drawn.choice(("garbage", "{}", "[1]", '{"e":"mask","n":5,"t":1,"rows":[[3]]}')),
    )
    number = drawn.choice(list(re.finditer(r"-?\d+", lines[place])))
    wrong = lines[place][: number.start()] + drawn.choice(NUMBERS) + lines[place][number.end() :]
    kept = lines[place : place + 1]
    return (
        lines[:place]
        + drawn.choice(([], kept * 2, [other], lines[place : place + 2][::-1], [wrong]))
        + lines[place + 1 :]
    )


def test_damaged_logs_are_answered_or_refused_in_a_line():
    """So are those that end anywhere; nothing else is raised."""
    log = _begun()
    log.touch("get", 0, 6)
    log.touch("set", 8, 14)
    log.ask("add", 0, start=3, number=1)
    log.decode(_rows(7), [6], [[0, 7]], turns=[0, 0, 0, 1, 1, 1] + [0] * 10)
    lines, seed, refused = log.lines(), random.randrange(1 << 30), 0
    for each in range(150):
        drawn = random.Random(seed + each)
        text = "\n".join(_damaged(lines, drawn) if each % 3 else lines) + "\n"
        reading = LogReading("log")
        try:
            reading.feed(text[: None if each % 3 else drawn.randrange(len(text))].encode())
            reading.end()
            for cells in cell_recordings(reading.log):
                judge(cells.events)
        except AllocsimError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed + each}") from error
    assert 0 < refused < 100


LIES = {
    # what is told: (the event or the tensor, what is told of it instead)
    "a token without a position": ("batch", {"rows": [[]]}),
    "rows that are written by nothing": ("laid", {"src": []}),
    "keys that are turned by nothing": ("turned", {"src": [KEYS]}),
    "a cache whose rows have no bytes": ("cache_k_l0", {"nb": [4, 0, 0, 0]}),
    "a cache without cells": ("cache_k_l0", {"ne": [16, 0, 1, 1]}),
    "a mask of no stream": ("mask", {"ne": [16, 1, 1, 0]}),
    "a tensor that is its own source": ("k", {"op": "CONT", "src": [KEYS]}),
    "a graph that does not list what it reads": ("graph", {"leafs": [CACHE]}),
}


@pytest.mark.parametrize("lie", LIES)
def test_logs_that_lie_are_answered_or_refused_in_a_line(lie):
    name, instead = LIES[lie]
    log = _begun()
    told = [event for event in log.events if name in (event["e"], event.get("name"))]
    for event in told:
        event.update(instead)
    reading = LogReading("log")
    with suppress(AllocsimError):
        reading.feed("".join(line + "\n" for line in log.lines()).encode())
        reading.end()
        for cells in cell_recordings(reading.log):
            judge(cells.events)
        documents_of(reading.log)
    assert told
