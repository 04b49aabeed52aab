"""Decide whether the bridge can use a libggml, by running small graphs with known results.

Contract: `probe(library)` builds small graphs, makes these comparisons, and raises EngineError at
the first difference:

* the struct fields of `access.structs` with public functions or known values;
* the private leaf list with the known order and with the output of `ggml_graph_dump_dot`;
* the flag bits with the effect of ggml's setters;
* the plan of one graph with its known offsets, and one computed result with its known value.

The probe runs in a child process (`checked`, `open_library`), because a library with another struct
layout may crash.

    with open_library("after") as child: ...        # a child process on a library that passed
    library = checked("before")                      # a library that passed, mapped in this process

The probe computes only the kernels of `scale`, `sqr`, `add` and `mul_mat`.
`allocsim.systems.ggml.k_audit.library_audit` examines the other kernels.
"""

import re
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.access.library import Library, find, load, versions
from allocsim.systems.ggml.access.structs import FLAGS, OBJECT_NBYTES, TENSOR, graph_record, pointers, records
from allocsim.systems.ggml.access.workspace import LibraryWorkspace

KNOWN_OFFSETS: Final = {"y": 0, "x": 96, "scaled": 160, "squared": 160, "sum": 96, "view": 104, "product": 160}
"""The byte offsets of the tensors in the probe's plan in every version since 2024; see `_plan`."""

EPSILON: Final = 0.03125
SCALE: Final = 3.0


def open_library(which: str) -> Child:
    """Start a child process on a library, probe the library there, and return the running child.

    Raises EngineError if the library cannot be loaded or the probe finds a difference.
    """
    child = Child(which)
    try:
        _ask(child, which)
    except BaseException:
        child.close()
        raise
    return child


def checked(which: str) -> Library:
    """Probe a library in a child process, then map the library in this process and return it.

    A process probes a file once for each name. Raises EngineError as `open_library` does.
    """
    path = find(which)
    _probe_once(path, which)
    library = load(path)
    library.name = which
    return library


@cache
def _probe_once(path: Path, which: str) -> None:
    with Child(str(path)) as child:
        _ask(child, which)


def _ask(child: Child, which: str) -> None:
    try:
        child.call(probe, timeout=30.0)
    except ChildDiedError as error:
        raise EngineError(f"ggml {which!r} refused: it died on the probe graph ({error.said or error})") from None
    except EngineError as error:
        raise EngineError(f"ggml {which!r} refused: {error}") from None


def probe(library: Library) -> dict[str, Any]:
    """Compare the library with the assumptions of the bridge. Return its version, the names of its
    in-place ops, and its number of ops. Raises EngineError at the first difference. A version
    number of any value passes if it has the form 1.2.3.
    """
    version = library.version
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise EngineError(f"its version {version!r} is no version of ggml")
    expected = TENSOR.itemsize + OBJECT_NBYTES
    _same("bytes of a tensor and its object", library.ggml_tensor_overhead(), expected)
    library.types  # noqa: B018 - raises where a type number has another name
    with LibraryWorkspace(library) as ws:
        _tensors(ws)
        _graph(ws)
        _plan(ws)
    return {**versions(library), "ops": len(library.ops)}


def _same(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise EngineError(f"{what}: found {found!r}, expected {expected!r}")


def _tensors(ws: LibraryWorkspace) -> None:
    """Compare the fields of ggml_tensor with public functions and known values."""
    library, ctx = ws.library, ws.context(tensors=64)
    a = ctx.tensor("f32", 3, 5, 7, 2, name="probe a")
    view = ctx.op("view_2d", a, 2, 3, 12, 24, name="probe view")
    nested = ctx.op("view_1d", view, 1, 8)
    norm = ctx.op("rms_norm", a, EPSILON)
    activated = ctx.op("silu", a)
    b = ctx.tensor("f16", 3, 4, 7, 2)
    product = ctx.op("mul_mat", b, a)
    buffer = ws.apart(ctx)
    data = np.arange(210, dtype=np.float32)
    ws.put(a, data)
    tensors = {"a": a, "view": view, "nested": nested, "norm": norm, "activated": activated, "product": product, "b": b}
    at = dict(zip(tensors, records(list(tensors.values())), strict=True))
    _same("type", [int(at[key]["type"]) for key in "ab"], [library.types["f32"], library.types["f16"]])
    _same("ne", at["a"]["ne"].tolist(), [3, 5, 7, 2])
    _same("nb", at["a"]["nb"].tolist(), [4, 12, 60, 420])
    _same("nb of a view", at["view"]["nb"].tolist(), [4, 12, 36, 36])
    _same("ne of a product", at["product"]["ne"].tolist(), [4, 5, 7, 2])
    _same("ggml_nbytes", [library.ggml_nbytes(a), library.ggml_nbytes(view), library.ggml_nbytes(b)], [840, 32, 336])
    _same("op", [bytes(library.ggml_op_name(int(at[key]["op"]))).decode() for key in ("a", "view", "norm", "activated", "product")],
          ["NONE", "VIEW", "RMS_NORM", "UNARY", "MUL_MAT"])  # fmt: skip
    _same("op_params of rms_norm", struct.unpack("<f", at["norm"]["op_params"][:1].tobytes())[0], EPSILON)
    _same("op_params of silu", int(at["activated"]["op_params"][0]), library.ggml_get_unary_op(activated))
    _same("src", at["product"]["src"].tolist(), [b, a, *[0] * 8])
    _same("view_src", [int(at[key]["view_src"]) for key in ("a", "view", "nested")], [0, a, a])
    _same("view_offs", [int(at[key]["view_offs"]) for key in ("view", "nested")], [24, 32])
    _same(
        "data",
        [int(at[key]["data"]) for key in ("a", "view", "norm")],
        [library.ggml_get_data(t) for t in (a, view, norm)],
    )
    _same("data of a view", int(at["nested"]["data"]) - int(at["a"]["data"]), 32)
    _same("buffer", [int(at["a"]["buffer"]), int(at["product"]["buffer"])], [buffer, buffer])
    _same("name", [bytes(at["view"]["name"]).partition(b"\0")[0].decode(), ws.name(view)], ["probe view", "probe view"])
    base = library.ggml_backend_buffer_get_base(buffer)
    inside = all(0 <= int(at[key]["data"]) - base < library.ggml_backend_buffer_get_size(buffer) for key in at)
    _same("addresses inside the buffer", inside, True)
    _same("elements read back", ws.get(view).ravel().tolist(), [6.0, 7.0, 9.0, 10.0, 12.0, 13.0])
    for flag in ("input", "output", "param", "loss"):
        tensor = ctx.tensor("f32", 1, flag=flag)
        _same(f"flag {flag}", int(records([tensor])[0]["flags"]), FLAGS[flag])


def _graph(ws: LibraryWorkspace) -> None:
    """Compare a graph's private leaf list with the known order and with ggml_graph_dump_dot, and
    the graph's nodes with their public accessors.
    """
    library, ctx = ws.library, ws.context(tensors=32, graph_size=64)
    x, y, z = (ctx.tensor("f32", 4, name=name) for name in ("leaf x", "leaf y", "leaf z"))
    param = ctx.tensor("f32", 4, name="parameter", flag="param")
    inner = ctx.op("mul", y, param, name="inner")
    top = ctx.op("add", ctx.op("sub", z, inner, name="difference"), x, name="top")
    graph = ctx.graph(top, size=64)
    raw = graph_record(graph)
    _same("number of nodes", [int(raw["n_nodes"]), library.ggml_graph_n_nodes(graph)], [4, 4])
    _same("size of the graph", [int(raw["size"]), library.ggml_graph_size(graph)], [64, 64])
    _same("nodes", int(raw["nodes"]), library.ggml_graph_nodes(graph))
    _same("order of nodes", [ws.name(node) for node in ws.nodes(graph)], ["parameter", "inner", "difference", "top"])
    _same("nodes in memory", pointers(int(raw["nodes"]), 4), ws.nodes(graph))
    _same("number of leafs", int(raw["n_leafs"]), 3)
    leafs = pointers(int(raw["leafs"]), 3)
    _same("leafs", leafs, [z, y, x])
    _same("leafs as dumped", dumped_leafs(library, graph), leafs)
    flags = [int(flags) for flags in records(ws.nodes(graph))["flags"]]
    compute = FLAGS["compute"] if any(flags[1:]) else 0  # until 0.9.5 no node had the flag, and all nodes ran
    _same("flags of nodes", flags, [FLAGS["param"], compute, compute, compute])


def dumped_leafs(library: Library, graph: int) -> list[int]:
    """Return the addresses of a graph's leafs in the order in which `ggml_graph_dump_dot` prints
    them.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        library.ggml_graph_dump_dot(graph, None, str(path).encode())
        text = path.read_text(errors="replace")
    return [
        int(match[1], 16)
        for match in re.finditer(r'^  "(0x[0-9a-f]+)" \[ style = filled; fillcolor = pink', text, re.MULTILINE)
    ]


def _plan(ws: LibraryWorkspace) -> None:
    """Compare one plan with its known offsets, and one computed result with its known value. ggml
    places the leafs first, in the order in which it visits them: y (80 bytes, rounded up to 96),
    then x. `scaled` may not take the bytes of x, because x has another reader. `squared` takes the
    bytes of `scaled`, because `scaled` has no other reader. `sum` takes the bytes of x, because x
    has no later reader. `mul_mat` is not an in-place op, so `product` gets the
    lowest free offset, which is behind x.
    """
    library, ctx = ws.library, ws.context(tensors=32, graph_size=64)
    x = ctx.tensor("f32", 16, name="x", flag="input")
    y = ctx.tensor("f32", 20, name="y")
    scaled = ctx.op("scale", x, SCALE, name="scaled")
    squared = ctx.op("sqr", scaled, name="squared")
    total = ctx.op("add", x, squared, name="sum")
    view = ctx.op("view_1d", total, 4, 8, name="view")
    product = ctx.op("mul_mat", ctx.op("view_1d", y, 4, 0), view, name="product")
    graph = ctx.graph(product, size=64)
    ws.allocate(ws.planner(), graph)
    base = library.ggml_backend_buffer_get_base(int(records([x])[0]["buffer"]))
    found = {ws.name(t): int(records([t])[0]["data"]) - base for t in (y, x, scaled, squared, total, view, product)}
    ws.put(x, np.arange(16, dtype=np.float32))
    ws.put(y, np.ones(20, dtype=np.float32))
    ws.compute(graph)
    _same("a computed product", ws.get(product).ravel().tolist(), [float(sum(n + 9 * n * n for n in range(2, 6)))])
    _same("a plan with known offsets", found, KNOWN_OFFSETS)
