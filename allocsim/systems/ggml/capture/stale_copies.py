"""Find reads of copies between backends that are stale because the original was overwritten. A
stale read is a fault of ggml's scheduler, not of its plan.

The scheduler copies a tensor to another backend once, at the start of the first split that reads
the tensor there. If an op writes into the original afterwards (`*_inplace`, CPY, SET, an
accumulator, an optimizer), the scheduler does not copy again. A later reader on the other backend
then reads the old bytes; on a single backend the same reader would read the new bytes.

Contract: `stale_copies(rows)` returns each node that reads a stale copy, the copy's original, and
the first node that overwrote the original. The bytes of two tensors are compared as byte ranges,
each from the first byte of a view to its last. The cost is O(nodes x sources + copies x writes).
The module does not know whether the program needs the old bytes.
"""

from dataclasses import dataclass
from typing import Any

from allocsim.systems.ggml.capture.graph_rebuilding import roots_of, sources_of
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.dump_document import SIDE_EFFECTS
from allocsim.systems.ggml.ggml_dump import NONE, ROOTS_KEPT, SPLIT_COPY

Span = tuple[int, int, int]
"""A byte range in a root tensor: the root's place, the first byte, and the byte behind the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleCopy:
    """One read of a stale copy: the reading node, and the names of the three tensors involved."""

    node: int
    reader: str
    original: str
    writer: str


def stale_copies(rows: Rows) -> list[StaleCopy]:
    """Return each read of a copy if its original was written after the copy and before the read."""
    leafs, everything = len(rows["leafs"]), [*rows["leafs"], *rows["nodes"]]
    roots, sources = roots_of(rows), sources_of(rows)
    copied: dict[int, tuple[int, Span]] = {}
    written: list[tuple[int, Span]] = []
    found = []
    for place in range(leafs, len(everything)):
        row = everything[place]
        for source in dict.fromkeys(sources[place]):
            if source not in copied or source is None:
                continue
            original, span = copied[source]
            since = next((w for w, other in written if w > source and _meet(span, other)), None)
            if since is not None:
                found.append(
                    StaleCopy(
                        node=place - leafs,
                        reader=row["name"],
                        original=everything[original]["name"],
                        writer=everything[since]["name"],
                    )
                )
        if row["op"] == SPLIT_COPY:
            (first,) = sources[place]
            assert first is not None
            copied[place] = first, _span(everything, roots, first)
            continue
        if row["op"] in (NONE, *ROOTS_KEPT):
            continue
        beside = [sources[place][slot] for slot in SIDE_EFFECTS.get(row["op"], ())]
        mine = [place] if roots[place] != place else []
        written += [(place, _span(everything, roots, one)) for one in (*mine, *beside) if one is not None]
    return found


def _span(everything: list[dict[str, Any]], roots: list[int], place: int) -> Span:
    row = everything[place]
    start = row["view_offs"] if roots[place] != place else 0
    return roots[place], start, start + row["nbytes"]


def _meet(one: Span, other: Span) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
