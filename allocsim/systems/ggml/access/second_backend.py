"""A second backend with a buffer type of its own, on a machine that has only a CPU: for graphs on
several backends.

Contract: `second_backend(ws)` returns a CPU backend and a buffer type that the first CPU backend
does not accept, like the memory of a device. So a scheduler over both splits graphs and copies
tensors between the splits. The backend is a copy of the library's own structs (backend, device,
buffer type) with two differences: the buffer type is not the host's, and the device accepts that
type alone. Kernels and memory are those of the CPU. The structs are private (ggml-backend-impl.h);
they are used only if public functions report the two differences and no other.

What this module does not see: real devices, whose kernels and alignment are their own.
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
"""`ggml_backend_buffer_type`: six or eight functions, device, context, by version."""

DEVICE_WORDS: Final = 17
"""`ggml_backend_device`: fifteen functions, registry, context."""

SUPPORTS_BUFFER_TYPE: Final = 10

MOST_BACKEND_WORDS: Final = 40
"""Words of a `ggml_backend` among which its device is looked for; its context is the one behind."""

TAKES: Final = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondBackend:
    """Addresses, and what keeps them alive."""

    backend: int
    buffer_type: int
    kept: tuple[Any, ...]


def second_backend(ws: LibraryWorkspace) -> SecondBackend:
    """Return a second backend of a workspace, as the module says.

    It has as many threads as the first: what sums by threads (CROSS_ENTROPY_LOSS) rounds by their
    number, and a graph moved from one to the other keeps its numbers.

    Raises EngineError where the library's structs are not those known.
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
        raise EngineError(f"ggml {library.version}: the device of a backend is not where it is known to be")
    own_backend = (ctypes.c_uint64 * (place + 2))(*pointers(backend, place + 2))
    own_backend[place] = ctypes.addressof(own_device)
    made = SecondBackend(
        backend=ctypes.addressof(own_backend), buffer_type=type_address, kept=(own_type, own_device, own_backend, takes)
    )
    _check(ws, made, device)
    ws.keep(made)
    return made


def _find(library: Library, words: Any, value: int, holds: Callable[[], bool], what: str) -> None:
    """Set the one word with which `holds` comes to be true; raise EngineError where none is.

    By version the struct has other words before it.
    """
    for place in reversed(range(BUFFER_TYPE_WORDS)):
        before = words[place]
        words[place] = value
        if holds():
            return
        words[place] = before
    raise EngineError(f"ggml {library.version}: a buffer type has no {what} where it is looked for")


def _check(ws: LibraryWorkspace, made: SecondBackend, device: int) -> None:
    library = ws.library
    takes = library.ggml_backend_supports_buft
    seen = {
        "the second backend takes its own memory": takes(made.backend, made.buffer_type),
        "the second backend takes no other": not takes(made.backend, ws.buffer_type),
        "the first backend takes its own memory": takes(ws.backend, ws.buffer_type),
        "the first backend takes no other": not takes(ws.backend, made.buffer_type),
        "its memory is the second device's": library.ggml_backend_buft_get_device(made.buffer_type)
        == library.ggml_backend_get_device(made.backend)
        != device,
    }
    wrong = [words for words, holds in seen.items() if not holds]
    if wrong:
        raise EngineError(f"ggml {library.version}: no second backend could be made; it does not hold that {wrong[0]}")
