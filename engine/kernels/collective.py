"""Kernels of collectives: what a rank gives, what it makes of what all gave, and who carries it.

    with communicating(world):            # what `bind` finds the groups in
        runtime = Runtime(lowered, plan, ...)

A `RankGroup` is the ranks that meet in a collective, as one of them sees it; with no communicator
it is this rank alone. `receive` says in one place what each kind is: (kind, params, rank, what all
gave) -> result. Sums are made in the order of the ranks, so bits do not depend on who carries them.

What this module does not see: streams, waits, and how many ranks a process holds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import numpy as np

from allocsim.errors import EngineError
from engine.kernels.binding import Array, Arrays, Bind, Call, on_dense

Params = Mapping[str, Any]


class RankGroup(Protocol):
    """The ranks that meet in a collective, as one of them sees it."""

    rank: int
    """Its place among them."""
    size: int

    def run(self, kind: str, params: Params, x: Array, out: Array) -> None:
        """Do a collective: give x, write what this rank gets into out; both C-contiguous."""
        ...


Communicator = Callable[[str], RankGroup]
"""Name of a group -> the group as this rank sees it; raises EngineError for a name it lacks."""

_communicator: ContextVar[Communicator | None] = ContextVar("communicator", default=None)


class Alone:
    """The group of one rank."""

    rank = 0
    size = 1

    def run(self, kind: str, params: Params, x: Array, out: Array) -> None:
        """Copy."""
        receive(kind, params, 0, [x], out)


ALONE: Final = Alone()
NOTHING: Final[Array] = np.empty(0)
"""What a rank gives where it only takes."""


@contextmanager
def communicating(communicator: Communicator) -> Iterator[None]:
    """Let collectives that are bound inside meet in the groups of `communicator`."""
    token = _communicator.set(communicator)
    try:
        yield
    finally:
        _communicator.reset(token)


def summed(parts: Sequence[Array], out: Array) -> None:
    """Write the sum of the parts, added one after the other, into out; of 16 bits in f32, rounded
    once.

    Out may be one of them only where it is the first.
    """
    total = out if out.itemsize > 2 else np.empty(out.shape, np.float32)
    np.copyto(total, parts[0])
    for part in parts[1:]:
        np.add(total, part, out=total)
    if total is not out:
        out[...] = total


def receive(kind: str, params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    """Write into out what `rank` gets where rank s gave `given[s]`; all C-contiguous.

    Out shares no memory with what others gave.
    """
    _RECEIVE[kind](params, rank, given, out)


def _joined(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    del params, rank
    target = out.reshape(-1)
    start = 0
    for part in given:
        taken = min(part.size, target.size - start)
        target[start : start + taken] = part.reshape(-1)[:taken]
        start += taken


def _sum_of_parts(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    del params
    summed([part_of(x, rank, len(given)) for x in given], out.reshape(-1))


def _sum_of_all(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    if rank == params.get("root", rank):
        summed(given, out)
    else:
        out.fill(0)


def _of_the_root(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    del rank
    np.copyto(out, given[params["root"]])


def _of_each_its_part(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    _joined(params, rank, [part_of(x, rank, len(given)) for x in given], out)


def _of_one_before(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    np.copyto(out, given[(rank - params["by"]) % len(given)])


def _nothing(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    """Who sends gets nothing."""


def _of_who_sends(params: Params, rank: int, given: Sequence[Array], out: Array) -> None:
    """Write what the first of the two gave; zeros where this rank is alone, which has nothing."""
    del params, rank
    np.copyto(out, given[0] if given[0].size else 0)


_RECEIVE: Final[dict[str, Callable[[Params, int, Sequence[Array], Array], None]]] = {
    "all_gather": _joined,
    "all_gather_over": _joined,
    "reduce_scatter": _sum_of_parts,
    "all_reduce": _sum_of_all,
    "reduce": _sum_of_all,
    "broadcast": _of_the_root,
    "all_to_all": _of_each_its_part,
    "send_receive": _of_one_before,
    "send": _nothing,
    "recv": _of_who_sends,
}


def part_of(x: Array, rank: int, ranks: int) -> Array:
    """Return part `rank` of `ranks` equal ones of a C-contiguous array, flat.

    The last parts are shorter, or empty, where they do not divide it.
    """
    length = -(-x.size // ranks)
    return x.reshape(-1)[rank * length : (rank + 1) * length]


def _group(params: Params) -> RankGroup:
    communicator = _communicator.get()
    group: RankGroup = ALONE if communicator is None else communicator(params["group"])
    if group.size != params["ranks"]:
        raise EngineError(f"group {params['group']!r} has {group.size} ranks here; the op is for {params['ranks']}")
    return group


def bind_collective(kind: str) -> Bind:
    """Return what binds a collective, or one side of a message, to the group that it meets in."""

    @on_dense
    def bind(params: Params, operands: Arrays, results: Arrays) -> Call:
        return _group(params).run, (kind, params, operands[0] if operands else NOTHING, results[0])

    return bind


@on_dense
def bind_own_part(params: Params, operands: Arrays, results: Arrays) -> Call:
    """Bind x -> the part of this rank, zeros behind the end of x."""
    group = _group(params)
    return _padded, (part_of(operands[0], group.rank, group.size), results[0])


def _padded(part: Array, out: Array) -> None:
    flat = out.reshape(-1)
    flat[: part.size] = part
    flat[part.size :] = 0
