"""Mallocs that tests run with, the C library's and those of a machine's own packages, and programs under their recorder."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allocsim.cli import main

needs_compilers = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None or shutil.which("cc") is None, reason="no C++ compiler"
)

MALLOCS = ("", "libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4")
"""The C library's, then by the names of their libraries."""

_FOLDERS = (*Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64"), Path("/usr/local/lib"))


def there(library: str) -> str:
    """Return the name; skip the test where the library is not installed."""
    if library and not any((folder / library).exists() for folder in _FOLDERS):
        pytest.skip(f"no {library}")
    return library


def with_malloc(library: str) -> list[str]:
    """Return the options for a malloc; skip where it is not installed."""
    return ["--with", library] if there(library) else []


def built(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    """Compile C++ (or C for a library); return the file."""
    shared = name.endswith(".so")
    path = folder / f"{name}.{'c' if shared else 'cpp'}"
    path.write_text(source)
    compiler = ["cc", "-shared", "-fPIC"] if shared else ["g++", "-std=c++17", "-fno-builtin", "-pthread"]
    subprocess.run([*compiler, "-O0", *flags, "-o", str(folder / name), str(path)], check=True)
    return folder / name


def recorded(capsys: Any, *arguments: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Run a program under the recorder; return the status, its first process, and all findings."""
    capsys.readouterr()
    status = main(["record", "malloc", "--json", *arguments])
    out = capsys.readouterr().out  # with what the program printed
    said = json.loads(out[out.index("{") :])["processes"]
    return status, said[0], [finding for one in said for finding in one["findings"]]
