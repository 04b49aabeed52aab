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


def _struct(nbytes: int, *fields: tuple[str, Any, int]) -> np.dtype[Any]:
    """Return a struct of so many bytes, as a record type: name, type and offset of its fields."""
    names, formats, offsets = map(list, zip(*fields, strict=True))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": nbytes})


TENSOR: Final = _struct(
    336, ("type", "<i4", 0), ("buffer", "<u8", 8), ("ne", ("<i8", 4), 16), ("nb", ("<u8", 4), 48), ("op", "<i4", 80),
    ("op_params", ("<i4", 16), 84), ("flags", "<i4", 148), ("src", ("<u8", MAX_SOURCES), 152), ("view_src", "<u8", 232),
    ("view_offs", "<u8", 240), ("data", "<u8", 248), ("name", "S64", 256),
)  # fmt: skip
"""`ggml_tensor`: the fields the bridge reads, at their byte offsets."""

OBJECT_NBYTES: Final = 32
"""`sizeof(ggml_object)`: what `ggml_tensor_overhead` counts in addition to the tensor."""

GRAPH: Final = _struct(
    48, ("size", "<i4", 0), ("n_nodes", "<i4", 4), ("n_leafs", "<i4", 8), ("nodes", "<u8", 16), ("grads", "<u8", 24),
    ("grad_accs", "<u8", 32), ("leafs", "<u8", 40),
)  # fmt: skip
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
