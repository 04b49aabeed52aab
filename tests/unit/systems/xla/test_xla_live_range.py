"""XLA's live ranges as beliefs: real ones are right, changed ones are found, and what is refused."""

import shutil

import numpy as np
import pytest
from plan_laws import DAMAGED, PLANS, law_of_damage, law_of_elide, law_of_shift

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.systems.xla.hlo_live_range import _first_outside, parse_live_ranges

FOLDER = PLANS / "xla" / "live"
"""A loop, a conditional and a donated input."""


def ranges():
    return next(FOLDER.glob("*live-range.txt")).read_text(encoding="utf-8")


def dumped(tmp_path, *pairs):
    """A copy of the dump with its live ranges changed."""
    folder = tmp_path / "dump"
    shutil.copytree(FOLDER, folder)
    path = next(folder.glob("*live-range.txt"))
    text = path.read_text(encoding="utf-8")
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def real():
    return systems.load(FOLDER)


@pytest.mark.parametrize("name", ["loops", "sides", "cut", "region"])
def test_ranges_end_where_xla_ends_them_round_what_it_calls(name):
    """Round conditions that stand before their bodies, before a side is chosen, and where the next value of a buffer begins."""
    document = systems.load(PLANS / "xla" / name)

    assert len(document.problems) == len(document.plans)
    assert check(document).violations == ()


def test_a_range_that_is_cut_while_its_value_is_read_is_not_cut_there(tmp_path):
    """Read by the op that begins the next value, it lives there too: the two are laid over each other, in place or wrongly."""
    folder = tmp_path / "dump"
    shutil.copytree(PLANS / "xla" / "cut", folder)
    path = next(folder.glob("*after_optimizations.txt"))
    text = path.read_text(encoding="utf-8")
    old = "%copy.8 = f32[16,16]{1,0} copy(%dynamic_update_slice.1)"
    assert text.count(old) == 1
    path.write_text(text.replace(old, "%copy.8 = f32[16,16]{1,0} transpose(%get-tuple-element.1), dimensions={1,0}"))

    assert {row.kind for row in check(systems.load(folder)).violations} == {"BadShare", "Overlap", "UnsafeInPlace"}


def test_what_xla_believes_of_its_own_module_is_enough(real):
    """It believes some too long: the condition's result lives to the end of the condition, a conditional's operands to its end."""
    report = check(real)

    assert report.violations == ()
    assert len(real.problems) == len(real.plans) == 2
    assert {warning.kind for warning in report.warnings} == {"LifetimeTooLong"}
    names = {real.programs[0].buffers.names[warning.buffer] for warning in report.warnings}
    long = ("wrapped_compare", "while.10{1}", "tuple.6", "compare_convert_fusion")
    assert all(name.startswith(long) for name in names)


def test_the_laws_hold_beside_a_belief(real):
    assert law_of_shift(real, seed=1, most=4) > 0
    assert law_of_elide(real, seed=2, most=4) > 0


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("copy.5{}:17-21", "copy.5{}:17-20", "copy.5"),  # inside the body: both turns read it at 21
        ("    while.10{2}:23-40", "    while.10{2}:23-39", "while.10{2}"),  # an output: the host reads it at the end
        ("x.1{}:0-7", "x.1{}:0-3", "x.1"),  # handed on to the loop
        ("arg_tuple.1{2}:11-19", "arg_tuple.1{2}:11-18", "arg_tuple.1{2}"),  # a phi
        ("tuple.10{}:22-23", "tuple.10{}:22-22", "tuple.10"),  # handed on to the next turn
    ],
)
def test_a_range_that_ends_before_the_last_reader_is_found(tmp_path, old, new, name):
    report = check(systems.load(dumped(tmp_path, (f"    {old.strip()}\n", f"    {new.strip()}\n"))))
    program = systems.load(FOLDER).programs[0]

    assert {violation.kind for violation in report.violations} <= {"LifetimeTooShort", "MissingPin"}
    found = {program.buffers.names[violation.buffer] for violation in report.violations}
    assert found
    assert all(one.startswith(name) for one in found)  # and the turn of the loop


def test_a_range_that_begins_after_its_writer_is_found(tmp_path):
    report = check(systems.load(dumped(tmp_path, ("    copy.13{}:38-40\n", "    copy.13{}:39-40\n"))))

    assert {violation.kind for violation in report.violations} == {"LifetimeTooShort"}


def test_ranges_of_another_module_are_refused(tmp_path):
    folder = dumped(tmp_path, ("    38:copy.13\n", "    38:copy.99\n"))

    with pytest.raises(DocumentError, match=r"copy.13: is not in the sequence"):
        systems.load(folder)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("HloLiveRange (max 1):\n", "has no live ranges"),
        ("nothing", "line 1: does not begin with HloLiveRange"),
        ("HloLiveRange (max 1):\n  InstructionSequence:\n    1:a\n", "line 3: '1:a' is not the next instruction"),
        ("HloLiveRange (max 1):\n  BufferLiveRange:\n    a{}:0-1\n", "line 3: the live range 0-1 does not fit"),
        ("HloLiveRange (max 1):\n  BufferLiveRange:\n    a{}\n", r"line 3: 'a\{\}' is not the live range of a value"),
        (
            "HloLiveRange (max 1):\n  InstructionSequence:\n    0:a\n  BufferLiveRange:\n    a{}:0-1\n    a{}:0-1\n",
            r"line 6: the live range of a\{\} is listed twice",
        ),
    ],
)
def test_what_is_wrong_in_ranges_is_said_with_its_line(text, rule):
    with pytest.raises(DocumentError, match=rule):
        parse_live_ranges(text, "x.txt")


@DAMAGED
def test_damaged_ranges_end_in_one_line(times):
    def loads(data, source):
        parse_live_ranges(data.decode("utf-8", "replace"), source)

    _, refused = law_of_damage(ranges().encode(), loads, seed=5, times=times)

    assert refused > 0


def test_the_first_event_outside_is_found_by_halves_as_by_looking_at_each():
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 64, 100):
        when = rng.integers(0, 20, size)
        begin, low, high = rng.integers(0, size + 1, 50), rng.integers(0, 10, 50), rng.integers(10, 20, 50)
        wanted = [
            next((at for at in range(b, size) if not one <= when[at] <= other), size)
            for b, one, other in zip(begin, low, high, strict=True)
        ]
        assert _first_outside(when, begin, low, high).tolist() == wanted
