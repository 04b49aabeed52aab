"""Bytes that each rank sends and receives in a step, by collective, counted in its lowered program.

    traffic(step)[0].sent["all_gather"], traffic(step)[0].received

Collectives are counted as rings do them, which send the fewest bytes a rank (x is what a rank
brings, n the ranks of its group, in bytes):

| kind | sent, and received |
|---|---|
| all_gather, all_gather_over | (n - 1) x |
| reduce_scatter, all_to_all | (n - 1) / n x |
| all_reduce | 2 (n - 1) / n x: a reduce_scatter, then an all_gather |
| send_receive | x |
| broadcast | x down a chain from the root; its last rank sends nothing |
| reduce | x up such a chain; its first rank receives nothing |
| send, recv | what is sent; what is received |

Parts are filled up with zeros, which travel, too. What does not come out whole is rounded up to a
byte.

Source: Patarasuk and Yuan 2009 (bandwidth optimal all-reduce); Thakur et al. 2005 (MPICH).

What this module does not see: time, links, and libraries that choose trees (more bytes in fewer
turns).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocsim.programs.rank_meetings import collectives
from engine.graph.lowering import Lowered
from engine.sharding.pipeline_stages import RankedStep

Params = Mapping[str, Any]
Row = tuple[int, int]
"""Bytes sent and received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTraffic:
    """What one rank exchanges in a step."""

    sent: Mapping[str, int]
    """Kind of a collective -> bytes."""
    received: Mapping[str, int]


def traffic(step: RankedStep) -> tuple[RankTraffic, ...]:
    """Return what each rank sends and receives in a step. O(ops of different programs + ranks)."""
    rows = {id(lowered): _rows(lowered) for lowered in step.of_ranks}
    places = {
        name: {rank: place for part in split for place, rank in enumerate(part)} for name, split in step.groups.items()
    }
    found = []
    for rank, lowered in enumerate(step.of_ranks):
        sent, received = Counter[str](), Counter[str]()
        for (kind, group, nbytes, ranks, root), times in rows[id(lowered)].items():
            out, into = _RINGS[kind](nbytes, ranks, (places[group][rank] - root) % ranks)
            sent[kind] += times * out
            received[kind] += times * into
        found.append(RankTraffic(sent=dict(+sent), received=dict(+received)))
    return tuple(found)


def _rows(lowered: Lowered) -> Counter[tuple[str, str, int, int, int]]:
    """Return how often each (kind, group, bytes, ranks, root) occurs."""
    found = Counter[tuple[str, str, int, int, int]]()
    for step, group in collectives(lowered.program):
        made = lowered.tensors[step]
        brought = made if made.kind == "recv" else made.sources[0]
        found[str(made.kind), group, brought.nbytes, made.params["ranks"], made.params.get("root", 0)] += 1
    return found


def _each(share: Callable[[int, int], int]) -> Callable[[int, int, int], Row]:
    """Return the row of a kind in which every rank sends and receives alike; alone it does not."""

    def row(nbytes: int, ranks: int, place: int) -> Row:
        del place
        moved = share(nbytes, ranks) if ranks > 1 else 0
        return moved, moved

    return row


def _scattered(nbytes: int, ranks: int) -> int:
    return -(-nbytes * (ranks - 1) // ranks)


def _down(nbytes: int, ranks: int, place: int) -> Row:
    return nbytes * (place < ranks - 1), nbytes * (place > 0)


_RINGS: Final[dict[str, Callable[[int, int, int], Row]]] = {
    "all_gather": _each(lambda nbytes, ranks: nbytes * (ranks - 1)),
    "all_gather_over": _each(lambda nbytes, ranks: nbytes * (ranks - 1)),
    "reduce_scatter": _each(_scattered),
    "all_to_all": _each(_scattered),
    "all_reduce": _each(lambda nbytes, ranks: -(-2 * nbytes * (ranks - 1) // ranks)),
    "send_receive": _each(lambda nbytes, _: nbytes),
    "broadcast": _down,
    "reduce": lambda nbytes, ranks, place: _down(nbytes, ranks, place)[::-1],
    "send": lambda nbytes, _, __: (nbytes, 0),
    "recv": lambda nbytes, _, __: (0, nbytes),
}
"""Kind -> bytes of a rank by what it brings, the ranks, and its place behind the root."""
