"""Parts of a call at once: the bits of the whole, in a forked process, from several threads, in a busy pool."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from threading import Barrier, Event, get_ident

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from allocsim.allocators import find
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS, threads
from engine.kernels.binding import in_turn
from engine.runtime import Runtime
from engine.tape import team

WAIT = 60
"""Seconds after which a test that would hang fails."""


def normal(*shape):
    return np.random.default_rng(list(shape)).standard_normal(shape).astype("f4")


Q, K, V, GRAD = normal(2, 6, 150, 64), normal(2, 3, 160, 64), normal(2, 3, 160, 48), normal(2, 6, 150, 48)
CAUSAL = np.where(np.tri(150, 160, 10) == 1, 0, -np.inf).astype("f4")
X, W, DY = normal(2, 3, 20, 21), normal(9, 3, 3, 2), normal(2, 9, 20, 12)
WINDOWS = {"stride": (1, 2), "padding": (1, 2), "dilation": (1, 1)}
CASES = {
    "attention": ({"scale": 0.2}, (Q, K, V), GRAD.shape),
    "attention, causal": ({"scale": 0.2, "causal": True}, (Q, K, V, CAUSAL), GRAD.shape),
    "attention_back": ({"scale": 0.2}, (GRAD, Q, K, V), (Q.size + K.size + V.size,)),
    "attention_back, causal": ({"scale": 0.2, "causal": True}, (GRAD, Q, K, V, CAUSAL), (Q.size + K.size + V.size,)),
    "conv_2d": (WINDOWS, (X, W), DY.shape),
    "conv_2d, many images": (WINDOWS | {"padding": (1, 0)}, (normal(21, 3, 4, 6), W), (21, 9, 4, 3)),
    "conv_2d_back_x": (WINDOWS | {"shape": X.shape}, (DY, W), X.shape),
    "conv_2d_back_w": (WINDOWS | {"shape": W.shape}, (DY, X), W.shape),
}


@pytest.fixture
def eager(monkeypatch):
    """Cut every call, however small; return what says how many threads there are."""
    monkeypatch.setattr(threads, "SHARE", 1)
    monkeypatch.setattr(threads, "_limits", threads._Limits())
    return lambda count: monkeypatch.setattr(threads, "allowed", lambda: count)


def bound(case, out):
    params, operands, _ = CASES[case]
    (kernel,) = KERNELS[case.split(",")[0]].values()
    return kernel.bind(params, operands, (out,))


def done(case):
    out = np.full(CASES[case][2], np.nan, "f4")
    in_turn(bound(case, out))
    return out.tobytes()


@pytest.mark.parametrize("case", CASES)
def test_the_bits_do_not_depend_on_the_number_of_threads(eager, case):
    found = []
    for count in (1, 2, 3):
        eager(count)
        found.append(done(case))

    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("conv")])
def test_a_large_convolution_is_cut(eager, case):
    eager(2)
    function, args = bound(case, np.empty(CASES[case][2], "f4"))
    calls = [(function, args)] if function is threads.at_once else args

    assert [len(parts) for function, parts in calls if function is threads.at_once] == [2] * len(calls)


def test_bound_for_several_threads_and_called_with_one_it_has_the_same_bits(eager):
    out = np.full(DY.shape, np.nan, "f4")
    eager(2)
    call = bound("conv_2d", out)
    eager(1)
    in_turn(call)

    assert out.tobytes() == done("conv_2d")


def meet():
    """Do two calls that wait for each other: it ends only if they run at once."""
    barrier = Barrier(2)
    threads.at_once(*[(barrier.wait, (WAIT,))] * 2)


def test_a_forked_process_has_threads_of_its_own(eager):
    eager(2)
    meet()
    child = get_context("fork").Process(target=meet)
    child.start()
    child.join()

    assert child.exitcode == 0


def test_no_more_threads_work_than_are_allowed(eager):
    eager(2)
    seen = set()
    threads.at_once(*[(lambda: seen.add(get_ident()), ())] * 50)

    assert len(seen) <= 2


def test_several_threads_at_once_get_the_bits_of_one(eager):
    eager(1)
    wanted = [done(case) for case in CASES]
    eager(3)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(4) as users:  # its own threads would wait by turning
        found = list(users.map(lambda _: [done(case) for case in CASES], range(8)))

    assert found == [wanted] * 8


def test_what_a_busy_pool_has_not_begun_the_caller_does(eager, monkeypatch):
    eager(3)
    busy, end, seen = threads._Shared(), Event(), []
    monkeypatch.setattr(threads, "_shared", [busy])
    with ThreadPoolExecutor(1) as pool:
        busy.pool = pool
        pool.submit(end.wait, WAIT)
        try:
            threads.at_once(*[(seen.append, (i,)) for i in range(3)])
        finally:
            end.set()

    assert sorted(seen) == [0, 1, 2]


def test_without_a_pool_the_caller_does_all(eager, monkeypatch):
    eager(3)
    ended, seen = threads._Shared(), []
    ended.pool = ThreadPoolExecutor(1)
    ended.pool.shutdown()
    monkeypatch.setattr(threads, "_shared", [ended])
    threads.at_once(*[(seen.append, (i,)) for i in range(3)])

    assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("bad", ["the caller's", "the other"])
def test_an_error_of_one_part_is_raised_when_the_other_is_done(eager, bad):
    eager(2)
    barrier, seen = Barrier(2), []

    def part(name):
        barrier.wait(WAIT)
        if name == bad:
            raise ValueError(name)
        seen.append(sum(range(100_000)))

    with pytest.raises(ValueError, match=bad):
        threads.at_once((part, ("the caller's",)), (part, ("the other",)))

    assert len(seen) == 1


def test_other_threads_treat_infinities_as_the_caller_does(eager):
    eager(2)
    barrier, found = Barrier(2), []

    def part():
        barrier.wait(WAIT)
        found.append(np.geterr())

    with np.errstate(all="ignore", divide="call"):
        wanted = np.geterr()
        threads.at_once((part, ()), (part, ()))

    assert found == [wanted] * 2


def test_small_calls_and_single_pieces_stay_whole(monkeypatch):
    monkeypatch.setattr(threads, "_limits", threads._Limits())
    monkeypatch.setattr(threads, "allowed", lambda: 4)

    woken = threads.WOKEN * threads.SHARE
    assert [threads.parts(work, 100) for work in (2 * woken - 1, 2 * woken, 100 * woken)] == [1, 2, 4]
    assert [threads.parts(100 * woken, units) for units in (0, 1, 3)] == [1, 1, 3]
    monkeypatch.setattr(threads, "allowed", lambda: 1)
    assert threads.parts(100 * threads.SHARE, 100) == 1


def test_parts_make_up_the_whole():
    for count in (1, 2, 3):
        assert [i for kept in threads.cut(7, count) for i in range(7)[kept]] == list(range(7))


def test_as_many_threads_are_allowed_as_blas_may_use(monkeypatch):
    monkeypatch.setattr(threads, "_limits", threads._Limits())
    for count in (1, 2):
        with threadpool_limits(count, user_api="blas"):
            assert threads.allowed() == count


def test_a_runtime_of_one_thread_binds_whole_calls(monkeypatch):
    """The number is set before calls are bound."""
    monkeypatch.setattr(threads, "SHARE", 1)
    graph = Graph("small")
    x, w = graph.input("x", DY.shape), graph.parameter("w", (3, 9, 1, 1))
    y = graph.op("conv_2d", x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1))
    graph.expand(y)
    lowered = lower(graph, (y,))
    plan, given = find("reference").plan(lowered.program), {"w": normal(3, 9, 1, 1)}
    used = {}
    for count in (1, 2):
        with threadpool_limits(2, user_api="blas"), Runtime(lowered, plan, parameters=given, threads=count) as runtime:
            used[count] = team.in_parts in [function for function, _ in runtime._calls]

    assert used == {1: False, 2: True}
