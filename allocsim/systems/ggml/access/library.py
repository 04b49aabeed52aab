"""Find and load a libggml as one handle on which every function has ctypes types.

Contract
--------
* `find("before" | "after" | PATH)` returns the path of a library file and loads nothing. The name
  `before` means the library of an installed pywhispercpp (ggml 0.13.1, with the kernel bug of issue
  1501). The name `after` means the library of an installed xllamacpp (ggml 0.26.0). PATH is a
  library file or a folder that contains a library file.
* `load` first maps libgomp and libggml-base if they are in the library's folder. Then `load` maps
  the library with RTLD_LOCAL, so that two ggmls in one process do not see each other's symbols. A
  function of `declarations` gets its types when it is first used. `load` calls no function of the
  library.
* A library that lacks a required function is refused with a one-line error.
  `allocsim.systems.ggml.access.probe` checks whether the library's structs are those that the
  bridge knows.

This module does not examine structs, graphs or kernels. The module works on Linux x86-64 only. A
library stays mapped until the process ends.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from allocsim.errors import EngineError, UnknownNameError
from allocsim.systems.ggml.access.declarations import OPTIONAL, SIGNATURES

WHEELS: Final[dict[str, tuple[str, str]]] = {
    "before": ("pywhispercpp", "libggml-cpu-*.so*"),
    "after": ("xllamacpp", "xllamacpp*.so"),
}
"""Name of a library -> the wheel that contains it, and the pattern of its file in that wheel."""

IN_FOLDER: Final = ("libggml-cpu*.so*", "libggml.so*", "xllamacpp*.so")
"""Patterns of files in a folder that may be a whole libggml; the first match is used."""

COMPANIONS: Final = ("libgomp*.so*", "libggml-base*.so*")
"""Libraries that a libggml needs; if its folder has them, they are loaded first, in this order."""

LAST_OP: Final = "GLU"
"""The last row of ggml's op name table since ggml 0.9. A read beyond this row is out of bounds."""

LAST_TYPE: Final = 39
"""The number of the last type (mxfp4) that all versions supported by the bridge have.

The table of type names is not read beyond this number.
"""

MAX_OPS: Final = 160
"""The most rows of the op name table. A library without `LAST_OP` in these rows is refused."""


class Library:
    """One mapped libggml; `library.ggml_new_graph_custom(...)` calls a function of the library.

    Each name in `declarations` is an attribute that returns the typed function. The attribute
    raises EngineError if the library does not export that function.
    """

    def __init__(self, path: Path, name: str, handle: ctypes.CDLL) -> None:
        self.path = path
        """The path of the library file."""
        self.name = name
        """The name of the library as the caller gave it: `before`, `after` or a path."""
        self._handle = handle

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in SIGNATURES:
            raise AttributeError(name)
        function = getattr(self._handle, name, None)
        if function is None:
            raise EngineError(f"{self.path.name} does not export {name}")
        function.restype, function.argtypes = SIGNATURES[name]
        setattr(self, name, function)
        return function  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Library({self.name!r}, ggml {self.version})"

    def warm(self) -> None:
        """Look up every function and the tables of ops and types once, and let ggml fill its
        internal tables by opening a CPU backend. `warm` starts no thread.
        """
        for name in SIGNATURES:
            if self.has(name):
                getattr(self, name)
        self.ops, self.op_names, self.in_place_ops, self.all_types  # noqa: B018 - fills their caches
        self.ggml_backend_free(self.ggml_backend_cpu_init())

    def has(self, name: str) -> bool:
        """Return whether the function is declared in `declarations` and the library exports it."""
        return name in SIGNATURES and hasattr(self._handle, name)

    def address(self, name: str) -> int:
        """Return the address of an exported function, or 0 if the library exports no such name."""
        function = getattr(self._handle, name, None)
        return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0

    @cached_property
    def version(self) -> str:
        """The version that the library reports, for example `0.26.0`."""
        return bytes(self.ggml_version()).decode()

    @cached_property
    def ops(self) -> dict[str, int]:
        """Op name -> the op's number in this library. The numbers differ between versions."""
        table: dict[str, int] = {}
        for number in range(MAX_OPS):
            name = bytes(self.ggml_op_name(number)).decode(errors="replace")
            table[name] = number
            if name == LAST_OP:
                return table
        raise EngineError(
            f"{self.path.name}: its op name table does not end with {LAST_OP}; this version of ggml is not known"
        )

    @cached_property
    def op_names(self) -> dict[int, str]:
        """Op number -> name."""
        return {number: name for name, number in self.ops.items()}

    @cached_property
    def in_place_ops(self) -> frozenset[str]:
        """Names of the ops for which `ggml_op_can_inplace` returns true: the planner may place the
        result in the bytes of a source.
        """
        return frozenset(name for name, number in self.ops.items() if self.ggml_op_can_inplace(number))

    @cached_property
    def types(self) -> dict[str, int]:
        """Name -> number of each element type that is not quantised; GGUF fixes these numbers.
        Raises EngineError if a number has another name in this library.
        """
        numbers = {"f32": 0, "f16": 1, "i8": 24, "i16": 25, "i32": 26, "i64": 27, "f64": 28, "bf16": 30}
        for name, number in numbers.items():
            found = bytes(self.ggml_type_name(number)).decode(errors="replace")
            if found != name:
                raise EngineError(f"{self.path.name}: type {number} is {found!r}, expected {name!r}")
        return numbers

    @cached_property
    def all_types(self) -> dict[str, int]:
        """Name -> number of each type up to `LAST_TYPE` that has a name and a block size.

        The numbers are part of the GGUF format and do not change.
        """
        names = {
            number: bytes(self.ggml_type_name(number) or b"").decode(errors="replace")
            for number in range(LAST_TYPE + 1)
        }
        return {name: number for number, name in names.items() if name and self.ggml_blck_size(number) > 0}

    def type_number(self, name: str) -> int:
        """Return the number of a type.

        Raises EngineError if this version has no type of that name.
        """
        if name not in self.all_types:
            raise EngineError(f"ggml {self.version} has no type {name!r}")
        return self.all_types[name]


def versions(library: Library) -> dict[str, Any]:
    """Return the version and the names of the in-place ops; a task of a child process."""
    return {"version": library.version, "in_place": sorted(library.in_place_ops)}


def find(which: str) -> Path:
    """Return the library file for the name `before` or `after`, or for the path of a file or a
    folder. Raises EngineError if the wheel is not installed, the path has no libggml, or the
    machine is not Linux x86-64. Raises UnknownNameError for another name.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise EngineError("the ggml bridge runs on Linux x86-64 only")
    if which in WHEELS:
        return _in_wheel(which)
    path = Path(which)
    if path.is_dir():
        found = [file for pattern in IN_FOLDER for file in sorted(path.rglob(pattern))]
        if not found:
            raise EngineError(f"{path}: holds no {', no '.join(IN_FOLDER)}")
        return found[0].resolve()
    if path.is_file():
        return path.resolve()
    if os.sep not in which and "." not in which:
        raise UnknownNameError("ggml library", which, WHEELS)
    raise EngineError(f"{which}: no such library; give before, after or the path of a libggml")


def _in_wheel(which: str) -> Path:
    package, pattern = WHEELS[which]
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise EngineError(
            f"ggml {which!r} is the one inside {package}, which is not installed; pip install 'allocsim[ggml]'"
        ) from None
    for file in files:
        if file.match(pattern):
            return Path(str(file.locate())).resolve()
    raise EngineError(f"{package} {metadata.version(package)} holds no {pattern}")


def load(which: str | Path) -> Library:
    """Map the library of that name or path and return its handle.

    Raises EngineError if the file cannot be loaded or lacks a required function.
    """
    path = which if isinstance(which, Path) else find(which)
    for pattern in COMPANIONS:
        for companion in sorted(path.parent.glob(pattern)):
            if companion != path:
                _map(companion)
    library = Library(path, str(which), _map(path))
    missing = [name for name in SIGNATURES if name not in OPTIONAL and not library.has(name)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise EngineError(f"{path.name} is no complete libggml: it does not export {', '.join(missing[:3])}{more}")
    return library


def _map(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise EngineError(f"{path.name} cannot be loaded: {error}") from None
