"""H: order over streams, hazards, schedules, and inputs made to hurt."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle2.order import predecessors
from oracle2.reading import read

from allocsim import check
from allocsim.document import dumps
from allocsim.judge import plain
from allocsim.judge.fast import h_races as order
from allocsim.judge.fast import h_sessions, selector
from allocsim.judge.fast.h_clocks import Order, Touched, late_accesses
from allocsim.judge.fast.h_pairs import _stabs
from allocsim.judge.fast.h_races import SCHEDULE_LIMIT, exchanged
from allocsim.judge.fast.h_sessions import Session
from allocsim.judge.fast.intervals import Ranges
from allocsim.judge.fast.screens import late
from allocsim.judge.fast.selector import PLAIN
from allocsim.judge.fast.trial import TrialDocument
from allocsim.judge.plain.on_trial import OnTrial
from allocsim.judge.plain.races import Clocks
from allocsim.model import HOST_READ, HOST_WRITE, OWN, UNPLACED, VIEW, Arena, Document, Plan, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

BYTES = (Arena(name="cpu", alignment=1),)


class Threads:
    """A program on streams `a`, `b`, `c`; values are four bytes in a buffer of their own unless told otherwise."""

    def __init__(self, streams="abc"):
        self.builder = ProgramBuilder("p", arenas=BYTES, streams=tuple(streams))
        self.streams = streams
        self.values = {}

    def value(self, name):
        if name not in self.values:
            self.values[name] = self.builder.tensor(name, "u8", (4,))
        return self.values[name]

    def op(self, stream, reads="", writes="", after=(), kind="f", **keywords):
        return self.builder.op(
            kind,
            map(self.value, reads),
            map(self.value, writes),
            stream=self.streams.index(stream),
            after=after,
            **keywords,
        )

    def races(self, slots=None, **keywords):
        made = plan_of(self.builder.build(), slots or {n: 8 * n for n in range(len(self.values))})
        return check(Document.of(made), **keywords).of_kind("Race")


def test_a_wait_orders_everything_before_it_on_the_other_stream():
    t = Threads()
    t.op("a", writes="x")
    last = t.op("a", writes="y")
    t.op("b", reads="xy", after=(last,))
    assert not t.races()


def test_a_wait_orders_nothing_after_it():
    t = Threads()
    first = t.op("a", writes="x")
    t.op("a", writes="y")
    t.op("b", reads="xy", after=(first,))
    (race,) = t.races()
    assert (race.op, race.other_op, race.buffer) == (2, 1, 1)


def test_waits_reach_through_a_third_stream():
    t = Threads()
    one = t.op("a", writes="x")
    two = t.op("b", after=(one,))
    t.op("c", reads="x", after=(two,))
    assert not t.races()


def test_an_op_that_touches_nothing_still_carries_the_order():
    """A view and an upload left out keep their place."""
    t = Threads()
    t.op("a", writes="x", kind=HOST_WRITE)
    child = t.builder.value("v", 0, "u8", (4,))
    t.builder.op(VIEW, (0,), (child,), stream=1, after=(0,))
    t.op("b", reads="x")
    program = t.builder.build()
    made = plan_of(program, {0: 0})
    assert not check(Document.of(made)).of_kind("Race")
    assert not check(Document.of(Run.of(made), Run.of(made, skip=(0,)))).of_kind("Race")


def test_an_upload_left_out_races_with_nobody():
    t = Threads()
    t.op("a", writes="x", kind=HOST_WRITE)
    t.op("b", reads="x")
    made = plan_of(t.builder.build(), {0: 0})
    races = check(Document.of(Run.of(made), Run.of(made, skip=(0,)), Run.of(made))).of_kind("Race")
    assert [race.run for race in races] == [0, 2]


def test_runs_are_joined():
    """What one run leaves the next may take, on any stream."""
    t = Threads()
    t.op("a", writes="x")
    t.op("b", writes="y")
    made = plan_of(t.builder.build(), {0: 0, 1: 8})
    other = plan_of(made.program, {0: 8, 1: 0})
    assert not check(Document.of(Run.of(made), Run.of(other), Run.of(made))).of_kind("Race")


@pytest.mark.parametrize(
    ("first", "second", "hazards"),
    [
        ({"reads": "x"}, {"writes": "y"}, ("write after read",)),
        ({"writes": "x"}, {"reads": "y"}, ("read after write",)),
        ({"writes": "x"}, {"writes": "y"}, ("write after write",)),
        ({"reads": "x"}, {"reads": "y"}, None),
        ({"reads": "x", "writes": "x2"}, {"writes": "y"}, ("write after read", "write after write")),
    ],
)
def test_each_sort_of_hazard_is_named_as_the_list_has_it(first, second, hazards):
    t = Threads()
    t.op("a", **{side: names[:1] for side, names in first.items()})
    t.op("b", **second)
    if "writes" in first and "reads" in first:  # the mutation: a second value in the buffer of x
        t = Threads()
        x, y = t.value("x"), t.value("y")
        again = t.builder.value("again", 0, "u8", (4,))
        t.builder.op("f", (x,), (again,), in_place=((0, 0),))
        t.builder.op("f", (), (y,), stream=1)
    races = t.races({0: 0, 1: 0})
    assert [race.hazards for race in races] == ([hazards] if hazards else [])


def test_the_two_accesses_of_one_op_are_in_order():
    t = Threads()
    t.op("a", writes="x")
    t.op("a", reads="x", writes="y", in_place=((0, 0),))
    t.op("b")
    assert not t.races({0: 0, 1: 0})


def test_bytes_are_exact_within_the_buffer_of_the_later_op():
    t = Threads()
    t.op("a", writes="x")
    t.op("b", writes="y")
    (race,) = t.races({0: 10, 1: 7})
    assert race.bytes == ((3, 4),)
    assert race.in_apart is False


@pytest.mark.parametrize("arena", [OWN, UNPLACED])
def test_memory_of_its_own_meets_nothing_but_itself(arena):
    t = Threads()
    t.op("a", writes="x")
    t.op("b", reads="x", writes="y")
    program = t.builder.build()
    column = np.full(2, arena, dtype=np.int32)
    made = Plan(program=program, arena=column, offset=np.zeros(2, dtype=np.int64), nbytes=program.buffers.nbytes)
    (race,) = check(Document.of(made)).of_kind("Race")
    assert (race.buffer, race.other_buffer, race.in_apart) == (0, 0, True)


def test_one_pair_of_ops_is_a_record_for_each_pair_of_buffers():
    t = Threads()
    t.op("a", writes="xy")
    t.op("b", reads="uv")
    races = t.races({0: 0, 1: 2, 2: 0, 3: 4})
    assert [(race.buffer, race.other_buffer) for race in races] == [(2, 0), (2, 1), (3, 1)]


def test_a_schedule_names_what_the_later_op_needs_then_both():
    t = Threads()
    t.op("a", reads="x")
    t.op("c", writes="z")
    two = t.op("c", writes="u")
    t.op("b", writes="y", after=(two,))
    (race,) = t.races({0: 0, 1: 8, 2: 16, 3: 0})
    assert race.schedule == (1, 2, 3, 0)


def test_messages_name_both_ops_their_streams_and_the_bytes():
    t = Threads()
    t.op("a", reads="x")
    t.op("b", writes="y")
    (race,) = t.races({0: 4, 1: 4})
    assert race.message == (
        "op 1 'f' on stream 'b' writes bytes [0, 4) of buffer 1 'y' in cpu[4, 8) as value 1 'y'; "
        "op 0 'f' on stream 'a' reads them as value 0 'x', and neither waits for the other"
    )
    assert (race.names["op_name"], race.names["other_buffer_name"]) == ("f", "x")


# inputs made to hurt ---------------------------------------------------------------------------------------------------------


def test_schedules_stop_where_there_are_too_many_ops_to_name(monkeypatch):
    """The first races have one, and `exchanged` gives it for any."""
    assert SCHEDULE_LIMIT >= 100_000
    monkeypatch.setattr(order, "SCHEDULE_LIMIT", 7)
    t = Threads()
    for name in "xyz":
        t.op("a", writes=name)
    for name in "uvw":
        t.op("b", writes=name)
    races = t.races(dict.fromkeys(range(6), 0))
    assert len(races) == 9
    assert [race.schedule is not None for race in races] == [True] * 3 + [False] * 6
    assert exchanged(Order.of(t.builder.build().ops), races[-1].other_op, races[-1].op) == (3, 4, 5, 2)


@pytest.mark.parametrize("base", [1 << 62, -(1 << 62), (1 << 62) - 4])
def test_slots_at_the_end_of_the_world_do_not_wrap(base):
    t = Threads()
    t.op("a", writes="x")
    t.op("b", writes="y")
    (race,) = t.races({0: base, 1: base})
    assert race.bytes == ((0, 4),)
    assert not Threads.races(t, {0: base, 1: base - 4 if base > 0 else base + 4})


def shared(count, streams=8):
    """Return a builder, with one value that the first op writes and all others read, and the value."""
    builder = ProgramBuilder("p", arenas=BYTES, streams=tuple(map(str, range(streams))))
    x = builder.tensor("x", "u8", (64,))
    builder.op("f", (), (x,))
    for step in range(1, count):
        builder.op("f", (x,), (), stream=step % streams, after=(0,) if step < streams else ())
    return builder, x


def test_a_value_that_everybody_reads_is_no_race():
    builder, _ = shared(20_000)
    assert not check(Document.of(plan_of(builder.build(), [0]))).of_kind("Race")


def test_a_write_after_everybody_has_read_races_with_each_of_the_other_streams():
    builder, _ = shared(20_000)
    builder.op("g", (), (builder.tensor("y", "u8", (1,)),), after=(19_993,))
    report = check(Document.of(plan_of(builder.build(), [0, 63])), limit=20)
    waited, mine = 19_993 % 8, 0
    assert report.counts["Race"] == sum(
        step % 8 not in (waited, mine) or step > 19_993 for step in range(1, 20_000) if step % 8
    )
    assert report.of_kind("Race")[0].bytes == ((0, 1),)


def test_more_races_than_are_counted_are_a_lower_bound():
    """Two and a half million pairs: eight streams that write one byte without a wait."""
    builder = ProgramBuilder("p", arenas=BYTES, streams=tuple("abcdefgh"))
    for step in range(2_400):
        builder.op("f", (), (builder.tensor(f"v{step}", "u8", (1,)),), stream=step % 8)
    report = check(Document.of(plan_of(builder.build(), [0] * 2_400)), limit=5)
    assert report.truncated
    assert 1_000_000 < report.counts["Race"] <= 2_400 * 2_100 // 2


def test_a_million_aliases_of_one_buffer_are_one_record():
    """An op that names one buffer over and over, against a write of it."""
    builder = ProgramBuilder("p", arenas=BYTES, streams=("a", "b"))
    buffer = builder.buffer("x", 8)
    views = [builder.value("v", buffer, "u8", (8,)) for _ in range(30_000)]
    builder.op("f", (), (builder.value("x", buffer, "u8", (8,)),))
    builder.op("g", views, (), stream=1)
    report = check(Document.of(plan_of(builder.build(), [0])))
    assert report.counts["Race"] == 1
    assert not report.truncated


def test_empty_buffers_and_values_race_with_nothing():
    t = Threads()
    t.builder.op("f", (), (t.builder.tensor("nothing", "u8", (0,)),))
    t.builder.op("f", (), (t.builder.tensor("void", "u8", (4, 0)),), stream=1)
    assert not check(Document.of(plan_of(t.builder.build(), [0, 0]))).of_kind("Race")


def test_a_thousand_streams():
    builder = ProgramBuilder("p", arenas=BYTES, streams=tuple(map(str, range(1000))))
    values = [builder.tensor(f"v{n}", "u8", (1,)) for n in range(1000)]
    for n, value in enumerate(values):
        builder.op("f", (), (value,), stream=n)
    builder.op(HOST_READ, values, (), stream=7, after=[n for n in range(1000) if n != 500])
    (race,) = check(Document.of(plan_of(builder.build(), list(range(1000))))).of_kind("Race")
    assert (race.op, race.other_op) == (1000, 500)


def test_large_inputs_are_compiled_and_small_ones_are_not(monkeypatch):
    """But for where numba is loaded already."""
    asked, late_sweep = [], late.sweep
    monkeypatch.setattr(late, "sweep", lambda *columns: asked.append(1) or late_sweep(*columns))
    monkeypatch.setattr(selector, "modules", {})
    t = Threads()
    t.op("a", writes="x")
    t.op("b", reads="x")
    t.races()
    assert not asked
    monkeypatch.setattr(selector, "modules", {"numba": late})
    t.races()
    assert len(asked) == 2
    monkeypatch.setattr(selector, "modules", {})
    monkeypatch.setattr(selector, "LATE_FROM", 4)
    t.races()
    assert len(asked) == 4


def brought_late(stream, waits, accesses):
    """Return (access, source, last op known) of each access that some stream's earlier op may not be told from, by transitive closure and sets."""
    before = {(i, j) for j, row in enumerate(waits) for i in {*row, *(i for i in range(j) if stream[i] == stream[j])}}
    for middle in range(len(stream)):
        into, out = ({i for i, j in before if j == middle}, {j for i, j in before if i == middle})
        before |= {(i, j) for i in into for j in out}
    found = []
    for number, (op, write, places) in enumerate(accesses):
        for source in sorted({*stream} - {stream[op]}):
            met = {i for i, w, own in accesses if i < op and stream[i] == source and (w or write) and own & places}
            if any((i, op) not in before for i in met):
                known = max((i for i in range(op) if stream[i] == source and (i, op) in before), default=-1)
                found.append((number, source, known))
    return found


def test_accesses_are_late_exactly_where_an_earlier_conflicting_op_is_unordered():
    """Programs drawn from seeds: up to ten ops on three streams, accesses of one or two runs of bytes."""
    for seed in range(150):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 11))
        stream = [0, 1, 2, *rng.integers(0, 3, size=count).tolist()]
        waits = [
            sorted({int(i) for i in rng.integers(0, op, size=2)} if op and rng.random() < 0.4 else ())
            for op in range(len(stream))
        ]
        previous = [max((i for i in range(op) if stream[i] == stream[op]), default=-1) for op in range(len(stream))]
        rows, runs, accesses = [], [], []
        for op in range(len(stream)):
            for write in sorted(rng.integers(0, 2, size=int(rng.integers(0, 3))).tolist()):
                cuts = sorted(rng.choice(9, size=2 * int(rng.integers(1, 3)), replace=False).tolist())
                rows.append((op, write))
                runs.append([*zip(cuts[::2], cuts[1::2], strict=True)])
                accesses.append((op, write, {at for low, high in runs[-1] for at in range(low, high)}))

        def column(values):
            return np.array([*values], dtype=np.int64)

        order_of = Order(
            stream=column(stream), streams=3, previous=column(previous),
            after_starts=column([0, *np.cumsum([*map(len, waits)])]), after=column(w for row in waits for w in row),
        )  # fmt: skip
        flat = [run for mine in runs for run in mine]
        touched = Touched(
            starts=np.searchsorted(column(op for op, _ in rows), np.arange(len(stream) + 1)).astype(np.int64),
            value=np.arange(len(rows)), write=column(write for _, write in rows),
            run_starts=column([0, *np.cumsum([*map(len, runs)])]),
            low=column(low for low, _ in flat), high=column(high for _, high in flat), ranks=9,
        )  # fmt: skip
        late_ones = late_accesses(order_of, touched, selector.PLAIN)
        found = [*zip(late_ones.access.tolist(), late_ones.source.tolist(), late_ones.known.tolist(), strict=True)]
        assert found == brought_late(stream, waits, accesses), f"seed {seed}"
        assert not late_ones.cut


def test_runs_that_race_where_their_plans_put_a_state_do_not_race_apart_unless_they_touch_the_same_of_it():
    """Two runs without a wait write the bytes [4, 8) of the arena: in one plan the state begins there, in the other at 0."""
    found = []
    for offset, slot in ((4, 0), (0, 4), (0, 0)):
        b = ProgramBuilder("p", arenas=BYTES)
        s = b.buffer("s", 8, role=Role.STATE)
        b.op("f", (), (b.value("part", s, "u8", (4,), offset=offset),))
        found.append(plan_of(b.build(), [slot]))
    first, moved, alike = found
    for other, apart, meet in ((moved, False, 1), (alike, True, 0)):
        races = check(Document.of(Run.of(first), Run.of(other, after=()))).of_kind("Race")
        assert [race.in_apart for race in races] == [apart] * meet


@st.composite
def sessions(draw):
    """Draw up to twelve runs of up to three programs, some empty, that wait for runs before them and read late."""
    programs = []
    for number in range(draw(st.integers(1, 3))):
        b = ProgramBuilder(f"p{number}", arenas=BYTES, streams=("a", "b", "c"))
        buffer = b.buffer("x", 4)
        filled = draw(st.sampled_from((True, True, True, False)))
        if filled:
            first = b.value("x", buffer, "u8", (4,))
            b.op("f", (), (first,), stream=draw(st.integers(0, 2)))
        for step in range(1, draw(st.integers(1, 6)) if filled else 0):
            after = sorted(draw(st.sets(st.integers(0, step - 1), max_size=2))) if step else ()
            reads = draw(st.booleans())
            b.op(
                HOST_READ if reads else "f",
                (first,) if reads else (),
                () if reads else (b.value(f"x{step}", buffer, "u8", (4,)),),
                stream=draw(st.integers(0, 2)),
                after=after,
            )
        programs.append(plan_of(b.build(), {0: 0}))
    count = draw(st.integers(1, 12))
    runs = []
    for index in range(count):
        plan = draw(st.sampled_from(programs))
        earlier = st.sets(st.integers(0, index - 1), max_size=3) if index else st.just(set())
        after = draw(st.none() | earlier.map(sorted).map(tuple))
        late = draw(st.none() | st.integers(index + 1, count - 1)) if index + 1 < count else None
        runs.append(Run(program=plan.program, plan=plan, after=after, read_after=late))
    return replace(Document.of(*programs), session=tuple(runs))


@settings(max_examples=100, deadline=None)
@given(sessions(), st.integers(0, 3))
def test_the_order_of_a_session_is_happens_before_and_each_stream_a_chain_of_it(document, tips):
    """The order is compared with the oracle's, which was written from the specification alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(h_sessions, "TIPS", tips)
        session = Session.of(TrialDocument(document, PLAIN))
    order, before = session.order, []
    for node, held in enumerate(order.previous.tolist()):
        direct = order.after[order.after_starts[node] : order.after_starts[node + 1]].tolist()
        before.append(set().union(*({one} | before[one] for one in [*direct, *([held] if held >= 0 else [])])))
    nodes, told = predecessors(read(json.loads(dumps(document))))
    assert sorted(node for node in session.nodes if node[1] != h_sessions.GATHERS) == sorted(nodes)
    for node, found in zip(session.nodes, before, strict=True):
        if node[1] == h_sessions.GATHERS:
            continue
        known = {session.nodes[one] for one in found if session.nodes[one][1] != h_sessions.GATHERS}
        assert known == {nodes[one] for one in range(len(nodes)) if told[node] >> one & 1}
    clocks = Clocks(OnTrial(plain.read(json.loads(dumps(document)))).runs)
    for node in nodes:
        known = {other for other in nodes if other != node and clocks.before(other, node)}
        assert known == {other for at, other in enumerate(nodes) if told[node] >> at & 1}
    for stream in range(order.streams):
        chain = np.flatnonzero(order.stream == stream).tolist()
        assert all(one in before[other] for one, other in pairwise(chain))
    assert all(
        session.nodes[node] == (run, step)
        for run, part in enumerate(session.parts)
        for step, node in enumerate(part.node.tolist())
    )


@pytest.mark.parametrize("shape", ["fan", "empties", "late"])
def test_what_many_runs_wait_for_is_named_once(shape):
    """The waits are no more than a few for each run, whatever stands between many and many."""
    b, empty = ProgramBuilder("p", arenas=BYTES), ProgramBuilder("empty", arenas=BYTES)
    value = b.tensor("x", "u8", (4,))
    b.op("f", (), (value,))
    b.op(HOST_READ, (value,), ())
    empty.tensor("y", "u8", (4,))
    full, none = (plan_of(made.build(), {0: 0}) for made in (b, empty))

    def run(plan, **more):
        return Run(program=plan.program, plan=plan, **more)

    n = 200
    runs = {
        "fan": [
            *(run(full, after=()) for _ in range(n)),
            run(none, after=tuple(range(n))),
            *(run(full, after=(n,)) for _ in range(n)),
        ],
        "empties": [*(run(full, after=()) for _ in range(n)), *(run(none) for _ in range(n))],
        "late": [*(run(full, read_after=n) for _ in range(n)), run(full), *(run(none) for _ in range(n)), run(full)],
    }[shape]
    session = Session.of(TrialDocument(replace(Document.of(full, none), session=tuple(runs)), PLAIN))
    assert len(session.order.after) < 12 * n


def test_runs_that_take_turns_are_as_many_streams_as_overlap():
    """Two memories used in turn: what waits for a run goes on with its stream."""
    b = ProgramBuilder("p", arenas=BYTES)
    b.op("f", (), (b.tensor("x", "u8", (4,)),))
    plans = [plan_of(b.build(), {0: place}) for place in (0, 8)]
    runs = [Run(program=plans[k % 2].program, plan=plans[k % 2], after=(k - 2,) if k > 1 else ()) for k in range(100)]
    document = replace(Document.of(*plans), session=tuple(runs))
    assert Session.of(TrialDocument(document, PLAIN)).order.streams == 2
    assert check(document).clean
    one = plans[0]
    met = replace(document, session=tuple(Run(program=one.program, plan=one, after=run.after) for run in runs))
    assert len(check(met, limit=5000).of_kind("Race")) == 50 * 50


def test_places_are_met_by_the_windows_that_they_lie_in_where_the_bytes_meet():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count, more = rng.integers(1, 6, size=2).tolist()
        first, span, low, width = rng.integers(0, 9, size=(4, count))
        place, at, room = rng.integers(0, 12, size=(3, more))
        windows = Ranges(key=np.zeros(count, dtype=np.int64), low=low, high=low + width + 1)
        comers = Ranges(key=np.zeros(more, dtype=np.int64), low=at, high=at + room + 1)
        left, right, total = _stabs(first, first + span, windows, place, comers)
        expected = [
            (i, j)
            for i in range(count)
            for j in range(more)
            if first[i] <= place[j] < first[i] + span[i] and low[i] <= at[j] + room[j] and at[j] <= low[i] + width[i]
        ]
        assert (sorted(zip(left.tolist(), right.tolist(), strict=True)), total) == (expected, len(expected)), seed
