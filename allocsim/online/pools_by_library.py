"""Online allocators as shared libraries: `lib:./pool.so` by the interface of
`docs/planners/allocsim_online.h`, and `malloc:libjemalloc.so.2` for any library that has malloc.

A library of the first kind has `allocsim_online_open(capacity, alignment, device)`, `_alloc`,
`_free` and `_close`, and may have `_realloc`, `_record_stream`, `_reserve` and `_trim`; it asks the
device by the functions of the structure that it is given.

Of the second kind `aligned_alloc`, `malloc`, `realloc` and `free` are called. Its memory is real:
every block is filled with bytes of its own, which are compared before it is freed or moved. One
that needs more static thread-local storage than this process has is found, and refused when it is
to make a target: a campaign makes it in a process that has.

A library runs in this process and can do whatever it likes to it (`allocsim.online.own_process`
has a process for that). What this module does not see: whether an answer is right.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

from allocsim.errors import AllocsimError
from allocsim.online.device import Device
from allocsim.recordings.malloc_log import natural

LIBRARY: Final = "lib:"
MALLOC: Final = "malloc:"

_NONE: Final = -1
_NO_ROOM: Final = "static TLS block"
"""What glibc says of a library that asks for more than a running process has left."""
_WAYS: Final = "and more of it than is left here: `allocsim fuzz --online` has 64 KiB"
_Asked = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_Ends = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_Waits = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
_Copies = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class _Functions(ctypes.Structure):
    """`struct allocsim_device`."""

    _fields_ = (("record", _Asked), ("passed", _Asked), ("wait", _Waits), ("synchronize", _Ends), ("copy", _Copies))


def library(path: str) -> Callable[[int | None, int, Device], Any]:
    """Return what makes targets of a library. Raises AllocsimError for one that has not the
    functions.
    """
    found = _loaded(path)
    signatures = {
        "open": ((ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p), ctypes.c_void_p),
        "alloc": ((ctypes.c_void_p, *[ctypes.c_int64] * 3), ctypes.c_int64),
        "free": ((ctypes.c_void_p, *[ctypes.c_int64] * 2), None),
        "close": ((ctypes.c_void_p,), None),
        "realloc": ((ctypes.c_void_p, *[ctypes.c_int64] * 2), ctypes.c_int64),
        "record_stream": ((ctypes.c_void_p, *[ctypes.c_int64] * 2), None),
        "reserve": ((ctypes.c_void_p, *[ctypes.c_int64] * 2), ctypes.c_int64),
        "trim": ((ctypes.c_void_p,), None),
    }
    functions: dict[str, Any] = {}
    for name, (arguments, result) in signatures.items():
        try:
            function = getattr(found, f"allocsim_online_{name}")
        except AttributeError:
            if name in {"open", "alloc", "free", "close"}:
                raise AllocsimError(f"{LIBRARY}{path} has no function allocsim_online_{name}") from None
            continue
        function.argtypes, function.restype = arguments, result
        functions[name] = function
    return lambda capacity, alignment, device: _Library(functions, capacity, alignment, device)


class _Library:
    def __init__(self, functions: dict[str, Any], capacity: int | None, alignment: int, device: Device) -> None:
        self._functions = functions
        self._device = _Functions(  # kept as long as the library may call it
            _Asked(device.record),
            _Asked(device.passed),
            _Waits(device.wait),
            _Ends(device.synchronize),
            _Copies(device.copy),
        )
        self._handle = functions["open"](
            _NONE if capacity is None else capacity, alignment, ctypes.addressof(self._device)
        )
        if not self._handle:
            raise ValueError("allocsim_online_open returned NULL")
        if "realloc" in functions:
            self.realloc = self._realloc
        if "record_stream" in functions:
            self.record_stream = lambda address, stream: functions["record_stream"](self._handle, address, stream)
        if "reserve" in functions:
            self.reserve = lambda nbytes, stream: functions["reserve"](self._handle, nbytes, stream) > 0
        if "trim" in functions:
            self.trim = lambda: functions["trim"](self._handle)

    def alloc(self, nbytes: int, alignment: int, stream: int, tag: str) -> int | None:  # noqa: ARG002 - names are for people
        """Return the library's answer, None for a negative one."""
        answer = int(self._functions["alloc"](self._handle, nbytes, alignment, stream))
        return None if answer < 0 else answer

    def free(self, address: int, stream: int) -> None:
        """Give memory back."""
        self._functions["free"](self._handle, address, stream)

    def _realloc(self, address: int, nbytes: int) -> int | None:
        answer = int(self._functions["realloc"](self._handle, address, nbytes))
        return None if answer < 0 else answer

    def __del__(self) -> None:
        if self._handle:
            self._functions["close"](self._handle)


def malloc(path: str) -> Callable[[int | None, int, Device], Any]:
    """Return what makes targets of a library's malloc; an empty path is the C library."""
    try:
        found = _loaded(path or "libc.so.6")
    except AllocsimError as error:
        if _NO_ROOM not in str(error):
            raise
        return _refusing(f"{path} must have thread-local storage from the start, {_WAYS}")
    missing = [name for name in ("malloc", "aligned_alloc", "realloc", "free") if not hasattr(found, name)]
    if missing:
        raise AllocsimError(f"{MALLOC}{path} has no function {missing[0]}")
    for name, arguments in {"malloc": 1, "aligned_alloc": 2}.items():
        function = getattr(found, name)
        function.argtypes, function.restype = [ctypes.c_size_t] * arguments, ctypes.c_void_p
    found.realloc.argtypes, found.realloc.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
    found.free.argtypes, found.free.restype = [ctypes.c_void_p], None
    return lambda _capacity, _alignment, device: RealMemory(found, device)


class RealMemory:
    """Real memory of functions `malloc` and `free`: what lies in a block is its own until it is
    freed.

    Where there is `aligned_alloc`, it is asked for more than malloc's alignment; else malloc is,
    for so many bytes more. Where there is no `realloc`, none is asked for.
    """

    keeps = True
    unbounded = True
    threads = forks = True

    def __init__(self, found: Any, device: Device, natural: Callable[[int], int] = natural) -> None:
        self._found = found
        self._device = device
        self._natural = natural
        """The alignment of so many bytes of malloc."""
        self._filled: dict[int, bytes] = {}
        self._aligned: dict[int, int] = {}
        """By address of a block with more than malloc's alignment, what is freed for it."""
        self._made = 0
        if hasattr(found, "realloc"):
            self.realloc = self._realloc

    def alloc(self, nbytes: int, alignment: int, stream: int, tag: str) -> int | None:  # noqa: ARG002 - it knows no streams
        """Return the address of new memory that is filled with bytes of its own."""
        usual = self._natural(nbytes)
        if alignment <= usual:
            address = self._found.malloc(nbytes)
        elif hasattr(self._found, "aligned_alloc"):
            address = start = self._found.aligned_alloc(alignment, -(-nbytes // alignment) * alignment)
        else:
            start = self._found.malloc(nbytes + alignment - usual)
            address = None if start is None else -(-start // alignment) * alignment
        if address is None:
            return None
        if alignment > usual:
            self._aligned[address] = start
        self._fill(address, nbytes)
        return int(address)

    def free(self, address: int, stream: int) -> None:  # noqa: ARG002 - as above
        """Give memory back, if its bytes are what they were."""
        self._check(address, self._filled.pop(address))
        self._found.free(self._aligned.pop(address, address))

    def _realloc(self, address: int, nbytes: int) -> int | None:
        """Return where the block is now; its first bytes are compared. None for a block of more
        than malloc's own alignment, old or new, which C's realloc does not keep.
        """
        if address in self._aligned or self._natural(nbytes) < self._natural(len(self._filled[address])):
            return None
        kept = self._filled.pop(address)
        self._check(address, kept)
        new = self._found.realloc(address, nbytes)
        if new is None:
            self._filled[address] = kept
            return None
        self._check(new, kept[:nbytes])
        if new != address:
            self._device.copy(address, new, min(len(kept), nbytes))
        self._fill(new, nbytes)
        return int(new)

    def _fill(self, address: int, nbytes: int) -> None:
        self._made += 1
        self._filled[address] = (self._made.to_bytes(8, "little") * (nbytes // 8 + 1))[:nbytes]
        ctypes.memmove(address, self._filled[address], nbytes)

    def _check(self, address: int, held: bytes) -> None:
        if ctypes.string_at(address, len(held)) != held:
            raise ValueError(f"the bytes of a block of {len(held)} are not what its holder wrote")

    def __del__(self) -> None:
        for address in self._filled:
            self._found.free(self._aligned.get(address, address))


def _refusing(why: str) -> Callable[[int | None, int, Device], Any]:
    """Return what makes no target here, though it may in another process."""

    def make(_capacity: int | None, _alignment: int, _device: Device) -> Any:
        raise AllocsimError(why)

    return make


def _loaded(path: str) -> Any:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise AllocsimError(f"{path} cannot be loaded: {error}") from None
