"""Several files of one folder are replaced together; whatever else lies there is never touched.

    with working_in(folder):                                      # made, claimed, mended
        replace_files(folder, {"report.json": data, "figures/loss.png": draw}, stale=["modes.csv"])

The new files are written into `SWAP`, a folder inside the folder, and synced. A manifest is renamed
into place: from then on the new state holds. Each old file is renamed into `SWAP`, and each new one
to its place. Last the manifest goes, and `SWAP` after it. Any exception before the manifest goes,
Ctrl-C among them, puts the old files back. What a killed command left is mended by the next one
that works in the folder, which says so on standard error: with a manifest the new files are put in
place, without one they are removed.

Names are relative to the folder, with `/`. Only the names given are moved or removed: a file of
someone else keeps its place and its bytes at every moment. A symbolic link is followed. A reader
that comes between two renames is given the new state by `current`. O(files) renames and syncs.

What this module does not see: formats; a power loss on a disk that lies about what it synced; a
second writer on a file system without locks, beyond refusing a `SWAP` that it cannot explain.
"""

import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypedDict

from allocsim.errors import OutputError
from allocsim.files import claimed, file_mode, sync, write_atomic
from allocsim.files.gate import CEILINGS, content, refused_with
from allocsim.files.journal import sealed, unsealed

SWAP: Final = ".allocsim-swap"
"""The folder inside a folder in which new files wait and old ones are kept until all is done."""

MANIFEST: Final = "manifest.json"
NEW: Final = "new"
OLD: Final = "old"

Content = bytes | Callable[[Path], object]
"""What a file is to hold, or a function that writes it to a path; it may leave the file out."""

_refuse: Final = refused_with(OutputError)


class _Manifest(TypedDict):
    put: list[str]
    """Names of new files."""
    take: list[str]
    """Names of files that have no new one."""
    made: list[str]
    """Folders that are not there yet, deepest first."""


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Make a folder, keep it to this command until the block ends, and mend what a killed one left.

    A folder that was made here and is still empty at the end is removed again.

    Raises OutputError where it cannot be made, or where another command writes there now.
    """
    try:
        made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None
    with claimed(folder) as alone:
        try:
            _mend(folder, alone=alone)
            yield
        finally:
            for empty in made:
                with suppress(OSError):  # something lies in it
                    empty.rmdir()


def replace_files(folder: Path, files: Mapping[str, Content], *, stale: Collection[str] = ()) -> None:
    """Put `files` into a folder together, and take away those of `stale` that are not among them.

    Args:
        folder: made where it is missing.
        files: name -> content. The last one is put in place last.
        stale: names of files of an earlier state; what is not there is passed over.

    Raises OutputError where the files cannot be written; the folder is then as it was.
    """
    with working_in(folder):
        swap = folder / SWAP
        try:
            swap.mkdir()
            _put_together(folder, files, stale)
        except OSError as error:
            raise _unwritable(folder, error) from None
        finally:
            if not (swap / MANIFEST).exists():
                _clear(swap)


def current(folder: Path, name: str) -> Path:
    """Return where the file lies that `name` means now.

    That is its place, or `SWAP` where a command was stopped before the last rename.
    """
    waiting = folder / SWAP / NEW / name
    return waiting if waiting.exists() and (folder / SWAP / MANIFEST).exists() else folder / name


def _put_together(folder: Path, files: Mapping[str, Content], stale: Collection[str]) -> None:
    swap = folder / SWAP
    (swap / OLD).mkdir()
    for name, held in files.items():
        _stage(swap / NEW / name, held, _place(folder, name))
    manifest = _Manifest(
        put=[name for name in files if (swap / NEW / name).exists()],
        take=[name for name in stale if not (swap / NEW / name).exists() and _place(folder, name).exists()],
        made=[],
    )
    within = {str(parent) for name in manifest["put"] for parent in Path(name).parents}
    manifest["made"] = sorted((name for name in within if not (folder / name).exists()), reverse=True)
    for place in {path.parent for path in (swap / NEW).rglob("*")} | {swap}:
        sync(place)
    try:
        write_atomic(swap / MANIFEST, sealed(manifest))
        _go_forward(folder, manifest)
    except BaseException:
        _go_back(folder, manifest)
        raise
    (swap / MANIFEST).unlink()  # behind the handler: once this is gone there is no way back


def _stage(path: Path, held: Content, place: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(held):
        held(path)
        if not path.exists():
            return
    else:
        path.write_bytes(held)
    path.chmod(file_mode(place))
    sync(path)


def _go_forward(folder: Path, manifest: _Manifest) -> None:
    """Rename what has not been renamed yet; the same again after any stop."""
    swap, touched = folder / SWAP, {folder}
    for name in (*manifest["take"], *manifest["put"]):
        new, old, place = swap / NEW / name, swap / OLD / name, _place(folder, name)
        if name in manifest["put"] and not new.exists():
            continue  # it is in its place
        if place.exists() and old.exists():
            raise OutputError(f"{place}: appeared while a command was replacing it; move it away, and run that again")
        for parent in (old.parent, place.parent):
            parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            place.rename(old)
        if new.exists():
            new.rename(place)
        touched.add(place.parent)
    for parent in touched:
        sync(parent)
    for parent in touched - {folder}:
        with suppress(OSError):  # something lies in it
            parent.rmdir()


def _go_back(folder: Path, manifest: _Manifest) -> None:
    """Put the old files back, and end the manifest.

    Where that fails too, the manifest stays and the next command goes forward.
    """
    swap, touched = folder / SWAP, {folder}
    for name in (*reversed(manifest["put"]), *manifest["take"]):
        new, old, place = swap / NEW / name, swap / OLD / name, _place(folder, name)
        if name in manifest["put"] and not new.exists():
            place.rename(new)
        if old.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            old.rename(place)
            touched.add(place.parent)
    with suppress(OSError):  # what cannot be synced may be why it goes back
        for parent in touched:
            sync(parent)
    for name in manifest["made"]:
        with suppress(OSError):  # something lies in it, or it was not made
            (folder / name).rmdir()
    (swap / MANIFEST).unlink(missing_ok=True)


def _mend(folder: Path, *, alone: bool) -> None:
    """Finish or remove what a killed command left in the folder, and say so."""
    swap = folder / SWAP
    if not swap.is_dir():
        return
    if not alone:
        raise OutputError(
            f"{swap}: belongs to a command that still writes there or was killed, and no file lock here tells which; "
            "remove it when no such command runs"
        )
    try:
        if (swap / MANIFEST).exists():
            data = content(swap / MANIFEST, CEILINGS["settings"], refusal=_refuse)
            manifest: _Manifest = unsealed(data, _Manifest, str(swap / MANIFEST), refusal=_refuse)
            _go_forward(folder, manifest)
            (swap / MANIFEST).unlink()
            said = f"the {len(manifest['put'])} files of an earlier command, which was stopped, are put in place now"
        else:
            said = "what an earlier command had begun to write and not finished is removed"
    except OSError as error:
        raise _unwritable(folder, error) from None
    _clear(swap)
    sys.stderr.write(f"{folder}: {said}\n")


def _place(folder: Path, name: str) -> Path:
    """Return where a file of the folder lies.

    Raises OutputError where something lies there that is no file, or the name leads out of the
    folder.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts or not name:
        raise OutputError(f"{folder}: {name!r} is no name of a file in it")
    place = Path(os.path.realpath(folder / name))
    if place.exists() and not place.is_file():
        raise OutputError(f"{folder / name}: cannot be written: it is no file")
    return place


def _clear(swap: Path) -> None:
    """Remove what this module makes in `SWAP`, and nothing else."""
    for part in (NEW, OLD):
        shutil.rmtree(swap / part, ignore_errors=True)
    with suppress(OSError):  # something lies in it, or it is gone
        for unfinished in swap.glob(f".{Path(MANIFEST).stem}*"):
            unfinished.unlink()
        swap.rmdir()


def _unwritable(folder: Path, error: Exception) -> OutputError:
    return OutputError(f"{folder}: cannot be written: {getattr(error, 'strerror', None) or error}")


__all__ = ["MANIFEST", "NEW", "OLD", "SWAP", "Content", "current", "replace_files", "working_in"]
