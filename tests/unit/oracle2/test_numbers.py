"""Sentences 17 to 19: packed numbers, sizes with a range, alignments; and what slots and events are held against."""

from oracle2 import judge
from oracle2.brief import document, kinds, only

NIBBLES = {"lo": ("x", {"dtype": "i4", "shape": [1]}), "hi": ("x", {"dtype": "i4", "shape": [1], "bit_offset": 4})}


def test_17_neighbours_in_one_byte_do_not_overwrite_each_other():
    ops = [("f", "", "lo"), ("f", "", "hi"), ("host.read", "lo hi", "")]

    assert judge(document({"x": 1}, ops, [0], values=NIBBLES)).clean

    onto = {**NIBBLES, "hi": ("x", {"dtype": "i4", "shape": [1]})}
    assert kinds(judge(document({"x": 1}, ops, [0], values=onto))) == ["OverwrittenRead"]


def test_17_races_are_by_byte():
    ops = [("f", "", "lo"), ("f", "", "hi", {"stream": 1})]
    found = judge(document({"x": 1}, ops, [0], values=NIBBLES, more={"streams": ["s", "t"]}))

    assert kinds(found) == ["Race"]
    assert found.violations[0]["in_apart"] is True

    ops[1] = ("f", "", "hi", {"stream": 1, "after": [0]})
    assert judge(document({"x": 1}, ops, [0], values=NIBBLES, more={"streams": ["s", "t"]})).clean


def test_17_layout_in_place_is_by_bit():
    """Two bits further on the start is another, though the byte is the same."""

    def shifted(bits):
        values = {
            "r": ("b", {"dtype": "u2", "shape": [3], "bit_offset": bits}),
            "o": ("a", {"dtype": "u2", "shape": [3]}),
        }
        ops = [("f", "", "o"), ("g", "o", "r", {"in_place": [[0, 0]]}), ("use", "r", "")]
        return kinds(judge(document({"a": 1, "b": 1}, ops, [0, 0], values=values)))

    assert shifted(0) == []
    assert shifted(2) == ["Overlap", "UnsafeInPlace"]


def test_17_rows_start_at_whole_bytes():
    """Three nibbles fill a byte and a half; the half that each row leaves is nobody's."""
    rows = {
        "rows": ("x", {"dtype": "f4", "shape": [2, 3]}),
        "holes": ("x", {"dtype": "u4", "shape": [2, 1], "offset": 1, "bit_offset": 4, "strides": [2, 0]}),
    }
    ops = [("f", "", "rows"), ("f", "", "holes"), ("use", "rows holes", "")]

    assert judge(document({"x": 4}, ops, [0], values=rows)).clean
    assert kinds(judge(document({"x": 4}, [ops[0], ("use", "x", "")], [0], values=rows))) == ["UninitialisedRead"]
    assert only(judge(document({"x": 4}, [ops[0], ("use", "x", "")], [0], values=rows)), "UninitialisedRead")[
        "bytes"
    ] == [
        [1, 2],
        [3, 4],
    ]


def test_17_same_is_by_bit_too():
    values = {"n": ("x", {"dtype": "i4", "shape": [2]}), "m": ("y", {"dtype": "i2", "shape": [4]})}
    ops = [("f", "", "n"), ("same", "n", "m"), ("use", "n", ""), ("use", "m", "")]

    assert judge(document({"x": 1, "y": 1}, ops, [0, 0], values=values)).clean


def ranged(slots, low, high):
    buffers = {"a": 4, "b": {"nbytes": 4, "nbytes_range": [low, high]}}
    ops = [("f", "", "b"), ("f", "", "a"), ("use", "a", ""), ("use", "b", "")]
    return judge(document(buffers, ops, slots))


def test_18_a_plan_is_judged_at_both_ends_of_a_size():
    room = {"arena": 0, "offset": 0, "nbytes": 8}

    assert ranged([8, room], 4, 8).clean
    found = ranged([8, {**room, "nbytes": 6}], 4, 8)
    assert [(v["kind"], v["ends"]) for v in found.violations] == [("Undersized", ("high",))]
    found = ranged([6, room], 4, 8)
    assert [(v["kind"], v["ends"]) for v in found.violations] == [("Overlap", ("high",))]
    found = ranged([2, room], 4, 8)
    assert {v["kind"]: v["ends"] for v in found.violations} == {
        "Overlap": ("low", "high"),
        "StaleRead": ("low", "high"),
    }


def test_19_an_arena_aligns_to_1_by_default():
    ops = [("f", "", "a"), ("use", "a", "")]

    assert judge(document({"a": 4}, ops, [3], more={"path": "then"})).clean
    assert kinds(judge(document({"a": 4}, ops, [3], arenas=({"name": "a", "alignment": 2},)))) == ["Misaligned"]
    assert judge(
        document({"a": {"nbytes": 4, "alignment": 1}}, ops, [3], arenas=({"name": "a", "alignment": 2},))
    ).clean


def test_slots_are_held_against_buffers():
    ops = [("f", "", "a"), ("use", "a", "")]

    def said(slot, **arena):
        return kinds(judge(document({"a": 4}, ops, [slot], arenas=({"name": "a", **arena}, {"name": "b"}))))

    assert said({"arena": 0, "offset": 0, "nbytes": 3}) == ["Undersized"]
    assert said({"arena": 0, "offset": -1, "nbytes": 4}) == ["OutOfBounds"]
    assert said({"arena": 0, "offset": 5, "nbytes": 4}, capacity=8) == ["OutOfBounds"]
    assert said({"arena": 1, "offset": 0, "nbytes": 4}) == ["WrongArena"]
    assert said(None) == ["Unplaced"]
    assert said("own") == []


def test_events_are_held_against_themselves_and_the_slots():
    ops = [("f", "", "a"), ("use", "a", ""), ("f", "", "b"), ("use", "b", "")]

    def said(*events):
        made = document({"a": 4, "b": 4}, ops, [0, 0])
        made["plans"][0]["events"] = [list(e) for e in events]
        return kinds(judge(made))

    first, last = (0, "alloc", 0), (2, "free", 0)
    assert said(first, last, (2, "alloc", 1), (4, "free", 1)) == []
    assert said(first, (2, "alloc", 1)) == ["AllocOverLive"]
    assert said(first, last, last) == ["DoubleFree"]
    assert said((2, "free", 1)) == ["FreeOfUnallocated"]
