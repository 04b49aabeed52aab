"""Which aliases the real allocator can ever choose."""

import pytest
from ggml_live import BOTH, live

from allocsim.judge.fast import check
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.k_audit.allocator_reach import RIVALS, VICTIMS, reach
from allocsim.systems.ggml.k_audit.library_audit import audit
from allocsim.systems.ggml.k_audit.library_cases import LibraryCase, Operand

PAIR = (Operand(dtype="f32", ne=(7, 3)), Operand(dtype="f32", ne=(7, 3)))


def add(ctx, operands):
    return ctx.op("add", *operands)


def add_inplace(ctx, operands):
    return ctx.op("add_inplace", *operands)


def products(ctx, operands):
    return ctx.op("mul_mat", *operands)


@pytest.mark.parametrize("which", BOTH)
def test_every_way_of_keeping_a_rival_from_being_taken_leads_to_the_second_source(which):
    found = live(which).call(reach, LibraryCase(op="ADD", variant="add", operands=PAIR, build=add), 1, every=True)

    assert found.tried == len(found.ways) == len(VICTIMS) * len(RIVALS)
    assert found.words == "1 node: ADD(f32[7, 3] memory of its own, f32[7, 3] leaf)"


@pytest.mark.parametrize("which", BOTH)
def test_the_first_source_needs_no_rival_out_of_the_way(which):
    found = live(which).call(reach, LibraryCase(op="ADD", variant="add", operands=PAIR, build=add), 0, every=True)

    assert found.ways == tuple(VICTIMS)


@pytest.mark.parametrize(("op", "build"), [("ADD", add_inplace), ("MUL_MAT", products)])
def test_never_is_said_where_the_allocator_never_does_it(op, build):
    """An explicit in-place result is a view of source 0; MUL_MAT is not on the list."""
    square = (Operand(dtype="f32", ne=(4, 4)), Operand(dtype="f32", ne=(4, 4)))
    found = live("after").call(reach, LibraryCase(op=op, variant="", operands=square, build=build), 1, every=True)

    assert found.ways == ()
    assert found.words.startswith(f"never: in all {len(VICTIMS) * len(RIVALS)} kinds of graph")


@pytest.mark.parametrize("which", BOTH)
def test_the_graph_of_an_unsafe_pair_is_a_document_in_which_the_alias_is_there(which):
    found = audit(live(which), ops=["ADD_ID"], threads=(1,))
    captured = document(found.graphs["ADD_ID", 1])
    plan, program = captured.plans[0], captured.programs[0]
    op = next(op for op in program.ops if op.kind == "add_id")
    donor, recipient = (int(program.values.buffer[value]) for value in (op.operands[1], op.results[0]))

    assert check(captured).clean
    assert int(plan.offset[donor]) == int(plan.offset[recipient])
