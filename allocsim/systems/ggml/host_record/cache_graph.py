"""Find the accesses of a llama.cpp graph to the cells of its cache: the cells that it writes, the
cells that each token reads, and the cells that it shifts to another position.

    for use in CacheGraph(run).uses():
        use.root, use.written, use.read_by(token)

Contract
--------
* A cache is a tensor outside compute memory. SET_ROWS writes rows into the cache, at the row
  numbers that a leaf has. Attention (FLASH_ATTN_EXT, or SOFT_MAX between two MUL_MAT) reads the
  cache under a mask, as keys or as values.
* A cell is a row of a cache; the cells of all its streams are numbered together. Values may be
  stored transposed. SET_ROWS writes transposed values element by element, and a cell is then a
  column.
* Layers whose keys and values are written into the same cells and read under the same mask are one
  use, which names these layers. Values of an attention that belong to no use are counted
  (`unfollowed`).
* Column c of a mask belongs to row c of the view that attention reads. A token reads the rows whose
  columns are finite in its row of the mask.
* ROPE on a cache, with one number for each cell, shifts the position of each cell by its number.

This module does not know the sequence of a token, and does not look for faults (`cache_cells`
does).

A run costs O(nodes + finite columns).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.systems.ggml.host_record.record_events import MaskTold, NumbersTold, TensorTold
from allocsim.systems.ggml.host_record.record_log import PlacedTensor, RecordedRun, RecordedTensor

Cells = np.ndarray
"""An array of cell numbers, int64 [n]."""

LAID_AS: Final = frozenset(
    {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "CONT", "CPY", "CAST", "SCALE", "ADD", "SOFT_CAP"}
)
"""Ops whose result is treated as their first operand when the source of a tensor is searched."""

MOST_CELLS: Final = 1 << 26
"""The most cells of a cache. A use of a larger cache is skipped, because the log is wrong."""

ATTENTION: Final = {"FLASH_ATTN_EXT": 3, "SOFT_MAX": 1}
"""Attention op -> the source slot of its mask."""


@dataclass(frozen=True, slots=True)
class CellLayer:
    """The cache of the keys, or of the values, of one layer."""

    root: RecordedTensor
    values: bool
    """Whether the cache has values, which ROPE does not rotate, and not keys."""
    across: bool
    """Whether the cache is transposed: element j of a stream's cells precedes element j + 1."""


@dataclass(frozen=True, slots=True)
class CellUse:
    """The cells that a run writes and reads in caches that it uses alike."""

    layers: tuple[CellLayer, ...]
    """The caches, keys first."""
    nbytes: int
    """The number of bytes of the first cache."""
    cells: int
    """The number of cells of a cache."""
    stream: int
    """The number of cells of a stream."""
    written: Cells
    """The cell that each token writes."""
    first: int
    """The cell of column 0 of the mask, in the first stream that is read."""
    step: int
    """The distance in cells between the beginnings of two neighbouring streams that are read."""
    rows: tuple[tuple[int, ...], ...]
    """For each row of the mask, the columns read, as the ends of ranges: start, stop, start, ..."""
    height: int
    """The number of rows of the mask in each stream."""
    streams: int
    """The number of streams that are read."""

    @property
    def fits(self) -> bool:
        """Whether all written and read cells are in the cache, and each token has a mask row."""
        if not self.streams:
            return False
        last = self.first + (self.streams - 1) * self.step + max(map(max, filter(None, self.rows)), default=0)
        tokens, more = divmod(len(self.written), self.streams)
        alike = not more and tokens <= self.height and len(self.rows) >= self.height * self.streams
        written = bool(((self.written >= 0) & (self.written < self.cells)).all())
        inside = self.cells <= MOST_CELLS and written and last <= self.cells
        return alike and inside and not any(len(ends) % 2 for ends in self.rows)

    def read_by(self, token: int) -> Cells:
        """Return the cells that a token reads, in order."""
        stream, place = divmod(token, len(self.written) // self.streams)
        ends = self.rows[stream * self.height + place]
        ranges = [np.arange(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True)]
        return self.first + stream * self.step + np.concatenate([np.empty(0, np.int64), *ranges])


@dataclass(frozen=True, slots=True)
class CellTurn:
    """A shift of cached keys to other positions, which a run makes with ROPE."""

    root: RecordedTensor
    by: Cells
    """The number of positions by which the key in each cell is shifted."""


class CacheGraph:
    """The graph of a run, in which the accesses to caches are searched."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self.placed = {each.tensor: each for those in (run.leafs, run.outside, run.nodes) for each in those}
        self.unfollowed = 0
        """The number of attentions that read keys from a cache that the run writes, but whose
        values are not found in such a cache.
        """

    def uses(self) -> list[CellUse]:
        """Return the uses of caches by the run: cells written, and cells read by each token."""
        written = dict(self._written())
        layers: dict[_Like, dict[RecordedTensor, CellLayer]] = {}
        for keys, values, mask in self._attention():
            if keys.view_src not in written:
                continue
            self.unfollowed += values is None or values.view_src not in written
            for view in (keys, values):
                root = None if view is None else view.view_src
                if view is None or root is None or root not in written:
                    continue
                cells, across = written[root]
                told = self.placed[root].told
                like = cells.tobytes(), mask, told.ne[1:], *_read_from(view.told, told, across=across)
                layers.setdefault(like, {}).setdefault(root, CellLayer(root, root is not keys.view_src, across))
        return [self._use(like, [*those.values()]) for like, those in layers.items()]

    def _use(self, like: "_Like", layers: list[CellLayer]) -> CellUse:
        cells, mask, ne, first, step = like
        told = self.run.held[mask]
        assert isinstance(told, MaskTold)
        _, rows, _, streams = self.placed[mask].told.ne
        return CellUse(
            layers=tuple(sorted(layers, key=lambda layer: layer.values)),
            nbytes=self.placed[layers[0].root].told.nbytes,
            cells=_cells((0, *ne)),
            stream=ne[0],
            written=np.frombuffer(cells, np.int64),
            first=first,
            step=step,
            rows=told.rows,
            height=rows,
            streams=streams,
        )

    def turns(self) -> list[CellTurn]:
        """Return the shifts of cached keys that the run makes, one for each ROPE over a cache."""
        found = list[CellTurn]()
        for node in self.run.nodes:
            root = self._cache_behind(node.src[0]) if _is(node, "ROPE") else None
            by = self._numbers(node.src[1]) if root is not None else None
            if root is not None and by is not None and len(by) == _cells(root.told.ne):
                found.append(CellTurn(root.tensor, by))
        return found

    def positions(self) -> Cells | None:
        """Return the positions by which the run rotates its tokens, or None if it rotates none."""
        ropes = (node for node in self.run.nodes if _is(node, "ROPE") and self._cache_behind(node.src[0]) is None)
        return next((by for node in ropes if (by := self._numbers(node.src[1])) is not None), None)

    def _written(self) -> Iterator[tuple[RecordedTensor, tuple[Cells, bool]]]:
        """Yield each cache that the run writes, with the cell of each token, and whether the cache
        is transposed.
        """
        known: dict[tuple[object, ...], tuple[Cells, bool] | None] = {}
        for node in self.run.nodes:
            if _is(node, "SET_ROWS") and node.view_src is not None and node.src[0] in self.placed:
                root, leaf = self.placed.get(node.view_src), self._leaf(node.src[1])
                if root is None or leaf is None or not self._lasts(root):
                    continue
                width, rows = self.placed[node.src[0]].told.ne[:2]
                like = leaf, width, rows, root.told.ne
                if like not in known:
                    known[like] = _cells_of(self._numbers(leaf), width, rows, root.told.ne)
                if (found := known[like]) is not None:
                    yield node.view_src, found

    def _attention(self) -> Iterator[tuple[PlacedTensor, PlacedTensor | None, RecordedTensor]]:
        """Yield, for each attention, the view of a cache that it reads as keys, the view that it
        reads as values, if any, and the leaf of its mask.
        """
        products = [node for node in self.run.nodes if _is(node, "MUL_MAT")]
        over = {self._behind(node.src[1], lambda at: at.told.op == "SOFT_MAX"): node for node in products}
        for node in self.run.nodes:
            at = ATTENTION.get(node.told.op)
            mask = None if at is None or len(node.src) <= at else self._leaf(node.src[at])
            if mask is None or not isinstance(self.run.held.get(mask), MaskTold):
                continue
            if node.told.op == "FLASH_ATTN_EXT":
                keys, values = self._view(node.src[1]), self._view(node.src[2])
            else:
                scores, sums = self._behind(node.src[0], lambda at: _is(at, "MUL_MAT")), over.get(node)
                keys, values = (None if each is None else self._view(each.src[0]) for each in (scores, sums))
            if keys is not None:
                yield keys, values, mask

    def _view(self, tensor: RecordedTensor | None) -> PlacedTensor | None:
        """Return the nearest view of a cache from which ops of `LAID_AS` make a tensor, or None."""
        return self._behind(tensor, lambda at: at.view_src is not None and self._lasts(self.placed.get(at.view_src)))

    def _cache_behind(self, tensor: RecordedTensor | None) -> PlacedTensor | None:
        """Return the cache from which a tensor is made by views and ops of `LAID_AS`, or None."""
        view = self._view(tensor)
        return None if view is None or view.view_src is None else self.placed[view.view_src]

    def _behind(self, tensor: RecordedTensor | None, found: Callable[[PlacedTensor], bool]) -> PlacedTensor | None:
        """Return the first tensor for which `found` is true, from `tensor` back along the first
        operands of ops of `LAID_AS`. Return None if there is none.
        """
        at = self.placed.get(tensor) if tensor is not None else None
        for _ in self.placed:  # a longer chain is a cycle, which only a wrong log has
            if at is None or found(at):
                return at
            at = self.placed.get(at.src[0]) if at.told.op in LAID_AS and at.src and at.src[0] else None
        return None

    def _leaf(self, tensor: RecordedTensor | None) -> RecordedTensor | None:
        """Return the leaf from which casts and views make a tensor, if its content was logged."""
        at = self._behind(tensor, lambda at: at.tensor in self.run.held)
        return None if at is None else at.tensor

    def _numbers(self, tensor: RecordedTensor | None) -> Cells | None:
        """Return the integers of the leaf behind a tensor, or None if the log lacks them."""
        leaf = self._leaf(tensor)
        told = self.run.held.get(leaf) if leaf is not None else None
        return np.array(told.values, np.int64) if isinstance(told, NumbersTold) else None

    @staticmethod
    def _lasts(root: PlacedTensor | None) -> bool:
        """Return whether a tensor is in a buffer outside compute memory."""
        return root is not None and root.memory is not None and not root.memory.computes


_Like = tuple[bytes, RecordedTensor, tuple[int, ...], int, int]
"""The key of a use: the cells written, the mask, the dimensions `ne[1:]` of the cache, and `first`
and `step` of `CellUse`.
"""


def _is(node: PlacedTensor, op: str) -> bool:
    """Return whether a node has this op and at least two source slots."""
    return node.told.op == op and len(node.src) > 1


def _cells_of(numbers: Cells | None, width: int, rows: int, ne: tuple[int, ...]) -> tuple[Cells, bool] | None:
    """Return the cell that each token writes, and whether the cache is written element by element.
    `width` and `rows` are the dimensions of the written rows, and `ne` those of the cache. Return
    None if the numbers do not fit these dimensions. If an element of a token goes to another cell
    than the token's first element, the token counts as written to that other cell.
    """
    if numbers is None or len(numbers) != rows:
        return None
    wide, stream = ne[:2]
    if width == wide:
        return numbers, False
    if width != 1 or not wide * stream or rows % wide:
        return None
    places = numbers.reshape(-1, wide) - np.arange(wide) * stream
    cells = places // (wide * stream) * stream + places % (wide * stream)
    apart = np.argmax(cells != cells[:, :1], axis=1)
    return cells[np.arange(len(cells)), apart], True


def _read_from(view: TensorTold, root: TensorTold, *, across: bool) -> tuple[int, int]:
    """Return the first cell of a view of a cache, and the distance of its streams in cells."""
    one, row, stream, _ = (max(step, 1) for step in root.nb)
    if not across:
        return view.view_offs // row, view.nb[3] // row
    cells = root.ne[1]
    return view.view_offs // stream * cells + view.view_offs % stream // one, view.nb[3] // stream * cells


def _cells(ne: tuple[int, ...]) -> int:
    return ne[1] * ne[2] * ne[3]


__all__ = ["CacheGraph", "CellLayer", "CellTurn", "CellUse", "Cells"]
