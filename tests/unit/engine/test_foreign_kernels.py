"""Ten ways for a kernel of the user's to misbehave: each is answered with its op, and none ends the process that asks."""

import ctypes
import os
import sys
import threading
import time

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.model import Document
from allocsim.p_sanitizer.guard import why_not
from allocsim.p_sanitizer.kernel_child import in_child
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from engine.front.custom_ops import custom_op, forget
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.p_sanitizer import foreign

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
pages = pytest.mark.skipif(bool(why_not()), reason=why_not())


def beyond(array, element, count=1):
    return (ctypes.c_float * count).from_address(array.ctypes.data + 4 * element)


def null(out, x):
    ctypes.memset(8, 0, 4)


def aborts(out, x):
    os.write(2, b"malloc(): unaligned tcache chunk detected\n")
    os.abort()


def leaves(out, x):
    sys.exit(3)


def leaves_at_once(out, x):
    os._exit(0)


def hangs(out, x):
    while True:
        time.sleep(0)


def hoards(out, x):
    out[:] = x + np.ones(1 << 34, np.uint8)[-1]


def raises(out, x):
    raise ZeroDivisionError("no")


def one_too_far(out, x):
    out[:] = x
    beyond(out, out.size)[0] = 1


def far_too_far(out, x):
    out[:] = x
    ctypes.memset(out.ctypes.data, 0, 1 << 27)


def reads_on(out, x):
    out[:] = x
    out[0, 0] = beyond(x, x.size)[0] == 1


def in_a_thread(out, x):
    out[:] = x
    thread = threading.Thread(target=one_too_far, args=(out, x))
    thread.start()
    thread.join()


MISDEEDS = {
    null: ("Crash", "ended its process by SIGSEGV at address 0x8"),
    aborts: ("Crash", "ended its process by SIGABRT (malloc(): unaligned tcache chunk detected)"),
    leaves: ("Crash", "ended its process with exit status 1"), leaves_at_once: ("Crash", "ended its process with exit status 0"),
    hangs: ("Crash", "did not end within 1 s and was killed"), hoards: ("Crash", "raised MemoryError"),
    raises: ("Crash", "raised ZeroDivisionError: no"), one_too_far: ("Overrun", "0 bytes behind the end of"),
    far_too_far: ("Crash", "ended its process by SIGSEGV at address"), reads_on: ("UndeclaredRead", "0 bytes behind the end of"),
    in_a_thread: ("Overrun", "in thread"),
}  # fmt: skip


@pytest.fixture
def own():
    """Add a kernel of the user's that was honest where it was tried, and return a program in which it is not any more."""

    def made(misdeed):
        tried = []

        def forward(out, x):
            if tried:
                misdeed(out, x)
            else:
                out[:] = x

        custom_op("mine", forward)
        graph = Graph("own")
        y = graph.op("scale", graph.op("mine", graph.op("exp", graph.input("x", (8, 16)))), s=2.0)
        graph.expand(y)
        tried.append(True)
        return lower(graph, (y,))

    yield made
    forget("mine")


@pages
@pytest.mark.parametrize("misdeed", MISDEEDS, ids=lambda f: f.__name__)
def test_each_misdeed_is_answered_with_its_op(own, misdeed):
    lowered = own(misdeed)
    plan = find("ggml").plan(lowered.program)
    found = foreign(
        lowered, plan, {"x": np.ones((8, 16), np.float32)}, seconds=1 if misdeed is hangs else 60, memory=1 << 31
    )
    kind, words = MISDEEDS[misdeed]
    step = next(op.step for op in lowered.program.ops if op.kind == "mine")
    assert {i.op for i in found} == {step}
    assert kind in {i.kind for i in found}, found
    assert any(words in i.message for i in found), found
    verdict = judge(Evidence(document=Document.of(plan), sanitizer=found))
    assert {cause.party for cause in verdict.causes} == {"kernel"}


@pages
def test_an_op_whose_kernel_writes_too_far_is_refused_and_nothing_of_it_ran_here():
    with pytest.raises(
        EngineError, match=r"^mine: its kernel is at fault: op 1 \(.*writes bytes .*outside its results"
    ):
        custom_op("mine", one_too_far)
    with pytest.raises(EngineError, match=r"^mine: its kernel is at fault: .* ended its process by SIGABRT"):
        custom_op("mine", aborts)


@pages
def test_a_shape_at_which_a_kernel_writes_too_far_is_refused_and_nothing_of_it_ran_here():
    custom_op("mine", lambda out, x: far_too_far(out, x) if x.size > 99 else np.copyto(out, x))
    graph = Graph("own")
    try:
        with pytest.raises(
            EngineError, match=r"mine: its kernel is at fault: op 1 \(mine\) ended its process by SIGSEGV"
        ):
            graph.op("mine", graph.input("x", (8, 16)))
    finally:
        forget("mine")


def test_a_program_without_kernels_of_the_users_begins_no_child():
    graph = Graph("plain")
    graph.expand(graph.op("exp", graph.input("x", (4,))))
    lowered = lower(graph)
    assert foreign(lowered, find("ggml").plan(lowered.program), {}) == ()


def test_a_child_says_what_it_came_to():
    told = in_child(lambda child: (child.say(1, "two"), child.at(4, 5)))
    assert (told.messages, told.whole, told.place, told.how) == ((1, "two"), True, (4, 5), "")
    told = in_child(lambda child: (child.say(1), os._exit(7)))
    assert (told.messages, told.whole, told.how) == ((1,), False, "ended its process with exit status 7")
    assert in_child(lambda _: np.ones(1 << 40, np.uint8), memory=1 << 30).raised.startswith("MemoryError: Unable")
