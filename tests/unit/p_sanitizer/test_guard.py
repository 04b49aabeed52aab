"""Guard pages: what an op does not declare is a fact, with its op; what honest kernels do is not."""

import os
import random
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

import allocsim
from allocsim.errors import ModelError
from allocsim.model import Role
from allocsim.p_sanitizer import guard
from allocsim.p_sanitizer.guard import FIRST, Guard, _pages, twice

pytestmark = pytest.mark.skipif(bool(guard.why_not()), reason=guard.why_not())

BAD = 3
WAYS = ("end", "begin")


def program(shapes=((64,), (64,)), out=(64,), dtype="f32", made=None):
    """Upload the operands, make `spare` (live) from the first, then op 3: y = f(operands), and hand all of it out."""
    b = allocsim.ProgramBuilder("one")
    xs = [b.tensor(f"x{n}", dtype, shape) for n, shape in enumerate(shapes)]
    spare, gone, y = b.tensor("spare", "u8", (64,)), b.tensor("gone", "u8", (64,)), b.tensor("y", made or dtype, out)
    b.op("host.write", (), (*xs, gone), name="x")
    b.op("h", (gone,), (spare,))
    b.op("g", (spare,), (b.tensor("early", "u8", (64,)),))
    b.op("f", tuple(xs), (y,))
    b.op("host.read", (y, spare, *xs), ())
    return b.build()


def run(kernel, pages, *, runs=1, **how):
    """Run `kernel(*operands, out)` as op 3, and what is left behind as a part of op 4; return the arena."""
    made = program(**how)
    arena = allocsim.sanitized(made, [n << 19 for n in range(len(made.buffers))], pages=pages)
    rng = np.random.default_rng(5)
    for _ in range(runs):
        with arena.run():
            for op in made.ops:
                with arena.op(op.step) as (operands, results):
                    if op.kind == "host.write":
                        for x in results:
                            x[...] = (
                                rng.integers(0, 2, x.shape) if x.dtype.kind in "b?" else rng.integers(1, 9, x.shape)
                            )
                    elif op.kind in "hg":
                        results[0][:] = operands[0]
                    elif op.kind == "f":
                        kernel(*operands, *results)
                    else:
                        for ready, thread in LEFT:
                            ready.set()
                            thread.join()
                        LEFT.clear()
    return arena


LEFT: list[tuple[threading.Event, threading.Thread]] = []


def reaching(view, element, count=1):
    """Return elements that lie outside a view, as a kernel that goes too far reads them."""
    start = view.ctypes.data + element * view.itemsize
    return np.ctypeslib.as_array((np.ctypeslib.as_ctypes_type(view.dtype) * count).from_address(start))


def equality(x, _, out):
    out[:] = x
    out[0] = reaching(x, 64)[0] == 1


def clamped(x, _, out):
    out[:] = x
    out[0] = np.clip(reaching(x, 64)[0], 3, 3)


def before(x, _, out):
    out[:] = x + (reaching(x, -1)[0] == 1)


def own_result(x, _, out):
    out[:] = x + (out[5] == 1)


def one_too_many(x, _, out):
    out[:] = x
    reaching(out, 64)[:] = 0


def one_before(x, _, out):
    out[:] = x
    reaching(out, -1)[:] = 0


def undone(x, _, out):
    x[3], kept = 0, x[3]
    out[:] = x
    x[3] = kept


def undone_behind(x, _, out):
    there = reaching(out, 64)
    kept = there.copy()
    there[:] = 5
    there[:] = kept
    out[:] = x


def in_a_thread(x, _, out):
    thread = threading.Thread(target=equality, args=(x, _, out))
    thread.start()
    thread.join()


def left_behind(_x, _y, out):
    out[:] = 1
    ready = threading.Event()

    def late():
        ready.wait()
        out[7] = 1

    thread = threading.Thread(target=late)
    thread.start()
    LEFT.append((ready, thread))


MISDEEDS = {
    equality: ({"UndeclaredRead"}, {"end"}), clamped: ({"UndeclaredRead"}, {"end"}), before: ({"UndeclaredRead"}, {"begin"}),
    own_result: ({"UndeclaredRead"}, {"end", "begin"}), one_too_many: ({"Overrun"}, {"end"}), one_before: ({"Overrun"}, {"begin"}),
    undone: ({"OperandWritten"}, {"end", "begin"}), undone_behind: ({"Overrun", "UndeclaredRead"}, {"end"}),
    in_a_thread: ({"UndeclaredRead"}, {"end"}), left_behind: ({"Overrun"}, {"end", "begin"}),
}  # fmt: skip
"""Misdeed -> the kinds of its faults, and how buffers must lie for these."""


@pytest.mark.parametrize("misdeed", MISDEEDS, ids=lambda f: f.__name__)
def test_a_misdeed_is_a_fault_of_its_op(misdeed):
    kinds, seen = MISDEEDS[misdeed]
    for pages in WAYS:
        arena = run(misdeed, pages)
        faults = [i for i in arena.incidents if i.witness]
        assert {i.op for i in faults} <= {BAD}, arena.report()
        assert not seen.issuperset({pages}) or {i.kind for i in faults} == kinds, arena.report()


def test_a_fault_says_byte_instruction_and_thread():
    (incident,) = run(equality, "end").incidents
    assert incident.witness.startswith("0 bytes behind the end of x0, instruction 0x")
    assert "umath" in incident.witness  # the library that read
    (incident,) = run(in_a_thread, "end").incidents
    assert ", in thread " in incident.witness
    found = run(left_behind, "end")
    assert f"which op {BAD} had begun and left behind, while op 4 ran" in found.incidents[0].witness
    assert "examined: pages: each buffer on pages of its own; 0 of 5 ops share a page" in found.report()


def test_a_walk_over_many_pages_is_told_once():
    arena = run(lambda x, _, out: np.copyto(out, x) or reaching(x, 64, 6000).sum(), "end")
    assert {(i.kind, i.op) for i in arena.incidents} == {("UndeclaredRead", BAD)}
    assert len(arena.incidents) <= 3  # before, between and behind what it declares


# --- honest kernels


@numba.njit(parallel=True)
def _spread(x, y, out):
    for i in numba.prange(len(x)):
        out[i] = x[i] + y[i]


def _pooled(x, y, out):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda at: np.add(x[at : at + 9], y[at : at + 9], out[at : at + 9]), range(0, len(x), 9)))


def _workspace(x, y, out):
    work = np.empty((4, *x.shape), x.dtype)
    work[:] = x
    np.sum(work, axis=0, out=out)
    out -= y


def _windows(x, y, out):
    out[:] = np.lib.stride_tricks.sliding_window_view(x, len(y)) @ y


HONEST = {
    "add": (np.add, {}), "multiply, 7": (np.multiply, {"shapes": ((7,), (7,)), "out": (7,)}),
    "exp": (lambda x, _, out: np.exp(x, out), {}), "copy": (lambda x, _, out: np.copyto(out, x), {}),
    "numba, parallel": (_spread, {"shapes": ((513,), (513,)), "out": (513,)}),
    "threads that it joins": (_pooled, {}), "workspace": (_workspace, {}),
    "in place over its result": (lambda x, y, out: (np.copyto(out, x), np.add(out, y, out)), {}),
    "zeros, then sums": (lambda x, y, out: (out.fill(0), np.add.at(out, np.arange(64), x), np.add(out, y, out)), {}),
    "BLAS, 64": (np.matmul, {"shapes": ((64, 64), (64, 64)), "out": (64, 64)}),
    "BLAS, odd": (np.matmul, {"shapes": ((13, 37), (37, 11)), "out": (13, 11)}),
    "BLAS, f64": (np.matmul, {"shapes": ((33, 65), (65, 31)), "out": (33, 31), "dtype": "f64"}),
    "BLAS, large": (np.matmul, {"shapes": ((130, 300), (300, 257)), "out": (130, 257)}),
    "BLAS, transposed": (lambda x, y, out: np.matmul(x.T, y, out), {"shapes": ((37, 13), (37, 11)), "out": (13, 11)}),
    "BLAS, into a transposed view": (lambda x, y, out: np.matmul(y.T, x.T, out.T), {"shapes": ((13, 37), (37, 11)), "out": (13, 11)}),
    "BLAS, vector": (np.matmul, {"shapes": ((19, 31), (31,)), "out": (19,)}),
    "BLAS, dot": (np.dot, {"shapes": ((1, 67), (67, 1)), "out": (1, 1), "dtype": "f64"}),
    "broadcast": (lambda x, y, out: np.add(x[:, None], y[None], out), {"shapes": ((8,), (5,)), "out": (8, 5)}),
    "stride 0": (lambda x, _, out: np.copyto(out, np.broadcast_to(x[:1], (64,))), {}),
    "every second element": (lambda x, y, out: (np.add(x[::2], y[::2], out[::2]), np.add(x[1::2], y[1::2], out[1::2])), {}),
    "backwards": (lambda x, y, out: np.add(x[::-1], y, out[::-1]), {}),
    "sums": (lambda x, y, out: np.sum(x, keepdims=True, out=out), {"out": (1,)}),
    "cumulative sum": (lambda x, y, out: np.cumsum(x, out=out), {}),
    "sorted": (lambda x, y, out: (np.copyto(out, x), out.sort()), {}),
    "u8": (np.add, {"dtype": "u8", "shapes": ((1001,), (1001,)), "out": (1001,)}),
    "bool": (np.logical_and, {"dtype": "bool", "shapes": ((77,), (77,)), "out": (77,)}),
    "f16": (np.multiply, {"dtype": "f16", "shapes": ((21,), (21,)), "out": (21,)}),
    "complex": (np.multiply, {"dtype": "c64"}), "a comparison": (np.greater, {"made": "bool"}),
    "empty": (np.add, {"shapes": ((0,), (0,)), "out": (0,)}), "windows": (_windows, {"shapes": ((64,), (5,)), "out": (60,)}),
    "solve": (lambda x, y, out: np.copyto(out, np.linalg.lstsq(x, y)[0]), {"shapes": ((9, 9), (9,)), "out": (9,), "dtype": "f64"}),
    "einsum": (lambda x, y, out: np.einsum("ij,kj->ik", x, y, out=out), {"shapes": ((5, 7), (6, 7)), "out": (5, 6)}),
}  # fmt: skip


def test_honest_kernels_are_not_accused():
    assert len(HONEST) >= 30
    for name, (kernel, how) in HONEST.items():
        for pages in ("shared", *WAYS):
            arena = run(kernel, pages, **how)
            assert arena.clean, f"{name}, {pages}: {arena.report()}"


# --- the machinery


@pytest.mark.parametrize("seed", range(40))
def test_pages_have_the_rights_of_what_lies_on_them(seed):
    """Against a table of every page: read, written first, or both."""
    rng, size = random.Random(seed), os.sysconf("SC_PAGESIZE")
    spans = [
        (low, low + rng.choice((0, 1, 100, size, 3 * size)), rng.random() < 0.5)
        for low in (rng.randrange(20 * size) for _ in range(rng.randint(0, 6)))
    ]
    table = {}
    for low, high, write in spans:
        for page in range(low // size, -(-high // size)) if low < high else ():
            table[page] = table.get(page, 0) | (2 if write else 1)
    found = {}
    for low, high, right in _pages(spans, 0):
        for page in range(low // size, high // size):
            assert page not in found
            found[page] = {1: 1, 3: 3, FIRST: 2}[right]
    assert found == table


def test_rights_and_handlers_are_back_whatever_happens():
    handler = signal.getsignal(signal.SIGSEGV)
    memory, view = twice(1 << 14)
    made = Guard(view, [[(0, 100, True)]])
    for _ in range(3):
        made.arm()
        made.enter(0)
        view[0] = 3
        child = os.fork()
        if not child:
            view[9000] = 1  # a fork is another process, with rights of its own
            os._exit(view[9000])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert made.leave() == ()
        made.release()
        view[:] = 7
        assert memory[12345] == 7
    assert signal.getsignal(signal.SIGSEGV) is handler

    def raises(*_):
        raise ValueError("no")

    made = program()
    arena = allocsim.sanitized(made, [4096 * n for n in range(len(made.buffers))], pages="end")
    with pytest.raises(ValueError, match="no"), arena.run(), arena.op(0) as (_, results):
        raises()
    results[0][:] = 1
    assert arena.value(0)[0] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_fault_elsewhere_ends_the_process_as_before():
    def null(_x, _y, out):
        out[:] = 0
        np.ctypeslib.as_array((np.ctypeslib.as_ctypes_type(np.dtype("u1")) * 1).from_address(8))[0] = 1

    made = program()

    def kernel(op, operands, results):
        if op.kind == "f":
            null(*operands, *results)
        for result in results:
            result[...] = 1

    found = allocsim.watched(made, [4096 * n for n in range(len(made.buffers))], kernel, pages="end", runs=1)
    assert [(i.kind, i.op) for i in found.incidents] == [("Crash", BAD)]
    assert "ended its process by SIGSEGV at address 0x8" in found.incidents[0].message


def test_the_strict_mode_finds_what_poison_cannot():
    """A read of a live byte that it does not declare, and a write that it undoes."""
    made = program(shapes=((16,), (16,)), out=(16,), dtype="u8")
    names = {name: n for n, name in enumerate(made.buffers.names)}
    seen = {}

    def kernel(op, operands, results):
        for value, view in zip((*op.operands, *op.results), (*operands, *results), strict=True):
            seen[int(made.values.buffer[value])] = view
        for result in results:
            result[...] = 1
        if op.kind == "f":
            results[0][0] = seen[names["spare"]][5] == 1

    slots = [256 * n for n in range(len(made.buffers))]
    assert allocsim.watched(made, slots, kernel, runs=1, twice=True).clean
    found = allocsim.watched(made, slots, kernel, runs=1, strict=True)
    assert [(i.kind, i.op) for i in found.incidents] == [("UndeclaredRead", BAD)]
    assert "byte 5 of spare" in found.incidents[0].witness
    lines = found.report().split("\n")
    assert sum(line.startswith("examined: ") for line in lines) == 2


def test_what_cannot_be_guarded_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(guard, "why_not", lambda: "no C compiler made the handler (there is none)")
    with pytest.raises(ModelError, match=r"^pages cannot be guarded here: no C compiler made the handler"):
        run(np.add, "end")
    b = allocsim.ProgramBuilder("p")
    b.op("f", (), (b.tensor("w", "f32", (4,), role=Role.TEMPORARY),))
    assert allocsim.sanitized(b.build(), [0]).pages is None


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted as Linux lists them")
def test_the_handler_is_made_once_where_a_cache_can_be_kept(tmp_path, monkeypatch):
    for cache in (tmp_path / "cache", tmp_path / "file" / "cache"):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        guard._library.cache_clear()
        assert guard._library().guard_arm
    assert [path.suffix for path in (tmp_path / "cache" / "allocsim").iterdir()] == [".so"]
    guard._library.cache_clear()
