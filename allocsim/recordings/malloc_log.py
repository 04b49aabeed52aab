"""What a program asked of its malloc, read and judged by what it was promised.

    judged = judge("log")
    for fault in judged.faults:
        print(fault.class_, fault.party, fault.text, fault.cure)

The log is that of `malloc_record.c`: a head (`HEAD`), then records of four words: what happened
and in which thread, an address, how many bytes, and one more number, or two. An operator new or
delete of C++ is a record like others, and so is a function under a name of a malloc's own.

| found | when | class, fault |
|---|---|---|
| twice | memory is given that somebody still holds | C11, plan |
| aligned | an address is no multiple of what was asked for, or of what any object of that size needs | C12, plan |
| moved | the first bytes after a realloc, of at most `LOOKED`, are not what they were | C10, plan |
| zeroed | the first bytes of a calloc are not zero | C14, plan |
| freed | memory is given back that was given back already | C13, caller |

The allocator is charged as a plan is. Memory that is given back and was never seen given out is
counted, not judged: it was there before the recorder or the fork. Where the log says that something
was not seen (`UNSEEN`), what that may explain is counted, too: memory that is given back twice,
since another block may have lain there, and memory that is given out though nobody was seen to give
it back. A log that was cut is judged up to the first record that is not whole.

O(records x log blocks). What this module does not see: who uses memory; and a process that is
parted without `fork` (`clone`), which writes into the log of the other.
"""

import struct
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.errors import DocumentError
from allocsim.files import replacing
from allocsim.files.gate import content
from allocsim.recordings.in_its_words import RecordedFault

HEAD: Final = struct.Struct("<8sQQQ232s")
"""What it is, how many records there were, for how many there was room, what was not seen
(`UNSEEN`), and the file of the malloc.
"""

MAGIC: Final = b"allocsim"

UNSEEN: Final = {
    1: "operators new and delete are the program's own: the malloc below them is what is seen",
    2: "a malloc has functions under names of its own, which are seen where `--with` names its library",
    4: "blocks were given back all at once, with the heap that has them",
}
"""By bit of the head, what was not seen."""

_GIVEN_BACK: Final = 2 | 4
"""Bits of what may have given memory back."""

LOOKED: Final = 256
"""Bytes that are looked at when memory moves or must be zero."""

RECORDS: Final = 1 << 22
"""Records that a log has room for, unless more are asked for."""

MOST: Final = 1 << 32
"""Bytes of a log."""

ROOM: Final = (MOST - HEAD.size) // 32
"""Records that a log has room for, at most."""

PIECE: Final = 1 << 16
"""Records that are looked at together."""

FAULTS: Final = 1000
"""Faults that are told of a log; more are counted."""

_ALLOC, _FREE, _MOVED, _LEFT, _ZEROED = range(1, 6)
_STAYED: Final = (1 << 64) - 1
"""The size of memory that a realloc which failed left where it was."""


@dataclass(slots=True, kw_only=True)
class JudgedMalloc:
    """What a log says."""

    allocator: str
    """The file whose malloc was called."""
    faults: list[RecordedFault] = field(default_factory=list)
    assumed: Counter[str] = field(default_factory=Counter)
    """What could not be seen, and how often that was met."""
    records: int = 0
    most: int = 0
    """Bytes held at once, at most."""
    unjudged: int = 0
    """Records for which there was no room, or behind one that is not whole."""
    more: int = 0
    """Faults beyond `FAULTS`."""


def judge(log: str | Path) -> JudgedMalloc:
    """Judge a log. Raises DocumentError for what is none."""
    data = content(log, MOST)
    _, made, room, unseen, allocator = _head(data, log)
    there = min(made, room, (len(data) - HEAD.size) // 32)
    rows = np.frombuffer(data, dtype="<u8", count=4 * there, offset=HEAD.size).reshape(-1, 4)
    torn = np.flatnonzero(rows[:, 0] == 0)
    whole = int(torn[0]) if len(torn) else there
    book = _Book(allocator.split(b"\0")[0].decode(errors="replace"), unseen=unseen)
    for first in range(0, whole, PIECE):
        piece = rows[first : min(first + PIECE, whole)].tolist()
        for number, record in enumerate(piece, first):
            book.take(number, record)
    found = book.found
    found.records, found.unjudged = whole, made - whole
    found.assumed.update(text for bit, text in UNSEEN.items() if unseen & bit)
    return found


def cut(log: str | Path) -> int:
    """Cut a log, which has room for more, down to what was written; return how many records these
    are. Raises DocumentError for what is no log.
    """
    _, made, room, _, _ = _head(content(log, begins=lambda _: False), log)
    left = HEAD.size + 32 * min(made, room)
    with replacing(log) as target, Path(log).open("rb") as whole, target.open("wb") as short:
        while piece := whole.read(min(left, 1 << 20)):  # not in place: a process may still write into it
            left -= short.write(piece)
    return int(min(made, room))


def _head(data: bytes, log: str | Path) -> tuple[Any, ...]:
    if len(data) < HEAD.size or data[:8] != MAGIC:
        raise DocumentError(str(log), "", "is no log of a malloc")
    return HEAD.unpack_from(data)


class _Book:
    """What is held, while records come in."""

    def __init__(self, allocator: str, *, unseen: int) -> None:
        self.found = JudgedMalloc(allocator=allocator)
        self._unseen = unseen
        self._lows: list[int] = []
        self._held: dict[int, tuple[int, int]] = {}
        """By address: bytes, and the number of the record that gave them."""
        self._gone: dict[int, int] = {}
        """By address of what was given back last there: the number of the record."""
        self._left: dict[int, tuple[int, int, int] | None] = {}
        """By thread: address, bytes and number of what its realloc took."""
        self._owed: Counter[int] = Counter()
        """By address: blocks that were given out over, whose holders will give them back."""
        self._now = 0

    def take(self, number: int, record: Sequence[int]) -> None:
        """Take a record in."""
        word, address, nbytes, more = record
        what, thread = word & 0xFF, word >> 8
        if what == _FREE:
            self._free(number, address)
        elif what == _LEFT:
            held = self._held.get(address)
            self._left[thread] = None if held is None else (address, *held)
            self._free(number, address)
        elif what == _MOVED:
            self._moved(number, self._left.pop(thread, None), address, nbytes, more)
        else:
            zeros, alignment = _two(more) if what == _ZEROED else (LOOKED, more)
            self._given(number, address, nbytes, alignment or natural(nbytes))
            if zeros < min(nbytes, LOOKED):
                text = f"calloc (record {number}) gives {nbytes} bytes at {address:#x}, and byte {zeros} is not zero"
                self._tell("C14", "plan", text, "clear memory that calloc gives", number)

    def _given(self, number: int, address: int, nbytes: int, alignment: int) -> None:
        if address % alignment:
            text = f"{_shown(address, nbytes, number)} is no multiple of {alignment}"
            self._tell("C12", "plan", text, f"give an address that is a multiple of {alignment}", number)
        self._gone.pop(address, None)
        if not nbytes:
            self._held.setdefault(address, (0, number))
            return
        lows, held = self._lows, self._held
        at = max(bisect_left(lows, address) - 1, 0)
        while at < len(lows) and lows[at] < address + nbytes:
            low = lows[at]
            size, giver = held[low]
            if low + size <= address:
                at += 1
                continue
            if self._unseen & _GIVEN_BACK:
                self.found.assumed["memory is given out that nobody was seen to give back"] += 1
            else:
                text = f"{_shown(address, nbytes, number)} meets {_shown(low, size, giver)}, which nobody gave back"
                self._tell("C11", "plan", text, "give memory out only once it was given back", number)
            del lows[at], held[low]
            self._now -= size
            self._owed[low] += 1
        insort(lows, address)
        held[address] = nbytes, number
        self._now += nbytes
        self.found.most = max(self.found.most, self._now)

    def _free(self, number: int, address: int) -> None:
        held = self._held.pop(address, None)
        if held is not None:
            if held[0]:
                del self._lows[bisect_left(self._lows, address)]
                self._now -= held[0]
            self._gone[address] = number
        elif self._owed[address]:
            self._owed[address] -= 1
        elif address not in self._gone:
            self.found.assumed["memory is given back that nobody saw given out"] += 1
        elif self._unseen:
            self.found.assumed["memory is given back again, which somebody may have taken unseen"] += 1
        else:
            text = f"memory at {address:#x} is given back (record {number}); record {self._gone[address]} gave it back"
            self._tell("C13", "caller", text, f"give memory back once: not at record {number}", number)

    def _moved(self, number: int, left: tuple[int, int, int] | None, address: int, nbytes: int, more: int) -> None:
        if nbytes == _STAYED:
            if left is not None:
                self._given(left[2], *left[:2], 1)
            return
        kept, alignment = _two(more)
        self._given(number, address, nbytes, alignment or natural(nbytes))
        if left is not None and kept < min(left[1], nbytes, LOOKED):
            text = (
                f"realloc (record {number}) moves {left[1]} bytes to {address:#x}, and byte {kept} is not what it was"
            )
            self._tell("C10", "plan", text, "copy what was there before memory moves", number)

    def _tell(self, class_: str, party: str, text: str, cure: str, number: int) -> None:
        if len(self.found.faults) < FAULTS:
            self.found.faults.append(RecordedFault(class_, party, text, cure, number, (class_, number)))
        else:
            self.found.more += 1


def _two(more: int) -> tuple[int, int]:
    """Return the two numbers of a record that has two: a count of bytes, above it an alignment."""
    return more & 0xFFFF, more >> 16


def natural(nbytes: int) -> int:
    """Return the alignment that C asks of malloc: that of any object which fits, at most 16."""
    return int(min(16, 1 << max(nbytes.bit_length() - 1, 0)))


def _shown(address: int, nbytes: int, number: int) -> str:
    return f"[{address:#x}, {address + nbytes:#x}) (record {number})"


def as_entry(judged: JudgedMalloc) -> dict[str, Any]:
    """Return what a log says as an entry of JSON."""
    keys = ("class", "party", "text", "cure", "event")
    return {
        "allocator": judged.allocator,
        "records": judged.records,
        "most": judged.most,
        "unjudged": judged.unjudged,
        "more": judged.more,
        "assumed": dict(judged.assumed),
        "findings": [dict(zip(keys, fault, strict=False)) for fault in judged.faults],
    }


__all__ = ["FAULTS", "HEAD", "JudgedMalloc", "as_entry", "cut", "judge", "natural"]
