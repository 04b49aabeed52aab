"""What a file that says version 1 may not say, and what is written of what."""

import copy
import json

import pytest

from allocsim import ProgramBuilder, document, plan_of
from allocsim.errors import DocumentError
from allocsim.model import Document, Run

BASE = {
    "format": "allocsim",
    "version": 1,
    "programs": [
        {
            "buffers": [{"nbytes": 4}, {"nbytes": 4}],
            "values": [{"buffer": 0, "dtype": "f32", "shape": [1]}, {"buffer": 1, "dtype": "f32", "shape": [1]}],
            "ops": [{"kind": "f", "operands": [0], "results": [1], "in_place": [[0, 0]]}],
        }
    ],
    "plans": [{"program": 0, "slots": [None, None]}],
    "session": [{"plan": 0}, {"plan": 0}],
}
NEW = [
    (("programs", 0, "path"), ""),
    (("programs", 0, "buffers", 1, "nbytes_range"), [4, 4]),
    (("programs", 0, "values", 1, "bit_offset"), 0),
    (("programs", 0, "values", 0, "dtype"), "c64"),
    (("programs", 0, "ops", 0, "in_place"), [[0, 0, "exact"]]),
    (("session", 1, "after"), [0]),
    (("session", 0, "read_after"), 1),
]


def changed(path, value, version):
    tree = copy.deepcopy(BASE) | {"version": version}
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return json.dumps(tree)


def place_of(path):
    shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")
    return shown + ("[0][2]" if path[-1] == "in_place" else "")


@pytest.mark.parametrize(("path", "value"), NEW, ids=[path[-1] for path, _ in NEW])
def test_a_new_key_is_refused_in_version_1_even_where_it_says_the_default(path, value):
    document.loads(changed(path, value, 2))
    with pytest.raises(DocumentError) as error:
        document.loads(changed(path, value, 1), "f.json")
    assert str(error.value) == f'f.json: {place_of(path)}: needs "version": 2'


PAIRS = [
    ([[0]], "in_place[0]: has 1 entries; 2 are needed, or 3 with a strength"),
    ([[0, 0], [0, 0, "bytes", 1]], "in_place[1]: has 4 entries; 2 are needed, or 3 with a strength"),
    ([[0, 0, "byte"]], 'in_place[0][2]: "byte" is none of exact bytes whole'),
    ([[0, 0, None]], "in_place[0][2]: null is not a string"),
    ([["0", 0]], 'in_place[0][0]: "0" is not an integer'),
]


@pytest.mark.parametrize(("pairs", "said"), PAIRS, ids=[str(number) for number in range(len(PAIRS))])
def test_what_is_no_pair_is_refused_at_its_place(pairs, said):
    with pytest.raises(DocumentError) as error:
        document.loads(changed(("programs", 0, "ops", 0, "in_place"), pairs, 2), "f.json")
    assert str(error.value) == f"f.json: programs[0].ops[0].{said}"


def test_a_file_of_version_2_that_needs_only_1_is_written_as_1():
    assert json.loads(document.dumps(document.loads(json.dumps(BASE | {"version": 2}))))["version"] == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_same_means_what_the_file_says_and_goes_on_to_mean_it(version):
    data = changed(("programs", 0, "ops", 0, "kind"), "same", version)
    found = document.loads(data)
    again = document.loads(document.dumps(found))
    for one in (found, again):
        assert one.programs[0].same_ops.tolist() == [version == 2]
    assert json.loads(document.dumps(again))["version"] == version


def test_a_file_of_version_1_may_grow_what_is_new():
    plan = document.loads(json.dumps(BASE)).plans[0]
    b = ProgramBuilder("other")
    b.tensor("z", "c64", (2,))
    grown = Document.of(Run.of(plan), Run.of(plan_of(b.build(), [0]), after=()))
    assert json.loads(document.dumps(grown))["version"] == 2


def test_files_of_version_1_come_back_byte_for_byte():
    data = document.dumps(document.loads(json.dumps(BASE)))
    assert b'"version": 1' in data
    assert document.dumps(document.loads(data)) == data
