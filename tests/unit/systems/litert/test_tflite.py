"""TensorFlow Lite models with an offline plan, and the pointers of a LiteRT interpreter: the laws, and what is refused."""

import struct

import pytest
from plan_laws import DAMAGED, PLANS, causes, law_of_damage

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.model import SAME
from allocsim.outcomes import judge_file
from allocsim.systems.litert import litert_pointers, tflite
from allocsim.systems.litert.tflite_file import KINDS, PLAN
from allocsim.systems.litert.tflite_in_place import SHARED, UNMODIFIED

FOLDER = PLANS / "tflite"
CLEAN = {
    "if_offline.tflite": (2, 16, 12),
    "rand0_plan.json": (1, 59, 58),
    "rand7_offline.tflite": (1, 25, 24),
    "rand7_plan.json": (1, 25, 24),
    "while_offline.tflite": (1, 30, 28),
}
"""File -> programs, ops and buffers of all of them."""


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_plan_stays_clean(name):
    """The two random models give the same numbers with `preserve_all_tensors` (ai-edge-litert 2.3.0, no delegate)."""
    document = systems.load(FOLDER / name)
    report = check(document)

    assert report.violations == ()
    assert report.warnings == ()
    programs = document.programs
    assert (len(programs), sum(len(p.ops) for p in programs), sum(len(p.buffers) for p in programs)) == CLEAN[name]


def test_an_add_in_place_over_a_tensor_that_a_reshape_shares_is_convicted():
    """This model's numbers change with `preserve_all_tensors`, in ai-edge-litert 2.3.0 without delegates."""
    assert causes(FOLDER / "reshape_add.json") == [("C01", "plan")]


def test_a_file_and_the_pointers_of_its_interpreter_say_the_same():
    documents = [systems.load(FOLDER / name) for name in ("rand7_offline.tflite", "rand7_plan.json")]
    one, other = (document.plans[0] for document in documents)

    assert sorted(one.offset.tolist()) == sorted(other.offset.tolist())
    assert [op.kind for op in documents[0].programs[0].ops] == [op.kind for op in documents[1].programs[0].ops]


def test_a_file_without_an_offline_plan_has_no_plan_here():
    document = systems.load(FOLDER / "while.tflite")
    outcome = judge_file(FOLDER / "while.tflite")

    assert document.plans == ()
    assert outcome.status == 2


def test_the_ways_and_turns_of_control_flow():
    paths = [program.path for program in systems.load(FOLDER / "if_offline.tflite").programs]
    program = systems.load(FOLDER / "while_offline.tflite").programs[0]

    assert sorted(paths) == ["if 0=else", "if 0=then"]
    assert [op.kind for op in program.ops].count("less") == 3
    assert [op.kind for op in program.ops].count(SAME) == 2 + 3 * 2 + 2 * 4


def offsets(new):
    """The file of the loop, with other offsets for the tensors of its body."""
    data = (FOLDER / "while_offline.tflite").read_bytes()
    old = struct.pack("<8i", 1, 2, 5, 128, 144, -1, 160, 176)
    assert data.count(old) == 1
    return data.replace(old, struct.pack("<8i", 1, 2, 5, *new))


def test_a_body_planned_over_its_caller_is_convicted(tmp_path):
    """A planner that plans each subgraph alone lays the body's results over tensors of the caller (tensorflow/tflite-micro#947)."""
    path = tmp_path / "model.tflite"
    path.write_bytes(
        offsets((128, 144, -1, 160, 48))
    )  # x1 of the body over x1 of the caller, which lives on: a copy to itself
    assert check(systems.load(path)).clean
    path.write_bytes(
        offsets((128, 144, -1, 48, 176))
    )  # i1 of the body over x1 of the caller: body and condition read it later
    assert check(systems.load(path)).clean
    path.write_bytes(offsets((128, 128, -1, 160, 176)))  # both inputs of the body in one place

    assert {party for _, party in causes(path)} == {"plan"}


def test_the_table_names_kinds_of_the_schema():
    assert UNMODIFIED | SHARED.keys() <= set(KINDS)
    assert len(KINDS) == len(set(KINDS)) == 210


@pytest.mark.parametrize(
    ("new", "rule"),
    [
        ((128, 144, -1, 160, -2), "has the offset -2; the only negative value allowed is -1"),
        ((-2147483648, 144, -1, 160, 176), "has the offset -2147483648"),
    ],
)
def test_offsets_are_checked(new, rule):
    with pytest.raises(DocumentError, match=rule):
        tflite.loads(offsets(new), "x.tflite")


def test_a_plan_for_another_number_of_tensors_is_refused():
    data = (FOLDER / "while_offline.tflite").read_bytes()
    old = struct.pack("<3i", 1, 2, 5)

    with pytest.raises(DocumentError, match=f"{PLAN} has 8 words"):
        tflite.loads(data.replace(old, struct.pack("<3i", 1, 2, 6)), "x.tflite")
    with pytest.raises(DocumentError, match="names subgraph 9"):
        tflite.loads(data.replace(old, struct.pack("<3i", 1, 9, 5)), "x.tflite")
    with pytest.raises(DocumentError, match="has version 7"):
        tflite.loads(data.replace(old, struct.pack("<3i", 7, 2, 5)), "x.tflite")


@pytest.mark.parametrize("name", ["while_offline.tflite", "if_offline.tflite", "rand7_offline.tflite"])
@DAMAGED
def test_damaged_models_end_in_one_line(name, times):
    read, refused = law_of_damage((FOLDER / name).read_bytes(), tflite.loads, seed=3, times=times)

    assert read > 0
    assert refused > 0


@DAMAGED
def test_damaged_pointers_end_in_one_line(times):
    _, refused = law_of_damage((FOLDER / "reshape_add.json").read_bytes(), litert_pointers.loads, seed=3, times=times)

    assert refused > 0


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"[]", "expected `object`"),
        (b'{"tensors": [], "ops": [{"op": "ADD", "ins": [3], "outs": []}]}', "tensor 3 does not exist; there are 0"),
        (b'{"tensors": [{"id": 0, "size": -1, "first": 0, "last": 0}], "ops": []}', "size: expected `int` >= 0"),
    ],
)
def test_what_is_wrong_in_pointers_is_said(data, rule):
    with pytest.raises(DocumentError, match=rule):
        litert_pointers.loads(data, "x.json")
