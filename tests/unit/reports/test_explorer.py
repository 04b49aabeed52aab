"""The explorer in a browser: every cause is reached by number and key, ops by steps, and no name is markup."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, DRIVER, NEEDED, browser
from page_documents import HOSTILE, TEXT, hostile, many_causes

from allocsim import plan_of
from allocsim.model import Document, Run
from allocsim.programs.builder import ProgramBuilder
from reports.interactive import html
from repro.small.words import plan, program

pytestmark = pytest.mark.skipif(not (DRIVER and CHROMIUM), reason=NEEDED)

RIGHT, DOWN, ENTER, ESCAPE, TAB = "\ue014", "\ue015", "\ue007", "\ue00c", "\ue004"
"""Keys of the WebDriver protocol."""

CAUSES = 120

HANDED = "x = host.write; a = f x; y = g! a; c = h x; b = k! y; host.read b"
"""Where a, y, c and b are laid at one place, c takes the bytes of y, which has those of a and gives them to b."""

TRAINED = {
    "modes": {
        "default": {
            "loss": [2.5, 1.25],
            "gradients": [{"step": 1, "layer": 0, "tensor": "L0.w", "ratio": 0.5, "cosine": 0.25}],
        },
        "reference": {"loss": [2.5, 0.75]},
    }
}
"""What a run of the engine records of losses and gradients."""

CHOSEN = "return [...document.querySelectorAll('#causes [aria-selected=true]')].map((row) => row.textContent)"


@pytest.fixture(scope="module")
def window():
    with browser() as page:
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = program(TEXT)
    one, two = (plan(made, slots) for slots in ("x=0 a=0 y=128 b=0", "x=0 a=64 y=128 b=192"))
    for name, document in {
        "many": many_causes(CAUSES),
        "hostile": hostile(),
        "two": Document.of(Run.of(one), Run.of(two)),
        "deep": deep(130_000),
        "handed": Document.of(plan(program(HANDED), "x=0 a=64 y=64 c=64 b=64")),
    }.items():
        record = {"scenario": HOSTILE[0], **(TRAINED if name == "handed" else {})}
        (folder / f"{name}.html").write_bytes(html(record, document))
    return folder


def deep(layers):
    """Return a plan with a buffer in each of many layers: more than a call takes arguments."""
    b = ProgramBuilder("deep")
    b.op("host.write", (), tuple(b.tensor(f"layer.{k}.out", "f32", (1,)) for k in range(layers)))
    return Document.of(plan_of(b.build(), range(0, 64 * layers, 64)))


@pytest.fixture
def opened(window, pages):
    """Open a page; what its console says at the end is an error."""

    def at(name, view=""):
        window.open(Path(pages / f"{name}.html"), view)
        return window

    yield at
    assert window.log() == []


def window_of(page):
    """Return the edges of the view, as the address has them."""
    page.until("new URLSearchParams(location.hash.slice(1)).has('view')")
    return [
        float(edge) for edge in page.run("return new URLSearchParams(location.hash.slice(1)).get('view')").split(",")
    ]


COVER = """
const base = document.querySelector('#map canvas'), copy = document.createElement('canvas');
[copy.width, copy.height] = [base.width, base.height];
const pen = copy.getContext('2d', { willReadFrequently: true });
pen.drawImage(base, 0, 0);
const { data } = pen.getImageData(0, 0, base.width, base.height);
return [base.width, base.height, [...data].filter((_, k) => k % 4 === 0)];
"""

SHIFTED = """
document.body.dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0], shiftKey: true, bubbles: true }));
"""


def painted(page):
    """Return the red of the pixels under the marks, rows by columns."""
    width, height, red = page.run(COVER)
    return np.array(red).reshape(height, width)


def test_each_box_is_painted_where_it_lies_and_nothing_elsewhere(opened):
    """Between boxes a line stays light, so edges are left out."""
    page = opened("two", "#plan=1&by=role&view=0,5,0,256")
    red = painted(page)
    height, width = red.shape
    step, byte = np.arange(width) / width * 5, 256 - np.arange(height) / height * 256
    inside, edges = np.zeros_like(red, dtype=bool), np.zeros_like(red, dtype=bool)
    for first, last, low in ((0, 2, 0), (1, 3, 64), (2, 4, 128), (3, 5, 192)):  # x, a, y, b
        box = ((step > first) & (step < last))[None, :] & ((byte > low) & (byte <= low + 64))[:, None]
        inside |= box
        for axis, by in itertools.product((0, 1), range(-2, 3)):
            edges |= np.roll(box, by, axis) != box
    assert (red[inside & ~edges] < 255).all()
    assert (red[~inside & ~edges] == 255).all()


def test_a_map_that_was_moved_is_the_map_that_is_painted_anew(opened):
    page = opened("many", "#view=20,140,1000,6000")
    for key in ("ArrowLeft", "ArrowUp", "ArrowLeft"):
        page.run(SHIFTED, key)
        page.drawn()
    moved = painted(page)
    page.run("window.dispatchEvent(new Event('resize'))")
    page.drawn()
    anew = painted(page)
    assert (anew < 255).any()
    assert np.abs(anew - moved).max() <= 2


def test_marks_are_drawn_anew_where_the_map_has_another_size_and_the_window_has_not(opened):
    """As when a scroll bar appears."""
    page = opened("many")
    page.drawn()
    page.run("document.querySelector('.maps').style.width = '500px'")
    page.press(RIGHT)
    page.drawn()
    wide = page.run("return [...document.querySelectorAll('#map canvas')].slice(1).map((canvas) => canvas.width)")
    assert wide == page.run("return Array(2).fill(document.querySelector('#map').clientWidth)")


def test_a_plan_of_more_layers_than_a_call_takes_arguments_opens(opened):
    page = opened("deep", "#find=layer:129999")
    assert page.text("#hits") == "1 found"
    assert page.text("#note").startswith("130,000 buffers drawn")


@pytest.mark.parametrize("number", [1, 77, CAUSES])
def test_an_address_selects_a_cause_and_frames_its_parties(opened, number):
    page = opened("many", f"#cause={number}")
    assert page.run(CHOSEN)[0].startswith(f"{number}. ")
    said = page.text("#told")
    assert said.startswith(f"{number}. ")
    victim = int(said.partition("victim y")[2].partition(",")[0].split()[0])
    x0, x1, y0, y1 = window_of(page)
    low, step = 64 + 128 * victim, 3 * victim + 1  # where `many_causes` has put both parties
    assert x0 <= step < step + 3 <= x1
    assert y0 <= low < low + 64 <= y1


def test_every_cause_is_reached_by_keys_in_the_list_of_which_few_rows_are_made(opened):
    page = opened("many")
    page.run("document.getElementById('causes').focus()")
    seen = []
    for _ in range(CAUSES):
        page.press(DOWN, ENTER)
        seen.append(page.text("#told h3").partition(".")[0])
    assert seen == [str(number) for number in range(1, CAUSES + 1)]
    assert page.run("return document.querySelectorAll('#causes .row').length") < 40
    page.press("n")
    assert page.text("#told h3").startswith("1. "), "after the last comes the first"
    page.press(ESCAPE)
    assert page.run(CHOSEN) == []
    assert page.text("#told h3").startswith("op "), "no story of a cause is left"


def test_a_jump_tells_the_new_cause_alone(opened):
    page = opened("many", "#cause=3&buffer=5")
    assert page.run("return document.querySelectorAll('#told h3').length") == 3
    page.press("n")
    assert page.run("return [...document.querySelectorAll('#told h3')].map((h) => h.textContent[0])") == ["4", "o"]


def test_keys_step_through_ops_and_the_live_set_follows(opened):
    page = opened("two", "#plan=1")
    alive = []
    for _ in range(5):
        alive.append(page.run("return [...document.querySelectorAll('#live .row')].map((r) => r.textContent.at(-1))"))
        page.press(RIGHT)
    assert [sorted(names) for names in alive] == [["x"], ["a", "x"], ["a", "y"], ["b", "y"], ["b"]]
    assert page.run("return document.getElementById('at').value") == "4", "the last op is the last step"
    assert page.text("#told h3").startswith("op 4 ")


def test_two_plans_stand_side_by_side_and_their_difference_is_counted(opened):
    page = opened("two")
    page.press("d")
    assert page.run("return [...document.querySelectorAll('.map')].map((map) => map.hidden)") == [False, False]
    assert "2 buffers lie elsewhere" in page.text("#note")
    page.until("location.hash.includes('other=1')")


@pytest.mark.parametrize(
    ("words", "found"),
    [("y1", 31), ("kind:g", 120), ("size>64", 0), ("size>=64 kind:h role:temporary", 120), ("arena:cpu", 361)],
)
def test_the_filter_finds_by_name_kind_role_size_and_arena(opened, words, found):
    page = opened("many")
    page.run(
        "const f = document.getElementById('find'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))", words
    )
    assert page.text("#hits") == f"{found} found"


def test_writers_and_readers_are_reached_by_click(opened):
    page = opened("two", "#plan=1&buffer=1")
    assert page.run("return [...document.querySelectorAll('#told .links')].map((line) => line.textContent)")[:2] == [
        "written by 1 f",
        "read by 2 g",
    ]
    page.click("#told .links:nth-of-type(3) button")
    assert page.run("return document.getElementById('at').value") == "2"


def test_names_are_text_wherever_they_are_told(opened):
    page = opened("hostile", "#cause=1")
    before = page.run("return document.querySelectorAll('img, script, iframe, b').length")
    for buffer in range(4):
        page.run("location.hash = arguments[0]", f"#buffer={buffer}&at={buffer}")
        page.until(f"document.getElementById('at').value === '{buffer}'")
        assert HOSTILE[buffer] in page.text("#told")
    assert page.run("return document.querySelectorAll('img, script, iframe, b').length") == before


def test_a_click_on_a_box_tells_of_its_buffer(opened):
    page = opened("two", "#plan=1&view=0,5,0,256")
    box = page.run("const r = document.querySelector('#map').getBoundingClientRect(); return [r.width, r.height]")
    inside = (76 + (box[0] - 84) * 0.5, 66 + (box[1] - 100) * (1 - 96 / 256))  # step 2.5, byte 96: a
    page.click("#map canvas:last-child", round(inside[0] - box[0] / 2), round(inside[1] - box[1] / 2))
    assert page.text("#told h3") == "a"


def test_a_click_on_the_victim_tells_writer_readers_donor_and_recipient(opened):
    page = opened("handed", "#cause=1&view=0,6,0,128")
    box = page.run("const r = document.querySelector('#map').getBoundingClientRect(); return [r.width, r.height]")
    inside = (76 + (box[0] - 84) * 2.5 / 6, 66 + (box[1] - 100) * (1 - 100 / 128))  # step 2.5, byte 100: y alone
    page.click("#map canvas:last-child", round(inside[0] - box[0] / 2), round(inside[1] - box[1] / 2))
    told = page.run("return [...document.querySelectorAll('#told h3, #told .links')].map((line) => line.textContent)")
    assert told[0].startswith("1. ")
    assert "victim y" in told
    assert told[told.index("y") :][1:5] == [
        "written by 2 g",
        "read by 4 k",
        "takes its bytes in place from a",
        "gives its bytes in place to b",
    ]


def test_losses_and_gradients_stand_on_the_page_of_the_explorer(opened):
    page = opened("handed")
    tables = page.run("return [...document.querySelectorAll('table')].map((table) => table.innerText)")
    assert any("1.2500" in table and "0.7500" in table for table in tables)
    assert any("0.5, 0.2500" in table for table in tables)
    shown = page.run(
        "return [...document.querySelectorAll('figure img')].map((one) => [one.alt, one.naturalWidth > 0])"
    )
    assert [name.split()[0] for name, _ in shown] == ["Loss", "Gradients"]
    assert all(drawn for _, drawn in shown), "the page's policy allows them"


def test_every_control_is_reached_by_the_tab_key_and_a_link_that_is_followed_keeps_its_place(opened):
    page = opened("handed", "#cause=1")
    wanted = page.run(
        "return [...document.querySelectorAll('#explorer :is(button, input, select, [tabindex=\"0\"])')]"
        ".filter((one) => one.checkVisibility()).length"
    )
    seen = 0
    for _ in range(wanted):
        page.press(TAB)
        seen += page.run("return document.activeElement.closest('#explorer') !== null")
    assert seen == wanted >= 15
    page.run("[...document.querySelectorAll('#told button')].find((one) => one.textContent === 'y').focus()")
    for _ in range(2):  # the first button told is now the victim's again
        page.press(ENTER)
        assert "written by 2 g" in page.text("#told")
        assert page.run("return document.activeElement.id") == "told"
        page.press(TAB)
        assert page.run("return document.activeElement.textContent") == "y"


def test_a_phone_shows_all_of_it_without_moving_sideways(pages):
    with browser(width=390, height=844, phone=True) as page:
        page.open(pages / "many.html", "#cause=7")
        assert page.run("return document.documentElement.scrollWidth") == 390
        assert page.run("return document.getElementById('told').getBoundingClientRect().right") <= 390
        assert page.log() == []
