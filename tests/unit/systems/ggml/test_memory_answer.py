"""What each compute buffer of a ggml document is needed for: reserved, used, needed at once."""

import json

import pytest

from allocsim.systems.ggml.dump_document import loads
from allocsim.systems.ggml.memory_answer import entries_of, memory_answer, sentences_of

ROW = {"op": "NONE", "type": "f32", "ne": [8, 1, 1, 1], "nb": [4, 32, 32, 32], "nbytes": 32}
LEAFS = [{**ROW, "name": "x", "off": 0}]
NODES = [
    {**ROW, "op": "CONT", "name": "y", "off": 96, "src": ["L0"]},
    {**ROW, "op": "SQR", "name": "z", "off": 96, "src": [0], "flags": 2},
]


def document(**meta):
    """A copy behind a gap of 64 bytes, squared in place."""
    return loads(json.dumps({"meta": {"version": "0.26.0", **meta}, "leafs": LEAFS, "nodes": NODES}).encode(), "dump")


def test_what_is_reserved_used_and_needed_are_three_numbers():
    (row,) = memory_answer(document(buffer_size=4096))

    assert (row.asked, row.used, row.least) == (4096, 128, 64)
    assert row.at == "op 1 'y'"
    assert row.needed == (("x", 32), ("y", 32))
    assert (row.highest, row.free) == ("y", 64)


def test_a_person_reads_it_in_three_sentences():
    assert sentences_of(memory_answer(document(buffer_size=4096))) == [
        "'compute': 4 KiB reserved, 128 B used, and no plan uses less than 64 B",
        "'compute': live at op 1 'y' of run 0: 'x' of 32 B, 'y' of 32 B",
        "'compute': 'y' ends highest; 64 B below its end are free when it is made",
    ]


def test_a_dump_that_does_not_say_what_was_reserved_has_the_rest():
    (entry,) = entries_of(memory_answer(document()))

    assert entry["asked"] is None
    assert (entry["used"], entry["least"]) == (128, 64)
    assert entry["needed"][0] == {"tensor": "x", "nbytes": 32}


@pytest.mark.parametrize("host", [{"of": "late reads", "computes": [1]}, {"of": "", "computes": [0]}])
def test_a_part_of_a_session_and_a_buffer_given_back_have_no_answer(host):
    found = document()
    found.meta["ggml"]["host"] = host

    assert memory_answer(found) == []


def test_tensors_without_names_are_told_by_number_and_ops_by_kind():
    unnamed = [{**row, "name": ""} for row in NODES]
    given = json.dumps({"meta": {"version": "0.26.0"}, "leafs": LEAFS, "nodes": unnamed}).encode()
    (row,) = memory_answer(loads(given, "dump"))

    assert "''" not in "".join(row.sentences())
    assert row.needed[0] == ("x", 32)
