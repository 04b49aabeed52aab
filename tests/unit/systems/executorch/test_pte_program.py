"""ExecuTorch's `.pte`: real files, the laws, and what is refused."""

import struct
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from plan_laws import DAMAGED, PLANS, blamed, causes, law_of_damage, law_of_elide, law_of_shift, shifts

from allocsim import systems
from allocsim.cli import main
from allocsim.document import dumps
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.model import Document, Role
from allocsim.systems.executorch import pte_program as executorch
from allocsim.systems.executorch.pte_blocks import blocks
from allocsim.systems.executorch.pte_file import Call, Jump, Method, PlannedTensor, parse

FOLDER = PLANS / "executorch"
CLEAN = {
    "cache": (1, 10, 9),
    "cond": (2, 20, 19),
    "delegates": (1, 10, 8),
    "map": (1, 13, 12),
    "methods": (3, 23, 22),
    "state_view": (1, 7, 6),
    "top": (1, 14, 15),
    "transformer": (1, 70, 67),
}
"""File -> programs, ops and buffers of all of them."""


def read(name):
    return systems.load(FOLDER / f"{name}.pte")


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_plan_stays_clean(name):
    document = read(name)
    report = check(document)

    assert report.violations == ()
    assert report.warnings == ()
    programs = document.programs
    counted = len(programs), sum(len(p.ops) for p in programs), sum(len(p.buffers) for p in programs)
    assert counted == CLEAN[name]


@pytest.mark.parametrize(
    ("name", "cause"),
    [("output_also", ("C03", "plan")), ("view_also", ("C03", "plan")), ("result_freed", ("C01", "plan"))],
)
def test_what_a_kernel_in_place_writes_over_is_convicted_where_the_graph_is_known(name, cause):
    """Three programs with `run_reinplace_pass` whose numbers are wrong in ExecuTorch 1.5.1 (docs/found.md)."""
    assert causes(FOLDER / f"{name}.json")[0] == cause


def test_of_a_file_alone_it_is_not_to_be_seen_whether_the_old_value_is_meant(capsys):
    """The value and what was written over it have one index in the file."""
    assert main(["check", str(FOLDER / "output_also.pte")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not to be seen here: whether aten::index_put_ 4 overwrites a value that is read later" in said
    assert main(["check", str(FOLDER / "output_also.json")]) == 1
    assert "not to be seen here" not in capsys.readouterr().out


def test_two_conds_whose_outputs_live_together_are_convicted():
    """pytorch/executorch#21490: eager [-9, 2, 11], the runtime [0, 11, 11]."""
    assert set(causes(FOLDER / "cond_bug.pte")) == {("C15", "plan")}


def test_a_view_of_what_a_cond_returns_has_no_slot():
    """Of x = [[1, 2], [3, 4]], eager exp(-x) is [0.37, 0.14, 0.05, 0.02], the runtime's [22026, 1, 1, 1]."""
    assert set(causes(FOLDER / "cond_view.pte")) == {("C12", "plan")}
    assert {v.buffer for v in check(read("cond_view")).violations} == {5}


def test_a_view_of_an_operand_inside_a_branch_has_no_slot():
    """A branch knows its operand by a tensor that is not in the file; where that was planned nobody writes."""
    found = {plan.program.path: check(Document.of(plan)).violations for plan in read("operand_view").plans}

    assert [row.kind for row in found["cond 4=true"]] == ["Unplaced"]
    assert sum(map(len, found.values())) == 1


def test_one_condition_asked_twice_is_answered_alike():
    assert [program.path for program in read("cond_bug").programs] == [
        "cond 2=true, cond 8=true",
        "cond 2=false, cond 8=false",
    ]


@pytest.mark.parametrize("name", [*CLEAN, "cond_bug"])
def test_a_slot_shifted_onto_a_live_neighbour_is_found(name):
    assert law_of_shift(read(name), seed=1) > 0


def test_the_plan_is_at_fault_for_a_shifted_slot(tmp_path):
    document = read("transformer")
    where = list(shifts(document))

    assert all(blamed(document, one, tmp_path) == {"plan"} for one in where[:: len(where) // 3])


@pytest.mark.parametrize("name", CLEAN)
def test_an_op_taken_out_is_missed(name):
    assert law_of_elide(read(name), seed=2) > 0


@pytest.mark.parametrize("name", ["cond_bug", "map", "top", "delegates", "methods"])
@DAMAGED
def test_damaged_files_end_in_one_line(name, times):
    read_, refused = law_of_damage((FOLDER / f"{name}.pte").read_bytes(), executorch.loads, seed=3, times=times)

    assert read_ > 0
    assert refused > 0


def test_views_without_an_instruction_lie_in_their_base():
    program = read("top").programs[0]
    views = [op for op in program.ops if op.kind == "view"]

    assert len(views) == 2
    assert all(program.values.buffer[op.operands[0]] == program.values.buffer[op.results[0]] for op in views)


def test_a_mutation_of_a_state_stays_in_its_buffer_and_a_cache_is_a_state():
    program = read("cache").programs[0]
    copy = next(op for op in program.ops if op.kind == "aten::copy_")
    home = int(program.values.buffer[copy.results[0]])

    assert program.buffers.role[home] == Role.STATE
    assert home not in {int(program.values.buffer[value]) for value in copy.operands}, "a copy reads no destination"


def test_a_view_of_a_state_with_content_lies_in_it():
    program = read("state_view").programs[0]
    view = next(op for op in program.ops if op.kind == "view")
    home = program.values.buffer[view.results[0]]

    assert program.buffers.role[home] == Role.STATE
    assert np.count_nonzero(program.buffers.role == Role.STATE) == 1


def test_the_methods_of_a_file_have_arenas_and_content_of_their_own(monkeypatch):
    names = ("cache", "state_view", "transformer", "cond_bug")
    alone = [executorch.loads((FOLDER / f"{name}.pte").read_bytes()) for name in names]
    methods = [replace(parse((FOLDER / f"{name}.pte").read_bytes(), name)[0], name=name) for name in names]
    monkeypatch.setattr(executorch, "parse", lambda _data, _source: methods)
    together = executorch.loads(b"")

    sizes = [(f"{method.name}, memory {at}", size) for method in methods for at, size in enumerate(method.sizes, 1)]
    assert [(arena.name, arena.capacity) for arena in together.arenas] == sizes
    assert len(together.plans) == sum(len(one.plans) for one in alone)
    first, plans = 0, iter(together.plans)
    for one, method in zip(alone, methods, strict=True):
        for plan in one.plans:
            other = next(plans)
            placed = plan.arena >= 0
            assert other.arena[placed].tolist() == (plan.arena[placed] + first).tolist()
            assert other.offset.tolist() == plan.offset.tolist()
            lasting = [
                n for n, kept in zip(other.program.buffers.names, other.program.buffers.persistent, strict=True) if kept
            ]
            assert all(n.startswith(f"{method.name}, value ") for n in lasting)
        first += len(method.sizes)
    assert check(together).count == sum(check(one).count for one in alone) > 0


def order(document):
    return [run.program.name for run in document.session]


def test_methods_with_states_in_one_memory_share_them_and_each_runs_next_behind_each():
    document = read("methods")
    lasting = {
        name
        for program in document.programs
        for name, kept in zip(program.buffers.names, program.buffers.persistent, strict=True)
        if kept
    }
    names = order(document)

    assert [(arena.name, arena.capacity) for arena in document.arenas] == [("memory 1", 112), ("memory 2", 48)]
    assert lasting == {"seen", "count"}
    assert sorted(pairwise(names)) == sorted(product({"forward", "put", "read"}, repeat=2))


def test_a_tensor_of_one_method_over_a_state_of_another_is_convicted():
    """`forward` does not know `count`, over which one of its tensors lies: the runtime's `read` gives wrong numbers."""
    assert set(causes(FOLDER / "methods_bug.pte")) == {("C07", "plan")}
    assert all(check(Document.of(plan)).violations == () for plan in read("methods_bug").plans)


@pytest.mark.parametrize("name", ["methods", "methods_bug"])
def test_states_without_names_are_told_by_their_places(name, monkeypatch):
    with_names = check(read(name))
    monkeypatch.setattr(
        executorch,
        "parse",
        lambda data, source: [
            replace(one, values=tuple(replace(v, name="") if isinstance(v, PlannedTensor) else v for v in one.values))
            for one in parse(data, source)
        ],
    )
    document = read(name)

    assert "bytes [32, 48) of memory 2" in document.programs[1].buffers.names
    assert [v.kind for v in check(document).violations] == [v.kind for v in with_names.violations]


def test_states_of_one_name_and_two_sizes_are_refused_in_one_line(monkeypatch):
    methods = parse((FOLDER / "methods.pte").read_bytes(), "x")
    values = tuple(replace(v, name="count") if getattr(v, "name", "") else v for v in methods[0].values)
    monkeypatch.setattr(executorch, "parse", lambda _data, _source: [replace(methods[0], values=values), *methods[1:]])

    with pytest.raises(DocumentError, match="persistent buffer 'count' has"):
        read("methods")


def test_what_depends_on_who_loads_the_methods_is_said_or_asked_for(capsys):
    """Of two methods that share nothing, the second runs over the state of the first where both have one set of arenas."""
    data = (FOLDER / "arenas.pte").read_bytes()
    convicted = executorch.loads(data, "arenas", shared=True)

    assert main(["check", str(FOLDER / "arenas.pte")]) == 0
    assert "whether other methods use the arenas of forward, which hold its state" in " ".join(
        capsys.readouterr().out.split()
    )
    assert {v.kind for v in check(convicted).violations} == {"StaleRead"}
    assert dumps(convicted) == (FOLDER / "arenas_shared.json").read_bytes()
    assert set(causes(FOLDER / "arenas_shared.json")) == {("C07", "plan")}
    assert main(["check", str(FOLDER / "methods.pte")]) == 0
    assert "whether forward is loaded after a run, which resets seen" in " ".join(capsys.readouterr().out.split())


def test_a_loop_fills_its_result_row_by_row():
    program = read("map").programs[0]
    rows = [program.values[op.results[0]] for op in program.ops if op.kind.startswith("executorch_prim::et_copy_index")]

    assert [(row.offset, row.shape) for row in rows] == [(0, (1, 4)), (16, (2, 4))]


def method(*instructions, values=(False, None)):
    return Method(name="m", values=values, inputs=(), outputs=(), instructions=instructions, sizes=())


@pytest.mark.parametrize(
    ("instructions", "rule"),
    [
        ((Jump(1, 2), Call("k", ())), "is a jump that neither begins a branch with two sides nor ends a loop"),
        ((Jump(0, 1), Call("k", ())), "is a jump that neither begins a branch"),
        ((Jump(1, 3), Call("k", ()), Jump(0, 2), Call("k", ())), "jumps out of its branch to instruction 2"),
    ],
)
def test_jumps_that_are_no_branch_are_refused(instructions, rule):
    with pytest.raises(DocumentError, match=rule):
        blocks(method(*instructions), "x")


def test_nesting_is_bounded():
    depth = 70
    back = [Jump(1, at) for at in reversed(range(depth))]

    with pytest.raises(DocumentError, match="nested deeper than 64"):
        blocks(method(*(Call("k", ()) for _ in range(depth)), *back), "x")


def patched(name, what, number):
    data = bytearray((FOLDER / f"{name}.pte").read_bytes())
    at = data.find(what)
    assert at >= 0
    data[at : at + 4] = struct.pack("<I", number)
    return bytes(data)


def test_a_vector_longer_than_the_file_is_refused_before_it_is_read():
    data = patched("cond_bug", struct.pack("<Iqq", 2, 0, 144), 1 << 30)

    with pytest.raises(
        DocumentError, match=r"non_const_buffer_sizes: has 1073741824 entries, more than fit into the file"
    ):
        executorch.loads(data, "x.pte")


def test_another_schema_is_another_format():
    assert not executorch.looks_like(b"\0\0\0\0ET99")
    with pytest.raises(DocumentError, match="is not an ExecuTorch program of schema ET12"):
        executorch.loads(b"\0\0\0\0ET99", "x.pte")


def test_sizes_are_those_of_the_dtype():
    assert PlannedTensor("f32", (2, 3), None, content=False).nbytes == 24
