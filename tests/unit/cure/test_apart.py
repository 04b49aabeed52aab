"""Every buffer in bytes of its own: where exactly, beside what is told, what lasts and what an arena holds."""

import pytest

from allocsim.cure.apart import all_apart
from allocsim.model import OWN, Arena, Document, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from repro.small.words import belief, plan, program


def offsets(document):
    return [made.offset.tolist() for made in all_apart(document)]


def aligned(rows, capacity=None, **told):
    """A plan of buffers (bytes, alignment), all of them at 0."""
    builder = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=8, capacity=capacity),))
    for number, (nbytes, alignment) in enumerate(rows):
        builder.buffer(f"b{number}", nbytes, alignment=alignment)
    made = builder.build()
    return Document.of(plan_of(made, [0] * len(rows), problem=belief(made, **told)))


def test_a_buffer_begins_after_what_was_told_at_the_next_address_of_its_alignment():
    assert offsets(aligned([(10, 4), (8, 4), (1, 1)], fixed={0: 0})) == [[0, 12, 20]]
    assert offsets(aligned([(10, 4), (8, 4)], fixed={0: 4})) == [[4, 16]]
    assert offsets(aligned([(10, 4), (8, 4)], fixed={0: 8})) == [[8, 0]]


@pytest.mark.parametrize(("capacity", "fits"), [(16, True), (15, False)])
def test_an_arena_may_be_full_to_its_last_byte(capacity, fits):
    assert (all_apart(aligned([(8, 4), (8, 4)], capacity)) is not None) is fits


def test_each_arena_begins_at_its_own_zero_and_what_has_memory_of_its_own_is_in_none():
    made = program("x = host.write; a = f x; g = f x; o = f x; host.read a", gpu="g")
    (apart,) = all_apart(Document.of(plan(made, "x=0 a=0 g=0 o=own")))
    assert apart.arena.tolist() == [0, 0, 1, OWN]
    assert apart.offset.tolist()[:3] == [0, 64, 0]
    assert apart.nbytes.tolist() == [64, 64, 64, 0]


def test_what_lasts_lies_where_no_plan_of_the_session_has_anything_else():
    kept = program("x = host.write; a = f x s; host.read a", roles={"s": Role.STATE})
    between = program("q = host.write; r = h q; host.read r")
    first, second = plan(kept, "s=0 x=64 a=128"), plan(between, "q=0 r=64")
    ((s, *rest), others) = offsets(Document.of(Run.of(first), Run.of(second)))
    assert s == 0
    assert sorted(rest) == sorted(others) == [64, 128]
