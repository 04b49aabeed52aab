"""Backward programs that are kept: planned once for a structure, bound to memory, and lent to one
thread at a time.

    with programs.lent(key, make) as program:      # `make` plans, where the structure is new
        program.run(...)

A structure is planned and judged once. What runs it (arenas, blocks of its own, a tape) is a
`BoundBackward`; a thread that comes while all of these are lent gets a new one of the same plan, so
threads share no byte. What comes back is kept for the next, up to `KEPT_NBYTES` over all
structures, the structures used longest ago first out; their plans stay, for the `KEPT` latest
structures. A program whose pass failed is not kept.

What is counted: arenas, blocks and tapes, which grow with the data. Plans grow with the ops alone
(`engine.front.reverse.KEPT_NODES` limits these). Safe from any number of threads.

What this module does not see: histories, gradients.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

KEPT: Final = 16
"""Structures whose plans are kept."""
KEPT_NBYTES: Final = 256 << 20
"""Bytes of memory kept for all structures together, while nobody uses it."""


class Sized(Protocol):
    """What is lent."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory it holds."""
        ...


Lent = TypeVar("Lent", bound=Sized)


@dataclass(slots=True, eq=False)
class _Structure(Generic[Lent]):
    """One structure: how another program of its plan is bound, and those that nobody uses now."""

    bind: Callable[[], Lent]
    idle: list[Lent] = field(default_factory=list)


class KeptPrograms(Generic[Lent]):
    """See the module header."""

    def __init__(self, *, structures: int = KEPT, nbytes: int = KEPT_NBYTES) -> None:
        self._limits = structures, nbytes
        self._lock = Lock()
        self._known: OrderedDict[Hashable, _Structure[Lent]] = OrderedDict()
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all programs that are kept and not lent now."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._known)

    @contextmanager
    def lent(self, key: Hashable, make: Callable[[], Callable[[], Lent]]) -> Iterator[Lent]:
        """Lend a program of structure `key`; `make` plans a new one and returns what binds it."""
        with self._lock:
            structure = self._known.get(key)
        if structure is None:
            # outside the lock: planning takes long, and two that plan one structure do no harm
            made = _Structure(make())
            with self._lock:
                structure = self._known.setdefault(key, made)
                self._trim()
        program = self._taken(structure) or structure.bind()
        yield program
        self._back(key, structure, program)

    def clear(self) -> None:
        """Forget everything; what is lent now is not kept when it comes back."""
        with self._lock:
            for structure in self._known.values():  # somebody may hold it and be about to take one of these
                structure.idle.clear()
            self._known.clear()
            self._nbytes = 0

    def _taken(self, structure: _Structure[Lent]) -> Lent | None:
        with self._lock:
            if not structure.idle:
                return None
            program = structure.idle.pop()
            self._nbytes -= program.nbytes
            return program

    def _back(self, key: Hashable, structure: _Structure[Lent], program: Lent) -> None:
        with self._lock:
            if self._known.get(key) is not structure:
                return
            structure.idle.append(program)
            self._nbytes += program.nbytes
            self._known.move_to_end(key)
            self._trim()

    def _trim(self) -> None:
        structures, nbytes = self._limits
        while len(self._known) > structures:
            _, gone = self._known.popitem(last=False)
            self._nbytes -= sum(one.nbytes for one in gone.idle)
            gone.idle.clear()
        for oldest in self._known.values():
            while self._nbytes > nbytes and oldest.idle:
                self._nbytes -= oldest.idle.pop(0).nbytes
