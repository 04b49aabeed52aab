"""The same program in float64: larger buffers, and the same ops on the same values.

    wide = in_float64(lowered)
    Runtime(wide, find("reference").plan(wide.program), parameters=widened(parameters)).run(widened(inputs))

Every value of a float dtype becomes f64 and its buffer, strides and offset grow alike; whole
numbers stay what they are. Values, ops, streams, waits and kernels keep their index, so the value
of one program is that of the other: what D compares. Data is widened exactly; constants of kernels
(eps, scales) are rounded to the dtype of the operands by the kernels themselves, so they differ by
that rounding too.

Invariants: alignments and arenas stay. A buffer holds values of one item size (ModelError by the
model itself otherwise).

Complexity: O(columns) and O(tensors).

What this module does not see: kernels. All of `engine.kernels` take f64.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.model import DTYPE_CODES, DTYPES, Program
from engine.graph import Graph, Tensor
from engine.graph.lowering import Lowered
from engine.ops.shapes import STORED

Array = NDArray[Any]

FLOATS: Final = frozenset({"f32", *STORED})
"""The dtypes that become `WIDE`."""

WIDE: Final = "f64"

_NAMES: Final = frozenset({"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
"""The same to numpy."""


def in_float64(lowered: Lowered) -> Lowered:
    """Return the lowered graph with every float in f64, on the kernels chosen before.

    Raises EngineError for a buffer that holds both floats that grow and something that does not.
    Its plans are other plans: make them for the program returned.
    """
    made: dict[Tensor, Tensor] = {}
    graph = Graph(lowered.graph.name)
    for tensor in lowered.graph.tensors:
        grown = _growth(tensor.dtype)
        made[tensor] = replace(
            tensor,
            graph=graph,
            dtype=WIDE if tensor.dtype in FLOATS else tensor.dtype,
            strides=tuple(stride * grown for stride in tensor.strides),
            offset=tensor.offset * grown,
            root=None if tensor.root is None else made[tensor.root],
            sources=tuple(made[source] for source in tensor.sources),
            params={
                name: WIDE if name == "dtype" and value in FLOATS else value for name, value in tensor.params.items()
            },
        )
    graph.tensors.extend(made.values())
    graph.leafs.extend(made[tensor] for tensor in lowered.graph.leafs)
    graph.nodes.extend(made[tensor] for tensor in lowered.graph.nodes)
    graph.gradients.update((made[leaf], made[gradient]) for leaf, gradient in lowered.graph.gradients.items())
    return replace(
        lowered,
        graph=graph,
        program=_program(lowered.program),
        value_of={made[tensor]: value for tensor, value in lowered.value_of.items()},
        step_of={made[tensor]: step for tensor, step in lowered.step_of.items()},
        tensors=tuple(made[tensor] for tensor in lowered.tensors),
        reads=tuple(made[tensor] for tensor in lowered.reads),
    )


def is_wide(lowered: Lowered) -> bool:
    """Return whether any value is in float64."""
    return bool((lowered.program.values.dtype == DTYPE_CODES[WIDE]).any())


def widened(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays with every float as float64, exactly; others as they are."""
    return {name: array.astype(np.float64) if array.dtype.name in _NAMES else array for name, array in arrays.items()}


def _growth(dtype: str) -> int:
    sizes = dict(DTYPES)
    return sizes[WIDE] // sizes[dtype] if dtype in FLOATS else 1


def _program(program: Program) -> Program:
    values, buffers = program.values, program.buffers
    by_code = np.array([_growth(name) for name, _ in DTYPES], dtype=np.int64)
    grown = by_code[values.dtype]
    factor = np.zeros(len(buffers), dtype=np.int64)
    np.maximum.at(factor, values.buffer, grown)
    mixed = np.flatnonzero(factor[values.buffer] != grown)
    if mixed.size:
        value = values[int(mixed[0])]
        raise EngineError(f"value {value.name!r} is {value.dtype} in a buffer that also holds floats of another size")
    codes = np.where(np.isin(values.dtype, [DTYPE_CODES[name] for name in FLOATS]), DTYPE_CODES[WIDE], values.dtype)
    return replace(
        program,
        buffers=replace(buffers, nbytes=buffers.nbytes * np.maximum(factor, 1)),
        values=replace(
            values,
            dtype=codes.astype(np.int8),
            offset=values.offset * grown,
            strides=values.strides * np.repeat(grown, np.diff(values.dim_starts)),
        ),
    )
