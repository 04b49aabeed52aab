"""docs/format.md against the code: its examples are read, its tables name every key and word there is, and its claims hold."""

import json
import re
from pathlib import Path

import pytest

from allocsim import check, document
from allocsim.document import rows
from allocsim.judge.violations import KINDS
from allocsim.model import DTYPES, STRENGTHS, WIDTHS

TEXT = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
BLOCKS = re.findall(r"^```json\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
OBJECTS = {row.__name__.removesuffix("Row").lower(): row for row in rows.PUBLIC_NAMES}


def example(word):
    """Return the one block that has a word in it, its braces put around it where it is a piece."""
    (block,) = [block for block in BLOCKS if word in block]
    return json.loads(block if block.lstrip().startswith("{") else f"{{{block}}}")


def read(program, **more):
    tree = {"format": "allocsim", "version": 2, "arenas": [{"name": "a"}], "programs": [program], **more}
    return document.loads(json.dumps(tree))


def test_every_block_is_json():
    assert len(BLOCKS) >= 7
    for block in BLOCKS:
        json.loads(block if block.lstrip().startswith("{") else f"{{{block}}}")


def test_the_first_example_is_a_document_and_sound():
    found = document.loads(json.dumps(json.loads(BLOCKS[0])))
    assert found.version == 2
    assert found.runs[1].after == ()
    assert not check(found).of_kind("StaleRead")


@pytest.mark.parametrize("name", OBJECTS)
def test_the_table_of_objects_names_every_key(name):
    (line,) = re.findall(rf"^\| {name} \| (.*) \|$", TEXT, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", re.sub(r"\[[^]]*\]", "", line)))
    assert named == set(OBJECTS[name].__struct_fields__) - {"meta"}


def test_the_text_names_every_word():
    assert f"dtypes: `{' '.join(name for name, _ in DTYPES[:13])}`" in TEXT
    packed = " ".join(name for (name, _), width in zip(DTYPES, WIDTHS, strict=True) if width < 8)
    assert f"packed, `{packed}`" in TEXT
    assert all(name in TEXT for name, _ in DTYPES)
    assert all(f'`"{strength}"`' in TEXT for strength in STRENGTHS)
    assert set(KINDS) <= set(re.findall(r"`([A-Z]\w+)`", TEXT))


def test_the_packed_example_is_two_halves_of_a_byte():
    piece = example('"low"')
    values = read({**piece, "ops": []}).programs[0].values
    assert [values.bit_runs(value).tolist() for value in (0, 1)] == [[[0, 4]], [[4, 8]]]


def test_packed_rows_are_padded_to_bytes():
    """The `i4` of shape [3, 5] that the text speaks of."""
    values = (
        read({"buffers": [{"nbytes": 9}], "values": [{"buffer": 0, "dtype": "i4", "shape": [3, 5]}], "ops": []})
        .programs[0]
        .values
    )
    assert values[0].strides == (3, 0)
    assert values.bit_runs(0).tolist() == [[0, 20], [24, 44], [48, 68]]


def test_intent_is_convicted_and_mechanics_are_not():
    piece = example("index_put")
    slots = [{"arena": 0, "offset": at, "nbytes": 64} for at in (0, 0, 64)]
    intent = check(read(piece, plans=[{"program": 0, "slots": slots}]))
    assert [(v.kind, v.op) for v in intent.of_kind("StaleRead")] == [("StaleRead", 3)]
    piece["values"][2]["buffer"] = 0
    slots[1] = {"arena": 0, "offset": 128, "nbytes": 64}
    assert check(read(piece, plans=[{"program": 0, "slots": slots}])).clean


def test_the_loop_carries_are_same():
    ops = example("carry.0")["ops"]
    values = [{"buffer": number, "dtype": "f32", "shape": [4]} for number in range(8)]
    program = read({"buffers": [{"nbytes": 16}] * 8, "values": values, "ops": ops}).programs[0]
    assert program.same_ops.tolist() == [False, False, True, False, True, False]
