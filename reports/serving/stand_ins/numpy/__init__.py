"""The part of numpy's interface that the verdict and the explorer ask of columns, in plain Python.

In a browser's Python there is no numpy; with this module in its place the code of the verdict runs
there unchanged. Arrays are a flat list, a shape and a dtype. What is taken out of an array is a
copy, also where numpy gives a view; scalars are Python's numbers. Only `uint64` wraps round: the
model's numbers stay within 2^62, so that no other kind leaves its bits.

Every operation costs O(entries) in Python's own time: small documents are what it is for. A law
(`tests/unit/reports`) holds verdicts made with it against those made with numpy.

What this module does not see: what the columns mean, and the rest of numpy.
"""

import math
import operator
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import accumulate, chain, compress
from itertools import repeat as again
from typing import Any, ClassVar

_BOUNDS = {
    "i": {n: (-(1 << (8 * n - 1)), (1 << (8 * n - 1)) - 1) for n in (1, 2, 4, 8)},
    "u": {n: (0, (1 << 8 * n) - 1) for n in (1, 2, 4, 8)},
}
_CODES = {
    ("i", 1): "b",
    ("i", 2): "h",
    ("i", 4): "i",
    ("i", 8): "q",
    ("u", 1): "B",
    ("u", 2): "H",
    ("u", 4): "I",
    ("u", 8): "Q",
    ("b", 1): "?",
    ("f", 8): "d",
    ("f", 4): "f",
}


# dtypes -------------------------------------------------------------------------------------------


class integer(int):
    """Any whole number."""


class generic:
    """Any scalar."""


def _scalar(name: str, base: type, kind: str, width: int) -> Any:
    return type(name, (base,), {"__new__": lambda cls, x=0: base(x), "kind": kind, "width": width})


int8, int16, int32, int64 = (_scalar(f"int{8 * n}", int, "i", n) for n in (1, 2, 4, 8))
uint8, uint16, uint32, uint64 = (_scalar(f"uint{8 * n}", int, "u", n) for n in (1, 2, 4, 8))
float32, float64 = (_scalar(f"float{8 * n}", float, "f", n) for n in (4, 8))
bool_ = _scalar("bool_", int, "b", 1)
bool_.__new__ = lambda cls, x=False: bool(x)


class dtype:
    """Kind and width of the entries of an array."""

    kind: Any
    itemsize: Any

    _WORDS: ClassVar[dict[Any, Any]] = {
        "<i8": ("i", 8),
        "<i4": ("i", 4),
        "<f8": ("f", 8),
        "int64": ("i", 8),
        "int32": ("i", 4),
        "uint8": ("u", 1),
        "float64": ("f", 8),
        "bool": ("b", 1),
        "i8": ("i", 8),
        "<u8": ("u", 8),
    }

    def __init__(self, what: Any) -> None:
        if isinstance(what, dtype):
            self.kind, self.itemsize = what.kind, what.itemsize
        elif isinstance(what, str):
            self.kind, self.itemsize = self._WORDS[what]
        elif what is bool:
            self.kind, self.itemsize = "b", 1
        elif what is int:
            self.kind, self.itemsize = "i", 8
        elif what is float:
            self.kind, self.itemsize = "f", 8
        elif what is object:
            self.kind, self.itemsize = "O", 8
        else:
            self.kind, self.itemsize = what.kind, what.width

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __eq__(self, other: object) -> bool:
        other = dtype(other)
        return (self.kind, self.itemsize) == (other.kind, other.itemsize)

    def __hash__(self) -> int:
        return hash((self.kind, self.itemsize))

    @property
    def name(self) -> str:
        return (
            "bool"
            if self.kind == "b"
            else f"{ {'i': 'int', 'u': 'uint', 'f': 'float', 'O': 'object'}[self.kind] }{8 * self.itemsize}"
        )

    @property
    def str(self) -> Any:
        return f"{'|' if self.itemsize == 1 else '<'}{self.kind}{self.itemsize}"

    def __repr__(self) -> Any:
        return f"dtype('{self.name}')"


BOOL, INT, FLOAT, OBJECT, UINT64 = dtype(bool), dtype(int), dtype(float), dtype(object), dtype(uint64)
_CAST: dict[Any, Callable[[Any], Any]] = {"b": bool, "i": int, "u": int, "f": float}


def _wider(a: dtype, b: dtype) -> dtype:
    if a == b:
        return a
    kinds = {a.kind, b.kind}
    if "O" in kinds:
        return OBJECT
    if "f" in kinds:
        return FLOAT
    if kinds == {"i", "u"}:
        unsigned = a if a.kind == "u" else b
        return FLOAT if unsigned.itemsize == 8 else INT
    if "b" in kinds:
        return a if b.kind == "b" else b
    return a if a.itemsize >= b.itemsize else b


def _kind_of(values: list[Any]) -> dtype:
    if not values:
        return FLOAT
    kinds = set(map(type, values))
    if kinds == {bool}:
        return BOOL
    if kinds <= {bool, int}:
        return UINT64 if max(values) > _BOUNDS["i"][8][1] else INT
    if kinds <= {bool, int, float}:
        return FLOAT
    return OBJECT


# arrays -------------------------------------------------------------------------------------------


class _Flags:
    writeable = True
    c_contiguous = True


class ndarray:
    """Entries in row-major order."""

    __slots__ = ("_flat", "dtype", "flags", "shape")
    __hash__ = None  # type: ignore[assignment]
    base = None

    def __init__(self, flat: list[Any], shape: tuple[int, ...], kind: dtype) -> None:
        self._flat, self.shape, self.dtype, self.flags = flat, shape, kind, _Flags()

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    # what it is

    size = property(lambda self: len(self._flat))
    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: len(self._flat) * self.dtype.itemsize)
    T = property(lambda self: self.transpose())
    flat = property(lambda self: iter(self._flat))
    data = property(lambda self: self.tobytes())

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._flat) if len(self.shape) == 1 else (self[k] for k in range(self.shape[0]))

    def __bool__(self) -> bool:
        if len(self._flat) != 1:
            raise ValueError("the truth of an array with several entries")
        return bool(self._flat[0])

    def __int__(self) -> int:
        return int(self.item())

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.item())

    def __contains__(self, thing: Any) -> bool:
        return thing in self._flat

    def __repr__(self) -> str:
        return f"array({self.tolist()}, {self.dtype.name})"

    def item(self, *at: int) -> Any:
        if at:
            return self[at]
        (one,) = self._flat
        return one

    def tolist(self) -> Any:
        return _nested(self._flat, self.shape)

    def tobytes(self) -> bytes:
        return struct.pack(f"<{len(self._flat)}{_CODES[self.dtype.kind, self.dtype.itemsize]}", *self._flat)

    # the same entries

    def copy(self, order: str = "C") -> "ndarray":
        return ndarray(self._flat.copy(), self.shape, self.dtype)

    def view(self, kind: Any = None) -> "ndarray":
        made = ndarray(self._flat, self.shape, self.dtype)
        if kind is None or dtype(kind) == self.dtype:
            return made
        return frombuffer(self.tobytes(), dtype=kind).reshape(self.shape)

    def astype(self, kind: Any, copy: bool = True) -> "ndarray":
        kind = dtype(kind)
        if kind == self.dtype:
            return self.copy() if copy else self
        return ndarray(_cast(self._flat, self.dtype, kind), self.shape, kind)

    def reshape(self, *shape: Any) -> "ndarray":
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in wanted:
            rest = math.prod(n for n in wanted if n != -1)
            wanted = tuple(len(self._flat) // rest if n == -1 else n for n in wanted)
        if math.prod(wanted) != len(self._flat):
            raise ValueError(f"{self.shape} has no shape {wanted}")
        return ndarray(self._flat.copy(), wanted, self.dtype)

    def ravel(self) -> "ndarray":
        return self.reshape(-1) if self._flat else ndarray([], (0,), self.dtype)

    flatten = ravel

    def squeeze(self) -> "ndarray":
        return self.reshape(tuple(n for n in self.shape if n != 1))

    def transpose(self) -> "ndarray":
        if len(self.shape) < 2:
            return self
        if len(self.shape) > 2:
            raise NotImplementedError("more than two dimensions")
        rows, columns = self.shape
        return ndarray([v for c in range(columns) for v in self._flat[c::columns]], (columns, rows), self.dtype)

    def setflags(self, write: bool = True) -> None:
        self.flags.writeable = write

    # entries by index

    def __getitem__(self, key: Any) -> Any:
        if len(self.shape) == 1:
            flat = self._flat
            if isinstance(key, int) and not isinstance(key, bool):
                return flat[key]
            if isinstance(key, slice):
                part = flat[_plain(key)]
                return ndarray(part, (len(part),), self.dtype)
            if isinstance(key, list):
                key = array(key, dtype=None if key else int)
            if isinstance(key, ndarray):
                if key.dtype.kind == "b":
                    if key.shape != self.shape:
                        raise IndexError(f"a mask of shape {key.shape} for {self.shape}")
                    part = list(compress(flat, key._flat))
                    return ndarray(part, (len(part),), self.dtype)
                part = [flat[k] for k in key._flat]
                return ndarray(part, key.shape, self.dtype) if key.shape else part[0]
        if key is Ellipsis:
            return self.view()
        places, shape = _places(self.shape, key)
        part = [self._flat[k] for k in places]
        return ndarray(part, shape, self.dtype) if shape is not None else part[0]

    def __setitem__(self, key: Any, what: Any) -> None:
        if not self.flags.writeable:
            raise ValueError("assignment destination is read-only")
        flat = self._flat
        if len(self.shape) == 1 and isinstance(key, int) and not isinstance(key, bool):
            flat[key] = _one(what, self.dtype)
            return
        if len(self.shape) == 1 and isinstance(key, slice):
            places: Any = range(*_plain(key).indices(len(flat)))
            shape: Any = (len(places),)
        elif len(self.shape) == 1 and isinstance(key, ndarray) and key.dtype.kind != "b":
            places, shape = key._flat, key.shape
        else:
            places, shape = _places(self.shape, key)
        if isinstance(what, (ndarray, list, tuple, range)):
            what = asarray(what)
            entries: Any = _cast(broadcast_to(what, shape or ())._flat, what.dtype, self.dtype)
        else:
            entries = again(_one(what, self.dtype))
        for place, entry in zip(places, entries, strict=False):
            flat[place] = entry

    def take(self, places: Any, axis: int | None = None) -> Any:
        if axis is None:
            return self.ravel()[asarray(places)]
        return self[(slice(None),) * axis + (asarray(places),)]

    def repeat(self, counts: Any) -> "ndarray":
        return repeat(self, counts)

    def fill(self, what: Any) -> None:
        self[...] = what

    # in order

    def argsort(self, axis: int = -1, kind: str | None = None, stable: bool | None = None) -> "ndarray":
        if len(self.shape) == 2:
            rows = (sorted(range(len(row)), key=row.__getitem__) for row in self.tolist())
            return ndarray(list(chain.from_iterable(rows)), self.shape, INT)
        order = sorted(range(len(self._flat)), key=self._flat.__getitem__)
        return ndarray(order, (len(order),), INT)

    def sort(self, axis: int = -1, kind: str | None = None) -> None:
        if len(self.shape) == 2:
            self._flat[:] = chain.from_iterable(sorted(row) for row in self.tolist())
        else:
            self._flat.sort()

    def searchsorted(self, what: Any, side: str = "left", sorter: Any = None) -> Any:
        seek = bisect_left if side == "left" else bisect_right
        flat = self._flat if sorter is None else [self._flat[k] for k in sorter]
        if not isinstance(what, (ndarray, list, tuple)):
            return seek(flat, what)
        what = asarray(what)
        return ndarray([seek(flat, v) for v in what._flat], what.shape, INT)

    def nonzero(self) -> Any:
        return nonzero(self)

    # by axis

    def sum(self, axis: Any = None, dtype: Any = None, **more: Any) -> Any:
        return add.reduce(self if self.dtype.kind != "b" else self.astype(int), axis, **more)

    def prod(self, axis: Any = None, dtype: Any = None, **more: Any) -> Any:
        return multiply.reduce(self if self.dtype.kind != "b" else self.astype(int), axis, **more)

    def max(self, axis: Any = None, **more: Any) -> Any:
        return maximum.reduce(self, axis, **more)

    def min(self, axis: Any = None, **more: Any) -> Any:
        return minimum.reduce(self, axis, **more)

    def any(self, axis: Any = None, **more: Any) -> Any:
        return any(self._flat) if axis is None else logical_or.reduce(self, axis)

    def all(self, axis: Any = None, **more: Any) -> Any:
        return all(self._flat) if axis is None else logical_and.reduce(self, axis)

    def argmax(self, axis: int | None = None) -> Any:
        return _along(self, axis, lambda row: row.index(max(row)), INT)

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> "ndarray":
        return cumsum(self, axis)

    def clip(self, low: Any = None, high: Any = None) -> "ndarray":
        return clip(self, low, high)

    def bit_count(self) -> "ndarray":
        return ndarray([v.bit_count() for v in self._flat], self.shape, dtype(uint8))

    # arithmetic

    def __neg__(self) -> "ndarray":
        return ndarray(list(map(operator.neg, self._flat)), self.shape, self.dtype)

    def __abs__(self) -> "ndarray":
        return ndarray(list(map(abs, self._flat)), self.shape, self.dtype)

    def __invert__(self) -> "ndarray":
        turn = operator.not_ if self.dtype.kind == "b" else operator.invert
        return _wrapped(ndarray(list(map(turn, self._flat)), self.shape, self.dtype))

    def __matmul__(self, other: Any) -> Any:
        return (self * other).sum() if len(self.shape) == 1 else (self * other).sum(axis=-1)


def _nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat.copy()
    step = math.prod(shape[1:])
    return [_nested(flat[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0])]


def _cast(flat: Any, kind: dtype, wanted: dtype) -> Any:
    if kind == wanted or wanted.kind == "O" or (kind.kind in "biu" and wanted.kind == "i" and (kind.kind != "b")):
        return flat.copy()
    if wanted.kind == "u" and kind.kind in "iu":
        most = _BOUNDS["u"][wanted.itemsize][1]
        return [v & most for v in flat]
    return list(map(_CAST[wanted.kind], flat))


def _one(what: Any, kind: dtype) -> Any:
    if isinstance(what, ndarray):
        what = what.item()
    if kind.kind == "O":
        return what
    if kind.kind in "iu":
        what = int(what)
        low, high = _BOUNDS[kind.kind][kind.itemsize]
        if not low <= what <= high:
            raise OverflowError(f"{what} has no place in {kind.name}")
        return what
    return _CAST[kind.kind](what)


def _plain(key: slice) -> slice:
    return slice(*(None if end is None else int(end) for end in (key.start, key.stop, key.step)))


def _places(shape: tuple[int, ...], key: Any) -> tuple[list[int], Any]:
    """Return the places in the flat list that an index names, and their shape; None: one entry."""
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [asarray(k) if isinstance(k, list) else k for k in keys]
    taken = sum(
        k.ndim if isinstance(k, ndarray) and k.dtype.kind == "b" else k is not None and k is not Ellipsis for k in keys
    )
    if not any(k is Ellipsis for k in keys):
        keys.append(Ellipsis)
    hole = next(place for place, k in enumerate(keys) if k is Ellipsis)
    keys[hole : hole + 1] = [slice(None)] * (len(shape) - taken)
    flat_keys: list[Any] = []
    for k in keys:
        flat_keys.extend(nonzero(k) if isinstance(k, ndarray) and k.dtype.kind == "b" else [k])
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    blocks: list[tuple[tuple[int, ...], list[int]]] = []
    advanced: list[tuple[ndarray, int, int]] = []
    first, apart, axis = -1, False, 0
    for k in flat_keys:
        if k is None:
            blocks.append(((1,), [0]))
            continue
        stride, count = strides[axis], shape[axis]
        axis += 1
        if isinstance(k, slice):
            chosen = range(count)[_plain(k)]
            blocks.append(((len(chosen),), [v * stride for v in chosen]))
            continue
        if isinstance(k, ndarray):
            if first >= 0 and len(blocks) != first + 1:
                apart = True
            if first < 0:
                first = len(blocks)
                blocks.append(((), []))
            advanced.append((k, stride, count))
            continue
        index = operator.index(k)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of bounds for {count} entries")
        blocks.append(((), [index % count * stride if count else 0]))
    if advanced:
        whole = broadcast_shapes(*(k.shape for k, _, _ in advanced))
        offsets = [0] * math.prod(whole)
        for k, stride, count in advanced:
            for place, v in enumerate(broadcast_to(k, whole)._flat):
                if not -count <= v < count:
                    raise IndexError(f"index {v} is out of bounds for {count} entries")
                offsets[place] += v % count * stride
        blocks[first] = (whole, offsets)
        if apart:
            blocks.insert(0, blocks.pop(first))
    found = [0]
    for _, offsets in blocks:
        found = [a + b for a in found for b in offsets] if len(offsets) != 1 else [a + offsets[0] for a in found]
    shapes = tuple(n for part, _ in blocks for n in part)
    return found, None if not shapes and not advanced else shapes


# arithmetic ---------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of all of them together."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    made = []
    for sizes in zip(*padded, strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {shapes} do not fit together")
        made.append(wide.pop() if wide else 1)
    return tuple(made)


def broadcast_to(a: Any, shape: Any) -> ndarray:
    """Return the entries as an array of a larger shape."""
    a, shape = asarray(a), (shape,) if isinstance(shape, int) else tuple(shape)
    if a.shape == shape:
        return a
    if broadcast_shapes(a.shape, shape) != shape:
        raise ValueError(f"shape {a.shape} does not fill {shape}")
    padded = (1,) * (len(shape) - len(a.shape)) + a.shape
    flat = a._flat
    if len(flat) == 1 or 0 in shape:
        return ndarray(flat * math.prod(shape), shape, a.dtype)
    step = 1
    for have, want in zip(reversed(padded), reversed(shape), strict=True):
        if have != want:
            flat = [v for k in range(0, len(flat), step) for v in flat[k : k + step] * want]
        step *= want
    return ndarray(flat, shape, a.dtype)


def _wrapped(a: ndarray) -> ndarray:
    if a.dtype == UINT64:
        most = _BOUNDS["u"][8][1]
        a._flat = [v & most for v in a._flat]
    return a


def _pair(work: Callable[[Any, Any], Any], x: Any, y: Any, kind: dtype | None, weak: bool = True) -> Any:
    """Apply to each pair of entries; `kind` is that of the result, None the wider of both."""
    one, two = isinstance(x, (ndarray, list, tuple)), isinstance(y, (ndarray, list, tuple))
    if one and two:
        x, y = asarray(x), asarray(y)
        made = kind or _wider(x.dtype, y.dtype)
        if x.shape != y.shape:
            shape = broadcast_shapes(x.shape, y.shape)
            x, y = broadcast_to(x, shape), broadcast_to(y, shape)
        return _wrapped(ndarray(list(map(work, x._flat, y._flat)), x.shape, made))
    if one:
        x = asarray(x)
        return _wrapped(ndarray(list(map(work, x._flat, again(y))), x.shape, kind or _weak(x.dtype, y)))
    if two:
        y = asarray(y)
        return _wrapped(ndarray(list(map(work, again(x), y._flat)), y.shape, kind or _weak(y.dtype, x)))
    return work(x, y)


def _weak(kind: dtype, number: Any) -> dtype:
    if isinstance(number, bool) or (isinstance(number, int) and kind.kind != "b"):
        return kind
    return _wider(kind, INT if isinstance(number, int) else FLOAT)


def _safe(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def one(x: Any, y: Any) -> Any:
        return work(x, y) if y else 0

    return one


class ufunc:
    """A function of two arrays, entry by entry."""

    def __init__(
        self, work: Callable[[Any, Any], Any], start: Any = None, kind: dtype | None = None, over: Any = None
    ) -> None:
        self._work, self._start, self._kind, self._over = work, start, kind, over

    def __call__(self, x: Any, y: Any) -> Any:
        return _pair(self._work, x, y, self._kind)

    def at(self, a: ndarray, key: Any, what: Any = None) -> None:
        places, shape = (
            (key._flat, key.shape)
            if isinstance(key, ndarray) and key.dtype.kind != "b" and a.ndim == 1
            else _places(a.shape, key)
        )
        entries = broadcast_to(asarray(what), shape or ())._flat if isinstance(what, (ndarray, list)) else again(what)
        flat, work = a._flat, self._work
        if work is _larger:  # most of what cures ask
            for place, entry in zip(places, entries, strict=False):
                flat[place] = max(flat[place], entry)
            return
        for place, entry in zip(places, entries, strict=False):
            flat[place] = work(flat[place], entry)

    def reduce(self, a: Any, axis: Any = 0, initial: Any = None, keepdims: bool = False) -> Any:
        a = asarray(a)
        start = self._start if initial is None else initial

        def fold(row: Any) -> Any:
            if self._over and initial is None and row:
                return self._over(row)
            return reduce(self._work, row) if start is None else reduce(self._work, row, start)

        kind = self._kind or (a.dtype if initial is None or not isinstance(initial, float) else FLOAT)
        return _along(a, axis, fold, kind, keepdims)

    def accumulate(self, a: Any, axis: int = 0) -> ndarray:
        a = asarray(a)
        if a.ndim == 1:
            return _wrapped(ndarray(list(accumulate(a._flat, self._work)), a.shape, a.dtype))
        if axis in (1, -1):
            return stack([self.accumulate(row) for row in a])
        return self.accumulate(a.T, 1).T

    def reduceat(self, a: Any, starts: Any) -> ndarray:
        flat, starts = asarray(a)._flat, asarray(starts)._flat
        ends = [*starts[1:], len(flat)]
        return ndarray(
            [reduce(self._work, flat[i:j]) if j > i else flat[i] for i, j in zip(starts, ends, strict=True)],
            (len(starts),),
            self._kind or asarray(a).dtype,
        )


def _along(a: ndarray, axis: Any, fold: Callable[[Any], Any], kind: dtype, keepdims: bool = False) -> Any:
    if axis is None or (a.ndim == 1 and axis in (0, -1)):
        found = fold(a._flat)
        return found if not keepdims else ndarray([found], (1,) * a.ndim, kind)
    axis %= a.ndim
    inner, count = math.prod(a.shape[axis + 1 :]), a.shape[axis]
    outer = math.prod(a.shape[:axis])
    flat = [
        fold(a._flat[o * count * inner + k : (o + 1) * count * inner : inner] if count else [])
        for o in range(outer)
        for k in range(inner)
    ]
    shape = (*a.shape[:axis], *((1,) if keepdims else ()), *a.shape[axis + 1 :])
    return ndarray(flat, shape, kind)


def _smaller(x: Any, y: Any) -> Any:
    return min(y, x)


def _larger(x: Any, y: Any) -> Any:
    return max(y, x)


def _or(x: Any, y: Any) -> bool:
    return bool(x or y)


def _and(x: Any, y: Any) -> bool:
    return bool(x and y)


add = ufunc(operator.add, 0, over=sum)
subtract = ufunc(operator.sub)
multiply = ufunc(operator.mul, 1, over=math.prod)
floor_divide, remainder = ufunc(_safe(operator.floordiv)), ufunc(_safe(operator.mod))
divide = ufunc(operator.truediv, kind=FLOAT)
minimum, maximum = ufunc(_smaller, over=min), ufunc(_larger, over=max)
logical_or, logical_and = ufunc(_or, False, BOOL), ufunc(_and, True, BOOL)
bitwise_or, bitwise_and, bitwise_xor = ufunc(operator.or_, 0), ufunc(operator.and_), ufunc(operator.xor, 0)
left_shift, right_shift = ufunc(operator.lshift), ufunc(operator.rshift)
power = ufunc(operator.pow)

_METHODS = {
    "add": add, "sub": subtract, "mul": multiply, "floordiv": floor_divide, "mod": remainder, "truediv": divide,
    "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor, "lshift": left_shift, "rshift": right_shift, "pow": power,
}  # fmt: skip


def divmod(x: Any, y: Any) -> Any:
    return floor_divide(x, y), remainder(x, y)


def _given(function: Any) -> None:
    def forward(name: str, work: Any) -> None:
        def there(self: Any, other: Any) -> Any:
            return work(self, other)

        def back(self: Any, other: Any) -> Any:
            return work(other, self)

        def in_place(self: Any, other: Any) -> Any:
            made = work(self, other)
            self._flat[:] = _cast(made._flat, made.dtype, self.dtype)
            return self

        setattr(ndarray, f"__{name}__", there)
        setattr(ndarray, f"__r{name}__", back)
        setattr(ndarray, f"__i{name}__", in_place)

    for name, work in function.items():
        forward(name, work)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        compare = ufunc(getattr(operator, name), kind=BOOL)
        setattr(ndarray, f"__{name}__", lambda self, other, compare=compare: compare(self, other))


_given(_METHODS)


# making -------------------------------------------------------------------------------------------


def array(what: Any, dtype: Any = None, copy: bool | None = True, ndmin: int = 0) -> ndarray:
    """Return an array of what nested sequences hold."""
    if isinstance(what, ndarray):
        return what.copy() if dtype is None else what.astype(dtype)
    if isinstance(what, (bool, int, float, str)):
        flat: list[Any] = [what]
        shape: tuple[int, ...] = ()
    else:
        flat, shape = _flattened(list(what))
    kind = _kind_of(flat) if dtype is None else globals()["dtype"](dtype)
    return ndarray([_one(v, kind) for v in flat], shape, kind)


def _flattened(rows: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    if not any(isinstance(row, (list, tuple, ndarray, range)) for row in rows):
        return rows, (len(rows),)
    parts = [(row._flat, row.shape) if isinstance(row, ndarray) else _flattened(list(row)) for row in rows]
    if len({shape for _, shape in parts}) > 1:
        raise ValueError("rows of several shapes")
    return [v for flat, _ in parts for v in flat], (len(rows), *parts[0][1])


def asarray(what: Any, dtype: Any = None) -> ndarray:
    if isinstance(what, ndarray) and (dtype is None or what.dtype == dtype):
        return what
    return array(what, dtype)


ascontiguousarray = asarray


def _filled(shape: Any, what: Any, kind: dtype) -> ndarray:
    shape = (int(shape),) if not isinstance(shape, (tuple, list)) else tuple(map(int, shape))
    return ndarray([_one(what, kind)] * math.prod(shape), shape, kind)


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    return _filled(shape, 0, globals()["dtype"](dtype))


def ones(shape: Any, dtype: Any = float) -> ndarray:
    return _filled(shape, 1, globals()["dtype"](dtype))


empty = zeros


def full(shape: Any, what: Any, dtype: Any = None) -> ndarray:
    return _filled(shape, what, asarray(what).dtype if dtype is None else globals()["dtype"](dtype))


def zeros_like(a: Any, dtype: Any = None) -> ndarray:
    return zeros(asarray(a).shape, asarray(a).dtype if dtype is None else dtype)


empty_like = zeros_like


def arange(*ends: Any, dtype: Any = None) -> ndarray:
    flat = list(range(*map(int, ends)))
    return ndarray(flat, (len(flat),), INT if dtype is None else globals()["dtype"](dtype))


def fromiter(what: Iterable[Any], dtype: Any, count: int = -1) -> ndarray:
    return array(list(what), dtype)


def frombuffer(data: bytes, dtype: Any = float) -> ndarray:
    kind = globals()["dtype"](dtype)
    flat = list(struct.unpack(f"<{len(data) // kind.itemsize}{_CODES[kind.kind, kind.itemsize]}", data))
    return ndarray(flat, (len(flat),), kind)


# joining ------------------------------------------------------------------------------------------


def concatenate(parts: Any, axis: int = 0, dtype: Any = None) -> ndarray:
    parts = [asarray(part) for part in parts]
    kind = reduce(_wider, (part.dtype for part in parts)) if dtype is None else globals()["dtype"](dtype)
    if axis == 0:
        flat = [
            v for part in parts for v in (part._flat if part.dtype == kind else _cast(part._flat, part.dtype, kind))
        ]
        return ndarray(flat, (sum(part.shape[0] for part in parts), *parts[0].shape[1:]), kind)
    if parts[0].ndim != 2 or axis not in (1, -1):
        raise NotImplementedError("an axis beyond the second")
    rows = [list(chain.from_iterable(row)) for row in zip(*(part.tolist() for part in parts), strict=True)]
    return ndarray(list(chain.from_iterable(rows)), (parts[0].shape[0], sum(part.shape[1] for part in parts)), kind)


def stack(parts: Any, axis: int = 0) -> ndarray:
    parts = [asarray(part) for part in parts]
    if axis == 0:
        return concatenate([part.reshape((1, *part.shape)) for part in parts])
    if parts[0].ndim == 1:
        kind = reduce(_wider, (part.dtype for part in parts))
        columns = [_cast(part._flat, part.dtype, kind) for part in parts]
        return ndarray(list(chain.from_iterable(zip(*columns, strict=True))), (parts[0].shape[0], len(parts)), kind)
    raise NotImplementedError("an axis beyond the first of tables")


def column_stack(parts: Any) -> ndarray:
    return concatenate(
        [
            part.reshape(len(part), -1) if part.size else part.reshape(part.shape[0], *(part.shape[1:] or (1,)))
            for part in map(asarray, parts)
        ],
        axis=1,
    )


def append(a: Any, what: Any) -> ndarray:
    return concatenate([asarray(a).ravel(), asarray(what).reshape(-1)])


def repeat(a: Any, counts: Any, axis: int | None = None) -> ndarray:
    a = asarray(a)
    if axis == 0 and a.ndim > 1:
        return a[repeat(arange(len(a)), counts)]
    flat = a._flat
    if isinstance(counts, (ndarray, list, tuple)):
        counts = broadcast_to(asarray(counts), (len(flat),))._flat
        made = [v for v, n in zip(flat, counts, strict=True) for _ in range(n)]
    else:
        made = [v for v in flat for _ in range(counts)]
    return ndarray(made, (len(made),), a.dtype)


def tile(a: Any, count: int) -> ndarray:
    a = asarray(a)
    return ndarray(a._flat * count, (len(a._flat) * count,), a.dtype)


def pad(a: Any, around: Any, constant_values: Any = 0) -> ndarray:
    before, after = (around, around) if isinstance(around, int) else around
    a = asarray(a)
    return concatenate([full(before, constant_values, a.dtype), a, full(after, constant_values, a.dtype)])


def delete(a: Any, places: Any) -> ndarray:
    a = asarray(a)
    left = ones(len(a), bool)
    left[asarray(places)] = False
    return a[left]


def where(mask: Any, *sides: Any) -> Any:
    if not sides:
        return nonzero(mask)
    mask, one, other = asarray(mask), *sides
    kinds = [side.dtype if isinstance(side, ndarray) else None for side in (one, other)]
    if kinds[0] and kinds[1]:
        kind = _wider(kinds[0], kinds[1])
    else:
        kind = _weak(kinds[0], other) if kinds[0] else _weak(kinds[1], one) if kinds[1] else _kind_of([one, other])
    shape = broadcast_shapes(mask.shape, asarray(one).shape, asarray(other).shape)
    left, right = (broadcast_to(side, shape)._flat for side in (one, other))
    return ndarray(
        [a if m else b for m, a, b in zip(broadcast_to(mask, shape)._flat, left, right, strict=True)], shape, kind
    )


def nonzero(a: Any) -> tuple[ndarray, ...]:
    a = asarray(a)
    found = [place for place, v in enumerate(a._flat) if v]
    parts = []
    for axis, count in enumerate(a.shape):
        step = math.prod(a.shape[axis + 1 :])
        parts.append(ndarray([place // step % count for place in found], (len(found),), INT))
    return tuple(parts)


def flatnonzero(a: Any) -> ndarray:
    flat = asarray(a)._flat
    found = list(compress(range(len(flat)), flat))
    return ndarray(found, (len(found),), INT)


def diff(a: Any, axis: int = -1, prepend: Any = None, append: Any = None) -> ndarray:
    a = asarray(a)
    if prepend is not None or append is not None:
        a = concatenate(
            [
                part if isinstance(part, ndarray) else asarray([part])
                for part in (prepend, a, append)
                if part is not None
            ]
        )
    if a.ndim == 2:
        return a[1:] - a[:-1] if axis == 0 else a[:, 1:] - a[:, :-1]
    work = operator.ne if a.dtype.kind == "b" else operator.sub
    return _wrapped(ndarray(list(map(work, a._flat[1:], a._flat)), (max(len(a._flat) - 1, 0),), a.dtype))


def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> ndarray:
    a = asarray(a)
    if a.ndim == 2 and axis is not None:
        return add.accumulate(a, axis)
    kind = a.dtype if a.dtype.kind in "fu" and a.dtype.itemsize == 8 else INT
    return _wrapped(ndarray(list(accumulate(a._flat)), (len(a._flat),), kind))


def argsort(a: Any, axis: int = -1, kind: str | None = None, stable: bool | None = None) -> ndarray:
    return asarray(a).argsort(axis)


def sort(a: Any, axis: int = -1, kind: str | None = None) -> ndarray:
    made = asarray(a).copy()
    made.sort(axis)
    return made


def lexsort(keys: Any) -> ndarray:
    columns = [key._flat if isinstance(key, ndarray) else list(key) for key in keys]
    rows = list(zip(*reversed(columns), strict=True))
    order = sorted(range(len(rows)), key=rows.__getitem__)
    return ndarray(order, (len(order),), INT)


def searchsorted(a: Any, what: Any, side: str = "left", sorter: Any = None) -> Any:
    return asarray(a).searchsorted(what, side, sorter)


def unique(
    a: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    a = asarray(a)
    if axis == 1:
        found = unique(a.T, return_index, return_inverse, return_counts, axis=0)
        return (found[0].T, *found[1:]) if isinstance(found, tuple) else found.T
    rows = a._flat if axis is None else list(map(tuple, a.tolist()))
    first: dict[Any, int] = {}
    counts: dict[Any, int] = {}
    for place, row in enumerate(rows):
        first.setdefault(row, place)
        counts[row] = counts.get(row, 0) + 1
    order = sorted(first)
    flat = order if axis is None else list(chain.from_iterable(order))
    made = [ndarray(flat, (len(order), *(() if axis is None else a.shape[1:])), a.dtype)]
    if return_index:
        made.append(ndarray([first[row] for row in order], (len(order),), INT))
    if return_inverse:
        rank = {row: place for place, row in enumerate(order)}
        made.append(ndarray([rank[row] for row in rows], (len(rows),), INT))
    if return_counts:
        made.append(ndarray([counts[row] for row in order], (len(order),), INT))
    return made[0] if len(made) == 1 else tuple(made)


def isin(a: Any, among: Any, **_: Any) -> ndarray:
    a, known = asarray(a), set(asarray(among)._flat)
    return ndarray([v in known for v in a._flat], a.shape, BOOL)


def intersect1d(a: Any, b: Any, **_: Any) -> ndarray:
    found = sorted(set(asarray(a)._flat) & set(asarray(b)._flat))
    return ndarray(found, (len(found),), asarray(a).dtype)


def bincount(a: Any, weights: Any = None, minlength: int = 0) -> ndarray:
    flat = asarray(a)._flat
    made = [0] * max(minlength, max(flat, default=-1) + 1)
    for v, weight in zip(flat, again(1) if weights is None else asarray(weights)._flat, strict=False):
        made[v] += weight
    return ndarray(made if weights is None else list(map(float, made)), (len(made),), INT if weights is None else FLOAT)


def take_along_axis(a: ndarray, places: ndarray, axis: int) -> ndarray:
    if axis not in (1, -1):
        return take_along_axis(a.T, places.T, 1).T
    wide, many = a.shape[1], places.shape[1]
    flat = [a._flat[k // many * wide + place] for k, place in enumerate(places._flat)]
    return ndarray(flat, places.shape, a.dtype)


def array_equal(a: Any, b: Any) -> bool:
    a, b = asarray(a), asarray(b)
    return a.shape == b.shape and a._flat == b._flat


def clip(a: Any, low: Any = None, high: Any = None) -> Any:
    made = a if low is None else maximum(a, low)
    return made if high is None else minimum(made, high)


def _each(work: Callable[[Any], Any], kind: dtype | None = None) -> Callable[[Any], Any]:
    def function(a: Any) -> Any:
        if not isinstance(a, (ndarray, list, tuple)):
            return work(a)
        a = asarray(a)
        return ndarray(list(map(work, a._flat)), a.shape, kind or a.dtype)

    return function


def _in_all(name: str) -> Callable[..., Any]:
    return lambda a, *rest, **more: getattr(asarray(a), name)(*rest, **more)


log2, exp, exp2 = (_each(work, FLOAT) for work in (math.log2, math.exp, math.exp2))
isclose = ufunc(lambda x, y: math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-8), kind=BOOL)
ravel, argmax, prod = (_in_all(name) for name in ("ravel", "argmax", "prod"))


def iinfo(kind: Any) -> Any:
    kind = dtype(kind)
    low, high = _BOUNDS[kind.kind][kind.itemsize]
    return type("iinfo", (), {"min": low, "max": high})


def issubdtype(kind: Any, what: Any) -> bool:
    return {integer: "iu", bool_: "b"}.get(what, "f").find(dtype(kind).kind) >= 0


def __getattr__(name: str) -> Any:
    """Return a function that Python has a name of its own for."""
    if name in ("sum", "max", "min", "any", "all", "cumprod"):
        return _in_all(name)
    if name in ("abs", "absolute"):
        return _each(abs)
    raise AttributeError(f"this stand-in has no {name}")
