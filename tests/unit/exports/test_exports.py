"""Files for other programs, held against the document by an independent reading and by real readers."""

import io
import json
import pickle
import subprocess
from collections import Counter
from itertools import combinations
from shutil import which

import networkx as nx
import pytest
from hypothesis import given, settings
from strategies import documents, instances, plan, programs

from allocsim import document as native
from allocsim.errors import OutputError
from allocsim.exports import EXPORTS, chrome_trace, memory_snapshot, program_graph
from allocsim.exports.placed_buffers import placed_buffers, timed_runs
from allocsim.judge.fast import check
from allocsim.model import Document, Role, Run
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.networkx_graph import from_networkx
from allocsim.systems.torch import torch_snapshot


def touched(run):
    """The first and the last step of each buffer, from the rows of the ops."""
    seen = {}
    for op in run.program.ops:
        if op.kind == "view" or op.step in run.skip:
            continue
        for value in (*op.operands, *op.results):
            seen.setdefault(run.program.values[value].buffer, []).append(op.step)
    return {buffer: (min(steps), max(steps)) for buffer, steps in seen.items()}


def shown(made):
    """Buffers that have bytes in an arena while they live, of each run."""
    return Counter(
        (number, buffer)
        for number, run in enumerate(made.runs)
        for buffer in range(len(run.program.buffers))
        if run.plan.arena[buffer] >= 0
        and run.plan.nbytes[buffer] > 0
        and (buffer in touched(run) or (run.program.buffers.persistent[buffer] and len(run.program.ops)))
    )


@settings(max_examples=25)
@given(documents())
def test_each_life_in_an_arena_is_shown_once_and_holds_what_its_ops_touch(made):
    if not made.runs:
        return
    found = list(placed_buffers(timed_runs(made)))
    assert Counter((one.run, one.buffer) for one in found) == shown(made)
    before = 0
    for number, run in enumerate(made.runs):
        for one in (one for one in found if one.run == number and not one.stays):
            first, last = touched(run)[one.buffer]
            assert one.start == before + first
            assert one.stop == before + last + 1
        before += max(len(run.program.ops), 1)


@settings(max_examples=20)
@given(documents())
def test_whoever_meets_by_the_judge_is_shown_to_meet(made):
    if not made.runs:
        return
    lives = {(one.run, one.buffer): one for one in placed_buffers(timed_runs(made))}
    for found in check(made).of_kind("Overlap"):
        if found.run is None or (found.run, found.buffer) not in lives or (found.run, found.other_buffer) not in lives:
            continue
        one, other = lives[found.run, found.buffer], lives[found.run, found.other_buffer]
        assert max(one.start, other.start) < min(one.stop, other.stop)


def test_two_that_an_op_does_not_hand_over_are_shown_to_meet():
    b = ProgramBuilder("p")
    x, a, c, d, e = (b.tensor(name, "f32", (16,)) for name in "xacde")
    b.op("host.write", (), (x,))
    b.op("f", (x,), (a,))
    b.op("g", (x,), (c,))
    b.op("h", (c, a), (d,))
    b.op("k", (a, d), (e,))
    made = Document.of(plan(b.build(), [0] * 5, [0, 64, 128, 128, 256]))
    one, other = (life for life in placed_buffers(timed_runs(made)) if life.buffer in (c, d))
    assert one.stop > other.start
    top = max(event["args"]["B"] for event in json.loads(chrome_trace.dumps(made))["traceEvents"] if event["ph"] == "C")
    assert top == 3 * 64


def test_a_parameter_is_allocated_in_the_first_run_and_two_on_one_slot_are_both_there():
    b = ProgramBuilder("p")
    w, v = (b.tensor(name, "f32", (16,), role=Role.PARAMETER) for name in "wv")
    x = b.tensor("x", "f32", (16,))
    b.op("host.write", (), (x,))
    b.op("f", (w, v), ())
    program = b.build()
    made = Run.of(plan(program, [0] * 3, [128, 128, 0]))
    (events,) = pickle.loads(memory_snapshot.dumps(Document.of(made, Run.of(made.plan, skip=(0,)))))["device_traces"]
    kept = [event for event in events if event["action"] == "alloc" and event["addr"] == memory_snapshot.BASE + 128]
    assert [(event["time_us"], event["frames"][0]["name"]) for event in kept] == [(0, "w"), (0, "v")]


def test_an_op_that_a_run_leaves_out_is_not_in_the_trace():
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (16,))
    b.op("host.write", (), (x,), name="up")
    b.op("f", (x,), (), name="f")
    made = plan(b.build(), [0], [0])
    events = json.loads(chrome_trace.dumps(Document.of(Run.of(made), Run.of(made, skip=(0,)))))["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X" and event["pid"] == 1] == ["up", "f", "f"]


@settings(max_examples=25)
@given(documents())
def test_in_a_trace_slices_of_a_track_never_meet_and_the_counter_is_their_sum(made):
    if not made.runs:
        return
    events = json.loads(chrome_trace.dumps(made))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 1 for event in slices)
    for one, other in combinations(slices, 2):
        if (one["pid"], one["tid"]) == (other["pid"], other["tid"]):
            assert one["ts"] + one["dur"] <= other["ts"] or other["ts"] + other["dur"] <= one["ts"]
    assert sum(event["cat"] == "buffer" and event["pid"] > 1 for event in slices) == sum(shown(made).values())
    assert sum(event["pid"] == 1 for event in slices) == sum(len(run.program.ops) - len(run.skip) for run in made.runs)
    for counter in (event for event in events if event["ph"] == "C"):
        live = [
            event["args"]["nbytes"]
            for event in slices
            if event["pid"] == counter["pid"] and event["ts"] <= counter["ts"] < event["ts"] + event["dur"]
        ]
        assert counter["args"]["B"] == sum(live)


@settings(max_examples=25)
@given(documents())
def test_a_snapshot_read_again_has_the_same_blocks_meet(made):
    lives = [one for one in placed_buffers(timed_runs(made)) if not one.stays] if made.runs else []
    kept = {}
    for one in placed_buffers(timed_runs(made)) if made.runs else ():
        name = made.runs[one.run].program.buffers.names[one.buffer]
        if one.stays and (name, one.arena, one.offset, one.nbytes) not in kept:
            kept[name, one.arena, one.offset, one.nbytes] = one
    if not lives and not kept:
        return
    last = max(one.stop for one in [*lives, *kept.values()]) + 1
    spans = [(one.arena, one.offset, one.nbytes, one.start, one.stop) for one in lives]
    spans += [(one.arena, one.offset, one.nbytes, one.start, last) for one in kept.values()]
    if any(one[:2] == other[:2] and meetings([one, other]) for one, other in combinations(spans, 2)):
        return  # an allocator never hands out one address twice, and the format cannot say that it did
    again = torch_snapshot.loads(memory_snapshot.dumps(made))
    plan, belief = again.plans[0], again.problems[0]
    rows = zip(plan.arena, plan.offset, plan.nbytes, belief.start, belief.stop, strict=True)
    assert meetings(map(tuple, rows)) == meetings(spans)
    assert Counter(plan.nbytes.tolist()) == Counter(nbytes for _, _, nbytes, _, _ in spans)


def meetings(spans):
    """Sizes of the pairs that share bytes and time."""
    return Counter(
        tuple(sorted((int(one[2]), int(other[2]))))
        for one, other in combinations(spans, 2)
        if one[0] == other[0]
        and max(one[1], other[1]) < min(one[1] + one[2], other[1] + other[2])
        and max(one[3], other[3]) < min(one[4], other[4])
    )


@settings(max_examples=25)
@given(instances())
def test_an_instance_without_ops_is_shown_by_its_believed_lives(made):
    if not made.runs:
        return
    believed = made.runs[0].plan.problem
    for one in placed_buffers(timed_runs(made)):
        assert (one.start, one.stop + 1) >= (believed.start[one.buffer], believed.stop[one.buffer])


@settings(max_examples=25)
@given(programs())
def test_graphml_comes_back_as_the_same_program(program):
    file = io.BytesIO(program_graph.graphml(Document.of(program)))
    again = from_networkx(nx.read_graphml(file))
    assert native.dumps(Document.of(again)) == native.dumps(Document.of(program))


def test_pytorch_s_own_reader_takes_a_snapshot():
    viewer = pytest.importorskip("torch.cuda._memory_viz", reason="PyTorch is not installed")
    snapshot = pickle.loads(memory_snapshot.dumps(planned("a", "b")))
    assert viewer.trace(snapshot).count("free completed") == 2
    assert "total_reserved" in viewer.segsum(snapshot)


@pytest.mark.skipif(which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("name", ['"]; evil [', "back\\slash", "\x1b[31m\x00", "漢字", "a\nb", "<b>x</b>"])
def test_graphviz_draws_names_of_any_kind_as_labels(name):
    found = subprocess.run(
        ["dot", "-Tplain"], input=program_graph.dot(planned(name, "b")), capture_output=True, check=True
    )
    assert found.stderr == b""
    assert sum(line.startswith(b"node ") for line in found.stdout.splitlines()) == 4


def test_a_name_that_xml_cannot_hold_is_refused():
    for made in (planned("a\x00", "b"), Document.of(ProgramBuilder("a\x00").build())):
        with pytest.raises(OutputError, match=r"'a.x00' has a character that XML cannot hold"):
            program_graph.graphml(made)


@pytest.mark.parametrize("name", ["chrome-trace", "memory-snapshot"])
def test_what_runs_nothing_has_no_time_to_show(name):
    with pytest.raises(OutputError, match="no plan that is run"):
        EXPORTS[name].saves(Document.of(planned("a", "b").programs[0]))


def planned(*names):
    """Two buffers that live one after the other, at one address."""
    b = ProgramBuilder("p")
    tensors = [b.tensor(name, "f32", (4,)) for name in names]
    for tensor in tensors:
        b.op("fill", (), (tensor,))
    program = b.build()
    return Document.of(plan(program, [0] * len(tensors), [0] * len(tensors)))
