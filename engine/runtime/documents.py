"""Make a program that came from a file run on the engine, with data drawn from a seed.

A program says which bytes are read and written, not what is computed. It can run if the engine
knows every kind of op in it (`view`, `host.write` and `host.read` aside), every value is of a dtype
the engine has, and each op's parameters are in its `meta.params` (`engine.graph.lowering` writes
them there) or have defaults. `meta.variant` names the variant of a kernel; without it the default
one runs. Anything else is refused, with the op and the rule.

Numbers mean nothing here, only whether they are the same: floats are normal with standard deviation
0.5, integers are 0, 1, 2, ... and wrap at 4.

What this module does not see: plans, orders, and whether the program is any good.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Op, Program, Role, Value
from engine.graph import ITEMSIZES, Graph, Tensor
from engine.graph.lowering import Lowered
from engine.kernels import KERNELS, Kernel
from engine.kernels.binding import Array
from engine.ops import OPS, REQUIRED
from engine.runtime.plan_memory import NUMPY_DTYPES

SILENT: Final = (VIEW, HOST_WRITE, HOST_READ)
"""Kinds without a kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Playable:
    """A program ready to run, with everything the host gives it."""

    lowered: Lowered
    uploads: Mapping[int, tuple[Array, ...]]
    """Step of each `host.write` -> the arrays for its results."""
    parameters: Mapping[str, Array]


def playable(program: Program, *, seed: int = 0) -> Playable:
    """Return the program with kernels and data.

    Raises EngineError, with the place and the rule, if the engine cannot run it. O(bytes).
    """
    rng = np.random.default_rng(seed)
    graph = Graph(program.name)
    used = np.unique(np.concatenate([program.ops.operands, program.ops.results])).tolist()
    for row in (program.values[index] for index in used):
        if row.dtype not in ITEMSIZES:
            raise EngineError(f"value {row.index} {row.name!r} is {row.dtype}; the engine has {', '.join(ITEMSIZES)}")
    parameters = {}
    for buffer in np.flatnonzero(program.buffers.role == Role.PARAMETER).tolist():
        tensor = _parameter(graph, program, buffer)
        graph.leafs.append(tensor)
        parameters[tensor.name] = _data(rng, tensor.shape, tensor.dtype)
    tensors, kernels, variants, uploads = [], list[Kernel | None](), dict[str, str](), {}
    for op in program.ops:
        about = [*op.results, *op.operands]
        value = program.values[about[0]] if about else None
        params: Mapping[str, Any] = {}
        kernel = None
        if op.kind == HOST_WRITE:
            results = [program.values[index] for index in op.results]
            uploads[op.step] = tuple(_data(rng, result.shape, result.dtype) for result in results)
        elif op.kind not in SILENT:
            kernel, variants[op.kind], params = _kernel(program, op)
        tensors.append(_tensor(graph, value, params))
        kernels.append(kernel)
    lowered = Lowered(
        graph=graph,
        program=program,
        value_of={},
        step_of={},
        tensors=tuple(tensors),
        kernels=tuple(kernels),
        variants=variants,
        reads=(),
    )
    return Playable(lowered=lowered, uploads=uploads, parameters=parameters)


def _kernel(program: Program, op: Op) -> tuple[Kernel, str, dict[str, Any]]:
    where = f"op {op.step} {op.name or op.kind!r}"
    if op.kind not in KERNELS:
        raise EngineError(f"{where} is of kind {op.kind!r}, for which the engine has no kernel; it cannot be run")
    rule, meta = OPS[op.kind], program.ops.meta.get(op.step, {})
    given = meta.get("params", {})
    if not isinstance(given, Mapping) or not set(given) <= set(rule.params):
        raise EngineError(f"{where}: meta.params is not an object of {', '.join(rule.params) or 'nothing'}")
    params = {**rule.params, **given}
    if missing := [name for name, value in params.items() if value is REQUIRED]:
        raise EngineError(f"{where} is {op.kind!r} without {', '.join(missing)} in its meta.params; it cannot be run")
    params = {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}
    most = len(rule.arguments) - len(rule.unread)
    if not most - rule.optional <= len(op.operands) <= most or len(op.results) != 1:
        raise EngineError(
            f"{where}: {op.kind} has {most} operands and 1 result, not {len(op.operands)} and {len(op.results)}"
        )
    variant = str(meta.get("variant", next(iter(KERNELS[op.kind]))))
    if variant not in KERNELS[op.kind]:
        raise EngineError(
            f"{where}: kernel {op.kind!r} has no variant {variant!r}; there are {', '.join(KERNELS[op.kind])}"
        )
    return KERNELS[op.kind][variant], variant, params


def _parameter(graph: Graph, program: Program, buffer: int) -> Tensor:
    """Return a leaf that fills the buffer of a parameter."""
    name, nbytes = program.buffers.names[buffer], int(program.buffers.nbytes[buffer])
    inside = np.flatnonzero(program.values.buffer == buffer).tolist()
    dtype = next((program.values[value].dtype for value in inside if program.values[value].dtype in ITEMSIZES), "f32")
    itemsize = ITEMSIZES[dtype]
    if nbytes % itemsize:
        raise EngineError(f"parameter {name!r} has {nbytes} bytes, which is no whole number of {dtype}")
    return _leaf(graph, name, dtype, (nbytes // itemsize,), Role.PARAMETER)


def _tensor(graph: Graph, value: Value | None, params: Mapping[str, Any]) -> Tensor:
    """Return what the runtime asks of an op: a name and the parameters of its kernel."""
    if value is None:
        return _leaf(graph, "", "f32", (0,), Role.TEMPORARY)
    return Tensor(
        graph=graph,
        index=value.index,
        name=value.name,
        dtype=value.dtype,
        shape=value.shape,
        strides=value.strides,
        offset=value.offset,
        params=params,
    )


def _leaf(graph: Graph, name: str, dtype: str, shape: tuple[int, ...], role: Role) -> Tensor:
    return Tensor(
        graph=graph, index=len(graph.leafs), name=name, dtype=dtype, shape=shape, strides=(ITEMSIZES[dtype],), role=role
    )


def _data(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    kind = NUMPY_DTYPES[dtype]
    count = int(np.prod(shape, dtype=np.int64))
    if kind.kind == "i":
        return (np.arange(count) % 4).astype(kind).reshape(shape)
    return (0.5 * rng.standard_normal(count)).astype(kind).reshape(shape)
