"""Two structs of ggml as numpy record types: a tensor, and the head of a graph.

Contract: `TENSOR` is `ggml_tensor`: 336 bytes, declared in ggml.h, with the same layout from 0.9.4
to 0.26.0. `GRAPH` is the head of `ggml_cgraph`, which is private. The layout is that of x86-64,
little-endian.

This module does not check whether a library has these structs. Before any other use,
`allocsim.systems.ggml.access.probe` compares all fields of both structs, except `grads` and
`grad_accs`, with public functions and known values. The bridge uses neither `grads` nor
`grad_accs`.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAX_SOURCES: Final = 10


def _struct(nbytes: int, *fields: tuple[str, Any, int]) -> np.dtype[Any]:
    """Return the record type of a struct of `nbytes` bytes; each field is (name, type, offset)."""
    names, formats, offsets = map(list, zip(*fields, strict=True))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": nbytes})


TENSOR: Final = _struct(
    336, ("type", "<i4", 0), ("buffer", "<u8", 8), ("ne", ("<i8", 4), 16), ("nb", ("<u8", 4), 48), ("op", "<i4", 80),
    ("op_params", ("<i4", 16), 84), ("flags", "<i4", 148), ("src", ("<u8", MAX_SOURCES), 152), ("view_src", "<u8", 232),
    ("view_offs", "<u8", 240), ("data", "<u8", 248), ("name", "S64", 256),
)  # fmt: skip
"""The fields of `ggml_tensor` that the bridge reads, at their byte offsets."""

OBJECT_NBYTES: Final = 32
"""`sizeof(ggml_object)`: the bytes that `ggml_tensor_overhead` adds to those of the tensor."""

GRAPH: Final = _struct(
    48, ("size", "<i4", 0), ("n_nodes", "<i4", 4), ("n_leafs", "<i4", 8), ("nodes", "<u8", 16), ("grads", "<u8", 24),
    ("grad_accs", "<u8", 32), ("leafs", "<u8", 40),
)  # fmt: skip
"""The head of `ggml_cgraph`."""

FLAGS: Final = {"input": 1, "output": 2, "param": 4, "loss": 8, "compute": 16}
"""The bits of a tensor's `flags`, by name."""


def records(addresses: Sequence[int]) -> NDArray[Any]:
    """Return a copy of the tensors at these addresses as an array of `TENSOR`, in O(n)."""
    size = TENSOR.itemsize
    return np.frombuffer(b"".join([ctypes.string_at(address, size) for address in addresses]), dtype=TENSOR)


def live_record(address: int) -> Any:
    """Return the tensor at this address as a writable record over its memory."""
    memory = memoryview((ctypes.c_uint8 * TENSOR.itemsize).from_address(address))
    return np.frombuffer(memory, dtype=TENSOR)[0]


def graph_record(address: int) -> Any:
    """Return a copy of the head of the graph at this address."""
    return np.frombuffer(ctypes.string_at(address, GRAPH.itemsize), dtype=GRAPH)[0]


def pointers(address: int, count: int) -> list[int]:
    """Return `count` pointers read from an array at this address."""
    return list((ctypes.c_uint64 * count).from_address(address)) if count else []
