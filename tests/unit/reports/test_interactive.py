"""The page to look about in: its map is the plan, it is alone in the world, and no name can break it."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from allocsim.judge.fast import check
from allocsim.model import Document, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from reports.interactive import boxes, html
from reports.interactive.boxes import maps
from repro.small.words import belief, plan, program

TEXT = "x = host.write; a = f x; y = g! a; b = h y; host.read b"
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1)) | `b` *c*",
    "x\u2028y & <b>",
)


class Page(HTMLParser):
    """The elements of a page, with their attributes, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.inside = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data


def hostile():
    b = ProgramBuilder(HOSTILE[0])
    x, h, y, z = (b.tensor(name, "f32", (64,)) for name in HOSTILE)
    b.op("host.write", (), (x,))
    b.op("exp", (x,), (h,), name=HOSTILE[0])
    b.op("neg", (h,), (y,))
    b.op("add", (y, x), (z,))
    b.op("host.read", (z,), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: 256, 2: 0, 3: 512}, source=HOSTILE[1]))


def test_boxes_are_slots_and_lifetimes_and_a_donors_box_ends_where_its_recipients_begins():
    made = program(TEXT)
    document = Document.of(plan(made, "x=0 a=64 y=64 b=0", belief(made, share="a>y")))
    ((drawn,), more) = maps(document, report=check(document), verdict=None)
    found = zip(drawn["name"], drawn["start"], drawn["stop"], drawn["low"], drawn["high"], strict=True)
    assert {name: box for name, *box in found} == {
        "x": [0, 2, 0, 64],
        "a": [1, 2, 64, 128],
        "y": [2, 4, 64, 128],
        "b": [3, 5, 0, 64],
    }
    assert dict(zip(drawn["name"], drawn["maker"], strict=True)) == {
        "x": "0 host.write",
        "a": "1 f",
        "y": "2 g",
        "b": "3 h",
    }
    assert dict(zip(drawn["name"], drawn["reader"], strict=True)) == {
        "x": "1 f",
        "a": "2 g",
        "y": "3 h",
        "b": "4 host.read",
    }
    assert (drawn["steps"], drawn["top"], drawn["bound"], drawn["left_out"], drawn["conflicts"], more) == (
        5,
        128,
        128,
        0,
        [],
        0,
    )


def test_conflicts_are_in_the_map_with_their_words():
    document = hostile()
    ((drawn,), _) = maps(document, report=check(document), verdict=None)
    assert {conflict["words"].split(":")[0] for conflict in drawn["conflicts"]} == {"Overlap", "StaleRead"}
    assert all(len(box) == 4 for conflict in drawn["conflicts"] for box in conflict["boxes"])


def test_each_plan_that_is_run_has_one_map(monkeypatch):
    made = program(TEXT)
    one, two = (plan(made, slots) for slots in ("x=0 a=64 y=128 b=0", "x=0 a=64 y=128 b=192"))
    document = Document.of(Run.of(one), Run.of(two), Run.of(one))
    drawn, _ = maps(document, report=None, verdict=None)
    assert [each["title"].rpartition(", ")[2] for each in drawn] == ["run 0", "run 1"]
    monkeypatch.setattr(boxes, "MOST_MAPS", 1)
    assert maps(document, report=None, verdict=None)[1] == 1


def test_of_too_many_boxes_the_largest_stay_and_the_rest_are_counted(monkeypatch, training):
    whole = maps(training, report=None, verdict=None)[0][0]
    monkeypatch.setattr(boxes, "MOST_BOXES", 100)
    part = maps(training, report=None, verdict=None)[0][0]
    assert len(part["name"]) == 100
    assert part["left_out"] == len(whole["name"]) - 100
    areas = [
        sorted((np.array(each["high"]) - each["low"]) * (np.array(each["stop"]) - np.array(each["start"])))[-100:]
        for each in (whole, part)
    ]
    assert areas[0] == areas[1]


@pytest.fixture
def training():
    b = ProgramBuilder("many")
    x = b.tensor("x", "f32", (8,))
    b.op("host.write", (), (x,))
    for index in range(300):
        y = b.tensor(f"y{index}", "f32", (8 + index % 17,))
        b.op("f", (x,), (y,))
        x = y
    b.op("host.read", (x,), ())
    return Document.of(plan_of(b.build(), [256 * index for index in range(301)]))


def test_a_page_asks_for_nothing_and_holds_no_element_a_name_made():
    """Names that would be elements, links or the end of a script stay text, wherever they stand."""
    record = {
        "scenario": HOSTILE[0],
        "verdict": {
            "text": " ".join(HOSTILE),
            "class": "C01",
            "fault": HOSTILE[1],
            "victim": {"value_name": HOSTILE[2], "op": 1},
        },
        "detectors": {"S": {"status": HOSTILE[1], "count": 1, "first": HOSTILE[0]}},
        "modes": {HOSTILE[0]: {"loss": [1.0, 2.0], "arena_bytes": 3}},
    }
    text = html(record, hostile()).decode()
    page = Page(text)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2
    assert {"a", "b", "iframe", "link", "object"}.isdisjoint(tags)
    assert {attrs["src"].partition(";")[0] for _, attrs in page.elements if "src" in attrs} == {"data:image/svg+xml"}
    assert not [attrs for _, attrs in page.elements if "href" in attrs or any(name.startswith("on") for name in attrs)]
    assert {attrs.get("content", "").partition(";")[0] for _, attrs in page.elements if "http-equiv" in attrs} == {
        "default-src 'none'"
    }
    data = json.loads(page.scripts[0])
    assert set(data[0]["name"]) == set(HOSTILE)


def test_without_a_plan_there_is_no_map_and_without_a_document_there_are_no_pictures_of_memory():
    text = html({"scenario": "one"}, Document.of(program(TEXT))).decode()
    assert "<canvas" not in text
    assert "Lifetimes" in text
    assert "<img" not in html({"scenario": "one"}, None).decode()
