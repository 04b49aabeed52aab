"""The recorder: which tensor an array is taken for, and what becomes of it in the program and the plan."""

import numpy as np
import pytest

import allocsim
from allocsim.errors import ModelError
from allocsim.model import OWN, Role


def piece(memory, offset, count=16):
    return memory[offset : offset + 4 * count].view(np.float32)


def kinds(recorder):
    program, plan = recorder.finish()
    return [(v.kind, v.op) for v in allocsim.verify_program(program, plan).violations]


def reused():
    """A pool whose first piece is taken again after its last reader."""
    memory = np.zeros(256, np.uint8)
    x, h, y = piece(memory, 0), piece(memory, 64), piece(memory, 0)
    recorder = allocsim.Recorder(pools={"scratch": memory})
    recorder.upload(x)
    recorder.call("exp", reads=[x], writes=[h])
    recorder.call("neg", reads=[h], writes=[y])
    return recorder, x, h, y


def test_a_late_reader_of_a_reused_piece_of_a_pool_is_convicted():
    recorder, x, h, y = reused()
    recorder.call("add", reads=[y, x], writes=[h])
    recorder.download(h)
    program, plan = recorder.finish()
    assert plan.offset.tolist()[:3] == [0, 64, 0]
    report = allocsim.verify_program(program, plan)
    assert {(v.kind, v.op) for v in report.violations} == {("StaleRead", 3), ("Overlap", 2)}


def test_the_same_without_the_late_reader_is_clean():
    recorder, _x, _h, y = reused()
    recorder.download(y)
    assert kinds(recorder) == []


@pytest.mark.parametrize(
    ("misuse", "line"),
    [
        (lambda r: r.call("f", reads=["x"]), "reads[0]: str is neither an array nor (name, array)"),
        (lambda r: r.call("f", reads=3), "reads: is int; a list of arrays is needed"),
        (lambda r: r.call("f", writes=np.zeros(3)), "writes: is ndarray; a list of arrays is needed"),
        (lambda r: r.upload(("x", 3)), "writes[0]: tuple is neither an array nor (name, array)"),
        (lambda r: r.download(None), "reads[0]: NoneType is neither an array nor (name, array)"),
        (lambda r: r.keep([1.0], "w"), "keep[0]: list is neither an array nor (name, array)"),
        (lambda r: r.view(np.zeros(3), (np.zeros(3), "v")), "view[1]: tuple is neither an array nor (name, array)"),
    ],
)
def test_what_is_no_array_is_misuse(misuse, line):
    recorder = allocsim.Recorder()
    with pytest.raises(ModelError) as caught:
        misuse(recorder)
    assert str(caught.value) == line
    assert len(recorder.finish()[0].ops) == 0


def test_names_tell_tensors_apart_where_objects_are_made_anew():
    memory = np.zeros(128, np.uint8)
    here = lambda: piece(memory, 0)  # noqa: E731 - a runtime that makes an array for each call
    recorder = allocsim.Recorder(pools={"scratch": memory})
    recorder.upload(("x", here()))
    recorder.upload(("y", here()))
    recorder.download(("x", here()))
    assert ("StaleRead", 2) in kinds(recorder)
    blind = allocsim.Recorder(pools={"scratch": memory})
    blind.upload(here())
    blind.upload(here())
    blind.download(here())
    assert kinds(blind) == []


def test_outside_pools_a_slice_is_a_view_of_its_allocation():
    x, y = np.zeros((4, 4), np.float32), np.zeros(4, np.float32)
    recorder = allocsim.Recorder()
    recorder.upload(x)
    recorder.call("take", reads=[x[1:3, ::2].T], writes=[y[::-1]])
    recorder.download(y)
    program, plan = recorder.finish()
    assert len(program.buffers) == 2
    assert (plan.arena == OWN).all()
    taken, made = program.values[1], program.values[2]
    assert (taken.shape, taken.strides, taken.offset) == ((2, 2), (8, 16), 16)
    assert (made.strides, made.offset) == ((-4,), 12)
    assert allocsim.verify_program(program, plan).clean


def test_a_loop_does_not_keep_its_temporaries_alive():
    memory = np.zeros(128, np.uint8)
    x, h = piece(memory, 0), piece(memory, 0)
    out = np.zeros(16, np.float32)
    recorder = allocsim.Recorder(pools={"scratch": memory})
    for _ in range(3):
        recorder.upload(x)
        recorder.call("exp", reads=[x], writes=[h], in_place=[(0, 0)])
        recorder.call("copy", reads=[h], writes=[out])
    recorder.download(out)
    assert kinds(recorder) == []
    program, _ = recorder.finish()
    assert len(program.buffers) == 9


def test_a_call_that_reads_what_it_writes_is_a_mutation():
    a, b = np.zeros(4, np.float32), np.zeros(4, np.float32)
    recorder = allocsim.Recorder()
    recorder.upload(a, b)
    recorder.call("add", reads=[a, b], writes=[a], in_place=[(0, 0)])
    recorder.download(a)
    program, plan = recorder.finish()
    assert len(program.buffers) == 2
    assert allocsim.verify_program(program, plan).clean
    unsaid = allocsim.Recorder()
    unsaid.upload(a, b)
    unsaid.call("add", reads=[a, b], writes=[a])
    unsaid.download(a)
    report = allocsim.verify_program(*unsaid.finish())
    assert report.clean
    assert [w.kind for w in report.warnings] == ["AssumedInPlace"]


def test_reading_what_nobody_wrote_is_said():
    recorder = allocsim.Recorder()
    recorder.download(np.zeros(4, np.float32))
    assert kinds(recorder) == [("UninitialisedRead", 0)]


def test_content_is_kept_and_parameters_are_read_only():
    w, s, y = (np.zeros(4, np.float32) for _ in range(3))
    recorder = allocsim.Recorder()
    recorder.keep(w, "w")
    recorder.keep(s, "s", role=Role.STATE)
    recorder.call("add", reads=[w, s], writes=[s], in_place=[(1, 0)])
    recorder.call("scale", reads=[s], writes=[y])
    recorder.call("sgd", reads=[w, s], writes=[w], in_place=[(0, 0)])
    recorder.download(y)
    assert kinds(recorder) == [("WriteToReadOnly", 2)]


def test_declared_views_in_a_pool_and_unknown_dtypes():
    memory = np.zeros(256, np.uint8)
    pair = np.dtype([("x", np.float32), ("y", np.int32)])
    table, row = memory[:128].view(pair), memory[32:40].view(pair)
    recorder = allocsim.Recorder(pools={"scratch": memory})
    recorder.upload(table)
    recorder.view(table, row)
    recorder.call("fill", writes=[row])
    recorder.download(table)
    program, plan = recorder.finish()
    assert len(program.buffers) == 1
    assert (program.values[0].dtype, program.values[0].shape) == ("u8", (16, 8))
    assert allocsim.verify_program(program, plan).clean


def test_complex_numbers_are_recorded_as_what_they_are():
    z = np.zeros(3, np.complex64)
    recorder = allocsim.Recorder()
    recorder.upload(z)
    recorder.download(z)
    assert recorder.finish()[0].values[0].dtype == "c64"


@pytest.mark.parametrize("offset", [16, 0])
def test_overlapping_arrays_over_memory_that_no_array_owns_are_refused(offset):
    """Each has a base of its own: nothing says that they are pieces of one memory, unless it is a pool."""
    memory = bytearray(128)
    x, h = (np.frombuffer(memory, np.float32, 16, at) for at in ((0, 16) if offset else (16, 0)))

    with pytest.raises(
        ModelError, match="two arrays share bytes of memory that no array owns; give that memory as a pool"
    ):
        allocsim.Recorder().call("exp", reads=[("x", x)], writes=[("h", h)])
    recorder = allocsim.Recorder(pools={"raw": np.frombuffer(memory, np.uint8)})
    recorder.upload(("x", x))
    recorder.call("exp", reads=[("x", x)], writes=[("h", h)])
    recorder.download(("x", x))
    assert ("StaleRead", 2) in kinds(recorder)


def test_arrays_side_by_side_in_memory_that_no_array_owns_are_memories_of_their_own():
    memory = bytearray(128)
    x, h = (np.frombuffer(memory, np.float32, 16, at) for at in (0, 64))
    recorder = allocsim.Recorder()
    recorder.upload(x)
    recorder.call("exp", reads=[x], writes=[h])
    recorder.download(h)
    assert kinds(recorder) == []


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (
            lambda r, m: (r.upload(("x", m[:8])), r.download(("x", m[4:12]))),
            "x: bytes \\[4, 12\\) are not within its 8; name the tensors",
        ),
        (lambda r, m: r.view(m[:8], m[:4]), "view: the parent was in no call before"),
        (lambda r, m: r.keep(m[:8], "w", role=Role.INPUT), "w: input is no role of memory that is kept"),
        (lambda r, m: (r.upload(("w", m)), r.keep(m, "w")), "w: was recorded already"),
    ],
)
def test_misuse_is_one_clear_line(misuse, message):
    memory = np.zeros(64, np.uint8)
    with pytest.raises(ModelError, match=message):
        misuse(allocsim.Recorder(pools={"p": memory}), memory)
