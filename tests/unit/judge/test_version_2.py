"""The judge on documents given with the project, in the encodings of version 2."""

import json

import pytest
from encodings_2 import CARRY, amended, carried, case, copies_as_same, nibbles_as_i4, permuted

from allocsim import check, loads
from allocsim.document import dumps
from allocsim.errors import ModelError
from allocsim.judge import plain
from allocsim.model import Arena, Document, Role
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import causes_of
from repro.small.words import plan, program

UNSAFE = {"kinds": {"dot": [{"pair": [0, 0], "says": "unsafe", "source": "reads each row again"}]}}


def told(made):
    return loads(json.dumps(made).encode())


@pytest.mark.parametrize(
    "made",
    [
        amended("equal-bytes", 1, kind="same"),
        amended("in-place-other-shape", 1, in_place=[[0, 0, "bytes"]]),
        amended("in-place-smaller", 1, in_place=[[0, 0, "bytes"]]),
        nibbles_as_i4(),
        copies_as_same(),
        carried("loop-swap", 13, CARRY),
    ],
    ids=["same", "another shape", "smaller", "nibbles", "copies as same", "carries as same"],
)
def test_what_version_2_can_say_is_clean(made):
    assert check(told(made)).clean


@pytest.mark.parametrize("name", ["equal-bytes", "in-place-other-shape", "in-place-smaller", "nibbles"])
def test_without_it_the_same_bytes_are_refused(name):
    assert not check(told(case(name))).clean


def test_two_carries_in_each_others_slots_are_c15_of_the_plan():
    assert {(cause.class_, cause.party) for cause in causes_of(told(permuted()))} == {("C15", "plan")}


def test_a_promise_that_nobody_made_is_counted_refused_when_strict_and_by_a_table():
    document = told(case("matmul-over-operand"))
    strict = check(document, strict=True)

    assert check(document).clean
    assert [v.kind for v in strict.violations] == ["AssumedInPlace"]
    assert {(cause.class_, cause.party) for cause in causes_of(document, strict)} == {("C03", "plan")}
    assert "UnsafeInPlace" in {v.kind for v in check(document, kinds=UNSAFE).violations}


def test_of_two_entries_of_a_table_for_one_pair_unsafe_is_believed():
    both = {"kinds": {"k": [{"pair": [0, 0], "says": "safe"}, {"pair": [0, 0], "says": "unsafe"}]}}
    made = program("x = host.write; h = k? x; host.read h")
    document = Document.of(plan(made, "x=0 h=0"))
    assert check(document, kinds={"kinds": {"k": both["kinds"]["k"][:1]}}).clean
    assert "UnsafeInPlace" in {v.kind for v in check(document, kinds=both).violations}


def test_an_entry_about_a_place_that_an_op_has_not_says_nothing():
    """Neither of the operand or the result of the op that follows, nor of one behind the last."""
    document = Document.of(plan(program("x = host.write; a = k? x; b = k? a; host.read b"), "x=0 a=64 b=0"))
    for pair in ([1, 0], [0, 1], [7, 0], [0, 7], [7, 7]):
        for says in ("safe", "unsafe"):
            assert check(document, kinds={"kinds": {"k": {"pair": pair, "says": says}}}) == check(document)


@pytest.mark.parametrize("pair", [[0], [0, 0, 0], [-1, 0], [0, 1 << 31], ["0", 0], [0.0, 0], "00", None], ids=str)
def test_a_pair_of_a_table_is_two_positions(pair):
    document = Document.of(plan(program("x = host.write; a = k? x; host.read a"), "x=0 a=64"))
    with pytest.raises(ModelError, match=r"kinds\.k\[0\]\.pair"):
        check(document, kinds={"kinds": {"k": {"pair": pair, "says": "safe"}}})


@pytest.mark.parametrize(
    ("at", "clean"), [(8, True), (9, True), (10, False)], ids=["where it is", "between", "shifted"]
)
def test_a_same_may_leave_every_second_byte_where_it_is_or_between(at, clean):
    """The operand has every second byte of [8, 24), and the result as many of a buffer of its own; `at` is where they begin."""
    b = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=1),))
    x = b.value("x", b.buffer("x", 16), "u8", (8,), strides=(2,))
    y = b.value("y", b.buffer("y", 26), "u8", (8,), strides=(2,), offset=at)
    b.op("host.write", (), (x,))
    b.op("same", (x,), (y,))
    b.op("host.read", (y,), ())
    assert check(Document.of(plan_of(b.build(), [8, 0]))).clean is clean


def test_a_program_without_ops_is_judged_by_its_problem_whatever_a_same_of_another_run_moved():
    """Both states hold one content when the second run begins, and lie at one address: its problem believes both live."""
    buffers = [{"name": name, "nbytes": 4, "role": "state"} for name in "pq"]
    values = [{"buffer": buffer, "dtype": "u8", "shape": [4]} for buffer in range(2)]
    moved, empty = [{"kind": "same", "operands": [0], "results": [1]}], []
    made = {
        "format": "allocsim",
        "version": 2,
        "programs": [{"buffers": buffers, "values": values, "ops": ops} for ops in (moved, empty)],
        "problems": [{"program": 1, "start": [0, 0], "stop": [1, 1], "own": []}],
        "plans": [{"program": one, "slots": [{"arena": 0, "offset": 0, "nbytes": 4}] * 2} for one in range(2)],
        "session": [{"plan": 0}, {"plan": 1}],
    }
    made["plans"][1]["problem"] = 0
    slow, fast = plain.judge(plain.read(made)), check(told(made))
    assert (slow.counts["Overlap"], slow.stats.lower_bound_bytes) == (1, 8)
    assert (fast.counts, fast.stats) == (slow.counts, slow.stats)


@pytest.mark.parametrize("second", [0, 4, 8])
def test_without_ops_and_without_a_belief_there_is_no_step_at_which_two_live(second):
    buffers = [{"name": name, "nbytes": 8, "role": role} for name, role in (("p", "state"), ("q", "parameter"))]
    buffers.append({"name": "t", "nbytes": 8})
    slots = [{"arena": 0, "offset": offset, "nbytes": 8} for offset in (0, second, 0)]
    made = {
        "format": "allocsim",
        "version": 1,
        "arenas": [{"name": "m"}],
        "programs": [{"buffers": buffers, "values": [], "ops": []}],
        "plans": [{"program": 0, "slots": slots}],
    }
    slow, fast = plain.judge(plain.read(made)), check(told(made))
    assert (fast.counts, fast.stats) == (slow.counts, slow.stats)
    assert (slow.count, slow.stats.lower_bound_bytes) == (0, 0)


def test_a_slot_without_an_arena_is_refused():
    made = {
        "format": "allocsim",
        "version": 1,
        "programs": [{"buffers": [{"name": "p", "nbytes": 4}], "values": [], "ops": []}],
    }
    made["plans"] = [{"program": 0, "slots": [{"offset": 0, "nbytes": 4}]}]
    for reader in (plain.read, told):
        with pytest.raises(ModelError, match=r"plans\[0\]\.slots\[0\]"):
            reader(made)


@pytest.mark.parametrize("named", [False, True], ids=["the first about it", "one about another program"])
def test_a_program_without_ops_is_judged_by_a_problem_that_is_about_it(named):
    """The plan names no problem, or one of the program with an op, whose buffers it believes to be larger."""
    buffers = [{"name": name, "nbytes": 4} for name in "pq"]
    programs = [{"buffers": buffers, "values": [], "ops": ops} for ops in ([{"kind": "f"}], [])]
    lives = {"start": [0, 0], "stop": [1, 1]}
    slots = [{"arena": 0, "offset": 0, "nbytes": 4}, {"arena": 0, "offset": 2, "nbytes": 4}]
    made = {
        "format": "allocsim",
        "version": 1,
        "arenas": [{"name": "m"}],
        "programs": programs,
        "problems": [{"program": 0, "nbytes": [8, 8]}, {"program": 1, **lives}],
        "plans": [{"program": 0, "slots": slots} | ({"problem": 0} if named else {})],
        "session": [{"plan": 0, "program": 1}],
    }
    slow, fast = plain.judge(plain.read(made)), check(told(made))
    assert (slow.counts["Overlap"], slow.counts["Undersized"]) == (1, 0)
    assert (fast.counts, fast.stats) == (slow.counts, slow.stats)


@pytest.mark.parametrize(("at", "kinds"), [(0, {"LifetimeTooLong": 1}), (4, {})], ids=["where it is", "elsewhere"])
def test_a_same_without_bytes_writes_where_its_result_begins_elsewhere(at, kinds):
    """Where both begin at one address nothing moves, so that the buffer lives again from the read on."""
    b = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=1),))
    home = b.buffer("home", 4)
    x, y = b.value("x", home, "u8", (0,)), b.value("y", home, "u8", (0,), offset=at)
    b.op("host.write", (), (x,))
    b.op("same", (x,), (y,))
    b.op("nothing", (), ())
    b.op("host.read", (y,), ())
    made = json.loads(dumps(Document.of(plan_of(b.build(), [0])))) | {"problems": [{"program": 0}]}
    assert check(told(made)).counts == kinds
    assert plain.judge(plain.read(made)).counts == kinds


@pytest.mark.parametrize(
    "text",
    [
        "x = host.write; p:s = same x; c = f x; host.read c; host.read p",
        "x = host.write; p:s = same x; q:s = same x; y:x = same q; host.read y",
    ],
    ids=["once", "twice, and back"],
)
def test_a_state_at_the_place_of_what_it_is_given_needs_no_bytes_of_its_own(text):
    made = program(text, roles={"s": Role.STATE})
    document = Document.of(plan(made, "s=0 x=0"))
    assert check(document).clean
    assert plain.judge(plain.read(json.loads(dumps(document)))).clean


def test_nibbles_in_rows_of_whole_bytes_leave_the_bytes_between_them_to_others():
    """Two rows of four nibbles, four bytes from one to the next: w lies in the two bytes between."""
    b = ProgramBuilder("p", arenas=(Arena(name="cpu", alignment=1),))
    v = b.value("v", b.buffer("v", 6), "i4", (2, 4), strides=(4, 0))
    w = b.tensor("w", "u8", (2,))
    b.op("host.write", (), (v,))
    b.op("host.write", (), (w,))
    b.op("host.read", (v, w), ())
    made = b.build()
    late = [[v.buffer for v in check(Document.of(plan_of(made, [0, at]))).of_kind("StaleRead")] for at in (2, 1)]
    assert late == [[], [0]]
