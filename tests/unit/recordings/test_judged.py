"""Recordings: party, class and cure in the allocator's words, counts, pages, cuts and what is assumed."""

import json

import pytest

from allocsim import check, trace
from allocsim.cli import main
from allocsim.errors import ModelError
from allocsim.recordings import judge
from allocsim.recordings.carried import Carried
from allocsim.recordings.screen import Screen


def alloc(block, address=0, nbytes=64, **more):
    return {"event": "alloc", "block": block, "address": address, "nbytes": nbytes, **more}


def page(block, number, **more):
    return {"event": "alloc", "block": block, "page": number, "device": "kv", **more}


def use(name, reads=(), writes=(), stream="main", **more):
    return {"event": "use", "name": name, "reads": list(reads), "writes": list(writes), "stream": stream, **more}


def event(word, **keys):
    return {"event": word, **keys}


def cells(block, sequence, position, count=1, **more):
    return {"block": block, "sequence": sequence, "position": position, "count": count, **more}


POOL = event("pool", device="kv", page=4096, pages=4, cells=4)


def returned_in_flight(*, ended):
    """Block 0 goes back while step 158 may still read it, and is filled for another request."""
    return [
        alloc("0", stream="main"),
        use("step 157", writes=["0"]),
        use("step 158", reads=["0"], mark="step 158"),
        *([event("done", mark="step 158")] if ended else []),
        event("free", block="0"),
        alloc("0'", stream="load"),
        use("load", writes=["0'"], stream="load", mark="loaded"),
        event("wait", mark="loaded", stream="main"),
        use("step 159", reads=["0'"]),
    ]


def said(events, **how):
    return [(finding.class_, finding.party) for finding in judge(events, **how).findings]


@pytest.mark.parametrize("window", [1, 4, 1000])
def test_a_block_that_goes_back_in_flight_is_the_allocators_and_the_cure_names_the_step(window):
    (found,) = judge(returned_in_flight(ended=False), window=window).findings
    assert (found.class_, found.party) == ("C09", "plan")
    assert "free block '0' after 'step 158' (event 2) has ended, not when it is scheduled" in found.cure
    assert said(returned_in_flight(ended=True), window=window) == []


def test_a_use_behind_the_callers_own_free_is_the_callers():
    events = [
        alloc("a"),
        use("f", writes=["a"]),
        event("free", block="a"),
        alloc("b"),
        use("g", writes=["b"]),
        use("h", reads=["a"]),
    ]
    (found,) = judge(events).findings
    assert found.party == "caller"
    assert found.cure == "free block 'a' after 'h' (event 5), not at event 2"


def test_bytes_given_out_twice_are_the_allocators():
    events = [alloc("a"), use("f", writes=["a"]), alloc("b", 32), use("g", writes=["b"]), use("h", reads=["a"])]
    assert ("plan") in {party for _, party in said(events)}
    assert any("it is held to the end" in finding.cure for finding in judge(events).findings)


def test_a_wait_that_the_program_needs_is_the_schedules():
    events = [alloc("a"), use("f", writes=["a"]), use("g", reads=["a"], stream="side")]
    (found,) = judge(events).findings
    assert (found.class_, found.party) == ("C09", "schedule")
    assert found.cure == "wait on stream side for a mark behind 'f' (event 1) on stream main before 'g' (event 2)"


def test_streams_that_met_at_a_barrier_are_in_order():
    events = [alloc("a"), use("f", writes=["a"]), use("k", stream="side"), event("barrier", actors=["main", "side"])]
    assert said([*events, use("g", reads=["a"], stream="side")]) == []
    assert said([*events[:-1], use("g", reads=["a"], stream="side")]) == [("C09", "schedule")]
    other = event("barrier", actors=["main", "third"])
    assert said([*events[:-1], use("k", stream="third"), other, use("g", reads=["a"], stream="side")]) != []


def test_a_move_hands_on_what_was_there():
    """Copy on write, compaction: who reads the new place wants the writer of the old one."""
    moved = [
        alloc("a"),
        use("f", writes=["a"]),
        alloc("b", 64),
        event("move", **{"from": "a", "to": "b"}, stream="main"),
    ]
    assert said([*moved, event("free", block="a"), use("g", reads=["b"])]) == []
    assert trace(moved).programs[0].ops[1].kind == "same"
    assert said([alloc("a"), alloc("b", 64), event("move", **{"from": "a", "to": "b"}, stream="main")]) != []


def test_a_move_takes_parts():
    """A copy on write takes the cells that are used; what was never moved is not there."""
    start = [alloc("a"), use("f", writes=["a"]), alloc("b", 64)]
    part = {"from": {"block": "a", "nbytes": 32}, "to": {"block": "b", "nbytes": 32}}
    half, read = event("move", **part, stream="main"), {"block": "b", "nbytes": 32}
    assert said([*start, half, event("free", block="a"), use("g", reads=[read])]) == []
    assert said([*start, half, use("g", reads=[{**read, "offset": 32}])]) != []
    for wrong in ([1], {"nbytes": 3}, None):
        with pytest.raises(ModelError):
            judge([*start, event("move", **{"from": wrong, "to": "b"})])


def test_a_captured_program_runs_as_often_as_it_is_told():
    captured = [use("f", writes=["a"], program="g"), use("h", reads=["a"], writes=["b"], program="g", stream="side")]
    start = [alloc("a"), alloc("b", 64), *captured]
    assert [
        op.name for op in trace([*start, event("run", program="g"), event("run", program="g")]).programs[0].ops
    ] == ["f", "h"] * 2
    assert said([*start, event("run", program="g")]) == [("C09", "schedule")]
    with pytest.raises(ModelError, match="has no ops"):
        judge([event("run", program="none")])


# pages and the allocator's own book ---------------------------------------------------------------


def test_a_page_is_a_block_at_its_address_and_each_generation_another():
    events = [
        POOL,
        page("3#0", 3),
        use("s", writes=[cells("3#0", "r", 6, 2)]),
        event("free", block="3#0"),
        page("3#1", 3),
    ]
    document = trace(events)
    assert document.plans[0].nbytes.tolist() == [4096, 4096]
    assert (int(document.programs[0].values.offset[0]), document.programs[0].values.shape[0]) == (2048, (2048,))


PAGES = [POOL, page("a", 0), use("prefill", writes=[cells("a", "r", 0, 4, content="abcd")])]

BOOKED = {
    "counts": ([event("ref", block="a", count=3)], [event("ref", block="a", count=2)]),
    "held": (
        [event("ref", block="a"), event("free", block="a")],
        [event("ref", block="a"), event("unref", block="a"), event("free", block="a")],
    ),
    "unheld": (
        [event("unref", block="a"), event("unref", block="a")],
        [event("unref", block="a")],
    ),
    "positions": ([use("s", reads=[cells("a", "r", 4, 2)])], [use("s", reads=[cells("a", "r", 0, 4)])]),
    "hit": (
        [event("share", **cells("a", "q", 0, 4), content="abce")],
        [event("share", **cells("a", "q", 0, 4), content="abcd"), use("s", reads=[cells("a", "q", 0, 4)])],
    ),
    "rewritten": (
        [
            event("share", **cells("a", "q", 0, 4)),
            use("s", writes=[cells("a", "r", 3)]),
            use("t", reads=[cells("a", "q", 0, 4)]),
        ],
        [
            event("share", **cells("a", "q", 0, 4)),
            use("s", writes=[cells("a", "r", 3)]),
            use("t", reads=[cells("a", "q", 0, 3)]),
        ],
    ),
    "inside": ([page("b", 4)], [page("b", 3)]),
    "refused": ([event("exhausted", device="kv", pages=3)], [event("exhausted", device="kv", pages=4)]),
}
"""What the book finds -> what shows it behind `PAGES`, and a right twin."""


@pytest.mark.parametrize("kind", BOOKED)
@pytest.mark.parametrize("window", [1, 1000])
def test_the_book_finds_what_it_names_and_nothing_in_the_twin(kind, window):
    wrong, right = BOOKED[kind]
    (found,) = judge([*PAGES, *wrong], window=window).findings
    assert found.key[0] == kind
    assert judge([*PAGES, *right], window=window).findings == []


def test_an_off_by_one_of_a_prefix_cache_is_a_hit_that_nobody_wrote():
    """Three of four cells were written; the cache says that it has all of them."""
    events = [
        POOL,
        page("a", 0),
        use("prefill", writes=[cells("a", "r", 0, 3)]),
        event("share", **cells("a", "q", 0, 4)),
    ]
    (found,) = judge(events).findings
    assert (found.class_, found.party) == ("C14", "plan")
    assert "not all of them were written" in found.text


def test_a_hit_whose_content_nobody_told_is_assumed_and_counted():
    events = [*PAGES, event("share", **cells("a", "q", 0, 4))]
    assert judge(events).assumed == {"cells hold what the allocator says, where no content was told": 1}


REFUSED = [
    ([{"event": "free", "block": ["a"]}], "is no name"),
    ([{"event": "use", "reads": 5}], "is not a list of blocks"),
    ([{"event": "use", "writes": "a"}], "is not a list of blocks"),
    ([event("pool", page=100, cells=3)], "3 cells do not divide 100 bytes"),
    ([page("a", 0)], "needs a device that a pool describes"),
    ([POOL, page("a", 0), use("s", reads=[cells("a", "r", 3, 2)])], r"cells \[3, 5\) are not within the 4 of a page"),
    ([event("barrier", actors="main")], "is not a list of streams"),
    ([event("ref", block="a")], "was never given out"),
]


@pytest.mark.parametrize(("events", "rule"), REFUSED)
def test_what_no_recording_can_hold_is_one_line(events, rule):
    with pytest.raises(ModelError, match=rule):
        judge(events)


# size and cuts ------------------------------------------------------------------------------------


def test_a_recording_may_be_cut_at_any_line_and_is_never_wrong_for_that():
    events = returned_in_flight(ended=True)
    for length in range(len(events) + 1):
        assert said(events[:length]) == []
    wrong = returned_in_flight(ended=False)
    assert [bool(said(wrong[:length])) for length in range(len(wrong) + 1)] == [
        length > 5 for length in range(len(wrong) + 1)
    ]


def test_memory_grows_with_what_is_live_not_with_what_was():
    """A hundred times as many events need no more rows to carry."""
    sizes = []
    for rounds in (20, 2000):
        screen = Screen()
        for number in range(rounds):
            for one in (
                alloc(f"b{number}", number % 7 * 64),
                use("f", writes=[f"b{number}"]),
                event("free", block=f"b{number}"),
            ):
                screen.words.get(one["event"], lambda _: None)(one)
                screen.events += 1
        sizes.append(len(Carried.of(screen).rows))
    assert sizes[0] == sizes[1] == 7


def test_the_command_judges_a_recording_and_leaves_out_a_line_that_was_cut(tmp_path, capsys):
    lines = "".join(json.dumps(one) + "\n" for one in returned_in_flight(ended=False))
    path = tmp_path / "events.jsonl"
    path.write_text(lines + '{"event": "us')
    assert main(["trace", str(path)]) == 1
    out = capsys.readouterr().out
    assert "1 finding in 8 events, 4 ops" in out
    assert "1. C09 plan, at event 5" in out
    assert "last lines, which are not whole" in out
    assert main(["trace", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["class"] == "C09"
    assert main(["trace", str(path), "-o", str(tmp_path / "x.json")]) == 2  # a document is whole
    assert "line 9: is not JSON" in capsys.readouterr().err


def test_the_document_and_the_judged_recording_agree():
    assert not check(trace(returned_in_flight(ended=False))).clean
    assert check(trace(returned_in_flight(ended=True))).clean


def test_what_the_book_is_told_is_no_trouble_to_the_judge_of_a_window():
    """A hit and a race in one window: both are looked at."""
    shared = event("share", **cells("a", "q", 0, 4), content="abcd")
    late = use("t", reads=[cells("a", "q", 0, 4)], stream="side")
    assert said([*PAGES, shared, late]) == [("C09", "schedule")]


def test_a_name_that_is_given_out_again_does_not_hide_the_block_that_had_it():
    """The read in the second window is of the second block called a, whose bytes are b's by then."""
    first = [event("alloc", block="a", address=0, nbytes=64), use("s", writes=["a"]), event("free", block="a")]
    again = [event("alloc", block="a", address=128, nbytes=64), *first[1:]]
    taken = [event("alloc", block="b", address=128, nbytes=64), use("s", writes=["b"])]
    events = [*first, *again, *taken, use("s", reads=["a"])]
    whole, cut = judge(events), judge(events, window=8)
    assert [(one.class_, one.party) for one in whole.findings] == [("C01", "caller")]
    assert [one[:2] for one in cut.findings] == [one[:2] for one in whole.findings]


def test_a_block_that_is_read_late_before_its_name_is_given_out_again_is_still_known():
    first = [event("alloc", block="a", address=0, nbytes=64), use("s", writes=["a"]), event("free", block="a")]
    taken = [event("alloc", block="b", address=0, nbytes=64), use("s", writes=["b"])]
    again = [event("alloc", block="a", address=256, nbytes=64), use("s", writes=["a"])]
    events = [*first, *taken, use("s", reads=["a"]), *again]
    assert [one[:2] for one in judge(events, window=5).findings] == [one[:2] for one in judge(events).findings]
    assert judge(events).findings


def test_a_page_is_out_until_it_has_come_back():
    """An allocator that refuses it meanwhile is right; one that refuses it afterwards is not."""
    pool = event("pool", device="kv", page=4096, cells=4, pages=1)
    waits = [
        pool,
        page("a", 0),
        use("s", writes=["a"], stream="other"),
        event("record_stream", block="a", stream="other"),
        event("free", block="a"),
    ]
    asks = event("exhausted", device="kv", pages=1)
    assert judge([*waits, asks]).findings == []
    (found,) = judge([*waits, event("returned", block="a"), asks]).findings
    assert (found.class_, found.party) == ("C12", "plan")
    assert judge([*waits, page("b", 0), asks]).findings == []


def test_content_is_of_the_cells_that_it_was_told_of():
    """Half a page with content, half without: the allocator's word is taken of the second, held against the first."""
    told = [
        POOL,
        page("a", 0),
        use("s", writes=[cells("a", "r", 0, 2, content="A")]),
        use("s", writes=[cells("a", "r", 2, 2)]),
    ]
    assert judge([*told, event("cell", block="a", sequence="q", position=2, count=2, content="B")]).findings == []
    assert judge([*told, event("cell", block="a", sequence="q", position=0, count=2, content="A")]).findings == []
    (found,) = judge([*told, event("cell", block="a", sequence="q", position=0, count=2, content="B")]).findings
    assert (found.class_, found.party) == ("C14", "plan")


def test_a_cell_that_is_written_over_takes_no_other():
    """Another sequence writes one cell of four: the cells behind it still hold what was written for the first."""
    told = [POOL, page("a", 0), use("s", writes=[cells("a", "r", 0, 4)]), use("s", writes=[cells("a", "q", 1, 1)])]
    assert judge([*told, use("s", reads=[cells("a", "r", 2, 2)])]).findings == []
    (found,) = judge([*told, use("s", reads=[cells("a", "r", 0, 2)])]).findings
    assert (found.class_, found.party) == ("C03", "plan")


@pytest.mark.parametrize("window", [20_000, 4])
def test_a_block_that_is_given_back_twice_is_told_at_the_second_time(window):
    made = [event("alloc", block=name, address=at, nbytes=64) for name, at in (("a", 0), ("b", 64))]
    twice = [event("free", block="a"), event("free", block="a"), event("free", block="b"), event("free", block="b")]
    found = judge([*made, *twice], window=window).findings
    assert [(one.class_, one.party, one.event) for one in found] == [("C13", "plan", 3), ("C13", "plan", 5)]


def test_what_is_printed_fits_eighty_columns_and_a_file_without_an_event_is_refused(tmp_path, capsys):
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in returned_in_flight(ended=False)))
    assert main(["trace", str(path)]) == 1
    said = capsys.readouterr().out.replace(str(path), "events.jsonl")
    assert "\\n" not in said
    assert max(map(len, said.splitlines())) <= 80
    for empty in ("", "garbage"):
        path.write_text(empty)
        assert main(["trace", str(path)]) == 2
        assert capsys.readouterr().err.rstrip().endswith("holds no event")
