"""Finds the ranks that take part in the collective instructions of a partitioned module.

    told = meeting_of(row, module.ranks)
    told.parts, told.params         # ((0, 1), (2, 3)), {}

A rank is a partition, and a part is a set of ranks that communicate with each other. All ranks run
the same module, so the k-th collective of a part is the k-th collective of each rank in the part. A
channel is not a communicator: all collectives of a module may have the same channel number.
`replica_groups` has three forms. The first is a list of lists. In the form `[2,4]<=[8]T(1,0)`, the
numbers from 0 on are an array that is transposed and reshaped; each row is a part. In the form
`mesh['x'=4,'y'=2] {'x'}`, ranks are the points of a mesh, and the ranks of a part differ only in
the named axes. Without `replica_groups` all ranks are one part.

What this module does not see: modules with both replicas and partitions, and protos, which have the
groups in other fields. `meeting_of` returns None for both.

Source: XLA `collective_ops_utils.h` (the participants), `replica_group.h`, `mesh_and_axis.h`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from allocsim.programs.rank_meetings import MOST
from allocsim.systems.xla.hlo_text import Instruction

COLLECTIVES: Final = frozenset(
    kind + form
    for kind in (
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "collective-permute",
        "collective-broadcast",
    )
    for form in ("", "-start")
)

UNREAD: Final = COLLECTIVES | {"ragged-all-to-all", "send", "recv"}
"""All collective instructions, including kinds with participants that are not read here."""

BY_PARTITION: Final = frozenset(("all-to-all", "collective-permute", "collective-broadcast"))
"""Kinds of collectives in which, with a channel, the numbers of a group are partitions."""

Parts = tuple[tuple[int, ...], ...]

_LISTS: Final = re.compile(r"replica_groups=\{((?:\{[\d,\s]*\},?\s*)*)\}")
_ARRAY: Final = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH: Final = re.compile(r"replica_groups=mesh\[((?:'[^']*'=\d+,?)*)\]\s*\{((?:'[^']*',?\s*)*)\}")
_PAIRS: Final = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?\s*)*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCollective:
    """The parts of the ranks that take part in an instruction, and its parameters."""

    parts: Parts
    params: Mapping[str, Any]


def meeting_of(row: Instruction, ranks: int) -> RankedCollective | None:
    """Return the ranks that take part in an instruction, if there are `ranks` ranks in all. Return
    None if the instruction is not a collective with a channel, if the form of its groups is not
    supported, or if `ranks` is not between 2 and `MOST`. O(ranks).
    """
    kind = row.opcode.removesuffix("-start")
    if row.opcode not in COLLECTIVES or row.number("channel_id") is None or not 1 < ranks <= MOST:
        return None
    whole: Parts = (tuple(range(ranks)),)
    pairs = _PAIRS.search(row.attributes)
    if kind == "collective-permute":
        if pairs is None:
            return None
        moved = sorted(map(list, _numbers(pairs[1])))
        if any(rank >= ranks for row in moved for rank in row):
            return None
        return RankedCollective(parts=whole, params={"pairs": moved})
    by_rank = kind in BY_PARTITION or "use_global_device_ids=true" in row.attributes
    # group numbers that are not ranks are replicas, and there is only one replica
    parts = _parts(row.attributes, whole) if by_rank else whole
    if parts is None or sorted(rank for part in parts for rank in part) != list(range(ranks)):
        return None
    return RankedCollective(parts=parts, params={})


def _parts(attributes: str, whole: Parts) -> Parts | None:
    """Return the parts in `replica_groups`; `whole` without this attribute, None if unreadable."""
    if lists := _LISTS.search(attributes):
        return tuple(_numbers(lists[1])) or whole
    if array := _ARRAY.search(attributes):
        shape, lengths = _integers(array[1]), _integers(array[2])
        return _laid(lengths, _integers(array[3]) if array[3] else tuple(range(len(lengths))), shape)
    if mesh := _MESH.search(attributes):
        named = re.findall(r"'([^']*)'=(\d{1,9})", mesh[1])
        axes = {name: (place, int(length)) for place, (name, length) in enumerate(named)}
        across = re.findall(r"'([^']*)'", mesh[2])
        if any(name not in axes for name in across):
            return None
        inner = [axes[name][0] for name in across]
        lengths = tuple(length for _, length in axes.values())
        outer = [place for place in range(len(lengths)) if place not in inner]
        size, count = prod(lengths[place] for place in inner), prod(lengths)
        return _laid(lengths, (*outer, *inner), (count // max(size, 1), size))
    return None if "replica_groups=" in attributes else whole


def _laid(lengths: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]) -> Parts | None:
    """Return the rows of 0, 1, ... reshaped to `lengths`, transposed and reshaped to `shape`."""
    count = prod(lengths)
    fits = len(shape) == 2 and shape[0] * shape[1] == count and sorted(order) == list(range(len(lengths)))
    if not fits or not 0 < count <= MOST:
        return None
    table = np.arange(count).reshape(lengths).transpose(order).reshape(shape)
    return tuple(map(tuple, table.tolist()))


def _numbers(lists: str) -> list[tuple[int, ...]]:
    return [_integers(one) for one in re.findall(r"\{([\d,\s]*)\}", lists)]


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d{1,9}", text))


__all__ = ["RankedCollective", "meeting_of"]
