"""The gate: every file that is read comes through here.

    data = content(path)                              # its bytes, no more than a ceiling; `-` is standard input
    record = record_of(data, Baseline, str(path))     # JSON of a declared type
    with refusing(str(path), "GGUF file"):            # whatever a library raises becomes one line
        reader = GGUFReader(path)

A file is data of others. Its size is bounded before a byte is kept, and so is what a file that
gzip compressed holds, which is read as if it were not compressed. JSON is decoded into a declared
type with bounded numbers, and what libraries raise on a broken file becomes one `DocumentError`
with file, place and rule; a caller with an error of its own passes it as `refusal`.
`CEILINGS` has the sizes. A test holds that no other module of the packages opens a file for
reading, but for those in its table, each with a reason.

What this module does not see: what a file means. Whether its numbers fit together is judged behind
the gate, by who knows the format.
"""

import errno
import os
import re
import select
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import msgspec

from allocsim.errors import AllocsimError, DocumentError

CEILINGS: Final[Mapping[str, int]] = {
    "document": 512 << 20,
    "record": 64 << 20,
    "settings": 1 << 20,
    "stream": 4 << 30,
}
"""Bytes at most: a document or dump; a record of this project's own (evidence, report);
a configuration; raw data to train on, and a journal, which grows."""

PIECE: Final = 1 << 22
"""Bytes that are read at once."""

PATIENCE_SECONDS: Final = 60
"""For the first byte of a pipe."""

INPUT: Final = "-"
"""Standard input, where a file is named."""

COMPRESSED: Final = b"\x1f\x8b"
"""What a file begins with that gzip compressed (RFC 1952)."""

INFLATED: Final = 64 << 20
"""Bytes at most in a compressed file, and of it: a small file may not ask for much memory."""

Made = TypeVar("Made")
Refusal = Callable[[str, str, str], AllocsimError]
"""(source, place, rule) -> the error to raise."""


def is_file(name: str) -> bool:
    """Return whether a name that may be a scenario's is that of a file, or of standard input."""
    return name == INPUT or Path(name).exists()


def content(
    path: str | Path,
    most: int = CEILINGS["document"],
    *,
    begins: Callable[[bytes], bool] | None = None,
    refusal: Refusal = DocumentError,
) -> bytes:
    """Return the bytes of a file; O(size).

    Args:
        path: the file, or `-`; what has no end (a device, a pipe) is read up to the ceiling.
        most: the ceiling in bytes; no more than one byte above it is ever kept.
        begins: whether the file may begin with these up to 64 KiB; if not, they are returned alone,
            for its reader to refuse, however long it is.
        refusal: the error to raise.

    Raises the refusal where it cannot be opened or read, or is larger.
    """
    try:
        with _opened(path) as stored, _inflating(stored) as file:
            data = file.read(min(1 << 16, most + 1))
            if begins is None or begins(data):
                data += _read(file, most + 1 - len(data))
    except UNREADABLE as error:
        raise refusal(str(path), "", _cannot(error)) from None
    return bounded(data, str(path), most, refusal=refusal)


UNREADABLE: Final = (OSError, ValueError, EOFError, zlib.error)
"""ValueError: a name with a null character. The last two: compressed bytes, cut or damaged."""


def _cannot(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be read: {said}"


def _inflating(file: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """Give the file itself, or what is in it where gzip compressed it."""
    peek = getattr(file, "peek", None)  # a stream without it (bytes in memory) is taken as it is
    if peek is None or not peek(2).startswith(COMPRESSED):
        return nullcontext(file)
    return cast("AbstractContextManager[IO[bytes]]", BufferedReader(_Inflated(file), PIECE))


class _Inflated(RawIOBase):
    """What is in a file that gzip compressed, in one member or several.

    ValueError beyond `INFLATED` bytes of it or in it, EOFError and zlib.error for what is cut or
    damaged. Zeros may follow the last member (RFC 1952 is silent; tapes are padded so).
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._member: Any = None
        """What inflates the member that is read; None between two."""
        self._waiting = b""
        self._stored = self._given = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, room: Any) -> int:
        """Fill the room with the next bytes; 0 at the end."""
        while (data := self._next(len(room))) == b"":
            pass
        if data is None:
            return 0
        self._given = _in_bounds(self._given + len(data))
        room[: len(data)] = data
        return len(data)

    def _next(self, most: int) -> bytes | None:
        """Return what comes of the bytes that wait, or of more of them; None at the end."""
        if self._member is None:
            self._waiting = self._waiting.lstrip(b"\0") or self._raw()
            if not self._waiting:
                return None
            if not self._waiting.startswith(b"\0"):
                self._member = zlib.decompressobj(wbits=31)
            return b""
        data: bytes = self._member.decompress(self._waiting, most)
        self._waiting = self._member.unconsumed_tail
        if self._member.eof:
            self._member, self._waiting = None, self._member.unused_data
        elif not data and not self._waiting:
            self._waiting = self._raw()
            if not self._waiting:
                raise EOFError("it ends before the end of what gzip compressed")
        return data

    def _raw(self) -> bytes:
        data = self._file.read(1 << 14)  # what is left of it is copied at the end of each member
        self._stored = _in_bounds(self._stored + len(data))
        return data


def _in_bounds(count: int) -> int:
    if count > INFLATED:
        raise ValueError(f"it holds more than {INFLATED >> 20} MiB, the most that is read of a compressed file")
    return count


def _opened(name: str | Path) -> IO[bytes] | AbstractContextManager[IO[bytes]]:
    """Open a file to read; OSError where it is a pipe and nobody begins to write in time."""
    if str(name) == INPUT:
        if sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed")
        return nullcontext(sys.stdin.buffer)
    path = Path(name)
    if not path.is_fifo():
        return path.open("rb")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without a writer a plain open would wait for ever
    if not select.select([handle], [], [], PATIENCE_SECONDS)[0]:
        os.close(handle)
        raise OSError(errno.ETIMEDOUT, f"it is a pipe into which nothing was written for {PATIENCE_SECONDS} s")
    os.set_blocking(handle, True)
    return os.fdopen(handle, "rb")


def _read(file: IO[bytes], most: int) -> bytes:
    """Return up to so many bytes; `read` makes room for all that it is asked for before it
    reads.
    """
    pieces, room = [], most
    while room > 0 and (piece := file.read(min(room, PIECE))):
        pieces.append(piece)
        room -= len(piece)
    return b"".join(pieces)


def file_lines(path: str | Path | IO[bytes], source: str, most: int = CEILINGS["settings"]) -> Iterator[list[bytes]]:
    """Yield the lines of a file or of an open stream, some thousands at a time, each with its end.

    However long the file is, no more than some lines of it are kept; a line has at most `most`
    bytes. Raises DocumentError where it cannot be read or a line is longer.
    """
    try:
        opened = _opened(path) if isinstance(path, str | Path) else nullcontext(path)
        with opened as stored, _inflating(stored) as file:
            rest = b""
            while piece := file.read(most):  # `readlines` would take up a line of any length
                lines = BytesIO(rest + piece).readlines()
                rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
                if max(len(lines[0]) if lines else 0, len(rest)) > most:  # others lie in one piece
                    raise DocumentError(source, "", f"has a line of more than {most >> 10} KiB, the most that is read")
                yield lines
            if rest:
                yield [rest]
    except UNREADABLE as error:
        raise DocumentError(source, "", _cannot(error)) from None


def stream_content(stream: IO[bytes], source: str, most: int = CEILINGS["document"]) -> bytes:
    """Return what an open stream (standard input) holds, as `content` does for a file."""
    try:
        data = _read(stream, most + 1)
    except OSError as error:
        raise DocumentError(source, "", f"cannot be read: {error.strerror or error}") from None
    return bounded(data, source, most)


def zipped(data: bytes, source: str, ends: str, *, refusal: Refusal = DocumentError) -> bytes:
    """Return the one member of a zip archive whose name ends like this, up to `INFLATED` bytes.

    Raises the refusal where there is none or are several, it is larger or compressed by another
    method than deflate, or the archive is damaged.
    """
    try:
        with ZipFile(BytesIO(data)) as archive:
            found = [name for name in archive.namelist() if name.endswith(ends)]
            if len(found) != 1:
                raise refusal(source, "", f"the archive has {len(found)} files *{ends}; one is needed")
            if archive.getinfo(found[0]).compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise refusal(source, "", f"{found[0]} is compressed by an unsupported method")
            with archive.open(found[0]) as member:
                return bounded(member.read(INFLATED + 1), source, INFLATED, refusal=refusal)
    except (BadZipFile, NotImplementedError, RuntimeError, *UNREADABLE) as error:
        raise refusal(source, "", _cannot(error)) from None


def bounded(data: bytes, source: str, most: int, *, refusal: Refusal = DocumentError) -> bytes:
    """Return the bytes; raise the refusal where there are more than `most`."""
    if len(data) > most:
        raise refusal(source, "", f"is larger than {most >> 20} MiB, the most that is read")
    return data


def record_of(
    data: bytes | str,
    kind: type[Made] | Any,
    source: str,
    *,
    what: str = "record",
    decode: Callable[..., Any] = msgspec.json.decode,
    refusal: Refusal = DocumentError,
) -> Made:
    """Return JSON, or what else `decode` reads, as a value of a declared type. O(size).

    Raises the refusal, with the place of the first fault, for text that is none, and for types,
    keys and numbers outside what `kind` allows.
    """
    try:
        made: Made = decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise refusal(source, "", f"is no {what}: {_place_and_rule(str(error))}") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise refusal(source, "", f"is no {what}: {_words(error)}") from None
    except RecursionError:
        raise refusal(source, "", f"is no {what}: it is nested too deeply") from None
    return made


def converted(
    found: Any, kind: type[Made] | Any, source: str, *, what: str = "record", refusal: Refusal = DocumentError
) -> Made:
    """Return a value that was decoded already (an entry of metadata) as one of a declared type.

    Raises as `record_of`.
    """
    try:
        made: Made = msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise refusal(source, "", f"is no {what}: {_place_and_rule(str(error))}") from None
    return made


@contextmanager
def refusing(source: str, what: str, *, refusal: Refusal = DocumentError) -> Iterator[None]:
    """Turn whatever a library raises on a broken file into one line.

    Errors of this project pass, and so does what ends a command. Memory that is not there is the
    file's fault here: it asked for it.
    """
    try:
        yield
    except AllocsimError:
        raise
    except MemoryError:
        raise refusal(source, "", f"is no readable {what}: it asks for more memory than there is") from None
    except OSError as error:
        raise refusal(source, "", f"is no readable {what}: {error.strerror or error}") from None
    except RecursionError:
        raise refusal(source, "", f"is no readable {what}: it is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - libraries check little, and raise whatever a broken file leads to
        raise refusal(source, "", f"is no readable {what}: {_words(error)}") from None


def refused_with(kind: type[AllocsimError]) -> Refusal:
    """Return a refusal that raises an error of another class, in the same words."""

    def refuse(source: str, place: str, rule: str) -> AllocsimError:
        return kind(f"{source}: {place}: {rule}" if place else f"{source}: {rule}")

    return refuse


def _place_and_rule(message: str) -> str:
    """Return a message of msgspec's (`Expected ... - at `$.path``) with the place in front."""
    said, where, path = message.rpartition(" - at `")
    rule = (said if where else message).replace("`", "")
    place = re.sub(r"^\$\.?", "", path.removesuffix("`")) if where else ""
    return f"{place}: {rule[:1].lower()}{rule[1:]}" if place else rule


def _words(error: Exception) -> str:
    """Return what an error says, on one line, cut where it is long."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


__all__ = [
    "CEILINGS", "Refusal", "bounded", "content", "converted", "is_file", "record_of", "refused_with", "refusing", "stream_content", "zipped",
]  # fmt: skip
