"""CPython's allocator of objects (obmalloc) as an online allocator.

    allocsim fuzz --online examples.python_objects:objects

Blocks up to 512 bytes come from its own arenas, larger ones from the C library's malloc; both answer
here. Its memory is real: every block is filled with bytes of its own, which are compared before it
is freed or moved. Under `PYTHONMALLOC=malloc` it is the C library's alone.

What this program does not see: how Python's own objects, which lie between these blocks, are used.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

from allocsim.online.pools_by_library import RealMemory


def objects(_capacity: int | None, _alignment: int, device: Any) -> RealMemory:
    """Make the target."""
    found = SimpleNamespace()
    for name, arguments, result in (
        ("malloc", [ctypes.c_size_t], ctypes.c_void_p),
        ("realloc", [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p),
        ("free", [ctypes.c_void_p], None),
    ):
        function = ctypes.PYFUNCTYPE(result, *arguments)((f"PyObject_{name.capitalize()}", ctypes.pythonapi))
        setattr(found, name, function)
    return RealMemory(found, device)
