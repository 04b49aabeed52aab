"""The events of a trace: their words and keys, and the plain events that shorthand stands for.

`allocsim.programs.allocator_trace` has the table of words. Some events are shorthand for others;
`Lowering` replaces them, so that all readers of a trace get the same few words:

| event | stands for |
|---|---|
| `use` with `mark` | the use, and a `record` of that mark behind it |
| `move` | a `use` of kind `same`: the bytes of `from` are found in `to` as well |
| `use` with `program` | an op of a captured program, which is not run yet |
| `run` | the ops of that program, behind the marks in `after`, each on its stream |
| `alloc` with `page` | an alloc at that page's address, in a device of pages that `pool` described |
| a part with `sequence` and `position` | the bytes of these cells within their page |

Typed pages. A device of pages (`pool`) has pages of so many bytes, each of so many *cells*: cell i
of a page is where the key and value of one position of a sequence lie. A part
`{"block": B, "sequence": s, "position": p, "count": n}` is cells `[slot, slot + n)` of the page
that block B is; by default `slot` is p modulo the cells of a page. A write of such a part writes
positions `[p, p + n)` of s there; a read must find the bytes written for these positions. The block
is the page's *generation*: a page that is allocated again is another block.

O(parts) an event. What this module does not see: the document that events make.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import msgspec

from allocsim.errors import ModelError
from allocsim.model import STRENGTHS
from allocsim.model.layout import LIMIT
from allocsim.programs.names import whole

_CELLS: Final = ("block", "sequence", "position")

KEYS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "alloc": (("block",), ("address", "nbytes", "page", "stream", "device", "name", "role")),
    "free": (("block",), ("stream",)),
    "returned": (("block",), ()),
    "use": ((), ("stream", "reads", "writes", "kind", "name", "in_place", "mark", "program")),
    "record": (("mark",), ("stream",)),
    "wait": (("mark",), ("stream",)),
    "done": (("mark",), ()),
    "synchronize": ((), ("stream",)),
    "record_stream": (("block",), ("stream",)),
    "barrier": (("actors",), ()),
    "move": (("from", "to"), ("stream", "name")),
    "run": (("program",), ("after",)),
    "pool": (("page",), ("device", "pages", "cells")),
    "ref": (("block",), ("count",)),
    "unref": (("block",), ("count",)),
    "cell": (_CELLS, ("count", "slot", "content")),
    "share": (_CELLS, ("count", "slot", "content")),
    "evict": ((), ("block", "nbytes", "device")),
    "trim": ((), ("device",)),
    "exhausted": ((), ("device", "nbytes", "pages")),
    "failed": ((), ("device", "nbytes", "pages", "reason")),
}
"""Word of an event -> (keys that it needs, keys that it may have)."""

_NEEDED: Final = {word: frozenset(needed) for word, (needed, _) in KEYS.items()}
_ALLOWED: Final = {word: frozenset({"event", "meta", *needed, *more}) for word, (needed, more) in KEYS.items()}


_NAMES: Final = frozenset({"block", "mark", "stream", "device", "role", "program", "kind", "name"})
_NAME_TYPES: Final = frozenset({str, int, float, bool, type(None)})
_LISTS: Final = frozenset({"reads", "writes"})
"""Keys whose values are looked up, and keys whose values are gone through."""
_LOOKED_AT: Final = _NAMES | _LISTS


SHAPES: Final = 1000
_LIST_TYPES: Final = frozenset({list})
_shapes: Final[dict[tuple[str, ...], dict[str, tuple[tuple[str, frozenset[Any]], ...]]]] = {}
"""By keys in their order, up to `SHAPES` of these, and by word: the keys whose values are looked
at, and what these may be. Such an event has the keys that it needs, and no other.
"""


class PagePool(NamedTuple):
    """A device of pages."""

    page: int
    """Bytes of a page."""
    cells: int
    """Positions that a page has room for."""
    pages: int | None
    """Number of pages, None if it is not known."""


class Cells(msgspec.Struct, gc=False):
    """A part that names positions, with all fields filled in. A recording has millions of them, so
    the type must be quick to make and to read.
    """

    block: Any
    low: int
    """Bytes `[low, high)` of the block."""
    high: int
    sequence: Any
    position: int
    """The first position."""
    slot: int
    """Cells `[slot, stop)` of the page."""
    stop: int
    content: Any
    """None if it was not given."""

    def as_bytes(self) -> dict[str, Any]:
        """Return the same bytes as a part that names no positions."""
        return {"block": self.block, "offset": self.low, "nbytes": self.high - self.low}


def checked(event: Any) -> Mapping[str, Any]:
    """Return the event if it has the keys of its word; raise ModelError otherwise."""
    if type(event) is not dict and not isinstance(event, Mapping):
        raise ModelError("", f"{shown(event)} is not an object")
    word, shape = event.get("event"), _shapes.get(tuple(event))
    if shape is not None and type(word) is str and word in shape:
        for key, types in shape[word]:
            if type(event[key]) not in types:
                break
        else:
            return event
    if not isinstance(word, str) or word not in KEYS:
        raise ModelError("event", f"{shown(word)} is none of {' '.join(KEYS)}")
    keys = event.keys()
    if not keys >= _NEEDED[word]:
        key = next(key for key in KEYS[word][0] if key not in event)
        raise ModelError("", f"has no {key!r}, which {word} needs")
    if not keys <= _ALLOWED[word]:
        key = next(key for key in event if key not in _ALLOWED[word])
        near = get_close_matches(str(key), (*KEYS[word][0], *KEYS[word][1]), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`meta` is for your own"
        raise ModelError("", f"has the unknown key {key!r}; {hint}")
    _check_values(event)
    if shape is None and len(_shapes) < SHAPES:
        shape = _shapes.setdefault(tuple(event), {})
    if shape is not None:
        looked_at = event.keys() & _LOOKED_AT
        shape[word] = tuple((key, _LIST_TYPES if key in _LISTS else _NAME_TYPES) for key in looked_at)
    return event


def _check_values(event: Mapping[str, Any]) -> None:
    """Raise ModelError if a value that must be a name or a list is none."""
    for key in event.keys() & _LOOKED_AT:
        value = event[key]
        if key in _NAMES and type(value) not in _NAME_TYPES:
            raise ModelError(key, f"{shown(value)} is no name: a text or a number")
        if (
            key in _LISTS
            and type(value) is not list
            and (isinstance(value, str | Mapping) or not isinstance(value, Iterable))
        ):
            raise ModelError(key, f"{shown(value)} is not a list of blocks")


class Lowering:
    """Replaces shorthand events; it keeps the pools, pages and captured programs seen so far."""

    def __init__(self) -> None:
        self.pools: dict[Any, PagePool] = {}
        self._pages: dict[Any, tuple[int, int]] = {}
        """Block -> (cells of its page, bytes of a cell)."""
        self._programs: dict[Any, list[dict[str, Any]]] = {}
        self._runs = 0
        self._typed = False
        """Whether an event named pages or holders, so that uses may name positions."""
        self.words = {
            "pool": self._pool,
            "alloc": self._alloc,
            "move": self._move,
            "run": self._run,
            "barrier": self._barrier,
            "cell": self._cell,
            "share": self._cell,
            "ref": self._counted,
            "unref": self._counted,
        }
        """Word -> function, for shorthand and for words whose keys depend on each other."""

    def plain(self, event: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """Return the plain events that a checked event stands for. Raises ModelError if it names an
        unknown pool or program.
        """
        word = event["event"]
        if word == "use":
            return self._use(event) if self._typed or "mark" in event or "program" in event else (event,)
        if word == "alloc" and "page" not in event:
            for key in ("address", "nbytes"):
                number = event.get(key)
                if type(number) is not int or not 0 <= number <= LIMIT:
                    if key not in event:
                        raise ModelError("", f"has no {key!r}, which alloc needs")
                    event = {**event, key: number_of(event, key)}
            return (event,)
        special = self.words.get(word)
        return (event,) if special is None else special(event)

    def _pool(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        device = key_of(event, "device", 0)
        if device in self.pools:
            raise ModelError("device", f"{shown(device)} was described already")
        pages = number_of(event, "pages") if "pages" in event else None
        pool = PagePool(number_of(event, "page"), number_of(event, "cells", 1), pages)
        if not pool.cells or not pool.page or pool.page % pool.cells:
            raise ModelError("cells", f"{pool.cells} cells do not divide {pool.page} bytes")
        self.pools[device] = pool
        return self._counted(event)

    def _counted(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        self._typed = True
        return (event,)

    def _alloc(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        device = key_of(event, "device", 0)
        if device not in self.pools or "address" in event or "nbytes" in event:
            raise ModelError("page", "needs a device that a pool describes, and neither address nor nbytes")
        pool = self.pools[device]
        self._pages[key_of(event, "block")] = pool.cells, pool.page // pool.cells
        page, nbytes = number_of(event, "page"), pool.page
        found = {key: value for key, value in event.items() if key != "page"}
        return ({**found, "address": page * nbytes, "nbytes": nbytes},)

    def _move(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        use = {"event": "use", "kind": "same", "reads": [event["from"]], "writes": [event["to"]]}
        return self._use({**use, **{key: event[key] for key in ("stream", "name", "meta") if key in event}})

    def _use(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        if "program" in event:
            meta_of(event)
            found = {key: value for key, value in event.items() if key != "program"}
            self._programs.setdefault(key_of(event, "program"), []).append(found)
            return ()
        use = event
        for side in ("reads", "writes") if self._typed else ():
            parts = event.get(side)
            if parts and (type(parts) is list or isinstance(parts, list | tuple)):
                plain = self._parts(parts, side)
                if plain is not parts:
                    if use is event:
                        use = dict(event)
                    use[side] = plain  # type: ignore[index]
        if "mark" not in event:
            return (use,)
        use = {key: value for key, value in use.items() if key != "mark"}
        if event["mark"] is None:
            return (use,)
        return use, {"event": "record", "mark": key_of(event, "mark"), "stream": event.get("stream", 0)}

    def _run(self, event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        name = key_of(event, "program")
        if name not in self._programs:
            raise ModelError("program", f"{shown(name)} has no ops; a use with that program is one")
        after, ops = _named(event, "after", "marks"), self._programs[name]
        self._runs += 1
        for stream in dict.fromkeys(op.get("stream", 0) for op in ops):
            for mark in after:
                yield {"event": "wait", "mark": mark, "stream": stream}
        for op in ops:
            yield from self._use({**op, "meta": {**(op.get("meta") or {}), "run": self._runs}})

    def _barrier(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        _named(event, "actors", "streams")
        return (event,)

    def _cell(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        cells = self._cells(event)
        return ({**event, "slot": cells.slot, "count": cells.stop - cells.slot},)

    def _parts(self, parts: Any, side: str) -> Any:
        """Return parts with their cells replaced by bytes; parts without a position stay, and a
        list without any position is returned itself.
        """
        found, number = parts, 0
        if len(parts) == 1 and type(parts[0]) is dict and (cell := self._cell_of(parts[0])) is not None:
            return [cell]  # most lists are of this form
        try:
            for number, part in enumerate(parts):
                if (type(part) is dict or isinstance(part, Mapping)) and "position" in part:
                    found = list(parts) if found is parts else found
                    found[number] = self._cell_of(part) or self._cells(part)
        except ModelError as error:
            raise error.within(f"{side}[{number}]") from None
        return found

    def _cell_of(self, part: Mapping[str, Any]) -> Cells | None:
        """Return the cell of a part that has only block, sequence and position, as most parts; None
        for any other part.
        """
        try:
            name, sequence, position = part["block"], part["sequence"], part["position"]
        except KeyError:
            return None
        if len(part) != 3 or not (type(name) is type(sequence) is str and type(position) is int):
            return None
        known = self._pages.get(name)
        if known is None or not 0 <= position <= LIMIT:
            return None
        cells, cell = known
        slot = position % cells
        low = slot * cell
        return Cells(name, low, low + cell, sequence, position, slot, slot + 1, None)

    def _cells(self, part: Mapping[str, Any]) -> Cells:
        name, sequence, position = part.get("block"), part.get("sequence"), part["position"]
        if type(name) is not str or type(sequence) is not str:
            name, sequence = key_of(part, "block"), key_of(part, "sequence")
        known = self._pages.get(name)
        if known is None:
            raise ModelError("block", f"{shown(name)} is no page that was given out")
        cells, cell = known
        count = part.get("count", 1)
        if not (type(position) is type(count) is int and position >= 0 and count >= 0):
            position, count = number_of(part, "position"), number_of(part, "count", 1)
        slot = number_of(part, "slot") if "slot" in part else position % cells
        if slot + count > cells or position > LIMIT:
            number_of(part, "position")
            raise ModelError("count", f"cells [{slot}, {slot + count}) are not within the {cells} of a page")
        stop = slot + count
        return Cells(name, slot * cell, stop * cell, sequence, position, slot, stop, part.get("content"))


def pairs_of(event: Mapping[str, Any]) -> Any:
    """Return the declared pairs of a use; raise ModelError if they are no list of pairs."""
    pairs = event.get("in_place")
    if pairs is None:
        return None
    if not isinstance(pairs, list | tuple):
        raise ModelError("in_place", f"{shown(pairs)} is not a list of pairs")
    for position, pair in enumerate(pairs):
        numbers = pair[:2] if isinstance(pair, list | tuple) and 2 <= len(pair) <= 3 else ()
        if len(numbers) != 2 or {*map(type, numbers)} != {int}:
            raise ModelError(
                f"in_place[{position}]", f"{shown(pair)} is not a pair (operand position, result position)"
            )
        if len(pair) == 3 and pair[2] not in STRENGTHS:
            raise ModelError(f"in_place[{position}][2]", f"{shown(pair[2])} is none of {' '.join(STRENGTHS)}")
    return tuple(map(tuple, pairs))


def _named(event: Mapping[str, Any], key: str, what: str) -> Sequence[str | int]:
    """Return a list of names, or of whole numbers; raise ModelError for anything else."""
    found = event.get(key, ())
    if not isinstance(found, list | tuple) or not all(type(name) in (str, int) for name in found):
        raise ModelError(key, f"{shown(found)} is not a list of {what}")
    return found


def meta_of(event: Mapping[str, Any]) -> Any:
    """Return the meta of an event; raise ModelError if it is no object."""
    meta = event.get("meta")
    if meta is not None and not isinstance(meta, Mapping):
        raise ModelError("meta", f"{shown(meta)} is not an object")
    return meta


def key_of(event: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """Return a name, a string or a whole number; raise ModelError for anything else."""
    found = event.get(key, default)
    if type(found) is str:
        return found
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise ModelError(key, f"{shown(found)} is neither a string nor an integer")
    return found


def number_of(event: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a whole number from 0 to 2^62; raise ModelError for anything else."""
    found = event.get(key, default)
    if type(found) is int and 0 <= found <= LIMIT:
        return found
    number = whole(found)
    if number is None or not 0 <= number <= LIMIT:
        raise ModelError(key, f"{shown(found)} is not an integer between 0 and 2^62")
    return number


def shown(thing: Any) -> str:
    """Return a value as text for an error message, at most 60 characters."""
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


__all__ = ["KEYS", "Cells", "Lowering", "PagePool", "checked", "key_of", "meta_of", "number_of", "pairs_of", "shown"]
