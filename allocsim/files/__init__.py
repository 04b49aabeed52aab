"""Files appear whole or not at all: written beside their place, then renamed onto it.

A reader never sees half a file, and an interrupted or failing writer leaves the old one as it was. The rename is atomic where
the operating system's is (POSIX; Windows within one volume). A symbolic link is followed, so that the link stays one; what is
no regular file (a pipe, a device) is written in place, since renaming onto it would destroy it.

What this module does not see: formats. It moves bytes.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allocsim.errors import OutputError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a path to write to, with the suffix of `path`; put the file in its place if the block succeeds.

    The place is checked before the block runs, so that long work does not end in an unwritable folder. Raises OutputError
    where the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise OutputError(f"{path}: cannot be written: it is a folder")
        yield target
        return
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.", suffix=target.suffix)
        os.close(handle)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: str | Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all. Raises OutputError where it cannot be written."""
    with replacing(path) as place:
        place.write_bytes(data)


def _mode(target: Path) -> int:
    """Return the permissions the file has already, or those a new file gets under the process's umask."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
