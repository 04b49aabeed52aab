"""Find and load a libggml: one handle with every function typed.

Contract
--------
* `find("before" | "after" | PATH)` names a file and loads nothing. *before* is an installed
  pywhispercpp (ggml 0.13.1, with the kernel bug of issue 1501), *after* an installed xllamacpp
  (0.26.0). A path may be the library or a folder that holds one.
* `load` maps the library with RTLD_LOCAL (two ggmls in one process do not see each other) after the
  libraries it needs that lie beside it (libgomp, libggml-base), and types every function of
  `declarations`. It calls `ggml_version` and the op name table, nothing else.
* A library that lacks a function is refused with one line; `allocsim.systems.ggml.access.probe`
  decides whether its structs are those that the bridge knows.

What this module does not see: structs, graphs, kernels. Linux x86-64 only. A library stays mapped
until the process ends.
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
"""Name of a library -> the wheel that carries it, and the file in that wheel."""

IN_FOLDER: Final = ("libggml-cpu*.so*", "libggml.so*", "xllamacpp*.so")
"""Files of a folder that may be a whole libggml; the first that is there is taken."""

COMPANIONS: Final = ("libgomp*.so*", "libggml-base*.so*")
"""Libraries a libggml needs; loaded first where they lie in its folder, in this order."""

LAST_OP: Final = "GLU"
"""The last row of ggml's op name table since 0.9; reading beyond it is out of bounds."""

LAST_TYPE: Final = 39
"""The last type (mxfp4) that every version the bridge takes has.

The table of names is not read beyond it.
"""

MAX_OPS: Final = 160
"""Rows after which a table without `LAST_OP` is taken for another layout."""


class Library:
    """One mapped libggml; `library.ggml_new_graph_custom(...)` calls into it.

    Attributes of the names in `declarations` are the typed functions; a missing one raises
    EngineError when it is asked for.
    """

    def __init__(self, path: Path, name: str, handle: ctypes.CDLL) -> None:
        self.path = path
        """The file."""
        self.name = name
        """`before`, `after` or the path as given."""
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
        """Look up every function and the tables of ops once, and let ggml fill its own tables of
        numbers; no thread is started.
        """
        for name in SIGNATURES:
            if self.has(name):
                getattr(self, name)
        self.ops, self.op_names, self.in_place_ops, self.all_types  # noqa: B018 - fills their caches
        self.ggml_backend_free(self.ggml_backend_cpu_init())

    def has(self, name: str) -> bool:
        """Return whether the library exports the function."""
        return name in SIGNATURES and hasattr(self._handle, name)

    def address(self, name: str) -> int:
        """Return the address of an exported function, 0 where there is none of that name."""
        function = getattr(self._handle, name, None)
        return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0

    @cached_property
    def version(self) -> str:
        """What the library calls itself, as `0.26.0`."""
        return bytes(self.ggml_version()).decode()

    @cached_property
    def ops(self) -> dict[str, int]:
        """Op name -> number in this library (numbers differ between versions)."""
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
        """Names of the ops whose result the planner may lay over a source, as `ggml_op_can_inplace`
        says.
        """
        return frozenset(name for name, number in self.ops.items() if self.ggml_op_can_inplace(number))

    @cached_property
    def types(self) -> dict[str, int]:
        """Name of each type this bridge makes tensors of -> number.

        Those numbers are part of the GGUF format and do not change.
        """
        numbers = {"f32": 0, "f16": 1, "i8": 24, "i16": 25, "i32": 26, "i64": 27, "f64": 28, "bf16": 30}
        for name, number in numbers.items():
            found = bytes(self.ggml_type_name(number)).decode(errors="replace")
            if found != name:
                raise EngineError(f"{self.path.name}: type {number} is {found!r}, expected {name!r}")
        return numbers

    @cached_property
    def all_types(self) -> dict[str, int]:
        """Name of each type -> number, as far as all versions agree.

        Numbers are part of the GGUF format and do not change.
        """
        names = {
            number: bytes(self.ggml_type_name(number) or b"").decode(errors="replace")
            for number in range(LAST_TYPE + 1)
        }
        return {name: number for number, name in names.items() if name and self.ggml_blck_size(number) > 0}

    def type_number(self, name: str) -> int:
        """Return the number of a type.

        Raise EngineError where this version has none of that name.
        """
        if name not in self.all_types:
            raise EngineError(f"ggml {self.version} has no type {name!r}")
        return self.all_types[name]


def versions(library: Library) -> dict[str, Any]:
    """Task of a child process: return the version and the in-place list."""
    return {"version": library.version, "in_place": sorted(library.in_place_ops)}


def find(which: str) -> Path:
    """Return the library file called `before` or `after`, or the one at a path (a file or a
    folder).

    Raises EngineError where the wheel is not installed or the path holds no libggml.
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
    """Load the library of that name or path and return it typed.

    Raises EngineError where it is none, or lacks a function.
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
