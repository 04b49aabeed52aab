"""Hashes of what training keeps on disk, and safetensors files whose bytes depend on their content
alone.

The hash finds accidents, not malice: who can write a file can write its hash.

What this module does not see: what the tensors are.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np


def content(arrays: Mapping[str, Any]) -> str:
    """Return a hash of arrays by name, by which a checkpoint knows weights and data. O(bytes)."""
    state = blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        state.update(f"{name} {array.dtype.str} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def digest(tensors: Mapping[str, Any], text: str) -> str:
    """Return a hash of every tensor, by name, and of the metadata's text. O(bytes)."""
    state = blake2b(digest_size=32)
    for name, array in sorted(tensors.items()):
        state.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    state.update(text.encode())
    return state.hexdigest()


def ordered(packed: bytes) -> bytes:
    """Return a safetensors file with its metadata in order: the library writes them in any."""
    length = int.from_bytes(packed[:8], "little")
    header = json.loads(packed[8 : 8 + length])
    metadata = dict(sorted(header.pop("__metadata__").items()))
    text = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(packed)[8 + length :]))
