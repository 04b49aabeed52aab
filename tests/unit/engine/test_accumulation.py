"""beta = 1: products that add up where they belong."""

import tracemalloc

import numpy as np
import pytest

from allocsim.allocators import find
from engine.autodiff import backward
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels import KERNELS, blas
from engine.runtime import Runtime

KERNEL = KERNELS["add_out_prod"]["blas"]


def matrices(dtype, m, n, k, turned):
    """(acc[m, n], a[k, n], b[k, m]), a and b transposed in memory where `turned` says so."""
    rng = np.random.default_rng([m, n, k])
    shapes = [(m, n), (k, n), (k, m)]
    made = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    return [made[0], *(x.T.copy().T if turn else x for x, turn in zip(made[1:], turned, strict=True))]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 5, 3), (1, 5, 3), (4, 1, 3), (4, 5, 1), (4, 5, 0), (64, 33, 17)])
def test_a_product_is_added_in_place(dtype, turned, sizes):
    """In every orientation, with sizes of one and none, in the bytes of acc."""
    acc, a, b = matrices(dtype, *sizes, turned)
    want = acc.astype("f8") + b.astype("f8").T @ a.astype("f8")
    function, args = KERNEL.bind({}, (acc, a, b), (acc,))
    function(*args)

    np.testing.assert_allclose(acc, want, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-5 if dtype == "f4" else 1e-12)


def has_numpys_own_openblas():
    """Whether this numpy was built with the OpenBLAS of its wheels, whose symbols `engine.kernels.blas` knows."""
    return np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"] == "scipy-openblas"


@pytest.mark.skipif(
    not has_numpys_own_openblas(), reason="another BLAS has no symbol of that name, and a temporary is made"
)
def test_nothing_is_made_on_the_way():
    """A call allocates no temporary of the size of the product."""
    acc, a, b = matrices("f4", 256, 256, 8, (False, False))
    function, args = KERNEL.bind({}, (acc, a, b), (acc,))
    function(*args)
    tracemalloc.start()
    function(*args)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert blas.gemm(np.dtype("f4")) is not None
    assert peak < acc.nbytes // 8


def test_without_the_symbol_a_temporary_is_made_once(monkeypatch):
    """A numpy with another BLAS gets the same numbers."""
    monkeypatch.setattr(blas, "gemm", lambda _: None)
    acc, a, b = matrices("f8", 4, 5, 3, (False, True))
    want = acc + b.T @ a
    function, args = KERNEL.bind({}, (acc, a, b), (acc,))
    function(*args)

    np.testing.assert_allclose(acc, want, rtol=1e-14)


def test_accumulated_gradients_of_weights_have_no_product_of_their_own():
    """The extended graph adds each product to its accumulator, and both executors leave the same bits."""
    graph = Graph("acc")
    w, x = graph.parameter("w", (5, 4), trainable=True), graph.input("x", (3, 4))
    loss = graph.op("sum", graph.op("sqr", graph.op("mul_mat", w, x)))
    found = backward(graph, loss, accumulate=True)[w]
    kinds = [node.kind for node in graph.nodes]
    lowered = lower(graph, [found])
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal(shape).astype("f4") for name, shape in (("w", (5, 4)), ("x", (3, 4)))}
    one = {"x": data["x"], "loss_grad": np.ones(1, "f4")}
    sums = []
    for executor in ("calls", "tape"):
        runtime = Runtime(lowered, find("ggml").plan(lowered.program), parameters={"w": data["w"]}, executor=executor)
        first = runtime.run(one)[found.name]
        sums.append(runtime.run(one, skip=["acc.w"])[found.name])
        np.testing.assert_allclose(first, 2 * (data["x"] @ data["w"].T).T @ data["x"], rtol=1e-5)
        np.testing.assert_allclose(sums[-1], 2 * first, rtol=1e-6)

    assert kinds.count("add_out_prod") == 1
    assert not {"out_prod", "add_inplace"} & set(kinds)
    assert sums[0].tobytes() == sums[1].tobytes()
    assert len(runtime._calls) == 1
