"""Draw random elements for the tensors that no op computes. The elements are legal operands of the
kernels that read them.

Contract: `fill(graph, seed)` writes every root tensor that no op computes. If the row of the root
has elements (`elements`, in base64), these are written; otherwise the elements are drawn. Equal
rows and seeds give equal elements, at whatever address the root is. Floats are normally distributed
unless their reader needs others (`POSITIVE`, `SHARES`). The left operand of a matrix product is
divided by the square root of its row's length, so that the results of deep graphs stay finite.
Integers are row numbers below the bound of their reader (`ROWS_BELOW`). If the bound allows, the
integers of one row are all different. Quantised types get normal floats that the library quantises.

This module does not know the program's own data unless the rows have it. The rows of a capture have
no data.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import ELEMENTS
from allocsim.systems.ggml.capture.graph_rebuilding import RebuiltGraph
from allocsim.systems.ggml.ggml_dump import NONE

Row = Mapping[str, Any]

POSITIVE: Final = frozenset(
    {
        ("LOG", 0),
        ("SQRT", 0),
        ("DIV", 1),
        ("ROPE", 2),
        ("ROPE_BACK", 2),
        ("OPT_STEP_ADAMW", 3),
        ("OPT_STEP_ADAMW", 4),
        ("OPT_STEP_SGD", 2),
    }
)
"""The (op, slot) pairs that need positive floats: the drawn floats are at least 0.5."""

SHARES: Final = frozenset({("CROSS_ENTROPY_LOSS", 1), ("CROSS_ENTROPY_LOSS_BACK", 2), ("SOFT_MAX_BACK", 1)})
"""The (op, slot) pairs that need probabilities: each row is positive and adds up to 1."""

ROWS_BELOW: Final[dict[tuple[str, int], Callable[[list[Row | None], Row], int]]] = {
    ("GET_ROWS", 1): lambda sources, _: _ne(sources[0], 1),
    ("GET_ROWS_BACK", 1): lambda _, result: _ne(result, 1),
    ("SET_ROWS", 1): lambda _, result: _ne(result, 1),
    ("ADD_ID", 2): lambda sources, _: _ne(sources[1], 1),
    ("MUL_MAT_ID", 2): lambda sources, _: _ne(sources[0], 2),
    ("SSM_SCAN", 6): lambda sources, _: _ne(sources[0], 3),
    ("COUNT_EQUAL", 0): lambda _, __: 3,
    ("COUNT_EQUAL", 1): lambda _, __: 3,
    ("ROPE", 1): lambda _, __: 512,
    ("ROPE_BACK", 1): lambda _, __: 512,
}
"""(op, slot) -> a function of sources and result that returns the exclusive bound of the integers.

Every other pair of an op and a slot has the bound 1, so its integers are all 0.
"""


def _ne(row: Row | None, axis: int) -> int:
    return 1 if row is None else int(row["ne"][axis])


def fill(graph: RebuiltGraph, seed: int, *, shares: bool = True, given: bool = True) -> None:
    """Write the elements of every root that no op computes. If `given` is false, elements in the
    rows are ignored and all elements are drawn. If `shares` is false, the floats for `SHARES` are
    normal too, because probabilities of a single class are all 1 and would hide errors of a kernel.
    Raises EngineError for a type that cannot be drawn.
    """
    readers = readers_of(graph)
    for place, row in enumerate(graph.rows):
        if row["op"] == NONE and row["view_src"] is None and graph.arrays[place].size:
            if given and "elements" in row:
                np.copyto(graph.arrays[place], _given(row, graph.arrays[place]))
                continue
            draw(graph, place, [one for one in readers.get(place, []) if shares or one[:2] not in SHARES], seed)


def _given(row: Row, array: NDArray[Any]) -> NDArray[Any]:
    """Return the elements in a row; raise EngineError if they do not fit the type and shape."""
    try:
        data = base64.b64decode(row["elements"], validate=True)
        return np.frombuffer(data, dtype=array.dtype).reshape(array.shape)
    except (ValueError, TypeError):
        raise EngineError(
            f"the elements of {row['name']!r} are not base64 text that decodes to its type and shape"
        ) from None


def bytes_of(array: NDArray[Any]) -> str:
    """Return the elements of an array in base64, as a row stores them."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


Reader = tuple[str, int, int]
"""A reader of a tensor: its op, the source slot, and the exclusive bound of integers there."""


def draw(graph: RebuiltGraph, place: int, readers: list[Reader], seed: int) -> None:
    """Draw the elements of one tensor for these readers, and write them into the tensor."""
    elements = drawn(graph.ws.library, graph.rows[place], readers, np.random.default_rng((seed, place)))
    np.copyto(graph.arrays[place], elements)


def readers_of(graph: RebuiltGraph) -> dict[int, list[Reader]]:
    """Return root -> its readers, including the readers of its views."""
    found: dict[int, list[Reader]] = {}
    for place, sources in enumerate(graph.sources):
        rows: list[Row | None] = [None if source is None else graph.rows[source] for source in sources]
        for slot, source in enumerate(sources):
            if source is not None:
                key = graph.rows[place]["op"], slot
                bound = ROWS_BELOW[key](rows, graph.rows[place]) if key in ROWS_BELOW else 1
                found.setdefault(graph.roots[source], []).append((*key, bound))
    return found


def drawn(library: Library, row: Row, readers: list[Reader], rng: np.random.Generator) -> NDArray[Any]:
    """Return random elements for one tensor, shaped and typed as in `RebuiltGraph.arrays`."""
    shape, kind = tuple(row["ne"][::-1]), row["type"]
    if kind.startswith("i") and kind[1:].isdigit():
        bounds = [bound for op, slot, bound in readers if (op, slot) in ROWS_BELOW]
        return _row_numbers(shape, min(bounds, default=1), rng).astype(f"i{int(kind[1:]) // 8}")
    uses = {(op, slot) for op, slot, _ in readers}
    numbers = rng.standard_normal(shape, dtype=np.float32)
    if uses & POSITIVE:
        numbers = np.abs(numbers) + np.float32(0.5)
    elif uses & SHARES:
        numbers = np.exp(numbers)
        numbers /= numbers.sum(axis=-1, keepdims=True)
    elif ("MUL_MAT", 0) in uses or ("MUL_MAT_ID", 0) in uses:
        numbers /= np.float32(np.sqrt(shape[-1]))
    return encoded(library, numbers, kind)


def encoded(library: Library, numbers: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return numbers converted to the ggml type `kind`: i32 and i64 as integers, bf16 as its 16
    bits, quantised types as bytes. Raises EngineError if the library cannot quantise such rows.
    """
    if kind in {"i32", "i64"}:
        return np.ascontiguousarray(numbers, dtype=ELEMENTS[kind])
    numbers = np.ascontiguousarray(numbers, dtype=np.float32)
    if kind in {"f32", "f16", "f64"}:
        return numbers.astype(ELEMENTS[kind])
    if kind == "bf16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    number = library.type_number(kind)
    block, size = library.ggml_blck_size(number), library.ggml_type_size(number)
    if not library.has("ggml_quantize_chunk") or numbers.shape[-1] % block:
        raise EngineError(
            f"elements of type {kind} in rows of {numbers.shape[-1]} cannot be drawn with {library.path.name}"
        )
    weights = np.ones(numbers.shape[-1], dtype=np.float32)
    out = np.zeros(numbers.size // block * size, dtype=np.uint8)
    rows = numbers.size // numbers.shape[-1]
    library.ggml_quantize_chunk(
        number, numbers.ctypes.data, out.ctypes.data, 0, rows, numbers.shape[-1], weights.ctypes.data
    )
    return out


def _row_numbers(shape: tuple[int, ...], below: int, rng: np.random.Generator) -> NDArray[np.int64]:
    width, count = shape[-1], int(np.prod(shape[:-1], dtype=np.int64))
    if width > below:
        return rng.integers(0, max(below, 1), shape)
    return np.stack([rng.permutation(below)[:width] for _ in range(count)]).reshape(shape)
