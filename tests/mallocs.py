"""Mallocs that tests run with: the C library's, and those of a machine's own packages."""

from pathlib import Path

import pytest

MALLOCS = ("", "libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4")
"""The C library's, then by the names of their libraries."""

_FOLDERS = (*Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64"), Path("/usr/local/lib"))


def there(library: str) -> str:
    """Return the name; skip the test where the library is not installed."""
    if library and not any((folder / library).exists() for folder in _FOLDERS):
        pytest.skip(f"no {library}")
    return library
