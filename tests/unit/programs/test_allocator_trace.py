"""The trace of a caching allocator as a document: slots, order, and what a missing wait lets race."""

import random
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from allocsim import check, trace
from allocsim.cli import main
from allocsim.document import read
from allocsim.errors import ModelError
from allocsim.programs.trace_events import KEYS


def alloc(block, address, nbytes=64, **more):
    return {"event": "alloc", "block": block, "address": address, "nbytes": nbytes, **more}


def use(kind="f", reads=(), writes=(), stream=0, **more):
    return {"event": "use", "kind": kind, "reads": list(reads), "writes": list(writes), "stream": stream, **more}


def event(word, **keys):
    return {"event": word, **keys}


def reused(*between, recorded=False, freed=()):
    """Block a is read on stream 1 and freed; b lies in its bytes and is written on stream 0."""
    start = [
        alloc("a", 1000),
        use("host.write", writes=["a"]),
        event("record", mark=1),
        event("wait", mark=1, stream=1),
    ]
    middle = [use("copy", reads=["a"], stream=1), *([event("record_stream", block="a", stream=1)] if recorded else ())]
    end = [*between, alloc("b", 1032), use("fill", writes=["b"]), use("host.read", reads=["b"])]
    return [*start, *middle, *freed, event("free", block="a"), *end]


def races(events):
    return [(v.op, v.other_op) for v in check(trace(events)).of_kind("Race")]


def test_blocks_are_buffers_where_they_lay():
    made = trace(reused())
    (plan,) = made.plans
    assert plan.program.buffers.names == ("a", "b")
    assert (plan.offset.tolist(), plan.nbytes.tolist()) == ([0, 32], [64, 64])
    assert plan.events.tolist() == [[0, 0, 0], [2, 1, 0], [2, 0, 1]]
    assert [(op.kind, op.stream, op.after) for op in plan.program.ops] == [
        ("host.write", 0, ()), ("copy", 1, (0,)), ("fill", 0, ()), ("host.read", 0, ()),
    ]  # fmt: skip


def test_a_block_used_on_a_stream_that_nobody_recorded_races_with_its_next_owner():
    assert races(reused()) == [(2, 1)]


ORDERED = {
    "record_stream": reused(recorded=True),
    "returned": reused(event("returned", block="a"), recorded=True),
    "a wait": reused(event("record", mark="m", stream=1), event("wait", mark="m", stream=0)),
    "the host waits for the stream": reused(event("synchronize", stream=1)),
    "the host waits for all": reused(event("synchronize")),
}


@pytest.mark.parametrize("events", ORDERED.values(), ids=ORDERED)
def test_what_orders_the_next_owner_after_the_last_use(events):
    made = trace(events)
    assert made.programs[0].ops[2].after == (1,)
    assert check(made).clean


def test_the_allocators_word_is_counted():
    assert trace(ORDERED["record_stream"]).programs[0].meta == {"assumed_returns": 1}
    assert trace(ORDERED["returned"]).programs[0].meta == {}


@pytest.mark.parametrize("late", [use("copy", reads=["a"], stream=1), event("record", mark="m", stream=1)])
def test_what_is_put_on_a_recorded_stream_after_the_free_is_not_waited_for(late):
    events = reused(late, recorded=True)
    assert list(trace(events).programs[0].ops)[-2].after == (1,)


def test_a_block_may_serve_its_own_stream_again_at_once():
    events = [
        alloc("a", 0),
        use(writes=["a"]),
        event("free", block="a"),
        alloc("a", 0),
        use(writes=["a"]),
        use("host.read", reads=["a"]),
    ]
    assert check(trace(events)).clean


def test_a_use_after_free_reads_what_the_next_owner_wrote():
    events = [
        alloc("a", 0),
        use(writes=["a"]),
        event("free", block="a"),
        alloc("b", 0),
        use(writes=["b"]),
        use("host.read", reads=["a"]),
    ]
    assert {v.kind for v in check(trace(events)).violations} >= {"StaleRead"}


def test_an_allocation_over_a_live_block_is_found():
    assert check(trace([alloc("a", 0), alloc("b", 32)])).of_kind("AllocOverLive")


def test_a_wait_that_was_not_used_yet_is_part_of_what_is_recorded():
    """Stream 2 waits for stream 1, and records before it was given anything."""
    events = [
        alloc("a", 0), use(writes=["a"], stream=1), event("record", mark="x", stream=1), event("wait", mark="x", stream=2),
        event("record", mark="y", stream=2), event("wait", mark="y", stream=3), use(reads=["a"], stream=3),
    ]  # fmt: skip
    assert trace(events).programs[0].ops[1].after == (0,)


def test_parts_of_a_block_are_values_of_their_own():
    part = {"block": "a", "offset": 16, "nbytes": 8}
    made = trace(
        [alloc("a", 0), use(writes=["a"]), use(reads=["a"], writes=[part], in_place=[[0, 0]]), use(reads=["a", part])]
    )
    values = made.programs[0].values
    assert [(int(o), int(n)) for o, n in zip(values.offset, values.shape, strict=True)] == [(0, 64), (16, 8), (0, 64)]
    assert made.programs[0].ops[2].operands == (2, 1)


REFUSED = [
    ([3], "events[0]: 3 is not an object"),
    ([{}], f"events[0].event: None is none of {' '.join(KEYS)}"),
    ([event("alloc", block="a", address=0)], "events[0]: has no 'nbytes', which alloc needs"),
    ([alloc("a", 0, adress=1)], "events[0]: has the unknown key 'adress'; did you mean 'address'?"),
    ([alloc("a", -1)], "events[0].address: -1 is not an integer between 0 and 2^62"),
    ([alloc("a", 0), alloc("a", 64)], "events[1].block: 'a' was given out already and not freed"),
    ([alloc("act", 0), event("free", block="atc")], "events[1].block: 'atc' was never given out; did you mean 'act'?"),
    ([event("wait", mark=1)], "events[0].mark: 1 was never recorded"),
    ([alloc("a", 0), event("returned", block="a")], "events[1].block: 'a' was returned before it was freed"),
    ([use(reads=["a"])], "events[0].reads[0].block: 'a' was never given out"),
    ([{"event": "use", "reads": "a"}], "events[0].reads: 'a' is not a list of blocks"),
    ([alloc("a", 0), use("host.write", reads=["a"])], "events[1].kind: a host.write has no reads"),
    (
        [alloc("a", 0), use(reads=["a"], in_place=[[0]])],
        "events[1].in_place[0]: [0] is not a pair (operand position, result position)",
    ),
    ([alloc("a", 0, role="weight")], "events[0].role: 'weight' is none of temporary input parameter state"),
    ([alloc("a", 0, meta=3)], "events[0].meta: 3 is not an object"),
]


@pytest.mark.parametrize(("events", "said"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_no_trace_can_hold_is_refused_with_its_place(events, said):
    with pytest.raises(ModelError) as error:
        trace(events)
    assert str(error.value) == said


def randomly(rng):
    """Return events of four blocks, each used before it is freed, on three streams."""
    events, live, marks = [], [], 0
    for _ in range(rng.randrange(4, 30)):
        what = rng.choice(["alloc", "use", "use", "use", "free", "record", "wait", "synchronize", "record_stream"])
        stream = rng.randrange(3)
        if what == "alloc":
            live.append(f"b{len(events)}")
            events.append(alloc(live[-1], 64 * len(events), stream=stream))
        elif what == "use":
            events.append(use(reads=rng.sample(live, min(len(live), 1)), stream=stream))
        elif what == "record":
            events.append(event("record", mark=(marks := marks + 1), stream=stream))
        elif what == "wait" and marks:
            events.append(event("wait", mark=rng.randrange(marks) + 1, stream=stream))
        elif what == "synchronize":
            events.append(event("synchronize", **({"stream": stream} if rng.random() < 0.7 else {})))
        elif what in ("free", "record_stream") and live:
            block = rng.choice(live)
            events.append(event(what, block=block, stream=stream))
            if what == "free":
                live.remove(block)
                if rng.random() < 0.7:
                    events.append(event("returned", block=block))
    return events


def happens_before(events):
    """Return which uses come before which, by a graph with a node for each event of a stream and each wait of the host."""
    graph, last, marks, host, recorded, owed = nx.DiGraph(), {}, {}, [], {}, {}
    steps = []
    for index, one in enumerate(events):
        word, stream = one["event"], one.get("stream", 0)
        graph.add_node(index)
        if word in ("use", "wait", "record"):
            graph.add_edges_from((before, index) for before in host)
            if stream in last:
                graph.add_edge(last[stream], index)
            last[stream] = index
        if word == "use":
            steps.append(index)
        elif word == "record":
            marks[one["mark"]] = index
        elif word == "wait":
            graph.add_edge(marks[one["mark"]], index)
        elif word == "synchronize":
            graph.add_edges_from((last[s], index) for s in ([stream] if "stream" in one else last) if s in last)
            host.append(index)
        elif word == "record_stream":
            recorded.setdefault(one["block"], set()).add(stream)
        elif word == "free":
            owed[one["block"]] = [last[s] for s in recorded.get(one["block"], set()) - {stream} if s in last]
        elif word == "returned":
            graph.add_edges_from((before, index) for before in owed[one["block"]])
            host.append(index)
    reach = {step: nx.descendants(graph, step) for step in steps}
    return {(i, j) for i, a in enumerate(steps) for j, b in enumerate(steps) if b in reach[a]}


@pytest.mark.parametrize("seed", range(60))
def test_ops_are_ordered_exactly_as_events_streams_and_the_host_order_them(seed):
    events = randomly(random.Random(seed))
    ops = list(trace(events).programs[0].ops)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(ops)))
    graph.add_edges_from((earlier, op.step) for op in ops for earlier in op.after)
    for stream in {op.stream for op in ops}:
        on = [op.step for op in ops if op.stream == stream]
        graph.add_edges_from(pairwise(on))
    found = {(i, j) for i in graph for j in nx.descendants(graph, i)}
    assert found == happens_before(events)


def test_the_command_writes_the_document_and_tells_a_fault_by_its_line(tmp_path, capsys):
    path = tmp_path / "step.jsonl"
    path.write_text(
        '{"event": "alloc", "block": "a", "address": 0, "nbytes": 8}\n\n{"event": "use", "writes": ["a"]}\n'
    )
    assert main(["trace", str(path), "-o", str(tmp_path / "out.json")]) == 0
    (program,) = read(tmp_path / "out.json").programs
    assert (program.name, np.diff(program.ops.result_starts).tolist()) == ("step", [1])
    path.write_text(path.read_text() + '{"event": "free", "block": "b"}\n')
    assert main(["trace", str(path), "-o", str(tmp_path / "out.json")]) == 2
    assert capsys.readouterr().err.endswith("step.jsonl: line 4.block: 'b' was never given out\n")
    path.write_text("{")
    assert main(["trace", str(path), "-o", str(tmp_path / "out.json")]) == 2
    assert "step.jsonl: line 1: is not JSON: " in capsys.readouterr().err
