"""Products by tiles: right in every layout and at every edge, the same bits wherever a number stands, and left to BLAS where they should be.

These run on every processor: where it has not the vectors LLVM takes them apart.
"""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsim.allocators import find
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS, threads, tiles, tuning, vector_width
from engine.kernels.compiled import entry, products, registers
from engine.runtime import Runtime
from engine.tape import team

SIZES = st.sampled_from([1, 2, 3, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 47, 64, 65, 95, 96, 97, 130, 193])
WIDTHS = st.sampled_from([48, 49, 59, 60, 64, 72, 95, 96, 97, 128, 150, 200])


def laid(values, *, turned, gap=0, offset=0):
    """Return an array equal to `values`, its last two axes turned in memory or not, NaN for `gap` numbers after each row and `offset` before all."""
    source = values.swapaxes(-1, -2) if turned else values
    shape = (*source.shape[:-1], source.shape[-1] + gap)
    array = np.full(np.prod(shape) + offset, np.nan, np.float32)[offset:].reshape(shape)[..., : source.shape[-1]]
    array[...] = source
    return array.swapaxes(-1, -2) if turned else array


def product(left, right, *, start=None, gap=0, offset=0):
    """Return what the tiles make of them, added to `start` if there is one."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    shape = (*batch, left.shape[-2], right.shape[-1])
    out = laid(np.full(shape, np.nan) if start is None else start, turned=False, gap=gap, offset=offset)
    assert tiles.fits(left, right, out)
    function, args = tiles.call(left, right, out, add=start is not None)
    function(*args)
    return out


@given(
    m=SIZES,
    k=SIZES,
    n=WIDTHS,
    turned=st.tuples(st.booleans(), st.booleans()),
    gap=st.integers(0, 3),
    add=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_product_is_that_of_float64(*, m, k, n, turned, gap, add, seed):
    """At every edge, in every orientation, with rows that lie apart, on its own and added to what is there; nothing beside is written."""
    rng = np.random.default_rng(seed)
    a, b, start = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    left, right = laid(a, turned=turned[0], gap=gap), laid(b, turned=turned[1], gap=gap)
    out = product(left, right, start=start if add else None, gap=gap)
    want = left.astype("f8") @ right.astype("f8") + (start.astype("f4") if add else 0)
    bound = 2e-7 * (k + 2) * (np.abs(left).astype("f8") @ np.abs(right).astype("f8") + np.abs(start))

    assert (np.abs(out - want) <= bound).all()
    beside = out.base[-m * (n + gap) :].reshape(m, n + gap)[:, n:]
    assert np.isnan(beside).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(530, 100, 60), (40, 9000, 50), (520, 700, 48), (20, 96, 1600), (130, 64, 100)]
)
def test_blocks_meet(m, k, n, turned):
    """More rows than are packed at a time, more terms than a block has, more columns than one is wide.

    The bound is no processor's: added up in float32 one term after the other, each product and sum rounded, these numbers err by a third of it at
    most, and tiles, fused or not, add up in several sums that are shorter.
    """
    rng = np.random.default_rng([m, k, n])
    left = laid(rng.standard_normal((m, k)), turned=False)
    right = laid(rng.standard_normal((k, n)), turned=turned)
    want = left.astype("f8") @ right.astype("f8")

    np.testing.assert_allclose(product(left, right), want, rtol=0, atol=2e-7 * np.sqrt(k) * np.abs(want).max())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4, 9, 20), (3, 1, 20, 60)),
        ((5, 9, 20), (1, 20, 60)),
        ((5, 9, 20), (5, 20, 60)),
        ((2, 2, 9, 20), (1, 1, 20, 60)),
    ],
)
def test_batches_broadcast(shapes, turned):
    """A batch axis of one goes over all of the other's."""
    rng = np.random.default_rng(1)
    left, right = (laid(rng.standard_normal(shape), turned=last and turned) for last, shape in enumerate(shapes))

    np.testing.assert_allclose(product(left, right), left.astype("f8") @ right.astype("f8"), atol=2e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_the_bits_of_a_number_hang_on_its_row_and_its_column_alone(turned):
    """Rows and columns in another order, or at another address, give the same bits in that order: edges are summed as all else is."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((45, 130)).astype("f4"), rng.standard_normal((130, 107)).astype("f4")
    plain = product(laid(a, turned=False), laid(b, turned=turned))
    rows, columns = rng.permutation(45), rng.permutation(107)
    mixed = product(
        laid(a[rows], turned=True, gap=1), laid(b[:, columns], turned=turned, gap=2, offset=3), gap=5, offset=1
    )

    assert np.array_equal(mixed.copy().view("i4"), plain.copy().view("i4")[rows][:, columns])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_poison_spreads_to_its_row_and_column_and_no_further(turned, poison):
    """A poisoned row of left taints a row of the result; a poisoned column of right taints a column; padding taints nothing."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((13, 40)), rng.standard_normal((40, 67))
    a[12, 5], b[7, 66] = poison, poison
    tainted = ~np.isfinite(product(laid(a, turned=False), laid(b, turned=turned)))

    assert tainted[12].all()
    assert tainted[:, 66].all()
    assert not tainted[:12, :66].any()


@pytest.mark.skipif(not vector_width.wide(), reason="other processors have no such word, or tiles are not used")
@pytest.mark.parametrize("turned", [False, True])
def test_numbers_below_the_normal_range_are_nothing_here_and_something_after(turned):
    """Products flush them to zero, operands and results; what is computed next is not touched by that."""
    tiny = np.float32(1e-40)
    a, b = np.full((16, 32), tiny), np.ones((32, 64), np.float32)
    assert not product(laid(a, turned=False), laid(b, turned=turned)).any()
    assert not product(
        laid(np.full((16, 32), 1e-30), turned=False), laid(np.full((32, 64), 1e-10), turned=turned)
    ).any()

    assert np.float32(1e-30) * np.float32(1e-10) > 0
    assert tiny * np.float32(1) == tiny


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda left, right, out: (left.astype("f8"), right, out), "dtype"),
        (lambda left, right, out: (left, right, out.astype("f8")), "dtype"),
        (lambda left, right, out: (left, right[:, ::2], out[:, :32]), "no unit stride"),
        (lambda left, right, out: (left, right, np.asfortranarray(out)), "out is turned"),
        (lambda left, right, out: (left, right[:, :47], out[:, :47]), "narrow"),
        (lambda left, right, out: (left[:, :0], right[:0], out), "no terms"),
        (lambda left, right, out: (left[None], right, out), "ranks"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_does_not_fit_is_not_taken(change, why):
    """Each of these goes to BLAS."""
    left, right, out = np.ones((9, 20), "f4"), np.ones((20, 64), "f4"), np.ones((9, 64), "f4")
    assert tiles.fits(left, right, out), why

    assert not tiles.fits(*change(left, right, out))


CHOSEN = {
    16: [
        (64, 576, 576, ""),
        (64, 576, 576, "t"),
        (64, 64, 64, "t"),
        (9, 576, 576, "t"),
        (37, 576, 576, ""),
        (1024, 64, 96, ""),
    ],
    8: [(64, 576, 576, ""), (64, 576, 576, "t"), (20, 16, 48, ""), (37, 576, 576, "t")],
}
LEFT = {
    16: [(7, 576, 576, ""), (64, 15, 576, ""), (12, 576, 576, ""), (64, 576, 80, ""), (24, 64, 576, "t"), (512, 576, 64, "t")],
    8: [(7, 576, 576, ""), (64, 576, 64, ""), (512, 576, 576, ""), (512, 576, 576, "t"), (64, 64, 64, "t")],
}  # fmt: skip


@pytest.mark.parametrize("lanes", [16, 8])
def test_tiles_are_chosen_by_vectors_and_sizes(monkeypatch, lanes):
    monkeypatch.setattr(tiles, "lanes", lambda: lanes)

    def pays(m, k, n, turned):
        right = np.empty((n, k), "f4").T if turned else np.empty((k, n), "f4")
        return tiles.pays(np.empty((m, k), "f4"), right)

    for wide in (True, False):
        monkeypatch.setattr(tiles, "wide", lambda wide=wide: wide)
        assert [pays(*size) for size in CHOSEN[lanes]] == [wide] * len(CHOSEN[lanes])
        assert not any(pays(*size) for size in LEFT[lanes])


NARROW = """
import sys
from allocsim import processor
processor.flags = lambda *_: frozenset({"avx2", "fma"})
import pytest
sys.exit(pytest.main([*sys.argv[1:], "-W", "ignore::pytest.PytestAssertRewriteWarning"]))
"""


@pytest.mark.skipif(vector_width.lanes() == 8, reason="here the other tests are of these tiles")
def test_vectors_of_256_bits_do_what_those_of_512_do(tmp_path):
    """The other tests of this file, in a process that takes its processor for one without wider ones."""
    command = [sys.executable, "-c", NARROW, __file__, "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not vectors"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    )

    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("m", "k"),
    [
        (1, 16),
        (8, 96),
        (33, 97),
        (512, 16),
        (513, 500),
        (505, 512),
        (600, 2048),
        (512, 496),
        (510, 403),
        (64, 4097),
        (64, 20000),
    ],
)
def test_the_room_is_enough(m, k, turned):
    """Nothing is written behind the room that a product asks for."""
    rng = np.random.default_rng([m, k])
    left, right = laid(rng.standard_normal((m, k)), turned=False), laid(rng.standard_normal((k, 48)), turned=turned)
    out = np.zeros((1, 1, m, 48), np.float32)
    size = products.room_for(m, k)
    room = np.full(size + 4096, 7, np.float32)
    args = left[None, None], right[None, None], out, room, tuning.Tuning(), False
    entry(products.multiply, args, layout="A")(*args)

    assert (room[size:] == 7).all()
    assert np.isfinite(out).all()


def test_what_fits_is_as_wide_as_a_tile():
    """The number stands twice, since choosing must not load numba; a tile of narrower vectors is half as wide."""
    assert tiles.COLUMNS % registers.COLUMNS == 0


def program(rows, k, n):
    """A graph of one product, lowered."""
    graph = Graph("product")
    x = graph.input("x", (rows, k), "f32")
    w = graph.parameter("w", (n, k), "f32")
    y = graph.op("mul_mat", w, x, name="y")
    graph.expand(y)
    return lower(graph, reads=(y,))


def test_a_run_has_the_same_bits_by_any_number_of_threads(monkeypatch):
    """Each thread has columns of its own, cut where tiles begin."""
    monkeypatch.setattr(tiles, "pays", lambda *_: True)
    monkeypatch.setattr(threads, "SHARE", 1 << 12)
    lowered = program(32, 96, 250)
    plan = find("ggml").plan(lowered.program)
    rng = np.random.default_rng(4)
    w, x = rng.standard_normal((250, 96)).astype("f4"), rng.standard_normal((32, 96)).astype("f4")
    found = {}
    for count, executor in [(1, "calls"), (1, "tape"), (2, "calls"), (2, "tape"), (None, "calls")]:
        with Runtime(lowered, plan, parameters={"w": w}, threads=count, executor=executor) as runtime:
            step = next(s for s, kernel in enumerate(runtime.kernels) if kernel is not None)
            if count is not None:
                assert (runtime.call(step)[0] is team.in_parts) == (count > 1)
            found[count, executor] = runtime.run({"x": x})["y"].tobytes()

    assert len(set(found.values())) == 1


@pytest.mark.parametrize("columns", [48, 96, 97, 143, 480, 1001])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("size", [(8, 16), (64, 576), (200, 90)])
@pytest.mark.parametrize("add", [False, True])
def test_columns_cut_between_threads_have_the_bits_of_the_whole(monkeypatch, columns, turned, size, add):
    rows, terms = size
    rng = np.random.default_rng(columns + terms)
    left = rng.standard_normal((rows, terms)).astype("f4")
    right = (
        rng.standard_normal((columns, terms)).astype("f4").T
        if turned
        else rng.standard_normal((terms, columns)).astype("f4")
    )
    start = rng.standard_normal((rows, columns)).astype("f4")
    found = []
    for count in (1, 2, 3, 7):
        monkeypatch.setattr(tiles, "parts", lambda _, units, count=count, **_others: max(min(count, units), 1))
        out = start.copy()
        function, args = tiles.shared_call(left, right, out, add=add)
        function(*args)
        found.append(out.tobytes())

    assert len(set(found)) == 1


@pytest.mark.parametrize("kind", ["mul_mat", "out_prod", "add_out_prod"])
def test_both_variants_are_there_and_declare_the_same(kind):
    """`blas` can be asked for by name."""
    kernels = KERNELS[kind]

    assert list(kernels) == ["tiles", "blas"]
    assert replace(kernels["tiles"], bind=kernels["blas"].bind) == kernels["blas"]
