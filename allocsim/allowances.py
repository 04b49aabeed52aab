"""What a file may mean: a reader charges each thing before it makes it, and one table bounds them.

    @metered                                   # a reader: (data, source) -> what it means
    def loads(data, source="plan"): ...
        charge("listed operand", len(items))   # DocumentError where the file means more than it may

A few bytes can mean much: calls share one list, runs repeat one program, loops and branches unroll,
a pickle names one list a thousand times. So what counts is not the file's size but what is made of
it. Each thing has an allowance: a free part, so that small files may unroll, and a part for each
byte, so that large ones may be large. The figures were chosen for 1 GiB and 10 CPU seconds to read
and judge a file of 10 MB at the limit of one thing. Outside of a reader nothing is charged: a
program that makes a program may make any.

Charges take O(1). The ledger is of the thread, or task, that reads.

What this module does not see: bytes of files (`allocsim.files.gate` bounds them), and what a
command does with a document that was read: a plan in which many live blocks lie on the same bytes
has as many violations as pairs of them, and each is found and said.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, TypeVar

from allocsim.errors import DocumentError


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many of a thing a file may mean."""

    free: int
    """However small it is."""
    bytes_each: int
    """One more for so many bytes of it."""


FULL: Final = 10_000_000
"""Bytes of the largest file that is promised an end in ten CPU seconds. A larger one may mean as
much more as it is larger: an honest dump of many modules is as dense throughout."""

LIMITS: Final[dict[str, Allowance]] = {
    "op": Allowance(1 << 18, 24),
    "operand": Allowance(1 << 20, 8),
    "value": Allowance(1 << 18, 24),
    "listed operand": Allowance(1 << 20, 8),
    "run": Allowance(1 << 16, 200),
    "op of a run": Allowance(1 << 22, 2),
    "token": Allowance(700_000, 100),
    "event": Allowance(1 << 12, 24),
    "comparison": Allowance(1 << 24, 1),
    "instruction": Allowance(1 << 17, 200),
}
"""Thing -> allowance.

Operands are those of all ops, results too; an op of a run counts once for each run of its program,
as often as it has results where that is more in all; values are those that a reader makes one by
one; tokens are of Python text; comparisons are of tensors whose place must be searched among all
others; instructions are those of computations that a module or model calls, once for each turn of a
loop, each call and each way.
"""


@dataclass(slots=True)
class _Ledger:
    source: str
    nbytes: int
    spent: dict[str, int] = field(default_factory=dict)


_open: Final[ContextVar[_Ledger | None]] = ContextVar("ledger", default=None)

Reader = TypeVar("Reader", bound=Callable[..., Any])


def charge(thing: str, count: int = 1) -> None:
    """Charge the file that is being read for `count` of a key of `LIMITS`, before they are made.

    Raises DocumentError where it means more than it may.
    """
    ledger = _open.get()
    if ledger is None:
        return
    spent = ledger.spent[thing] = ledger.spent.get(thing, 0) + count
    allowance = LIMITS[thing]
    full = allowance.free + min(ledger.nbytes, FULL) // allowance.bytes_each
    most = full * max(ledger.nbytes, FULL) // FULL
    if spent > most:
        things = "ops of runs" if thing == "op of a run" else f"{thing}s"
        raise DocumentError(
            ledger.source,
            "",
            f"means {spent} {things} or more; a file of {ledger.nbytes} bytes may mean {most}: "
            f"{allowance.free}, and one for each {allowance.bytes_each} bytes"
            + (f" of {FULL}, and as much for each {FULL} more" if ledger.nbytes > FULL else ""),
        )


@contextmanager
def reading(source: str, nbytes: int) -> Iterator[None]:
    """Charge what is made in the block to a file, or a folder of files, of so many bytes."""
    token = _open.set(_Ledger(source, nbytes))
    try:
        yield
    finally:
        _open.reset(token)


def metered(loads: Reader) -> Reader:
    """Return a reader of (data, source) whose charges are its file's."""

    @wraps(loads)
    def metered_loads(data: bytes | str, *rest: Any, **options: Any) -> Any:
        source = rest[0] if rest else options.get("source", "file")
        with reading(str(source), len(data)):
            return loads(data, *rest, **options)

    return metered_loads  # type: ignore[return-value]  # of the same signature


__all__ = ["FULL", "LIMITS", "Allowance", "charge", "metered", "reading"]
