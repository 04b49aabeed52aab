"""Reads a `.tflite` file: subgraphs, tensors, operators and, if it has one, the offline plan. Every
number in the file is checked.

The offline plan is the metadata `OfflineMemoryAllocation`: a buffer of i32 with a version (1), a
subgraph, a count, and a number for each tensor. This number is the tensor's offset in bytes in the
single arena, or -1 if the runtime places the tensor. A file may have one plan for each subgraph.

Source: TensorFlow Lite `schema.fbs` (identifier `TFL3`), tflite-micro
`docs/memory_management.md` and `micro_allocation_info.cc`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.errors import DocumentError
from allocsim.formats.flatbuffer import Table, identifier, open_buffer
from allocsim.model import WIDTHS
from allocsim.model.layout import LIMIT, dense_nbytes
from allocsim.programs.dtype_names import dtype_code

IDENTIFIER: Final = b"TFL3"
PLAN: Final = "OfflineMemoryAllocation"

DTYPES: Final = {
    0: "f32", 1: "f16", 2: "i32", 3: "u8", 4: "i64", 6: "bool", 7: "i16", 8: "c64", 9: "i8", 10: "f64", 11: "c128",
    12: "u64", 15: "u32", 16: "u16", 17: "i4", 18: "bf16", 19: "i2", 20: "u4", 21: "f8_e4m3", 22: "f8_e5m2",
}  # fmt: skip
"""TensorType -> dtype; strings, resources and variants have no planned memory."""

KINDS: Final = tuple(
    (
        "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR "
        "FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC "
        "LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX "
        "SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD "
        "UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE "
        "UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE "
        "BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL "
        "LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT "
        "RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT "
        "UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR "
        "LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK "
        "ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 "
        "NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL "
        "PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS "
        "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE "
        "READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL "
        "GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 "
        "UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE "
        "STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE "
        "STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE "
        "STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG "
        "STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT "
        "STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT "
        "STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL "
        "STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE "
        "STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT "
        "STABLEHLO_CASE "
    )
    .lower()
    .split()
)
"""BuiltinOperator -> kind: the operator's name in lower case."""

CUSTOM: Final = 32
MAX_RANK: Final = 64


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of a subgraph."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    constant: bool
    variable: bool

    @property
    def nbytes(self) -> int:
        """The size of all elements of the tensor in bytes."""
        return dense_nbytes(self.shape, int(WIDTHS[dtype_code("dtype", self.dtype)]))


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator; its tensors are given by index, and -1 is an omitted optional tensor."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    called: tuple[int, ...] = ()
    """The called subgraphs: then and else (IF), condition and body (WHILE), or one (CALL_ONCE)."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A subgraph: its tensors and operators, and its offline plan."""

    name: str
    tensors: tuple[FileTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]
    offsets: Mapping[int, int]
    """Index of a tensor -> offset in bytes, for the tensors that the offline plan places."""
    planned: bool


CALLS: Final = {"if": 2, "while": 2, "call_once": 1}
"""Kind -> the number of subgraphs that the operator's options name."""


def parse(data: bytes, source: str) -> tuple[Subgraph, ...]:
    """Return the subgraphs of a file.

    Raises DocumentError, which names place and rule. O(size of the file).
    """
    if identifier(data) != IDENTIFIER:
        raise DocumentError(source, "", f"is not a TensorFlow Lite model of schema {IDENTIFIER.decode()}")
    root = open_buffer(data, source)
    version = root.scalar(0, "version", "u32")
    if version != 3:
        raise root.refuse(f"version {version} is not supported; version 3 is", "version")
    kinds = [_kind(row) for row in root.tables(1, "operator_codes")]
    rows = root.tables(2, "subgraphs")
    buffers = root.tables(4, "buffers")
    plans = _plans(root, buffers, len(rows))
    if not rows:
        raise root.refuse("is empty; a model has at least one subgraph", "subgraphs")
    return tuple(_subgraph(row, kinds, buffers, len(rows), plans.get(number)) for number, row in enumerate(rows))


def _kind(row: Table) -> str:
    code: int = max(row.scalar(0, "deprecated_builtin_code", "i8"), row.scalar(3, "builtin_code", "i32"))
    if code == CUSTOM:
        return f"custom {row.text(1, 'custom_code')[:80]}"
    if not 0 <= code < len(KINDS):
        raise row.refuse(f"operator {code} is not known; 0 to {len(KINDS) - 1} are", "builtin_code")
    return KINDS[code]


def _plans(root: Table, buffers: list[Table], subgraphs: int) -> dict[int, np.ndarray]:
    """Return the offsets of each subgraph with a plan."""
    found: dict[int, np.ndarray] = {}
    for row in root.tables(6, "metadata"):
        if row.text(0, "name") != PLAN:
            continue
        index = row.scalar(1, "buffer", "u32")
        if index >= len(buffers):
            raise row.refuse(f"buffer {index} does not exist; there are {len(buffers)}", "buffer")
        raw = buffers[index].octets(0, "data")
        words = np.frombuffer(raw[: len(raw) // 4 * 4], "<i4")
        if len(words) < 3 or len(words) != 3 + int(words[2]):
            raise row.refuse(f"{PLAN} has {len(words)} words; it needs version, subgraph, count and `count` offsets")
        if int(words[0]) != 1:
            raise row.refuse(f"{PLAN} has version {int(words[0])}; version 1 is supported")
        subgraph = int(words[1])
        if not 0 <= subgraph < subgraphs or subgraph in found:
            raise row.refuse(f"{PLAN} names subgraph {subgraph}, which does not exist or already has a plan")
        found[subgraph] = words[3:]
    return found


def _subgraph(row: Table, kinds: list[str], buffers: list[Table], subgraphs: int, plan: np.ndarray | None) -> Subgraph:
    tensors = tuple(_tensor(tensor, buffers) for tensor in row.tables(0, "tensors"))
    if plan is not None and len(plan) != len(tensors):
        raise row.refuse(f"{PLAN} has {len(plan)} offsets; there are {len(tensors)} tensors")
    offsets = {} if plan is None else {index: int(at) for index, at in enumerate(plan.tolist()) if at != -1}
    low = min(offsets.values(), default=0)
    if low < 0:
        raise row.refuse(f"{PLAN} has the offset {low}; the only negative value allowed is -1, for no offset")
    return Subgraph(
        name=row.text(4, "name") or "main",
        tensors=tensors,
        inputs=_indices(row, 1, "inputs", len(tensors)),
        outputs=_indices(row, 2, "outputs", len(tensors)),
        operators=tuple(_operator(op, kinds, len(tensors), subgraphs) for op in row.tables(3, "operators")),
        offsets=offsets,
        planned=plan is not None,
    )


def _indices(table: Table, slot: int, name: str, count: int, low: int = 0) -> tuple[int, ...]:
    found = tuple(table.numbers(slot, name, "<i4").tolist())
    for index in found:
        if not low <= index < count:
            raise table.refuse(f"tensor {index} does not exist; there are {count}", name)
    return found


def _tensor(row: Table, buffers: list[Table]) -> FileTensor:
    shape = tuple(row.numbers(0, "shape", "<i4").tolist())
    if len(shape) > MAX_RANK:
        raise row.refuse(f"has {len(shape)} dimensions; at most {MAX_RANK} are read", "shape")
    if min(shape, default=0) < 0:
        raise row.refuse(f"the length {min(shape)} is not supported; it means a length known only at run time", "shape")
    kind, index = row.scalar(1, "type", "i8"), row.scalar(2, "buffer", "u32")
    if index >= len(buffers):
        raise row.refuse(f"buffer {index} does not exist; there are {len(buffers)}", "buffer")
    holds = buffers[index].scalar(2, "size", "u64") > 0 or buffers[index].numbers(0, "data", "u1").size > 0
    found = FileTensor(
        row.text(3, "name")[:200],
        DTYPES.get(kind, "u8"),
        shape,
        bool(index) and holds,
        row.scalar(5, "is_variable", "bool", False),
    )
    if found.nbytes > LIMIT:
        raise row.refuse("the tensor exceeds 2^62 bytes", "shape")
    return found


def _operator(row: Table, kinds: list[str], tensors: int, subgraphs: int) -> Operator:
    index = row.scalar(0, "opcode_index", "u32")
    if index >= len(kinds):
        raise row.refuse(f"operator code {index} does not exist; there are {len(kinds)}", "opcode_index")
    kind = kinds[index]
    options = row.table(4, "builtin_options") if kind in CALLS else None
    called = (
        tuple(options.scalar(slot, "subgraph_index", "i32") for slot in range(CALLS[kind]))
        if options is not None
        else ()
    )
    if kind in CALLS and len(called) != CALLS[kind]:
        raise row.refuse(f"{kind} names no subgraphs", "builtin_options")
    for subgraph in called:
        if not 0 <= subgraph < subgraphs:
            raise row.refuse(f"subgraph {subgraph} does not exist; there are {subgraphs}", "builtin_options")
    return Operator(kind, _indices(row, 1, "inputs", tensors, -1), _indices(row, 2, "outputs", tensors), called)


__all__ = ["CALLS", "DTYPES", "IDENTIFIER", "KINDS", "PLAN", "FileTensor", "Operator", "Subgraph", "parse"]
