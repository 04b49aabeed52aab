"""What an allocator that answers while the program runs is asked, and which calls it takes.

A target is made by `make(capacity, alignment, device)`: bytes or None for unbounded, a power of
two, and the `Device` whose streams use the memory (`allocsim.online.device`).

| method | answer | must it be there |
|---|---|---|
| `alloc(nbytes, alignment, stream, tag)` | an address, a list of pages, or None: no room | yes |
| `free(memory, stream)` | nothing; `memory` is an answer of `alloc`, or some of its pages | yes |
| `realloc(address, nbytes)` | an address whose first bytes are those of the old one, or None | no |
| `record_stream(memory, stream)` | nothing: another stream uses it too; once freed it waits for that | no |
| `begin(step, memory)`, `end(step)` | nothing: a step in flight uses this memory; one `begin` for each of its blocks | no |
| `share(memory)` | nothing: one more holder, each of whom frees it | no |
| `write(memory)` | memory of the same size that only this holder has: copy on write; or None | no |
| `count(memory)` | how many hold it | no |
| `reserve(nbytes, stream)` | True: the next `alloc` on that stream of at most so many bytes is not refused; or None | no |
| `trim()`, `evict(nbytes)` | nothing that is looked at | no |
| `close()` | nothing: it is not asked again | no |

An allocator of pages has an attribute `page`, the bytes of one; its answers are lists of page
numbers. One whose `alloc` takes streams seriously says so by `record_stream` or by an attribute
`streams = True`; every other one gives out memory for one stream. Steps run on any stream.

One that any thread may call says `threads = True`; one that a forked child may go on with says
`forks = True` (`allocsim.online.elsewhere`).

One that never joins again what it once split says `keeps = True`: after a sequence it need not give
the largest block that a fresh one gives, but the same calls must not need more memory each time.

`realloc` and `write` move bytes by `device.copy(source, target, nbytes)`, which the driver sets.

What the caller promises: memory that is freed on a stream has been used on others only as
`record_stream` or `begin` told, or in an order that this stream waits for. What is used on a stream
comes behind its `alloc`.

What this module does not see: which calls are drawn, and what is wrong with an answer.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from allocsim.allocators.buddy import Buddy
from allocsim.allocators.caching import Caching
from allocsim.allocators.tlsf import Tlsf
from allocsim.errors import AllocsimError, PlannerError, UnknownNameError
from allocsim.online.device import Device
from allocsim.online.pools_by_command import COMMAND, command
from allocsim.online.pools_by_library import LIBRARY, MALLOC, library, malloc

Make = Callable[[int | None, int, Device], Any]
"""(capacity in bytes, alignment, device) -> a target."""

OPTIONAL: Final = ("realloc", "record_stream", "begin", "share", "write", "count", "reserve", "trim", "evict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a target can be asked, beyond `alloc` and `free`."""

    calls: frozenset[str]
    """Of `OPTIONAL`."""
    page: int = 0
    """Bytes of a page; 0: it answers addresses."""
    streams: bool = False
    keeps: bool = False
    """Whether memory that was split once may stay split."""
    unbounded: bool = False
    """Whether it gives out memory of the process, whatever capacity it is made with."""
    threads: bool = False
    """Whether any thread may call it."""
    forks: bool = False
    """Whether a forked child may go on with its copy."""

    @classmethod
    def of(cls, target: Any) -> "Abilities":
        """Return those of a target.

        Raises AllocsimError for one without alloc or free, and for one that cannot be asked.
        """
        for name in ("alloc", "free"):
            if not callable(_of(target, name)):
                raise AllocsimError(f"an online allocator needs a method {name!r}; {type(target).__name__} has none")
        calls = frozenset(name for name in OPTIONAL if callable(_of(target, name)))
        page = _of(target, "page", 0)
        if isinstance(page, bool) or not isinstance(page, int) or page < 0:
            raise AllocsimError(f"page is {page!r}; an integer of bytes, or none, is needed")
        streams = "record_stream" in calls or bool(_of(target, "streams"))
        said = {name: bool(_of(target, name)) for name in ("keeps", "unbounded", "threads", "forks")}
        return cls(calls=calls, page=page, streams=streams, **said)


def _of(target: Any, name: str, otherwise: Any = None) -> Any:
    """Return an attribute of a target. Raises PlannerError where looking at it raises."""
    try:
        return getattr(target, name, otherwise)
    except Exception as error:
        said = f"{type(error).__name__}: {shown(error, str)}".rstrip(": ")
        raise PlannerError(f"{name!r} of an online allocator raised {said}") from error


def shown(thing: object, text: Callable[[object], str] = repr, most: int = 120) -> str:
    """Return the first line of a stranger's text, cut."""
    try:
        return (text(thing).splitlines() or [""])[0][:most]
    except Exception:  # noqa: BLE001 - a stranger's method, or a number with too many digits
        return f"{type(thing).__name__} without a text"


class _FromShelf:
    """An allocator of the shelf (`allocsim.allocators.driven_online`), which is told sizes again
    on free.
    """

    threads = forks = True

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.keeps = isinstance(inner, Caching)  # its segments stay what they are
        self.sizes: dict[int, int] = {}

    def alloc(self, nbytes: int, alignment: int, stream: int, tag: str) -> int | None:  # noqa: ARG002 - it knows no streams
        """Return the offset of free bytes, None where there is no room."""
        offset: int | None = self.inner.alloc(nbytes, alignment)
        if offset is not None:
            self.sizes[offset] = nbytes
        return offset

    def free(self, address: int, stream: int) -> None:  # noqa: ARG002 - as above
        """Give bytes back."""
        self.inner.free(address, self.sizes.pop(address))


SHELF: Final[dict[str, Callable[[int | None, int], Any]]] = {"buddy": Buddy, "caching": Caching, "tlsf": Tlsf}
"""Online allocators of the project, by name."""


def find(name: str) -> Make:
    """Return the function that makes a target: a name of `SHELF`, `package.module:function`,
    `lib:PATH` or `malloc:PATH` (`allocsim.online.pools_by_library`), or `cmd:COMMAND`
    (`allocsim.online.pools_by_command`).

    Raises AllocsimError for what is none.
    """
    for prefix, opened in ((LIBRARY, library), (MALLOC, malloc), (COMMAND, command)):
        if name.startswith(prefix):
            return opened(name.removeprefix(prefix))
    if name in SHELF:
        shelf = SHELF[name]
        return lambda capacity, alignment, _device: _FromShelf(shelf(capacity, alignment))
    module, colon, attribute = name.partition(":")
    if not colon:
        raise UnknownNameError("online allocator", name, SHELF)
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except AllocsimError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything when it is imported
        raise AllocsimError(f"online allocator {name!r}: {type(error).__name__}: {error}".splitlines()[0]) from None
    if not callable(found):
        raise AllocsimError(f"online allocator {name!r} is no function that makes one")
    make: Make = found
    return make
