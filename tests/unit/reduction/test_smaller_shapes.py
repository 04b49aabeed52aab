"""Smaller shapes of what version 2 added: the sides of a `same` shrink together, packed values by their rows."""

import json

import numpy as np
import pytest
from encodings_2 import permuted

from allocsim import ProgramBuilder, check, loads, plan_of
from allocsim.model import Arena, Document, Run
from allocsim.reduction import reduce
from allocsim.reduction.smaller_shapes import flattened, shortened


def unbounded(made):
    """Return a document without capacities: how much fits is part of a question that no shrink may touch."""
    for arena in made["arenas"]:
        arena.pop("capacity", None)
    return loads(json.dumps(made).encode())


def kinds(document):
    return {kind: count for kind, count in check(document).counts.items() if kind != "AssumedInPlace"}


@pytest.mark.parametrize("shrink", [flattened, lambda document: shortened(document, 64, 2)], ids=["flat", "short"])
def test_a_permuted_carry_is_the_same_fault_in_smaller_shapes(shrink):
    document = unbounded(permuted())
    small = shrink(document)
    assert kinds(small) == kinds(document)
    assert small.programs[0].buffers.nbytes.sum() < document.programs[0].buffers.nbytes.sum() / 100


def reshaped():
    """A `same` from [4, 6] to [24], of which a part is read on, and a late read of its operand."""
    b = ProgramBuilder("p", arenas=(Arena(name="a"),))
    x, y, z = b.tensor("x", "f32", (4, 6)), b.tensor("y", "f32", (24,)), b.tensor("z", "f32", (24,))
    part = b.value("part", "y", "f32", (10,), offset=24)
    b.op("host.write", (), (x,))
    b.same((x,), (y,))
    b.op("f", (part,), (z,))
    b.op("host.read", (x, y, z), ())
    return Document.of(Run.of(plan_of(b.build(), [0, 96, 0])))


def test_a_boundary_in_one_side_of_a_same_is_one_in_the_other():
    document, small = reshaped(), flattened(reshaped())
    assert kinds(small) == kinds(document)
    assert small.programs[0].buffers.nbytes.tolist() == [12, 12, 12]


def test_where_the_sides_no_longer_have_equally_many_bytes_nothing_is_shortened():
    assert shortened(reshaped(), 6, 2) is None


def packed():
    """Two rows of nibbles in one buffer each, the second laid over the first while it is to be read."""
    b = ProgramBuilder("p", arenas=(Arena(name="a"),))
    x, y = b.tensor("x", "i4", (8, 10)), b.tensor("y", "i4", (8, 10))
    b.op("host.write", (), (x,))
    b.op("f", (x,), (y,))
    b.op("host.read", (x, y), ())
    return Document.of(Run.of(plan_of(b.build(), [0, 0])))


def test_packed_values_are_shortened_row_by_row():
    small = shortened(shortened(packed(), 10, 3), 8, 1)
    assert kinds(small) == kinds(packed())
    assert small.programs[0].buffers.nbytes.tolist() == [2, 2]
    assert np.array_equal(small.programs[0].values.shape, [1, 3, 1, 3])


@pytest.mark.parametrize("made", [reshaped(), packed()], ids=["same", "packed"])
def test_the_reducer_finds_the_smallest(made):
    found = reduce(made)
    assert not check(found.document).clean
    assert found.document.programs[0].buffers.nbytes.sum() <= made.programs[0].buffers.nbytes.sum() / 8
