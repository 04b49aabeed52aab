"""A witness in words and as JSON, and the calls that ops carry."""

from dataclasses import replace

import pytest

from allocsim.verdict.calls import calls
from allocsim.verdict.records import Witness, witness_json
from repro.small.words import program


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "?"),
        ({"buffer_name": "b"}, "b"),
        ({"buffer_name": "b", "value_name": "v"}, "v"),
        ({"value_name": "v", "op": 0, "op_name": "f"}, "v at op 0 (f)"),
        ({"value_name": "v", "op": 3, "op_name": "f", "run": 0}, "v at op 3 (f)"),
        ({"buffer_name": "b", "op": 3, "op_name": "f", "run": 2}, "b at op 3 (f) of run 2"),
    ],
)
def test_a_witness_is_said(told, said):
    assert str(Witness(**told)) == said


def test_a_witness_is_json_and_none_is_null():
    assert witness_json(None) is None
    assert witness_json(Witness(value_name="v", bytes=((0, 4), (8, 12))))["bytes"] == [[0, 4], [8, 12]]


def test_a_call_is_a_path_of_labels_alone():
    made = program("x = host.write; a = f x; b = g a; c = h b; host.read c")
    meta = {0: {"call": ["f", 1]}, 1: {"call": ["f", {}]}, 2: {"call": []}, 3: {"layer": 1}, 4: {"call": "f"}}
    assert dict(calls(replace(made, ops=replace(made.ops, meta=meta)))) == {0: ("f", 1)}
