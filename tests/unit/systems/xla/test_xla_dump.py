"""XLA's dumps: real ones, the laws, what runs beside, and what is refused."""

import re
import shutil

import pytest
from plan_laws import DAMAGED, PLANS, blamed, causes, law_of_damage, shifts

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.systems.xla import xla_dump
from allocsim.systems.xla.hlo_assignment import parse_assignment
from allocsim.systems.xla.hlo_text import parse_module, parse_shape

FOLDER = PLANS / "xla"
CLEAN = {"cond": (4, 90, 68), "scan": (1, 53, 66), "train": (1, 143, 140), "while": (4, 200, 188)}
"""Folder -> programs, ops and buffers of all of them."""


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_plan_stays_clean(name):
    document = systems.load(FOLDER / name)
    report = check(document)

    assert report.violations == ()
    programs = document.programs
    assert (len(programs), sum(len(p.ops) for p in programs), sum(len(p.buffers) for p in programs)) == CLEAN[name]


def test_nobody_has_to_assume_an_alias_that_the_dump_explains():
    assert [len(check(systems.load(FOLDER / name)).warnings) for name in CLEAN] == [0, 0, 0, 0]


def test_the_plan_is_at_fault_for_a_shifted_slot(tmp_path):
    document = systems.load(FOLDER / "train")
    where = list(shifts(document))

    assert all(blamed(document, one, tmp_path) == {"plan"} for one in where[:: len(where) // 3])


def test_a_module_is_read_from_either_of_its_files():
    whole = systems.load(FOLDER / "train")
    parts = [systems.load(path) for path in (FOLDER / "train").iterdir()]

    assert [len(part.programs[0].ops) for part in parts] == [len(whole.programs[0].ops)] * 2


def changed(tmp_path, name, old, new, *, file="buffer-assignment.txt"):
    folder = tmp_path / "dump"
    shutil.copytree(FOLDER / name, folder)
    path = next(folder.glob(f"*{file}"))
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_an_offset_changed_in_the_dump_is_convicted(tmp_path):
    """A gradient is laid over a residual that a later fusion still reads."""
    old, new = (
        "<1020 bitcast_add_fusion @0> (size=16384,offset=655360)",
        "<1020 bitcast_add_fusion @0> (size=16384,offset=0)",
    )

    assert {party for _, party in causes(changed(tmp_path, "train", old, new))} == {"plan"}


def test_a_phi_whose_side_lies_elsewhere_is_convicted(tmp_path):
    """XLA moves nothing at the end of an iteration: what the body left in another place is lost."""
    old, new = "<21 wrapped_add @0> (size=4,offset=2112)", "<21 wrapped_add @0> (size=4,offset=2052)"

    assert {party for _, party in causes(changed(tmp_path, "scan", old, new))} == {"plan"}


def test_a_constant_of_a_loop_may_be_called_almost_as_another(tmp_path):
    """Found by the campaign (`benchmarks/random_models.py xla`, seed 611): `constant` in a loop beside `constant.1` was refused."""
    folder = tmp_path / "dump"
    shutil.copytree(FOLDER / "scan", folder)
    for path in folder.iterdir():
        path.write_text(re.sub(r"constant\.8\b", "constant.7.1", path.read_text("utf-8")), "utf-8")
    document = systems.load(folder)

    assert {"constant.7.1", "constant.7 in turn 1"} <= set(document.programs[0].buffers.names)
    assert check(document).clean


def test_a_donated_input_may_be_taken_and_another_may_not(tmp_path):
    donated = systems.load(FOLDER / "while")
    folder = changed(
        tmp_path, "while", "input_output_alias={ {1}: (0, {}, may-alias) }, ", "", file="after_optimizations.txt"
    )

    assert check(donated).clean
    assert {party for _, party in causes(folder)} == {"plan"}


BESIDE = """HloModule beside, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} negate(%p)
  %copy-start = (f32[8]{0:S(1)}, f32[8]{0}, u32[]) copy-start(%a)
  %b = f32[8]{0} exponential(%p)
  %copy-done = f32[8]{0:S(1)} copy-done(%copy-start)
  ROOT %c = f32[8]{0} add(%copy-done, %b)
}
"""


def beside(tmp_path, *, a, b):
    rows = ["BufferAssignment:", "allocation 0: size 256, preallocated-temp:"]
    rows += [
        f" value: <1 a @0> (size=32,offset={a}): f32[8]{{0}}",
        f" value: <2 b @0> (size=32,offset={b}): f32[8]{{0}}",
    ]
    rows += [" value: <3 c @0> (size=32,offset=192): f32[8]{0}"]
    rows += [
        "allocation 1: size 32, parameter 0, shape |f32[8]| at ShapeIndex {}:",
        " value: <0 p @0> (size=32,offset=0): f32[8]{0}",
    ]
    rows += [
        "allocation 2: size 32, color 1, preallocated-temp:",
        " value: <4 copy-start{0} @1> (size=32,offset=0): f32[8]{0:S(1)}",
    ]
    folder = tmp_path / f"at{a}and{b}"
    folder.mkdir()
    (folder / "m.after_optimizations.txt").write_text(BESIDE, encoding="utf-8")
    (folder / "m.after_optimizations-buffer-assignment.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_an_asynchronous_copy_keeps_its_operand_until_it_is_done(tmp_path):
    document = systems.load(beside(tmp_path, a=0, b=64))
    program = document.programs[0]

    assert program.streams == ("main", "async")
    assert [arena.name for arena in program.arenas] == ["allocation 0", "allocation 1", "allocation 2 of colour 1"]
    assert check(document).clean
    assert {v.kind for v in check(systems.load(beside(tmp_path, a=0, b=0))).violations} == {"Race"}
    assert {party for _, party in causes(tmp_path / "at0and0")} == {"plan"}


@pytest.mark.parametrize("file", ["after_optimizations.txt", "buffer-assignment.txt"])
@DAMAGED
def test_damaged_text_ends_in_one_line(tmp_path, file, times):
    folder = tmp_path / "dump"
    shutil.copytree(FOLDER / "scan", folder)
    path = next(folder.glob(f"*{file}"))
    data = path.read_bytes()

    def loads(damaged, _source):
        path.write_bytes(damaged)
        return systems.load(folder)

    read, refused = law_of_damage(data, loads, seed=3, times=times)
    assert read > 0
    assert refused > 0


def test_files_of_two_modules_are_no_dump(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    shutil.copy(next((FOLDER / "scan").glob("*buffer-assignment.txt")), folder / "m-buffer-assignment.txt")
    shutil.copy(FOLDER / "train" / "after_optimizations.txt", folder / "m.txt")

    with pytest.raises(DocumentError, match="has no value in the assignment"):
        systems.load(folder)


def test_half_a_dump_is_no_plan(tmp_path):
    shutil.copy(FOLDER / "train" / "buffer-assignment.txt", tmp_path)

    with pytest.raises(DocumentError, match="no plan here: no module has both"):
        systems.load(tmp_path)
    with pytest.raises(DocumentError, match="with the same prefix in one folder"):
        systems.load(tmp_path / "buffer-assignment.txt")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("BufferAssignment:\n", "no plan here"),
        ("BufferAssignment:\n value: <0 a @0> (size=1,offset=0): f32[]\n", "line 2: .* is not a value of an"),
        (
            "BufferAssignment:\nallocation 0: size 4:\n value: <0 a @0> (size=4,offset=4): f32[]\n",
            "ends at byte 8; its allocation has 4 bytes",
        ),
        ("BufferAssignment:\nallocation 0: size 4:\nallocation 0: size 4:\n", "allocation 0 is listed twice"),
    ],
)
def test_what_is_wrong_in_an_assignment_is_said_with_its_line(text, rule):
    with pytest.raises(DocumentError, match=rule):
        parse_assignment(text, "x.txt")


def test_shapes_are_read_with_layouts_comments_and_tiles():
    text = "(f32[2,3]{0,1}, /*index=1*/(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, pred[])) tuple("
    shape, end = parse_shape(text)

    assert text[end:] == " tuple("
    assert shape[0,].minor_to_major == (0, 1)
    assert shape[1, 0].tiled
    assert shape[1, 1].dims == ()
    assert [index for index, leaf in shape.items() if leaf.dims is None] == [(), (1,)]


def test_a_module_without_an_entry_is_refused():
    with pytest.raises(DocumentError, match="has no ENTRY computation"):
        parse_module("HloModule m, is_scheduled=true\n", "x.txt")


def test_an_unscheduled_module_is_refused(tmp_path):
    folder = changed(tmp_path, "train", "is_scheduled=true, ", "", file="after_optimizations.txt")

    with pytest.raises(DocumentError, match="is not scheduled"):
        xla_dump.load_folder(folder)
