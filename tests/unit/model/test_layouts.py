"""Where bytes and bits of values lie, against a walk from element to element."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import documents

from allocsim import ProgramBuilder
from allocsim.errors import ModelError
from allocsim.model import DTYPE_CODES, DTYPES, ITEMSIZES, WIDTHS
from allocsim.model.layout import dense_nbytes, dense_strides, overlaps_itself

PACKED = ("i4", "u4", "i2", "u2", "f4")


@st.composite
def layouts(draw):
    """Draw dtype, shape, strides, offset and bit offset."""
    dtype = draw(st.sampled_from(sorted(DTYPE_CODES)))
    width = int(WIDTHS[DTYPE_CODES[dtype]])
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    strides = list(draw(st.tuples(*[st.integers(-12, 12)] * len(shape))))
    if width < 8 and shape:
        strides[-1] = 0
    return (
        dtype,
        shape,
        tuple(strides),
        draw(st.integers(-9, 9)),
        draw(st.sampled_from(range(0, 8, width))) if width < 8 else 0,
    )


def bits_of(dtype, shape, strides, offset, bit_offset):
    """Return the bits of each element, by the sentence of the format."""
    width = int(WIDTHS[DTYPE_CODES[dtype]])
    for index in product(*map(range, shape)):
        at = 8 * (offset + sum(i * s for i, s in zip(index, strides, strict=True))) + bit_offset
        at += index[-1] * width if width < 8 and shape else 0
        yield range(at, at + width)


def value_of(dtype, shape, strides, offset, bit_offset):
    b = ProgramBuilder("p")
    b.value("v", b.buffer("b", 0), dtype, shape, strides=strides, offset=offset, bit_offset=bit_offset)
    return b.build().values


def spread(runs):
    return [number for low, high in runs.tolist() for number in range(low, high)]


@given(layouts())
def test_runs_and_hulls_are_those_of_the_elements(layout):
    values = value_of(*layout)
    bits = sorted({bit for element in bits_of(*layout) for bit in element})
    touched = sorted({bit // 8 for bit in bits})
    assert spread(values.bit_runs(0)) == bits
    assert spread(values.runs(0)) == touched
    assert bool(values.dense[0]) == (len(values.runs(0)) <= 1)
    assert bool(values.ragged[0]) == (8 * len(touched) != len(bits))
    assert int(values.counts[0]) == len(list(bits_of(*layout)))
    if bits:
        assert values.bit_hulls[0].tolist() == [bits[0], bits[-1] + 1]
        assert values.hulls[0].tolist() == [touched[0], touched[-1] + 1]
    else:
        assert values.hulls[0, 0] == values.hulls[0, 1]
        assert values.bit_hulls[0, 0] == values.bit_hulls[0, 1]


@given(layouts())
def test_a_layout_overlaps_itself_exactly_where_two_elements_share_a_bit(layout):
    dtype, shape, strides, _, _ = layout
    bits = [bit for element in bits_of(*layout) for bit in element]
    assert overlaps_itself(shape, strides, int(WIDTHS[DTYPE_CODES[dtype]])) == (len(set(bits)) != len(bits))


@given(layouts())
@example(("f4", (2, 1), (0, 0), 0, 0))  # two rows of half a byte in one byte: as many bits as it has
def test_a_result_is_refused_exactly_where_its_elements_overlap(layout):
    dtype, shape, strides, offset, bit_offset = layout
    b = ProgramBuilder("p")
    made = b.value("v", b.buffer("b", 0), dtype, shape, strides=strides, offset=offset, bit_offset=bit_offset)
    b.op("fill", (), (made,))
    bits = [bit for element in bits_of(*layout) for bit in element]
    if len(set(bits)) == len(bits):
        b.build()
        return
    with pytest.raises(ModelError, match="whose own elements overlap"):
        b.build()


@given(layouts())
def test_the_default_layout_has_no_holes_but_the_ends_of_packed_rows(layout):
    dtype, shape, _, _, _ = layout
    width = int(WIDTHS[DTYPE_CODES[dtype]])
    values = value_of(dtype, shape, dense_strides(shape, width), 0, 0)
    touched = spread(values.runs(0))
    assert touched == list(range(dense_nbytes(shape, width)))
    rows = [shape[-1] * width] * int(np.prod(shape[:-1], dtype=int)) if width < 8 and shape else []
    held = int(np.prod(shape, dtype=int)) * width
    assert 8 * len(touched) - held == sum(-bits % 8 for bits in rows) if shape or width >= 8 else touched == [0]


def test_two_packed_values_lie_in_one_byte_without_sharing_a_bit():
    b = ProgramBuilder("nibbles")
    byte = b.buffer("byte", 1)
    low = b.value("low", byte, "i4", (1,))
    high = b.value("high", byte, "i4", (1,), bit_offset=4)
    values = b.build().values
    assert values.bit_runs(low).tolist() == [[0, 4]]
    assert values.bit_runs(high).tolist() == [[4, 8]]
    assert values.runs(low).tolist() == values.runs(high).tolist() == [[0, 1]]
    assert not values[low].same_layout(values[high])
    assert values[low].same_layout(values[low])


def test_the_codes_of_version_1_are_what_they_were():
    assert [name for name, _ in DTYPES[:13]] == [
        "f64",
        "f32",
        "f16",
        "bf16",
        "i64",
        "i32",
        "i16",
        "i8",
        "u64",
        "u32",
        "u16",
        "u8",
        "bool",
    ]
    assert all(ITEMSIZES[DTYPE_CODES[name]] == 1 and WIDTHS[DTYPE_CODES[name]] < 8 for name in PACKED)
    whole = [code for name, code in DTYPE_CODES.items() if name not in PACKED]
    assert (8 * ITEMSIZES[whole] == WIDTHS[whole]).all()


@given(documents())
def test_the_values_of_a_buffer_are_those_that_say_so(document):
    for program in document.programs:
        values = program.values
        for buffer in range(len(program.buffers) + 1):
            assert values.of(buffer).tolist() == np.flatnonzero(values.buffer == buffer).tolist()
