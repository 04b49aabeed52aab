"""How threads share the parts of a call without Python: compiled code over one small board of
words.

A *part* is a stretch of entries (`engine.tape.machine`), done in order by one thread. A *board* is
`WORDS` int64 words; whoever has parts to share (the caller) posts them, helpers that watch the
board take some, the caller takes what is left and waits until all are done.

Contract
--------
* The ticket holds the turn, the number of parts and the next part in one word, and changes by
  compare-and-swap alone: who takes a part takes it of the turn that it saw. What else the board
  says of a turn is written before its ticket and changes after its last part is done.
* One caller at a time posts; another one that finds the board taken does its parts alone. A helper
  of a number that the turn does not allow takes none.
* A helper leaves after it has watched for `patience` pauses in vain. That no helper watches costs
  time alone.
* A part that fails (a driver that does not return 0) is counted, and the others are done.

What this module does not see: what the parts do, and who made the helpers.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

import numba
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from engine.tape.machine import compiled, drive, load

_intrinsic: Any = extending.intrinsic  # numba declares these with types that no caller satisfies
_cg: Any = cgutils
_WORD = ir.IntType(64)

TICKET: Final = 0
DONE: Final = 8
FAILED: Final = 9
TAKEN: Final = 16
WATCHING: Final = 24
ALLOWED: Final = 32
CODES: Final = 33
STARTS: Final = 34
WORDS: Final = 40
"""Words of a board, those that are written at once on lines of their own: the ticket; parts that
are done, and have failed, of this turn; 1 while a caller has the board; helpers that watch it; and
what is posted: helpers allowed, addresses of the entries (driver, shared, own) and of the parts'
first entries."""


def _ordered(operation: Callable[[Any, Any, list[Any]], Any], count: int, *, gives: bool) -> Any:
    """Return an intrinsic of an address and `count - 1` words that no load or store passes by."""

    def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        found = operation(builder, builder.inttoptr(args[0], _WORD.as_pointer()), list(args[1:]))
        return found if gives else context.get_dummy_value()

    found = (types.int64 if gives else types.void)(*[types.int64] * count), emit
    spelled: dict[int, Any] = {
        1: lambda _, a: found,  # noqa: ARG005 - numba reads the arity
        2: lambda _, a, b: found,  # noqa: ARG005
        3: lambda _, a, b, c: found,  # noqa: ARG005
    }
    return _intrinsic(spelled[count])


def _swapped(builder: Any, place: Any, words: list[Any]) -> Any:
    found = builder.cmpxchg(place, *words, "seq_cst")
    return builder.zext(builder.extract_value(found, 1), _WORD)


_seen = _ordered(lambda builder, place, _: builder.load_atomic(place, "seq_cst", 8), 1, gives=True)
_post = _ordered(lambda builder, place, words: builder.store_atomic(words[0], place, "seq_cst", 8), 2, gives=False)
_add = _ordered(lambda builder, place, words: builder.atomic_rmw("add", place, words[0], "seq_cst"), 2, gives=True)
_swap = _ordered(_swapped, 3, gives=True)


def _calling(name: str, result: Any, *, here: Callable[[Any], bool]) -> Any:
    """Return an intrinsic that calls a C function of no words where it is `here`."""

    @_intrinsic
    def called(_: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
            if here(builder.module):
                builder.call(_cg.get_or_insert_function(builder.module, ir.FunctionType(result, []), name), [])
            return context.get_dummy_value()

        return types.void(), codegen

    return called


_pause = _calling("llvm.x86.sse2.pause", ir.VoidType(), here=lambda module: module.triple.startswith("x86_64"))
_give_way = _calling("sched_yield", ir.IntType(32), here=lambda _: sys.platform != "win32")


_njit: Any = numba.njit
_leaf: Any = _njit(forceinline=True, error_model="numpy", _nrt=False)


@_leaf
def _do(codes: int, first: int, last: int) -> int:
    """Do the entries of a part; return 1 if one failed, 0 if none did."""
    for entry in range(first, last):
        at = codes + 24 * entry
        if drive(load(at), load(at + 8), load(at + 16)) != 0:
            return 1
    return 0


@_leaf
def _take(board: int, turn: int) -> None:
    """Do parts of that turn until none is left."""
    while True:
        ticket = _seen(board + 8 * TICKET)
        part, count = ticket & 0xFFFF, (ticket >> 16) & 0xFFFF
        if ticket >> 32 != turn or part >= count:
            return
        codes, starts = _seen(board + 8 * CODES), _seen(board + 8 * STARTS)
        if _swap(board + 8 * TICKET, ticket, ticket + 1):
            if _do(codes, load(starts + 8 * part), load(starts + 8 * (part + 1))):
                _add(board + 8 * FAILED, 1)
            _add(board + 8 * DONE, 1)


@compiled(types.int64(*[types.int64] * 6))
def share(board: int, codes: int, starts: int, count: int, helpers: int, patience: int) -> int:  # noqa: PLR0917 - compiled
    """Do `count` parts with up to `helpers` helpers; return how many failed.

    `codes` and `starts` are addresses: three words an entry, and for each part its first entry,
    with the end of the last. After `patience` pauses of waiting for the last part it gives way.
    """
    if count > 0xFFFF or not _swap(board + 8 * TAKEN, 0, 1):
        alone = 0
        for part in range(count):
            alone += _do(codes, load(starts + 8 * part), load(starts + 8 * (part + 1)))
        return alone
    _post(board + 8 * CODES, codes)
    _post(board + 8 * STARTS, starts)
    _post(board + 8 * ALLOWED, helpers)
    _post(board + 8 * DONE, 0)
    _post(board + 8 * FAILED, 0)
    turn = ((_seen(board + 8 * TICKET) >> 32) + 1) & 0x7FFFFFFF
    _post(board + 8 * TICKET, turn << 32 | count << 16)
    _take(board, turn)
    waited = 0
    while _seen(board + 8 * DONE) < count:
        waited += 1
        if waited > patience:
            _give_way()
        else:
            _pause()
    failed: int = _seen(board + 8 * FAILED)
    _post(board + 8 * TAKEN, 0)
    return failed


@compiled(types.int64(*[types.int64] * 3))
def watch(board: int, number: int, patience: int) -> int:
    """Take parts as helper `number`, from 0, until nothing came for `patience` pauses; return how
    many turns it saw.
    """
    _add(board + 8 * WATCHING, 1)
    seen, turns, idle = -1, 0, 0
    while idle < patience:
        turn = _seen(board + 8 * TICKET) >> 32
        if turn != seen and number < _seen(board + 8 * ALLOWED):
            _take(board, turn)
            seen, idle = turn, 0
            turns += 1
        else:
            _pause()
            idle += 1
    _add(board + 8 * WATCHING, -1)
    return turns
