"""Places buffers with LiteRT's arena planner, which `allocate_tensors` runs without delegates. For
each arena of a request, this module makes a model with the requested lifetimes and sizes.

The planner accepts no allocation problem as input, so the model encodes the problem. At each step,
a FILL makes each tensor of bytes that begins its lifetime there. Then a SLICE of 0 bytes reads each
tensor that ends its lifetime there. A pinned tensor is an output of the model. The model is not
run; offsets are differences of the interpreter's pointers.

What this module does not see: in-place pairs (no operator here may write over its operand),
temporaries of operators, and tensors of 0 bytes.
"""

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from asking import AskedBuffer, RefusedError, arena_by_arena, serve

ALIGNMENT = 64

MOST = 1 << 30
"""The most bytes of a request; the interpreter allocates all the memory that it plans."""

INT8, INT32 = 9, 2
CODES = (94, 65)
"""The BuiltinOperator numbers of FILL and SLICE."""


def plan(buffers: Sequence[AskedBuffer], steps: int) -> list[int]:
    """Return the offset in bytes of each tensor from the lowest tensor of its arena."""
    if sum(row.nbytes for row in buffers) > MOST:
        raise RefusedError(f"the interpreter would allocate more than {MOST} bytes")
    offsets: list[int] = arena_by_arena(_arena, buffers, steps)
    return offsets


def _arena(rows: Sequence[AskedBuffer], steps: int) -> list[int]:
    made = Interpreter(
        model_content=_model(rows, steps),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    made.allocate_tensors()
    at = [made.tensor(place)().__array_interface__["data"][0] for place in range(len(rows))]
    return [address - min(at) for address in at]


def _model(rows: Sequence[AskedBuffer], steps: int) -> bytes:
    """Return the bytes of a model; its first tensors are the requested tensors."""
    tensors = [_tensor([row.nbytes], INT8) for row in rows]
    buffers: list[Any] = [schema.BufferT()]

    def constant(number: int) -> int:
        """Add a constant tensor that has one number; return its index."""
        buffers.append(schema.BufferT())
        buffers[-1].data = np.frombuffer(np.array([number], "<i4").tobytes(), np.uint8)
        tensors.append(_tensor([1], INT32, len(buffers) - 1))
        return len(tensors) - 1

    tensors.append(_tensor([], INT8))
    value, none = len(tensors) - 1, constant(0)
    operators = []
    for step in range(steps):
        for place, row in enumerate(rows):
            if row.start == step:
                operators.append(_operator(0, [constant(row.nbytes), value], place))
        for place, row in enumerate(rows):
            if row.stop - 1 == step and not row.pinned:
                tensors.append(_tensor([0], INT8))
                operators.append(_operator(1, [place, none, none], len(tensors) - 1))
    graph = schema.SubGraphT()
    graph.tensors, graph.operators, graph.inputs = tensors, operators, [value]
    graph.outputs = [place for place, row in enumerate(rows) if row.pinned] or [none]
    model = schema.ModelT()
    model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], buffers, []
    for code in CODES:
        row = schema.OperatorCodeT()
        row.builtinCode = row.deprecatedBuiltinCode = code
        row.version = 1
        model.operatorCodes.append(row)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(shape: list[int], kind: int, buffer: int = 0) -> Any:
    made = schema.TensorT()
    made.shape, made.type, made.buffer = shape, kind, buffer
    return made


def _operator(code: int, inputs: list[int], output: int) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex, made.inputs, made.outputs = code, inputs, [output]
    kinds = (
        (schema.FillOptionsT, schema.BuiltinOptions.FillOptions),
        (schema.SliceOptionsT, schema.BuiltinOptions.SliceOptions),
    )
    options, made.builtinOptionsType = kinds[code]
    made.builtinOptions = options()
    return made


if __name__ == "__main__":
    serve(plan, alignment=ALIGNMENT)
