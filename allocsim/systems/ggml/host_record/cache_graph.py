"""The accesses of a llama.cpp graph to the cells of its cache: which it writes, which each token
reads, and which it shifts to another position.

    for use in CacheGraph(run).uses():
        use.root, use.written, use.read_by(token)

Contract
--------
* A cache is a tensor outside compute memory into which SET_ROWS writes rows by the whole numbers of
  a leaf, and which attention (FLASH_ATTN_EXT, or SOFT_MAX between two MUL_MAT) reads under a mask,
  as keys or as values. A cell is a row of it, numbered through all its streams; of values that lie
  transposed, which SET_ROWS writes element by element, it is a column.
* Layers whose keys and values are written into the same cells and read under the same mask are one
  use, which names them. Values of an attention that are in no such use are counted (`unfollowed`).
* Column c of a mask belongs to row c of the view that attention reads. A token reads the rows of
  the finite columns.
* ROPE over a cache with one number for each cell shifts each cell by its number.

What this module does not see: the sequence of a token, and the faults (`cache_cells`).

O(nodes + finite columns) a run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.systems.ggml.host_record.record_events import MaskTold, NumbersTold, TensorTold
from allocsim.systems.ggml.host_record.record_log import PlacedTensor, RecordedRun, RecordedTensor

Cells = np.ndarray
"""Numbers of cells, int64 [n]."""

LAID_AS: Final = frozenset(
    {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "CONT", "CPY", "CAST", "SCALE", "ADD", "SOFT_CAP"}
)
"""Ops that hand on their first operand, as far as it matters here."""

MOST_CELLS: Final = 1 << 26
"""More are no cache, but a log that lies."""

ATTENTION: Final = {"FLASH_ATTN_EXT": 3, "SOFT_MAX": 1}
"""Op -> which operand is its mask."""


@dataclass(frozen=True, slots=True)
class CellLayer:
    """The keys or the values of one layer."""

    root: RecordedTensor
    values: bool
    """Whether these are values, which no run turns."""
    across: bool
    """Whether they lie transposed: element j of all cells of a stream, then element j + 1."""


@dataclass(frozen=True, slots=True)
class CellUse:
    """What a run does with the cells of one cache, or of several that are used alike."""

    layers: tuple[CellLayer, ...]
    """Keys first."""
    nbytes: int
    """Bytes of the first of them."""
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
    """A run that turns cells to other positions."""

    root: RecordedTensor
    by: Cells
    """By cell."""


class CacheGraph:
    """The tensors of a run, by what they are placed as."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self.placed = {each.tensor: each for those in (run.leafs, run.outside, run.nodes) for each in those}
        self.unfollowed = 0
        """Attentions whose values are not found in a cache that the run writes, of those whose keys
        are.
        """

    def uses(self) -> list[CellUse]:
        """Return what the run does with each cache."""
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
        """Return the caches whose cells the run turns."""
        found = list[CellTurn]()
        for node in self.run.nodes:
            root = self._cache_behind(node.src[0]) if _is(node, "ROPE") else None
            by = self._numbers(node.src[1]) if root is not None else None
            if root is not None and by is not None and len(by) == _cells(root.told.ne):
                found.append(CellTurn(root.tensor, by))
        return found

    def positions(self) -> Cells | None:
        """Return the positions by which the run turns its tokens, None where it turns none."""
        ropes = (node for node in self.run.nodes if _is(node, "ROPE") and self._cache_behind(node.src[0]) is None)
        return next((by for node in ropes if (by := self._numbers(node.src[1])) is not None), None)

    def _written(self) -> Iterator[tuple[RecordedTensor, tuple[Cells, bool]]]:
        """Yield caches, the cells written by token, and whether they lie transposed."""
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
        """Yield the views of caches that attention takes as keys and as values, and the leaf of its
        mask.
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
        """Return the last view of a cache behind a tensor."""
        return self._behind(tensor, lambda at: at.view_src is not None and self._lasts(self.placed.get(at.view_src)))

    def _cache_behind(self, tensor: RecordedTensor | None) -> PlacedTensor | None:
        """Return the cache that a tensor is a view of."""
        view = self._view(tensor)
        return None if view is None or view.view_src is None else self.placed[view.view_src]

    def _behind(self, tensor: RecordedTensor | None, found: Callable[[PlacedTensor], bool]) -> PlacedTensor | None:
        """Return the first that is so of a tensor and those that it hands on."""
        at = self.placed.get(tensor) if tensor is not None else None
        for _ in self.placed:  # more follow each other in the rings of a log that lies alone
            if at is None or found(at):
                return at
            at = self.placed.get(at.src[0]) if at.told.op in LAID_AS and at.src and at.src[0] else None
        return None

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


_Like = tuple[bytes, RecordedTensor, tuple[int, ...], int, int]
"""Cells written, mask, cells of the cache by dimension, and from where on it is read, as `CellUse`.
"""


def _is(node: PlacedTensor, op: str) -> bool:
    """Return whether a node is an op of two operands."""
    return node.told.op == op and len(node.src) > 1


def _cells_of(numbers: Cells | None, width: int, rows: int, ne: tuple[int, ...]) -> tuple[Cells, bool] | None:
    """Return the cells that rows of a width are written to, and whether element by element; None
    where the numbers are not those of rows of the cache.

    A token of which an element goes to another cell than its first one is at that other cell.
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
    """Return the first cell of a view of a cache, and the cells from one stream to the next."""
    one, row, stream, _ = (max(step, 1) for step in root.nb)
    if not across:
        return view.view_offs // row, view.nb[3] // row
    cells = root.ne[1]
    return view.view_offs // stream * cells + view.view_offs % stream // one, view.nb[3] // stream * cells


def _cells(ne: tuple[int, ...]) -> int:
    return ne[1] * ne[2] * ne[3]


__all__ = ["CacheGraph", "CellLayer", "CellTurn", "CellUse", "Cells"]
