"""A fingerprint says which plan fits which program: it sees ops, edges, sizes and pins, and nothing that slots do not depend on."""

from dataclasses import replace

import numpy as np
import pytest

import allocsim
from allocsim import fingerprint
from allocsim.allocators import Constraints, find, pin_nodes
from allocsim.document import dumps, loads
from allocsim.errors import ModelError
from allocsim.model import Arena, Document, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.fingerprints import KEY, fingerprint_of, misfits, same_program, stamped
from allocsim.verdict.attribution import leading


def program(**changes):
    """n3 = n2 + n1, of which one fact can be another."""
    fact = {
        "names": "abcd", "size": 16, "alignment": 32, "capacity": None, "role": Role.TEMPORARY, "read_only": False, "kind": "add",
        "operands": (2, 1), "in_place": ((0, 0),), "read": 3, "shape": (4,), "dtype": "f32", "arena": 0, "streams": ("main",),
        "stream": 0, "after": (), "meta": None,
    } | changes  # fmt: skip
    arenas = (Arena(name="cpu", alignment=fact["alignment"], capacity=fact["capacity"]), Arena(name="gpu", alignment=1))
    b = ProgramBuilder("p", arenas=arenas, streams=fact["streams"])
    for name in fact["names"]:
        last = name == fact["names"][-1]
        buffer = b.buffer(
            name,
            fact["size"],
            role=fact["role"] if last else Role.TEMPORARY,
            read_only=fact["read_only"] and last,
            arena=fact["arena"],
        )
        b.value(name, buffer, fact["dtype"], fact["shape"])
    b.op("host.write", (), (0,))
    b.op("neg", (0,), (1,))
    b.op("exp", (1,), (2,))
    b.op(
        fact["kind"],
        fact["operands"],
        (3,),
        in_place=fact["in_place"],
        stream=fact["stream"],
        after=fact["after"],
        meta=fact["meta"],
    )
    b.op("host.read", (fact["read"],), ())
    return b.build()


PLAIN = fingerprint(program())


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 20}, {"alignment": 64}, {"capacity": 4096}, {"role": Role.STATE}, {"read_only": True}, {"kind": "sub"},
        {"operands": (2, 0)}, {"operands": (1, 2)}, {"operands": (2, 2)}, {"in_place": ()}, {"in_place": ((1, 0),)}, {"in_place": None},
        {"read": 2}, {"shape": (2, 2)}, {"shape": (2,)}, {"dtype": "i32"}, {"arena": 1},
        {"streams": ("main", "side"), "stream": 1, "after": (2,)},
    ],
    ids=str,
)  # fmt: skip
def test_it_sees_what_slots_depend_on(changes):
    assert fingerprint(program(**changes)).split("-")[0] != PLAIN.split("-")[0]


@pytest.mark.parametrize(
    "changes", [{}, {"names": "wxyz"}, {"meta": {"layer": 3}}, {"streams": ("main", "side")}], ids=str
)
def test_it_does_not_see_names_and_meta_and_streams_nobody_uses(changes):
    assert fingerprint(program(**changes)) == PLAIN


def test_it_is_the_same_for_ever():
    """Stored in files: a change of this value is a change of the format, and needs another `VERSION`."""
    assert PLAIN == "5db03e6d1d768c820efaec582fae6f5b-81bf677dbb94e093"


def test_pins_are_the_part_behind_the_dash():
    made = program()
    some = fingerprint(made, [1, 3])
    assert some != PLAIN
    assert some.split("-")[0] == PLAIN.split("-")[0]
    assert some == fingerprint(made, np.array([False, True, False, True])) == fingerprint(made, (3, 1))
    assert fingerprint(made, [3]) == PLAIN  # what host.read reads, as by default
    assert fingerprint(made, []) != PLAIN


@pytest.mark.parametrize("pins", [[4], [-1], ["x"], [1.5], np.zeros(3, dtype=bool)], ids=str)
def test_pins_that_do_not_exist_are_misuse(pins):
    with pytest.raises(ModelError, match="pins"):
        fingerprint(program(), pins)


def test_a_fingerprint_survives_a_file():
    made = program(in_place=None, capacity=1 << 40)
    (back,) = loads(dumps(Document.of(made))).programs
    assert fingerprint(back) == fingerprint(made)


def test_the_order_of_the_table_of_kinds_is_nothing():
    made = program()
    kinds = made.ops.kinds
    turned = replace(made.ops, kinds=kinds[::-1], kind=(len(kinds) - 1 - made.ops.kind).astype(np.int32))
    assert fingerprint(replace(made, ops=turned)) == PLAIN


def test_a_plan_has_the_fingerprint_of_its_program_and_its_pins():
    made = program()
    planner = find("linear_scan")
    assert fingerprint_of(planner.plan(made)) == PLAIN
    pinned = planner.plan(made, Constraints.of(made, pins="nodes"))
    assert fingerprint_of(pinned) == fingerprint(made, pin_nodes(made)) != PLAIN


def test_a_stamped_plan_beside_another_program_is_named():
    plan = stamped(find("ggml").plan(program()))
    assert plan.meta[KEY] == PLAIN
    assert misfits(Document.of(plan)) == ()
    other = program(operands=(2, 0))
    (line,) = misfits(Document.of(replace(plan, program=other, problem=None)))
    assert line.startswith("plan 0: was made for another program")
    assert PLAIN in line
    assert fingerprint(other) in line


def test_a_stamp_of_other_pins_is_named_only_where_the_pins_are_known():
    made = program()
    planner = find("ggml")
    stamp = stamped(planner.plan(made, Constraints.of(made, pins="nodes"))).meta
    told = planner.plan(made)
    (line,) = misfits(Document.of(replace(told, meta=stamp)))
    assert "other pins" in line
    assert misfits(Document.of(replace(told, meta=stamp, problem=None))) == ()


@pytest.mark.parametrize("meta", [{}, {KEY: 7}, {"mine": "x"}])
def test_a_plan_without_a_stamp_is_taken_at_its_word(meta):
    plan = find("ggml").plan(program())
    assert misfits(Document.of(replace(plan, meta=meta))) == ()


def test_a_run_of_another_program_is_named_and_a_twin_is_none():
    plan = find("ggml").plan(program())
    twin, other = program(names="wxyz"), program(operands=(2, 0))
    runs = [Run.of(plan), Run.of(plan, program=twin), Run.of(plan, program=other)]
    (line,) = misfits(Document.of(*runs))
    assert line.startswith("run 2: plan 0 was made for program 0")
    assert same_program(plan.program, twin)
    assert not same_program(plan.program, other)


def test_a_fault_in_a_twin_of_the_program_is_not_blamed_on_a_stale_plan():
    """Two programs that are equal are one to a plan; what is wrong under it is wrong in either."""
    made, twin, other = (
        program(operands=(2, 0)),
        program(operands=(2, 0), names="wxyz"),
        program(operands=(2, 2)),
    )
    slots = [0, 32, 0, 64]  # exp over what `made` and its twin still read, and `other` does not
    assert leading(Document.of(Run.of(plan_of(made, slots), program=twin))).class_ != "C08"
    assert leading(Document.of(Run.of(plan_of(other, slots), program=made))).class_ == "C08"


def test_the_public_name_is_the_function():
    assert allocsim.fingerprint is fingerprint
