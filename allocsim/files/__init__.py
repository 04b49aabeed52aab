"""Files appear whole or not at all: written beside their place, synced, renamed onto it, and the
folder synced.

A reader never sees half a file, and an interrupted or failing writer leaves the old one as it was;
after `replacing` has returned, so does the loss of power. The rename is atomic where the operating
system's is (POSIX; Windows within one volume). A symbolic link is followed, so that the link stays
one; what is no regular file (a pipe, a device) is written in place, since renaming onto it would
destroy it.

A temporary file is locked while it is written, so what a killed command left behind can be told
from what another one writes now: the first file a process writes into a folder sweeps the leftovers
there. `claimed` keeps a folder to one command. Locks are `flock`: they end with the process,
however it ends; where a system has none, nothing is swept and nothing claimed.

What this module does not see: formats. It moves bytes.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from allocsim.errors import OutputError

LOCKS: bool
"""Whether the system has `flock`."""
try:
    import fcntl
except ImportError:  # Windows
    LOCKS = False
else:
    LOCKS = True

MARK: Final = ".allocsim-part-"
"""In the name of every temporary file: what else lies in a folder is never swept."""

_swept: Final[set[Path]] = set()

_claims: Final[set[tuple[int, int, int]]] = set()
"""Process, device and inode of each folder that is claimed."""


def cache_folder() -> Path:
    """Return the user's folder for what can be made again; it need not be there.

    Of a user without a home, as in some containers, it is one that cannot be made.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allocsim"
    except RuntimeError:
        return Path(os.devnull, "allocsim")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a path to write to, with the suffix of `path`.

    Put the file in its place if the block succeeds.

    The place is checked before the block runs, so that long work does not end in an unwritable
    folder. Raises OutputError where the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise OutputError(f"{path}: cannot be written: it is a folder")
        yield target
        return
    _sweep_once(target.parent)
    handle, names = -1, list[Path]()
    try:  # a name is known before there is a file: an interrupt at any moment leaves none
        handle = _temporary(target, names)
        temporary = names[-1]
        yield temporary
        sync(temporary)
        temporary.chmod(file_mode(target))
        temporary.replace(target)
        sync(target.parent)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        for name in names:
            with suppress(OSError):
                name.unlink()
        if handle >= 0:
            os.close(handle)


def write_atomic(path: str | Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all.

    Raises OutputError where it cannot be written.
    """
    with replacing(path) as place:
        place.write_bytes(data)


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Keep an existing folder to this process until the block ends.

    Yield whether it is kept: False where there are no locks. A process may claim a folder that it
    holds already; a fork of it may not.

    Raises OutputError where another one writes there now.
    """
    if not LOCKS:
        yield False
        return
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        found = os.fstat(handle)
        key = (os.getpid(), found.st_dev, found.st_ino)
        alone = key in _claims or _locked(handle, folder)
        mine = alone and key not in _claims
        if mine:
            _claims.add(key)
        try:
            yield alone
        finally:
            if mine:
                _claims.discard(key)
    finally:
        os.close(handle)


def _locked(handle: int, folder: Path) -> bool:
    """Lock a folder; return whether its file system has locks. OutputError where another has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(f"{folder}: another command writes there now; wait for it, or name another folder") from None
    except OSError:
        return False
    if not os.fstat(handle).st_nlink:
        raise OutputError(f"{folder}: was removed by another command when this one began; run this one again")
    return True


def sweep(folder: Path) -> int:
    """Remove the temporary files that killed commands left in a folder; return how many.

    What is being written now stays.
    """
    if not LOCKS:
        return 0
    removed = 0
    with suppress(OSError):  # what cannot be listed or removed is in nobody's way
        for name in [entry.name for entry in os.scandir(folder) if entry.name.startswith(".") and MARK in entry.name]:
            removed += _removed(folder / name)
    return removed


def _removed(leftover: Path) -> bool:
    try:
        handle = os.open(leftover, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leftover.unlink()
    except OSError:  # its writer lives, or it is not ours to remove
        return False
    finally:
        os.close(handle)
    return True


def _sweep_once(folder: Path) -> None:
    if folder not in _swept:
        _swept.add(folder)
        sweep(folder)


def _temporary(target: Path, names: list[Path]) -> int:
    """Make a temporary file beside `target`, locked, and add its name; OSError where it cannot be
    made. A name serves once: a sweeper that knows it may still be about to remove it.
    """
    for _ in range(100):
        names.append(target.with_name(f".{target.stem[:100]}{MARK}{secrets.token_hex(6)}{target.suffix}"))
        handle = os.open(names[-1], os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if not LOCKS:
            return handle
        with suppress(OSError):  # a file system without locks has no sweeps either
            fcntl.flock(handle, fcntl.LOCK_EX)  # waits for a sweeper that came between
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)
    raise OSError(0, "temporary files vanish as they are made")


def sync(place: Path) -> None:
    """Have the disk hold what was written to a file, or the names in a folder."""
    if place.is_dir() and os.name == "nt":
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_mode(target: Path) -> int:
    """Return the permissions the file has already, or those a new file gets under the process's
    umask.
    """
    if target.exists():
        return target.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


__all__ = ["claimed", "file_mode", "replacing", "sweep", "sync", "write_atomic"]
