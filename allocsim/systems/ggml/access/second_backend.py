"""Make a second backend on a machine that has only a CPU, to test graphs on several backends.

Contract: `second_backend(ws)` returns a CPU backend and a buffer type that the first CPU backend
does not accept, like the memory of a device. A scheduler over both backends therefore splits graphs
and copies tensors between the splits. The second backend is a copy of the library's own structs
(backend, device, buffer type) with two differences: the buffer type is not host memory, and the
device accepts this buffer type alone. Kernels and memory are those of the CPU. The structs are
private (ggml-backend-impl.h). Before the copy is used, public functions must confirm which backend
accepts which buffer type, and that the buffer type belongs to the second device.

This module does not imitate the kernels and the alignment of a real device.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import pointers
from allocsim.systems.ggml.access.workspace import LibraryWorkspace

BUFFER_TYPE_WORDS: Final = 12
"""The number of 8-byte words copied from a `ggml_backend_buffer_type`. These words hold the 6 or 8
functions (by version), the device and the context of the buffer type.
"""

DEVICE_WORDS: Final = 17
"""The number of words of a `ggml_backend_device`: 15 functions, the registry, the context."""

SUPPORTS_BUFFER_TYPE: Final = 10

MOST_BACKEND_WORDS: Final = 40
"""How many words of a `ggml_backend` are searched for its device; the context is the next word."""

TAKES: Final = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondBackend:
    """The addresses of a backend and its buffer type, and the objects that own the memory there."""

    backend: int
    buffer_type: int
    kept: tuple[Any, ...]


def second_backend(ws: LibraryWorkspace) -> SecondBackend:
    """Return a second backend of a workspace, as the docstring of the module describes. The second
    backend has as many threads as the first. A kernel that sums by threads (CROSS_ENTROPY_LOSS)
    rounds differently with another number of threads. With equally many threads, a graph computes
    the same numbers on either backend. Raises EngineError if the library's structs do not have the
    known layout.
    """
    library = ws.library
    backend = ws.own(library.ggml_backend_cpu_init(), library.ggml_backend_free, "second CPU backend")
    library.ggml_backend_cpu_set_n_threads(backend, ws.threads)
    device, cpu_type = library.ggml_backend_get_device(backend), ws.buffer_type

    own_type = (ctypes.c_uint64 * BUFFER_TYPE_WORDS)(*pointers(cpu_type, BUFFER_TYPE_WORDS))
    type_address = ctypes.addressof(own_type)
    _find(library, own_type, 0, lambda: not library.ggml_backend_buft_is_host(type_address), "is_host")

    takes = TAKES(lambda _, asked: asked == type_address)
    own_device = (ctypes.c_uint64 * DEVICE_WORDS)(*pointers(device, DEVICE_WORDS))
    own_device[SUPPORTS_BUFFER_TYPE] = ctypes.cast(takes, ctypes.c_void_p).value or 0
    mine = ctypes.addressof(own_device)
    _find(library, own_type, mine, lambda: library.ggml_backend_buft_get_device(type_address) == mine, "device")

    place = next((n for n, word in enumerate(pointers(backend, MOST_BACKEND_WORDS)) if word == device), None)
    if place is None:
        raise EngineError(f"ggml {library.version}: the device of a backend is not found in the backend's struct")
    own_backend = (ctypes.c_uint64 * (place + 2))(*pointers(backend, place + 2))
    own_backend[place] = ctypes.addressof(own_device)
    made = SecondBackend(
        backend=ctypes.addressof(own_backend), buffer_type=type_address, kept=(own_type, own_device, own_backend, takes)
    )
    _check(ws, made, device)
    ws.keep(made)
    return made


def _find(library: Library, words: Any, value: int, holds: Callable[[], bool], what: str) -> None:
    """Write `value` into the last word of a buffer type for which `holds()` then returns true. The
    place of the word depends on the version of ggml, so every place is tried, last place first.
    Raises EngineError if no place makes `holds()` true.
    """
    for place in reversed(range(BUFFER_TYPE_WORDS)):
        before = words[place]
        words[place] = value
        if holds():
            return
        words[place] = before
    raise EngineError(f"ggml {library.version}: no word is the {what} of a buffer type")


def _check(ws: LibraryWorkspace, made: SecondBackend, device: int) -> None:
    library = ws.library
    takes = library.ggml_backend_supports_buft
    seen = {
        "the second backend accepts its own buffer type": takes(made.backend, made.buffer_type),
        "the second backend refuses the first buffer type": not takes(made.backend, ws.buffer_type),
        "the first backend accepts its own buffer type": takes(ws.backend, ws.buffer_type),
        "the first backend refuses the new buffer type": not takes(ws.backend, made.buffer_type),
        "the new buffer type belongs to the second device": library.ggml_backend_buft_get_device(made.buffer_type)
        == library.ggml_backend_get_device(made.backend)
        != device,
    }
    wrong = [words for words, holds in seen.items() if not holds]
    if wrong:
        raise EngineError(f"ggml {library.version}: no second backend could be made; it is not true that {wrong[0]}")
