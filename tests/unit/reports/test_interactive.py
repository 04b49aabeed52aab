"""The page to look about in: its map is the plan, it is alone in the world, and no name can break it."""

import hashlib
import itertools
import json
import zlib
from base64 import b64decode, b64encode
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_documents import HOSTILE, TEXT, hostile, many_causes
from strategies import documents

from allocsim.judge.fast import check
from allocsim.liveness import lifetimes
from allocsim.model import Document, Run
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from reports.figures.scene import scene
from reports.interactive import html
from reports.interactive.boxes import exhibit
from reports.interactive.columns import ColumnBlock
from repro.scenarios import find_small
from repro.small.small_document import document as document_of
from repro.small.words import plan, program


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


def decoded(head, block):
    """Read the columns of a page as its format says, with nothing of what wrote them: name -> array, names as lists."""
    data = zlib.decompress(b64decode(block))
    types = {"i4": "<i4", "i8": "<i8", "f8": "<f8", "u1": "u1"}
    found = {
        name: np.frombuffer(data, dtype=types[kind], count=entries, offset=first)
        for name, (kind, first, entries) in head["columns"].items()
    }
    for name in [name[: -len(".text")] for name in found if name.endswith(".text")]:
        text = found[f"{name}.text"].tobytes().decode().encode("utf-16-le")
        ends = [0, *(2 * end for end in found[f"{name}.ends"].tolist())]
        found[name] = [text[low:high].decode("utf-16-le") for low, high in itertools.pairwise(ends)]
    return found


def read(text):
    """Return head and columns of a page."""
    scripts = Page(text).scripts
    head = json.loads(scripts[0])
    return head, decoded(head, scripts[1])


@given(documents())
def test_the_columns_of_a_page_are_the_numbers_of_each_plan_that_is_run(document):
    """Every buffer, slot, lifetime, access and handover of every plan is in the page, exactly; none is left out."""
    head, block = exhibit(document, report=None)
    found = decoded(head, block.encoded())
    shown = {
        (id(run.plan), id(run.program), run.skip): (number, run)
        for number, run in reversed([*enumerate(document.runs)])
    }
    assert sorted(plan["run"] for plan in head["plans"]) == sorted(number for number, _ in shown.values())
    for index, told in enumerate(head["plans"]):
        run, one = document.runs[told["run"]], scene(document, told["run"])
        name = f"program{told['program']}"
        lives = (
            lifetimes(run.program, skip=run.skip) if len(run.program.ops) else np.column_stack([one.start, one.stop])
        )
        for column, wanted in {
            f"plan{index}.arena": run.plan.arena,
            f"plan{index}.low": run.plan.offset,
            f"plan{index}.size": one.nbytes,
            f"plan{index}.start": lives[:, 0],
            f"plan{index}.stop": lives[:, 1],
            f"plan{index}.handed": one.handovers.ravel(),
            f"{name}.role": run.program.buffers.role,
            f"{name}.opStream": run.program.ops.stream,
        }.items():
            assert found[column].tolist() == wanted.tolist(), column
        assert found[f"{name}.names"] == list(run.program.buffers.names)
        assert found[f"{name}.opNames"] == list(run.program.ops.names)
        homes = run.program.values.buffer
        for step, op in enumerate(run.program.ops[k] for k in range(len(run.program.ops))):
            for what, values in (("read", op.operands), ("write", op.results)):
                low, high = found[f"{name}.{what}Starts"][step : step + 2]
                assert found[f"{name}.{what}s"][low:high].tolist() == [int(homes[value]) for value in values]


@given(
    st.lists(st.integers(-(2**62), 2**62), max_size=20),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=20),
)
def test_numbers_and_names_come_back_from_a_block_exactly(whole, names):
    block = ColumnBlock()
    block.add("n", np.array(whole, dtype=np.int64))
    block.add("again", np.array(whole, dtype=np.int64))
    block.add_names("t", names)
    found = decoded({"columns": block.directory}, block.encoded())
    assert (found["n"].tolist(), found["again"].tolist(), found["t"]) == (whole, whole, names)
    assert block.directory["n"][1] == block.directory["again"][1], "equal columns are stored once"


def test_what_is_no_unicode_in_a_name_is_replaced():
    block = ColumnBlock()
    block.add_names("t", ["a\ud800b", "c"])
    assert decoded({"columns": block.directory}, block.encoded())["t"] == ["a?b", "c"]


def test_conflicts_are_on_the_page_with_words_places_and_parties():
    document = hostile()
    head, _ = exhibit(document, report=check(document))
    (told,) = head["plans"]
    assert {conflict["words"].split(":")[0] for conflict in told["conflicts"]} == {"Overlap", "StaleRead"}
    assert told["conflicts"][0]["words"].startswith("StaleRead"), "late reads come first"
    assert all(len(box) == 4 for conflict in told["conflicts"] for box in conflict["boxes"])
    assert all(len(conflict["parties"]) >= 2 for conflict in told["conflicts"])


def test_each_plan_that_is_run_is_on_the_page_once_with_the_conflicts_of_all_its_runs():
    made = program(TEXT)
    one, two = (plan(made, slots) for slots in ("x=0 a=0 y=128 b=0", "x=0 a=64 y=128 b=192"))
    document = Document.of(Run.of(one), Run.of(two), Run.of(one))
    report = check(document, of_each_kind=True)
    head, _ = exhibit(document, report=report)
    assert [(each["run"], each["program"]) for each in head["plans"]] == [(0, 0), (1, 0)]
    assert {conflict["run"] for conflict in head["plans"][0]["conflicts"]} == {v.run for v in report.violations} - {
        None
    } | {0}


def test_each_of_more_than_a_hundred_causes_is_on_the_page_with_a_place():
    document = many_causes(130)
    text = html({"scenario": "many"}, document).decode()
    head, _ = read(text)
    assert len(head["causes"]) >= 100
    assert [cause["number"] for cause in head["causes"]] == list(range(1, len(head["causes"]) + 1))
    placed = {conflict["cause"] for one in head["plans"] for conflict in one["conflicts"]}
    assert placed >= {cause["number"] for cause in head["causes"]}


def test_a_kernel_that_breaks_no_plan_is_on_the_map_by_its_witnesses():
    document = document_of(find_small("rms-norm-back").faulty)
    found = judge(Evidence(document=document), cures=False)
    head, _ = exhibit(document, report=found.report, causes=found.causes)
    assert {conflict["cause"] for one in head["plans"] for conflict in one["conflicts"]} >= {
        c.number for c in found.causes
    }


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
    assert tags.count("script") == 3
    assert {"a", "b", "iframe", "link", "object"}.isdisjoint(tags)
    assert {attrs["src"].partition(";")[0] for _, attrs in page.elements if "src" in attrs} <= {"data:image/svg+xml"}
    assert not [attrs for _, attrs in page.elements if "href" in attrs or any(name.startswith("on") for name in attrs)]
    assert {attrs.get("content", "").partition(";")[0] for _, attrs in page.elements if "http-equiv" in attrs} == {
        "default-src 'none'"
    }
    _, found = read(text)
    assert set(found["program0.names"]) == set(HOSTILE)


@pytest.mark.parametrize("document", [None, hostile()], ids=["words", "explorer"])
def test_the_policy_of_a_page_allows_its_own_style_and_script_by_hash_and_nothing_else(document):
    text = html({"scenario": "one", "modes": {"default": {"loss": [1.0], "arena_bytes": 3}}}, document).decode()
    page = Page(text)
    (policy,) = [attrs["content"] for _, attrs in page.elements if "http-equiv" in attrs]
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    style = text.partition("<style>")[2].partition("</style>")[0]
    hashes = {
        name: f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for name, body in (("style-src", style), ("script-src", page.scripts[-1]))
    }
    assert rules == {
        **hashes,
        "default-src": "'none'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert not [attrs for _, attrs in page.elements if "style" in attrs], "the policy would refuse it"


def test_without_a_plan_there_is_no_map_and_without_a_document_there_are_no_pictures_of_memory():
    text = html({"scenario": "one"}, Document.of(program(TEXT))).decode()
    assert 'id="explorer"' not in text
    assert "Lifetimes" in text
    assert "<img" not in html({"scenario": "one"}, None).decode()
