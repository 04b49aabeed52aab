"""Maps Triton's memory descriptors to the bytes of an allocation. A `SharedView` has these bytes.

    whole = SharedView.of("!ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>", aliases, home=4)
    whole.indexed(1).sliced([0, 16], [128, 16]).runs     # offset, shape, strides in bytes

A layout of shared memory is a bijection between the elements of an allocation and its places. Two
views of an allocation therefore share bytes if and only if they share elements. For this reason a
view is recorded as if its elements were in row-major order. This is exact within an allocation, and
also between allocations if the views are contiguous. If a slice of columns overlaps another
allocation, its bytes are an approximation: its rows are assumed to be in row-major order. Padding
(`#ttg.padded_shared`) counts in the size of an allocation and in the offset of a part along the
first dimension, but not between the rows of a slice. If a tensor is split over the blocks of a
cluster (`CGALayout`), only this block's part is recorded. Tensor memory has columns of 128 rows of
4 bytes; a block of all 128 rows is a range of columns.

What this module does not see: banks and swizzling, partitioned layouts, blocks of 64 rows.
"""

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from allocsim.model.layout import LIMIT

TYPE: Final = re.compile(r"<((?:\d+x)+)(\w+(?:<[^<>]*>)?)(?:, (#[\w.]+(?:<\{.*?\}>)?))?(?:, (#[\w.]+))?")
BITS: Final = re.compile(r"[a-z]+(\d{1,3})")
PADDING: Final = re.compile(r"(\d{1,9}):\+(\d{1,9})")
BASIS: Final = re.compile(r"\[([-\d, ]+)")
TENSOR_MEMORY: Final = "#ttng.tensor_memory"
COLUMN: Final = 512
"""The size in bytes of a column of tensor memory."""


@dataclass(frozen=True, slots=True)
class SharedView:
    """A part of an allocation, as elements in row-major order."""

    home: int
    """The number of the allocation."""
    offset: int
    """The offset of the first element in the allocation, in bytes."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in elements."""
    bits: int
    """The width of an element in bits."""
    kind: str
    """The type of an element, such as `f16` or `i64`."""
    padding: tuple[tuple[int, int], ...] = ()
    """(every, by): after each `every` elements of the allocation, `by` elements are unused."""
    in_tensor_memory: bool = False

    @classmethod
    def of(cls, text: str, aliases: dict[str, str], home: int) -> "SharedView | None":
        """Return the view of a whole allocation by its type, or None for an unknown type."""
        layout = _layout(text)
        whole = _whole(text, aliases.get(layout, layout))
        return whole and (replace(whole, home=home) if home else whole)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are adjacent in row-major order."""
        return _contiguous(self.shape, self.strides)

    @property
    def is_barrier(self) -> bool:
        """Whether the view has the type of an mbarrier."""
        return self.kind == "i64" and math.prod(self.shape) == 1

    @property
    def nbytes(self) -> int:
        """The size of the view in bytes, if the view is contiguous."""
        count = math.prod(self.shape)
        return (count + self.padded(count - 1)) * self.bits // 8 if count else 0

    @property
    def columns(self) -> bool:
        """Whether the view has all 128 rows of tensor memory."""
        return self.shape[-2:-1] == (128,)

    def indexed(self, index: int) -> "SharedView | None":
        """Return the part at an index of the first dimension. Return None if the index is out of
        range, or the view is not contiguous or has one dimension.
        """
        return _indexed(self, index)

    def sliced(self, starts: list[int], shape: tuple[int, ...]) -> "SharedView | None":
        """Return a part by its starts and shape in elements, or None if it is not in the view."""
        if not len(starts) == len(shape) == len(self.shape):
            return None
        if any(low < 0 or low + size > most for low, size, most in zip(starts, shape, self.shape, strict=True)):
            return None
        first = sum(low * step for low, step in zip(starts, self.strides, strict=True))
        return replace(self, offset=self.offset + first * self.bits // 8, shape=shape, padding=())

    def permuted(self, order: list[int]) -> "SharedView | None":
        """Return the view with permuted dimensions, or None if `order` is not a permutation."""
        if sorted(order) != list(range(len(self.shape))):
            return None
        return replace(self, shape=tuple(self.shape[i] for i in order), strides=tuple(self.strides[i] for i in order))

    def told(self, other: "SharedView | None") -> "SharedView | None":
        """Return a view of the same bytes with the shape and type of `other`. If this view is not
        contiguous or `other` is None or larger, return this view.
        """
        if other is None or not self.contiguous or other.nbytes > self.nbytes:
            return self
        return replace(other, home=self.home, offset=self.offset, in_tensor_memory=self.in_tensor_memory)

    def padded(self, last: int) -> int:
        """Return the number of elements of padding before the element number `last`."""
        return sum((last // every) * by for every, by in self.padding if every)

    @property
    def layout(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """The view's offset, shape and strides in bytes; a contiguous view has one dimension."""
        if self.in_tensor_memory and self.columns and self.contiguous:
            return self.offset, (max(self.nbytes, 1),), (1,)
        if self.contiguous or self.bits % 8:
            return self.offset, (self.nbytes,), (1,)
        width = self.bits // 8
        shape, strides = [width], [1]
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if stride * width == strides[0] * shape[0] or size == 1:
                shape[0] *= size
            else:
                shape[:0], strides[:0] = [size], [stride * width]
        return self.offset, tuple(shape), tuple(strides)


@lru_cache(maxsize=1024)  # walks look up the same parts many times
def _layout(text: str) -> str:
    found = TYPE.search(text)
    return (found[3] or "") if found else ""


@lru_cache(maxsize=1024)
def _whole(text: str, layout: str) -> SharedView | None:
    found = TYPE.search(text)
    width = BITS.match(found[2]) if found else None
    if found is None or width is None:
        return None
    shape = _in_one_block([int(size) for size in found[1].split("x") if size], layout)
    if math.prod(shape) * int(width[1]) > LIMIT:
        return None
    padding = tuple((int(every), int(by)) for every, by in PADDING.findall(layout)) if "padded" in layout else ()
    return SharedView(
        home=0, offset=0, shape=shape, strides=_dense(shape), bits=int(width[1]), kind=found[2],
        padding=padding, in_tensor_memory=TENSOR_MEMORY in text,
    )  # fmt: skip


def _in_one_block(shape: list[int], layout: str) -> tuple[int, ...]:
    """Return the shape of one block's part: each basis halves the dimensions where it is not 0."""
    for basis in BASIS.findall(layout.partition("CGALayout = ")[2].partition("]]")[0]):
        steps = [int(step) for step in basis.split(",")]
        for axis, step in enumerate(reversed(steps[-len(shape) :]), 1):
            shape[-axis] = shape[-axis] // 2 if step else shape[-axis]
    return tuple(shape)


@lru_cache(maxsize=1024)
def _indexed(view: SharedView, index: int) -> SharedView | None:
    if not view.contiguous or len(view.shape) < 2 or not 0 <= index < view.shape[0]:
        return None
    first = index * math.prod(view.shape[1:])
    offset = view.offset + (first + view.padded(first)) * view.bits // 8
    return replace(view, offset=offset, shape=view.shape[1:], strides=view.strides[1:])


@lru_cache(maxsize=1024)
def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return all(size == 1 or step == dense for size, step, dense in zip(shape, strides, _dense(shape), strict=True))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


__all__ = ["COLUMN", "SharedView"]
