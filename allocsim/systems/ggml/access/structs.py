"""The structs of ggml that have no public accessor, as numpy record types.

Contract: `TENSOR` is `ggml_tensor` (336 bytes, declared in ggml.h, equal from 0.9.4 to 0.26.0);
`GRAPH` is the head of `ggml_cgraph` (private; only `n_leafs` and `leafs` are ever used, since nodes
have public accessors). Neither is used before `allocsim.systems.ggml.access.probe` has found
every field equal to the result of a public function. x86-64, little-endian.

What this module does not see: whether a library has these structs; the probe checks that.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAX_SOURCES: Final = 10

TENSOR: Final = np.dtype(
    {
        "names": [
            "type",
            "buffer",
            "ne",
            "nb",
            "op",
            "op_params",
            "flags",
            "src",
            "view_src",
            "view_offs",
            "data",
            "name",
        ],
        "formats": [
            "<i4",
            "<u8",
            ("<i8", 4),
            ("<u8", 4),
            "<i4",
            ("<i4", 16),
            "<i4",
            ("<u8", MAX_SOURCES),
            "<u8",
            "<u8",
            "<u8",
            "S64",
        ],
        "offsets": [0, 8, 16, 48, 80, 84, 148, 152, 232, 240, 248, 256],
        "itemsize": 336,
    }
)
"""`ggml_tensor`: the fields the bridge reads, at their byte offsets."""

OBJECT_NBYTES: Final = 32
"""`sizeof(ggml_object)`: what `ggml_tensor_overhead` counts in addition to the tensor."""

GRAPH: Final = np.dtype(
    {
        "names": ["size", "n_nodes", "n_leafs", "nodes", "grads", "grad_accs", "leafs"],
        "formats": ["<i4", "<i4", "<i4", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 4, 8, 16, 24, 32, 40],
        "itemsize": 48,
    }
)
"""The head of `ggml_cgraph`."""

FLAGS: Final = {"input": 1, "output": 2, "param": 4, "loss": 8, "compute": 16}
"""Bits of a tensor's `flags`."""


def records(addresses: Sequence[int]) -> NDArray[Any]:
    """Return a copy of the tensors at these addresses as an array of `TENSOR`. O(n)."""
    size = TENSOR.itemsize
    return np.frombuffer(b"".join([ctypes.string_at(address, size) for address in addresses]), dtype=TENSOR)


def live_record(address: int) -> Any:
    """Return the tensor at this address itself, as a record that writes through."""
    memory = memoryview((ctypes.c_uint8 * TENSOR.itemsize).from_address(address))
    return np.frombuffer(memory, dtype=TENSOR)[0]


def graph_record(address: int) -> Any:
    """Return a copy of the head of the graph at this address."""
    return np.frombuffer(ctypes.string_at(address, GRAPH.itemsize), dtype=GRAPH)[0]


def pointers(address: int, count: int) -> list[int]:
    """Return `count` pointers read from an array at this address."""
    return list((ctypes.c_uint64 * count).from_address(address)) if count else []
