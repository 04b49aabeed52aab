"""ONNX Runtime's arena as an online allocator, in an interpreter that has ONNX Runtime and allocsim.

    allocsim fuzz --online examples.onnxruntime_arena:values

The arena (`BFCArena`) is registered for the process, with room for `ROOM` bytes: an environment takes
one, so all sequences ask the same. A block is an `OrtValue` of bytes that is made for the arena's
memory info, and is given back when nobody holds it. Its memory is real: every block is filled with
bytes of its own, which are compared before it is freed. A value that the arena has no room for is no
finding. ONNX Runtime aligns to 64 bytes on a CPU.

What this program does not see: sessions, and their plans for patterns of memory.
"""

from typing import Any

import numpy as np
from onnxruntime.capi import _pybind_state as ort

from allocsim.online.pools_by_library import RealMemory

ROOM = 1 << 26
"""Bytes; more than one sequence holds at once."""

INFO = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
ort.create_and_register_allocator(INFO, ort.OrtArenaCfg({"max_mem": ROOM, "initial_chunk_size_bytes": 1 << 16}))


class Values:
    """The functions of a malloc, over values that are held here."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        """By address."""

    def malloc(self, nbytes: int) -> int | None:
        """Return the address of a new value, None where the arena has no room."""
        try:
            found = ort.OrtValue.ortvalue_from_shape_and_type_for_memory_info([nbytes], np.uint8, INFO)
        except RuntimeError as error:
            if "Available memory" not in str(error):
                raise
            return None
        self.held[found.data_ptr()] = found
        return int(found.data_ptr())

    def free(self, address: int) -> None:
        """Let go of a value."""
        del self.held[address]


def values(_capacity: int | None, _alignment: int, device: Any) -> RealMemory:
    """Make the target."""
    return RealMemory(Values(), device, natural=lambda _nbytes: 64)
