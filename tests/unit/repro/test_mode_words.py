"""Words for modes: what each plans and executes, what is refused, and what a comparison leaves in record, file and picture."""

import csv
import io
from functools import cache
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from allocsim.allocators import Constraints, find, pin_nodes
from allocsim.cure.pairs import positions_of, used_pairs
from allocsim.errors import AllocsimError, PlannerError
from engine.d_differential.side_comparison import EXECUTORS
from engine.models.llama import LlamaConfig
from reports.figures.modes_figure import mode_errors
from reports.figures.style import render
from reports.folder import encoded
from reports.mode_rows import COLUMNS, as_csv, layers_at, over_steps, telling_step
from repro import scenarios
from repro.commands.mode_tables import sections
from repro.mode_words import courses, record, side_of, sides_of
from repro.options import EngineOptions
from repro.pipeline import prepare

BASE = LlamaConfig(layers=2, hidden=32, ffn=48, heads=4, kv_heads=2, vocab=48, seq=8, rank=4)
NAMES = (
    "default",
    "pinned",
    "reference",
    "float64",
    "deny:rms_norm_back",
    "greedy_by_size",
    "deny+pin:forward",
    "calls",
)


@cache
def bench():
    options = EngineOptions(layers=2, seq=8, steps=2, base=BASE)
    return prepare(scenarios.find("ggml-1501"), options)


@cache
def records():
    it = bench()
    return tuple(
        record(course, it.workload.lowered, it.workload.loss) for course in courses(it, sides_of(it, NAMES), lockstep=1)
    )


def plan(name):
    return side_of(bench(), name).plan


def same(one, other):
    return np.array_equal(one.offset, other.offset) and np.array_equal(one.arena, other.arena)


def test_the_three_known_modes_are_the_plans_of_the_scenario():
    for name in ("default", "pinned", "reference"):
        assert same(plan(name), bench().plans[name])


def test_a_planner_is_a_mode_by_its_name():
    assert same(plan("greedy_by_size"), find("greedy_by_size").plan(bench().workload.program))
    assert plan("greedy_by_size").source == "greedy_by_size"


def test_float64_is_apart_and_another_planner_behind_it_is_not():
    side = side_of(bench(), "float64")
    assert side.wide
    assert same(side.plan, find("reference").plan(side.lowered.program))
    mixed = side_of(bench(), "float64+ggml")
    assert mixed.wide
    assert mixed.plan.source == "ggml"
    assert {array.dtype for array in mixed.parameters.values()} == {np.dtype(np.float64)}


def test_denying_leaves_out_the_pairs_named_and_no_others():
    program = bench().workload.program

    def used(name):
        made = plan(name)
        return {position for pair in used_pairs(made) for position in positions_of(program, *pair)}

    everything = used("default")
    assert used("deny") == set()
    assert {kind for kind, _, _ in everything} - {kind for kind, _, _ in used("deny:add")} == {"add"}
    assert ("mul", 1, 0) not in used("deny:mul/1")
    assert {kind for kind, _, _ in used("deny:add+deny:mul")} & {"add", "mul"} == set()


def test_pins_go_by_policy_stage_kind_layer_and_name():
    it = bench()
    ops, values = it.workload.program.ops, it.workload.program.values
    forward = plan("pin:forward").problem.pinned
    for op in ops:
        if op.step in ops.meta and it.workload.lowered.kernels[op.step] is not None:
            stage = ops.meta[op.step]["stage"]
            assert forward[values.buffer[op.results[0]]] or stage != "forward"
    assert plan("pin:rms_norm").problem.pinned.sum() == 1 + [it.workload.program.ops.kinds[k] for k in ops.kind].count(
        "rms_norm"
    )
    assert plan("pin:layer.0").problem.pinned.sum() < plan("pin:nodes").problem.pinned.sum()
    one = plan("pin:layer.1.ffn_residual").problem.pinned
    assert one.sum() == 2  # and what the host reads
    assert np.array_equal(plan("pin:nodes").problem.pinned, pin_nodes(it.workload.program))


def test_later_words_override_earlier_ones():
    nodes = Constraints.of(bench().workload.program, pins="nodes")
    assert same(plan("pinned+default"), plan("default"))
    assert same(plan("pinned+greedy_by_size"), find("greedy_by_size").plan(bench().workload.program, nodes))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("defualt", "mode or allocator 'defualt' does not exist; did you mean default"),
        ("", "mode or allocator"),
        ("pinned:x", "mode or allocator 'pinned:x' does not exist|cannot be imported|No module"),
        ("pin:nothing", "pin: 'nothing' is no policy, stage, kind of op, layer.N or tensor"),
        ("pin:layer.9", "pin: 'layer.9'"),
        ("pin:", "pin: '' is no policy"),
        ("deny:nothing", "deny: no op is a 'nothing'"),
        ("deny:mul/2", "deny: mul has operands 0 to 1, and '2' is none of them"),
        ("deny:mul/x", "'x' is none of them"),
        ("deny:mul/", "'' is none of them"),
    ],
)
def test_what_names_nothing_is_refused_in_one_line(name, line):
    with pytest.raises(AllocsimError, match=line) as caught:
        side_of(bench(), name)
    assert "\n" not in str(caught.value)


def test_a_planner_without_a_belief_has_no_pairs_to_deny(tmp_path, monkeypatch):
    (tmp_path / "stranger_modes.py").write_text(
        "def plan(program):\n    return [1 << 20 for _ in program.buffers.names]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PlannerError, match="has no belief"):
        side_of(bench(), "stranger_modes:plan+deny")


def test_every_executor_is_a_word():
    for name in EXECUTORS:
        assert side_of(bench(), name).executor == name


def test_the_comparison_names_the_modes_that_a_kernel_makes_wrong():
    natures = {course["mode"]: course["nature"] for course in records()}
    assert natures == {
        "default": "corruption", "pinned": "equal", "reference": "equal", "float64": "rounding", "deny:rms_norm_back": "equal",
        "greedy_by_size": "corruption", "deny+pin:forward": "equal", "calls": "corruption",
    }  # fmt: skip
    for course in records():
        first = course["first"]
        assert (first is None) == (course["nature"] != "corruption")
        if first is not None:
            assert (first["kind"], first["what"], first["inputs_equal"], first["nature"]) == (
                "rms_norm_back",
                "result",
                True,
                "corruption",
            )
            assert first["tensor"] == first["name"]
    losses = {course["mode"]: course["loss"] for course in records()}
    assert losses["pinned"] == losses["reference"] != losses["default"]
    assert losses["float64"] == pytest.approx(losses["reference"], rel=1e-5)


def test_rows_are_there_for_each_layer_stage_and_step():
    for course in records():
        places = [(row["step"], row["layer"], row["stage"]) for row in course["rows"]]
        assert len(set(places)) == len(places)
        assert {step for step, _, _ in places} == {1, 2}
        assert {layer for _, layer, _ in places} == {None, 0, 1}
        kernels = sum(kernel is not None for kernel in bench().workload.lowered.kernels)
        assert sum(row["tensors"] for row in course["rows"] if row["step"] == 1) == kernels
        for row in course["rows"]:
            assert (row["nature"] == "equal") == (row["differing"] == 0)
            assert row["nature"] != "corruption" or row["error"] > row["bound"]


def test_the_file_has_every_row_and_reads_back():
    table = list(csv.DictReader(io.StringIO(as_csv(records()))))
    assert len(table) == sum(len(course["rows"]) for course in records())
    assert list(table[0]) == ["mode", *COLUMNS]
    wrong = [row for row in table if row["mode"] == "default" and row["nature"] == "corruption"]
    assert wrong
    assert all(float(row["relative"]) > 1e-3 for row in wrong if row["step"] == "1")
    assert {row["relative"] for row in table if row["mode"] == "pinned"} == {"0"}


def test_tables_are_by_layer_at_the_step_that_tells_and_over_steps():
    assert telling_step(records()) == 1
    layers, steps = layers_at(records(), 1), over_steps(records())
    assert list(layers) == [0, 1, None]
    assert list(steps) == [1, 2]
    at = NAMES.index("default")
    assert all(errors[at] > 0.1 for errors in layers.values())
    assert all(errors[NAMES.index("pinned")] == 0 for errors in (*layers.values(), *steps.values()))
    assert [title for title, _, _ in sections(records())] == [
        "modes", "largest error against the reference, by layer at step 1", "largest error against the reference, by step",
    ]  # fmt: skip
    assert sections(()) == []


def test_what_is_not_finite_is_told_in_table_and_file():
    broken = [
        {
            **records()[0],
            "rows": [{**row, "relative": None} if row["differing"] else row for row in records()[0]["rows"]],
        }
    ]
    assert None in {error for errors in over_steps(broken).values() for error in errors}
    assert "nan" in as_csv(broken)
    assert ET.fromstring(render(mode_errors(broken), ".svg")).tag.endswith("svg")


def test_the_picture_names_every_mode():
    svg = render(mode_errors(records()), ".svg").decode()
    for course in records():
        assert course["mode"] in svg
    assert ET.fromstring(render(mode_errors([]), ".svg")).tag.endswith("svg")


def test_the_record_is_json():
    assert encoded({"differential": list(records())}).count(b'"mode"') == len(NAMES)
