"""What a program and a document of version 2 must obey, each breach one line with its place."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim import ProgramBuilder, plan_of
from allocsim.errors import ModelError
from allocsim.model import BYTES, EXACT, WHOLE, Document, Role, Run


def pair(dtype="f32", other="f32", shape=(4,), other_shape=(4,)):
    b = ProgramBuilder("p")
    b.tensor("x", dtype, shape)
    b.tensor("y", other, other_shape)
    return b


def same(b, operands=("x",), results=("y",)):
    b.same(operands, results)
    return b.build()


@pytest.mark.parametrize(
    ("dtype", "shape", "other", "other_shape"),
    [
        ("f32", (4,), "u8", (16,)), ("f32", (2, 2), "f32", (4,)), ("i4", (4,), "u8", (2,)), ("i4", (3,), "u2", (6,)), ("f32", (), "u8", (2, 2)),
        ("c128", (1,), "i2", (64,)), ("f32", (0, 3), "u8", (0,)), ("i4", (3,), "i4", (3, 1)),
    ],
)  # fmt: skip
def test_the_two_sides_of_a_same_hold_equally_many_bits(dtype, shape, other, other_shape):
    assert same(pair(dtype, other, shape, other_shape)).same_ops.tolist() == [True]


SAMES = [
    (lambda: same(pair(), ("x",), ()), r"ops\[0\]: a same has as many operands as results, not 1 and 0 \(op 'same'\)"),
    (
        lambda: same(pair(other_shape=(3,))),
        r"ops\[0\]\.results\[0\]: value 1 has 12 bytes; value 0, which it is to equal, has 16 bytes \(op 'same'\)",
    ),
    (lambda: same(pair("i4", "i4", (3,), (4,))), "value 1 has 2 bytes; value 0, which it is to equal, has 12 bits"),
    (lambda: same(pair("i4", "u8", (3,), (2,))), "value 1 has 2 bytes; value 0, which it is to equal, has 12 bits"),
]


@pytest.mark.parametrize(("made", "said"), SAMES, ids=["counts", "bytes", "padding", "bits"])
def test_a_same_of_unequal_sides_is_refused(made, said):
    with pytest.raises(ModelError, match=said):
        made()


def test_sizes_beyond_64_bits_are_compared_exactly():
    b = ProgramBuilder("p")
    byte = b.buffer("b", 1)
    x = b.value("x", byte, "u8", (1 << 60,), strides=(0,))
    y = b.value("y", b.buffer("c", 1), "i2", (1 << 57,))
    b.op("view", (x,), (b.value("z", byte, "u8", (1,)),))
    b.same((x,), (y,))
    with pytest.raises(
        ModelError, match=f"value 1 has {1 << 55} bytes; value 0, which it is to equal, has {1 << 60} bytes"
    ):
        b.build()


def test_in_version_1_same_is_a_kind_like_any_other():
    b = ProgramBuilder("p", version=1)
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (3,))
    b.op("same", (x,), (y,))
    assert b.build().same_ops.tolist() == [False]


VALUES = [
    ({"dtype": "f32", "bit_offset": 4}, r"values\[0\]\.bit_offset: 4; only a packed value may start within a byte, and f32 is not packed"),
    ({"dtype": "i4", "bit_offset": 2}, r"values\[0\]\.bit_offset: 2 is no multiple of 4, the width of i4, below 8"),
    ({"dtype": "u2", "bit_offset": 9}, r"values\[0\]\.bit_offset: 9 is not between 0 and 7"),
    ({"dtype": "i4", "strides": (1,)}, r"values\[0\]\.strides\[0\]: 1; a packed value's last dimension has stride 0"),
    ({"dtype": "i4", "shape": (2, 3), "strides": (0, 1)}, r"values\[0\]\.strides\[1\]: 1; a packed value's last dimension has stride 0"),
    ({"dtype": "i4", "offset": 1 << 60}, r"values\[0\]: is packed and reaches beyond 2\^59 bytes"),
    ({"dtype": "i4", "shape": (1 << 61,)}, r"values\[0\]: is packed and reaches beyond 2\^59 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), VALUES, ids=[str(number) for number in range(len(VALUES))])
def test_a_value_that_no_packing_allows_is_refused(given, said):
    b = ProgramBuilder("p")
    buffer = b.buffer("b", 4)

    def made():
        b.value("v", buffer, **{"shape": (3,), **given})
        return b.build()

    with pytest.raises(ModelError, match=said):
        made()


RANGES = [
    ((5, 4), r"\[5, 4\] is not a range of sizes, the least first"),
    ((-1, 9), r"\[-1, 9\] is not a range of sizes"),
    ((9, 12), r"\[9, 12\] leaves out the buffer's own size, 8"),
    ((1, 1 << 63), r"\[1, 9223372036854775808\] is not a range of sizes"),
]


@pytest.mark.parametrize(("ends", "said"), RANGES, ids=["order", "negative", "outside", "huge"])
def test_a_range_of_sizes_has_the_size_in_it(ends, said):
    b = ProgramBuilder("p")
    b.buffer("b", 8, nbytes_range=ends)
    with pytest.raises(ModelError, match=r"buffers\[0\]\.nbytes_range: " + said):
        b.build()


def test_the_ends_of_sizes_are_columns():
    b = ProgramBuilder("p")
    b.buffer("a", 8)
    b.buffer("b", 8, nbytes_range=(4, 16))
    buffers = b.build().buffers
    assert buffers.nbytes_low.tolist() == [8, 4]
    assert buffers.nbytes_high.tolist() == [8, 16]


def test_persistent_buffers_of_one_name_have_one_range():
    def made(ends):
        b = ProgramBuilder("p")
        b.buffer("s", 8, role=Role.STATE, nbytes_range=ends)
        return b.build()

    Document.of(made((4, 8)), made((4, 8)))
    with pytest.raises(
        ModelError, match=r"programs\[1\]\.buffers\[0\]\.nbytes_range: none; .* 's' has \[4, 8\] in programs\[0\]"
    ):
        Document.of(made((4, 8)), made(None))


def runs(*given, version=2):
    b = ProgramBuilder("p", version=version)
    b.buffer("b", 8)
    plan = plan_of(b.build(), [0])
    return Document.of(*(Run.of(plan, **one) for one in given))


RUNS = [
    ([{}, {"after": (1,)}], r"session\[1\]\.after\[0\]: run 1 is not earlier than run 1"),
    ([{}, {"after": (0, -1)}], r"session\[1\]\.after\[1\]: run -1 does not exist; there are 2"),
    ([{}, {"after": (2,)}], r"session\[1\]\.after\[0\]: run 2 does not exist; there are 2"),
    ([{}, {"read_after": 1}], r"session\[1\]\.read_after: run 1 is not later than run 1"),
    ([{"read_after": 2}, {}], r"session\[0\]\.read_after: run 2 does not exist; there are 2"),
]


@pytest.mark.parametrize(("given", "said"), RUNS, ids=[str(number) for number in range(len(RUNS))])
def test_a_run_waits_for_runs_before_it_and_is_read_after_runs_behind_it(given, said):
    with pytest.raises(ModelError, match=said):
        runs(*given)


def test_what_a_run_may_wait_for():
    found = runs({"after": (), "read_after": 2}, {"after": (0,)}, {"after": ()}, {}).runs
    assert [(run.after, run.read_after) for run in found] == [((), 2), ((0,), None), ((), None), (None, None)]


@pytest.mark.parametrize("given", [{"after": ()}, {"read_after": 1}])
def test_runs_of_version_1_wait_for_all_before_them(given):
    with pytest.raises(ModelError, match=rf'session\[0\]\.{next(iter(given))}: needs "version": 2'):
        runs(given, {}, version=1)


NEWER = [
    ({"path": "left"}, {}, {}, "path"),
    ({}, {"nbytes_range": (1, 9)}, {}, r"buffers\[0\]\.nbytes_range"),
    ({}, {}, {"dtype": "c64"}, r"values\[0\]\.dtype"),
    ({}, {}, {"dtype": "i4", "bit_offset": 4}, r"values\[0\]\.dtype"),
]


@pytest.mark.parametrize(("program", "buffer", "value", "place"), NEWER, ids=["path", "range", "dtype", "bits"])
def test_version_1_has_nothing_that_came_with_version_2(program, buffer, value, place):
    def made(version):
        b = ProgramBuilder("p", version=version, **program)
        b.value("v", b.buffer("b", 8, **buffer), **{"dtype": "f32", "shape": (1,), **value})
        return b.build()

    made(2)
    with pytest.raises(ModelError, match=rf'^{place}: needs "version": 2$'):
        made(1)


def test_strengths_of_version_1_are_exact():
    b = ProgramBuilder("p", version=1)
    x, y = b.tensor("x", "f32", (1,)), b.tensor("y", "f32", (1,))
    b.op("neg", (x,), (y,), in_place=((0, 0), (0, 0, "whole")))
    with pytest.raises(ModelError, match=r'ops\[0\]\.in_place\[1\]: needs "version": 2'):
        b.build()


def test_there_is_no_version_3():
    with pytest.raises(ModelError, match="version: 3 is none of 1 and 2"):
        ProgramBuilder("p", version=3).build()


def test_programs_of_two_versions_make_no_document():
    with pytest.raises(ModelError, match=r"programs\[1\]: is of version 1; the first program is of version 2"):
        Document.of(ProgramBuilder("p").build(), ProgramBuilder("q", version=1).build())


def test_strengths_stand_beside_their_pairs():
    b = pair()
    b.op("mul", ("x", "x"), ("y",), in_place=((0, 0, "whole"), (1, 0), (1, 0, "bytes"), (0, 0, "exact")))
    ops = b.build().ops
    assert ops[0].in_place == ((0, 0), (1, 0), (1, 0), (0, 0))
    assert ops[0].strengths == (WHOLE, EXACT, BYTES, EXACT)
    with pytest.raises(ModelError, match="columns of 1 and 4 rows do not fit together"):
        replace(
            replace(b.build(), ops=ops), ops=replace(ops, in_place=ops.in_place[:1], in_place_starts=np.array([0, 1]))
        )


def test_pairs_without_strengths_may_change_alone():
    b = pair()
    b.op("mul", ("x", "x"), ("y",), in_place=((0, 0), (1, 0)))
    program = b.build()
    fewer = replace(
        program, ops=replace(program.ops, in_place=program.ops.in_place[:1], in_place_starts=np.array([0, 1]))
    )
    assert fewer.ops[0].strengths == (EXACT,)
