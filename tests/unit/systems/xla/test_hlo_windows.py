"""Slices of what a fusion updates in place: what is said of them, against loops that do it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_laws import PLANS, causes

from allocsim import systems
from allocsim.judge.fast import check
from allocsim.systems.xla.hlo_in_place import KEEPING
from allocsim.systems.xla.hlo_text import parse_module
from allocsim.systems.xla.hlo_windows import SAFE, UNKNOWN, UNSAFE, read_through

SHIFTED = PLANS / "xla" / "shifted"

TEXT = """HloModule m, is_scheduled=true

ENTRY %f (p: s32[{rows},{columns}]) -> s32[{rows},{columns}] {{
  %p = s32[{rows},{columns}]{{1,0}} parameter(0)
  %row = s32[] constant({row})
  %column = s32[] constant({column})
  %part = s32[{height},{width}]{{1,0}} slice(%p), slice={{[{top}:{bottom}:{step}], [{left}:{right}]}}
  %same = s32[{height},{width}]{{1,0}} negate(%part)
  {root}%out = s32[{rows},{columns}]{{1,0}} dynamic-update-slice({operands}, %row, %column)
}}
"""


def said(**named):
    named = {"root": "ROOT ", "operands": "%p, %same"} | named
    inside = parse_module(TEXT.format(**named), "m").instructions("f")
    users = {}
    for line in inside:
        for name in line.operands:
            users.setdefault(name, []).append(line)
    by_name = {line.name: line for line in inside}
    return read_through(by_name["part"], users, by_name, KEEPING)


@st.composite
def updates(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    height, width = draw(st.integers(1, rows)), draw(st.integers(1, columns))
    step = draw(st.integers(1, 2)) if 2 * height - 1 <= rows else 1
    span = step * (height - 1) + 1
    top, left = draw(st.integers(0, rows - span)), draw(st.integers(0, columns - width))
    row, column = draw(st.integers(-1, rows + 1)), draw(st.integers(-1, columns))
    return {
        "rows": rows, "columns": columns, "height": height, "width": width, "step": step, "top": top,
        "bottom": top + span, "left": left, "right": left + width, "row": row, "column": column,
    }  # fmt: skip


@given(updates())
def test_what_is_said_is_what_a_loop_in_place_comes_to(what):
    before = np.arange(1, what["rows"] * what["columns"] + 1).reshape(what["rows"], what["columns"])
    read = slice(what["top"], what["bottom"], what["step"]), slice(what["left"], what["right"])
    row = min(max(what["row"], 0), what["rows"] - what["height"])
    column = min(max(what["column"], 0), what["columns"] - what["width"])
    wanted = before.copy()
    wanted[row : row + what["height"], column : column + what["width"]] = -before[read]

    def looped(turns):
        array = before.copy()
        source = array[read]  # a view
        for i, j in turns:
            array[row + i, column + j] = -source[i, j]
        return np.array_equal(array, wanted)

    turns = [(i, j) for i in range(what["height"]) for j in range(what["width"])]
    assert said(**what) == (UNSAFE if not looped(turns) else SAFE if looped(turns[::-1]) else UNKNOWN)


ONE = {
    "rows": 4, "columns": 1, "height": 3, "width": 1, "step": 1, "top": 0, "bottom": 3, "left": 0, "right": 1,
    "row": 1, "column": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"root": ""},
        {"row": "{...}"},
        {"operands": "%same, %p"},
        {"operands": "%p, %part"},
        {"height": 2},
        {"step": 0},
        {"rows": 1 << 23, "bottom": 3},
    ],
)
def test_nothing_is_said_of_what_is_not_that_loop(change):
    assert said(**ONE) == UNSAFE
    assert said(**ONE | change) == UNKNOWN


def test_an_update_by_a_shifted_slice_in_place_convicts_the_plan(tmp_path):
    """openxla/xla#49176: [1, 1, 1, 1] for [1, 1, 2, 3]."""
    assert causes(SHIFTED) == [("C03", "plan")]

    text = next(SHIFTED.glob("*optimizations.txt")).read_text(encoding="utf-8")
    for path in SHIFTED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    changed = tmp_path / next(SHIFTED.glob("*optimizations.txt")).name
    changed.write_text(text.replace("slice={[0:3]", "slice={[1:4]"), encoding="utf-8")
    assert check(systems.load(tmp_path)).counts == {}  # each element by the turn that writes it

    at = "%bitcast.3, %bitcast.2, %constant.1, %constant.2, %constant.1"
    assert at in text
    ahead = text.replace("slice={[0:3]", "slice={[1:4]").replace(at, at.replace("%constant.2", "%constant.1"))
    changed.write_text(ahead, encoding="utf-8")
    assert check(systems.load(tmp_path)).counts == {"AssumedInPlace": 1}
