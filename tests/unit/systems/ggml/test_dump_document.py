"""ggml dumps: the real ones byte for byte, and each rule of the conversion on a small one."""

import copy
import json
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsim import document, systems
from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.errors import DocumentError
from allocsim.model import OWN, UNPLACED, Role
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.slots import position_of, slots_of
from allocsim.systems.ggml import dump_document as ggml

DATA = Path(__file__).parents[3] / "data" / "ggml"
PLANS = sorted(DATA.glob("*.json"))
GGML = ALLOCATORS["ggml"]
MUTABLE = json.loads((DATA / "fwd_2L_none.json").read_text())
MUTABLE["nodes"] = MUTABLE["nodes"][:31]


# --- real plans -----------------------------------------------------------------------------------------------------------


def test_all_ten_plans_are_here():
    assert len(PLANS) == 10


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_planner_reproduces_every_offset_and_the_buffer_size(path):
    """Belief and placement read nothing but the document: it goes through the native form in between."""
    real = systems.load(path)
    read = document.loads(document.dumps(real))
    program, told = read.programs[0], Constraints.from_problem(read.problems[0])

    made = GGML.plan(program, told)

    assert made.arena.tolist() == real.plans[0].arena.tolist()
    assert made.offset.tolist() == real.plans[0].offset.tolist()
    assert made.nbytes.tolist() == real.plans[0].nbytes.tolist()
    assert made.meta["ggml"]["used"] == [real.plans[0].meta["buffer_size"]]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_tensor_lies_where_the_dump_says(path):
    """Views too: slot + offset of the value is the address in the file."""
    rows = json.loads(path.read_text())
    real = systems.load(path)
    program, plan = real.programs[0], real.plans[0]
    tensors = rows["leafs"] + rows["nodes"]
    values = [program.values[index] for index in range(len(tensors))]

    for tensor, value in zip(tensors, values, strict=True):
        assert (value.name, value.shape, value.strides) == (
            tensor["name"],
            tuple(reversed(tensor["ne"])),
            tuple(reversed(tensor["nb"])),
        )
        if tensor["off"] is None:
            assert plan.arena[value.buffer] == OWN
        else:
            assert plan.offset[value.buffer] + value.offset == tensor["off"]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_check_finds_nothing(path):
    judge = pytest.importorskip("allocsim.judge.fast")
    report = judge.check(systems.load(path))

    assert report.clean
    assert {warning.kind for warning in report.warnings} <= {"LifetimeTooLong"}


def test_optimizer_steps_write_the_weights_in_place():
    program = systems.load(DATA / "trainopt_2L_none.json").programs[0]
    step = next(op for op in program.ops if op.kind == "opt_step_sgd")
    weight, result = program.values[step.operands[0]], program.values[step.results[0]]

    assert step.in_place == ((0, 0),)
    assert weight.buffer == result.buffer
    assert program.buffers.role[weight.buffer] == Role.PARAMETER
    assert not program.buffers.read_only[weight.buffer]


# --- small ones -----------------------------------------------------------------------------------------------------------


def tensor(op, *src, ne=(8, 1, 1, 1), kind="f32", off=0, **columns):
    """One row, contiguous, of four bytes an element."""
    strides = [4 * prod(ne[:axis]) for axis in range(4)]
    row = {"op": op, "name": columns.pop("name", op.lower()), "type": kind, "ne": list(ne), "nb": strides}
    return {**row, "nbytes": 4 * prod(ne), "off": off, "src": list(src), **columns}


def external(**columns):
    return tensor("NONE", **{"off": None, "external": True, **columns})


def load(leafs, nodes, **meta):
    return ggml.loads(json.dumps({"meta": meta, "leafs": leafs, "nodes": nodes}).encode())


def ops(loaded):
    return [(op.kind, op.operands, op.results, op.in_place) for op in loaded.programs[0].ops]


def counted(loaded):
    return {step: meta["src"] for step, meta in loaded.programs[0].ops.meta.items()}


def test_leafs_are_uploads_nodes_are_ops_and_outputs_are_read_at_the_end():
    loaded = load(
        [tensor("NONE", name="x", flags=1), external(name="w")],
        [
            tensor("MUL", "L0", "L1", off=32, flags=16),
            tensor("VIEW", 0, view_src=0, off=32),
            tensor("SUM", 1, off=0, flags=18),
        ],
    )
    program, plan = loaded.programs[0], loaded.plans[0]

    assert ops(loaded) == [
        ("host.write", (), (0,), ()),
        ("mul", (0, 1), (2,), ((0, 0), (1, 0))),
        ("view", (2,), (3,), ()),
        ("sum", (3,), (4,), ()),
        ("host.read", (4,), (), ()),
    ]
    assert program.buffers.role.tolist() == [Role.INPUT, Role.PARAMETER, Role.TEMPORARY, Role.TEMPORARY]
    assert program.buffers.read_only.tolist() == [False, True, False, False]
    assert plan.arena.tolist() == [0, OWN, 0, 0]
    assert plan.problem.pinned.tolist() == [False, False, False, True]
    assert plan.problem.own.tolist() == [False, True, False, False]
    assert dict(program.values.meta) == {0: {"flags": 1}, 2: {"flags": 16}, 4: {"flags": 18}}
    assert counted(loaded) == {}


def test_dimensions_are_turned_round_and_all_four_are_kept():
    value = load([tensor("NONE", ne=(8, 3, 2, 1))], []).programs[0].values[0]

    assert (value.shape, value.strides) == ((1, 2, 3, 8), (192, 96, 32, 4))


def test_what_may_run_in_place_is_what_the_dump_says():
    nodes = [tensor("CLAMP", "L0")]

    assert ops(load([tensor("NONE")], nodes))[1][3] == ((0, 0),)
    assert ops(load([tensor("NONE")], nodes, inplace_ops=["SCALE"]))[1][3] == ()


def test_a_source_of_another_type_or_layout_is_not_declared():
    leafs = [tensor("NONE", kind="i32"), tensor("NONE", ne=(4, 2, 1, 1)), tensor("NONE")]

    assert ops(load(leafs, [tensor("ADD", "L0", "L1", "L2")]))[3][3] == ((2, 0),)


def test_the_destination_of_a_copy_is_counted_and_not_read():
    leafs = [tensor("NONE", name="x"), tensor("NONE", name="cache", off=32)]
    loaded = load(leafs, [tensor("CPY", "L0", "L1", view_src="L1", off=32)])

    assert ops(loaded)[2] == ("cpy", (0,), (2,), ())
    assert counted(loaded) == {2: [0, 1]}


def test_an_accumulator_is_read_through_its_latest_value_and_counted_as_ggml_counts_it():
    leafs = [tensor("NONE", name="acc"), tensor("NONE", name="g", off=32)]
    nodes = [
        tensor("ADD", "L0", "L1", view_src="L0"),
        tensor("ADD", "L0", "L1", view_src="L0"),
        tensor("SUM", "L0", off=64, ne=(1, 1, 1, 1)),
    ]
    loaded = load(leafs, nodes)

    assert ops(loaded)[2:] == [
        ("add", (0, 1), (2,), ((0, 0), (1, 0))),
        ("add", (2, 1), (3,), ((0, 0), (1, 0))),
        ("sum", (3,), (4,), ()),
    ]
    assert counted(loaded) == {3: [0, 1], 4: [0]}


def test_a_root_of_which_a_part_was_written_is_read_through_a_value_that_no_op_makes():
    leafs = [tensor("NONE", name="x", ne=(4, 1, 1, 1)), tensor("NONE", name="cache", off=32)]
    nodes = [
        tensor("VIEW", "L1", ne=(4, 1, 1, 1), view_src="L1", view_offs=16, off=48),
        tensor("CPY", "L0", 0, ne=(4, 1, 1, 1), view_src="L1", view_offs=16, off=48),
        tensor("SUM", "L1", off=64, ne=(1, 1, 1, 1)),
        tensor("SUM", "L1", off=96, ne=(1, 1, 1, 1), flags=2),
    ]
    loaded = load(leafs, nodes)
    program = loaded.programs[0]
    alias = program.ops[4].operands[0]

    assert alias == 6
    assert program.ops[5].operands == (alias,)
    assert program.producer[alias] == -1
    assert (program.values[alias].buffer, program.values[alias].shape) == (1, (1, 1, 1, 8))
    assert counted(loaded)[4] == [1]


def test_adamw_writes_its_momenta():
    leafs = [external(name=name) for name in ("w", "m", "v", "hp")] + [tensor("NONE", name="g")]
    loaded = load(leafs, [tensor("OPT_STEP_ADAMW", "L0", "L4", "L1", "L2", "L3", view_src="L0", off=None)])

    assert ops(loaded)[1] == ("opt_step_adamw", (0, 4, 1, 2, 3), (5, 6, 7), ((0, 0), (2, 1), (3, 2)))
    assert loaded.programs[0].values.buffer.tolist()[5:] == [0, 1, 2]
    assert loaded.programs[0].buffers.read_only.tolist() == [False, False, False, True, False]


def test_rows_that_are_not_set_are_kept():
    leafs = [tensor("NONE", name="rows"), tensor("NONE", name="at", off=32), tensor("NONE", name="table", off=64)]

    assert ops(load(leafs, [tensor("SET_ROWS", "L0", "L1", view_src="L2", off=64)]))[3] == (
        "set_rows",
        (0, 1, 2),
        (3,),
        ((2, 0),),
    )


def test_a_view_leaf_of_a_node_follows_its_root_and_has_no_op():
    leafs = [tensor("NONE", name="x"), tensor("NONE", name="peek", view_src=0, off=32)]
    loaded = load(leafs, [tensor("MUL_MAT", "L0", off=32), tensor("SUM", "L1", off=64)])
    program = loaded.programs[0]

    assert program.values.names == ("x", "mul_mat", "sum", "peek")
    assert program.values.buffer.tolist() == [0, 1, 2, 1]
    assert ops(loaded)[2] == ("sum", (3,), (2,), ())


def test_a_dependency_marker_counts_its_source_and_touches_nothing():
    loaded = load([tensor("NONE")], [tensor("MUL_MAT", "L0", off=32), tensor("NONE", 0, view_src=0, off=32)])

    assert ops(loaded)[2] == ("none", (), (), ())
    assert counted(loaded) == {2: [1]}


def test_a_parameter_in_the_compute_buffer_is_uploaded_like_a_leaf_and_placed_like_a_node():
    leafs = [tensor("NONE", name="x")]
    nodes = [tensor("MUL_MAT", "L0", off=32), tensor("NONE", name="w", flags=4), tensor("MUL_MAT", 0, 1, off=64)]
    loaded = load(leafs, nodes)

    assert [row[0] for row in ops(loaded)] == ["host.write", "host.write", "mul_mat", "mul_mat"]
    assert loaded.problems[0].order.tolist() == [0, 1, 2, 3]
    assert GGML.place(loaded.problems[0]).offset.tolist() == [0, 32, 0, 64]


def test_output_on_a_view_alone_pins_nothing():
    nodes = [tensor("MUL_MAT", "L0", off=32), tensor("RESHAPE", 0, view_src=0, off=32, flags=2)]

    assert not load([tensor("NONE")], nodes).problems[0].pinned.any()


def test_tensors_without_an_offset_are_not_placed_and_external_results_lie_elsewhere():
    loaded = load([tensor("NONE")], [tensor("SUM", "L0", off=None), tensor("SUM", "L0", off=None, external=True)])

    assert loaded.plans[0].arena.tolist() == [0, UNPLACED, OWN]
    assert loaded.programs[0].buffers.role.tolist() == [Role.INPUT, Role.TEMPORARY, Role.TEMPORARY]


def test_equal_names_of_weights_are_told_apart():
    assert load([external(name="w"), external(name="w")], []).programs[0].buffers.names == ("w", "w (leafs[1])")


def test_quantised_types_are_bytes():
    row = {**tensor("NONE", kind="q4_0"), "ne": [64, 3, 1, 1], "nb": [18, 36, 108, 108], "nbytes": 108}
    value = load([row], []).programs[0].values[0]

    assert (value.dtype, value.shape, value.strides) == ("u8", (1, 1, 3, 36), (108, 108, 36, 1))


# --- refusals -------------------------------------------------------------------------------------------------------------

GOOD = {
    "meta": {"alignment": 32},
    "leafs": [tensor("NONE")],
    "nodes": [tensor("SCALE", "L0"), tensor("VIEW", 0, view_src=0)],
}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["nodes", 0, "src", 0], "L1", "nodes[0].src[0]: 'L1' is no tensor; there are 1 leafs"),
        (["nodes", 0, "src", 0], 9, "nodes[0].src[0]: 9 is no tensor; there are 2 nodes"),
        (["nodes", 0, "src", 0], -1, "nodes[0].src[0]: -1 is no tensor; there are 2 nodes"),
        (["nodes", 0, "src", 0], 0, "nodes[0].src[0]: node 0 does not come before this tensor"),
        (["nodes", 0, "src", 0], "M0", "nodes[0].src[0]: 'M0' is no tensor"),
        (["nodes", 0, "view_src"], 1, "nodes[0].view_src: 1 is a view itself; the root is needed"),
        (["nodes", 1, "off"], 64, "nodes[1].off: 64 is not the offset of its root plus view_offs, 0 + 0"),
        (["nodes", 1, "src"], [], "nodes[1].src: a view has one source, which has the same root"),
        (["nodes", 1, "view_src"], "L0", "nodes[1].src: a view has one source, which has the same root"),
        (["nodes", 0, "ne"], [1, 2, 3], "nodes[0].ne: expected `array` of length 4"),
        (["nodes", 0, "nb", 0], -4, "nodes[0].nb[0]: expected `int` >= 0"),
        (["nodes", 0, "nbytes"], 1 << 63, "nodes[0].nbytes: "),
        (["nodes", 0, "op"], None, "nodes[0].op: expected `str`, got `null`"),
        (["leafs"], 3, "leafs: expected `array`"),
        (["meta", "alignment"], 0, "meta.alignment: expected `int` >= 1"),
        (["nodes", 0, "ne"], [1 << 40, 1 << 40, 1, 1], "as a program: values[1]"),
        (
            ["nodes", 0, "nb"],
            [0, 0, 0, 0],
            "as a program: values[1].strides: a result whose own elements overlap cannot be written",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(path, value, said):
    bad = copy.deepcopy(GOOD)
    at = bad
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value

    with pytest.raises(DocumentError) as caught:
        ggml.loads(json.dumps(bad).encode(), "dump.json")

    assert str(caught.value).startswith(f"dump.json: {said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", range(0, 400, 37))
def test_a_truncated_dump_is_refused(cut):
    with pytest.raises(DocumentError, match="is not JSON"):
        ggml.loads(json.dumps(GOOD).encode()[:cut])


def test_a_deeply_nested_dump_is_refused():
    with pytest.raises(DocumentError):
        ggml.loads(b'{"leafs": ' + b"[" * 100_000)


HOSTILE = (
    *(
        None,
        -1,
        0,
        1,
        7,
        1 << 62,
        1 << 63,
        3.5,
        True,
        "",
        "L3",
        "L99",
        "NONE",
        "VIEW",
        "CPY",
        "SET_ROWS",
        "OPT_STEP_ADAMW",
        "q4_K",
    ),
    *([], {}, [1, 2], [0] * 4, [1 << 61] * 4, [5, 4, 3, 2]),
)


@given(changes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 11), st.sampled_from(HOSTILE)), max_size=4))
def test_a_mutated_dump_is_read_or_refused_in_one_line(changes):
    """Nothing else may come out, whatever the file holds."""
    rows = copy.deepcopy(MUTABLE)
    for tensor_at, column_at, value in changes:
        row = rows["nodes"][tensor_at % len(rows["nodes"])]
        row[list(row)[column_at % len(row)]] = value
    try:
        loaded = ggml.loads(json.dumps(rows).encode(), "dump.json")
    except DocumentError as error:
        said = str(error)
    else:
        said = ""
        assert document.loads(document.dumps(loaded)).programs[0].ops.kinds == loaded.programs[0].ops.kinds

    assert "\n" not in said


# --- source slots ---------------------------------------------------------------------------------------------------------


def slots(loaded, step):
    return slots_of(loaded.programs[0].ops, step)


def test_a_source_that_is_left_out_keeps_the_slots_of_those_behind_it():
    scores, sinks = external(name="scores"), external(name="sinks")
    loaded = load([scores, sinks], [tensor("SOFT_MAX", "L0", None, "L1")], inplace_ops=["SOFT_MAX"])
    (op,) = loaded.programs[0].ops

    assert (op.operands, op.in_place) == ((0, 1), ((0, 0), (1, 0)))
    assert slots(loaded, 0) == [0, 2]
    assert position_of(loaded.programs[0].ops, 0, 2) == 1
    assert position_of(loaded.programs[0].ops, 0, 1) is None


def test_where_no_source_is_left_out_nothing_is_said_and_slots_are_positions():
    loaded = load([external(name="x"), external(name="y")], [tensor("ADD", "L0", "L1")])

    assert "slots" not in loaded.programs[0].ops.meta.get(0, {})
    assert slots(loaded, 0) == [0, 1]


def test_what_a_result_keeps_of_its_destination_is_no_source():
    ne = (4, 2, 1, 1)
    leafs = [
        external(name="rows", ne=(4, 1, 1, 1)),
        external(name="numbers", ne=(1, 1, 1, 1)),
        external(name="home", ne=ne),
    ]
    node = tensor("SET_ROWS", "L0", "L1", ne=ne, view_src="L2", off=None, external=True)
    loaded = load(leafs, [node])

    assert slots(loaded, 0) == [0, 1, None]


def test_slots_survive_writing_and_reading(tmp_path):
    loaded = load([external(name="scores"), external(name="sinks")], [tensor("SOFT_MAX", "L0", None, "L1")])
    document.write(loaded, tmp_path / "plan.json")

    assert slots(document.read(tmp_path / "plan.json"), 0) == [0, 2]


@pytest.mark.parametrize("said", [[0, 1, 2], [-1], ["0"], 3, [True]])
def test_slots_of_another_form_are_somebody_elses(said):
    builder = ProgramBuilder("step")
    x, y, z = (builder.tensor(name, "f32", (4,)) for name in "xyz")
    builder.op("host.write", (), (x, y))
    builder.op("add", (x, y), (z,), meta={"slots": said})

    assert slots_of(builder.build().ops, 1) == [0, 1]
