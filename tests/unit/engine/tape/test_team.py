"""Parts of a call shared without Python: each is done once, to the bits of the whole, by no more threads than are allowed."""

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from threading import enumerate as threads_alive

import numba
import numpy as np
import pytest
from numba import types
from threadpoolctl import threadpool_info, threadpool_limits

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS, threads, tiles
from engine.kernels.binding import Workspace, in_turn
from engine.runtime import Runtime
from engine.tape import team
from engine.tape.loops import ANYHOW


def normal(*shape, dtype="f4"):
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(dtype)


def causal(length):
    return np.where(np.tri(length) == 1, 0, -np.inf).astype("f4")


X, LONG, IDS = normal(70, 5, 24), normal(3, 5001), np.arange(70, dtype="i4")
ONE = np.ones(1, "f4")
CASES = {
    "rows": ("rms_norm", {"eps": 1e-5}, (LONG,), LONG.shape),
    "rows of two": ("norm_back", {"eps": 1e-5}, (X, X[::-1].copy()), X.shape),
    "rows, strided": ("rms_norm", {"eps": 1e-5}, (normal(24, 70).T,), (70, 24)),
    "elements": ("silu_back", {}, (LONG, LONG), LONG.shape),
    "elements, whole blocks": ("gelu", {}, (normal(4, 1024),), (4, 1024)),
    "heads and a mask": ("soft_max", {"scale": 0.3}, (normal(7, 20, 20), causal(20)), (7, 20, 20)),
    "one head and its mask": ("soft_max", {}, (normal(20, 20), causal(20)), (20, 20)),
    "rope": ("rope", {"base": 1e4}, (X, IDS), X.shape),
    "rope of heads in rows": ("rope_back", {"base": 1e4, "mode": "neox"}, (normal(70, 24, 5).transpose(0, 2, 1), IDS), X.shape),
    "classes": ("cross_entropy_classes_back", {}, (ONE, normal(9, 33), np.arange(9, dtype="i4")), (9, 33)),
    "labels": ("cross_entropy_loss_back", {}, (ONE, normal(9, 33), normal(9, 33)), (9, 33)),
    "columns": ("mul_mat", {}, (normal(250, 96), normal(32, 96)), (32, 250)),
    "few matrices": ("out_prod", {}, (normal(3, 40, 64), normal(3, 40, 50)), (3, 50, 64)),
    "grouped heads": ("mul_mat", {}, (normal(3, 64, 50), normal(9, 40, 50)), (9, 40, 64)),
    "many matrices": ("mul_mat", {}, (normal(1, 64, 50), normal(20, 40, 50)), (20, 40, 64)),
    "added": ("add_out_prod", {}, (normal(40, 300), normal(64, 300), normal(64, 40)), (40, 300)),
    "attention": ("attention", {"scale": 0.2}, (normal(6, 15, 64), normal(3, 16, 64), normal(3, 16, 48)), (6, 15, 48)),
    "convolution": ("conv_2d", {"stride": (1, 2), "padding": (1, 2), "dilation": (1, 1)},
                    (normal(2, 3, 20, 21), normal(9, 3, 3, 2)), (2, 9, 20, 12)),
}  # fmt: skip


@pytest.fixture
def eager(monkeypatch):
    """Cut every call, however small; return what says how many threads there are."""
    monkeypatch.setattr(threads, "SHARE", 1)
    monkeypatch.setattr(threads, "_limits", threads._Limits())
    monkeypatch.setattr(tiles, "pays", lambda *_: True)

    def allow(count):
        threads._limits.now = count

    return allow


def calls_of(call):
    function, args = call
    return [inner for part in args for inner in calls_of(part)] if function is in_turn else [function]


def done(case, variant):
    kind, params, operands, shape = CASES[case]
    out = np.full(shape, np.nan, "f4")
    call = team.shared(Workspace().bind(KERNELS[kind][variant], params, operands, (out,)))
    in_turn(call)
    return call, out.tobytes()


@pytest.mark.parametrize("case", CASES)
def test_parts_have_the_bits_of_the_whole(eager, case):
    for variant in set(KERNELS[CASES[case][0]]) - {"blas"}:
        eager(1)
        whole, wanted = done(case, variant)
        assert team.in_parts not in calls_of(whole)
        for count in (2, 3, 8):
            eager(count)
            call, found = done(case, variant)
            assert team.in_parts in calls_of(call)
            assert found == wanted, count


@pytest.mark.parametrize("kind", ["mul_mat", "out_prod", "add_out_prod"])
def test_what_blas_multiplies_is_cut_while_it_has_one_thread(eager, kind):
    """The products agree to rounding: a BLAS may add up the columns of a part in another order."""
    a, b = (normal(250, 96, dtype="f8"), normal(32, 96, dtype="f8")) if kind == "mul_mat" else (normal(40, 250, dtype="f8"), normal(40, 32, dtype="f8"))  # fmt: skip
    want = b @ a.T if kind == "mul_mat" else b.T @ a
    operands = (np.zeros((32, 250)), a, b) if kind == "add_out_prod" else (a, b)
    for count in (1, 2, 3):
        eager(count)
        out = np.full((32, 250), np.nan)
        call = team.shared(KERNELS[kind]["blas"].bind({}, operands, (out,)))
        in_turn(call)
        assert (team.in_parts in calls_of(call)) == (count > 1)
        np.testing.assert_allclose(out, want, rtol=1e-13, atol=1e-13)


def test_a_result_that_meets_an_operand_is_computed_whole(eager):
    """Its numbers are wrong, and the same in every run."""
    eager(3)
    memory = normal(30 * 20 + 7)
    x, y = memory[:600].reshape(30, 20), memory[7:607].reshape(30, 20)
    call = KERNELS["rms_norm"]["one_pass"].bind({"eps": 1e-5}, (x,), (y,))
    square = memory[:400].reshape(20, 20)
    product = KERNELS["mul_mat"]["blas"].bind({}, (square, normal(20, 20)), (memory[100:500].reshape(20, 20),))

    assert threads.at_once not in (call[0], product[0])
    assert KERNELS["rms_norm"]["one_pass"].bind({"eps": 1e-5}, (x,), (x,))[0] is threads.at_once


def counters(parts):
    """Return counters, and a call whose parts each add one to one of them."""
    found, ones = np.zeros((parts, 8), "f4"), np.ones(8, "f4")
    return found, team.shared((threads.at_once, tuple((np.add, (row, ones, row)) for row in found)))


@pytest.mark.parametrize("parts", [2, 3, 64])
def test_each_part_is_done_once_in_each_of_many_turns(eager, parts):
    """Also where parts are too short for a helper to be in time, and so meet the next turn."""
    eager(2)
    found, (function, args) = counters(parts)
    assert function is team.in_parts
    for _ in range(3000):
        function(*args)

    assert (found == 3000).all()


def test_callers_do_not_wait_for_each_other(eager):
    """One has the board, the others do their parts alone."""
    eager(3)
    mine = [counters(7) for _ in range(4)]

    def turns(call):
        for _ in range(500):
            in_turn(call)

    with ThreadPoolExecutor(4) as users:
        list(users.map(turns, [call for _, call in mine]))

    assert all((found == 500).all() for found, _ in mine)


def test_helpers_are_as_many_as_are_allowed_less_the_caller(eager, monkeypatch):
    monkeypatch.setattr(team, "_teams", [team._Team()])
    before = set(threads_alive())
    eager(3)
    _, call = counters(20)
    for _ in range(100):
        in_turn(call)
    made = {thread.name for thread in set(threads_alive()) - before}

    assert made == {"team-0", "team-1"}


def test_a_helper_that_is_no_longer_allowed_takes_no_part(eager, monkeypatch):
    monkeypatch.setattr(team, "_teams", [team._Team()])
    eager(3)
    found, (function, args) = counters(20)
    function(*args)
    eager(1)
    for _ in range(100):
        function(*args)

    assert (found == 101).all()


def child(call, found, report):
    for _ in range(100):
        in_turn(call)
    report.put(bool((found == found[0, 0]).all()))


def test_a_forked_child_has_a_team_of_its_own(eager):
    eager(2)
    found, call = counters(9)
    in_turn(call)
    context = get_context("fork")
    report = context.Queue()
    process = context.Process(target=child, args=(call, found, report))
    process.start()
    right = report.get(timeout=60)
    process.join()

    assert right
    assert process.exitcode == 0
    assert os.getpid() != process.pid


@numba.cfunc(types.int32(types.int64, types.int64))
def _fails(_shared, _own):
    return 1


def test_a_kernel_that_fails_is_told_when_the_others_are_done(eager, monkeypatch):
    eager(2)
    found = np.zeros(8, "f4")
    real = team.coded
    monkeypatch.setattr(
        team, "coded", lambda part: [(_fails.address, [0], [found], ANYHOW)] if part[0] is None else real(part)
    )
    function, args = team.shared((threads.at_once, ((None, ()), (np.add, (found, np.ones(8, "f4"), found)))))
    with pytest.raises(EngineError, match="shared between threads"):
        function(*args)

    assert (found == 1).all()


def test_what_has_no_entries_is_left_to_the_pool(eager):
    eager(2)
    call = threads.at_once, ((print, ()), (print, ()))

    assert team.shared(call) is call
    assert team.shared((np.add, ())) == (np.add, ())


def blas_threads():
    return [row["num_threads"] for row in threadpool_info() if row["user_api"] == "blas"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_limits_are_given_back_in_any_order(monkeypatch, order):
    """BLAS has one thread while one of them holds, and then what it had."""
    monkeypatch.setattr(threads, "_limits", threads._Limits())
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        given = [threads.limit(count) for count in (2, 3, 4)]
        left = [2, 3, 4]
        for index in order:
            assert threads.allowed() == left[-1]
            assert set(blas_threads()) == {1}
            given[index]()
            given[index]()  # twice is once
            left.remove((2, 3, 4)[index])
        assert not threads._limits.counts
        assert blas_threads() == before


def test_a_runtime_that_nobody_closed_gives_its_threads_back(monkeypatch):
    gc.collect()  # those of other tests
    monkeypatch.setattr(threads, "_limits", threads._Limits())
    graph = Graph("small")
    y = graph.op("neg", graph.input("x", (4,)))
    graph.expand(y)
    lowered = lower(graph, (y,))
    before = threads.allowed(), blas_threads()
    runtime = Runtime(lowered, find("reference").plan(lowered.program), threads=7)
    assert threads.allowed() == 7
    del runtime
    gc.collect()

    assert (threads.allowed(), blas_threads()) == before


def test_a_limit_that_ends_while_another_begins_is_given_back_after_it(monkeypatch):
    """A collector may let a runtime go in the midst of it, in the same thread."""
    monkeypatch.setattr(threads, "_limits", threads._Limits())
    with threadpool_limits(2, user_api="blas"):
        first = threads.limit(5)
        real = threads._libraries

        def collected(modules):
            first()
            return real(modules)

        monkeypatch.setattr(threads, "_libraries", collected)
        second = threads.limit(3)
        assert (threads.allowed(), set(blas_threads())) == (3, {1})
        second()
        assert (threads._limits.now, blas_threads()) == (0, [2] * len(blas_threads()))


def test_without_a_thread_to_be_had_the_caller_does_all(eager, monkeypatch):
    def none(*_args, **_named):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(team, "_teams", [team._Team()])
    monkeypatch.setattr(team, "Thread", none)
    eager(3)
    found, call = counters(5)
    in_turn(call)

    assert (found == 1).all()


RANKS = [
    ((2, 2), (2, 4)),
    ((1, 2), (1, 4)),
    ((2, 2, 2), (2, 2, 2)),
    ((1, 2, 2), (3, 2, 4)),
    ((1,), (5,)),
    ((7, 1, 1), (7, 1, 3)),
]


@pytest.mark.parametrize("variant", ["tiles", "blas"])
@pytest.mark.parametrize(("small", "large"), RANKS)
def test_batches_of_any_rank_are_cut(eager, variant, small, large):
    a, b = normal(*small, 64, 32), normal(*large, 40, 32)
    want = b @ np.repeat(a, 1, 0).repeat(1, 0).swapaxes(-1, -2) if small == large else None
    for count in (1, 2, 3, 5):
        eager(count)
        out = np.full((*large, 40, 64), np.nan, "f4")
        in_turn(team.shared(KERNELS["mul_mat"][variant].bind({}, (a, b), (out,))))
        want = out.copy() if want is None else want
        np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


READS = {
    "a mask in the result": ("soft_max", lambda m: (normal(8, 20, 20), m[:400].reshape(20, 20)), (8, 20, 20)),
    "a seed in the result": ("cross_entropy_classes_back", lambda m: (m[:1], normal(9, 33), IDS[:9]), (9, 33)),
    "values in the result": ("attention", lambda m: (normal(2, 15, 64), normal(1, 16, 64), m[: 16 * 48].reshape(1, 16, 48)), (2, 15, 48)),
    "filters in the result": ("conv_2d", lambda m: (normal(2, 3, 20, 21), m[:162].reshape(9, 3, 3, 2)), (2, 9, 20, 12)),
}  # fmt: skip


@pytest.mark.parametrize("case", READS)
def test_what_is_read_whole_is_not_written_by_another_part(eager, case):
    kind, operands, shape = READS[case]
    memory = normal(int(np.prod(shape)))
    params = {**CASES["convolution"][1], "scale": 0.2}
    eager(3)
    call = next(iter(KERNELS[kind].values())).bind(params, operands(memory), (memory.reshape(shape),))

    assert threads.at_once not in calls_of(call)
