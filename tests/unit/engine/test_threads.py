"""Tensors, passes and kept programs from several threads: the bits of the serial run, and memory that is bounded."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import numpy as np
import pytest

import engine
from engine import tensor
from engine.front import functions as fn
from engine.front import kept, reverse

THREADS = 8
STRUCTURES = 6


def model(kind, x, w):
    """Small structures, alike but for their data: products, scratch (norms over strided rows), views, sums, matrix products."""
    if kind == 0:
        return ((x * w).tanh() * x + w.exp()).sum()
    if kind == 1:
        return ((x @ w.T).relu() @ w).sum()
    if kind == 2:
        return ((x.T * w.T).softmax() ** 2).sum()
    if kind == 3:
        return fn.cross_entropy(x @ w.T, [0, 1, 2, 0])
    if kind == 4:
        return ((x[1:] * w[:-1]).exp() / (1 + x[:1].exp())).sum()
    return fn.layer_norm(x.T.reshape(4, 4)).sigmoid().sum() * w.sum()


def gradients(number, allocator="ggml"):
    generator = np.random.default_rng(number)
    x, w = (tensor(generator.standard_normal((4, 4)).astype(np.float32), requires_grad=True) for _ in range(2))
    y = model(number % STRUCTURES, x, w)
    y.backward(allocator=allocator)
    return b"".join(t.grad.numpy().tobytes() for t in (x, w) if t.grad is not None)


@pytest.fixture
def switching():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    engine.clear()
    yield
    sys.setswitchinterval(before)
    engine.clear()


@pytest.mark.parametrize("allocator", ["ggml", "greedy_by_size", "reference"])
def test_eight_threads_leave_the_bits_of_one(switching, allocator):
    """Thousands of small passes over few structures: each thread meets programs that others made."""
    count = 1_500 if allocator == "ggml" else 600
    expected = [
        gradients(number, allocator) for number in range(600)
    ]  # data are drawn anew for each pass, from 600 seeds
    engine.clear()
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda number: gradients(number % 600, allocator), range(count), chunksize=7))
    assert [i for i, one in enumerate(found) if one != expected[i % 600]] == []


def test_threads_that_wait_for_one_another_have_a_program_each(switching):
    """Eight passes of one structure are under way at once; what they hold is apart."""
    programs = []
    gate = Barrier(THREADS)

    def hold(_number):
        with reverse._kept.lent("one", lambda: lambda: Weighing(1)) as program:
            gate.wait()
            programs.append(program)
            gate.wait()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(hold, range(THREADS)))
    assert len({id(program) for program in programs}) == THREADS
    assert engine.kept_bytes() == THREADS


def test_gradients_of_a_leaf_that_threads_share_are_all_added(switching):
    """Whole numbers, so that the order of the sums does not matter."""
    x = tensor(np.arange(4, dtype=np.float64), requires_grad=True)

    def add(_number):
        (x * 3.0).sum().backward()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(add, range(2_000)))
    assert x.grad.numpy().tolist() == [6_000.0] * 4


def test_threads_share_the_history_of_a_tensor_they_view(switching):
    """A change in place is seen by views that several threads took at once."""
    for _ in range(200):
        x = tensor(np.ones((4, 4), np.float32), requires_grad=True)
        base = x * 2.0
        with ThreadPoolExecutor(THREADS) as pool:
            views = list(pool.map(lambda _, base=base: base.T, range(THREADS)))
        assert len({id(view._node.shared) for view in views}) == 1


class Weighing:
    """What is lent, of some bytes."""

    def __init__(self, nbytes):
        self.nbytes = nbytes


def lend(programs, key, nbytes):
    with programs.lent(key, lambda: lambda: Weighing(nbytes)) as program:
        return program


def test_what_is_kept_is_bounded_in_bytes_and_the_oldest_goes_first():
    programs = kept.KeptPrograms(structures=3, nbytes=100)
    first = lend(programs, "a", 40)
    assert lend(programs, "a", 40) is first
    lend(programs, "b", 40)
    assert programs.nbytes == 80
    lend(programs, "c", 30)
    assert programs.nbytes == 70
    assert lend(programs, "a", 40) is not first, "its memory went, its plan stayed"
    lend(programs, "d", 10)
    assert len(programs) == 3
    lend(programs, "e", 101)
    assert programs.nbytes <= 100
    programs.clear()
    assert (programs.nbytes, len(programs)) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_count_is_that_of_what_lies_there(seed):
    """Any sequence of nested loans, failures and clearings: the number of bytes is the sum over what is idle, within the limit."""
    generator = np.random.default_rng(seed)
    programs = kept.KeptPrograms(structures=4, nbytes=200)

    def go(depth):
        key = int(generator.integers(0, 8))
        with programs.lent(key, lambda: lambda: Weighing(10 * key + 5)):
            if depth and generator.random() < 0.7:
                go(depth - 1)
            if generator.random() < 0.1:
                programs.clear()
            if generator.random() < 0.2:
                raise RuntimeError

    for _ in range(100):
        with suppress(RuntimeError):
            go(5)
        idle = [one for structure in programs._known.values() for one in structure.idle]
        assert programs.nbytes == sum(one.nbytes for one in idle) <= 200
        assert len({id(one) for one in idle}) == len(idle)
        assert len(programs) <= 4


def test_a_pass_that_failed_is_not_kept():
    programs = kept.KeptPrograms()
    with pytest.raises(ZeroDivisionError), programs.lent("a", lambda: lambda: Weighing(7)):
        raise ZeroDivisionError
    assert programs.nbytes == 0


def test_kept_bytes_tell_and_clear_gives_back():
    engine.clear()
    assert engine.kept_bytes() == 0
    x = tensor(np.ones((64, 64), np.float32), requires_grad=True)
    (x.exp() * x.tanh()).sum().backward()
    first = engine.kept_bytes()
    assert first >= 64 * 64 * 4, "at least one gradient of that shape lies in the arena"
    before = x.grad.numpy()
    for _ in range(3):
        x.zero_grad()
        (x.exp() * x.tanh()).sum().backward()
        assert engine.kept_bytes() == first
    engine.clear()
    assert engine.kept_bytes() == 0
    x.zero_grad()
    (x.exp() * x.tanh()).sum().backward()
    assert x.grad.numpy().tobytes() == before.tobytes()


def test_what_exceeds_the_limit_alone_runs_and_is_not_kept(monkeypatch):
    monkeypatch.setattr(reverse, "_kept", kept.KeptPrograms(nbytes=1_000))
    x = tensor(np.ones((64, 64), np.float32), requires_grad=True)
    for _ in range(2):
        x.zero_grad()
        (x.exp() * x.tanh()).sum().backward()
        assert engine.kept_bytes() <= 1_000
    assert x.grad is not None
