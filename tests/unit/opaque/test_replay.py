"""A run with opaque kernels: what a kernel makes of what it reads, what it promises, and what is said of it."""

import json

import numpy as np
import pytest

from allocsim import document as native
from allocsim.judge.fast import check
from allocsim.opaque import NOT_TRIED, RULE_ALONE, memory_cells, replay_answers, told_by_replay
from allocsim.opaque.memories import digest, drawn, spread
from allocsim.opaque.replay_answers import replays_of

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


def test_what_is_too_large_is_not_replayed_and_says_why(monkeypatch):
    made = document([WRITE, f(), READ], [0, 64])
    monkeypatch.setattr(memory_cells, "MOST", 1)
    answer = told_by_replay(made, [])

    assert answer.state == "not run"
    assert list(answer.lines()) == ["not replayed: its ops read and write 4 numbers; at most 1 are replayed"]
    assert answer.as_json()["why_not"] == "its ops read and write 4 numbers; at most 1 are replayed"


def test_unasked_no_more_ops_are_run_than_are_set_for_it():
    ops = [{**WRITE, "stream": 0}, {**f(), "stream": 0}, {"kind": "g", "operands": [1], "results": [2], "stream": 1}]
    made = document(ops, [0, 64, 128], streams=2)

    assert told(made, most=2)[0].why_not == "3 ops; unasked at most 2 are run (--replay)"
    assert told(made, most=5)[0].numbers == (NOT_TRIED,)
    assert told(made, most=5)[0].differs == (False,)
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
