"""Parts of a call shared between threads without Python: what `engine.kernels.threads` does at
once, where each part is a row of entries.

A helper of the pool is woken through Python, which takes about as long as a small product. Here
helpers watch a board (`engine.tape.team_machine`) for some hundreds of microseconds after they last
found work, as those of OpenMP do, and take the parts of the next call in less than one; a helper
that found none sleeps until it is woken.

    call = shared((at_once, calls))

The same bits: the same functions get the same arguments, in parts that write apart. Calls that have
no entries, and those of one part, are left as they are.

Invariants
----------
* No more helpers take part than `engine.kernels.threads.allowed` less the caller.
* A forked child has no helpers until it needs some, and a board that nobody holds.
* Helpers end with the process; they hold nothing of a call but while the caller waits.

What this module does not see: what the parts compute, and who asks.
"""

import ctypes
import os
from threading import Event, Lock, Thread
from typing import Final

import numpy as np

from allocsim.errors import EngineError
from engine.kernels.binding import Call, in_turn, meets, overlaps
from engine.kernels.threads import allowed, at_once
from engine.tape import team_machine
from engine.tape.forms import coded
from engine.tape.loops import ANYHOW, EXACTLY, Coded

PATIENCE: Final = 20000
"""Pauses of the processor, of some 10 to 40 ns, after which a helper that found nothing sleeps: as
long as the ops between two products of a small step take."""

_share: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 6)(team_machine.share.address)
_watch: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(team_machine.watch.address)


class _Team:
    """The board of this process and the helpers that watch it."""

    def __init__(self) -> None:
        self._words = np.zeros(team_machine.WORDS + 8, np.int64)
        start = -self._words.ctypes.data % 64 // 8
        board = self._words[start : start + team_machine.WORDS]
        self.address: int = board.ctypes.data
        self._watching = board[team_machine.WATCHING : team_machine.WATCHING + 1]
        self._lock = Lock()
        self._events: list[Event] = []

    def wake(self, helpers: int) -> None:
        """See to it that so many helpers watch, or will in a moment."""
        if self._watching[0] >= helpers:
            return
        if len(self._events) < helpers:
            self._make(helpers)
        for event in self._events[:helpers]:
            event.set()

    def _make(self, helpers: int) -> None:
        with self._lock:
            for number in range(len(self._events), helpers):
                event = Event()
                try:
                    Thread(target=self._help, args=(number, event), daemon=True, name=f"team-{number}").start()
                except RuntimeError:  # no more threads, or the process ends: the caller does all parts
                    return
                self._events.append(event)

    def _help(self, number: int, event: Event) -> None:
        while event.wait():
            event.clear()
            _watch(self.address, number, PATIENCE)


_teams: Final = [_Team()]
"""The last is this process's; those of its ancestors are kept, since calls may hold their words."""

os.register_at_fork(after_in_child=lambda: _teams.append(_Team()))


def shared(call: Call) -> Call:
    """Return a call that shares its parts without Python if it can be so, else the call itself."""
    function, parts = call
    if function is in_turn:
        return in_turn, tuple(map(shared, parts))
    if function is not at_once:
        return call
    entries = [part for part in map(coded, parts) if part is not None]
    row = [entry for part in entries for entry in part]
    if len(entries) < len(parts) or not all(map(_apart, row)):
        return call
    words = [np.array(entry[1], np.int64) for entry in row]
    own = [np.array([array.ctypes.data for array in entry[2]], np.int64) for entry in row]
    codes = np.array([[e[0], w.ctypes.data, o.ctypes.data] for e, w, o in zip(row, words, own, strict=True)], np.int64)
    starts = np.cumsum([0, *map(len, entries)]).astype(np.int64)
    return in_parts, (codes.ctypes.data, starts.ctypes.data, len(parts), (codes, starts, words, own, row, parts))


def _apart(entry: Coded) -> bool:
    """Return whether an entry does what its call from Python does, wherever its arrays lie."""
    *_, (*operands, result), overlap = entry
    if overlap == EXACTLY:
        return not overlaps(result, *operands)
    return overlap == ANYHOW or not meets(result, *operands)


def in_parts(codes: int, starts: int, count: int, _kept: tuple[object, ...]) -> None:
    """Do parts at once, by as many threads as are allowed; what `shared` makes of a call.

    Raises EngineError where a kernel raises, after all parts are done.
    """
    helpers = min(allowed(), count) - 1
    team = _teams[-1]
    if helpers:
        team.wake(helpers)
    if _share(team.address, codes, starts, count, helpers, PATIENCE):
        raise EngineError("a kernel that is shared between threads raised an exception")
