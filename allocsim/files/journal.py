"""A journal: a file of JSON lines that only grows, each there for good once it is added.

    journal = Journal(path, {"campaign": {...}}, Chunk)     # made, or opened where it was left
    journal.rows                                            # what earlier commands added
    journal.add(chunk)

Each line ends in a digest over it and the digest of the line before, so that what is resumed is
what was written: a line that was changed, lost, doubled or moved is refused, with its number, but
whole lines that are missing at the end leave no trace: what they said is done again. The last line
alone may be cut short, by a kill or a full disk; it is taken off when the file is opened. The
digest (BLAKE2b, 16 bytes) is against accidents: who can write the file can write it.

`sealed` and `unsealed` are the same for a file of one record.

What this module does not see: what a line means; its type says what it may hold.
"""

import json
import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from allocsim.errors import OutputError
from allocsim.files import write_atomic
from allocsim.files.gate import CEILINGS, Refusal, content, converted, record_of, refused_with

SEAL: Final = "digest"
"""The key of the digest, the last one of its line."""

_END: Final = re.compile(rb'(?:, )?"digest": "([0-9a-f]{32})"\}$')

Row = TypeVar("Row")

_refuse: Final = refused_with(OutputError)


class Journal(Generic[Row]):
    """The journal at a path."""

    def __init__(self, path: Path, head: Mapping[str, Any], kind: type[Row] | Any, *, what: str) -> None:
        """Make the file with its first line, or open it.

        Args:
            path: the file, in a folder that exists.
            head: its first line: what it is of. A file of something else is refused.
            kind: what each further line is.
            what: what `head` is of, for people: "campaign".

        Raises OutputError where the file cannot be written, is of something else, or is not as it
        was written.
        """
        self.path = path
        self.rows: list[Row] = []
        """What the lines behind the first say, in order."""
        if not path.exists():
            line, self._last = _sealed_line(head, "")
            write_atomic(path, line)
            return
        data = content(path, CEILINGS["stream"], refusal=_refuse)
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.split(b"\n")[:-1]
        if not lines:
            raise _refuse(str(path), "", f"has no first line that says which {what} it belongs to; name another folder")
        theirs, self._last = _opened(lines[0], "", f"{path}: line 1")
        _same_head(theirs, json.loads(json.dumps(head)), path, what)
        for number, line in enumerate(lines[1:], 2):
            found, self._last = _opened(line, self._last, f"{path}: line {number}")
            self.rows.append(
                converted(found, kind, f"{path}: line {number}", what=f"line of a {what}", refusal=_refuse)
            )
        if len(whole) < len(data):
            write_atomic(path, whole)

    def add(self, row: Mapping[str, Any]) -> None:
        """Put one line behind the others, and have the disk hold it. Raises OutputError."""
        line, last = _sealed_line(row, self._last)
        try:
            with self.path.open("ab", buffering=0) as file:
                start = file.tell()
                try:
                    rest = memoryview(line)
                    while rest:
                        rest = rest[file.write(rest) or 0 :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(start)  # half a line is no line, and the next one would be glued to it
                    raise
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        self._last = last


def sealed(record: Mapping[str, Any]) -> bytes:
    """Return a record as JSON with its digest."""
    return _sealed_line(record, "")[0]


def unsealed(data: bytes, kind: type[Row] | Any, source: str, *, refusal: Refusal) -> Row:
    """Return the record of a file that `sealed` made.

    Raises the refusal where it is none, or is not as it was written.
    """
    found, _ = _opened(data.strip(), "", source, refusal)
    record: Row = converted(found, kind, source, refusal=refusal)
    return record


def _sealed_line(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """Return a line with its digest, and the digest."""
    text = json.dumps(dict(record)).encode()
    digest = _digest(text, before)
    return text[:-1] + (b", " if record else b"") + f'"{SEAL}": "{digest}"}}\n'.encode(), digest


def _digest(text: bytes, before: str) -> str:
    return blake2b(before.encode() + b"\n" + text, digest_size=16).hexdigest()


def _opened(line: bytes, before: str, source: str, refusal: Refusal = _refuse) -> tuple[dict[str, Any], str]:
    """Return what a line says and its digest; raise the refusal where that is another's."""
    end = _END.search(line)
    if end is None:
        raise refusal(source, "", "has no digest, so a change since it was written would not show; name another folder")
    text, digest = line[: end.start()] + b"}", end[1].decode()
    if _digest(text, before) != digest:
        raise refusal(source, "", "was changed since it was written: its digest differs; name another folder")
    return record_of(text, dict[str, Any], source, refusal=refusal), digest


def _same_head(theirs: Mapping[str, Any], ours: Mapping[str, Any], path: Path, what: str) -> None:
    if theirs == ours:
        return
    differs = [f"{key} {theirs.get(key)!r}" for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
    raise OutputError(f"{path}: belongs to another {what} ({', '.join(differs)[:300]}); name another folder")


__all__ = ["SEAL", "Journal", "sealed", "unsealed"]
