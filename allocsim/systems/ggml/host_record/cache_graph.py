"""What a graph of llama.cpp does with cells of its cache: which it writes, which each token reads,
and which it turns to another position.

    for use in CacheGraph(run).uses():
        use.root, use.written, use.read_by(token)

Contract
--------
* A cache is a tensor outside compute memory into which SET_ROWS writes rows by the whole numbers of
  a leaf, and which attention (FLASH_ATTN_EXT, or SOFT_MAX over a MUL_MAT) reads under a mask. A
  cell is a row of it, numbered through all its streams. Layers whose caches are written and read by
  the same leafs are one use, which says how many they are.
* Column c of a mask is row c of the view that attention takes. A token reads the finite columns.
* ROPE over a cache by as many numbers as it has cells turns each cell by its number.

Values (V) that are written transposed, element by element, are not seen. What this module does not
see: which sequence a token belongs to, and what is wrong (`cache_cells`).

O(nodes + finite columns) a run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.systems.ggml.host_record.record_events import MaskTold, NumbersTold
from allocsim.systems.ggml.host_record.record_log import PlacedTensor, RecordedRun, RecordedTensor

Cells = np.ndarray
"""Numbers of cells, int64 [n]."""

LAID_AS: Final = frozenset(
    {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "CONT", "CPY", "CAST", "SCALE", "ADD", "SOFT_CAP"}
)
"""Ops that hand on their first operand, as far as it matters here."""

ATTENTION: Final = {"FLASH_ATTN_EXT": 3, "SOFT_MAX": 1}
"""Op -> which operand is its mask."""


@dataclass(frozen=True, slots=True)
class CellUse:
    """What a run does with the cells of one cache, or of several that are used alike."""

    root: RecordedTensor
    layers: int
    pitch: int
    """Bytes of a cell in one layer."""
    cells: int
    stream: int
    """Cells of a stream."""
    written: Cells
    """By token."""
    first: int
    """The cell that column 0 of the mask is, in the first stream that is read."""
    step: int
    """From a stream to the next one that is read, in cells."""
    rows: tuple[tuple[int, ...], ...]
    """By row of the mask: ends of ranges of columns that are read."""
    height: int
    """Rows of the mask in each stream."""
    streams: int
    """Streams that are read."""

    @property
    def fits(self) -> bool:
        """Whether what is written and read lies in the cache."""
        last = self.first + (self.streams - 1) * self.step + max(map(max, filter(None, self.rows)), default=0)
        tokens, more = divmod(len(self.written), self.streams)
        alike = not more and tokens <= self.height and len(self.rows) >= self.height * self.streams
        inside = bool(((self.written >= 0) & (self.written < self.cells)).all()) and last <= self.cells
        return alike and inside and not any(len(ends) % 2 for ends in self.rows)

    def read_by(self, token: int) -> Cells:
        """Return the cells that a token reads, in order."""
        stream, place = divmod(token, len(self.written) // self.streams)
        ends = self.rows[stream * self.height + place]
        ranges = [np.arange(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True)]
        return self.first + stream * self.step + np.concatenate([np.empty(0, np.int64), *ranges])


@dataclass(frozen=True, slots=True)
class CellTurn:
    """A run that turns cells to other positions."""

    root: RecordedTensor
    by: Cells
    """By cell."""


class CacheGraph:
    """The tensors of a run, by what they are placed as."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self.placed = {each.tensor: each for those in (run.leafs, run.outside, run.nodes) for each in those}

    def uses(self) -> list[CellUse]:
        """Return what the run does with each cache, each pair of leafs once."""
        written = dict(self._written())
        found: dict[tuple[object, ...], list[tuple[PlacedTensor, PlacedTensor, RecordedTensor]]] = {}
        for keys, mask in self._attention():
            root = keys.view_src
            if root in written:
                like = written[root], mask, keys.told.nb, keys.told.view_offs
                found.setdefault(like, []).append((keys, self.placed[root], mask))
        return [_use(self.run, group, written) for group in found.values()]

    def turns(self) -> list[CellTurn]:
        """Return the caches whose cells the run turns."""
        found = list[CellTurn]()
        for node in self.run.nodes:
            root = self._cache_behind(node.src[0]) if node.told.op == "ROPE" else None
            by = self._numbers(node.src[1]) if root is not None else None
            if root is not None and by is not None and len(by) == _cells(root.told.ne):
                found.append(CellTurn(root.tensor, by))
        return found

    def positions(self) -> Cells | None:
        """Return the positions by which the run turns its tokens, None where it turns none."""
        ropes = (node for node in self.run.nodes if node.told.op == "ROPE" and self._cache_behind(node.src[0]) is None)
        return next((by for node in ropes if (by := self._numbers(node.src[1])) is not None), None)

    def _written(self) -> Iterator[tuple[RecordedTensor, RecordedTensor]]:
        """Yield caches and the leafs whose numbers are the rows written."""
        for node in self.run.nodes:
            if node.told.op == "SET_ROWS" and node.view_src is not None:
                root, leaf = self.placed.get(node.view_src), self._leaf(node.src[1])
                rows = self.placed[node.src[0]].told.ne[1] if node.src[0] in self.placed else -1
                numbers = self._numbers(leaf)
                if self._lasts(root) and leaf is not None and numbers is not None and len(numbers) == rows:
                    yield node.view_src, leaf

    def _attention(self) -> Iterator[tuple[PlacedTensor, RecordedTensor]]:
        """Yield the views of caches that attention takes as keys, and the leafs of their masks."""
        for node in self.run.nodes:
            at = ATTENTION.get(node.told.op)
            if at is None or len(node.src) <= at:
                continue
            mask = self._leaf(node.src[at])
            keys = self._keys(node)
            if keys is not None and mask is not None and isinstance(self.run.held.get(mask), MaskTold):
                yield keys, mask

    def _keys(self, node: PlacedTensor) -> PlacedTensor | None:
        """Return the view of a cache that an attention reads, None where it reads none."""
        if node.told.op == "FLASH_ATTN_EXT":
            return self._view(node.src[1])
        over = self._behind(node.src[0], lambda at: at.told.op == "MUL_MAT")
        return None if over is None else self._view(over.src[0])

    def _view(self, tensor: RecordedTensor | None) -> PlacedTensor | None:
        """Return the last view of a cache behind a tensor."""
        return self._behind(tensor, lambda at: at.view_src is not None and self._lasts(self.placed.get(at.view_src)))

    def _cache_behind(self, tensor: RecordedTensor | None) -> PlacedTensor | None:
        """Return the cache that a tensor is a view of."""
        view = self._view(tensor)
        return None if view is None or view.view_src is None else self.placed[view.view_src]

    def _behind(self, tensor: RecordedTensor | None, found: Callable[[PlacedTensor], bool]) -> PlacedTensor | None:
        """Return the first that is so of a tensor and those that it hands on."""
        at = self.placed.get(tensor) if tensor is not None else None
        while at is not None and not found(at):
            at = self.placed.get(at.src[0]) if at.told.op in LAID_AS and at.src and at.src[0] else None
        return at

    def _leaf(self, tensor: RecordedTensor | None) -> RecordedTensor | None:
        """Return the leaf behind casts and views, as far as its numbers were told."""
        at = self._behind(tensor, lambda at: at.tensor in self.run.held)
        return None if at is None else at.tensor

    def _numbers(self, tensor: RecordedTensor | None) -> Cells | None:
        """Return the whole numbers of a leaf, None where they were not told."""
        leaf = self._leaf(tensor)
        told = self.run.held.get(leaf) if leaf is not None else None
        return np.array(told.values, np.int64) if isinstance(told, NumbersTold) else None

    @staticmethod
    def _lasts(root: PlacedTensor | None) -> bool:
        """Return whether a tensor lies outside compute memory."""
        return root is not None and root.memory is not None and not root.memory.computes


def _use(
    run: RecordedRun,
    group: list[tuple[PlacedTensor, PlacedTensor, RecordedTensor]],
    written: dict[RecordedTensor, RecordedTensor],
) -> CellUse:
    keys, root, mask = group[0]
    pitch, told = root.told.nb[1], run.held[mask]
    assert isinstance(told, MaskTold)
    _, rows, _, streams = next(leaf.told.ne for leaf in run.leafs if leaf.tensor is mask)
    idx = run.held[written[root.tensor]]
    assert isinstance(idx, NumbersTold)
    return CellUse(
        root=root.tensor,
        layers=len({each.tensor for _, each, _ in group}),
        pitch=pitch,
        cells=_cells(root.told.ne),
        stream=root.told.ne[1],
        written=np.array(idx.values, np.int64),
        first=keys.told.view_offs // pitch,
        step=keys.told.nb[3] // pitch,
        rows=told.rows,
        height=rows,
        streams=streams,
    )


def _cells(ne: tuple[int, ...]) -> int:
    return ne[1] * ne[2] * ne[3]


__all__ = ["CacheGraph", "CellTurn", "CellUse", "Cells"]
