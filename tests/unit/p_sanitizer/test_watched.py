"""Kernels in a process of their own: crashes with address and buffer, and dead bytes that are read wherever they end."""

import ctypes
import os
import signal
import sys
import threading

import numpy as np
import pytest

import allocsim
from allocsim.errors import ModelError
from allocsim.model import Role
from allocsim.p_sanitizer import poison

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="addresses of faults are read as Linux tells them"
)

SLOTS = [0, 128, 256, 384]
BASE = {
    "host.write": lambda out: out.fill(3),
    "copy": lambda x, out: np.copyto(out, x),
    "neg": np.negative,
    "add": np.add,
    "host.read": lambda _: None,
}


def program(dtype="f32", count=16):
    b = allocsim.ProgramBuilder("step")
    x, h, y, z = (b.tensor(name, dtype, (count,), role=Role.TEMPORARY) for name in "xhyz")
    b.op("host.write", (), (x,), name="x")
    b.op("copy", (x,), (h,))
    b.op("neg", (h,), (y,))
    b.op("add", (y, x), (z,))
    b.op("host.read", (z,), ())
    return b.build()


def found(kernels=(), *, made=None, slots=SLOTS, **options):
    table = {**BASE, **dict(kernels)}
    return allocsim.watched(
        made or program(), slots, lambda op, operands, results: table[op.kind](*operands, *results), **options
    )


def dead(view, element, count=1):
    """Return elements far behind a view's own, as a kernel that does not stop reads them."""
    return np.lib.stride_tricks.as_strided(view, (element + count,))[element:]


def test_honest_kernels_are_clean_in_both_forms_of_poison():
    for made in (program(), program("f64"), program("u8")):
        result = found({"neg": BASE["copy"]}, made=made, slots=[0, 512, 1024, 1536], twice=True)
        assert result.clean, result.report()
        assert result.unsettled == ()
        assert result.report().startswith("clean\n\nexamined: reads of dead bytes: as they lay and in 4 drawn forms; ")


@linux
@pytest.mark.parametrize(
    ("place", "says"),
    [
        (lambda x, out: ctypes.memset(out.ctypes.data + (1 << 20), 0, 4), "1048512 bytes behind the end of z"),
        (lambda x, out: ctypes.memset(out.ctypes.data - (1 << 20), 0, 4), "1048192 bytes before x"),
        (lambda x, out: ctypes.memset(16, 0, 4), "at address 0x10, far from all memory of the arena"),
    ],
)
def test_a_crash_has_its_op_and_how_far_it_is_from_the_nearest_buffer(place, says):
    (incident,) = found({"add": lambda x, y, out: place(x, out)}).incidents
    assert (incident.kind, incident.run, incident.op) == ("Crash", 0, 3)
    assert incident.message.startswith("op 3 (add) ended its process by SIGSEGV at address 0x")
    assert incident.message.endswith(says)


def test_a_kernel_that_ends_its_process_is_a_crash_and_what_was_found_before_is_kept():
    def overrun(x, out):
        dead(out, 16)[:] = 1

    result = found({"copy": overrun, "add": lambda *_: os._exit(7)})
    assert [(i.kind, i.op) for i in result.incidents[-2:]] == [("Overrun", 1), ("Crash", 3)]
    assert result.incidents[-1].message == "op 3 (add) ended its process with exit status 7"


def test_a_kernel_that_leaves_python_is_a_crash_with_the_status_of_a_child_that_said_no_last_word():
    (incident,) = found({"neg": lambda *_: sys.exit("no more")}).incidents
    assert (incident.kind, incident.message) == ("Crash", "op 2 (neg) ended its process with exit status 1")


def test_a_kernel_that_does_not_end_is_killed_and_told():
    def forever(*_):
        threading.Event().wait()

    (incident,) = found({"neg": forever}, seconds=0.5).incidents
    assert (incident.kind, incident.op) == ("Crash", 2)
    assert incident.message == "op 2 (neg) did not end within 0.5 s and was killed"


def test_a_kernel_that_raises_is_an_error_with_its_op():
    with pytest.raises(ModelError, match=r"^ops\[2\]: \(neg\) raised ZeroDivisionError: division by zero$"):
        found({"neg": lambda *_: 1 / 0})


@pytest.mark.parametrize("dtype", ["f32", "u8", "i64"])
def test_a_dead_byte_that_is_read_is_named_whatever_becomes_of_it(dtype):
    """A comparison leaves nothing of the poison but one bit, and that only sometimes the wrong one."""
    made = program(dtype)
    size = made.values[1].itemsize

    def compared(x, out):
        out[:] = x
        out[0] = dead(x, 20)[0] > 5

    result = found({"copy": compared, "neg": BASE["copy"]}, made=made, slots=[0, 320, 640, 960], twice=True)
    (incident,) = {(i.kind, i.op, i.buffer) for i in result.incidents}
    assert incident == ("UndeclaredRead", 1, None)
    ((low, high),) = {span for i in result.incidents for span in i.bytes}
    assert 20 * size <= low < high <= 21 * size


def test_bytes_of_a_released_buffer_are_named_with_it():
    def late(x, out):
        before = np.lib.stride_tricks.as_strided(x, (2,), (-128,))[1:]  # where h was
        np.copyto(out, np.where(before > 0, 1, 0))

    result = found({"neg": np.negative, "add": lambda y, x, out: late(y, out)}, twice=True)
    (incident,) = [i for i in result.incidents if i.run == 0]
    assert incident.kind == "UndeclaredRead"
    assert "h was there, written by op 1 (copy), released after op 2 (neg)" in incident.message


def test_a_result_that_is_left_is_told_to_the_byte_in_any_dtype():
    def but_one(x, out):
        out[:5], out[6:] = x[:5], x[6:]

    result = found({"copy": but_one, "neg": BASE["copy"]}, made=program("u8"), twice=True)
    assert {(i.kind, i.op, i.bytes) for i in result.incidents} == {("ResultUnwritten", 1, ((5, 6),))}


def test_results_that_differ_by_themselves_are_unsettled_and_nobody_is_accused():
    def random(x, out):
        out[:] = np.frombuffer(os.urandom(64), np.float32)

    result = found({"copy": random}, twice=True)
    assert result.clean
    assert {(step, value) for _, step, value in result.unsettled} == {(1, 1), (2, 2), (3, 3)}
    assert "6 results differ between two equal runs" in result.report()


def test_what_is_told_of_a_wrong_read_is_not_told_again():
    """A plan that lays y over x: add reads x late, and what it makes of that is no kernel's fault."""
    result = found(slots=[0, 128, 0, 384], twice=True)
    assert {i.kind for i in result.incidents} == {"StaleRead"}


def test_a_whole_number_that_looks_like_a_word_that_waits_is_nobodys_fault():
    """The kernel is honest: its result has the bits of a word of poison, in each run the same."""
    for twice in (False, True):
        for word in {poison.awaited(run) for run in range(3)}:
            apart = 3 - (word - (1 << 32))
            result = found({"copy": lambda x, out, apart=apart: np.subtract(x, apart, out)}, made=program("i32"),
                           runs=3, twice=twice)  # fmt: skip
            assert result.clean, result.report()


def test_what_an_integer_kernel_leaves_is_told_once_two_runs_show_it():
    def half(x, out):
        out[:8] = x[:8]

    def left(**options):
        result = found({"copy": half, "neg": BASE["copy"]}, made=program("i32"), **options)
        return {(i.kind, i.run, i.op, i.bytes) for i in result.incidents if i.op == 1}

    assert left(runs=1) == set()
    assert left(runs=2) == {("ResultUnwritten", 1, 1, ((32, 64),))}
    assert left(runs=1, twice=True) == {("ResultUnwritten", 0, 1, ((32, 64),))}


def test_a_kernel_that_crashes_over_other_poison_alone_is_accused_and_nobody_else_is():
    def add(x, y, out):
        if not np.isnan(dead(out, 20)[0]):
            os._exit(3)
        np.add(x, y, out)

    (incident,) = found({"add": add}, twice=True).incidents
    assert (incident.kind, incident.run, incident.op) == ("Crash", 0, 3)
    assert incident.message.endswith(
        "with exit status 3, only over other poison: it reads dead bytes that it does not declare"
    )


def test_what_was_found_before_is_kept_where_a_kernel_raises_over_other_poison_alone():
    def copy(x, out):
        np.copyto(out, x)
        dead(out, 16)[:] = 1

    def add(x, y, out):
        if not np.isnan(dead(out, 24)[0]):
            raise IndexError("far out")
        np.add(x, y, out)

    result = found({"add": add, "copy": copy}, runs=1, twice=True)
    assert [(i.kind, i.op) for i in result.incidents] == [("Overrun", 1), ("UndeclaredRead", 3)]
    assert "raised IndexError: far out, only over other poison" in result.report()


def test_a_kernel_that_reads_on_both_sides_of_its_result_leaves_nothing_unwritten():
    """Copy writes all of h and reads one dead float before it and one behind it."""

    def both(x, out):
        near = np.lib.stride_tricks.as_strided(out[:1], (1,))
        below = np.frombuffer((ctypes.c_char * 4).from_address(near.ctypes.data - 24), np.float32)
        out[:] = x
        out[0] += below[0] > 5
        out[1] += dead(out, 20)[0] > 5

    result = found({"copy": both}, slots=[0, 320, 640, 960], runs=1, twice=True)
    assert {i.kind for i in result.incidents} == {"UndeclaredRead"}
    spans = sorted(span for i in result.incidents for span in i.bytes)
    assert spans[0][0] >= 296
    assert spans[0][1] <= 300
    assert spans[-1][0] >= 400
    assert spans[-1][1] <= 404
    assert sum(high - low for low, high in spans) <= 8


@linux
@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (lambda *_: signal.raise_signal(signal.SIGILL), "ended its process by SIGILL"),
        (lambda *_: os.kill(os.getpid(), signal.SIGSEGV), "ended its process by SIGSEGV"),
        (lambda *_: os.kill(os.getpid(), signal.SIGRTMIN + 3), f"ended its process by signal {signal.SIGRTMIN + 3}"),
        (lambda *_: ctypes.memset(1 << 62, 0, 4), "ended its process by SIGSEGV"),
    ]
    if sys.platform.startswith("linux")
    else [],
)
def test_a_signal_that_was_sent_ends_the_process_and_has_no_address(kernel, says):
    (incident,) = found({"neg": kernel}, runs=1, twice=True).incidents
    assert (incident.kind, incident.op, incident.message) == ("Crash", 2, f"op 2 (neg) {says}")


def test_a_write_far_below_the_memory_meets_the_guard():
    (incident,) = found({"add": lambda x, y, out: ctypes.memset(x.ctypes.data - 1024, 0, 64)}, runs=1).incidents
    assert incident.kind == "Crash"


@pytest.mark.parametrize("kernel", ["ends", "stays"])
def test_a_process_that_a_kernel_left_behind_ends_with_it(kernel):
    def begins(*_):
        if os.fork() == 0:
            signal.pause()
        while kernel == "stays":
            signal.pause()
        os._exit(4)

    (incident,) = found({"neg": begins}, seconds=0.5 if kernel == "stays" else 60).incidents
    how = "with exit status 4" if kernel == "ends" else "did not end within 0.5 s and was killed"
    assert how in incident.message


def test_an_upload_that_is_none_is_misuse_and_no_kernels_fault():
    with pytest.raises(ModelError, match="skip: 'nothing' is no upload"):
        found(skip=[(), ("nothing",)])


def test_the_memory_of_a_fork_is_its_own():
    arena = allocsim.sanitized(program(), SLOTS)
    before = bytes(arena.value(0))
    child = os.fork()
    if child == 0:
        arena.value(0)[...] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert bytes(arena.value(0)) == before
