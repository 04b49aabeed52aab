"""Pages of a cache of keys and values: which sequence holds which, told as events that the judge
reads.

A cache has `count` pages of `cells` cells; cell c of page p is row p * cells + c of what each layer
keeps. A page has as many holders as sequences count on it, and is given out again when the last has
let go. Who writes into a page of several holders takes one of its own first.

`tell` gets every event as `allocsim trace` has them (`allocsim.programs.allocator_trace`): the
pool, `alloc` and `free` of a page's generations, holders counted by `ref` and `unref`.

What this module does not see: keys, values, and in which cells of a page positions lie.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from allocsim.errors import EngineError

DEVICE: Final = "cache"
STREAM: Final = "engine"

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class CachePage:
    """A page as it was given out once."""

    number: int
    generation: int

    @property
    def name(self) -> str:
        """What events call it."""
        return f"{self.number}#{self.generation}"


class Pages:
    """The pages that are free, and how many hold each of the others."""

    def __init__(self, count: int, cells: int, nbytes: int, tell: Tell) -> None:
        """Describe the pool: pages of `nbytes` bytes with `cells` cells each."""
        if count < 1 or cells < 1:
            raise EngineError(f"{count} pages of {cells} positions: at least one page of one position is needed")
        self.count, self.cells = count, cells
        self.free = list(range(count))[::-1]
        self.holders = [0] * count
        self._generation = [-1] * count
        self._tell, self._nbytes = tell, nbytes
        self.describe()

    def describe(self) -> None:
        """Tell what the pool is."""
        pool = {"event": "pool", "page": self._nbytes, "device": DEVICE, "cells": self.cells, "pages": self.count}
        self._tell(pool)

    def take(self) -> CachePage:
        """Give a page out, to one holder. Raises EngineError where none is free."""
        if not self.free:
            raise EngineError(f"the cache of {self.count} pages with {self.cells} positions each is full")
        number = self.free.pop()
        self.holders[number] = 1
        self._generation[number] += 1
        page = CachePage(number, self._generation[number])
        self._tell({"event": "alloc", "block": page.name, "page": number, "device": DEVICE, "stream": STREAM})
        return page

    def last(self, number: int) -> CachePage:
        """Return a page as it was given out last."""
        return CachePage(number, self._generation[number])

    def hold(self, page: CachePage) -> None:
        """Count one more holder."""
        self.holders[page.number] += 1
        self._tell({"event": "ref", "block": page.name, "count": self.holders[page.number]})

    def let_go(self, page: CachePage) -> None:
        """Count one holder less, and take the page back from the last."""
        self.holders[page.number] -= 1
        if self.holders[page.number]:
            self._tell({"event": "unref", "block": page.name, "count": self.holders[page.number]})
            return
        self._tell({"event": "free", "block": page.name, "stream": STREAM})
        self.free.append(page.number)
