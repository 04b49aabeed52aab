"""The builder: names as well as indices, dtypes by anyone's name, and one clear line for what is neither."""

import numpy as np
import pytest
from steps import lines_run

from allocsim import ProgramBuilder, plan_of, verify, verify_program
from allocsim.errors import ModelError
from allocsim.programs import builder as rows
from allocsim.programs.dtype_names import FOREIGN, dtype_of


def started():
    b = ProgramBuilder("p")
    return b, b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))


def test_values_and_buffers_go_by_name():
    b, _, _ = started()
    half = b.view("x", "half", (2,), offset=8)
    b.value("other", "y", "u8", (16,))
    b.op("mul", ("x", half), ("y",))
    program = b.build()
    assert program.values.buffer.tolist() == [0, 1, 0, 1]
    assert (program.ops[1].operands, program.ops[1].results) == ((0, 2), (1,))


def test_numpys_integers_are_indices():
    b, x, y = started()
    b.op("neg", np.array([x]), [np.int64(y)])
    assert b.build().ops[0].operands == (0,)


SAID = {
    "a kind that is no text": (
        lambda b, x, y: b.op(3, (x,), (y,), name="f"),
        "ops[0].kind: op 'f' is of kind 3; a kind is text",
    ),
    "a stream by name": (
        lambda b, x, y: b.op("f", (x,), (y,), stream="zz"),
        "ops[0].stream: op 'f' is on stream 'zz'; streams are numbered from 0",
    ),
    "no list": (
        lambda b, x, y: b.op("neg", x, x),
        "ops[0].operands: op 'neg' is given 0, no list of values; one value is (0,)",
    ),
    "a word": (
        lambda b, x, y: b.op("neg", "x", (y,)),
        "ops[0].operands: op 'neg' is given 'x', no list of values; one value is ('x',)",
    ),
    "misspelt": (
        lambda b, x, y: b.op("neg", ("xx",), (y,)),
        "ops[0].operands[0]: op 'neg': no value is named 'xx'; did you mean 'x'?",
    ),
    "unlike": (
        lambda b, x, y: b.op("neg", (x,), ("qqq",)),
        "ops[0].results[0]: op 'neg': no value is named 'qqq'; there are 2",
    ),
    "no index": (
        lambda b, x, y: b.op("neg", (0.0,), ()),
        "ops[0].operands[0]: op 'neg': 0.0 is neither the index nor the name of a value",
    ),
    "truth": (
        lambda b, x, y: b.op("neg", (True,), ()),
        "ops[0].operands[0]: op 'neg': True is neither the index nor the name of a value",
    ),
    "buffer": (lambda b, x, y: b.value("v", "z", "f32", ()), "values[2].buffer: no buffer is named 'z'; there are 2"),
    "parent": (lambda b, x, y: b.view(7, "v", ()), "values[2].parent: value 7 does not exist; there are 2"),
    "shape": (lambda b, x, y: b.tensor("v", "f32", 3), "values[2].shape: 3 is no list of whole numbers"),
    "length": (lambda b, x, y: b.tensor("v", "f32", (1.5,)), "values[2].shape[0]: 1.5 is no whole number"),
    "bits": (lambda b, x, y: b.value("v", 0, "i4", (), bit_offset=8), "values[2].bit_offset: 8 is not between 0 and 7"),
}


@pytest.mark.parametrize(("wrong", "said"), SAID.values(), ids=SAID)
def test_what_cannot_be_a_row_is_told_at_once(wrong, said):
    b, x, y = started()
    with pytest.raises(ModelError) as error:
        wrong(b, x, y)
    assert str(error.value) == said


BUILT = {
    "absent": (lambda b, x, y: b.op("add", (99,), (y,)), "ops[0].operands[0]: value 99 does not exist; there are 2 (op 'add')"),
    "own result": (lambda b, x, y: b.op("add", (y,), (y,), name="grow"), "ops[0].operands[0]: value 1 is made by op 0, not before op 0 (op 'grow')"),
    "strength": (lambda b, x, y: b.op("add", (x,), (y,), in_place=((0, 0, "byte"),)), "ops[0].in_place[0][2]: 'byte' is none of exact bytes whole (op 'add')"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "said"), BUILT.values(), ids=BUILT)
def test_what_the_rules_refuse_names_the_op(wrong, said):
    b, x, y = started()
    wrong(b, x, y)
    with pytest.raises(ModelError) as error:
        b.build()
    assert str(error.value) == said


def test_a_name_of_two_values_is_refused_as_one():
    b, _, y = started()
    b.tensor("x", "f32", (4,))
    with pytest.raises(ModelError, match=r"'x' is the name of 2 values \(0, 2\); give the index"):
        b.op("neg", ("x",), (y,))


def test_names_given_after_a_first_look_are_found():
    b, _, _ = started()
    b.op("neg", ("x",), ())
    b.tensor("late", "f32", (1,))
    b.op("neg", ("late",), ())
    assert b.build().ops[1].operands == (2,)


def program():
    b, x, y = started()
    b.op("host.write", (), (x,))
    b.op("neg", (x,), (y,))
    b.op("host.read", (y,), ())
    return b.build()


def test_a_plan_goes_by_names_of_buffers():
    made = program()
    assert plan_of(made, {"y": 32, "x": 0}).offset.tolist() == [0, 32]
    assert plan_of(made, {"y": 32, 0: 0}).offset.tolist() == [0, 32]
    assert verify(made, {"x": 0, "y": 32}).clean
    assert not verify_program(made, {"x": 0, "y": 0}).clean
    assert plan_of(made, {"x": "own", "y": None}).arena.tolist() == [-1, -2]


SLOTS = [
    ({"x": 0, "z": 32}, "slots['z']: no buffer is named 'z'; there are 2"),
    ({"x": 0, 0: 32}, "slots[0]: buffer 0 has a slot already"),
    ({"x": 0.5}, "slots[0]: 0.5 is no whole number"),
    ({9: 0}, "slots[9]: buffer 9 does not exist; there are 2"),
]


@pytest.mark.parametrize(("slots", "said"), SLOTS, ids=[str(number) for number in range(len(SLOTS))])
def test_what_names_no_buffer_is_refused(slots, said):
    with pytest.raises(ModelError) as error:
        plan_of(program(), slots)
    assert str(error.value) == said


class Torch:
    """Prints as torch's dtypes do."""

    def __init__(self, name):
        self.name_of_it = name

    def __repr__(self):
        return f"torch.{self.name_of_it}"


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("f4", "f4"), (np.dtype("f4"), "f32"), (np.dtype(">f4"), "f32"), (np.float32, "f32"), ("float32", "f32"), ("numpy.float16", "f16"),
        (np.dtype("i4"), "i32"), ("i4", "i4"), (bool, "bool"), (np.bool_, "bool"), (float, "f64"), (np.complex128, "c128"),
        (Torch("bfloat16"), "bf16"), (Torch("float8_e4m3fn"), "f8_e4m3"), ("torch.half", "f16"), (Torch("bool"), "bool"), ("int4", "i4"),
        (np.dtype("V8"), None), (np.dtype([("a", "f4")]), None), ("<f4", None), (4, None), (None, None), ("", None),
    ],
)  # fmt: skip
def test_dtypes_go_by_anyones_name(given, word):
    assert dtype_of(given) == word
    b = ProgramBuilder("p")
    if word is None:
        with pytest.raises(ModelError, match=r"values\[0\]\.dtype: .* is none of f64 f32 "):
            b.tensor("x", given, (2,))
        return
    b.tensor("x", given, (2,))
    assert b.build().values[0].dtype == word


def test_every_name_of_numpys_own_means_its_size():
    for name, word in FOREIGN.items():
        known = getattr(np, name, None)
        if isinstance(known, type) and issubclass(known, np.generic):
            assert dtype_of(known) == word


def test_a_misspelt_dtype_is_told_what_it_is_near():
    with pytest.raises(ModelError, match="did you mean 'float32'"):
        ProgramBuilder("p").tensor("x", "flot32", (2,))


def test_a_value_of_many_axes_takes_no_more_lines_than_one_of_one():
    """Places are spelled and axes looked at one by one only where a number is wrong."""

    def lines(shape):
        builder = ProgramBuilder("p")
        return lines_run(rows, lambda: builder.value("v", builder.buffer("b", 64), "f32", shape))

    assert lines((4,)) == lines((1, 2, 1, 2, 1, 1, 1))
    builder = ProgramBuilder("p")
    with pytest.raises(ModelError, match=r"values\[0\]\.shape\[1\]: .* exceeds 2\^62"):
        builder.value("v", builder.buffer("b", 64), "f32", (1, 1 << 63), strides=(1, 1))
