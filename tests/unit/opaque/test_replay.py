"""A run with opaque kernels: what a kernel makes of what it reads, what it promises, and what is said of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from allocsim import document as native
from allocsim.cli import main
from allocsim.judge.fast import check
from allocsim.opaque import MEASURED, NOT_TRIED, RULE_ALONE, memory_cells, replay_answers, told_by_replay
from allocsim.opaque.memories import digest, drawn, exchanged, spread
from allocsim.opaque.replay_answers import replays_of
from allocsim.outcomes import junit, outcome_of

READ = {"kind": "host.read", "operands": [1]}
WRITE = {"kind": "host.write", "results": [0]}


def document(ops, slots, *, values=None, session=None, streams=1, sizes=(), **buffer):
    """Return values `a`, `b` ... of 16 floats in buffers of their own, `slots` their offsets (None: no slot)."""
    count = len(slots)
    names = "abcdefgh"[:count]
    program = {
        "name": "p",
        "buffers": [{"name": n, "nbytes": 64, **buffer.get(n, {})} for n in names],
        "values": [
            {"name": n, "buffer": at, "dtype": "f32", "shape": [16], **(values or {}).get(n, {})}
            for at, n in enumerate(names)
        ],
        "streams": [f"s{n}" for n in range(streams)],
        "ops": ops,
    }
    laid = [None if at is None else {"arena": 0, "offset": at, "nbytes": 64} for at in slots]
    text = {
        "format": "allocsim",
        "version": 2,
        "arenas": [{"name": "cpu", "alignment": 1}],
        "programs": [program],
        "plans": [{"program": 0, "slots": laid}],
        **({"session": session} if session else {}),
    }
    return native.loads(json.dumps(text))


def seen(made, **options):
    """(run, op, value) of every read that differs."""
    return [(one.run, one.op, one.value) for replay in replays_of(made, **options) for one in replay.seen.differences]


def f(*pair, kind="f", **more):
    return {"kind": kind, "operands": [0], "results": [1], "in_place": [list(pair)] if pair else [], **more}


def told(made, *options, **more):
    report = check(made)
    return told_by_replay(made, [[v] for v in report.violations], *options, **more), report


def test_a_result_depends_on_every_number_read_on_its_place_and_on_the_op():
    rng = np.random.default_rng(1)
    one, other = (rng.integers(0, 1 << 63, 5, dtype=np.uint64) for _ in range(2))
    base = digest(1, [one, other])
    changed = []
    for at in range(5):
        for which in range(2):
            reads = [one.copy(), other.copy()]
            reads[which][at] ^= np.uint64(1 << 40)
            changed.append(digest(1, reads))
    swapped = one.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    found = [
        base,
        digest(2, [one, other]),
        digest(1, [other, one]),
        digest(1, [swapped, other]),
        digest(1, [one]),
        *changed,
    ]

    assert len(set(found)) == len(found)
    assert len({*drawn(base, 1000).tolist()}) == 1000
    assert len({*spread(np.arange(1000, dtype=np.uint64)).tolist()}) == 1000


def test_a_clean_plan_shows_no_difference_and_the_host_reads_no_other_number():
    made = document([WRITE, f(0, 0), READ], [0, 0])
    answer, report = told(made, found=())

    assert report.clean
    assert (answer.state, answer.numbers, answer.host, answer.unaccounted) == ("clean", (), (), ())
    assert (answer.ops, answer.reads) == (3, 2)
    assert list(answer.lines()) == [
        "replayed, 3 ops with opaque kernels beside one memory a value: the host reads no other number"
    ]


def test_where_the_host_reads_nothing_no_number_of_it_is_called_right():
    answer, _ = told(document([WRITE, f(0, 0)], [0, 0]), found=())

    assert list(answer.lines()) == [
        "replayed, 2 ops with opaque kernels beside one memory a value: the host reads nothing"
    ]


def test_a_late_read_is_told_with_the_numbers_and_what_the_host_finds_in_the_end():
    ops = [
        WRITE,
        f(),
        {"kind": "g", "operands": [1], "results": [2]},
        {"kind": "h", "operands": [1, 2], "results": [3]},
        {"kind": "host.read", "operands": [3]},
    ]
    made = document(ops, [0, 64, 96, 256])
    answer, report = told(made, found=())
    late = next(n for n, v in enumerate(report.violations) if v.kind == "StaleRead")

    assert seen(made) == [(0, 2, 1), (0, 3, 1)]
    assert answer.numbers[late].startswith("op 3 'h' reads ")
    assert "in bytes [32, 64) of buffer 1 'b', read as value 1 'b'" in answer.numbers[late]
    assert answer.host == ("the host reads 64 of 64 bytes of value 3 'd' otherwise (op 4, run 0)",)
    assert answer.state == "found"


@pytest.mark.parametrize(
    ("op", "slots", "values", "safe"),
    [
        (f(0, 0), [0, 0], {}, True),
        (f(), [0, 0], {}, False),
        (f(0, 0), [0, 4], {}, False),
        (f(0, 0), [0, 0], {"b": {"dtype": "f16"}}, False),
        (f(0, 0), [0, 0], {"b": {"shape": [4, 4]}}, False),
        (f(0, 0, "bytes"), [0, 0], {"b": {"shape": [4, 4]}}, True),
        (f(0, 0, "bytes"), [0, 0], {"a": {"shape": [8]}}, False),
        (f(0, 0, "bytes"), [0, 0], {"b": {"shape": [8], "strides": [8]}}, False),
        (f(0, 0, "bytes"), [0, 4], {}, False),
        (f(0, 0, "whole"), [0, 4], {}, True),
        ({**f(), "in_place": None}, [0, 0], {}, True),
        ({**f(), "in_place": None}, [0, 0], {"b": {"shape": [4, 4]}}, False),
        (f(0, 0, kind="same"), [0, 0], {}, True),
        (f(kind="same"), [0, 32], {}, False),
        (f(0, 0, "whole", kind="same"), [0, 32], {}, True),
        (f(), [0, 64], {}, True),
        (f(), [0, 4], {"a": {"shape": [8], "strides": [8]}, "b": {"shape": [8], "strides": [8]}}, True),
        (f(0, 0, "bytes"), [0, 0], {"a": {"shape": [4, 4], "strides": [4, 16]}}, False),
        (f(0, 0, "bytes"), [0, 0], {"b": {"shape": [4, 4], "strides": [4, 16]}}, False),
        (f(0, 0, "bytes"), [0, 0], {"a": {"shape": [1, 16], "strides": [4, 4]}}, True),
        ({**f(), "in_place": [[0, 0, "whole"], [0, 0, "exact"]]}, [0, 4], {}, True),
        ({**f(), "in_place": [[0, 0, "bytes"], [0, 0, "exact"]]}, [0, 0], {"b": {"shape": [4, 4]}}, True),
    ],
)
def test_a_kernel_reads_before_it_writes_as_far_as_it_promises_and_no_further(op, slots, values, safe):
    made = document([WRITE, op, READ], slots, values=values)

    assert (seen(made) == []) is safe
    assert safe is not any(v.kind == "UnsafeInPlace" for v in check(made).violations)


def test_where_nobody_knows_a_table_of_kinds_speaks_and_strictly_nobody_vouches():
    made = document([WRITE, {**f(), "in_place": None}, READ], [0, 0])
    table = {"kinds": {"f": [{"pair": [0, 0], "says": "unsafe", "source": "x"}]}}
    other = document([WRITE, {**f(), "in_place": None}, READ], [0, 4])
    whole = {"kinds": {"f": [{"pair": [0, 0], "says": "safe", "strength": "whole", "source": "x"}]}}

    assert seen(made) == []
    assert seen(made, kinds=table) == [(0, 1, 0)]
    assert seen(made, strict=True) == [(0, 1, 0)]
    assert seen(other) == [(0, 1, 0)]
    assert seen(other, kinds=whole) == []
    whole["kinds"]["f"][0]["says"] = "unknown"
    assert seen(other, kinds=whole) == [(0, 1, 0)]
    assert seen(made, kinds=whole) == []
    assert seen(made, kinds=whole, strict=True) == [(0, 1, 0)]


def test_one_fault_is_not_counted_again_by_those_who_read_it_on_but_the_host_reads_what_follows():
    ops = [
        WRITE,
        f(),
        {"kind": "g", "operands": [1], "results": [2]},
        {"kind": "h", "operands": [0, 2], "results": [3]},
        {"kind": "h", "operands": [3], "results": [4]},
        {"kind": "host.read", "operands": [4]},
    ]
    made = document(ops, [0, 64, 0, 128, 192])
    replay = replays_of(made)[0]

    assert [(one.op, one.value) for one in replay.seen.differences] == [(3, 0)]
    assert [(one.op, one.value) for one in replay.seen.host] == [(5, 4)]


def test_a_move_hands_on_what_is_wrong_and_nothing_moves_between_sides_at_one_address():
    ops = [
        WRITE,
        f(),
        {"kind": "same", "operands": [0], "results": [2]},
        {"kind": "host.read", "operands": [2]},
    ]
    assert seen(document(ops, [0, 0, 64])) == [(0, 1, 0), (0, 2, 0), (0, 3, 2)]
    assert seen(document(ops, [0, 0, 0])) == [(0, 1, 0), (0, 2, 0), (0, 3, 2)]
    assert seen(document(ops, [0, 64, 0])) == []


def test_a_value_that_the_program_itself_writes_over_before_it_is_read_differs():
    ops = [WRITE, f(), {"kind": "g", "operands": [0, 1], "results": [2]}, {"kind": "host.read", "operands": [2]}]
    over = document(ops, [0, 64, 128], values={"b": {"buffer": 0}})
    moved = document(
        [WRITE, f(), {"kind": "same", "operands": [0], "results": [2]}], [0, 64, 128], values={"b": {"buffer": 0}}
    )

    assert (0, 2, 0) in seen(over)
    assert (0, 2, 0) in seen(moved)
    assert told(over, found=())[0].unaccounted == ()


def test_a_move_of_what_was_written_over_is_told_once_and_a_side_that_stays_does_not_bring_it_back():
    two = [WRITE, {"kind": "k", "operands": [0], "results": [1, 2]}, {"kind": "same", "operands": [1], "results": [3]}]
    handed_on = document([*two, {"kind": "host.read", "operands": [3]}], [0, 64, 128, 192], values={"c": {"buffer": 1}})
    moves = [
        WRITE,
        f(),
        {"kind": "same", "operands": [1, 0], "results": [2, 3]},
        {"kind": "host.read", "operands": [0]},
    ]
    stays = document(moves, [0, 64, 128, 192], values={"c": {"buffer": 0}, "d": {"buffer": 0}})

    assert seen(handed_on) == [(0, 2, 1)]
    assert seen(stays) == [(0, 3, 0)]


def test_runs_of_two_programs_are_two_in_memory_apart():
    made = document([WRITE, f(), READ], [0, 64], session=[{"plan": 0}, {"plan": 0, "after": []}])
    fresh, same = replays_of(made)[0].group.grid.laid

    assert {*fresh.identity}.isdisjoint(same.identity)
    assert fresh.place == same.place


@pytest.mark.parametrize(
    ("waits", "firsts"),
    [
        ([None, None, None], [0, 0, 0]),
        ([None, [], [0]], [0, 1, 0]),
        ([None, [], [1]], [0, 1, 1]),
        ([None, [], [0], [1]], [0, 1, 0, 1]),
        ([None, [], [0], [2]], [0, 1, 0, 0]),
        ([None, [], None], [0, 1, 1]),
        ([None, [], [0], None], [0, 1, 0, 0]),
        ([None, [], [], [0, 1], [2]], [0, 1, 2, 1, 2]),
    ],
)
def test_a_buffer_that_does_not_last_is_apart_that_of_the_last_run_of_its_program_that_is_waited_for(waits, firsts):
    session = [{"plan": 0, **({} if after is None else {"after": after})} for after in waits]
    laid = replays_of(document([WRITE, f(), READ], [0, 64], session=session))[0].group.grid.laid

    assert [where.identity[0][0] for where in laid] == firsts


def test_runs_of_another_program_in_between_have_buffers_of_their_own():
    made = json.loads(native.dumps(document([WRITE, f(), READ], [0, 64]))) | {"version": 2}
    made["programs"].append({**made["programs"][0], "name": "other"})
    made["session"] = [{"plan": 0}, {"plan": 0, "program": 1}, {"plan": 0}, {"plan": 0, "program": 1, "after": [0]}]
    laid = replays_of(native.loads(json.dumps(made)))[0].group.grid.laid

    assert [where.identity[0][0] for where in laid] == [0, 1, 0, 3]


def test_a_buffer_without_a_slot_keeps_nothing():
    made = document([WRITE, f(), READ], [0, None])
    answer, report = told(made, found=())

    assert [v.kind for v in report.violations] == ["Unplaced"]
    assert seen(made) == [(0, 2, 1)]
    assert answer.numbers[0].startswith("op 2 'host.read' reads ")
    assert answer.unaccounted == ()


def test_what_is_moved_out_of_a_buffer_without_a_slot_is_told_where_it_is_moved_and_not_again():
    ops = [WRITE, f(), {"kind": "same", "operands": [1], "results": [2]}, {"kind": "host.read", "operands": [2]}]
    made = document(ops, [0, None, 128])

    assert seen(made) == [(0, 2, 1)]
    assert told(made, found=())[0].unaccounted == ()


def test_what_nobody_wrote_is_not_the_same_in_two_memories_and_content_is():
    unwritten = document([f(), READ], [0, 64])
    weight = document([f(), READ], [0, 64], a={"role": "parameter"})

    assert seen(unwritten) == [(0, 0, 0)]
    assert seen(weight) == []


def test_uploads_differ_from_run_to_run_and_a_late_look_finds_the_later_run():
    ops = [WRITE, f(), READ]
    twice = document(ops, [0, 64], session=[{"plan": 0}, {"plan": 0}])
    late = document(ops, [0, 64], session=[{"plan": 0, "read_after": 1}, {"plan": 0}])
    left_out = document(ops, [0, 0], session=[{"plan": 0}, {"plan": 0, "skip": [0]}])

    assert seen(twice) == []
    assert seen(late) == [(0, 2, 1)]
    assert (1, 1, 0) in seen(left_out)


def test_a_race_is_told_by_the_numbers_of_an_order_in_which_the_later_op_goes_first():
    ops = [
        {**WRITE, "stream": 0},
        {**f(), "stream": 0},
        {"kind": "g", "operands": [1], "results": [2], "stream": 1},
        {"kind": "host.read", "operands": [2], "stream": 1},
    ]
    made = document(ops, [0, 64, 128], streams=2)
    answer, report = told(made, found=())

    assert [v.kind for v in report.violations] == ["Race"]
    assert seen(made) == []
    assert answer.numbers[0].startswith("with op 2 'g' before op 1 'f', op 2 'g' reads ")
    waits = document([*ops[:2], {**ops[2], "after": [1]}, ops[3]], [0, 64, 128], streams=2)
    assert told(waits)[0].state == "clean"


def test_a_race_is_told_by_the_write_that_is_read_though_nobody_reads_what_it_wrote_later():
    ops = [
        {**WRITE, "stream": 0},
        {"kind": "host.read", "operands": [0], "stream": 0},
        {"kind": "host.write", "results": [1], "stream": 1},
    ]
    answer, report = told(document(ops, [0, 0], streams=2), found=())

    assert [(v.kind, v.op, v.other_op) for v in report.violations] == [("Race", 2, 0), ("Race", 2, 1)]
    assert answer.differs == (False, True)
    assert answer.numbers[1].startswith("with op 2 'host.write' before op 1 'host.read', op 1 'host.read' reads ")


def test_a_race_is_told_by_other_bytes_of_a_read_that_differs_in_the_order_of_the_list_too():
    ops = [
        {**WRITE, "stream": 0},
        {"kind": "host.write", "results": [1], "stream": 0},
        {"kind": "host.read", "operands": [0], "stream": 0},
        {"kind": "host.write", "results": [2], "stream": 1},
    ]
    made = document(ops, [0, 32, 0], streams=2, values={"c": {"shape": [8]}}, c={"nbytes": 32})
    answer, report = told(made, found=())
    by_kind = {(v.kind, v.op, v.other_op): text for v, text in zip(report.violations, answer.numbers, strict=True)}

    assert "in bytes [32, 64) of buffer 0" in by_kind["StaleRead", 2, 1]
    assert by_kind["Race", 3, 0] == RULE_ALONE  # what was written first is written over before it is read
    assert by_kind["Race", 3, 2].startswith("with op 3 'host.write' before op 2 'host.read', op 2 'host.read' reads ")
    assert "in bytes [0, 64) of buffer 0" in by_kind["Race", 3, 2]


def test_a_race_whose_numbers_are_wrong_in_the_order_of_the_list_alone_is_told_by_that_order():
    ops = [
        {**WRITE, "stream": 0},
        {"kind": "host.write", "results": [1], "stream": 1},
        {"kind": "host.read", "operands": [0], "stream": 0},
    ]
    answer, report = told(document(ops, [0, 0], streams=2), found=())
    texts = {(v.kind, v.op): text for v, text in zip(report.violations, answer.numbers, strict=True)}

    assert texts["Race", 1].startswith("with op 0 'host.write' before op 1 'host.write', op 2 'host.read' reads ")


def test_a_late_look_that_races_is_the_later_one_though_its_run_is_the_earlier():
    session = [{"plan": 0, "read_after": 2}, {"plan": 0, "after": [0]}, {"plan": 0, "after": [0], "skip": [0]}]
    made = document([WRITE, {"kind": "host.read", "operands": [0]}], [0], session=session)
    answer, report = told(made, found=())
    at = next(
        n for n, v in enumerate(report.violations) if v.kind == "Race" and (v.run, v.op, v.other_run) == (1, 0, 0)
    )

    assert report.violations[at].other_op == 1
    assert answer.numbers[at].startswith(
        "with op 1 'host.read' of run 0 before op 0 'host.write' of run 1, op 1 'host.read' of run 2 reads "
    )


def test_who_waits_for_a_run_without_ops_waits_for_what_that_waits_for():
    made = json.loads(native.dumps(document([WRITE, f(), READ], [0, 64]))) | {"version": 2}
    made["programs"].append({**made["programs"][0], "name": "nothing", "ops": []})
    made["session"] = [{"plan": 0}, {"plan": 0, "program": 1}, {"plan": 0, "after": [1]}, {"plan": 0, "after": []}]
    group = replays_of(native.loads(json.dumps(made)))[0].group

    assert exchanged(group, (0, 1), (2, 0)) is None
    assert exchanged(group, (0, 1), (3, 0))[:3] == [(0, 0), (3, 0), (0, 1)]


def test_what_has_no_place_of_its_own_in_a_run_is_not_told_by_a_read_that_something_else_made_wrong():
    ops = [WRITE, f(), {"kind": "g", "operands": [0, 1], "results": [2]}]
    made = document(ops, [0, 0, 65], c={"alignment": 64})
    answer, report = told(made, found=())
    texts = dict(zip([v.kind for v in report.violations], answer.numbers, strict=True))
    only = [v for v in report.violations if v.kind == "Misaligned"]

    assert texts["Misaligned"] == RULE_ALONE
    assert texts["StaleRead"].startswith("op 2 'g' reads ")
    assert len(told_by_replay(made, [only]).unaccounted) == 2
    assert told_by_replay(document([WRITE, f(), READ], [0, None]), [only]).state == "found"


def test_runs_that_do_not_wait_for_each_other_race_and_the_numbers_are_told():
    made = document([f(), READ], [0, 64], session=[{"plan": 0}, {"plan": 0, "after": []}], a={"role": "parameter"})
    answer, report = told(made, found=())

    assert {v.kind for v in report.violations} == {"Race"}
    assert any(answer.differs)
    assert all("before op" in text for text, differs in zip(answer.numbers, answer.differs, strict=True) if differs)


def test_a_rule_that_is_broken_without_a_number_is_said_so():
    made = document([WRITE, f(0, 0), READ], [0, 0], a={"alignment": 64}, b={"alignment": 3})
    moved = document([WRITE, f(), READ], [1, 65], a={"alignment": 64})
    answer, report = told(moved, found=())

    assert {v.kind for v in check(made).violations} <= {"Misaligned"}
    assert [v.kind for v in report.violations] == ["Misaligned"]
    assert (answer.numbers, answer.differs, answer.state) == ((RULE_ALONE,), (False,), "clean")


def test_a_read_that_differs_and_was_not_found_is_said_unless_not_all_is_listed():
    made = document([WRITE, f(), {"kind": "g", "operands": [0, 1], "results": [2]}], [0, 0, 64])

    assert len(told_by_replay(made, []).unaccounted) == 2
    assert told_by_replay(made, [], found=None).unaccounted == ()
    assert told_by_replay(made, []).state == "found"
    assert told_by_replay(made, [], found=check(made).violations).unaccounted == ()
    assert any("differs where nothing was found" in line for line in told_by_replay(made, []).lines())


def test_of_what_was_measured_a_replay_says_nothing():
    answer = told_by_replay(document([WRITE, f(), READ], [0, 64]), [[]])

    assert (answer.numbers, answer.differs, answer.state) == ((MEASURED,), (False,), "clean")


def test_a_read_that_is_unaccounted_for_fails_in_junit_as_it_does_in_the_exit_status():
    made = document([WRITE, f(), {"kind": "g", "operands": [0, 1], "results": [2]}], [0, 0, 64])
    outcome = replace(outcome_of("x", document([WRITE, f(), READ], [0, 64])), replay=told_by_replay(made, []))

    assert (outcome.passes, outcome.status) == (False, 1)
    assert junit.dumps([outcome]).count(b'type="replay"') == 2


def test_what_is_too_large_is_not_replayed_and_says_why(monkeypatch):
    made = document([WRITE, f(), READ], [0, 64])
    monkeypatch.setattr(memory_cells, "MOST", 1)
    answer = told_by_replay(made, [])

    assert answer.state == "not run"
    assert list(answer.lines()) == ["not replayed: its ops read and write 4 numbers; at most 1 are replayed"]
    assert answer.as_json()["why_not"] == "its ops read and write 4 numbers; at most 1 are replayed"
    monkeypatch.setattr(memory_cells, "MOST", 4)
    text = json.loads(native.dumps(made))
    twice = native.loads(json.dumps({**text, "plans": text["plans"] * 2}))
    assert told_by_replay(made, []).why_not is None
    assert told_by_replay(twice, []).why_not == "its ops read and write 8 numbers; at most 4 are replayed"


def test_unasked_no_more_ops_are_run_than_are_set_for_it():
    ops = [{**WRITE, "stream": 0}, {**f(), "stream": 0}, {"kind": "g", "operands": [1], "results": [2], "stream": 1}]
    made = document(ops, [0, 64, 128], streams=2)

    assert told(made, most=3)[0].why_not is None
    assert told(made, most=2)[0].why_not == "3 ops; unasked at most 2 are run (--replay)"
    assert told(made, most=5)[0].numbers == (NOT_TRIED,)
    assert told(made, most=5)[0].differs == (False,)
    assert told(made, most=5)[0].state == "not run"
    assert told(made, most=6)[0].differs == (True,)


def test_cuts_that_do_not_settle_are_refused(monkeypatch):
    made = document([WRITE, f(), READ], [0, 32])
    monkeypatch.setattr(memory_cells, "ROUNDS", 1)

    assert told_by_replay(made, []).why_not == "its cells are not known after 1 rounds of cutting"


def test_size_costs_nothing_where_nothing_is_cut():
    def made(nbytes):
        large = {n: {"nbytes": nbytes} for n in "ab"}
        return document([WRITE, f(0, 0), READ], [0, 0], values={n: {"shape": [nbytes // 4]} for n in "ab"}, **large)

    assert told_by_replay(made(1 << 50), []).cells == 2
    assert told_by_replay(made(1 << 60), []).why_not == f"it reaches beyond {1 << 58:,} bytes"


def test_at_most_three_reads_of_the_host_are_listed():
    ops = [WRITE, f(), *({"kind": "host.read", "operands": [0]} for _ in range(5))]
    answer = told_by_replay(document(ops, [0, 0]), [], found=None)

    assert len(answer.host) == replay_answers.SHOWN + 1
    assert answer.host[-1] == "and 2 more of its reads"


BELIEF_ALONE = json.dumps(
    {
        "format": "allocsim",
        "version": 2,
        "programs": [
            {
                "name": "p",
                "buffers": [{"name": n, "nbytes": 64} for n in "ab"],
                "values": [{"name": n, "buffer": at, "dtype": "f32", "shape": [16]} for at, n in enumerate("ab")],
                "ops": [WRITE, f(), READ],
            }
        ],
        "problems": [{"program": 0, "stop": [1, 3]}],
    }
)


@pytest.mark.parametrize(
    ("text", "status"), [("id,lower,upper,size,offset\na,0,3,4,0\nb,1,4,4,0\n", 1), (BELIEF_ALONE, 2)]
)
def test_where_no_op_is_run_nothing_is_said_of_numbers_unasked(tmp_path, capsys, text, status):
    """An instance of a solver has lives alone, a belief without a plan has no run."""
    file = tmp_path / "given"
    file.write_text(text)

    assert main(["check", str(file)]) == status
    told = capsys.readouterr().out
    assert "replayed" not in told
    assert "Numbers" not in told
    assert main(["check", str(file), "--replay"]) == status
    assert "replayed, 0 ops" in capsys.readouterr().out


@pytest.mark.parametrize("count", [3, 4])
def test_three_ranges_of_bytes_are_named_and_no_more(count):
    names = "bcde"[:count]
    small = {name: {"nbytes": 4} for name in names}
    one = {name: {"shape": [1]} for name in names}
    writes = [{"kind": "host.write", "results": [at + 1]} for at in range(count)]
    reads = [{"kind": "host.read", "operands": [at]} for at in range(count + 1)]
    found, _ = told(document([WRITE, *writes, *reads], [0, 0, 8, 16, 24][: count + 1], values=one, **small))
    (said,) = {text for text in found.numbers if "'a'" in text and "reads" in text}
    assert ("[0, 4), [8, 12), [16, 20), ..." in said) == (count == 4), said
    assert ("[0, 4), [8, 12), [16, 20)" in said) == (count >= 3), said
