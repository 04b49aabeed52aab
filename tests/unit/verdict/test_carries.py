"""A permuted loop carry is C15 of the plan, whatever way the loop is written."""

import json
from itertools import product

import pytest
from encodings_2 import CARRY, carried, case, exchanged, permuted

from allocsim import check, loads
from allocsim.model import Document, Run
from allocsim.verdict import carries as carries_room
from allocsim.verdict import judge
from allocsim.verdict.carries import loops
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program

ROTATED = {
    "slots": "@w t0 = f x; @w t1 = f y; @w t2 = f t0; host.read t1; host.read t2",
    "views": "@w t0 = f x; @w x1:y = view y; @w y1:t0 = view t0; @w t1 = f x1; @w x2:t0 = view y1; @w y2:t1 = view t1; "
    "@w t2 = f x2; "
    "host.read y2; host.read t2",
    "copies": "@w t0 = f x; @w x1 = copy y; @w y1 = copy! t0; @w t1 = f x1; @w x2 = copy y1; @w y2 = copy! t1; "
    "host.read "
    "x2; host.read y2",
    "mutation": "@w t0 = f x; @w x1:x = copy y; @w y1:y = copy! t0; @w t1 = f x1; @w x2:x = copy y1; @w y2:y = copy! "
    "t1; "
    "host.read x2; host.read y2",
    "same": "@w t0 = f x; @w x1 y1 = same y t0; @w t1 = f x1; @w x2 y2 = same y1 t1; host.read x2; host.read y2",
    "one same after the other": "@w t0 = f x; @w x1 = same y; @w y1 = same t0; @w t1 = f x1; @w x2 = same y1; @w y2 = "
    "same "
    "t1; "
    "host.read x2; host.read y2",
}
"""`x, y = y, f(x)` with `x` in slot 0 and `y` in slot 64; what `f` makes is to become `y`."""

EXCHANGED = {
    "copies": "@w u = f x; @w v = g y; @w p = h u; @w q = h v; @w x1 = copy p; @w y1 = copy q; "
    "@w u1 = f x1; @w v1 = g y1; @w p1 = h u1; @w q1 = h v1; @w x2 = copy p1; @w y2 = copy q1; host.read x2; "
    "host.read y2",
    "mutation": "@w u = f x; @w v = g y; @w p = h u; @w q = h v; @w x1:x = copy p; @w y1:y = copy q; "
    "@w u1 = f x1; @w v1 = g y1; @w p1 = h u1; @w q1 = h v1; @w x2:x = copy p1; @w y2:y = copy q1; host.read "
    "x2; host.read y2",
}
"""`x, y = h(f(x)), h(g(y))`: what is to become `x` lies in the slot of `y`, and the other way round."""

SWAPPED = (
    "@w u = f x; @w v = g y; @w p = h u; @w q = h v; @w x1 y1 = same p q; "
    "@w u1 = f x1; @w v1 = g y1; @w p1 = h u1; @w q1 = h v1; @w x2 y2 = same p1 q1; host.read x2; host.read y2"
)
"""The same with its carries moved at once, which loses nothing."""


def laid(text, **slots):
    """Return the program, and slots by the name of a buffer or by its first letter."""
    made = program("x = host.write; y = host.write; " + text)
    given = {name: slots.get(name, slots.get(name[0])) for name in made.buffers.names if {name, name[0]} & {*slots}}
    return made, " ".join(f"{name}={slot}" for name, slot in given.items())


def verdict_of(made, slots="", problem=None):
    return judge(Evidence(document=Document.of(Run.of(plan(made, slots, problem)))))


def answers(verdict):
    return {(cause.class_, cause.party) for cause in verdict.causes}


FAULTS = {
    **{f"over the next, as {way}": (text, {"x": 0, "y": 64, "t": 64}) for way, text in ROTATED.items()},
    **{
        f"exchanged, as {way}": (text, {"x": 0, "y": 64, "u": 128, "v": 192, "p": 64, "q": 0})
        for way, text in EXCHANGED.items()
    },
}


@pytest.mark.parametrize("believed", [False, True], ids=["no belief", "a true belief"])
@pytest.mark.parametrize(("text", "slots"), FAULTS.values(), ids=FAULTS)
def test_a_permuted_carry_is_c15_of_the_plan_and_has_a_cure(text, slots, believed):
    made, lying = laid(text, **slots)
    verdict = verdict_of(made, lying, belief(made) if believed else None)
    assert answers(verdict) == {("C15", "plan")}
    assert verdict.cure.verified


@pytest.mark.parametrize(("believed", "mends"), [(False, ["lifetime"] * 2), (True, ["slot"] * 2)])
def test_what_a_same_carries_on_is_no_cause_of_its_own(believed, mends):
    """`x2` is read wrong only because the last `same` carried there what had been laid over `y1`."""
    made, lying = laid(ROTATED["same"], x=0, y=64, t=64)
    verdict = verdict_of(made, lying, belief(made) if believed else None)
    assert [cause.change.kind for cause in verdict.causes] == mends


THREE = (
    "@w u = g a b; @w v = h b c; @w w = k c a; @w a1 = copy u; @w b1 = copy v; @w c1 = copy w; "
    "@w u1 = g a1 b1; @w v1 = h b1 c1; @w w1 = k c1 a1; @w a2 = copy u1; @w b2 = copy v1; @w c2 = copy w1; r = "
    "q a2 b2 c2; host.read r"
)
"""`a, b, c = g(a, b), h(b, c), k(c, a)`."""


@pytest.mark.parametrize("move", ["copy", "same"])
@pytest.mark.parametrize("believed", [False, True], ids=["no belief", "a true belief"])
def test_results_laid_into_the_slots_of_each_others_carries_are_c15_before_they_are_moved(believed, move):
    """What becomes `a` lies over the `b` of its own turn, and what becomes `b` over the `a`: copies move them later."""
    made = program("a = host.write; b = host.write; c = host.write; " + THREE.replace("copy", move))
    lies = {"a": 0, "b": 64, "c": 128, "u": 64, "v": 0, "w": 320, "r": 384}
    lying = " ".join(f"{name}={lies[name[0]]}" for name in made.buffers.names)
    verdict = verdict_of(made, lying, belief(made) if believed else None)
    assert answers(verdict) == {("C15", "plan")}


@pytest.mark.parametrize(("text", "slots"), FAULTS.values(), ids=FAULTS)
def test_without_paths_it_is_the_plans_all_the_same(text, slots):
    verdict = verdict_of(*laid(text.replace("@w ", ""), **slots))
    assert {party for _, party in answers(verdict)} == {"plan"}


@pytest.mark.parametrize(("text", "slots"), FAULTS.values(), ids=FAULTS)
def test_the_same_loop_is_clean_with_each_carry_where_it_is_read(text, slots):
    assert verdict_of(*laid(text, x=0, y=64, y1=128, u=256, v=320)).causes == ()


def test_a_belief_that_forgets_the_next_turn_is_c15():
    made, slots = laid(ROTATED["slots"], x=0, y=64, t=64)
    assert answers(verdict_of(made, slots, belief(made, y=(1, 2), t0=(2, 3), t1=(3, 4)))) == {("C15", "plan")}


HANDED = "x = host.write; y = host.write; p = h x; q = h y; x1 y1 = same p q; z = f x1 y1; host.read z"


@pytest.mark.parametrize(
    ("x1", "y1", "answer"),
    [(192, 128, []), (192, 256, []), (160, 256, []), (144, 256, ["C12"]), (192, 192, ["C11"]), (128, 128, ["C11"])],
    ids=[
        "exchanged",
        "one over the other's operand",
        "beside its value",
        "over half of it",
        "both in the second",
        "both in the first",
    ],
)
def test_one_same_may_permute_its_slots(x1, y1, answer):
    """It reads all before it writes any, so its sides may lie in each other's slots, but not across them."""
    verdict = verdict_of(program(HANDED), f"x=0 y=64 p=128 q=192 x1={x1} y1={y1} z=320")
    assert [cause.class_ for cause in verdict.causes] == answer
    assert {cause.party for cause in verdict.causes} <= {"plan"}


@pytest.mark.parametrize("believed", [False, True], ids=["no belief", "a true belief"])
def test_carries_moved_at_once_may_be_exchanged(believed):
    made, lying = laid(SWAPPED, x=0, y=64, u=128, v=192, p=64, q=0)
    assert verdict_of(made, lying, belief(made) if believed else None).sound


# the case from XLA --------------------------------------------------------------------------------

BODY = {"meta": {"call": ["while.6", "body"]}, "in_place": None}
FIRST, SECOND = 13, 14
"""What the first turn of `loop-swap` hands to the second: two buffers and the values in them."""


def copied(*, home=None):
    """Return `loop-swap` with its carries as copies, into buffers of their own or into those that the loop began with."""
    made = carried("loop-swap", 13, CARRY)
    program = made["programs"][0]
    moves = program["ops"].pop(13)
    rows = zip(moves["operands"], moves["results"], strict=True)
    program["ops"][13:13] = [{"kind": "copy", "operands": [o], "results": [r], **BODY} for o, r in rows]
    if home:
        for value, buffer in zip(moves["results"], home, strict=True):
            program["values"][value]["buffer"] = buffer
    return made


def viewed():
    """Return `loop-swap` with its carries as views."""
    made = carried("loop-swap", 13, CARRY)
    program = made["programs"][0]
    moves = program["ops"].pop(13)
    rows = list(zip(moves["operands"], moves["results"], strict=True))
    for operand, result in rows:
        program["values"][result]["buffer"] = program["values"][operand]["buffer"]
    program["ops"][13:13] = [{"kind": "view", "operands": [o], "results": [r]} for o, r in rows]
    return made


def over_the_next():
    made = case("loop-swap")
    made["plans"][0]["slots"][SECOND] = dict(made["plans"][0]["slots"][FIRST])
    return made


def in_one_arena(made):
    """Return a document with its arenas side by side in one."""
    starts = [i << 15 for i in range(len(made["arenas"]))]
    made["arenas"] = [{"name": "memory"}]
    for buffer in made["programs"][0]["buffers"]:
        buffer.pop("arena", None)
    for slot in made["plans"][0]["slots"]:
        slot |= {"offset": slot["offset"] + starts[slot["arena"]], "arena": 0}
    return made


HOME = (4, 3, 2)
"""The buffers of the loop's variables, in the order of `CARRY`."""

XLA = {
    "slots": exchanged(case("loop-swap"), FIRST, SECOND),
    "slots of both turns": exchanged(exchanged(case("loop-swap"), FIRST, SECOND), 20, 21),
    "over the next": in_one_arena(over_the_next()),
    "views": exchanged(viewed(), FIRST, SECOND),
    "copies": exchanged(copied(), -1, -2),
    "copies in one arena": in_one_arena(exchanged(copied(), -1, -2)),
    "mutation": exchanged(copied(home=HOME), FIRST, SECOND),
    "mutation in one arena": in_one_arena(exchanged(copied(home=HOME), FIRST, SECOND)),
    "same": permuted(),
}


@pytest.mark.parametrize("made", XLA.values(), ids=XLA)
def test_a_permuted_carry_of_a_real_loop_is_c15(made):
    assert answers(judge(Evidence(document=loads(json.dumps(made).encode())))) == {("C15", "plan")}


@pytest.mark.parametrize(
    "made",
    [viewed(), copied(), copied(home=HOME), in_one_arena(copied()), in_one_arena(permuted())],
    ids=["views", "copies", "mutation", "one arena", "permuted at once"],
)
def test_the_loop_as_it_was_compiled_or_permuted_at_once_is_clean(made):
    assert check(loads(json.dumps(made).encode())).clean


# loops --------------------------------------------------------------------------------------------


def carries(text):
    made = program("x = host.write; w = host.write; " + text)
    return {frozenset(made.buffers.names[b] for b in loop.carries) for loop in loops(made)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@l a = f x; @l b = f a; @l c = f b; host.read c", {frozenset("xabc")}),
        ("@l a = f x w; @l b = f a w; host.read b", {frozenset("xab")}),
        ("@l a = f x; @l u = g a; @l b = f u; @l v = g b; host.read v", {frozenset("xuv")}),
        ("@l a = f x; @l u = g a; m = same u; @l b = f m; @l v = g b; host.read v", {frozenset("xmv")}),
        ("@l a = f x; @l u = g a; @l c = same u; @l b = f c; @l v = g b; host.read v", {frozenset("xcv")}),
        ("@l a = f x; @l b = f x; y = h a b; host.read y", {frozenset("ab")}),
        ("@l a = f x; @l b = g a; y = h b; host.read y", set()),
        ("@l a = f x; @l u = g x; @l b = f u; @l v = g b; host.read v", set()),
        ("a = f x; b = f a; host.read b", set()),
    ],
    ids=[
        "a chain",
        "what every turn reads is none",
        "two ops a turn",
        "an op between the turns",
        "the last turn cut short",
        "turns side by side hand out",
        "no op repeats",
        "read from elsewhere",
        "no paths",
    ],
)
def test_what_is_carried(text, expected):
    assert carries(text) == expected


def test_a_fault_within_one_turn_is_no_matter_of_the_loop():
    text = "@l a = f x; @l b = g x; @l c = h a b; @l d = f c; @l e = g c; @l i = h d e; host.read i"
    made = program("x = host.write; " + text)
    assert answers(verdict_of(made, "a=0 b=0", belief(made, a=(1, 2)))) == {("C01", "plan")}


def test_what_every_turn_reads_is_lost_as_outside_of_loops():
    made = program("x = host.write; w = host.write; k = q w; @l a = f x k; @l b = f a k; host.read b")
    assert answers(verdict_of(made, "k=0 a=0", belief(made, k=(2, 3)))) == {("C01", "plan")}


def test_a_read_that_a_same_carried_on_is_no_second_wrong_belief():
    """Both uploads have one slot. The read of `t` finds what the `same` took from `x`: it is wrong for the reason that
    the read of `x` is, so the verdict is that of the document without `t`.
    """
    uploads = "x = host.write; y = host.write; "
    for text, slots in (("t = same x; u = f x t; host.read u", "x=0 y=0 t=64"), ("u = f x; host.read u", "x=0 y=0")):
        (cause,) = verdict_of(program(uploads + text), slots).causes
        assert (cause.class_, cause.party) == ("C06", "plan")


def test_the_turns_of_a_loop_are_found_in_every_short_word():
    """Against the definition, of all words of three letters up to seven long: a border falls back more than once in many."""
    for length in range(8):
        for words in product("abc", repeat=length):
            least = next((p for p in range(1, length + 1) if words[p:] == words[: length - p]), 0)
            assert carries_room._least_period(words) == least


def test_loops_within_loops_ask_of_a_value_once_how_it_is_laid_out(monkeypatch):
    """Each path that repeats is a loop over the same ops: what one found the others take."""
    asked, real = [], carries_room.layout_of
    monkeypatch.setattr(carries_room, "layout_of", lambda *of: asked.append(of[1]) or real(*of))
    turns = (
        f"@w{depth} a{n}{depth} = f {before}; @w{depth} b{n}{depth} = copy a{n}{depth}"
        for n in range(6)
        for depth, before in ((0, f"b{n - 1}1" if n else "x"), (1, f"b{n}0"))
    )
    found = loops(program(f"x = host.write; {'; '.join(turns)}; host.read b51"))
    assert len(found) == 2
    assert len(asked) == len({*asked}) > 10
